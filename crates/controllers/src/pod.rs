//! The state of a Pod for controllers: is it active, ready, available, how often was it restarted.

use std::time::Duration;

use controller::Informers;
use controller::metadata::{key, time};
use controller::pod::Pod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;

/// The phase, empty when there is no status yet.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// How far it has got; the first ones are lost least.
pub(crate) fn phase_rank(pod: &Pod) -> u8 {
    match phase(pod) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    }
}

/// Whether its containers have ended for good.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it counts as a replica: neither finished nor being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether it still runs although its deletion was asked for.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// The condition of type `type_`.
pub(crate) fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// The type of the condition of a Pod that somebody else than its owner ends.
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The condition of a Pod that is ended for this reason.
pub(crate) fn disruption_target(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> PodCondition {
    PodCondition {
        type_: DISRUPTION_TARGET.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(time(now)),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    }
}

/// Whether its Ready condition is true.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Since when it is ready; none when it is not, or when nobody wrote down since when.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether a Pod has been ready for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It is not ready.
    NotReady,
    /// It is ready, and will be available after this time if it stays so.
    In(Duration),
    /// It has been ready for `minReadySeconds`.
    Available,
}

/// Whether `pod` has been ready for `min_ready_seconds`.
pub(crate) fn availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Availability {
    if !is_ready(pod) {
        return Availability::NotReady;
    }
    if min_ready_seconds <= 0 {
        return Availability::Available;
    }
    let wanted = Duration::from_secs(min_ready_seconds.unsigned_abs().into());
    let Some(since) = ready_since(pod) else { return Availability::In(wanted) };
    match wanted.checked_sub(since_until(since, now)) {
        Some(left) if !left.is_zero() => Availability::In(left),
        _ => Availability::Available,
    }
}

/// How often its containers were restarted: the most of the ordinary ones, and of the sidecars.
pub(crate) fn restarts_max(pod: &Pod) -> (i32, i32) {
    let Some(status) = pod.status.as_ref() else { return (0, 0) };
    let sidecars: Vec<&str> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten())
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| container.name.as_str())
        .collect();
    let ordinary = status.container_statuses.iter().flatten().map(|c| c.restart_count).max();
    let sidecar = status
        .init_container_statuses
        .iter()
        .flatten()
        .filter(|c| sidecars.contains(&c.name.as_str()))
        .map(|c| c.restart_count)
        .max();
    (ordinary.unwrap_or(0), sidecar.unwrap_or(0))
}

/// The time from `start` to `end`, zero when `end` is earlier.
pub(crate) fn since_until(start: Timestamp, end: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(start)).unwrap_or_default()
}

/// The node that it is bound to, empty before that.
pub(crate) fn node_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// The keys of the Pods on `node`.
pub(crate) fn keys_on_node(informers: &Informers, node: &str) -> Vec<String> {
    let pods = informers.informer::<Pod>().list();
    pods.iter().filter(|pod| node_name(pod) == node).map(|pod| key(&pod.metadata)).collect()
}
