//! A Pod's status as the API shows it: a pure function of the snapshot.
//!
//! Phase, conditions, container statuses with upstream's reasons and messages. What the API server already has
//! is read only to keep transition times, the start time, foreign conditions and what the runtime has lost.
//! Source: `pkg/kubelet/kubelet_pods.go` and `pkg/kubelet/status/generate.go` of upstream for the rules.

mod conditions;
mod containers;
mod patch;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, HostIP, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::next_actions::{is_finished, is_past_deadline};
use crate::qos;
use crate::snapshot::{Ending, Failure, PodSnapshot, Role, after, ephemeral, init_role};
pub use patch::status_patch;

/// What the node adds to every Pod's status.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// The node's addresses, the primary one first.
    pub host_ips: Vec<String>,
    /// For `containerID`, such as `knarr` or `containerd`.
    pub runtime_name: String,
}

/// How long a failed pull is shown as such before it is shown as waiting for the next one.
const PULL_ERROR_SHOWN: Duration = Duration::from_secs(2);

/// Until when the waiting reason is the failure itself; then it is `ImagePullBackOff`.
pub fn pull_error_shown_until(failure: &Failure) -> Timestamp {
    after(failure.at, PULL_ERROR_SHOWN)
}

/// What the API server has about the container of that name.
pub fn recorded<'a>(snapshot: &'a PodSnapshot, name: &str) -> Option<&'a ContainerStatus> {
    let status = snapshot.pod.status.as_ref()?;
    let regular = status.container_statuses.iter().chain(&status.init_container_statuses);
    let all = regular.chain(&status.ephemeral_container_statuses).flatten();
    all.into_iter().find(|s| s.name == name)
}

/// The status that follows from the snapshot at `now`.
pub fn pod_status(snapshot: &PodSnapshot, node: &NodeFacts, now: Timestamp) -> PodStatus {
    let recorded = snapshot.pod.status.clone().unwrap_or_default();
    if let Some(ending) = snapshot.ending.as_ref().filter(|ending| ending.is_rejection) {
        return rejected(snapshot, ending, recorded, now);
    }
    let spec = snapshot.spec();
    let init: Vec<_> = spec
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
    let (phase, reason, message) = phase(snapshot, &init, &main, now);
    let (phase, reason, message) = held_back(snapshot, (phase, reason, message));
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

/// API times have no fraction.
pub(crate) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn addresses(snapshot: &PodSnapshot, node: &NodeFacts, status: &mut PodStatus) {
    status.host_ip = node.host_ips.first().cloned();
    status.host_ips = (!node.host_ips.is_empty())
        .then(|| node.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect());
    let own = snapshot.sandboxes.last().map(|s| s.ips.clone()).unwrap_or_default();
    let is_host = snapshot.spec().host_network == Some(true);
    let ips = if is_host && !snapshot.sandboxes.is_empty() { node.host_ips.clone() } else { own };
    status.pod_ip = ips.first().cloned();
    status.pod_ips = (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect());
}

type Phase = (String, Option<String>, Option<String>);

/// A Pod is not over before its devices are taken back: then the API gives them to the next one.
fn held_back(snapshot: &PodSnapshot, found: Phase) -> Phase {
    let is_over = |phase: &str| matches!(phase, "Succeeded" | "Failed");
    if snapshot.holds_claims && is_over(&found.0) && !is_over(snapshot.recorded_phase()) {
        let recorded = Some(snapshot.recorded_phase()).filter(|phase| !phase.is_empty());
        return (recorded.unwrap_or("Pending").to_owned(), None, None);
    }
    found
}

fn phase(
    snapshot: &PodSnapshot,
    init: &[ContainerStatus],
    main: &[ContainerStatus],
    now: Timestamp,
) -> Phase {
    let recorded = snapshot.pod.status.clone().unwrap_or_default();
    let plain = |phase: &str| (phase.to_owned(), None, None);
    if let Some(phase) = recorded.phase.filter(|p| p == "Succeeded" || p == "Failed") {
        return (phase, recorded.reason, recorded.message);
    }
    if let Some(ending) = &snapshot.ending {
        return ("Failed".into(), Some(ending.reason.clone()), Some(ending.message.clone()));
    }
    if is_past_deadline(snapshot, now) {
        let message = "Pod was active on the node longer than the specified deadline";
        return ("Failed".into(), Some("DeadlineExceeded".into()), Some(message.into()));
    }
    let counts = Counts::of(main);
    let all_succeeded = counts.stopped == counts.succeeded;
    let nothing_runs = counts.running == 0 && counts.waiting == 0;
    if nothing_runs && counts.stopped > 0 && (snapshot.is_terminating() || is_finished(snapshot)) {
        return plain(if all_succeeded { "Succeeded" } else { "Failed" });
    }
    if is_finished(snapshot) {
        // An init container failed for good.
        return plain("Failed");
    }
    if !is_initialized(snapshot, init) || counts.waiting > 0 {
        return plain("Pending");
    }
    plain(if counts.running + counts.stopped > 0 { "Running" } else { "Pending" })
}

/// Every init container has ended well or, as a sidecar, is up.
fn is_initialized(snapshot: &PodSnapshot, init: &[ContainerStatus]) -> bool {
    let specs = snapshot.spec().init_containers.iter().flatten();
    snapshot.is_initialized()
        || specs.zip(init).all(|(spec, status)| match init_role(spec) {
            Role::Sidecar => status.started == Some(true),
            _ => terminated_code(status.state.as_ref()) == Some(0),
        })
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
