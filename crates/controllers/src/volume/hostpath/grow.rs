//! A bound claim that asks for more than its volume has gets it. Source: KEP-284, KEP-1790.

use controller::plan::FAILURE;
use controller::volume::{capacity, csi, is_claim_bound, is_for, requested};
use controller::{Action, EventType, Patch, Plan};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::{ClaimSnapshot, DRIVER, call, is_ours, node_of};
use crate::object::{name, namespace};

/// Decides whether the volume grows. The kubelet that makes the call has a device grow wherever it is used, too.
pub(super) fn plan(snapshot: &ClaimSnapshot) -> Plan {
    let claim = &*snapshot.claim;
    let mut plan = Plan::nothing();
    let Some(volume) = snapshot.volume.as_deref() else { return plan };
    if !is_ours(volume) || !is_claim_bound(claim) || !is_for(volume, claim) {
        return plan;
    }
    let wanted =
        claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
    let (Some(wanted), Some(source), Some(node)) = (wanted, csi(volume), node_of(volume)) else {
        return plan;
    };
    if requested(claim) > capacity(volume) {
        let message = format!("External resizer is resizing volume {}", name(&volume.metadata));
        plan.push(Action::event(claim, EventType::Normal, "Resizing", message));
        let body = json!({
            "driver": DRIVER,
            "call": "ControllerExpandVolume",
            "volumeId": source.volume_handle,
            "requiredBytes": requested(claim).value(),
        });
        plan.push(call(node, body));
        let larger = json!({"spec": {"capacity": {"storage": wanted}}});
        plan.push(Action::patch::<PersistentVolume>("", name(&volume.metadata), Patch::Merge(larger)));
        let message =
            format!("resize volume \"{}\" by resizer \"{DRIVER}\" failed: {FAILURE}", name(&volume.metadata));
        plan.on_failure = vec![Action::event(claim, EventType::Warning, "VolumeResizeFailed", message)];
        return plan;
    }
    let known = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    let known = known.and_then(|text| text.0.parse().ok()).unwrap_or_default();
    if capacity(volume) <= known {
        return plan;
    }
    let size = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    let status = json!({"capacity": {"storage": size}, "conditions": [], "allocatedResourceStatuses": null});
    let patch = Patch::Merge(json!({"status": status}));
    plan.push(Action::patch_status::<PersistentVolumeClaim>(
        namespace(&claim.metadata),
        name(&claim.metadata),
        patch,
    ));
    plan.push(Action::event(claim, EventType::Normal, "VolumeResizeSuccessful", "Resize volume succeeded"));
    plan
}
