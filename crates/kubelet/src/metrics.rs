//! What the kubelet counts of itself, under upstream's names. Source: `pkg/kubelet/metrics`, `pkg/kubelet/prober`.

mod families;
mod volume_stats;
pub(crate) mod work;

pub(crate) use volume_stats::VolumeStats;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use base::Metrics;
use cri::CriError;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use families::Row;
pub(crate) use families::{Count, Level, Measure, image_size};

/// Names and values.
type Labels = Vec<(&'static str, String)>;
type Number = Gauge<f64, AtomicU64>;

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

impl ProbeLabels {
    /// Those of its duration.
    fn of_time(&self) -> Labels {
        let values = [self.probe_type, &self.container, &self.pod, &self.namespace].map(str::to_owned);
        ["probe_type", "container", "pod", "namespace"].into_iter().zip(values).collect()
    }
}

/// Makes histograms.
#[derive(Clone)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// One series, or one for each set of labels' values.
enum Series<M, C = fn() -> M> {
    One(M),
    Many(&'static [&'static str], Family<Labels, M, C>),
}

impl<M: Clone, C: MetricConstructor<M>> Series<M, C> {
    /// Does `change` to the series with these values, which are as many as there are labels.
    fn with(&self, values: &[&str], change: impl FnOnce(&M)) {
        match self {
            Self::One(series) => change(series),
            Self::Many(names, family) => {
                debug_assert_eq!(names.len(), values.len(), "{names:?}");
                let labels = names.iter().zip(values).map(|(name, value)| (*name, (*value).to_owned()));
                change(&family.get_or_create_owned(&labels.collect()));
            }
        }
    }
}

/// See the module.
pub(crate) struct KubeletMetrics {
    /// `/metrics`.
    pub(crate) registry: Metrics,
    /// `/metrics/probes`.
    pub(crate) probes: Metrics,
    /// Whether the runtime's events are listened to.
    pub(crate) is_listening: AtomicBool,
    probe_total: Family<ProbeLabels, Counter>,
    probe_time: Family<Labels, Histogram, Buckets>,
    /// In the order of [`Count`], [`Level`] and [`Measure`].
    counts: Vec<Series<Counter>>,
    levels: Vec<Series<Number>>,
    measures: Vec<Series<Histogram, Buckets>>,
}

fn count_series(registry: &Metrics, row: &Row) -> Series<Counter> {
    let series = match row.labels {
        [] => Series::One(Counter::default()),
        labels => Series::Many(labels, Family::default()),
    };
    match (&series, row.name.strip_suffix("_total")) {
        (Series::One(one), Some(name)) => registry.register(name, row.help, one),
        (Series::One(one), None) => registry.register_plain(row.name, row.help, one),
        (Series::Many(_, family), Some(name)) => registry.register(name, row.help, family),
        (Series::Many(_, family), None) => registry.register_plain(row.name, row.help, family),
    }
    series
}

fn level_series(registry: &Metrics, row: &Row) -> Series<Number> {
    if row.labels.is_empty() {
        let one = Number::default();
        registry.register(row.name, row.help, &one);
        return Series::One(one);
    }
    let family = Family::default();
    registry.register(row.name, row.help, &family);
    Series::Many(row.labels, family)
}

fn measure_series(registry: &Metrics, row: &Row) -> Series<Histogram, Buckets> {
    let buckets = Buckets(row.buckets);
    if row.labels.is_empty() {
        let one = buckets.new_metric();
        registry.register(row.name, row.help, &one);
        return Series::One(one);
    }
    let family = Family::new_with_constructor(buckets);
    registry.register(row.name, row.help, &family);
    Series::Many(row.labels, family)
}

impl KubeletMetrics {
    pub(crate) fn new(node_name: &str) -> Self {
        let (registry, probes) = (Metrics::new(), Metrics::new());
        base::metrics::process::register(&registry);
        let (name, help, labels) = machinery::version::build_info();
        registry.info(name, help, &labels);
        let metrics = Self {
            counts: Count::ALL.iter().map(|row| count_series(&registry, row)).collect(),
            levels: Level::ALL.iter().map(|row| level_series(&registry, row)).collect(),
            measures: Measure::ALL.iter().map(|row| measure_series(&registry, row)).collect(),
            registry,
            probes,
            is_listening: AtomicBool::new(false),
            probe_total: Family::default(),
            probe_time: Family::new_with_constructor(Buckets(&families::COMMON)),
        };
        let help = "Cumulative number of a liveness, readiness or startup probe for a container by result";
        metrics.probes.register("prober_probe", help, &metrics.probe_total);
        let help = "Duration in seconds for a probe response";
        metrics.probes.register("prober_probe_duration_seconds", help, &metrics.probe_time);
        metrics.set(Level::NodeName, &[node_name], 1_u32);
        metrics
    }

    /// One more. `values` are those of the family's labels.
    pub(crate) fn count(&self, what: Count, values: &[&str]) {
        if let Some(series) = self.counts.get(what as usize) {
            series.with(values, |counter| {
                counter.inc();
            });
        }
    }

    /// It is so now.
    pub(crate) fn set(&self, what: Level, values: &[&str], value: impl Amount) {
        if let Some(series) = self.levels.get(what as usize) {
            series.with(values, |gauge| {
                gauge.set(value.amount());
            });
        }
    }

    /// One more, or one less, of what is under way.
    pub(crate) fn step(&self, what: Level, values: &[&str], by: f64) {
        if let Some(series) = self.levels.get(what as usize) {
            series.with(values, |gauge| {
                gauge.inc_by(by);
            });
        }
    }

    /// All that was so is gone.
    pub(crate) fn clear(&self, what: Level) {
        if let Some(Series::Many(_, family)) = self.levels.get(what as usize) {
            family.clear();
        }
    }

    /// It took or was so much.
    pub(crate) fn measure(&self, what: Measure, values: &[&str], value: impl Amount) {
        if let Some(series) = self.measures.get(what as usize) {
            series.with(values, |histogram| histogram.observe(value.amount()));
        }
    }

    /// How long it took counts if it went well. Source: `doProbe`.
    pub(crate) fn probed(&self, labels: &ProbeLabels, took: Duration) {
        self.probe_total.get_or_create(labels).inc();
        if labels.result == "successful" {
            self.probe_time.get_or_create(&labels.of_time()).observe(took.as_secs_f64());
        }
    }

    /// Forgets a Pod's probes: its series end with it.
    pub(crate) fn forget_probes(&self, labels: &ProbeLabels) {
        self.probe_total.remove(labels);
        self.probe_time.remove(&labels.of_time());
    }

    /// A Pod was not taken.
    pub(crate) fn rejected(&self, reason: &str) {
        self.count(Count::AdmissionRejections, &[families::rejection(reason)]);
    }

    /// A sandbox of that handler was made or not, and how long that took.
    pub(crate) fn pod_started(&self, handler: &str, took: Duration, result: Result<(), ()>) {
        self.count(Count::StartedPods, &[]);
        self.measure(Measure::Sandbox, &[handler], took);
        if result.is_err() {
            self.count(Count::StartedPodsErrors, &[]);
            self.count(Count::SandboxErrors, &[handler]);
        }
    }

    /// So many mounts of a container were to be of images. Of one that could not be made for another reason nobody knows
    /// how they went. Source: `incrementImageVolumeMetrics`.
    pub(crate) fn image_volumes(&self, mounts: usize, made: Result<(), &CriError>) {
        let went = match made {
            Ok(()) => Some(Count::ImageVolumesMounted),
            Err(error) if error.is_image_volume() => Some(Count::ImageVolumesFailed),
            Err(_) => None,
        };
        for what in [Some(Count::ImageVolumes), went].into_iter().flatten() {
            (0..mounts).for_each(|_| self.count(what, &[]));
        }
    }

    /// `kind`: `container`, `init_container`, `ephemeral_container`; the code of what went wrong.
    pub(crate) fn container_started(&self, kind: &str, result: Result<(), &str>) {
        self.count(Count::StartedContainers, &[kind]);
        if let Err(code) = result {
            self.count(Count::StartedContainersErrors, &[kind, code]);
        }
    }

    /// A call of the runtime, and how it went.
    pub(crate) fn operation(&self, kind: &str, took: Duration, is_error: bool) {
        self.count(Count::RuntimeOperations, &[kind]);
        self.measure(Measure::RuntimeOperationsTime, &[kind], took);
        if is_error {
            self.count(Count::RuntimeOperationsErrors, &[kind]);
        }
    }

    /// What is so now, before it is shown.
    pub(crate) fn set_counts(&self, counts: &Counts) {
        self.set(Level::RunningPods, &[], counts.running_pods);
        for (state, count) in
            [("running", counts.running), ("exited", counts.exited), ("created", counts.created)]
        {
            self.set(Level::RunningContainers, &[state], count);
        }
        for (level, (plain, fixed)) in
            [(Level::ActivePods, counts.active), (Level::DesiredPods, counts.desired)]
        {
            self.set(level, &[""], plain);
            self.set(level, &["true"], fixed);
        }
        self.set(Level::MirrorPods, &[], counts.mirrors);
        self.set(Level::EphemeralContainers, &[], counts.ephemeral);
        for labels in work::all() {
            let count = counts.working.iter().filter(|working| working.labels == labels).count();
            self.set(Level::WorkingPods, &labels, count);
        }
        self.clear(Level::ResizesPending);
        for reason in ["deferred", "infeasible"] {
            let waits = |working: &&work::Work| working.pending_resize == Some(reason);
            match counts.working.iter().filter(waits).count() {
                0 => {}
                count => self.set(Level::ResizesPending, &[reason], count),
            }
        }
        let resizing = counts.working.iter().filter(|working| working.is_resizing).count();
        self.set(Level::ResizesInProgress, &[], resizing);
    }

    /// Sources of Pods' certificates by signer and state; of what is gone nothing is told.
    pub(crate) fn set_pod_certificates(&self, counts: &BTreeMap<(String, &'static str), usize>) {
        self.clear(Level::PodCertificateStates);
        for ((signer, state), count) in counts {
            self.set(Level::PodCertificateStates, &[signer, state], *count);
        }
    }

    /// Whole seconds until a certificate ends; infinity if there is none.
    pub(crate) fn set_certificate(&self, level: Level, ends: Option<Timestamp>, now: Timestamp) {
        match ends {
            Some(ends) => self.set(level, &[], ends.duration_since(now).as_secs()),
            None => self.set(level, &[], f64::INFINITY),
        }
    }

    /// What volumes of claims hold now; of those that are gone nothing is told.
    pub(crate) fn set_volumes(&self, all: &[VolumeStats]) {
        for (level, amount) in VOLUMES {
            self.clear(level);
            for stats in all {
                if let (Some((namespace, claim)), Some(value)) = (&stats.claim, amount(stats)) {
                    self.set(level, &[namespace, claim], value);
                }
            }
        }
    }
}

type VolumeAmount = fn(&VolumeStats) -> Option<u64>;

/// What is told of volumes. Source: `pkg/kubelet/metrics/collectors/volume_stats.go`.
const VOLUMES: [(Level, VolumeAmount); 7] = [
    (Level::VolumeCapacity, |stats| stats.capacity),
    (Level::VolumeAvailable, |stats| stats.available),
    (Level::VolumeUsed, |stats| stats.used),
    (Level::VolumeInodes, |stats| stats.inodes),
    (Level::VolumeInodesFree, |stats| stats.inodes_free),
    (Level::VolumeInodesUsed, |stats| stats.inodes_used),
    (Level::VolumeAbnormal, |stats| stats.is_abnormal.map(u64::from)),
];

/// What a metric may have for a value.
pub(crate) trait Amount {
    /// As Prometheus has it.
    fn amount(self) -> f64;
}

impl Amount for f64 {
    fn amount(self) -> f64 {
        self
    }
}

#[expect(clippy::cast_precision_loss, reason = "as Prometheus' numbers are")]
impl Amount for i64 {
    fn amount(self) -> f64 {
        self as f64
    }
}

impl Amount for u32 {
    fn amount(self) -> f64 {
        self.into()
    }
}

#[expect(clippy::cast_precision_loss, reason = "as Prometheus' numbers are")]
impl Amount for u64 {
    fn amount(self) -> f64 {
        self as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "as Prometheus' numbers are")]
impl Amount for usize {
    fn amount(self) -> f64 {
        self as f64
    }
}

/// In seconds.
impl Amount for Duration {
    fn amount(self) -> f64 {
        self.as_secs_f64()
    }
}

/// In seconds since the epoch.
impl Amount for Timestamp {
    fn amount(self) -> f64 {
        self.as_duration().as_secs_f64()
    }
}

/// Pods and containers by state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) running_pods: usize,
    pub(crate) running: usize,
    pub(crate) exited: usize,
    pub(crate) created: usize,
    /// Of the API, and from files.
    pub(crate) active: (usize, usize),
    pub(crate) desired: (usize, usize),
    pub(crate) mirrors: usize,
    pub(crate) ephemeral: usize,
    /// What each worker is at.
    pub(crate) working: Vec<work::Work>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_tells_how_long_it_took_until_it_is_forgotten() {
        let metrics = KubeletMetrics::new("n1");
        let labels = |result| ProbeLabels {
            probe_type: "Readiness",
            result,
            container: "main".into(),
            pod: "web".into(),
            namespace: "shop".into(),
            pod_uid: "u".into(),
        };
        metrics.probed(&labels("successful"), Duration::from_millis(20));
        metrics.probed(&labels("failed"), Duration::from_secs(1));
        let text = metrics.probes.render();
        let line = "prober_probe_duration_seconds_bucket{le=\"0.025\",probe_type=\"Readiness\",container=\"main\",pod=\"web\",namespace=\"shop\"} 1";
        let count = "prober_probe_duration_seconds_count{probe_type=\"Readiness\",container=\"main\",pod=\"web\",namespace=\"shop\"} 1";
        assert!(text.contains(line) && text.contains(count), "{text}");
        metrics.forget_probes(&labels("successful"));
        assert!(!metrics.probes.render().contains("prober_probe_duration_seconds_count{"));
    }

    #[test]
    fn what_is_known_of_mounts_of_images_is_counted() {
        let metrics = KubeletMetrics::new("n1");
        metrics.image_volumes(2, Ok(()));
        let no_layers = CriError::Internal(format!("{}: no layers", cri::IMAGE_VOLUME_FAILED));
        metrics.image_volumes(1, Err(&no_layers));
        metrics.image_volumes(4, Err(&CriError::Internal("no such user".into())));
        let text = metrics.registry.render();
        for family in ["requested_total 7", "mounted_succeed_total 2", "mounted_errors_total 1"] {
            assert!(text.contains(&format!("\nkubelet_image_volume_{family}\n")), "{family}: {text}");
        }
    }

    #[test]
    fn families_have_upstreams_names_kinds_and_labels() {
        let metrics = KubeletMetrics::new("n1");
        metrics.count(Count::Evictions, &["memory.available"]);
        metrics.count(Count::RestartedPods, &["true"]);
        metrics.rejected("OutOfexample.com/gpu");
        metrics.set(Level::ClaimsInUse, &["<any>"], 2_u32);
        metrics.measure(Measure::ContainersPerPod, &[], 3_usize);
        metrics.measure(Measure::ImagePull, &[image_size(11 << 20)], Duration::from_secs(7));
        let fixed = work::Work {
            labels: ["sync", "desired", "true"],
            pending_resize: Some("deferred"),
            is_resizing: true,
        };
        metrics.set_counts(&Counts { working: vec![fixed, fixed], ..Counts::default() });
        let ended = Timestamp::from_second(93).ok();
        metrics.set_certificate(Level::ClientCertificate, ended, Timestamp::from_second(100).unwrap());
        metrics.set_certificate(Level::ServerCertificate, None, Timestamp::UNIX_EPOCH);
        let text = metrics.registry.render();
        assert!(
            text.contains("kubernetes_build_info{major=\"1\",minor=\"35\",git_version=\"v1.35."),
            "{text}"
        );
        for line in [
            "kubelet_node_name{node=\"n1\"} 1",
            "# TYPE kubelet_evictions counter",
            "kubelet_evictions{eviction_signal=\"memory.available\"} 1",
            "kubelet_pod_pending_resizes{reason=\"deferred\"} 2",
            "kubelet_pod_in_progress_resizes 2",
            "kubelet_orphan_pod_cleaned_volumes 0",
            "# TYPE kubelet_restarted_pods_total counter",
            "kubelet_restarted_pods_total{static=\"true\"} 1",
            "kubelet_admission_rejections_total{reason=\"OutOfExtendedResources\"} 1",
            "# TYPE dra_resource_claims_in_use gauge",
            "dra_resource_claims_in_use{driver_name=\"<any>\"} 2",
            "kubelet_containers_per_pod_count_bucket{le=\"4\"} 1",
            "kubelet_image_pull_duration_seconds_bucket{le=\"10\",image_size_in_bytes=\"10MB-100MB\"} 1",
            "kubelet_image_pull_duration_seconds_sum{image_size_in_bytes=\"10MB-100MB\"} 7",
            "kubelet_pleg_last_seen_seconds 0",
            "kubelet_working_pods{lifecycle=\"sync\",config=\"desired\",static=\"true\"} 2",
            "kubelet_working_pods{lifecycle=\"terminated\",config=\"orphan\",static=\"\"} 0",
            "kubelet_certificate_manager_client_ttl_seconds -7",
            "kubelet_certificate_manager_server_ttl_seconds +Inf",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
        }
        metrics.clear(Level::ClaimsInUse);
        assert!(!metrics.registry.render().contains("dra_resource_claims_in_use{"));
    }
}
