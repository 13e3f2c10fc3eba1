//! The status: counters out of the ReplicaSets' own, conditions, and the one update that writes them.

use controller::Action;
use controller::metadata::time;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};

use crate::deployment::REVISION;
use crate::deployment::rollout::Rollout;
use crate::deployment::sets::{Set, total};

impl Rollout<'_> {
    /// The status that follows from the ReplicaSets as they are known now.
    pub(crate) fn status(&self) -> DeploymentStatus {
        let wanted = total(&self.sets, |set| set.replicas);
        let available = total(&self.sets, Set::available);
        let terminating =
            |set: &Set| set.status().and_then(|status| status.terminating_replicas).unwrap_or(0);
        let mut conditions = self.conditions.clone();
        let (status, reason, message) = if available >= self.bounds.available_min() {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        set(&mut conditions, "Available", status, reason, message.to_owned(), self.now);
        DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: counter(total(&self.sets, Set::actual)),
            updated_replicas: counter(self.new_set().map_or(0, Set::actual)),
            ready_replicas: counter(total(&self.sets, Set::ready)),
            available_replicas: counter(available),
            unavailable_replicas: counter((wanted - available).max(0)),
            terminating_replicas: Some(total(&self.sets, terminating)),
            collision_count: self.collision_count,
            conditions: Some(conditions),
        }
    }
}

/// The update that makes `status` the status of `deployment`, or nothing when it is so already.
pub(crate) fn write(deployment: &Deployment, status: &DeploymentStatus) -> Option<Action> {
    write_numbered(deployment, status, None)
}

/// The same, which writes down the `revision` too: a write to the status may change annotations, and leaves
/// `metadata.generation` as it is.
pub(crate) fn write_numbered(
    deployment: &Deployment,
    status: &DeploymentStatus,
    revision: Option<&str>,
) -> Option<Action> {
    let mut new = Deployment { status: Some(status.clone()), ..deployment.clone() };
    if let Some(revision) = revision {
        let annotations = new.metadata.annotations.get_or_insert_default();
        annotations.insert(REVISION.to_owned(), revision.to_owned());
    }
    (new != *deployment).then(|| Action::update_status(&new))
}

/// The condition of type `type_`.
pub(crate) fn find<'a>(
    conditions: &'a [DeploymentCondition],
    type_: &str,
) -> Option<&'a DeploymentCondition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Takes the condition of type `type_` away.
pub(crate) fn remove(conditions: &mut Vec<DeploymentCondition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

/// Sets a condition. One that says the same already keeps its times; a transition is a change of status only.
pub(crate) fn set(
    conditions: &mut Vec<DeploymentCondition>,
    type_: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let current = find(conditions, type_);
    if current.is_some_and(|c| c.status == status && c.reason.as_deref() == Some(reason)) {
        return;
    }
    let since = current.filter(|c| c.status == status).and_then(|c| c.last_transition_time.clone());
    remove(conditions, type_);
    conditions.push(DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(time(now)),
        last_transition_time: since.or_else(|| Some(time(now))),
    });
}

/// Zero is left out, as upstream does.
fn counter(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
