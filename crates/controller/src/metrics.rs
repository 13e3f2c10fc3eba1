//! The metrics of a process's client side, in upstream's names: workqueues, requests, the lead.
//!
//! Source: `k8s.io/component-base/metrics/prometheus/{workqueue,restclient,clientgo/leaderelection}`. One registry per
//! process holds them, whatever parts run in it; parts that run in one process share one `ClientMetrics`.

mod rows;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use base::health::Checks;
use base::metrics::Metrics;
use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::follower::Followers;
use crate::workqueue::{QueueMeter, WorkQueue, work_histogram};

/// What requests go to, as clusters name it: the client knows its address, in this process there is none.
const API_SERVER: &str = "kubernetes.default.svc";

/// A gauge of seconds.
type Seconds = Gauge<f64, AtomicU64>;

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Named {
    name: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    method: String,
    host: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VerbLabels {
    verb: String,
    host: &'static str,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Part {
    part: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Left {
    part: &'static str,
    resource: String,
}

/// The metrics of a process's client side, as one part of it counts. Cloning shares them.
#[derive(Clone)]
pub struct ClientMetrics {
    inner: Arc<Inner>,
    part: &'static str,
    followers: Arc<Followers>,
}

impl std::fmt::Debug for ClientMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientMetrics").field("part", &self.part).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    metrics: Metrics,
    depth: Family<Named, Gauge>,
    adds: Family<Named, Counter>,
    retries: Family<Named, Counter>,
    queued: Family<Named, Histogram, fn() -> Histogram>,
    worked: Family<Named, Histogram, fn() -> Histogram>,
    unfinished: Family<Named, Seconds>,
    longest: Family<Named, Seconds>,
    requests: Family<RequestLabels, Counter>,
    latencies: Family<VerbLabels, Histogram, fn() -> Histogram>,
    leads: Family<Named, Gauge>,
    left_out: Family<Left, Gauge>,
    undiscovered: Family<Part, Gauge>,
}

impl Default for ClientMetrics {
    fn default() -> Self {
        Self::new(&Metrics::new())
    }
}

impl ClientMetrics {
    /// The client side's metrics in a process's registry; to be made once per registry.
    pub fn new(metrics: &Metrics) -> Self {
        let inner = Inner {
            metrics: metrics.clone(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queued: Family::new_with_constructor(work_histogram),
            worked: Family::new_with_constructor(work_histogram),
            unfinished: Family::default(),
            longest: Family::default(),
            requests: Family::default(),
            latencies: Family::new_with_constructor(latency_histogram),
            leads: Family::default(),
            left_out: Family::default(),
            undiscovered: Family::default(),
        };
        metrics.register("workqueue_depth", "Current depth of the workqueue", &inner.depth);
        metrics.register("workqueue_adds", "Adds handled by the workqueue", &inner.adds);
        metrics.register("workqueue_retries", "Retries handled by the workqueue", &inner.retries);
        metrics.register(
            "workqueue_queue_duration_seconds",
            "Seconds that an item stays in the workqueue before it is asked for",
            &inner.queued,
        );
        metrics.register(
            "workqueue_work_duration_seconds",
            "Seconds that processing an item from the workqueue takes",
            &inner.worked,
        );
        metrics.register(
            "workqueue_unfinished_work_seconds",
            "Seconds of work under way that work_duration has not observed yet",
            &inner.unfinished,
        );
        metrics.register(
            "workqueue_longest_running_processor_seconds",
            "Seconds that the longest running processor has been running",
            &inner.longest,
        );
        metrics.register(
            "rest_client_requests",
            "HTTP requests by status code, method and host",
            &inner.requests,
        );
        metrics.register(
            "rest_client_request_duration_seconds",
            "Seconds that requests took, by verb and host",
            &inner.latencies,
        );
        metrics.register(
            "leader_election_master_status",
            "Whether this process leads (1) or waits (0) for the lease of this name",
            &inner.leads,
        );
        metrics.register(
            "knarr_informer_undecodable_objects",
            "Objects that informers of this part have left out because they cannot be decoded",
            &inner.left_out,
        );
        metrics.register(
            "knarr_discovery_failed_group_versions",
            "Group-versions whose resources this part could not discover when it last asked",
            &inner.undiscovered,
        );
        Self { inner: Arc::new(inner), part: "knarr", followers: Arc::default() }
    }

    /// The same for the part of this name, whose informers answer for a check of the process: `informer-sync/<part>`.
    #[must_use]
    pub fn of_part(&self, part: &'static str) -> Self {
        let followers = Arc::<Followers>::default();
        let checked = followers.clone();
        Checks::of(self.registry()).add(&format!("informer-sync/{part}"), move || Ok(checked.check()?));
        Self { inner: self.inner.clone(), part, followers }
    }

    /// The name of the part, also in events.
    pub fn part(&self) -> &'static str {
        self.part
    }

    pub(crate) fn followers(&self) -> &Followers {
        &self.followers
    }

    /// The gauge of the objects of `resource` that were left out.
    pub(crate) fn left_out(&self, resource: &str) -> Gauge {
        let labels = Left { part: self.part, resource: resource.to_owned() };
        self.inner.left_out.get_or_create_owned(&labels)
    }

    /// The gauge of the group-versions that could not be discovered.
    pub(crate) fn undiscovered(&self) -> Gauge {
        self.inner.undiscovered.get_or_create_owned(&Part { part: self.part })
    }

    /// The registry, for what a part counts itself.
    pub fn registry(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Says whether this process holds the lease `name`.
    pub fn leads(&self, name: &'static str, is_leader: bool) {
        self.inner.leads.get_or_create(&Named { name }).set(i64::from(is_leader));
    }

    /// Counts a request to the API server that took so long; `code` is none if there was no answer.
    pub(crate) fn request(&self, method: &Method, code: Option<StatusCode>, took: Duration) {
        let labels = VerbLabels { verb: method.to_string(), host: API_SERVER };
        self.inner.latencies.get_or_create(&labels).observe(took.as_secs_f64());
        let labels = RequestLabels {
            code: code.map_or("<error>".to_owned(), |code| code.as_u16().to_string()),
            method: method.to_string(),
            host: API_SERVER,
        };
        self.inner.requests.get_or_create(&labels).inc();
    }

    /// A queue whose metrics are kept under `name`.
    pub(crate) fn queue(&self, name: &'static str) -> Arc<WorkQueue> {
        let labels = Named { name };
        let meter = QueueMeter {
            depth: self.inner.depth.get_or_create_owned(&labels),
            adds: self.inner.adds.get_or_create_owned(&labels),
            retries: self.inner.retries.get_or_create_owned(&labels),
            queued: self.inner.queued.get_or_create_owned(&labels),
            worked: self.inner.worked.get_or_create_owned(&labels),
        };
        let queue = Arc::new(WorkQueue::metered(meter));
        let (unfinished, longest) = (
            self.inner.unfinished.get_or_create_owned(&labels),
            self.inner.longest.get_or_create_owned(&labels),
        );
        let watched = Arc::downgrade(&queue);
        self.inner.metrics.before_render(move || {
            let running = watched.upgrade().map(|queue| queue.running_for()).unwrap_or_default();
            unfinished.set(running.iter().sum::<Duration>().as_secs_f64());
            longest.set(running.iter().max().copied().unwrap_or_default().as_secs_f64());
        });
        queue
    }
}

/// Upstream's buckets. Source: `rest_client_request_duration_seconds`.
fn latency_histogram() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(metrics: &ClientMetrics, prefix: &str) -> Vec<String> {
        let text = metrics.registry().render();
        let wanted = |line: &&str| line.starts_with(prefix) && !line.contains("_bucket");
        text.lines().filter(wanted).map(str::to_owned).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_counts_in_upstreams_names() {
        let metrics = ClientMetrics::default();
        let queue = metrics.queue("deployment");
        for key in ["a", "b", "a"] {
            queue.add(key.into(), 1);
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        let (key, _) = queue.next().await;
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(
            lines(&metrics, "workqueue_"),
            [
                r#"workqueue_depth{name="deployment"} 1"#,
                r#"workqueue_adds_total{name="deployment"} 2"#,
                r#"workqueue_retries_total{name="deployment"} 0"#,
                r#"workqueue_queue_duration_seconds_sum{name="deployment"} 2"#,
                r#"workqueue_queue_duration_seconds_count{name="deployment"} 1"#,
                r#"workqueue_work_duration_seconds_sum{name="deployment"} 0"#,
                r#"workqueue_work_duration_seconds_count{name="deployment"} 0"#,
                r#"workqueue_unfinished_work_seconds{name="deployment"} 3"#,
                r#"workqueue_longest_running_processor_seconds{name="deployment"} 3"#,
            ]
        );
        queue.done(&key);
        let worked = lines(&metrics, "workqueue_work_duration_seconds_sum");
        assert_eq!(worked, [r#"workqueue_work_duration_seconds_sum{name="deployment"} 3"#]);
        assert_eq!(
            lines(&metrics, "workqueue_unfinished"),
            [r#"workqueue_unfinished_work_seconds{name="deployment"} 0"#]
        );
    }

    #[test]
    fn requests_and_the_lead_are_told() {
        let metrics = ClientMetrics::default();
        metrics.request(&Method::GET, Some(StatusCode::OK), Duration::from_secs(3));
        metrics.request(&Method::POST, None, Duration::ZERO);
        metrics.leads("kube-scheduler", true);
        let mut requests = lines(&metrics, "rest_client_requests_total");
        requests.sort();
        assert_eq!(
            requests,
            [
                r#"rest_client_requests_total{code="200",method="GET",host="kubernetes.default.svc"} 1"#,
                r#"rest_client_requests_total{code="<error>",method="POST",host="kubernetes.default.svc"} 1"#,
            ]
        );
        let took = lines(&metrics, "rest_client_request_duration_seconds_sum{verb=\"GET\"");
        let get = r#"rest_client_request_duration_seconds_sum{verb="GET",host="kubernetes.default.svc"} 3"#;
        assert_eq!(took, [get]);
        assert_eq!(lines(&metrics, "leader_"), [r#"leader_election_master_status{name="kube-scheduler"} 1"#]);
    }
}
