//! When the Pod's status is written: at once if it matters to others, else a moment later, together with what
//! comes meanwhile.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::Value;

use crate::context::Context;
use crate::pod::snapshot::PodSnapshot;
use crate::pod::status::{pod_status, status_patch};
use crate::pod::time::after;

/// How long a change that nobody waits for may wait for others.
const GATHER: Duration = Duration::from_millis(100);
/// Before the next try of a write that failed.
const RETRY: Duration = Duration::from_secs(1);

/// The state of a Pod's status writes.
#[derive(Default)]
pub(super) struct Report {
    /// Since when something is different.
    changed_at: Option<Timestamp>,
    not_before: Option<Timestamp>,
    in_flight: Option<Value>,
    last_written: Option<Value>,
}

/// What is to be done about the status now.
#[derive(Default)]
pub(super) struct Due {
    pub(super) patch: Option<Value>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) is_written: bool,
}

impl Report {
    /// Compares the snapshot's status with the API server's.
    pub(super) fn due(&mut self, context: &Context, snapshot: &PodSnapshot, now: Timestamp) -> Due {
        if snapshot.removed_from_api || self.in_flight.is_some() {
            return Due { is_written: snapshot.removed_from_api, ..Due::default() };
        }
        let Some(uid) = snapshot.status_uid() else {
            return Due { is_written: true, ..Due::default() };
        };
        let new = pod_status(snapshot, &context.facts, now);
        let old = snapshot.pod.status.clone().unwrap_or_default();
        let patch = match (serde_json::to_value(&old), serde_json::to_value(&new)) {
            (Ok(old), Ok(new)) => status_patch(uid, &old, &new),
            _ => None,
        };
        // The same patch again would change nothing: the server keeps the rest in a form of its own.
        let Some(patch) = patch.filter(|patch| self.last_written.as_ref() != Some(patch)) else {
            self.changed_at = None;
            return Due { is_written: true, ..Due::default() };
        };
        let changed_at = *self.changed_at.get_or_insert(now);
        let gathered = if is_urgent(snapshot, &old, &new) { now } else { after(changed_at, GATHER) };
        let at = self.not_before.map_or(gathered, |earliest| earliest.max(gathered));
        if at > now {
            return Due { wake_at: Some(at), ..Due::default() };
        }
        self.in_flight = Some(patch.clone());
        Due { patch: Some(patch), ..Due::default() }
    }

    /// The write in flight has arrived. Since when there was something to write.
    pub(super) fn written(&mut self) -> Option<Timestamp> {
        self.last_written = self.in_flight.take();
        self.not_before = None;
        self.changed_at.take()
    }

    /// The write in flight has failed.
    pub(super) fn failed(&mut self, now: Timestamp) {
        self.in_flight = None;
        self.not_before = Some(after(now, RETRY));
    }
}

/// Whether controllers or users wait for the change.
fn is_urgent(snapshot: &PodSnapshot, old: &PodStatus, new: &PodStatus) -> bool {
    let ready = |status: &PodStatus| {
        let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready");
        ready.is_some_and(|c| c.status == "True")
    };
    let is_over = matches!(new.phase.as_deref(), Some("Succeeded" | "Failed"));
    let is_end_new = is_over && old.phase != new.phase;
    snapshot.is_terminating() || is_end_new || ready(old) != ready(new)
}

#[cfg(test)]
mod tests;
