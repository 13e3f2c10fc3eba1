//! The rules about volumes and claims that binder, attacher, scheduler and kubelet share: annotations, who is bound to
//! whom, which volume fits a claim, which node can reach it, and what things are called.
//!
//! Pure. Sources: `component-helpers/storage/volume`, `pkg/volume/util`, `pkg/volume/csi` of upstream.

pub mod affinity;
pub mod matching;
pub mod migration;

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim, Volume,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::quantity::Quantity;
use sha2::{Digest, Sha256};

use crate::pod::Pod;

/// The annotation of a claim whose binding is complete.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The annotation of a claim or a volume that a controller has bound, not a person.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The annotation of a volume: who has made it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The annotation of a claim: who is to make a volume for it.
pub const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same, as older provisioners look for it.
pub const PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The annotation of a claim: the Node that the scheduler wants its volume for.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The annotation of a claim or volume: its class, from before there was a field.
pub const CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";
/// The provisioner of classes that have none.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// An annotation's value.
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The claim's class; `None` if it says nothing, which is not the same as the empty class.
pub fn claim_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    let field = || claim.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&claim.metadata, CLASS_BETA).or_else(field)
}

/// The volume's class, empty if it has none.
pub fn volume_class(volume: &PersistentVolume) -> &str {
    let field = || volume.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&volume.metadata, CLASS_BETA).or_else(field).unwrap_or_default()
}

/// The volume that the claim names, empty if none.
pub fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
}

/// `true` if both sides say that they belong together, and the binder has finished.
pub fn is_claim_bound(claim: &PersistentVolumeClaim) -> bool {
    !volume_name(claim).is_empty() && annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

/// `true` if volumes of the class are bound when a Pod is scheduled, not before.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The claim that the volume is for.
pub fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// `true` if the volume is for this claim: by name, and by uid if it says one.
pub fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = claim_ref(volume) else { return false };
    let uid = reference.uid.as_deref().unwrap_or_default();
    reference.name == claim.metadata.name
        && reference.namespace == claim.metadata.namespace
        && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
}

/// A volume's reference to the claim that it is for.
pub fn reference_to_claim(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// The volume, set aside for the claim.
pub fn set_aside(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> PersistentVolume {
    let mut new = volume.clone();
    if claim_ref(volume).is_none() {
        let annotations = new.metadata.annotations.get_or_insert_default();
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
    new.spec.get_or_insert_default().claim_ref = Some(reference_to_claim(claim));
    new
}

/// `Filesystem` or `Block`.
pub fn claim_mode(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem")
}

/// `Filesystem` or `Block`.
pub fn volume_mode(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem")
}

/// The size that a claim asks for.
pub fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let storage = requests.and_then(|requests| requests.get("storage"));
    storage.and_then(|text| text.0.parse().ok()).unwrap_or_default()
}

/// The size of a volume.
pub fn capacity(volume: &PersistentVolume) -> Quantity {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    capacity.and_then(|all| all.get("storage")?.0.parse().ok()).unwrap_or_default()
}

/// The name of the claim behind a Pod's volume, if one is; those of generic ephemeral volumes are the Pod's own.
pub fn claim_of(pod: &impl Metadata<Ty = ObjectMeta>, volume: &Volume) -> Option<String> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    volume.ephemeral.as_ref()?;
    Some(format!("{}-{}", pod.metadata().name.as_deref().unwrap_or_default(), volume.name))
}

/// `true` if the claim was made for this very Pod. Source: `IsVolumeForPod`... of generic ephemeral volumes, KEP-1698.
pub fn is_claim_of_pod(claim: &PersistentVolumeClaim, pod: &impl Metadata<Ty = ObjectMeta>) -> bool {
    let owners = claim.metadata.owner_references.iter().flatten();
    let uid = pod.metadata().uid.as_deref().unwrap_or_default();
    owners.into_iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

/// The keys of the claims behind a Pod's volumes.
pub fn claims_of(pod: &Pod) -> Vec<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| claim_of(pod, volume)).map(|name| format!("{namespace}/{name}")).collect()
}

/// The driver's part of a volume.
pub fn csi(volume: &PersistentVolume) -> Option<&CSIPersistentVolumeSource> {
    volume.spec.as_ref()?.csi.as_ref()
}

/// The name of a volume in `Node.status.volumesInUse` and `volumesAttached`.
pub fn unique_name(source: &CSIPersistentVolumeSource) -> String {
    format!("kubernetes.io/csi/{}^{}", source.driver, source.volume_handle)
}

/// The prefix of iSCSI volumes' names there.
pub const ISCSI: &str = "kubernetes.io/iscsi/";

/// The name of an iSCSI volume in `Node.status.volumesInUse` and `volumesAttached`. Source: `GetVolumeName`,
/// `pkg/volume/iscsi`.
pub fn iscsi_name(target_portal: &str, iqn: &str, lun: i32) -> String {
    format!("{ISCSI}{target_portal}:{iqn}:{lun}")
}

/// The name of the VolumeAttachment of a volume and a node. Source: `getAttachmentName`, `pkg/volume/csi`.
pub fn attachment_name(source: &CSIPersistentVolumeSource, node: &str) -> String {
    format!("csi-{}", sha256(&[&source.volume_handle, &source.driver, node]))
}

/// The hexadecimal digest of texts, one after the other.
pub fn sha256(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    texts.iter().for_each(|text| hash.update(text));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `true` if only one node may have the volume at a time.
pub fn is_exclusive(volume: &PersistentVolume) -> bool {
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    !modes.is_empty() && !modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

#[cfg(test)]
mod tests;
