//! Upstream's metrics, as far as they are kept.

use base::health::Results;
use base::metrics::Metrics as Registry;
use std::fmt::Write as _;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use resources::Text;

/// A text of a kind's row.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct Label(pub Text);

impl Label {
    /// Of what no kind is known.
    pub const NONE: Self = Self(Text::Static(""));
}

impl EncodeLabelValue for Label {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(&self.0)
    }
}

/// The labels that requests are counted by.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RequestLabels {
    /// The verb in upper case, or `OTHER`.
    pub verb: &'static str,
    /// The group.
    pub group: Label,
    /// The version.
    pub version: Label,
    /// The plural.
    pub resource: Label,
    /// The HTTP status.
    pub code: u16,
}

/// The labels that durations are kept by.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct VerbLabels {
    /// The verb in upper case.
    pub verb: &'static str,
    /// The plural.
    pub resource: Label,
}

/// What requests under way are counted by.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    request_kind: &'static str,
}

/// A guard that counts a request for as long as it is kept.
#[derive(Debug)]
pub struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The metrics of the server, in its process's registry.
pub struct Metrics {
    registry: Registry,
    /// `apiserver_request_total`
    pub requests: Family<RequestLabels, Counter>,
    /// `apiserver_request_duration_seconds`
    pub durations: Family<VerbLabels, Histogram, fn() -> Histogram>,
    /// Reads and writes: what every request counts in is at hand.
    in_flight: [Gauge; 2],
    long_running: Family<VerbLabels, Gauge>,
    /// What `/metrics/slis` shows.
    slis: Results,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        let requests = Family::default();
        let durations: Family<VerbLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| {
                Histogram::new([0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0])
            });
        let (in_flight, long_running) = (Family::<KindLabels, Gauge>::default(), Family::default());
        base::metrics::process::register(&registry);
        let (name, help, labels) = machinery::version::build_info();
        registry.info(name, help, &labels);
        registry.register("apiserver_request", "Requests by verb, resource and code", &requests);
        registry.register("apiserver_request_duration_seconds", "Latency in seconds", &durations);
        registry.register("apiserver_current_inflight_requests", "Requests under way", &in_flight);
        registry.register("apiserver_longrunning_requests", "Watches under way", &long_running);
        let in_flight = ["readOnly", "mutating"]
            .map(|request_kind| in_flight.get_or_create_owned(&KindLabels { request_kind }));
        let slis = Results::default();
        Self { registry, requests, durations, in_flight, long_running, slis }
    }
}

impl Metrics {
    /// Counts a request in `apiserver_current_inflight_requests`.
    pub fn in_flight(&self, is_write: bool) -> UnderWay {
        let [reads, writes] = &self.in_flight;
        Self::begin(if is_write { writes } else { reads }.clone())
    }

    /// Counts a watch in `apiserver_longrunning_requests`.
    pub fn watch(&self, resource: Label) -> UnderWay {
        Self::begin(self.long_running.get_or_create_owned(&VerbLabels { verb: "WATCH", resource }))
    }

    fn begin(gauge: Gauge) -> UnderWay {
        gauge.inc();
        UnderWay(gauge)
    }

    /// The results of health checks: `/metrics/slis`.
    pub fn slis(&self) -> &Results {
        &self.slis
    }

    /// The registry: parts in the same process count in it too.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}
