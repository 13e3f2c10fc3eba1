//! Probes: one task per container and probe, with its own timer; results go to the Pod's worker.
//!
//! A result is told when it has been the same `failureThreshold` or `successThreshold` times in a row.
//! Liveness and readiness wait until the startup probe has succeeded. Source: `pkg/kubelet/prober`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::EventType;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio::net::TcpStream;

use crate::context::Context;
use crate::inbox::Inbox;
use crate::kubelet::handlers::{
    Answer, DialError, HttpCall, HttpError, Target, both, exec_in, grpc_check, host_port, http_call,
};
use crate::metrics::ProbeLabels;
use crate::pod::job::JobKey;
use crate::pod::probe::ProbeKind;
use crate::pod::snapshot::{self, ContainerState, PodSnapshot};
use crate::pod::time::after;

/// Tries with which a readiness probe begins, close together.
const EAGER_TRIES: u32 = 10;
/// The longest pause between them.
const EAGER_PAUSE: Duration = Duration::from_millis(100);

/// How often a probe that cannot be tried is tried at once. Source: `maxProbeRetries`.
const TRIES: u32 = 3;

/// The probe tasks of one Pod.
pub(crate) struct Probers {
    context: Arc<Context>,
    tasks: base::Tasks,
    inbox: Arc<Inbox>,
    /// By container id and probe.
    running: BTreeMap<(String, ProbeKind), base::Tasks>,
}

impl Probers {
    pub(crate) fn new(context: Arc<Context>, tasks: base::Tasks, inbox: Arc<Inbox>) -> Self {
        Self { context, tasks, inbox, running: BTreeMap::new() }
    }

    /// Starts and stops probes so that they fit the containers that run.
    pub(crate) fn follow(&mut self, snapshot: &PodSnapshot) {
        let spec = snapshot.spec();
        let mut wanted = BTreeMap::new();
        for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
            let Some(current) = snapshot.current(&container.name).filter(|c| c.is_running()) else {
                continue;
            };
            if snapshot.busy.contains(&JobKey::Start(container.name.clone())) {
                continue;
            }
            let is_started = snapshot.is_started(container, current);
            for kind in ProbeKind::ALL {
                let is_due = (kind == ProbeKind::Startup) != is_started;
                if let Some(probe) = kind.of(container).filter(|_| is_due) {
                    wanted.insert((current.id.clone(), kind), (container, probe, current));
                }
            }
        }
        self.running.retain(|key, tasks| {
            let is_wanted = wanted.contains_key(key);
            if !is_wanted {
                tasks.stop();
            }
            is_wanted
        });
        let ips = snapshot.addresses(&self.context.facts.host_ips);
        for (key, (container, probe, current)) in wanted {
            if !self.running.contains_key(&key) {
                let tasks = self.tasks.child();
                let prober = Prober {
                    context: self.context.clone(),
                    inbox: self.inbox.clone(),
                    pod: snapshot.pod.clone(),
                    spec: container.clone(),
                    probe: probe.clone(),
                    container_id: key.0.clone(),
                    kind: key.1,
                    ips: ips.clone(),
                    first_at: first_at(probe, current),
                };
                tasks.spawn("probe", prober.run());
                self.running.insert(key, tasks);
            }
        }
    }

    /// For a Pod on its way down: only `kind` goes on, of containers that still run.
    pub(crate) fn stop_all_but(&mut self, kind: ProbeKind, snapshot: &PodSnapshot) {
        self.running.retain(|(id, k), tasks| {
            let runs = snapshot.containers.iter().any(|c| c.id == *id && c.is_running());
            let stays = *k == kind && runs;
            if !stays {
                tasks.stop();
            }
            stays
        });
    }
}

/// Its series end with it.
impl Drop for Prober {
    fn drop(&mut self) {
        for result in ["successful", "failed"] {
            self.context.metrics.forget_probes(&self.labels(result));
        }
    }
}

struct Prober {
    context: Arc<Context>,
    inbox: Arc<Inbox>,
    pod: Arc<Pod>,
    spec: Container,
    probe: Probe,
    container_id: String,
    kind: ProbeKind,
    ips: Vec<String>,
    /// Not before.
    first_at: Option<Timestamp>,
}

/// When the container may be probed first: some time after its start, whatever has become of it or of the kubelet since.
fn first_at(probe: &Probe, container: &snapshot::Container) -> Option<Timestamp> {
    let ContainerState::Running { started_at } = container.state else { return None };
    Some(after(started_at, seconds(probe.initial_delay_seconds, 0)))
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default))
}

impl Prober {
    async fn run(self) {
        let period = seconds(self.probe.period_seconds, 10);
        let left = self.first_at.map(|at| at.duration_since(self.context.clock.now()));
        tokio::time::sleep(left.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default()).await;
        // Keeps the probes of many Pods that were started together apart.
        let jitter = period.mul_f64(self.context.random.unit() * 0.05);
        let mut counter = Counter::default();
        let (mut told, mut tries) = (None, 0_u32);
        loop {
            let start = Instant::now();
            let tried = self.with_retries().await;
            let is_success = match &tried {
                Tried::Success | Tried::Warning(_) => Some(true),
                Tried::Failure(_) => Some(false),
                Tried::Error(_) => None,
            };
            // A fresh container is asked for its readiness often, so that it gets traffic as soon as it can.
            let is_eager = self.kind == ProbeKind::Readiness && told != Some(true) && tries < EAGER_TRIES;
            tries = tries.saturating_add(1);
            self.tell(&tried, is_eager);
            if let Some(is_success) = is_success {
                let labels = self.labels(if is_success { "successful" } else { "failed" });
                self.context.metrics.probed(&labels, start.elapsed());
                let verdict = counter.count(is_success, &self.probe);
                if verdict.is_some() && verdict != told {
                    told = verdict;
                    let is_success = verdict == Some(true);
                    self.inbox.probe(&self.spec.name, self.kind, &self.container_id, is_success);
                    if is_last(self.kind, is_success) {
                        return;
                    }
                }
            }
            let is_eager = is_eager && told != Some(true);
            let pause = if is_eager { (period / 10).min(EAGER_PAUSE) } else { period + jitter };
            tokio::time::sleep(pause).await;
        }
    }

    fn labels(&self, result: &'static str) -> ProbeLabels {
        let (pod, namespace, pod_uid) = crate::pod::identity::identity(&self.pod);
        let container = self.spec.name.clone();
        ProbeLabels { probe_type: self.kind.title(), result, container, pod, namespace, pod_uid }
    }

    /// Says what is not well. Source: `prober.probe` of upstream for the words.
    fn tell(&self, tried: &Tried, is_eager: bool) {
        let kind = self.kind.title();
        let (reason, text) = match tried {
            Tried::Success => return,
            Tried::Failure(_) | Tried::Error(_) if is_eager => return,
            Tried::Warning(text) => ("ProbeWarning", format!("{kind} probe warning: {text}")),
            Tried::Failure(text) => ("Unhealthy", format!("{kind} probe failed: {text}")),
            Tried::Error(text) => {
                ("Unhealthy", format!("{kind} probe errored and resulted in unknown state: {text}"))
            }
        };
        self.context.event(&self.pod, Some(&self.spec.name), EventType::Warning, reason, text);
    }

    /// What could not be tried is tried again at once. Source: `runProbeWithRetries`.
    async fn with_retries(&self) -> Tried {
        let mut tried = self.once().await;
        for _ in 1..TRIES {
            if !matches!(tried, Tried::Error(_)) {
                break;
            }
            tried = self.once().await;
        }
        tried
    }

    /// One try.
    async fn once(&self) -> Tried {
        let timeout = seconds(self.probe.timeout_seconds, 1);
        let target = Target { container_id: &self.container_id, spec: &self.spec, ips: &self.ips };
        if let Some(exec) = &self.probe.exec {
            return self.exec(exec.command.clone().unwrap_or_default(), timeout).await;
        }
        if let Some(get) = &self.probe.http_get {
            return match HttpCall::of(&target, get) {
                Ok(call) => answered(http_call(&call, timeout).await),
                Err(error) => Tried::Error(error.to_string()),
            };
        }
        if let Some(tcp) = &self.probe.tcp_socket {
            let host = target.host(tcp.host.as_deref());
            let port = match target.port(&tcp.port) {
                Ok(port) => port,
                Err(error) => return Tried::Error(error.to_string()),
            };
            return match tokio::time::timeout(timeout, TcpStream::connect((host.as_str(), port))).await {
                Ok(Ok(_)) => Tried::Success,
                Ok(Err(error)) => Tried::Failure(DialError { host, port, error }.to_string()),
                Err(_) => Tried::Failure(format!("dial tcp {}: i/o timeout", host_port(&host, port))),
            };
        }
        if let Some(grpc) = &self.probe.grpc {
            let Ok(port) = u16::try_from(grpc.port) else {
                return Tried::Error(format!("invalid port number: {}", grpc.port));
            };
            let service = grpc.service.as_deref().unwrap_or_default();
            let checked = grpc_check(&target.host(None), port, service, timeout).await;
            return checked.map_or_else(|error| Tried::Failure(error.to_string()), |()| Tried::Success);
        }
        Tried::Error("missing probe handler".into())
    }

    async fn exec(&self, command: Vec<String>, timeout: Duration) -> Tried {
        let limit = i64::try_from(timeout.as_secs()).unwrap_or(1);
        let run = exec_in(&self.context, &self.container_id, command.clone(), limit);
        match tokio::time::timeout(timeout + Duration::from_secs(1), run).await {
            Ok(Ok(ran)) if ran.exit_code == 0 => Tried::Success,
            Ok(Ok(ran)) => Tried::Failure(both(&ran).trim_end().to_owned()),
            Ok(Err(cri::CriError::DeadlineExceeded(_))) | Err(_) => {
                let (command, seconds) = (command.join(" "), timeout.as_secs());
                Tried::Failure(format!("command timed out: {command:?} timed out after {seconds}s"))
            }
            // It was not run: that says nothing about the container.
            Ok(Err(error)) => Tried::Error(error.to_string()),
        }
    }
}

/// Whether there is nothing more to find out about the container: it is up, or it goes and nobody may disturb that.
///
/// Source: `worker.onHold` of upstream's `pkg/kubelet/prober`.
fn is_last(kind: ProbeKind, is_success: bool) -> bool {
    kind == ProbeKind::Startup || (kind == ProbeKind::Liveness && !is_success)
}

/// What an HTTP answer says, or that there was none.
fn answered(answer: Result<Answer, HttpError>) -> Tried {
    match answer {
        Ok(answer) => judged(answer.status, &answer.body),
        Err(error) => Tried::Failure(error.to_string()),
    }
}

fn judged(status: u16, body: &str) -> Tried {
    match status {
        200..300 => Tried::Success,
        300..400 => Tried::Warning(format!("Probe terminated redirects, Response body: {body}")),
        status => Tried::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}

/// What one try came to.
#[derive(Debug, PartialEq, Eq)]
enum Tried {
    Success,
    /// As good, but there is something to say.
    Warning(String),
    Failure(String),
    /// It could not be tried: the result counts for nothing. Source: `worker.doProbe` of upstream.
    Error(String),
}

/// Counts equal results in a row.
#[derive(Default)]
struct Counter {
    is_success: bool,
    in_a_row: i32,
}

impl Counter {
    /// The verdict, if the threshold is reached.
    fn count(&mut self, is_success: bool, probe: &Probe) -> Option<bool> {
        self.in_a_row = if self.is_success == is_success { self.in_a_row.saturating_add(1) } else { 1 };
        self.is_success = is_success;
        let threshold = if is_success {
            probe.success_threshold.unwrap_or(1)
        } else {
            probe.failure_threshold.unwrap_or(3)
        };
        (self.in_a_row >= threshold.max(1)).then_some(is_success)
    }
}

#[cfg(test)]
mod tests {
    use cri::v1;

    use super::*;

    #[test]
    fn the_first_probe_comes_some_time_after_the_containers_start() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let started = v1::ContainerStatus {
            state: v1::ContainerState::ContainerRunning.into(),
            started_at: 100_000_000_000,
            ..v1::ContainerStatus::default()
        };
        let container = snapshot::Container::from_cri(&started, "sandbox");
        for (delay, expect) in [(None, 100), (Some(7), 107)] {
            let probe = Probe { initial_delay_seconds: delay, ..Probe::default() };
            assert_eq!(first_at(&probe, &container), Some(at(expect)));
        }
    }

    /// Source of this and of what follows: `worker_test.go` of upstream's `pkg/kubelet/prober`.
    #[test]
    fn thresholds_count_equal_results_in_a_row() {
        // Successes and failures; what is told after each: nothing new, a success, a failure.
        for (success, failure, results, told) in [
            (Some(2), Some(2), "++-+--", ".+...-"),
            (None, None, "+---+", "+..-+"),
            (Some(1), Some(1), "-+-+", "-+-+"),
            (Some(3), Some(1), "-+++", "-..+"),
            (Some(1), Some(3), "+-+--+---", "+.+..+..-"),
            (Some(3), Some(3), "++-++-+++", "........+"),
            (Some(0), Some(0), "+-", "+-"),
        ] {
            let probe = Probe { failure_threshold: failure, success_threshold: success, ..Probe::default() };
            let mut counter = Counter::default();
            let found: String = results
                .chars()
                .map(|result| match counter.count(result == '+', &probe) {
                    None => '.',
                    Some(true) => '+',
                    Some(false) => '-',
                })
                .collect();
            assert_eq!(found, told, "{success:?} {failure:?} {results}");
        }
    }

    #[test]
    fn a_container_that_goes_or_is_up_is_not_asked_again() {
        for (kind, is_success, expect) in [
            (ProbeKind::Startup, true, true),
            (ProbeKind::Startup, false, true),
            (ProbeKind::Liveness, true, false),
            (ProbeKind::Liveness, false, true),
            (ProbeKind::Readiness, true, false),
            (ProbeKind::Readiness, false, false),
        ] {
            assert_eq!(is_last(kind, is_success), expect, "{kind:?} {is_success}");
        }
    }

    #[test]
    fn answers_below_400_are_good_and_redirects_are_told() {
        for status in [200, 201, 299] {
            assert_eq!(judged(status, ""), Tried::Success, "{status}");
        }
        for status in [300, 302, 399] {
            let told = "Probe terminated redirects, Response body: elsewhere".to_owned();
            assert_eq!(judged(status, "elsewhere"), Tried::Warning(told), "{status}");
        }
        for status in [100, 199, 400, 404, 500, 599] {
            let told = format!("HTTP probe failed with statuscode: {status}");
            assert_eq!(judged(status, ""), Tried::Failure(told), "{status}");
        }
        let none = Err(HttpError::Redirects("http://pod".into(), 10));
        assert_eq!(answered(none), Tried::Failure("Get \"http://pod\": stopped after 10 redirects".into()));
    }
}
