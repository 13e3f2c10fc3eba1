//! A Pod's status as the API shows it: a pure function of the snapshot.
//!
//! Phase, conditions, container statuses with upstream's reasons and messages. What the API server already has
//! is read only to keep transition times, the start time, foreign conditions and what the runtime has lost.
//! Source: `pkg/kubelet/kubelet_pods.go` and `pkg/kubelet/status/generate.go` of upstream for the rules.

mod actual;
mod conditions;
mod containers;
mod patch;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, HostIP, PodIP, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::pod::lifecycle::{is_finished, is_over, is_past_deadline};
use crate::pod::qos;
use crate::pod::roles::{Role, ephemeral, init_role};
use crate::pod::snapshot::{Ending, Failure, LOST_CODE, LOST_REASON, PodSnapshot};
use crate::pod::time::after;
use crate::pod::time::whole_second;
pub use patch::status_patch;

/// What the node adds to every Pod's status.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// The node's addresses, the primary one first.
    pub host_ips: Vec<String>,
    /// For `containerID`, such as `knarr` or `containerd`.
    pub runtime_name: String,
}

/// Reason and message of a Pod that was active for too long. Source: `pkg/kubelet/active_deadline.go` of upstream.
pub(crate) const DEADLINE_EXCEEDED: (&str, &str) =
    ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
/// How long a failed pull is shown as such before it is shown as waiting for the next one.
const PULL_ERROR_SHOWN: Duration = Duration::from_secs(2);

/// Until when the waiting reason is the failure itself; then it is `ImagePullBackOff`.
pub fn pull_error_shown_until(failure: &Failure) -> Timestamp {
    after(failure.at, PULL_ERROR_SHOWN)
}

/// The status that follows from the snapshot at `now`.
pub fn pod_status(snapshot: &PodSnapshot, node: &NodeFacts, now: Timestamp) -> PodStatus {
    let recorded = snapshot.pod.status.clone().unwrap_or_default();
    if let Some(ending) = snapshot.ending.as_ref().filter(|ending| ending.is_rejection) {
        return rejected(snapshot, ending, recorded, now);
    }
    let spec = snapshot.spec();
    let mut init: Vec<_> = spec
        .init_containers
        .iter()
        .flatten()
        .map(|c| containers::status(snapshot, node, c, init_role(c), now))
        .collect();
    let mut main: Vec<_> =
        spec.containers.iter().map(|c| containers::status(snapshot, node, c, Role::Main, now)).collect();
    let mut others: Vec<_> =
        ephemeral(spec).iter().map(|c| containers::status(snapshot, node, c, Role::Ephemeral, now)).collect();
    others.sort_by(|a, b| a.name.cmp(&b.name));
    // Upstream's order: main containers by name, init containers as in the spec.
    main.sort_by(|a, b| a.name.cmp(&b.name));
    if is_over(snapshot, now) && !is_held_back(snapshot) {
        settle(spec, &mut init, &mut main);
    }
    let (phase, reason, message) = phase(snapshot, &init, &main, now);
    let mut status = PodStatus {
        observed_generation: snapshot.pod.metadata.generation,
        phase: Some(phase),
        reason,
        message,
        qos_class: recorded.qos_class.or_else(|| Some(qos::class_of(spec).as_str().into())),
        start_time: recorded.start_time.or(Some(Time(whole_second(now)))),
        nominated_node_name: recorded.nominated_node_name,
        resource_claim_statuses: recorded.resource_claim_statuses,
        init_container_statuses: (!init.is_empty()).then_some(init),
        container_statuses: (!main.is_empty()).then_some(main),
        ephemeral_container_statuses: (!others.is_empty()).then_some(others),
        ..PodStatus::default()
    };
    addresses(snapshot, node, &mut status);
    status.conditions = Some(conditions::conditions(snapshot, &status, now));
    hold_back(snapshot, &mut status);
    status
}

/// Of a Pod that was never taken: nothing of it is here.
fn rejected(snapshot: &PodSnapshot, ending: &Ending, recorded: PodStatus, now: Timestamp) -> PodStatus {
    PodStatus {
        observed_generation: snapshot.pod.metadata.generation,
        phase: Some("Failed".into()),
        reason: Some(ending.reason.clone()),
        message: Some(ending.message.clone()),
        start_time: recorded.start_time.clone().or(Some(Time(whole_second(now)))),
        qos_class: recorded
            .qos_class
            .clone()
            .or_else(|| Some(qos::class_of(snapshot.spec()).as_str().into())),
        ..recorded
    }
}

fn addresses(snapshot: &PodSnapshot, node: &NodeFacts, status: &mut PodStatus) {
    status.host_ip = node.host_ips.first().cloned();
    status.host_ips = (!node.host_ips.is_empty())
        .then(|| node.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect());
    let ips = snapshot.addresses(&node.host_ips);
    status.pod_ip = ips.first().cloned();
    status.pod_ips = (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect());
}

type Phase = (String, Option<String>, Option<String>);

/// A Pod is not over while something of it runs, nor before its devices are taken back: then the API gives what it had
/// to the next one. Source: `mergePodStatus` and `PodCouldHaveRunningContainers` of upstream's kubelet.
fn is_held_back(snapshot: &PodSnapshot) -> bool {
    snapshot.may_run() || snapshot.holds_claims
}

fn hold_back(snapshot: &PodSnapshot, status: &mut PodStatus) {
    let is_last = |phase: Option<&str>| matches!(phase, Some("Succeeded" | "Failed"));
    let recorded = snapshot.recorded_phase();
    if is_held_back(snapshot) && is_last(status.phase.as_deref()) && !is_last(Some(recorded)) {
        status.phase = Some(if recorded.is_empty() { "Pending" } else { recorded }.to_owned());
        let recorded = snapshot.pod.status.clone().unwrap_or_default();
        (status.reason, status.message) = (recorded.reason, recorded.message);
    }
}

/// Of what never ran nobody knows how it would have ended. Source: `TerminatePod` of upstream's
/// `pkg/kubelet/status/status_manager.go`.
fn settle(spec: &PodSpec, init: &mut [ContainerStatus], main: &mut [ContainerStatus]) {
    let has_run = |status: &ContainerStatus| {
        status.state.as_ref().is_some_and(|s| s.waiting.is_none())
            || terminated_code(status.last_state.as_ref()).is_some()
    };
    let last = spec.init_containers.iter().flatten().zip(init.iter()).last();
    let is_initialized = last.is_none_or(|(spec, status)| match init_role(spec) {
        Role::Sidecar => status.started == Some(true),
        _ => terminated_code(status.state.as_ref()) == Some(0),
    });
    let unknown = |status: &mut ContainerStatus| {
        if terminated_code(status.state.as_ref()).is_none() {
            let terminated = ContainerStateTerminated {
                exit_code: LOST_CODE,
                reason: Some(LOST_REASON.into()),
                message: Some("The container could not be located when the pod was terminated".into()),
                ..ContainerStateTerminated::default()
            };
            status.state = Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() });
        }
    };
    if is_initialized || main.iter().any(has_run) {
        main.iter_mut().for_each(unknown);
    }
    let tried = init.iter().rposition(has_run).map_or(1, |last| last + 1);
    init.iter_mut().take(tried).for_each(unknown);
}

fn phase(
    snapshot: &PodSnapshot,
    init: &[ContainerStatus],
    main: &[ContainerStatus],
    now: Timestamp,
) -> Phase {
    let recorded = snapshot.pod.status.clone().unwrap_or_default();
    let known = recorded.phase.as_deref();
    // Others may have said why it is in that phase.
    let plain = |phase: &str| match known == Some(phase) {
        true => (phase.to_owned(), recorded.reason.clone(), recorded.message.clone()),
        false => (phase.to_owned(), None, None),
    };
    if let Some(phase @ ("Succeeded" | "Failed")) = known {
        return plain(phase);
    }
    if let Some(ending) = snapshot.ending.as_ref().filter(|_| !is_held_back(snapshot)) {
        return ("Failed".into(), Some(ending.reason.clone()), Some(ending.message.clone()));
    }
    if is_past_deadline(snapshot, now) {
        let (reason, message) = DEADLINE_EXCEEDED;
        return ("Failed".into(), Some(reason.into()), Some(message.into()));
    }
    let counts = Counts::of(main);
    let sidecars = snapshot.spec().init_containers.iter().flatten().zip(init);
    let mut sidecars = sidecars.filter(|(spec, _)| init_role(spec) == Role::Sidecar);
    let runs = counts.running > 0 || sidecars.any(|(_, status)| is_running(status));
    let is_ending = snapshot.is_terminating() || is_finished(snapshot);
    if is_ending && counts.waiting == 0 && counts.stopped > 0 && !runs {
        return plain(if counts.stopped == counts.succeeded { "Succeeded" } else { "Failed" });
    }
    if is_ending && !is_held_back(snapshot) {
        // An init container failed for good, or something never came up.
        return plain("Failed");
    }
    if counts.waiting > 0 || !is_initialized(snapshot, init) {
        return plain("Pending");
    }
    plain(if runs || counts.stopped > 0 { "Running" } else { "Pending" })
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// Every init container has ended well or, as a sidecar, is up; or they had, in this sandbox.
fn is_initialized(snapshot: &PodSnapshot, init: &[ContainerStatus]) -> bool {
    snapshot.is_initialized() || incomplete(snapshot.spec(), init).next().is_none()
}

/// The init containers that others wait for.
fn incomplete<'a>(
    spec: &'a PodSpec,
    init: &'a [ContainerStatus],
) -> impl Iterator<Item = &'a ContainerStatus> {
    let specs = spec.init_containers.iter().flatten();
    let is_incomplete = |(spec, status): &(&Container, &ContainerStatus)| match init_role(spec) {
        Role::Sidecar => status.started != Some(true),
        _ => terminated_code(status.state.as_ref()) != Some(0),
    };
    specs.zip(init).filter(is_incomplete).map(|(_, status)| status)
}

fn terminated_code(state: Option<&ContainerState>) -> Option<i32> {
    Some(state?.terminated.as_ref()?.exit_code)
}

#[derive(Default)]
struct Counts {
    waiting: usize,
    running: usize,
    stopped: usize,
    succeeded: usize,
}

impl Counts {
    fn of(statuses: &[ContainerStatus]) -> Self {
        let mut counts = Self::default();
        for status in statuses {
            let state = status.state.clone().unwrap_or_default();
            if state.running.is_some() {
                counts.running += 1;
            } else if let Some(code) = terminated_code(Some(&state)) {
                counts.stopped += 1;
                counts.succeeded += usize::from(code == 0);
            } else if terminated_code(status.last_state.as_ref()).is_some() {
                counts.stopped += 1;
            } else {
                counts.waiting += 1;
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests;
