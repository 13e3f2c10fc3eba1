//! The metrics.
//!
//! Labels come from objects and from what we say ourselves, never from requests: nobody outside can make more of them.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Of a request that found no row.
const NOBODY: &str = "";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    ingress: String,
    class: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Port {
    scheme: &'static str,
}

/// Metrics of the data plane. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Histogram,
    connections: Family<Port, Gauge>,
    tunnels: Gauge,
    retries: Counter,
    tables: Counter,
    rows: Gauge,
}

impl Metrics {
    /// In a process's registry.
    pub fn new(registry: &base::Metrics) -> Self {
        let metrics = Self {
            requests: Family::default(),
            seconds: Histogram::new(exponential_buckets(0.001, 4.0, 9)),
            connections: Family::default(),
            tunnels: Gauge::default(),
            retries: Counter::default(),
            tables: Counter::default(),
            rows: Gauge::default(),
        };
        let name = |name: &str| format!("knarr_ingress_{name}");
        registry.register(
            &name("requests"),
            "Requests by the Ingress that they were for and by class of status",
            &metrics.requests,
        );
        registry.register(&name("request_duration_seconds"), "Seconds from head to end", &metrics.seconds);
        registry.register(&name("connections"), "Connections of clients", &metrics.connections);
        registry.register(&name("tunnels"), "Connections that speak another protocol", &metrics.tunnels);
        registry.register(
            &name("connect_failures"),
            "Endpoints that could not be connected to",
            &metrics.retries,
        );
        registry.register(&name("tables"), "Tables that have been put to use", &metrics.tables);
        registry.register(&name("rows"), "Hosts and paths that lead somewhere", &metrics.rows);
        metrics
    }

    /// A request is over; a status of 499 is one whose client has gone.
    pub(crate) fn request(&self, ingress: Option<&str>, status: u16, seconds: f64) {
        let class = match status {
            100..200 => "1xx",
            200..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            _ => "5xx",
        };
        let labels = RequestLabels { ingress: ingress.unwrap_or(NOBODY).to_owned(), class };
        self.requests.get_or_create(&labels).inc();
        self.seconds.observe(seconds);
    }

    /// Forgets what was counted for an Ingress that is gone.
    pub(crate) fn forget(&self, ingress: &str) {
        for class in ["1xx", "2xx", "3xx", "4xx", "5xx"] {
            self.requests.remove(&RequestLabels { ingress: ingress.to_owned(), class });
        }
    }

    pub(crate) fn connection(&self, scheme: &'static str) -> Counted {
        Counted::begin(self.connections.get_or_create_owned(&Port { scheme }))
    }

    pub(crate) fn tunnel(&self) -> Counted {
        Counted::begin(self.tunnels.clone())
    }

    pub(crate) fn connect_failed(&self) {
        self.retries.inc();
    }

    pub(crate) fn table(&self, rows: usize) {
        self.tables.inc();
        self.rows.set(i64::try_from(rows).unwrap_or(i64::MAX));
    }
}

/// Something that is there until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    fn begin(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
