//! The metrics of audit events.
//!
//! Source: `k8s.io/apiserver/pkg/audit/metrics.go`.

use base::metrics::Metrics as Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::policy::Level;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PluginLabels {
    plugin: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LevelLabels {
    level: &'static str,
}

/// `apiserver_audit_*`.
pub(super) struct AuditMetrics {
    events: Counter,
    errors: Family<PluginLabels, Counter>,
    levels: [Counter; 4],
    rejected: Counter,
}

impl AuditMetrics {
    /// Counts in a registry.
    pub(super) fn new(registry: &Registry) -> Self {
        let levels = Family::<LevelLabels, Counter>::default();
        let of = |level: Level| levels.get_or_create_owned(&LevelLabels { level: level.as_str() });
        let metrics = Self {
            events: Counter::default(),
            errors: Family::default(),
            levels: [Level::None, Level::Metadata, Level::Request, Level::RequestResponse].map(of),
            rejected: Counter::default(),
        };
        let name = |rest: &str| format!("apiserver_audit_{rest}");
        registry.register(&name("event"), "Audit events", &metrics.events);
        registry.register(&name("error"), "Audit events that were lost, by what lost them", &metrics.errors);
        registry.register(&name("level"), "Requests by the level of their audit events", &levels);
        registry.register(
            &name("requests_rejected"),
            "Requests that were refused because their audit events could not be stored",
            &metrics.rejected,
        );
        metrics
    }

    /// Counts a request.
    pub(super) fn judged(&self, level: Level) {
        let [none, metadata, request, response] = &self.levels;
        match level {
            Level::None => none,
            Level::Metadata => metadata,
            Level::Request => request,
            Level::RequestResponse => response,
        }
        .inc();
    }

    /// Counts an event.
    pub(super) fn made(&self) {
        self.events.inc();
    }

    /// Counts events that are lost.
    pub(super) fn failed(&self, plugin: &'static str, events: u64) {
        self.errors.get_or_create(&PluginLabels { plugin }).inc_by(events);
    }

    /// Counts a request that was refused.
    pub(super) fn rejected(&self) {
        self.rejected.inc();
    }
}
