//! How long the steps of a binding took, from the room that is reserved on.

use std::sync::Arc;

use base::Clock;
use controller::pod::Pod;
use jiff::Timestamp;

use crate::metrics::SchedulerMetrics;
use crate::profile::{Point, scheduler_name};
use crate::timings::Code;

/// The extension points of a binding, one after the other.
pub(in crate::run) struct Steps {
    metrics: Arc<SchedulerMetrics>,
    clock: Clock,
    profile: String,
    since: Timestamp,
}

impl Steps {
    /// Those of a binding whose first one began at `since`.
    pub(in crate::run) fn new(
        metrics: &Arc<SchedulerMetrics>,
        clock: &Clock,
        pod: &Pod,
        since: Timestamp,
    ) -> Self {
        let profile = scheduler_name(pod).to_owned();
        Self { metrics: metrics.clone(), clock: clock.clone(), profile, since }
    }

    /// The next one is over.
    pub(in crate::run) fn over(&mut self, point: Point, code: Code) {
        let now = self.clock.now();
        let seconds = now.duration_since(self.since).as_secs_f64().max(0.0);
        self.metrics.extension_point(&self.profile, point, code, seconds);
        self.since = now;
    }
}
