//! The reason why a Pod has no Node, as users read it: an event, and a condition if it says something new.

use std::sync::Arc;

use controller::pod::Pod;
use controller::{Action, EventType, Patch, cause};
use jiff::Timestamp;
use serde_json::json;

use super::Scheduler;
use super::binding::{Progress, report};
use super::preempting::nominating;
use crate::pod::names;
use crate::profile::event;

impl Scheduler {
    /// `node` is what the Pod's status is to say about the Node that it waits for, if that changes.
    pub(super) fn say_why(
        &mut self,
        pod: &Arc<Pod>,
        revision: u64,
        why: (&'static str, String),
        node: Option<Option<String>>,
    ) {
        self.at_work += 1;
        let (executor, pod, now) = (self.executor.clone(), pod.clone(), self.clock.now());
        let finished = self.finished.clone();
        self.tasks.spawn("explain", async move {
            let mut actions = explanations(&pod, why, now);
            actions.extend(node.map(|node| nominating(&pod, node.as_deref())));
            for action in actions {
                if let Err(error) = cause::with(revision, executor.carry_out(action)).await {
                    tracing::info!(%error, "could not say why a pod is unschedulable");
                }
            }
            report(&finished, Progress::Said).await;
        });
    }
}

/// The event and the condition; the condition only if it says something new.
fn explanations(pod: &Pod, (reason, why): (&str, String), now: Timestamp) -> Vec<Action> {
    let mut actions = vec![event(pod, pod, EventType::Warning, "FailedScheduling", why.clone())];
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let known = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    if known.is_some_and(|known| known.status == "False" && known.message.as_deref() == Some(&why)) {
        return actions;
    }
    let since =
        known.filter(|known| known.status == "False").and_then(|known| known.last_transition_time.clone());
    let since = since.map_or(now, |time| time.0).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": why,
        "lastTransitionTime": since,
    });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    let (namespace, name) = names(pod);
    actions.push(Action::patch_status::<Pod>(namespace, name, patch));
    actions
}
