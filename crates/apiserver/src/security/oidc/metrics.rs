//! The metrics of outside issuers, which are shown by their hashes.
//!
//! Source: `plugin/pkg/authenticator/token/oidc/metrics.go`.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use base::metrics::Metrics as Registry;
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::super::reloads::hash;

const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
    jwt_issuer_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FetchLabels {
    result: &'static str,
    jwt_issuer_hash: String,
    apiserver_id_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KeysLabels {
    jwt_issuer_hash: String,
    apiserver_id_hash: String,
    hash: String,
}

/// `apiserver_authentication_jwt_authenticator_*`.
pub(in super::super) struct JwtMetrics {
    apiserver_id_hash: String,
    latency: Family<ResultLabels, Histogram, fn() -> Histogram>,
    fetches: Family<FetchLabels, Gauge<f64, AtomicU64>>,
    keys: Family<KeysLabels, Gauge>,
    /// What is shown of each issuer's keys, so that it can be taken back.
    shown: Mutex<Vec<KeysLabels>>,
}

impl JwtMetrics {
    /// Counts in a registry. `apiserver_id` tells servers apart, and only its hash is shown.
    pub(in super::super) fn new(registry: &Registry, apiserver_id: &str) -> Self {
        let metrics = Self {
            apiserver_id_hash: hash(apiserver_id),
            latency: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            fetches: Family::default(),
            keys: Family::default(),
            shown: Mutex::default(),
        };
        let name = |rest: &str| format!("apiserver_authentication_jwt_authenticator_{rest}");
        registry.register(
            &name("latency_seconds"),
            "How long it takes to find the user of an issuer's token",
            &metrics.latency,
        );
        registry.register(
            &name("jwks_fetch_last_timestamp_seconds"),
            "When an issuer was last asked for its keys, by what came of it",
            &metrics.fetches,
        );
        registry.register(
            &name("jwks_fetch_last_key_set_info"),
            "The keys that an issuer has told last, by their hash",
            &metrics.keys,
        );
        metrics
    }

    /// Takes note of a token.
    pub(super) fn authenticated(&self, issuer: &str, is_good: bool, took: Duration) {
        let result = if is_good { "success" } else { "failure" };
        let labels = ResultLabels { result, jwt_issuer_hash: hash(issuer) };
        self.latency.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Takes note of what an issuer has told of its keys, if it has.
    pub(super) fn fetched(&self, issuer: &str, keys: Option<&[u8]>, now: Timestamp) {
        let result = if keys.is_some() { "success" } else { "failure" };
        let (jwt_issuer_hash, apiserver_id_hash) = (hash(issuer), self.apiserver_id_hash.clone());
        let labels = FetchLabels { result, jwt_issuer_hash, apiserver_id_hash };
        self.fetches.get_or_create(&labels).set(now.as_duration().as_secs_f64());
        if let Some(keys) = keys {
            self.hide_keys(&labels.jwt_issuer_hash);
            let FetchLabels { jwt_issuer_hash, apiserver_id_hash, .. } = labels;
            let labels = KeysLabels { jwt_issuer_hash, apiserver_id_hash, hash: hash(keys) };
            self.keys.get_or_create(&labels).set(1);
            self.shown.lock().push(labels);
        }
    }

    /// Takes back what is shown of an issuer's keys.
    pub(super) fn forget(&self, issuer: &str) {
        let issuer = hash(issuer);
        for result in ["success", "failure"] {
            let (jwt_issuer_hash, apiserver_id_hash) = (issuer.clone(), self.apiserver_id_hash.clone());
            self.fetches.remove(&FetchLabels { result, jwt_issuer_hash, apiserver_id_hash });
        }
        self.hide_keys(&issuer);
    }

    fn hide_keys(&self, issuer_hash: &str) {
        self.shown.lock().retain(|labels| {
            let is_meant = labels.jwt_issuer_hash == issuer_hash;
            if is_meant {
                self.keys.remove(labels);
            }
            !is_meant
        });
    }
}
