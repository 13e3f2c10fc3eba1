//! From a Pod's volume to what it is: through the claim to the volume that it is bound to.
//!
//! Source: `desired_state_of_world_populator`, `pkg/kubelet/volumemanager`.

use controller::request;
use controller::volume::migration::TranslationError;
use controller::volume::{
    affinity, claim_of, claim_ref, is_claim_bound, is_claim_of_pod, migration, volume_mode, volume_name,
};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, HostPathVolumeSource, ISCSIPersistentVolumeSource, ISCSIVolumeSource,
    LocalVolumeSource, NFSVolumeSource, Node, PersistentVolume, PersistentVolumeClaim, Pod, SecretReference,
    Volume,
};

use crate::volumes::Volumes;
use crate::volumes::error::Specific;
use crate::volumes::refused::{self, Refused};

/// Annotation of a PersistentVolume.
const GROUP: &str = "pv.beta.kubernetes.io/gid";

/// What a volume is cannot be told, or it is not to be had now; in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    /// Of a kind that nobody has.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Of no kind.
    #[error("no volume plugin matched for PersistentVolume {0}")]
    NoPlugin(String),
    /// A driver has taken the kind over, and cannot make anything of this one.
    #[error(transparent)]
    NotTranslated(TranslationError),
    /// The claim of a Pod's own volume is another's.
    #[error("PVC {claim} was not created for pod {pod} (pod is not owner)")]
    NotOfPod { claim: String, pod: String },
    /// The claim, or what it is bound to.
    #[error("error processing PVC {namespace}/{name}: {source}")]
    Claim { namespace: String, name: String, source: ClaimError },
}

impl Specific for ResolveError {}

/// A claim cannot be used now.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    #[error("failed to fetch PVC from API server: {}", said(.0))]
    NoClaim(#[source] Box<kube::Error>),
    #[error("PVC is being deleted")]
    Deleted,
    #[error("PVC is not bound")]
    NotBound,
    #[error("PVC has empty pvc.Spec.VolumeName")]
    NoName,
    #[error("failed to fetch PV {name} from API server: {}", said(source))]
    NoVolume { name: String, source: Box<kube::Error> },
    #[error(
        "found PV object {0} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
    )]
    ForNobody(String),
    #[error(
        "found PV object {volume} but its pv.Spec.ClaimRef.UID {uid} does not point to claim.UID {claim}"
    )]
    ForOther { volume: String, uid: String, claim: String },
    #[error(transparent)]
    NotTranslated(TranslationError),
    #[error("volume {volume} has volumeMode {mode}, but is specified in {place}")]
    Mode { volume: String, mode: &'static str, place: &'static str },
    #[error("storage node affinity check failed: no matching NodeSelectorTerms")]
    OtherNode,
}

/// A Pod's volume with everything that it takes to mount it.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    /// The PersistentVolume's name, or of an inline volume its own.
    pub(super) name: String,
    /// What the Pod calls it.
    pub(super) own_name: String,
    pub(super) source: Source,
    /// None for an inline volume of a driver. One that a driver has taken over is as if it were a PersistentVolume.
    pub(super) volume: Option<PersistentVolume>,
    /// The claim that is bound to the volume; none for an inline volume.
    pub(super) claim: Option<PersistentVolumeClaim>,
    /// Containers may only read it.
    pub(super) read_only: bool,
}

/// What a volume is.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A driver's.
    Csi(Box<CSIPersistentVolumeSource>),
    /// A folder or device of the node. Source: `LocalVolumeSource`.
    Local(LocalVolumeSource),
    /// A path of the node.
    HostPath(HostPathVolumeSource),
    /// A server's folder.
    Nfs(NFSVolumeSource),
    /// A server's disk.
    Iscsi(Box<ISCSIPersistentVolumeSource>),
}

impl Resolved {
    pub(super) fn is_device(&self) -> bool {
        self.volume.as_ref().is_some_and(|volume| volume_mode(volume) == "Block")
    }

    /// The group that the files are for: whoever has the volume is in it. Source: `VolumeGidAnnotationKey` of upstream's
    /// `pkg/volume/util`; what is no number says nothing.
    pub(super) fn group(&self) -> Option<i64> {
        let annotations = self.volume.as_ref()?.metadata.annotations.as_ref()?;
        annotations.get(GROUP)?.parse().ok()
    }

    pub(super) fn mount_options(&self) -> Vec<String> {
        let spec = self.volume.as_ref().and_then(|volume| volume.spec.as_ref());
        spec.and_then(|spec| spec.mount_options.clone()).unwrap_or_default()
    }
}

/// Asks the API what the volume is.
pub(super) async fn resolve(volumes: &Volumes, pod: &Pod, volume: &Volume) -> Result<Resolved, ResolveError> {
    let inline = |source, read_only| Resolved {
        name: volume.name.clone(),
        own_name: volume.name.clone(),
        source,
        volume: None,
        claim: None,
        read_only,
    };
    if let Some(source) = &volume.csi {
        return Ok(inline(
            Source::Csi(Box::new(inline_source(pod, volume, source))),
            source.read_only == Some(true),
        ));
    }
    if let Some(source) = &volume.nfs {
        return Ok(inline(Source::Nfs(source.clone()), source.read_only == Some(true)));
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(source) = &volume.iscsi {
        let read_only = source.read_only == Some(true);
        return Ok(inline(Source::Iscsi(Box::new(inline_disk(source, namespace))), read_only));
    }
    if let Some(translated) = migration::inline(volume, namespace) {
        return of_volume(&volume.name, None, translated.map_err(ResolveError::NotTranslated)?, false);
    }
    let name = claim_of(pod, volume).unwrap_or_default();
    let of_claim =
        |source| ResolveError::Claim { namespace: namespace.to_owned(), name: name.clone(), source };
    let (claim, wanted) = claim(volumes, namespace, &name).await.map_err(of_claim)?;
    if volume.ephemeral.is_some() && !is_claim_of_pod(&claim, pod) {
        let pod = crate::pod::identity::namespaced_name(pod);
        return Err(ResolveError::NotOfPod { claim: format!("{namespace}/{name}"), pod });
    }
    let persistent = bound(volumes, pod, volume, &claim, &wanted).await.map_err(of_claim)?;
    let asked = volume.persistent_volume_claim.as_ref().and_then(|claim| claim.read_only);
    of_volume(&volume.name, Some(claim), persistent, asked == Some(true))
}

/// What a PersistentVolume is.
fn of_volume(
    own_name: &str,
    claim: Option<PersistentVolumeClaim>,
    volume: PersistentVolume,
    read_only: bool,
) -> Result<Resolved, ResolveError> {
    let name = volume.metadata.name.clone().unwrap_or_default();
    let spec = volume.spec.clone().unwrap_or_default();
    let (source, own) = if let Some(csi) = spec.csi {
        let read_only = csi.read_only == Some(true);
        (Source::Csi(Box::new(csi)), read_only)
    } else if let Some(local) = spec.local {
        (Source::Local(local), false)
    } else if let Some(host_path) = spec.host_path {
        (Source::HostPath(host_path), false)
    } else if let Some(nfs) = spec.nfs {
        let read_only = nfs.read_only == Some(true);
        (Source::Nfs(nfs), read_only)
    } else if let Some(iscsi) = spec.iscsi {
        let read_only = iscsi.read_only == Some(true);
        (Source::Iscsi(Box::new(iscsi)), read_only)
    } else {
        let refused = refused::persistent(&volume).map(ResolveError::Refused);
        return Err(refused.unwrap_or(ResolveError::NoPlugin(name)));
    };
    let own_name = own_name.to_owned();
    Ok(Resolved { name, own_name, source, volume: Some(volume), claim, read_only: read_only || own })
}

/// The claim, and the name of the volume that it is bound to.
async fn claim(
    volumes: &Volumes,
    namespace: &str,
    name: &str,
) -> Result<(PersistentVolumeClaim, String), ClaimError> {
    let claim = request::get::<PersistentVolumeClaim>(&volumes.client, namespace, name).await;
    let claim = claim.map_err(|source| ClaimError::NoClaim(Box::new(source)))?;
    let wanted = bound_to(&claim)?.to_owned();
    Ok((claim, wanted))
}

/// The volume that a claim is bound to.
///
/// The status follows the binding in a write of its own. Upstream waits for that; here it is enough that the binder has
/// finished, so that a Pod need not wait for the next try.
fn bound_to(claim: &PersistentVolumeClaim) -> Result<&str, ClaimError> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(ClaimError::Deleted);
    }
    match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Bound") => {}
        Some("Lost") => return Err(ClaimError::NotBound),
        _ if is_claim_bound(claim) => {}
        _ => return Err(ClaimError::NotBound),
    }
    Some(volume_name(claim)).filter(|name| !name.is_empty()).ok_or(ClaimError::NoName)
}

/// Whether the volume says that it is for the claim. Source: `getPVSpec`.
fn check_reference(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), ClaimError> {
    let name = volume.metadata.name.clone().unwrap_or_default();
    let Some(reference) = claim_ref(volume) else { return Err(ClaimError::ForNobody(name)) };
    if reference.uid.is_some() && reference.uid == claim.metadata.uid {
        return Ok(());
    }
    let text = |uid: &Option<String>| uid.clone().unwrap_or_default();
    Err(ClaimError::ForOther { volume: name, uid: text(&reference.uid), claim: text(&claim.metadata.uid) })
}

/// The volume that a claim is bound to, if the Pod can have it here.
async fn bound(
    volumes: &Volumes,
    pod: &Pod,
    volume: &Volume,
    claim: &PersistentVolumeClaim,
    wanted: &str,
) -> Result<PersistentVolume, ClaimError> {
    let found = request::get::<PersistentVolume>(&volumes.client, "", wanted).await;
    let found =
        found.map_err(|source| ClaimError::NoVolume { name: wanted.to_owned(), source: Box::new(source) })?;
    check_reference(&found, claim)?;
    let found = migration::persistent(&found).unwrap_or(Ok(found)).map_err(ClaimError::NotTranslated)?;
    check_mode(pod, volume, &found)?;
    let own = controller::Scope {
        field_selector: Some(format!("metadata.name={}", volumes.config.node_name)),
        ..controller::Scope::default()
    };
    let node = volumes.informers.scoped::<Node>(own);
    node.synced().await;
    let labels = node.get(&volumes.config.node_name).and_then(|node| node.metadata.labels.clone());
    if !affinity::reaches(&found, labels.as_ref()) {
        return Err(ClaimError::OtherNode);
    }
    Ok(found)
}

/// Folders are mounted, devices are not.
fn check_mode(pod: &Pod, volume: &Volume, found: &PersistentVolume) -> Result<(), ClaimError> {
    let spec = pod.spec.as_ref();
    let containers =
        || spec.iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    let is_mounted = containers().any(|c| c.volume_mounts.iter().flatten().any(|m| m.name == volume.name));
    let is_device = containers().any(|c| c.volume_devices.iter().flatten().any(|d| d.name == volume.name));
    let (mode, place) = match volume_mode(found) {
        "Block" if is_mounted => ("Block", "volumeMounts"),
        "Filesystem" if is_device => ("Filesystem", "volumeDevices"),
        _ => return Ok(()),
    };
    Err(ClaimError::Mode { volume: volume.name.clone(), mode, place })
}

/// An inline volume as if it were a PersistentVolume's. Its handle is made of Pod and name. Source: KEP-596.
fn inline_source(
    pod: &Pod,
    volume: &Volume,
    source: &k8s_openapi::api::core::v1::CSIVolumeSource,
) -> CSIPersistentVolumeSource {
    let (name, namespace, uid) = crate::pod::identity::identity(pod);
    let secret = source.node_publish_secret_ref.as_ref().map(|secret| SecretReference {
        name: Some(secret.name.clone()),
        namespace: Some(namespace.clone()),
    });
    // What it is hashed of is ours to choose: nobody else reads it.
    let handle = controller::volume::sha256(&[&uid, &namespace, &name, &volume.name]);
    CSIPersistentVolumeSource {
        driver: source.driver.clone(),
        volume_handle: format!("csi-{handle}"),
        fs_type: source.fs_type.clone(),
        read_only: source.read_only,
        volume_attributes: source.volume_attributes.clone(),
        node_publish_secret_ref: secret,
        ..CSIPersistentVolumeSource::default()
    }
}

/// A Pod's own disk as if it were a PersistentVolume's.
fn inline_disk(source: &ISCSIVolumeSource, namespace: &str) -> ISCSIPersistentVolumeSource {
    let secret = source.secret_ref.as_ref();
    ISCSIPersistentVolumeSource {
        chap_auth_discovery: source.chap_auth_discovery,
        chap_auth_session: source.chap_auth_session,
        fs_type: source.fs_type.clone(),
        initiator_name: source.initiator_name.clone(),
        iqn: source.iqn.clone(),
        iscsi_interface: source.iscsi_interface.clone(),
        lun: source.lun,
        portals: source.portals.clone(),
        read_only: source.read_only,
        secret_ref: secret.map(|secret| SecretReference {
            name: Some(secret.name.clone()),
            namespace: Some(namespace.to_owned()),
        }),
        target_portal: source.target_portal.clone(),
    }
}

/// What the API server said.
pub(super) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
