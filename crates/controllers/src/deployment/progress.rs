//! The Progressing condition: is the rollout paused, going on, done, or too slow.

use std::time::Duration;

use controller::Action;
use controller::metadata::{name, time};
use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus};

use crate::deployment::bounds::limit;
use crate::deployment::rollout::Rollout;
use crate::deployment::status::{find, remove, set, write};
use crate::pod::since_until;

const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const AVAILABLE: &str = "NewReplicaSetAvailable";

impl Rollout<'_> {
    /// Says when a Deployment was paused or resumed, so that the time in between does not count as lack of
    /// progress.
    pub(crate) fn note_pause(&mut self) {
        if self.deadline().is_none() {
            return;
        }
        let reason = find(&self.conditions, PROGRESSING).and_then(|condition| condition.reason.as_deref());
        let is_noted = reason == Some(PAUSED);
        match (self.spec.paused == Some(true), reason) {
            (_, Some(TIMED_OUT)) => {}
            (true, _) if !is_noted => self.note("Unknown", PAUSED, "Deployment is paused".to_owned()),
            (false, _) if is_noted => {
                self.note("Unknown", "DeploymentResumed", "Deployment is resumed".to_owned());
            }
            _ => {}
        }
    }

    /// Says that a new ReplicaSet was created.
    pub(crate) fn note_created(&mut self, message: String) {
        if self.deadline().is_some() {
            self.note("True", "NewReplicaSetCreated", message);
        }
    }

    /// The status patch that says why there is no progress, if progress is watched at all.
    pub(crate) fn failure_status(&self, reason: &str, message: String) -> Option<Action> {
        self.deadline()?;
        let mut status = self.old_status();
        let conditions = status.conditions.get_or_insert_default();
        set(conditions, PROGRESSING, "False", reason, message, self.now);
        write(self.deployment, &status)
    }

    /// Says `reason` if nothing was said about progress yet.
    pub(crate) fn note_first(&mut self, reason: &str, message: String) {
        if self.deadline().is_some() && find(&self.conditions, PROGRESSING).is_none() {
            self.note("True", reason, message);
        }
    }

    /// Whether everything that the spec asks for has happened. Source: `DeploymentStatus`, apps/v1.
    pub(crate) fn is_complete(&self, status: &DeploymentStatus) -> bool {
        let wanted = self.bounds.replicas;
        status.updated_replicas.unwrap_or(0) == wanted
            && status.replicas.unwrap_or(0) == wanted
            && status.available_replicas.unwrap_or(0) == wanted
            && status.observed_generation.unwrap_or(0) >= self.deployment.metadata.generation.unwrap_or(0)
    }

    /// Brings the Progressing and ReplicaFailure conditions up to date.
    pub(crate) fn note_progress(&mut self) {
        let (old, new) = (self.old_status(), self.status());
        let Some(deadline) = self.deadline() else {
            remove(&mut self.conditions, PROGRESSING);
            return self.note_failure();
        };
        let current = find(&self.conditions, PROGRESSING).cloned();
        let is_current = |reason: &str| current.as_ref().is_some_and(|c| c.reason.as_deref() == Some(reason));
        let was_complete = new.replicas == new.updated_replicas && is_current(AVAILABLE);
        if !was_complete {
            if self.is_complete(&new) {
                self.note("True", AVAILABLE, self.subject("has successfully progressed."));
            } else if is_progressing(&old, &new) {
                // The time of the last progress counts, so the condition is made anew each time.
                remove(&mut self.conditions, PROGRESSING);
                self.note("True", "ReplicaSetUpdated", self.subject("is progressing."));
                self.keep_transition(current.as_ref());
            } else if !is_current(TIMED_OUT) && self.is_too_late(current.as_ref(), deadline) {
                self.note("False", TIMED_OUT, self.subject("has timed out progressing."));
            }
        }
        self.note_failure();
        self.look_again(&new, deadline);
    }

    fn deadline(&self) -> Option<Duration> {
        let seconds = limit(self.spec.progress_deadline_seconds)?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }

    fn subject(&self, what: &str) -> String {
        match self.new_set() {
            Some(set) => format!("ReplicaSet \"{}\" {what}", set.name()),
            None => format!("Deployment \"{}\" {what}", name(&self.deployment.metadata)),
        }
    }

    fn note(&mut self, status: &str, reason: &str, message: String) {
        set(&mut self.conditions, PROGRESSING, status, reason, message, self.now);
    }

    fn keep_transition(&mut self, before: Option<&DeploymentCondition>) {
        let Some(before) = before.filter(|condition| condition.status == "True") else { return };
        if let Some(now) = self.conditions.iter_mut().find(|condition| condition.type_ == PROGRESSING) {
            now.last_transition_time = before.last_transition_time.clone();
        }
    }

    fn is_too_late(&self, current: Option<&DeploymentCondition>, deadline: Duration) -> bool {
        current.is_some_and(|condition| {
            condition.reason.as_deref() != Some(AVAILABLE) && self.since_update(condition) > deadline
        })
    }

    fn since_update(&self, condition: &DeploymentCondition) -> Duration {
        let updated = condition.last_update_time.as_ref().map_or(self.now, |time| time.0);
        since_until(updated, self.now)
    }

    /// What keeps the new ReplicaSet, else any other, from making Pods.
    fn note_failure(&mut self) {
        let others = self.old();
        let failure = self.new.iter().chain(&others).find_map(|index| {
            let conditions = self.sets.get(*index)?.status()?.conditions.as_ref()?;
            conditions.iter().find(|condition| condition.type_ == REPLICA_FAILURE)
        });
        let Some(failure) = failure else { return remove(&mut self.conditions, REPLICA_FAILURE) };
        let current = find(&self.conditions, REPLICA_FAILURE);
        if current.is_some_and(|c| c.status == failure.status && c.reason == failure.reason) {
            return;
        }
        let failure = DeploymentCondition {
            type_: failure.type_.clone(),
            status: failure.status.clone(),
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            last_transition_time: failure.last_transition_time.clone(),
            last_update_time: Some(time(self.now)),
        };
        remove(&mut self.conditions, REPLICA_FAILURE);
        self.conditions.push(failure);
    }

    /// Nothing may happen at the deadline, so the Deployment is looked at then.
    fn look_again(&mut self, new: &DeploymentStatus, deadline: Duration) {
        let Some(current) = find(&self.conditions, PROGRESSING) else { return };
        if self.is_complete(new) || matches!(current.reason.as_deref(), Some(TIMED_OUT | AVAILABLE)) {
            return;
        }
        let left = deadline.saturating_sub(self.since_update(current));
        self.requeue_after = Some(left + Duration::from_secs(1));
    }
}

fn is_progressing(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |number: Option<i32>| number.unwrap_or(0);
    let outdated = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(new.updated_replicas) > count(old.updated_replicas)
        || outdated(new) < outdated(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}
