//! The status of a DaemonSet: on how many Nodes its Pods are to be, are, are ready and are new.

use std::time::Duration;

use controller::Action;
use controller::metadata::name;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};

use super::nodes::{Verdict, judge};
use super::rollout::Rollout;
use crate::pod::{Availability, is_ready};

/// The status, and after how long a ready Pod becomes available by itself.
pub(super) fn status(rollout: &Rollout<'_>, collision_count: i32) -> (DaemonSetStatus, Option<Duration>) {
    let mut status = DaemonSetStatus {
        observed_generation: rollout.set.metadata.generation,
        collision_count: Some(collision_count).filter(|count| *count != 0),
        conditions: rollout.set.status.as_ref().and_then(|status| status.conditions.clone()),
        ..DaemonSetStatus::default()
    };
    let (mut available, mut updated, mut look_again) = (0, 0, None::<Duration>);
    for node in rollout.nodes {
        let oldest = rollout.on(name(&node.metadata)).first();
        if judge(rollout.spec, node) != Verdict::Run {
            status.number_misscheduled += i32::from(oldest.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(oldest) = oldest else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(is_ready(oldest));
        updated += i32::from(rollout.is_new(oldest));
        match rollout.availability(oldest) {
            Availability::Available => available += 1,
            Availability::In(left) => {
                look_again = Some(look_again.map_or(left, |earlier| earlier.min(left)));
            }
            Availability::NotReady => {}
        }
    }
    let counter = |count: i32| Some(count).filter(|count| *count != 0);
    status.number_available = counter(available);
    status.number_unavailable = counter(status.desired_number_scheduled - available);
    status.updated_number_scheduled = counter(updated);
    (status, look_again)
}

/// The update that makes `status` the status of `set`, or nothing when it is so already.
pub(super) fn write(set: &DaemonSet, status: &DaemonSetStatus) -> Option<Action> {
    let is_new = set.status.as_ref() != Some(status);
    is_new.then(|| Action::update_status(&DaemonSet { status: Some(status.clone()), ..set.clone() }))
}
