//! The note on a claim while a volume is being made for it: on which Node.
//!
//! It is written before the driver is asked, and taken away when claim and volume are bound. So whatever dies in between,
//! a volume without an object is found again: a claim that goes meanwhile is held until the driver has taken back what
//! it may have made, and one whose Node has changed has it taken back there first.

use std::time::Duration;

use controller::metadata::is_deleting;
use controller::volume::{is_for, volume_name};
use controller::{Action, Plan, ResourceRef};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::{ClaimSnapshot, DRIVER, call};
use crate::volume::{annotate, drop_finalizer, has_finalizer};

/// On a claim: the Node whose driver has been asked for its volume.
pub(super) const NODE: &str = "hostpath.csi.knarr.io/provisioning-node";
/// On a claim that no Node had room for: until when none is asked again.
pub(super) const PAUSE: &str = "hostpath.csi.knarr.io/provisioning-pause";
/// Holds a claim that a volume may have been made for.
const FINALIZER: &str = "hostpath.csi.knarr.io/provisioning";

/// The Node whose driver may have made a volume for the claim.
pub(super) fn node(claim: &PersistentVolumeClaim) -> Option<&str> {
    controller::volume::annotation(&claim.metadata, NODE)
        .filter(|_| has_finalizer(&claim.metadata, FINALIZER))
}

/// How long no Node is asked, if none had room.
pub(super) fn pause(claim: &PersistentVolumeClaim, now: Timestamp) -> Option<Duration> {
    let until: Timestamp = controller::volume::annotation(&claim.metadata, PAUSE)?.parse().ok()?;
    Duration::try_from(until.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// The write that has the claim say so; none if it does.
pub(super) fn write(claim: &PersistentVolumeClaim, on: &str) -> Option<Action> {
    if node(claim) == Some(on) {
        return None;
    }
    let mut new = claim.clone();
    annotate(&mut new.metadata, NODE, on);
    if !has_finalizer(&claim.metadata, FINALIZER) {
        new.metadata.finalizers.get_or_insert_default().push(FINALIZER.to_owned());
    }
    Some(Action::update(&new))
}

/// The claim without the note; none if it has none.
fn without(claim: &PersistentVolumeClaim) -> Option<PersistentVolumeClaim> {
    let mut new = claim.clone();
    let mut said = false;
    if let Some(annotations) = &mut new.metadata.annotations {
        said = [NODE, PAUSE].into_iter().filter_map(|key| annotations.remove(key)).count() > 0;
    }
    (drop_finalizer(&mut new.metadata, FINALIZER) || said).then_some(new)
}

/// Decides whether the note has served, or what it tells of is to be taken back.
pub(super) fn plan(snapshot: &ClaimSnapshot, _: Timestamp) -> Plan {
    let claim = &*snapshot.claim;
    let mut plan = Plan::nothing();
    let Some(without) = without(claim) else { return plan };
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let is_made = snapshot.volume.as_deref().is_some_and(|volume| is_for(volume, claim));
    let is_elsewhere = !["", &super::name(claim)].contains(&volume_name(claim));
    if is_elsewhere || is_deleting(&claim.metadata) && !is_made && !is_settled(phase) {
        return take_back(snapshot);
    }
    if is_settled(phase) || is_made && is_deleting(&claim.metadata) {
        plan.push(Action::update(&without));
    }
    plan
}

/// Whether the binder has written all that it has to.
fn is_settled(phase: &str) -> bool {
    matches!(phase, "Bound" | "Lost")
}

/// Has the driver take back what it may have made, unless there is a volume object, which is then to be reclaimed. What
/// was on a Node that is gone has gone with it.
pub(super) fn take_back(snapshot: &ClaimSnapshot) -> Plan {
    let claim = &*snapshot.claim;
    let mut plan = Plan::nothing();
    let Some(without) = without(claim) else { return plan };
    if let Some(node) = node(claim).filter(|_| snapshot.has_noted) {
        let name = super::name(claim);
        plan.push(Action::require_absent(ResourceRef::of::<PersistentVolume>(), "", &name, ""));
        plan.push(call(node, json!({"driver": DRIVER, "call": "DeleteVolume", "volumeId": name})));
    }
    plan.push(Action::update(&without));
    plan
}
