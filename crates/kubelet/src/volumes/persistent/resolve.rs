//! From a Pod's volume to what it is: through the claim to the volume that it is bound to.
//!
//! Source: `desired_state_of_world_populator`, `pkg/kubelet/volumemanager`.

use controller::request;
use controller::volume::migration::TranslationError;
use controller::volume::{
    affinity, claim_of, is_claim_bound, is_claim_of_pod, is_for, migration, volume_mode, volume_name,
};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, HostPathVolumeSource, ISCSIPersistentVolumeSource, ISCSIVolumeSource,
    LocalVolumeSource, NFSVolumeSource, Node, PersistentVolume, PersistentVolumeClaim, Pod, SecretReference,
    Volume,
};

use crate::volumes::Volumes;
use crate::volumes::error::Specific;
use crate::volumes::refused::{self, Refused};

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
    #[error("PVC {0} was not created for pod (pod is not owner)")]
    NotOfPod(String),
    #[error("PVC is being deleted")]
    Deleted,
    #[error("PVC is not bound")]
    NotBound,
    #[error("failed to fetch PV {name} from API server: {}", said(source))]
    NoVolume { name: String, source: Box<kube::Error> },
    #[error("PV {0} spec.claimRef.uid does not match pvc.UID")]
    NotForClaim(String),
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
    let bound = bound(volumes, pod, volume, (namespace, &name)).await;
    let (claim, persistent) =
        bound.map_err(|source| ResolveError::Claim { namespace: namespace.to_owned(), name, source })?;
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

/// The claim, and the volume that it is bound to.
async fn bound(
    volumes: &Volumes,
    pod: &Pod,
    volume: &Volume,
    (namespace, name): (&str, &str),
) -> Result<(PersistentVolumeClaim, PersistentVolume), ClaimError> {
    let claim = request::get::<PersistentVolumeClaim>(&volumes.client, namespace, name).await;
    let claim = claim.map_err(|source| ClaimError::NoClaim(Box::new(source)))?;
    if volume.ephemeral.is_some() && !is_claim_of_pod(&claim, pod) {
        return Err(ClaimError::NotOfPod(format!("{namespace}/{name}")));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(ClaimError::Deleted);
    }
    if !is_claim_bound(&claim) {
        return Err(ClaimError::NotBound);
    }
    let wanted = volume_name(&claim);
    let found = request::get::<PersistentVolume>(&volumes.client, "", wanted).await;
    let found =
        found.map_err(|source| ClaimError::NoVolume { name: wanted.to_owned(), source: Box::new(source) })?;
    if !is_for(&found, &claim) {
        return Err(ClaimError::NotForClaim(wanted.to_owned()));
    }
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
    Ok((claim, found))
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

fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
