//! The steps for one volume. Source: `syncVolume`, `reclaimVolume`.

use std::sync::Arc;

use controller::metadata::name;
use controller::volume::matching::phase;
use controller::volume::{
    BOUND_BY_CONTROLLER, PROVISIONED_BY, annotation, claim_ref, csi, volume_mode, volume_name,
};
use controller::{Action, EventType, Plan, ResourceRef};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::volume::note_migrated;

/// The input of a decision about one volume.
pub struct VolumeSnapshot {
    /// The volume.
    pub volume: Arc<PersistentVolume>,
    /// The claim of the name that the volume is for.
    pub claim: Option<Arc<PersistentVolumeClaim>>,
}

/// Decides about one volume.
pub fn plan_volume(snapshot: &VolumeSnapshot) -> Plan {
    let volume = &*snapshot.volume;
    let mut new = volume.clone();
    if note_migrated(&mut new.metadata, annotation(&volume.metadata, PROVISIONED_BY)) {
        let mut plan = Plan::nothing();
        plan.push(Action::update(&new));
        return plan;
    }
    let Some(reference) = claim_ref(volume) else { return set_phase(volume, "Available") };
    let uid = reference.uid.as_deref().unwrap_or_default();
    if uid.is_empty() {
        // Set aside for a claim that may come.
        return set_phase(volume, "Available");
    }
    let claim = snapshot.claim.as_deref().filter(|claim| claim.metadata.uid.as_deref() == Some(uid));
    let Some(claim) = claim else { return release(volume, uid) };
    match volume_name(claim) {
        "" if volume_mode(volume) != controller::volume::claim_mode(claim) => {
            let message = format!(
                "Cannot bind PersistentVolume to requested PersistentVolumeClaim \"{}\" due to incompatible volumeMode.",
                name(&claim.metadata)
            );
            let mut plan = Plan::nothing();
            plan.push(Action::event(volume, EventType::Warning, "VolumeMismatch", message.clone()));
            plan.push(Action::event(claim, EventType::Warning, "VolumeMismatch", message));
            plan
        }
        // The claim is about to be bound.
        "" => Plan::nothing(),
        named if named == name(&volume.metadata) => set_phase(volume, "Bound"),
        _ => unbind(volume, uid),
    }
}

fn set_phase(volume: &PersistentVolume, wanted: &str) -> Plan {
    let mut plan = Plan::nothing();
    if phase(volume) != wanted {
        plan.push(with_phase(volume, wanted));
    }
    plan
}

fn with_phase(volume: &PersistentVolume, wanted: &str) -> Action {
    let mut new = volume.clone();
    let status = new.status.get_or_insert_default();
    status.phase = Some(wanted.to_owned());
    status.message = None;
    Action::update_status(&new)
}

/// Its claim is gone: the volume is released, and reclaimed as its policy says.
fn release(volume: &PersistentVolume, uid: &str) -> Plan {
    let mut plan = Plan::nothing();
    if !matches!(phase(volume), "Released" | "Failed") {
        // The claim may be there although we have not seen it yet.
        let reference = claim_ref(volume);
        let text = |part: Option<&String>| part.map(String::as_str).unwrap_or_default().to_owned();
        let namespace = text(reference.and_then(|reference| reference.namespace.as_ref()));
        let claim = text(reference.and_then(|reference| reference.name.as_ref()));
        let resource = ResourceRef::of::<PersistentVolumeClaim>();
        plan.push(Action::require_absent(resource, &namespace, &claim, uid));
        plan.push(with_phase(volume, "Released"));
        return plan;
    }
    if phase(volume) == "Failed" {
        return plan;
    }
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let has_deleter = annotation(&volume.metadata, PROVISIONED_BY).is_some() || csi(volume).is_some();
    let (reason, message) = match policy {
        Some("Recycle") => ("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned()),
        Some("Delete") if !has_deleter => {
            let name = name(&volume.metadata);
            let message = format!(
                "error getting deleter volume plugin for volume \"{name}\": no deletable volume plugin matched"
            );
            ("VolumeFailedDelete", message)
        }
        // Whoever has made the volume removes it; one that is retained waits for people.
        _ => return plan,
    };
    let mut new = volume.clone();
    let status = new.status.get_or_insert_default();
    status.phase = Some("Failed".to_owned());
    status.message = Some(message.clone());
    plan.push(Action::update_status(&new));
    plan.push(Action::event(volume, EventType::Warning, reason, message));
    plan
}

/// Its claim has another volume.
fn unbind(volume: &PersistentVolume, uid: &str) -> Plan {
    let spec = volume.spec.as_ref();
    let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    if annotation(&volume.metadata, PROVISIONED_BY).is_some() && policy == Some("Delete") {
        // It was made for the claim, which does not need it: nobody else can.
        let mut plan = Plan::nothing();
        if !matches!(phase(volume), "Released" | "Failed") {
            plan.push(with_phase(volume, "Released"));
        }
        return plan;
    }
    let mut new = volume.clone();
    if annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some() {
        new.metadata.annotations.get_or_insert_default().remove(BOUND_BY_CONTROLLER);
        new.spec.get_or_insert_default().claim_ref = None;
    } else if let Some(reference) = &mut new.spec.get_or_insert_default().claim_ref
        && reference.uid.as_deref() == Some(uid)
    {
        reference.uid = None;
        reference.resource_version = None;
    }
    let mut plan = Plan::nothing();
    plan.push(Action::update(&new));
    plan
}
