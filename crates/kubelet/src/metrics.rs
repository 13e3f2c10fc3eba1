//! What the kubelet counts of itself, under upstream's names. Source: `pkg/kubelet/metrics`, `pkg/kubelet/prober`.

use std::time::Duration;

use base::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::volumes::persistent::VolumeStats;

/// One label.
type Label = [(&'static str, String); 1];

/// A probe's result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProbeLabels {
    pub(crate) probe_type: &'static str,
    pub(crate) result: &'static str,
    pub(crate) container: String,
    pub(crate) pod: String,
    pub(crate) namespace: String,
    pub(crate) pod_uid: String,
}

/// See the module.
pub(crate) struct KubeletMetrics {
    /// `/metrics`.
    pub(crate) registry: Metrics,
    /// `/metrics/probes`.
    pub(crate) probes: Metrics,
    probe_total: Family<ProbeLabels, Counter>,
    evictions: Family<Label, Counter>,
    admission_rejections: Family<Label, Counter>,
    alignments: Counter,
    alignment_errors: Counter,
    shutdown_start: Gauge<f64, std::sync::atomic::AtomicU64>,
    shutdown_end: Gauge<f64, std::sync::atomic::AtomicU64>,
    preemptions: Family<Label, Counter>,
    started_containers: Family<Label, Counter>,
    started_container_errors: Family<[(&'static str, String); 2], Counter>,
    started_pods: Counter,
    started_pod_errors: Counter,
    sandbox_seconds: Family<Label, Histogram>,
    sandbox_errors: Family<Label, Counter>,
    pod_start: Histogram,
    operations: Family<Label, Counter>,
    operation_errors: Family<Label, Counter>,
    operation_seconds: Family<Label, Histogram>,
    requests: Family<[(&'static str, String); 4], Counter>,
    running_pods: Gauge,
    running_containers: Family<Label, Gauge>,
    active_pods: Family<Label, Gauge>,
    desired_pods: Family<Label, Gauge>,
    mirror_pods: Gauge,
    volumes: Vec<(&'static str, VolumeAmount, Family<ClaimLabels, Gauge>)>,
}

fn operation_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.005, 2.5, 14))
}

impl KubeletMetrics {
    pub(crate) fn new(node_name: &str) -> Self {
        let metrics = Self {
            registry: Metrics::new(),
            probes: Metrics::new(),
            probe_total: Family::default(),
            evictions: Family::default(),
            admission_rejections: Family::default(),
            alignments: Counter::default(),
            alignment_errors: Counter::default(),
            shutdown_start: Gauge::default(),
            shutdown_end: Gauge::default(),
            preemptions: Family::default(),
            started_containers: Family::default(),
            started_container_errors: Family::default(),
            started_pods: Counter::default(),
            started_pod_errors: Counter::default(),
            // Upstream's `prometheus.DefBuckets`.
            sandbox_seconds: Family::new_with_constructor(|| {
                Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
            }),
            sandbox_errors: Family::default(),
            pod_start: Histogram::new([
                0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
                300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
            ]),
            operations: Family::default(),
            operation_errors: Family::default(),
            operation_seconds: Family::new_with_constructor(operation_histogram),
            requests: Family::default(),
            running_pods: Gauge::default(),
            running_containers: Family::default(),
            active_pods: Family::default(),
            desired_pods: Family::default(),
            mirror_pods: Gauge::default(),
            volumes: VOLUMES.iter().map(|(name, _, amount)| (*name, *amount, Family::default())).collect(),
        };
        metrics.register(node_name);
        metrics
    }

    fn register(&self, node_name: &str) {
        let registry = &self.registry;
        let node = Family::<Label, Gauge>::default();
        node.get_or_create(&[("node", node_name.to_owned())]).set(1);
        registry.register("kubelet_node_name", "The node's name. The count is always 1", &node);
        registry.register(
            "kubelet_evictions",
            "Cumulative number of pod evictions by eviction signal",
            &self.evictions,
        );
        let help = "Cumulative number pod admission rejections by the Kubelet";
        registry.register("kubelet_admission_rejections", help, &self.admission_rejections);
        let help = "The number of admission requests where resources have to be aligned.";
        registry.register("kubelet_topology_manager_admission_requests", help, &self.alignments);
        let help = "The number of admission request failures where resources could not be aligned.";
        registry.register("kubelet_topology_manager_admission_errors", help, &self.alignment_errors);
        let help = "Last graceful shutdown start time since unix epoch in seconds";
        registry.register("kubelet_graceful_shutdown_start_time_seconds", help, &self.shutdown_start);
        let help = "Last graceful shutdown end time since unix epoch in seconds";
        registry.register("kubelet_graceful_shutdown_end_time_seconds", help, &self.shutdown_end);
        let help = "Cumulative number of pod preemptions by preemption resource";
        registry.register("kubelet_preemptions", help, &self.preemptions);
        registry.register(
            "kubelet_started_containers",
            "Cumulative number of containers started",
            &self.started_containers,
        );
        let help = "Cumulative number of errors when starting containers";
        registry.register("kubelet_started_containers_errors", help, &self.started_container_errors);
        registry.register("kubelet_started_pods", "Cumulative number of pods started", &self.started_pods);
        let help = "Cumulative number of errors when starting pods";
        registry.register("kubelet_started_pods_errors", help, &self.started_pod_errors);
        let help =
            "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.";
        registry.register("kubelet_run_podsandbox_duration_seconds", help, &self.sandbox_seconds);
        let help = "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.";
        registry.register("kubelet_run_podsandbox_errors", help, &self.sandbox_errors);
        let help =
            "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run";
        registry.register("kubelet_pod_start_duration_seconds", help, &self.pod_start);
        let help = "Cumulative number of runtime operations by operation type";
        registry.register("kubelet_runtime_operations", help, &self.operations);
        let help = "Cumulative number of runtime operation errors by operation type";
        registry.register("kubelet_runtime_operations_errors", help, &self.operation_errors);
        let help = "Duration in seconds of runtime operations. Broken down by operation type";
        registry.register("kubelet_runtime_operations_duration_seconds", help, &self.operation_seconds);
        registry.register(
            "kubelet_http_requests",
            "Number of the http requests received since the server started",
            &self.requests,
        );
        registry.register(
            "kubelet_running_pods",
            "Number of pods that have a running pod sandbox",
            &self.running_pods,
        );
        let help = "Number of containers currently running";
        registry.register("kubelet_running_containers", help, &self.running_containers);
        let help = "The number of pods the kubelet considers active and which are being considered when admitting new pods";
        registry.register("kubelet_active_pods", help, &self.active_pods);
        let help = "The number of pods the kubelet is being instructed to run";
        registry.register("kubelet_desired_pods", help, &self.desired_pods);
        let help = "The number of mirror pods the kubelet will try to create (one per admitted static pod)";
        registry.register("kubelet_mirror_pods", help, &self.mirror_pods);
        for ((name, help, _), (_, _, family)) in VOLUMES.iter().zip(&self.volumes) {
            registry.register(name, help, family);
        }
        let help = "Cumulative number of a liveness, readiness or startup probe for a container by result";
        self.probes.register("prober_probe", help, &self.probe_total);
    }

    pub(crate) fn probed(&self, labels: &ProbeLabels) {
        self.probe_total.get_or_create(labels).inc();
    }

    /// Forgets a Pod's probes: its series end with it.
    pub(crate) fn forget_probes(&self, labels: &ProbeLabels) {
        self.probe_total.remove(labels);
    }

    /// A Pod was to be given things that lie together.
    pub(crate) fn aligned(&self, has_failed: bool) {
        self.alignments.inc();
        if has_failed {
            self.alignment_errors.inc();
        }
    }

    /// The node goes down, or has let its Pods go; in seconds since the epoch.
    pub(crate) fn shutting_down(&self, start: f64, end: f64) {
        self.shutdown_start.set(start);
        self.shutdown_end.set(end);
    }

    /// A Pod had to go for a critical one, for want of a resource.
    pub(crate) fn preempted(&self, resource: &str) {
        self.preemptions.get_or_create(&[("preemption_signal", resource.to_owned())]).inc();
    }

    pub(crate) fn evicted(&self, signal: &str) {
        self.evictions.get_or_create(&[("eviction_signal", signal.to_owned())]).inc();
    }

    pub(crate) fn rejected(&self, reason: &str) {
        self.admission_rejections.get_or_create(&[("reason", reason.to_owned())]).inc();
    }

    /// A sandbox of that handler was made or not, and how long that took.
    pub(crate) fn pod_started(&self, handler: &str, took: Duration, result: Result<(), ()>) {
        let label = [("runtime_handler", handler.to_owned())];
        self.started_pods.inc();
        self.sandbox_seconds.get_or_create(&label).observe(took.as_secs_f64());
        if result.is_err() {
            self.started_pod_errors.inc();
            self.sandbox_errors.get_or_create(&label).inc();
        }
    }

    /// From being seen first to running.
    pub(crate) fn pod_runs(&self, took: Duration) {
        self.pod_start.observe(took.as_secs_f64());
    }

    /// `kind`: `container`, `init_container`, `ephemeral_container`; the code of what went wrong.
    pub(crate) fn container_started(&self, kind: &str, result: Result<(), &str>) {
        self.started_containers.get_or_create(&[("container_type", kind.to_owned())]).inc();
        if let Err(code) = result {
            let labels = [("container_type", kind.to_owned()), ("code", code.to_owned())];
            self.started_container_errors.get_or_create(&labels).inc();
        }
    }

    /// A call of the runtime, and how it went.
    pub(crate) fn operation(&self, kind: &str, took: Duration, is_error: bool) {
        let label = [("operation_type", kind.to_owned())];
        self.operations.get_or_create(&label).inc();
        self.operation_seconds.get_or_create(&label).observe(took.as_secs_f64());
        if is_error {
            self.operation_errors.get_or_create(&label).inc();
        }
    }

    pub(crate) fn requested(&self, method: &str, path: &str, is_long: bool) {
        let labels = [
            ("method", method.to_owned()),
            ("path", path.to_owned()),
            ("server_type", "readwrite".to_owned()),
            ("long_running", is_long.to_string()),
        ];
        self.requests.get_or_create(&labels).inc();
    }

    /// What is so now, before it is shown.
    pub(crate) fn set_counts(&self, counts: &Counts) {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.running_pods.set(number(counts.running_pods));
        for (state, count) in
            [("running", counts.running), ("exited", counts.exited), ("created", counts.created)]
        {
            self.running_containers
                .get_or_create(&[("container_state", state.to_owned())])
                .set(number(count));
        }
        for (family, (plain, fixed)) in
            [(&self.active_pods, counts.active), (&self.desired_pods, counts.desired)]
        {
            family.get_or_create(&[("static", "".to_owned())]).set(number(plain));
            family.get_or_create(&[("static", "true".to_owned())]).set(number(fixed));
        }
        self.mirror_pods.set(number(counts.mirrors));
    }
}

/// A claim.
type ClaimLabels = [(&'static str, String); 2];
type VolumeAmount = fn(&VolumeStats) -> Option<u64>;

/// What is told of volumes. Source: `pkg/kubelet/metrics/collectors/volume_stats.go`.
const VOLUMES: [(&str, &str, VolumeAmount); 7] = [
    ("kubelet_volume_stats_capacity_bytes", "Capacity in bytes of the volume", |stats| stats.capacity),
    ("kubelet_volume_stats_available_bytes", "Number of available bytes in the volume", |stats| {
        stats.available
    }),
    ("kubelet_volume_stats_used_bytes", "Number of used bytes in the volume", |stats| stats.used),
    ("kubelet_volume_stats_inodes", "Maximum number of inodes in the volume", |stats| stats.inodes),
    ("kubelet_volume_stats_inodes_free", "Number of free inodes in the volume", |stats| stats.inodes_free),
    ("kubelet_volume_stats_inodes_used", "Number of used inodes in the volume", |stats| stats.inodes_used),
    (
        "kubelet_volume_stats_health_status_abnormal",
        "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy",
        |stats| stats.is_abnormal.map(u64::from),
    ),
];

impl KubeletMetrics {
    /// What volumes of claims hold now; of those that are gone nothing is told.
    pub(crate) fn set_volumes(&self, all: &[VolumeStats]) {
        for (_, amount, family) in &self.volumes {
            family.clear();
            for stats in all {
                if let (Some((namespace, claim)), Some(value)) = (&stats.claim, amount(stats)) {
                    let labels = [("namespace", namespace.clone()), ("persistentvolumeclaim", claim.clone())];
                    family.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
                }
            }
        }
    }
}

/// Pods and containers by state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) running_pods: usize,
    pub(crate) running: usize,
    pub(crate) exited: usize,
    pub(crate) created: usize,
    /// Of the API, and from files.
    pub(crate) active: (usize, usize),
    pub(crate) desired: (usize, usize),
    pub(crate) mirrors: usize,
}
