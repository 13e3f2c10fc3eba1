//! A bound claim that asks for more than its volume has gets it, or is told that it cannot.
//!
//! First the claim says what is being tried, then the driver is asked, then volume and claim say that it is so. A claim
//! that asks for less again is tried with that. Source: KEP-284, KEP-1790.

use controller::metadata::{name, namespace};
use controller::plan::FAILURE;
use controller::volume::{capacity, csi, is_claim_bound, is_for, requested};
use controller::{Action, EventType, Patch, Plan};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::conditions::{INFEASIBLE_RETRY, RETRY, has_failed_with, replaced, rests_for};
use super::{ClaimSnapshot, DRIVER, RESIZER_COMPONENT, call, is_ours, node_of};

const RESIZING: &str = "Resizing";
const ERROR: &str = "ControllerResizeError";
const CONDITIONS: [&str; 4] = [RESIZING, ERROR, "FileSystemResizePending", "NodeResizeError"];

const IN_PROGRESS: &str = "ControllerResizeInProgress";
const INFEASIBLE: &str = "ControllerResizeInfeasible";
/// Failures that stay so for this size. Source: `IsInfeasibleError` of external-resizer.
const INFEASIBLE_CODES: [&str; 3] = ["InvalidArgument", "OutOfRange", "NotFound"];

/// Where a growth stands, and to which size.
fn state(claim: &PersistentVolumeClaim) -> (&str, machinery::quantity::Quantity) {
    let status = claim.status.as_ref();
    let state = status.and_then(|status| status.allocated_resource_statuses.as_ref()?.get("storage"));
    let size = status.and_then(|status| status.allocated_resources.as_ref()?.get("storage"));
    (state.map(String::as_str).unwrap_or_default(), parsed(size))
}

fn parsed(size: Option<&Quantity>) -> machinery::quantity::Quantity {
    size.and_then(|text| text.0.parse().ok()).unwrap_or_default()
}

/// Decides whether the volume grows. The kubelet that makes the call has a device grow wherever it is used, too.
pub(super) fn plan(snapshot: &ClaimSnapshot, now: Timestamp) -> Plan {
    let claim = &*snapshot.claim;
    let mut plan = Plan::nothing();
    let Some(volume) = snapshot.volume.as_deref() else { return plan };
    if !is_ours(volume) || !is_claim_bound(claim) || !is_for(volume, claim) {
        return plan;
    }
    if requested(claim) > capacity(volume) {
        return grow(claim, volume, now);
    }
    let known = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    let (state, _) = state(claim);
    // What a claim has is first said by the binder.
    if known.is_some() && capacity(volume) > parsed(known) {
        plan.push(finish(claim, volume, now));
        let message = "Resize volume succeeded";
        plan.push(Action::event_from(
            RESIZER_COMPONENT,
            claim,
            EventType::Normal,
            "VolumeResizeSuccessful",
            message,
        ));
    } else if matches!(state, IN_PROGRESS | INFEASIBLE) {
        // The claim has come back to what it has.
        plan.push(finish(claim, volume, now));
    }
    plan
}

fn grow(claim: &PersistentVolumeClaim, volume: &PersistentVolume, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let wanted =
        claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
    let (Some(wanted), Some(source), Some(node)) = (wanted, csi(volume), node_of(volume)) else {
        return plan;
    };
    let volume_name = name(&volume.metadata);
    let (state, target) = state(claim);
    match state {
        INFEASIBLE
            if target == requested(claim) && rests_for(claim, ERROR, INFEASIBLE_RETRY, now).is_some() =>
        {
            plan.requeue_after = rests_for(claim, ERROR, INFEASIBLE_RETRY, now);
        }
        IN_PROGRESS if target == requested(claim) && has_failed_with(claim, ERROR, &INFEASIBLE_CODES) => {
            plan.push(patch(claim, &json!({"allocatedResourceStatuses": {"storage": INFEASIBLE}})));
        }
        IN_PROGRESS if target == requested(claim) && rests_for(claim, ERROR, RETRY, now).is_some() => {
            plan.requeue_after = rests_for(claim, ERROR, RETRY, now);
        }
        IN_PROGRESS if target == requested(claim) => {
            let body = json!({
                "driver": DRIVER,
                "call": "ControllerExpandVolume",
                "volumeId": source.volume_handle,
                "requiredBytes": requested(claim).value(),
            });
            plan.push(call(node, body));
            let larger = json!({"spec": {"capacity": {"storage": wanted}}});
            plan.push(Action::patch::<PersistentVolume>("", volume_name, Patch::Merge(larger)));
            let why = format!("resize volume \"{volume_name}\" by resizer \"{DRIVER}\" failed: {FAILURE}");
            let new = Some((ERROR, format!("failed to expand pvc with {FAILURE}")));
            plan.on_failure = vec![
                patch(claim, &json!({"conditions": replaced(claim, &[ERROR], new, now)})),
                Action::event_from(RESIZER_COMPONENT, claim, EventType::Warning, "VolumeResizeFailed", why),
            ];
        }
        _ => {
            let new = Some((RESIZING, String::new()));
            let status = json!({
                "allocatedResources": {"storage": wanted},
                "allocatedResourceStatuses": {"storage": IN_PROGRESS},
                "conditions": replaced(claim, &CONDITIONS, new, now),
            });
            plan.push(patch(claim, &status));
            let message = format!("External resizer is resizing volume {volume_name}");
            plan.push(Action::event_from(RESIZER_COMPONENT, claim, EventType::Normal, "Resizing", message));
        }
    }
    plan
}

/// The claim says what its volume has, and that nothing is being done about it.
fn finish(claim: &PersistentVolumeClaim, volume: &PersistentVolume, now: Timestamp) -> Action {
    let size = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    let status = json!({
        "capacity": {"storage": size},
        "allocatedResources": {"storage": size},
        "allocatedResourceStatuses": null,
        "conditions": replaced(claim, &CONDITIONS, None, now),
    });
    patch(claim, &status)
}

fn patch(claim: &PersistentVolumeClaim, status: &Value) -> Action {
    let (space, name) = (namespace(&claim.metadata), name(&claim.metadata));
    Action::patch_status::<PersistentVolumeClaim>(space, name, Patch::Merge(json!({"status": status})))
}
