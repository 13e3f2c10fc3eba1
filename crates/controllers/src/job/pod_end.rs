//! When a Pod of a Job ended. Source: `getFinishedTime` of upstream's Job controller.

use controller::metadata::created;
use controller::pod::{ContainerStatus, Pod};
use jiff::{SignedDuration, Timestamp};

use crate::pod::condition;

/// When a Pod ended: as its containers say, or its condition, or its deletion.
pub(super) fn finished(pod: &Pod) -> Timestamp {
    of_containers(pod)
        .or_else(|| of_readiness(pod))
        .or_else(|| of_deletion(pod))
        .unwrap_or(created(&pod.metadata))
}

/// When the last container ended; nothing as long as one runs. Sidecars end after the others.
fn of_containers(pod: &Pod) -> Option<Timestamp> {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref()?);
    let all = spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars: Vec<&str> = all
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| container.name.as_str())
        .collect();
    let ended = |container: &ContainerStatus| {
        Some(container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0)
    };
    // Nothing if one runs.
    let last = |all: &mut dyn Iterator<Item = &ContainerStatus>| {
        all.map(ended).try_fold(None, |last, time| time.map(|time| Some(time).max(last)))
    };
    let ordinary = last(&mut status.container_statuses.iter().flatten()).flatten();
    let init = status.init_container_statuses.iter().flatten();
    let sidecar = last(&mut init.filter(|container| sidecars.contains(&container.name.as_str())))?;
    sidecar.max(ordinary)
}

fn of_readiness(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "False")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

fn of_deletion(pod: &Pod) -> Option<Timestamp> {
    let asked = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    Some(asked.checked_sub(grace).unwrap_or(asked))
}
