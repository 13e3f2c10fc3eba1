//! The metrics of the scheduler, in upstream's names. Source: `pkg/scheduler/metrics`.

use std::collections::BTreeMap;

use base::Metrics;
use controller::pod::Pod;
use jiff::Timestamp;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::hints::NO_NODE;
use crate::profile::{Point, scheduler_name};
use crate::queue::{Depths, History};
use crate::timings::{Code, Timings};

/// How an attempt ended.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the names are the label's values")]
pub(crate) enum Outcome {
    scheduled,
    unschedulable,
    error,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AttemptLabels {
    result: Outcome,
    profile: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueLabels {
    queue: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct IncomingLabels {
    queue: &'static str,
    event: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PluginLabels {
    plugin: &'static str,
    profile: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HintLabels {
    plugin: &'static str,
    event: &'static str,
    hint: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PointLabels {
    extension_point: Point,
    status: Code,
    profile: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ExecutionLabels {
    plugin: &'static str,
    extension_point: Point,
    status: Code,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EvaluationLabels {
    plugin: &'static str,
    extension_point: Point,
    profile: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TypeLabels {
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TriesLabels {
    attempts: String,
}

/// The counters of one scheduler.
pub(crate) struct SchedulerMetrics {
    attempts: Family<AttemptLabels, Counter>,
    attempt_durations: Family<AttemptLabels, Histogram, fn() -> Histogram>,
    algorithm_duration: Histogram,
    since_first_seen: Family<TriesLabels, Histogram, fn() -> Histogram>,
    tries: Histogram,
    pending: Family<QueueLabels, Gauge>,
    incoming: Family<IncomingLabels, Counter>,
    unschedulable: Family<PluginLabels, Gauge>,
    after_flush: Counter,
    hints: Family<HintLabels, Histogram, fn() -> Histogram>,
    permits: Family<ResultLabels, Histogram, fn() -> Histogram>,
    preemptions: Counter,
    victims: Histogram,
    evictions: Family<ResultLabels, Counter>,
    eviction_durations: Family<ResultLabels, Histogram, fn() -> Histogram>,
    cache: Family<TypeLabels, Gauge>,
    points: Family<PointLabels, Histogram, fn() -> Histogram>,
    executions: Family<ExecutionLabels, Histogram, fn() -> Histogram>,
    evaluations: Family<EvaluationLabels, Counter>,
}

impl SchedulerMetrics {
    /// Registers the metrics of a scheduler.
    pub(crate) fn new(registry: &Metrics) -> Self {
        let made = Self {
            attempts: Family::default(),
            attempt_durations: Family::new_with_constructor(attempt_histogram),
            algorithm_duration: attempt_histogram(),
            since_first_seen: Family::new_with_constructor(sli_histogram),
            tries: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0]),
            pending: Family::default(),
            incoming: Family::default(),
            unschedulable: Family::default(),
            after_flush: Counter::default(),
            hints: Family::new_with_constructor(plugin_histogram),
            permits: Family::new_with_constructor(attempt_histogram),
            preemptions: Counter::default(),
            victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            evictions: Family::default(),
            eviction_durations: Family::new_with_constructor(sli_histogram),
            cache: Family::default(),
            points: Family::new_with_constructor(point_histogram),
            executions: Family::new_with_constructor(plugin_histogram),
            evaluations: Family::default(),
        };
        registry.register(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by the result and the profile",
            &made.attempts,
        );
        registry.register(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds: algorithm and binding",
            &made.attempt_durations,
        );
        registry.register(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds",
            &made.algorithm_duration,
        );
        registry.register(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Latency of a pod from its entry into the queue until it is scheduled, over all attempts",
            &made.since_first_seen,
        );
        registry.register(
            "scheduler_pod_scheduling_attempts",
            "Attempts that it took to schedule a pod",
            &made.tries,
        );
        registry.register("scheduler_pending_pods", "Pending pods, by the queue", &made.pending);
        registry.register("scheduler_cache_size", "Nodes, pods and assumed pods in the cache", &made.cache);
        made.register_queue(registry);
        made.register_framework(registry);
        made
    }

    /// What is counted of Pods that wait, and of those that make room.
    fn register_queue(&self, registry: &Metrics) {
        registry.register(
            "scheduler_queue_incoming_pods",
            "Pods added to scheduling queues, by the event and the queue",
            &self.incoming,
        );
        registry.register(
            "scheduler_unschedulable_pods",
            "Unschedulable pods, by the plugins that refuse them; a pod counts for each",
            &self.unschedulable,
        );
        registry.register(
            "scheduler_pod_scheduled_after_flush",
            "Pods that were scheduled after nothing that happened was thought to help them",
            &self.after_flush,
        );
        registry.register(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration of a plugin's queueing hint, by the event and the answer",
            &self.hints,
        );
        registry.register(
            "scheduler_permit_wait_duration_seconds",
            "Duration of waiting on permit, by the result",
            &self.permits,
        );
        registry.register("scheduler_preemption_attempts", "Preemption attempts", &self.preemptions);
        registry.register("scheduler_preemption_victims", "Selected preemption victims", &self.victims);
        registry.register(
            "scheduler_preemption_goroutines_execution",
            "Preemptions that were carried out, by the result",
            &self.evictions,
        );
        registry.register(
            "scheduler_preemption_goroutines_duration_seconds",
            "Duration of carrying a preemption out, by the result",
            &self.eviction_durations,
        );
    }

    /// What is measured of extension points and their plugins.
    fn register_framework(&self, registry: &Metrics) {
        registry.register(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency of all plugins of an extension point, by the result and the profile",
            &self.points,
        );
        registry.register(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of a plugin at an extension point, of one decision in ten",
            &self.executions,
        );
        registry.register(
            "scheduler_plugin_evaluation",
            "How often a plugin was asked at an extension point: PreFilter, Filter, PreScore or Score",
            &self.evaluations,
        );
    }

    /// How long the extension points of a decision about one of our Pods took.
    pub(crate) fn timed(&self, pod: &Pod, timings: Timings) {
        let profile = scheduler_name(pod);
        for (extension_point, status, seconds) in timings.points {
            self.extension_point(profile, extension_point, status, seconds);
        }
        // A few rows, each met once a Node.
        let mut executions: Vec<(ExecutionLabels, Histogram)> = Vec::new();
        for (plugin, extension_point, status, seconds) in timings.plugins {
            let labels = ExecutionLabels { plugin, extension_point, status };
            if let Some((_, known)) = executions.iter().find(|(of, _)| *of == labels) {
                known.observe(seconds);
                continue;
            }
            let histogram = self.executions.get_or_create_owned(&labels);
            histogram.observe(seconds);
            executions.push((labels, histogram));
        }
        for ((extension_point, plugin), times) in timings.evaluations {
            let labels = EvaluationLabels { plugin, extension_point, profile: profile.to_owned() };
            self.evaluations.get_or_create(&labels).inc_by(times);
        }
    }

    /// An extension point was over after so many seconds.
    pub(crate) fn extension_point(&self, profile: &str, extension_point: Point, status: Code, seconds: f64) {
        let labels = PointLabels { extension_point, status, profile: profile.to_owned() };
        self.points.get_or_create(&labels).observe(seconds);
    }

    /// A Node was chosen, or none was found, by a decision that began at `start`.
    pub(crate) fn decided(&self, start: Timestamp, now: Timestamp) {
        self.algorithm_duration.observe(seconds(start, now));
    }

    /// An attempt with one of our Pods that began at `start` has ended.
    pub(crate) fn attempted(&self, pod: &Pod, result: Outcome, start: Timestamp, now: Timestamp) {
        let labels = AttemptLabels { result, profile: scheduler_name(pod).to_owned() };
        self.attempts.get_or_create(&labels).inc();
        self.attempt_durations.get_or_create(&labels).observe(seconds(start, now));
    }

    /// A Pod is bound, with this past.
    pub(crate) fn scheduled(&self, past: History, now: Timestamp) {
        let History { attempts, since: seen, is_flushed } = past;
        self.after_flush.inc_by(u64::from(is_flushed));
        let label = if attempts > 15 { "16+".to_owned() } else { attempts.to_string() };
        self.since_first_seen.get_or_create(&TriesLabels { attempts: label }).observe(seconds(seen, now));
        self.tries.observe(f64::from(attempts));
    }

    /// How many Pods wait where.
    pub(crate) fn waiting(&self, depths: Depths, gated: usize) {
        let all = [
            ("active", depths.active),
            ("backoff", depths.backoff),
            ("unschedulable", depths.unschedulable),
            ("gated", gated),
        ];
        for (queue, depth) in all {
            self.pending.get_or_create(&QueueLabels { queue }).set(count(depth));
        }
    }

    /// How many Pods came into which queue, and by what event.
    pub(crate) fn incoming(&self, pods: BTreeMap<(&'static str, &'static str), u64>) {
        for ((queue, event), count) in pods {
            self.incoming.get_or_create(&IncomingLabels { queue, event }).inc_by(count);
        }
    }

    /// By profile and plugin, who was refused: once for each Pod.
    pub(crate) fn refused<'a>(&self, refusals: impl Iterator<Item = (&'a str, &'static str)>) {
        self.unschedulable.clear();
        for (profile, plugin) in refusals.filter(|(_, plugin)| *plugin != NO_NODE) {
            let labels = PluginLabels { plugin, profile: profile.to_owned() };
            self.unschedulable.get_or_create(&labels).inc();
        }
    }

    /// A plugin was asked whether an event helps a Pod.
    pub(crate) fn hinted(
        &self,
        plugin: &'static str,
        event: &'static str,
        is_helped: bool,
        start: Timestamp,
        end: Timestamp,
    ) {
        let hint = if is_helped { "Queue" } else { "QueueSkip" };
        self.hints.get_or_create(&HintLabels { plugin, event, hint }).observe(seconds(start, end));
    }

    /// A Pod has waited for others, and they have come (`Success`) or not (`Unschedulable`).
    pub(crate) fn permitted(&self, result: &'static str, since: Timestamp, now: Timestamp) {
        self.permits.get_or_create(&ResultLabels { result }).observe(seconds(since, now));
    }

    /// Room is looked for where Pods are.
    pub(crate) fn preempting(&self) {
        self.preemptions.inc();
    }

    /// So many are to go for one Pod.
    pub(crate) fn victims(&self, count: usize) {
        self.victims.observe(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
    }

    /// The victims have been told, or not all could be.
    pub(crate) fn preempted(&self, is_done: bool, start: Timestamp, end: Timestamp) {
        let labels = ResultLabels { result: if is_done { "success" } else { "error" } };
        self.evictions.get_or_create(&labels).inc();
        self.eviction_durations.get_or_create(&labels).observe(seconds(start, end));
    }

    /// How much the scheduler keeps in mind.
    pub(crate) fn cached(&self, nodes: usize, pods: usize, assumed: usize) {
        for (r#type, size) in [("nodes", nodes), ("pods", pods), ("assumed_pods", assumed)] {
            self.cache.get_or_create(&TypeLabels { r#type }).set(count(size));
        }
    }
}

/// Upstream's buckets: from 1 ms to 16 s.
fn attempt_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

/// Upstream's buckets: from 0.1 to 200 ms.
fn point_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 12))
}

/// Upstream's buckets: from 10 us to 22 ms.
fn plugin_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_01, 1.5, 20))
}

/// Upstream's buckets: from 10 ms to 90 minutes.
fn sli_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

fn seconds(start: Timestamp, end: Timestamp) -> f64 {
    end.duration_since(start).as_secs_f64().max(0.0)
}

fn count(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_and_queues_are_told_in_upstreams_names() {
        let registry = Metrics::new();
        let metrics = SchedulerMetrics::new(&registry);
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        metrics.decided(at(0), at(1));
        metrics.attempted(&Pod::default(), Outcome::scheduled, at(0), at(2));
        metrics.scheduled(History { attempts: 1, since: at(0), is_flushed: true }, at(3));
        metrics.incoming(BTreeMap::from([(("active", "NodeAdd"), 2)]));
        metrics.refused(std::iter::once(("default-scheduler", "NodePorts")));
        metrics.hinted("NodePorts", "NodeAdd", true, at(0), at(1));
        metrics.permitted("Success", at(0), at(4));
        metrics.preempting();
        metrics.victims(4);
        metrics.preempted(true, at(0), at(1));
        metrics.waiting(Depths { active: 1, backoff: 2, unschedulable: 3 }, 4);
        metrics.cached(5, 6, 7);
        let mut timings = Timings::default();
        timings.points.push((Point::Filter, Code::Success, 0.25));
        timings.plugins.push(("NodePorts", Point::Filter, Code::Unschedulable, 0.5));
        timings.evaluations.insert((Point::Score, "ImageLocality"), 3);
        metrics.timed(&Pod::default(), timings);
        let text = registry.render();
        for line in [
            r#"scheduler_schedule_attempts_total{result="scheduled",profile="default-scheduler"} 1"#,
            r#"scheduler_scheduling_attempt_duration_seconds_sum{result="scheduled",profile="default-scheduler"} 2"#,
            "scheduler_scheduling_algorithm_duration_seconds_sum 1",
            r#"scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="1"} 3"#,
            r#"scheduler_pending_pods{queue="gated"} 4"#,
            r#"scheduler_pending_pods{queue="unschedulable"} 3"#,
            r#"scheduler_cache_size{type="assumed_pods"} 7"#,
            r#"scheduler_queue_incoming_pods_total{queue="active",event="NodeAdd"} 2"#,
            r#"scheduler_unschedulable_pods{plugin="NodePorts",profile="default-scheduler"} 1"#,
            "scheduler_pod_scheduled_after_flush_total 1",
            r#"scheduler_queueing_hint_execution_duration_seconds_sum{plugin="NodePorts",event="NodeAdd",hint="Queue"} 1"#,
            r#"scheduler_permit_wait_duration_seconds_sum{result="Success"} 4"#,
            r#"scheduler_framework_extension_point_duration_seconds_sum{extension_point="Filter",status="Success",profile="default-scheduler"} 0.25"#,
            r#"scheduler_plugin_execution_duration_seconds_sum{plugin="NodePorts",extension_point="Filter",status="Unschedulable"} 0.5"#,
            r#"scheduler_plugin_evaluation_total{plugin="ImageLocality",extension_point="Score",profile="default-scheduler"} 3"#,
            "scheduler_preemption_attempts_total 1",
            "scheduler_preemption_victims_sum 4",
            r#"scheduler_preemption_goroutines_execution_total{result="success"} 1"#,
            r#"scheduler_preemption_goroutines_duration_seconds_sum{result="success"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in {text}");
        }
    }
}
