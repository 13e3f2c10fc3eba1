//! A volume of ours that was released and is to be deleted takes its files with it.

use controller::metadata::{name, uid};
use controller::plan::FAILURE;
use controller::volume::{PROVISIONED_BY, annotation, csi, matching};
use controller::{Action, EventType, Plan, Propagation};
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;

use super::{DRIVER, FINALIZER, PROVISIONER_COMPONENT, call, is_ours, node_of};
use crate::volume::drop_finalizer;

/// Decides whether the volume goes. The files of a Node that is gone have gone with it.
pub(super) fn plan(volume: &PersistentVolume, has_node: bool) -> Plan {
    let mut plan = Plan::nothing();
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let is_made_by_us = annotation(&volume.metadata, PROVISIONED_BY) == Some(DRIVER);
    if !is_ours(volume) || !is_made_by_us || policy != Some("Delete") || matching::phase(volume) != "Released"
    {
        return plan;
    }
    let Some(source) = csi(volume) else { return plan };
    if let Some(node) = node_of(volume).filter(|_| has_node) {
        let body = json!({"driver": DRIVER, "call": "DeleteVolume", "volumeId": source.volume_handle});
        plan.push(call(node, body));
    }
    let mut new = volume.clone();
    if drop_finalizer(&mut new.metadata, FINALIZER) {
        plan.push(Action::update(&new));
    }
    let (name, uid) = (name(&volume.metadata), uid(&volume.metadata));
    plan.push(Action::delete::<PersistentVolume>("", name, Some(uid), Propagation::Background, None));
    plan.on_failure = vec![Action::event_from(
        PROVISIONER_COMPONENT,
        volume,
        EventType::Warning,
        "VolumeFailedDelete",
        FAILURE,
    )];
    plan
}
