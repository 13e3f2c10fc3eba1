//! Pods made and removed for their controller, with what is told of each. Source: `PodControl` of `pkg/controller`.

use std::sync::Arc;

use controller::metadata::Object;
use controller::metadata::{name, namespace, uid};
use controller::plan::FAILURE;
use controller::pod::Pod;
use controller::{Action, EventType, Propagation};
use k8s_openapi::api::core::v1::Pod as WholePod;

/// Pods created in one step, once the first steps went well.
const STEP_PODS_MAX: usize = 500;

/// Steps of 1, 2, 4, ... Pods: where the first is refused (no quota, bad template), no flood follows.
pub(crate) fn create<O: Object>(owner: &O, pods: impl Iterator<Item = WholePod>) -> Vec<Vec<Action>> {
    let (mut pods, mut batch, mut told) = (pods, 1, Vec::new());
    let mut steps = Vec::new();
    loop {
        let chosen: Vec<WholePod> = pods.by_ref().take(batch).collect();
        let mut step = std::mem::take(&mut told);
        let is_last = chosen.is_empty();
        for pod in chosen {
            let message = format!("Created pod: {}", name(&pod.metadata));
            told.push(Action::event(owner, EventType::Normal, "SuccessfulCreate", message));
            step.push(Action::create(&pod));
        }
        if !step.is_empty() {
            steps.push(step);
        }
        if is_last {
            return steps;
        }
        batch = (batch * 2).min(STEP_PODS_MAX);
    }
}

/// Deletes these very Pods.
pub(crate) fn delete<O: Object>(owner: &O, pods: &[Arc<Pod>]) -> Vec<Vec<Action>> {
    let (mut deletes, mut told) = (Vec::with_capacity(pods.len()), Vec::with_capacity(pods.len()));
    for pod in pods {
        let meta = &pod.metadata;
        let (namespace, name, uid) = (namespace(meta), name(meta), uid(meta));
        deletes.push(Action::delete::<Pod>(namespace, name, Some(uid), Propagation::Background, None));
        let message = format!("Deleted pod: {name}");
        told.push(Action::event(owner, EventType::Normal, "SuccessfulDelete", message));
    }
    if deletes.is_empty() { Vec::new() } else { vec![deletes, told] }
}

/// What tells that a Pod could not be made.
pub(crate) fn create_failed<O: Object>(owner: &O) -> Action {
    Action::event(owner, EventType::Warning, "FailedCreate", format!("Error creating: {FAILURE}"))
}

/// What tells that a Pod could not be removed.
pub(crate) fn delete_failed<O: Object>(owner: &O) -> Action {
    Action::event(owner, EventType::Warning, "FailedDelete", format!("Error deleting: {FAILURE}"))
}
