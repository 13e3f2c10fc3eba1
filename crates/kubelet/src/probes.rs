//! Probes: one task per container and probe, with its own timer; results go to the Pod's worker.
//!
//! A result is told when it has been the same `failureThreshold` or `successThreshold` times in a row.
//! Liveness and readiness wait until the startup probe has succeeded. Source: `pkg/kubelet/prober`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::EventType;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio::net::TcpStream;

use crate::context::Context;
use crate::handlers::{HttpCall, Target, dial_error, exec_in, grpc_check, http_call};
use crate::inbox::Inbox;
use crate::metrics::ProbeLabels;
use crate::snapshot::PodSnapshot;

/// Tries with which a readiness probe begins, close together.
const EAGER_TRIES: u32 = 10;
/// The longest pause between them.
const EAGER_PAUSE: Duration = Duration::from_millis(100);

/// Which probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProbeKind {
    /// Has it come up?
    Startup,
    /// Is it alive?
    Liveness,
    /// May it get traffic?
    Readiness,
}

impl ProbeKind {
    const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    fn of(self, spec: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => spec.startup_probe.as_ref(),
            Self::Liveness => spec.liveness_probe.as_ref(),
            Self::Readiness => spec.readiness_probe.as_ref(),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

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
            if snapshot.busy.contains(&format!("start/{}", container.name)) {
                continue;
            }
            let is_started = snapshot.is_started(container, current);
            for kind in ProbeKind::ALL {
                let is_due = (kind == ProbeKind::Startup) != is_started;
                if let Some(probe) = kind.of(container).filter(|_| is_due) {
                    wanted.insert((current.id.clone(), kind), (container, probe));
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
        let ips = snapshot.sandboxes.last().map(|s| s.ips.clone()).unwrap_or_default();
        for (key, (container, probe)) in wanted {
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
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default))
}

impl Prober {
    async fn run(self) {
        let period = seconds(self.probe.period_seconds, 10);
        tokio::time::sleep(seconds(self.probe.initial_delay_seconds, 0)).await;
        // Keeps the probes of many Pods that were started together apart.
        let jitter = period.mul_f64(self.context.random.unit() * 0.05);
        let mut counter = Counter::default();
        let mut told = None;
        loop {
            let result = self.once().await;
            self.context.metrics.probed(&self.labels(if result.is_ok() { "successful" } else { "failed" }));
            // A fresh container is asked for its readiness often, so that it gets traffic as soon as it can.
            let is_eager =
                self.kind == ProbeKind::Readiness && told != Some(true) && counter.total < EAGER_TRIES;
            if let Err(message) = result.as_ref().map_err(|m| m.as_str())
                && !is_eager
            {
                let text = format!("{} probe failed: {message}", self.kind.title());
                self.context.event(&self.pod, Some(&self.spec.name), EventType::Warning, "Unhealthy", text);
            }
            let verdict = counter.count(result.is_ok(), &self.probe);
            if verdict.is_some() && verdict != told {
                told = verdict;
                self.inbox.probe(&self.spec.name, self.kind, &self.container_id, verdict == Some(true));
            }
            let is_eager = is_eager && told != Some(true);
            let pause = if is_eager { (period / 10).min(EAGER_PAUSE) } else { period + jitter };
            tokio::time::sleep(pause).await;
        }
    }

    fn labels(&self, result: &'static str) -> ProbeLabels {
        let (pod, namespace, pod_uid) = crate::container_config::identity(&self.pod);
        let container = self.spec.name.clone();
        ProbeLabels { probe_type: self.kind.title(), result, container, pod, namespace, pod_uid }
    }

    /// One try.
    async fn once(&self) -> Result<(), String> {
        let timeout = seconds(self.probe.timeout_seconds, 1);
        let target = Target { container_id: &self.container_id, spec: &self.spec, ips: &self.ips };
        if let Some(exec) = &self.probe.exec {
            let command = exec.command.clone().unwrap_or_default();
            let limit = i64::try_from(timeout.as_secs()).unwrap_or(1);
            let run = exec_in(&self.context, &self.container_id, command.clone(), limit);
            return match tokio::time::timeout(timeout + Duration::from_secs(1), run).await {
                Ok(Ok((0, _))) => Ok(()),
                Ok(Ok((_, output))) => Err(output.trim_end().to_owned()),
                Ok(Err(cri::CriError::DeadlineExceeded(_))) | Err(_) => {
                    Err(format!("command timed out: {command:?} timed out after {}s", timeout.as_secs()))
                }
                Ok(Err(error)) => Err(error.to_string()),
            };
        }
        if let Some(get) = &self.probe.http_get {
            let (status, _) = http_call(&HttpCall::of(&target, get)?, timeout).await?;
            return match status {
                200..400 => Ok(()),
                _ => Err(format!("HTTP probe failed with statuscode: {status}")),
            };
        }
        if let Some(tcp) = &self.probe.tcp_socket {
            let (host, port) = (target.host(tcp.host.as_deref()), target.port(&tcp.port)?);
            return match tokio::time::timeout(timeout, TcpStream::connect((host.as_str(), port))).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(dial_error(&host, port, &error)),
                Err(_) => Err(format!("dial tcp {host}:{port}: i/o timeout")),
            };
        }
        if let Some(grpc) = &self.probe.grpc {
            let port = u16::try_from(grpc.port).map_err(|_| format!("invalid port number: {}", grpc.port))?;
            let service = grpc.service.as_deref().unwrap_or_default();
            return grpc_check(&target.host(None), port, service, timeout).await;
        }
        Err("probe type is not supported".into())
    }
}

/// Counts equal results in a row.
#[derive(Default)]
struct Counter {
    is_success: bool,
    in_a_row: i32,
    total: u32,
}

impl Counter {
    /// The verdict, if the threshold is reached.
    fn count(&mut self, is_success: bool, probe: &Probe) -> Option<bool> {
        self.in_a_row = if self.is_success == is_success { self.in_a_row.saturating_add(1) } else { 1 };
        self.is_success = is_success;
        self.total = self.total.saturating_add(1);
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
    use super::*;

    #[test]
    fn thresholds_count_equal_results_in_a_row() {
        let probe = Probe { failure_threshold: Some(2), success_threshold: Some(2), ..Probe::default() };
        let mut counter = Counter::default();
        let results = [true, true, false, true, false, false].map(|result| counter.count(result, &probe));
        assert_eq!(results, [None, Some(true), None, None, None, Some(false)]);
    }
}
