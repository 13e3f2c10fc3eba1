//! The status: counters over the Pods, and when the next Pod becomes available.

use std::sync::Arc;
use std::time::Duration;

use controller::metadata::time;
use controller::plan::FAILURE;
use controller::pod::Pod;
use controller::{Action, EventType};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};

use super::Set;
use crate::pod::{Availability, availability, is_ready};
use controller::selector::{Labels, contains};

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The status that follows from the `active` Pods, and after how long a ready Pod becomes available by itself.
pub(super) fn status<S: Set>(
    replica_set: &S,
    spec: &ReplicaSetSpec,
    active: &[Arc<Pod>],
    terminating: usize,
    now: Timestamp,
) -> (ReplicaSetStatus, Option<Duration>) {
    let nothing = Labels::new();
    let template = spec.template.as_ref().and_then(|template| template.metadata.as_ref());
    let wanted = template.and_then(|meta| meta.labels.as_ref()).unwrap_or(&nothing);
    let is_labelled = |pod: &&Arc<Pod>| contains(pod.metadata.labels.as_ref().unwrap_or(&nothing), wanted);
    let min_ready_seconds = spec.min_ready_seconds.unwrap_or(0);
    let (mut available, mut look_again) = (0, None::<Duration>);
    for pod in active {
        match availability(pod, min_ready_seconds, now) {
            Availability::NotReady => {}
            Availability::Available => available += 1,
            Availability::In(left) => look_again = Some(look_again.map_or(left, |earlier| earlier.min(left))),
        }
    }
    let failures_over = replica_set.status().and_then(|status| status.conditions).map(|mut all| {
        all.retain(|condition| condition.type_ != REPLICA_FAILURE);
        all
    });
    let status = ReplicaSetStatus {
        replicas: i32::try_from(active.len()).unwrap_or(i32::MAX),
        fully_labeled_replicas: counter(active.iter().filter(is_labelled).count()),
        ready_replicas: counter(active.iter().filter(|pod| is_ready(pod)).count()),
        available_replicas: counter(available),
        terminating_replicas: Some(i32::try_from(terminating).unwrap_or(i32::MAX)),
        observed_generation: replica_set.metadata().generation,
        conditions: failures_over.filter(|conditions| !conditions.is_empty()),
    };
    (status, look_again)
}

/// The update that makes `status` the status of `replica_set`, or nothing when it is so already.
pub(super) fn write<S: Set>(replica_set: &S, status: &ReplicaSetStatus) -> Option<Action> {
    let new = replica_set.with_status(status);
    (new.status() != replica_set.status()).then(|| Action::update_status(&new))
}

/// What tells that Pods could not be made or removed: an event, and `status` with the condition ReplicaFailure.
pub(super) fn failed<S: Set>(
    replica_set: &S,
    mut status: ReplicaSetStatus,
    reason: &str,
    what: &str,
    now: Timestamp,
) -> Vec<Action> {
    let known = replica_set.status().and_then(|status| status.conditions).unwrap_or_default();
    let conditions = status.conditions.get_or_insert_default();
    match known.into_iter().find(|condition| condition.type_ == REPLICA_FAILURE) {
        // The first failure is kept, so that retries do not write again and again.
        Some(known) => conditions.push(known),
        None => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(FAILURE.to_owned()),
            last_transition_time: Some(time(now)),
        }),
    }
    let event = Action::event(replica_set, EventType::Warning, reason, format!("{what}: {FAILURE}"));
    write(replica_set, &status).into_iter().chain([event]).collect()
}

/// Zero is left out, as upstream does.
fn counter(count: usize) -> Option<i32> {
    i32::try_from(count).ok().filter(|count| *count != 0)
}
