//! A bound claim that asks for other attributes gets them, or is told that it cannot have them.
//!
//! First the claim says what is being tried, then the driver is asked, then volume and claim say that it is so. A claim
//! that asks for its old attributes again gets those. Source: KEP-3751, `modifycontroller` of external-resizer.

use controller::metadata::{name, namespace};
use controller::plan::FAILURE;
use controller::volume::{csi, is_claim_bound, is_for};
use controller::{Action, EventType, Patch, Plan};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use serde_json::{Value, json};

use super::conditions::{INFEASIBLE_RETRY, RETRY, has_failed_with, replaced, rests_for};
use super::{ClaimSnapshot, DRIVER, RESIZER_COMPONENT, call, is_ours, node_of, wanted_attributes};

const MODIFYING: &str = "ModifyingVolume";
const ERROR: &str = "ModifyVolumeError";
const CONDITIONS: [&str; 2] = [MODIFYING, ERROR];

/// Source: `PersistentVolumeClaimModifyVolumeStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The attributes are not there.
    Pending,
    /// The driver has been asked, or is about to be.
    InProgress,
    /// The driver has said that it cannot be.
    Infeasible,
}

impl State {
    /// As the API writes it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::InProgress => "InProgress",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// Where a change to `wanted` stands.
fn state(claim: &PersistentVolumeClaim, wanted: &str) -> Option<State> {
    let status = claim.status.as_ref()?.modify_volume_status.as_ref()?;
    if status.target_volume_attributes_class_name.as_deref().unwrap_or_default() != wanted {
        return None;
    }
    let all = [State::Pending, State::InProgress, State::Infeasible];
    all.into_iter().find(|state| state.as_str() == status.status)
}

/// Decides whether the volume changes.
pub(super) fn plan(snapshot: &ClaimSnapshot, now: Timestamp) -> Plan {
    let claim = &*snapshot.claim;
    let Some(volume) = snapshot.volume.as_deref() else { return Plan::nothing() };
    if !is_ours(volume) || !is_claim_bound(claim) || !is_for(volume, claim) {
        return Plan::nothing();
    }
    let status = claim.status.as_ref();
    let current = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let wanted = wanted_attributes(claim);
    if current.unwrap_or_default() == wanted {
        return roll_back(snapshot, volume, now);
    }
    if wanted.is_empty() {
        return Plan::nothing();
    }
    let Some(class) = snapshot.attributes.as_deref() else {
        let mut plan = Plan::nothing();
        if state(claim, wanted) != Some(State::Pending) {
            plan.push(mark(claim, wanted, State::Pending, None, now));
            plan.push(warning(claim, format!("VAC {wanted} does not exist.")));
        }
        return plan;
    };
    change(snapshot, volume, class, now)
}

fn change(
    snapshot: &ClaimSnapshot,
    volume: &PersistentVolume,
    class: &VolumeAttributesClass,
    now: Timestamp,
) -> Plan {
    let claim = &*snapshot.claim;
    let wanted = name(&class.metadata);
    let mut plan = Plan::nothing();
    match state(claim, wanted) {
        Some(State::Infeasible) if rests_for(claim, MODIFYING, INFEASIBLE_RETRY, now).is_some() => {
            plan.requeue_after = rests_for(claim, MODIFYING, INFEASIBLE_RETRY, now);
        }
        Some(State::InProgress) if has_failed_with(claim, MODIFYING, &["InvalidArgument"]) => {
            plan.push(mark(claim, wanted, State::Infeasible, None, now));
        }
        Some(State::InProgress) if rests_for(claim, MODIFYING, RETRY, now).is_some() => {
            plan.requeue_after = rests_for(claim, MODIFYING, RETRY, now);
        }
        Some(State::InProgress) => {
            if class.driver_name != DRIVER {
                let why = format!(
                    "VolumeAttributesClass {wanted} is for driver {}, not {DRIVER}",
                    class.driver_name
                );
                plan.push(mark(claim, wanted, State::Infeasible, Some(failure(&why)), now));
                plan.push(warning(claim, why));
                return plan;
            }
            plan = apply(claim, volume, class, now);
            let message = format!(
                "external resizer modified volume {} with vac {wanted} successfully",
                name(&claim.metadata)
            );
            plan.push(Action::event_from(
                RESIZER_COMPONENT,
                claim,
                EventType::Normal,
                "VolumeModifySuccessful",
                message,
            ));
        }
        Some(State::Pending | State::Infeasible) | None => {
            let message = "ModifyVolume operation in progress.".to_owned();
            plan.push(mark(claim, wanted, State::InProgress, Some(message), now));
            let message =
                format!("external resizer is modifying volume {} with vac {wanted}", name(&claim.metadata));
            plan.push(Action::event_from(
                RESIZER_COMPONENT,
                claim,
                EventType::Normal,
                "VolumeModify",
                message,
            ));
        }
    }
    plan
}

/// The claim asks for what its volume has: what was tried meanwhile is taken back.
fn roll_back(snapshot: &ClaimSnapshot, volume: &PersistentVolume, now: Timestamp) -> Plan {
    let claim = &*snapshot.claim;
    let tried = claim.status.as_ref().and_then(|status| status.modify_volume_status.as_ref());
    let Some(tried) = tried else { return Plan::nothing() };
    match snapshot.current_attributes.as_deref() {
        // The driver may have done some of it.
        Some(class) if tried.status == State::InProgress.as_str() => {
            match rests_for(claim, MODIFYING, RETRY, now) {
                Some(rest) => Plan { requeue_after: Some(rest), ..Plan::nothing() },
                None => apply(claim, volume, class, now),
            }
        }
        _ => {
            let mut plan = Plan::nothing();
            plan.push(finish(claim, None, now));
            plan
        }
    }
}

/// Asks the driver, and says that it is so.
fn apply(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    class: &VolumeAttributesClass,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::nothing();
    let (Some(source), Some(node)) = (csi(volume), node_of(volume)) else { return plan };
    let class_name = name(&class.metadata);
    let body = json!({
        "driver": DRIVER,
        "call": "ControllerModifyVolume",
        "volumeId": source.volume_handle,
        "mutableParameters": class.parameters.clone().unwrap_or_default(),
    });
    plan.push(call(node, body));
    let changed = json!({"spec": {"volumeAttributesClassName": class_name}});
    plan.push(Action::patch::<PersistentVolume>("", name(&volume.metadata), Patch::Merge(changed)));
    plan.push(finish(claim, Some(class_name), now));
    let wanted = claim.status.as_ref().and_then(|status| status.modify_volume_status.as_ref());
    let wanted = wanted.and_then(|status| status.target_volume_attributes_class_name.as_deref());
    plan.on_failure = vec![
        mark(claim, wanted.unwrap_or(class_name), State::InProgress, Some(failure(FAILURE)), now),
        warning(claim, FAILURE.to_owned()),
    ];
    plan
}

fn failure(why: &str) -> String {
    format!("ModifyVolume failed with error: {why}. Waiting for retry.")
}

fn warning(claim: &PersistentVolumeClaim, message: String) -> Action {
    Action::event_from(RESIZER_COMPONENT, claim, EventType::Warning, "VolumeModifyFailed", message)
}

/// The claim says where the change stands; without a message its conditions stay.
fn mark(
    claim: &PersistentVolumeClaim,
    wanted: &str,
    state: State,
    message: Option<String>,
    now: Timestamp,
) -> Action {
    let tried = json!({"targetVolumeAttributesClassName": wanted, "status": state.as_str()});
    let mut status = json!({"modifyVolumeStatus": tried});
    if message.is_some() {
        let new = message.map(|message| (MODIFYING, message));
        status["conditions"] = json!(replaced(claim, &CONDITIONS, new, now));
    }
    patch(claim, &status)
}

/// The claim says that nothing is being changed, and what its volume has if that is new.
fn finish(claim: &PersistentVolumeClaim, class: Option<&str>, now: Timestamp) -> Action {
    let mut status = json!({
        "modifyVolumeStatus": null,
        "conditions": replaced(claim, &CONDITIONS, None, now),
    });
    if let Some(class) = class {
        status["currentVolumeAttributesClassName"] = class.into();
    }
    patch(claim, &status)
}

fn patch(claim: &PersistentVolumeClaim, status: &Value) -> Action {
    let (space, name) = (namespace(&claim.metadata), name(&claim.metadata));
    Action::patch_status::<PersistentVolumeClaim>(space, name, Patch::Merge(json!({"status": status})))
}
