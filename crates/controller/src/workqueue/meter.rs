//! The counts of one queue.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// What one queue counts.
#[derive(Debug)]
pub(crate) struct QueueMeter {
    pub(crate) depth: Gauge,
    pub(crate) adds: Counter,
    pub(crate) retries: Counter,
    pub(crate) queued: Histogram,
    pub(crate) worked: Histogram,
}

impl Default for QueueMeter {
    fn default() -> Self {
        Self {
            depth: Gauge::default(),
            adds: Counter::default(),
            retries: Counter::default(),
            queued: work_histogram(),
            worked: work_histogram(),
        }
    }
}

/// Upstream's buckets: from 10 ns to 1,000 s.
pub(crate) fn work_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 12))
}
