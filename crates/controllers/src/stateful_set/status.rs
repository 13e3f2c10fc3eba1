//! The status of a StatefulSet: counters over its Pods, and which revisions they are to have.

use std::sync::Arc;
use std::time::Duration;

use controller::Action;
use controller::metadata::is_deleting;
use controller::pod::Pod;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus};

use crate::pod::{Availability, availability, phase};
use crate::stateful_set::identity::revision;

/// Whether `pod` is running, ready, and has been so for `minReadySeconds`.
pub(super) fn running(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Availability {
    if phase(pod) != "Running" {
        return Availability::NotReady;
    }
    availability(pod, min_ready_seconds, now)
}

/// The names of the revision that was, the one that is wanted, and how many names were taken.
pub(super) struct Revisions<'a> {
    pub(super) current: &'a str,
    pub(super) update: &'a str,
    pub(super) collision_count: i32,
}

/// The status that follows from `pods`, and after how long a ready Pod becomes available by itself.
pub(super) fn status(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    pods: &[Arc<Pod>],
    revisions: &Revisions<'_>,
    now: Timestamp,
) -> (StatefulSetStatus, Option<Duration>) {
    let (mut ready, mut available, mut current, mut updated) = (0, 0, 0, 0);
    let mut look_again = None::<Duration>;
    for pod in pods {
        match running(pod, spec.min_ready_seconds.unwrap_or(0), now) {
            Availability::NotReady => {}
            Availability::In(left) => {
                ready += 1;
                look_again = Some(look_again.map_or(left, |earlier| earlier.min(left)));
            }
            Availability::Available => {
                ready += 1;
                available += 1;
            }
        }
        if !is_deleting(&pod.metadata) {
            current += i32::from(revision(pod) == revisions.current);
            updated += i32::from(revision(pod) == revisions.update);
        }
    }
    let replicas = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let mut current_revision = revisions.current;
    let wanted = spec.replicas.unwrap_or(1);
    let is_rolling = spec.update_strategy.as_ref().and_then(|s| s.type_.as_deref()) != Some("OnDelete");
    if is_rolling && [updated, ready, replicas] == [wanted; 3] {
        // The rollout is complete.
        current = updated;
        current_revision = revisions.update;
    }
    let counter = |count: i32| Some(count).filter(|count| *count != 0);
    let status = StatefulSetStatus {
        replicas,
        ready_replicas: counter(ready),
        available_replicas: Some(available),
        current_replicas: counter(current),
        updated_replicas: counter(updated),
        current_revision: Some(current_revision.to_owned()),
        update_revision: Some(revisions.update.to_owned()),
        collision_count: Some(revisions.collision_count),
        observed_generation: set.metadata.generation,
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
    };
    (status, look_again)
}

/// The update that makes `status` the status of `set`, or nothing when it is so already.
pub(super) fn write(set: &StatefulSet, status: &StatefulSetStatus) -> Option<Action> {
    let is_new = set.status.as_ref() != Some(status);
    is_new.then(|| Action::update_status(&StatefulSet { status: Some(status.clone()), ..set.clone() }))
}
