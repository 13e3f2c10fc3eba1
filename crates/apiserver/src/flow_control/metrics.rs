//! The metrics of priority and fairness, by upstream's names.
//!
//! The handles of a schema are looked up once per plan, so that a request pays for a few additions only.
//! Source: `k8s.io/apiserver/pkg/util/flowcontrol/metrics`.

use std::sync::Arc;
use std::time::Instant;

use base::metrics::Metrics as Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::queues::Settings;

/// A schema and its level.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FlowLabels {
    flow_schema: String,
    priority_level: String,
}

/// Why a request was sent away.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RejectedLabels {
    flow_schema: String,
    priority_level: String,
    reason: &'static str,
}

/// Whether a request that waited came to run.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WaitLabels {
    flow_schema: String,
    priority_level: String,
    execute: &'static str,
}

/// A level.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LevelLabels {
    priority_level: String,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All of it.
pub struct FlowMetrics {
    dispatched: Family<FlowLabels, Counter>,
    rejected: Family<RejectedLabels, Counter>,
    in_queue: Family<FlowLabels, Gauge>,
    executing: Family<FlowLabels, Gauge>,
    seats: Family<FlowLabels, Gauge>,
    waits: Histograms<WaitLabels>,
    executions: Histograms<FlowLabels>,
    nominal: Family<LevelLabels, Gauge>,
    lower: Family<LevelLabels, Gauge>,
    upper: Family<LevelLabels, Gauge>,
}

fn seconds() -> Histogram {
    Histogram::new([0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0])
}

impl FlowMetrics {
    /// Registers all of it.
    pub fn new(registry: &Registry) -> Self {
        let waits: Histograms<WaitLabels> = Family::new_with_constructor(seconds as fn() -> Histogram);
        let executions: Histograms<FlowLabels> = Family::new_with_constructor(seconds as fn() -> Histogram);
        let this = Self {
            dispatched: Family::default(),
            rejected: Family::default(),
            in_queue: Family::default(),
            executing: Family::default(),
            seats: Family::default(),
            waits,
            executions,
            nominal: Family::default(),
            lower: Family::default(),
            upper: Family::default(),
        };
        let name = |name: &str| format!("apiserver_flowcontrol_{name}");
        registry.register(&name("dispatched_requests"), "Requests that ran", &this.dispatched);
        registry.register(&name("rejected_requests"), "Requests that were sent away", &this.rejected);
        registry.register(&name("current_inqueue_requests"), "Requests that wait", &this.in_queue);
        registry.register(&name("current_executing_requests"), "Requests that run", &this.executing);
        registry.register(&name("current_executing_seats"), "Seats in use", &this.seats);
        registry.register(&name("request_wait_duration_seconds"), "Time in a queue", &this.waits);
        registry.register(&name("request_execution_seconds"), "Time of running", &this.executions);
        registry.register(&name("nominal_limit_seats"), "Seats of a level", &this.nominal);
        registry.register(&name("lower_limit_seats"), "Seats that a level keeps", &this.lower);
        registry.register(&name("upper_limit_seats"), "Seats that a level can have", &this.upper);
        this
    }

    /// The handles of a schema that leads to a level.
    pub(super) fn of(&self, flow_schema: &str, priority_level: &str) -> Handles {
        let labels =
            FlowLabels { flow_schema: flow_schema.to_owned(), priority_level: priority_level.to_owned() };
        let wait = |execute| WaitLabels {
            flow_schema: labels.flow_schema.clone(),
            priority_level: labels.priority_level.clone(),
            execute,
        };
        Handles {
            dispatched: self.dispatched.get_or_create_owned(&labels),
            in_queue: self.in_queue.get_or_create_owned(&labels),
            executing: self.executing.get_or_create_owned(&labels),
            seats: self.seats.get_or_create_owned(&labels),
            waited: self.waits.get_or_create_owned(&wait("true")),
            waited_in_vain: self.waits.get_or_create_owned(&wait("false")),
            execution: self.executions.get_or_create_owned(&labels),
            rejected: self.rejected.clone(),
            labels,
        }
    }

    /// How many seats a level has.
    pub(super) fn level(&self, name: &str, settings: &Settings) {
        let labels = LevelLabels { priority_level: name.to_owned() };
        self.nominal.get_or_create(&labels).set(i64::from(settings.seats));
        self.lower.get_or_create(&labels).set(i64::from(settings.seats.saturating_sub(settings.lendable)));
        self.upper
            .get_or_create(&labels)
            .set(i64::from(settings.seats.saturating_add(settings.borrowing_max)));
    }
}

/// What is counted for the requests of one schema.
#[derive(Clone)]
pub(super) struct Handles {
    labels: FlowLabels,
    dispatched: Counter,
    rejected: Family<RejectedLabels, Counter>,
    in_queue: Gauge,
    executing: Gauge,
    seats: Gauge,
    waited: Histogram,
    waited_in_vain: Histogram,
    execution: Histogram,
}

impl Handles {
    /// A request waits, perhaps for no time at all.
    pub(super) fn wait(self: &Arc<Self>) -> Waiting {
        self.in_queue.inc();
        Waiting { handles: Arc::clone(self), since: Instant::now(), is_over: false }
    }
}

/// A request that waits; leaves the queue when dropped.
pub(super) struct Waiting {
    handles: Arc<Handles>,
    since: Instant,
    is_over: bool,
}

impl Waiting {
    /// It runs now.
    pub(super) fn run(mut self, width: u32) -> Running {
        let handles = Arc::clone(&self.handles);
        self.is_over = true;
        handles.waited.observe(self.since.elapsed().as_secs_f64());
        handles.dispatched.inc();
        handles.executing.inc();
        handles.seats.inc_by(i64::from(width));
        Running { handles, since: Instant::now(), width: i64::from(width) }
    }

    /// It is sent away.
    pub(super) fn reject(self, reason: &'static str) {
        let FlowLabels { flow_schema, priority_level } = self.handles.labels.clone();
        self.handles.rejected.get_or_create(&RejectedLabels { flow_schema, priority_level, reason }).inc();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.handles.in_queue.dec();
        if !self.is_over {
            self.handles.waited_in_vain.observe(self.since.elapsed().as_secs_f64());
        }
    }
}

/// A request that runs; it has ended when this is dropped.
pub(super) struct Running {
    handles: Arc<Handles>,
    since: Instant,
    width: i64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handles.executing.dec();
        self.handles.seats.dec_by(self.width);
        self.handles.execution.observe(self.since.elapsed().as_secs_f64());
    }
}
