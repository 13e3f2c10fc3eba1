//! Pods: what phase, conditions and container states add up to.

use jiff::Timestamp;
use machinery::duration;
use machinery::metadata::Metadata;
use serde_json::Value;

use super::{AGE, Column, NAME, column, condition, flag, list, number, text, text_or, wide};

/// Pods.
pub const POD: &[Column] = &[
    NAME,
    column("Ready", |o, _| {
        let state = state(o);
        format!("{}/{}", state.ready, state.total).into()
    })
    .says("The aggregate readiness state of this pod for accepting traffic."),
    column("Status", |o, _| state(o).reason.into())
        .says("The aggregate status of the containers in this pod."),
    column("Restarts", restarts).says(
        "The number of times the containers in this pod have been restarted and when the last container \
         in this pod has restarted.",
    ),
    AGE,
    wide("IP", |o, _| text_or(o, "/status/podIP", "<none>").into())
        .of("io.k8s.api.core.v1.PodStatus", "podIP"),
    wide("Node", |o, _| text_or(o, "/spec/nodeName", "<none>").into())
        .of("io.k8s.api.core.v1.PodSpec", "nodeName"),
    wide("Nominated Node", |o, _| text_or(o, "/status/nominatedNodeName", "<none>").into())
        .of("io.k8s.api.core.v1.PodStatus", "nominatedNodeName"),
    wide("Readiness Gates", readiness_gates).of("io.k8s.api.core.v1.PodSpec", "readinessGates"),
];

#[derive(Default)]
struct State {
    reason: String,
    ready: usize,
    total: usize,
    restarts: Restarts,
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += number(status, "/restartCount");
        let finished = text(status, "/lastState/terminated/finishedAt").parse().ok();
        self.last = self.last.max(finished);
    }
}

fn state(pod: &Value) -> State {
    let mut state = State { total: list(pod, "/spec/containers").len(), ..State::default() };
    state.reason = text_or(pod, "/status/reason", text(pod, "/status/phase")).to_owned();
    let is_gated = list(pod, "/status/conditions")
        .iter()
        .any(|c| text(c, "/type") == "PodScheduled" && text(c, "/reason") == "SchedulingGated");
    if is_gated {
        state.reason = "SchedulingGated".to_owned();
    }
    state.total += list(pod, "/spec/initContainers").iter().filter(|c| is_sidecar(c)).count();
    let is_initializing = init_containers(pod, &mut state);
    if !is_initializing || condition(pod, "Initialized") == "True" {
        containers(pod, &mut state);
    }
    if Metadata::of(pod).is_terminating() {
        let is_over = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        if text(pod, "/status/reason") == "NodeLost" {
            state.reason = "Unknown".to_owned();
        } else if !is_over {
            state.reason = "Terminating".to_owned();
        }
    }
    state
}

/// An init container that keeps running beside the others.
fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

/// Counts what the init containers tell; true if one of them has not finished. Leaves only the restarts of sidecars
/// behind once all have.
fn init_containers(pod: &Value, state: &mut State) -> bool {
    let specs = list(pod, "/spec/initContainers");
    let (mut all, mut sidecars) = (Restarts::default(), Restarts::default());
    let mut is_initializing = false;
    for (i, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
        let name = text(status, "/name");
        let is_sidecar = specs.iter().any(|c| text(c, "/name") == name && is_sidecar(c));
        all.add(status);
        if is_sidecar {
            sidecars.add(status);
        }
        let terminated = status.pointer("/state/terminated").filter(|t| !t.is_null());
        if terminated.is_some_and(|t| number(t, "/exitCode") == 0) {
            continue;
        }
        if is_sidecar && flag(status, "/started") {
            state.ready += usize::from(flag(status, "/ready"));
            continue;
        }
        let waiting = text(status, "/state/waiting/reason");
        state.reason = match terminated {
            Some(terminated) => format!("Init:{}", exit_reason(terminated)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{i}/{}", specs.len()),
        };
        is_initializing = true;
        break;
    }
    let is_initialized = !is_initializing || condition(pod, "Initialized") == "True";
    state.restarts = if is_initialized { sidecars } else { all };
    is_initializing
}

fn containers(pod: &Value, state: &mut State) {
    let mut has_running = false;
    for status in list(pod, "/status/containerStatuses").iter().rev() {
        state.restarts.add(status);
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            state.reason = waiting.to_owned();
        } else if let Some(terminated) = status.pointer("/state/terminated").filter(|t| !t.is_null()) {
            state.reason = exit_reason(terminated);
        } else if flag(status, "/ready") && status.pointer("/state/running").is_some() {
            has_running = true;
            state.ready += 1;
        }
    }
    if state.reason == "Completed" && has_running {
        let is_ready = condition(pod, "Ready") == "True";
        state.reason = if is_ready { "Running" } else { "NotReady" }.to_owned();
    }
}

fn exit_reason(terminated: &Value) -> String {
    let reason = text(terminated, "/reason");
    let signal = number(terminated, "/signal");
    match (reason, signal) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn restarts(pod: &Value, now: Timestamp) -> Value {
    let Restarts { count, last } = state(pod).restarts;
    match last {
        Some(last) if count != 0 => format!("{count} ({} ago)", duration::age(Some(last), now)).into(),
        _ => count.to_string().into(),
    }
}

fn readiness_gates(pod: &Value, _: Timestamp) -> Value {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let passed = gates.iter().filter(|g| condition(pod, text(g, "/conditionType")) == "True").count();
    format!("{passed}/{}", gates.len()).into()
}
