//! The metrics of configuration files that are read again.
//!
//! Source: `k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics`, `authenticationconfig/metrics`.

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;

use base::metrics::Metrics as Registry;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use ring::digest::{SHA256, digest};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
    apiserver_id_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ConfigLabels {
    apiserver_id_hash: String,
    hash: String,
}

/// What came of reading a file again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It says what counts already.
    Same,
    /// It counts from now on.
    Taken,
    /// It cannot be used: the one before counts.
    Refused,
}

/// `apiserver_*_config_controller_*`.
pub(super) struct Reloads {
    apiserver_id_hash: String,
    total: Family<StatusLabels, Counter>,
    last: Family<StatusLabels, Gauge<f64, AtomicU64>>,
    config: Family<ConfigLabels, Gauge>,
}

impl Reloads {
    /// Counts in a registry. `subject` is `authorization` or `authentication`; `apiserver_id` tells servers apart, and only
    /// its hash is shown.
    pub(super) fn new(registry: &Registry, subject: &str, apiserver_id: &str) -> Self {
        let metrics = Self {
            apiserver_id_hash: hash(apiserver_id),
            total: Family::default(),
            last: Family::default(),
            config: Family::default(),
        };
        let name = |rest: &str| format!("apiserver_{subject}_config_controller_{rest}");
        registry.register(
            &name("automatic_reloads"),
            &format!("Times that the {subject} configuration was read again, by status and server"),
            &metrics.total,
        );
        registry.register(
            &name("automatic_reload_last_timestamp_seconds"),
            &format!("When the {subject} configuration was last read again, by status and server"),
            &metrics.last,
        );
        registry.register(
            &name("last_config_info"),
            &format!("The {subject} configuration that counts, by its hash"),
            &metrics.config,
        );
        metrics
    }

    /// Takes note of a file.
    pub(super) fn record(&self, outcome: Outcome, text: &str, now: Timestamp) {
        let status = match outcome {
            Outcome::Same => None,
            Outcome::Taken => Some("success"),
            Outcome::Refused => Some("failure"),
        };
        if let Some(status) = status {
            let labels = StatusLabels { status, apiserver_id_hash: self.apiserver_id_hash.clone() };
            self.total.get_or_create(&labels).inc();
            self.last.get_or_create(&labels).set(now.as_duration().as_secs_f64());
        }
        if outcome != Outcome::Refused {
            self.config.clear();
            let (apiserver_id_hash, hash) = (self.apiserver_id_hash.clone(), hash(text));
            self.config.get_or_create(&ConfigLabels { apiserver_id_hash, hash }).set(1);
        }
    }
}

/// What is shown of what is not.
pub(super) fn hash(text: impl AsRef<[u8]>) -> String {
    let mut shown = "sha256:".to_owned();
    for byte in digest(&SHA256, text.as_ref()).as_ref() {
        // Writing to a string cannot fail.
        write!(shown, "{byte:02x}").unwrap_or_default();
    }
    shown
}
