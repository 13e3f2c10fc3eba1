//! Upstream's metrics, as far as they are kept.

use std::sync::atomic::AtomicI64;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What requests are counted by.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RequestLabels {
    /// The verb in upper case, or `OTHER`.
    pub verb: &'static str,
    /// The group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The plural.
    pub resource: &'static str,
    /// The HTTP status.
    pub code: u16,
}

/// What durations are kept by.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct VerbLabels {
    /// The verb in upper case.
    pub verb: &'static str,
    /// The plural.
    pub resource: &'static str,
}

/// The server's registry.
pub struct Metrics {
    registry: Mutex<Registry>,
    /// `apiserver_request_total`
    pub requests: Family<RequestLabels, Counter>,
    /// `apiserver_request_duration_seconds`
    pub durations: Family<VerbLabels, Histogram, fn() -> Histogram>,
    /// `apiserver_current_inflight_requests`
    pub in_flight: Gauge<i64, AtomicI64>,
    /// `apiserver_longrunning_requests`
    pub long_running: Gauge<i64, AtomicI64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        let durations: Family<VerbLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| {
                Histogram::new([0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0])
            });
        let (in_flight, long_running) = (Gauge::default(), Gauge::default());
        registry.register("apiserver_request", "Requests by verb, resource and code", requests.clone());
        registry.register("apiserver_request_duration_seconds", "Latency in seconds", durations.clone());
        registry.register("apiserver_current_inflight_requests", "Requests under way", in_flight.clone());
        registry.register("apiserver_longrunning_requests", "Watches under way", long_running.clone());
        Self { registry: Mutex::new(registry), requests, durations, in_flight, long_running }
    }
}

impl Metrics {
    /// The text exposition.
    pub fn render(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry.lock()) {
            Ok(()) => text,
            Err(_) => String::new(),
        }
    }
}
