//! What the proxy counts, in upstream's names. Source: `pkg/proxy/metrics`.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use base::metrics::Metrics;
use http::StatusCode;
use jiff::Timestamp;
use machinery::net;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// A gauge of seconds.
type Seconds = Gauge<f64, AtomicU64>;
/// Durations by family.
type Durations = Family<OfFamily, Histogram, fn() -> Histogram>;

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfFamily {
    ip_family: &'static str,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPolicy {
    traffic_policy: &'static str,
    ip_family: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfCode {
    code: String,
}

impl OfFamily {
    fn new(family: net::Family) -> Self {
        Self { ip_family: family.as_str() }
    }
}

/// How many rows have a traffic policy of `Local` and no endpoint here, for traffic from inside and from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WithoutLocal {
    pub(crate) internal: usize,
    pub(crate) external: usize,
}

/// How much a commit changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// The whole table.
    Full,
    /// What was different.
    Partial,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ProxyMetrics {
    syncs: Durations,
    full_syncs: Durations,
    partial_syncs: Durations,
    programming: Durations,
    last_programmed: Family<OfFamily, Seconds>,
    last_queued: Family<OfFamily, Seconds>,
    failures: Family<OfFamily, Counter>,
    service_changes: Counter,
    service_changes_pending: Gauge,
    endpoint_changes: Counter,
    endpoint_changes_pending: Gauge,
    without_local: Family<OfPolicy, Gauge>,
    healthz: Family<OfCode, Counter>,
    livez: Family<OfCode, Counter>,
    flow_syncs: Durations,
    flows_deleted: Family<OfFamily, Counter>,
}

fn sync_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

fn programming_histogram() -> Histogram {
    let steps =
        |first: f64, step: f64, count: u32| (0..count).map(move |n| step.mul_add(f64::from(n), first));
    let all = steps(0.25, 0.25, 2).chain(steps(1.0, 1.0, 59)).chain(steps(60.0, 5.0, 12));
    Histogram::new(all.chain(steps(120.0, 30.0, 7)))
}

impl ProxyMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let durations = || Durations::new_with_constructor(sync_histogram);
        let all = Self {
            syncs: durations(),
            full_syncs: durations(),
            partial_syncs: durations(),
            programming: Durations::new_with_constructor(programming_histogram),
            last_programmed: Family::default(),
            last_queued: Family::default(),
            failures: Family::default(),
            service_changes: Counter::default(),
            service_changes_pending: Gauge::default(),
            endpoint_changes: Counter::default(),
            endpoint_changes_pending: Gauge::default(),
            without_local: Family::default(),
            healthz: Family::default(),
            livez: Family::default(),
            flow_syncs: durations(),
            flows_deleted: Family::default(),
        };
        all.register(metrics);
        all
    }

    fn register(&self, metrics: &Metrics) {
        let name = |name: &str| format!("kubeproxy_{name}");
        for (metric, what, help) in [
            (&self.syncs, "sync_proxy_rules_duration_seconds", "Seconds that a sync of rules took"),
            (
                &self.full_syncs,
                "sync_full_proxy_rules_duration_seconds",
                "Seconds that a sync of all rules took",
            ),
            (
                &self.partial_syncs,
                "sync_partial_proxy_rules_duration_seconds",
                "Seconds that a sync of what was different took",
            ),
            (
                &self.programming,
                "network_programming_duration_seconds",
                "Seconds from the change of a Pod or Service to rules that say so",
            ),
            (
                &self.flow_syncs,
                "conntrack_reconciler_sync_duration_seconds",
                "Seconds that forgetting stale flows took",
            ),
        ] {
            metrics.register(&name(what), help, metric);
        }
        for (metric, what, help) in [
            (&self.last_programmed, "sync_proxy_rules_last_timestamp_seconds", "When rules were last synced"),
            (
                &self.last_queued,
                "sync_proxy_rules_last_queued_timestamp_seconds",
                "When a sync of rules was last asked for",
            ),
        ] {
            metrics.register(&name(what), help, metric);
        }
        let failures = "sync_proxy_rules_nftables_sync_failures";
        metrics.register(&name(failures), "Syncs of nftables that failed", &self.failures);
        let deleted = "conntrack_reconciler_deleted_entries";
        metrics.register(&name(deleted), "Stale flows that were forgotten", &self.flows_deleted);
        let changes = "Changes of Services seen";
        metrics.register(&name("sync_proxy_rules_service_changes"), changes, &self.service_changes);
        let changes = "Changes of endpoints seen";
        metrics.register(&name("sync_proxy_rules_endpoint_changes"), changes, &self.endpoint_changes);
        let pending = "Changes of Services that are not programmed";
        metrics.register(
            &name("sync_proxy_rules_service_changes_pending"),
            pending,
            &self.service_changes_pending,
        );
        let pending = "Changes of endpoints that are not programmed";
        metrics.register(
            &name("sync_proxy_rules_endpoint_changes_pending"),
            pending,
            &self.endpoint_changes_pending,
        );
        let without = "Ports of Services with a Local traffic policy and no endpoint here";
        metrics.register(&name("sync_proxy_rules_no_local_endpoints_total"), without, &self.without_local);
        metrics.register(&name("proxy_healthz"), "Answers to /healthz by their code", &self.healthz);
        metrics.register(&name("proxy_livez"), "Answers to /livez by their code", &self.livez);
    }

    pub(crate) fn queued(&self, families: &[net::Family], now: Timestamp) {
        for family in families {
            let last = self.last_queued.get_or_create(&OfFamily::new(*family));
            last.set(now.as_millisecond() as f64 / 1000.0);
        }
    }

    pub(crate) fn programmed(&self, families: &[net::Family], now: Timestamp) {
        for family in families {
            let last = self.last_programmed.get_or_create(&OfFamily::new(*family));
            last.set(now.as_millisecond() as f64 / 1000.0);
        }
        self.service_changes_pending.set(0);
        self.endpoint_changes_pending.set(0);
    }

    pub(crate) fn changes(&self, services: usize, slices: usize) {
        self.service_changes.inc_by(services as u64);
        self.service_changes_pending.inc_by(services as i64);
        self.endpoint_changes.inc_by(slices as u64);
        self.endpoint_changes_pending.inc_by(slices as i64);
    }

    pub(crate) fn synced(&self, (sync, family): (Sync, net::Family), took: Duration, without: WithoutLocal) {
        let family = OfFamily::new(family);
        let of = match sync {
            Sync::Full => &self.full_syncs,
            Sync::Partial => &self.partial_syncs,
        };
        self.syncs.get_or_create(&family).observe(took.as_secs_f64());
        of.get_or_create(&family).observe(took.as_secs_f64());
        for (traffic_policy, count) in [("internal", without.internal), ("external", without.external)] {
            let labels = OfPolicy { traffic_policy, ip_family: family.ip_family };
            self.without_local.get_or_create(&labels).set(count as i64);
        }
    }

    pub(crate) fn failed(&self, families: &[net::Family]) {
        for family in families {
            self.failures.get_or_create(&OfFamily::new(*family)).inc();
        }
    }

    pub(crate) fn flows(&self, family: net::Family, took: Duration, deleted: usize) {
        let family = OfFamily::new(family);
        self.flow_syncs.get_or_create(&family).observe(took.as_secs_f64());
        self.flows_deleted.get_or_create(&family).inc_by(deleted as u64);
    }

    /// What changed at `since` is in force.
    pub(crate) fn in_force(&self, families: &[net::Family], since: Timestamp, now: Timestamp) {
        let took = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        for family in families {
            self.programming.get_or_create(&OfFamily::new(*family)).observe(took.as_secs_f64());
        }
    }

    pub(crate) fn asked(&self, path: &str, code: StatusCode) {
        let labels = OfCode { code: code.as_str().to_owned() };
        let of = if path == "/livez" { &self.livez } else { &self.healthz };
        of.get_or_create(&labels).inc();
    }
}
