//! The metrics, by upstream's names.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// The way that a value goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    FromStorage,
    ToStorage,
}

impl Direction {
    fn label(self) -> &'static str {
        match self {
            Self::FromStorage => "from_storage",
            Self::ToStorage => "to_storage",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    transformation_type: &'static str,
    transformer_prefix: String,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DurationLabels {
    transformation_type: &'static str,
    transformer_prefix: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    provider_name: String,
    method_name: &'static str,
    grpc_status_code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KeyLabels {
    transformation_type: &'static str,
    provider_name: String,
    key_id_hash: String,
    apiserver_id_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatusKeyLabels {
    provider_name: String,
    key_id_hash: String,
    apiserver_id_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct InvalidKeyLabels {
    provider_name: String,
    error: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProviderLabels {
    provider_name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReloadLabels {
    status: &'static str,
    apiserver_id_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ConfigLabels {
    apiserver_id_hash: String,
    hash: String,
}

type Seconds = Gauge<f64, std::sync::atomic::AtomicU64>;
type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of encryption at rest. Cloning shares them.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<Families>);

struct Families {
    apiserver_id_hash: String,
    operations: Family<OperationLabels, Counter>,
    durations: Durations<DurationLabels>,
    cache_misses: Counter,
    key_generation: Histogram,
    key_generation_failures: Counter,
    calls: Durations<CallLabels>,
    keys: Family<KeyLabels, Counter>,
    keys_last: Family<KeyLabels, Seconds>,
    status_keys_last: Family<StatusKeyLabels, Seconds>,
    invalid_keys: Family<InvalidKeyLabels, Counter>,
    seeds: Family<ProviderLabels, Gauge>,
    reloads: Family<ReloadLabels, Counter>,
    reloads_last: Family<ReloadLabels, Seconds>,
    config: Family<ConfigLabels, Gauge>,
}

impl Metrics {
    /// Registers them. `apiserver_id` tells servers apart; only its hash is shown.
    pub(crate) fn new(registry: &base::Metrics, apiserver_id: &str) -> Self {
        let families = Families {
            apiserver_id_hash: hash(apiserver_id.as_bytes()),
            operations: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(exponential_buckets(5e-6, 2.0, 25))),
            cache_misses: Counter::default(),
            key_generation: Histogram::new(exponential_buckets(5e-6, 2.0, 14)),
            key_generation_failures: Counter::default(),
            calls: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1e-4, 2.0, 20))),
            keys: Family::default(),
            keys_last: Family::default(),
            status_keys_last: Family::default(),
            invalid_keys: Family::default(),
            seeds: Family::default(),
            reloads: Family::default(),
            reloads_last: Family::default(),
            config: Family::default(),
        };
        let metrics = Self(Arc::new(families));
        metrics.register(registry);
        metrics
    }

    fn register(&self, registry: &base::Metrics) {
        let all = &self.0;
        let storage = |name: &str| format!("apiserver_storage_{name}");
        let envelope = |name: &str| format!("apiserver_envelope_encryption_{name}");
        let reload = |name: &str| format!("apiserver_encryption_config_controller_{name}");
        registry.register(
            &storage("transformation_operations"),
            "Total number of transformations",
            &all.operations,
        );
        registry.register(
            &storage("transformation_duration_seconds"),
            "Latencies in seconds of value transformation operations",
            &all.durations,
        );
        registry.register(
            &storage("envelope_transformation_cache_misses"),
            "Total number of cache misses while accessing key decryption key(KEK)",
            &all.cache_misses,
        );
        registry.register(
            &storage("data_key_generation_duration_seconds"),
            "Latencies in seconds of data encryption key(DEK) generation operations",
            &all.key_generation,
        );
        registry.register(
            &storage("data_key_generation_failures"),
            "Total number of failed data encryption key(DEK) generation operations",
            &all.key_generation_failures,
        );
        registry.register(
            &envelope("kms_operations_latency_seconds"),
            "KMS operation duration with gRPC error code status total",
            &all.calls,
        );
        registry.register(&envelope("key_id_hash"), "Number of times a keyID is used", &all.keys);
        registry.register(
            &envelope("key_id_hash_last_timestamp_seconds"),
            "The last time in seconds when a keyID was used",
            &all.keys_last,
        );
        registry.register(
            &envelope("key_id_hash_status_last_timestamp_seconds"),
            "The last time in seconds when a keyID was returned by the Status RPC call",
            &all.status_keys_last,
        );
        registry.register(
            &envelope("invalid_key_id_from_status"),
            "Number of times an invalid keyID is returned by the Status RPC call",
            &all.invalid_keys,
        );
        registry.register(
            &envelope("dek_source_cache_size"),
            "Number of records in data encryption key (DEK) source cache",
            &all.seeds,
        );
        registry.register(
            &reload("automatic_reloads"),
            "Total number of reload successes and failures of encryption configuration",
            &all.reloads,
        );
        registry.register(
            &reload("automatic_reload_last_timestamp_seconds"),
            "Timestamp of the last successful or failed automatic reload of encryption configuration",
            &all.reloads_last,
        );
        registry.register(
            &reload("last_config_info"),
            "Information about the last applied encryption configuration with hash as label",
            &all.config,
        );
    }

    /// The metrics of what stands behind `prefix`.
    pub(crate) fn link(&self, prefix: &str) -> LinkMetrics {
        LinkMetrics { metrics: self.clone(), prefix: prefix.to_owned(), done: [const { OnceLock::new() }; 2] }
    }

    /// A seed that was not in memory.
    pub(crate) fn cache_miss(&self) {
        self.0.cache_misses.inc();
    }

    /// A new seed, or a failure to make one.
    pub(crate) fn key_generated(&self, started: Instant, is_ok: bool) {
        if is_ok {
            self.0.key_generation.observe(started.elapsed().as_secs_f64());
        } else {
            self.0.key_generation_failures.inc();
        }
    }

    /// A call of a KMS plugin.
    pub(crate) fn called(&self, provider: &str, method: &'static str, took: Duration, code: tonic::Code) {
        let labels = CallLabels {
            provider_name: provider.to_owned(),
            method_name: method,
            grpc_status_code: code_name(code),
        };
        self.0.calls.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A key of a KMS plugin was used.
    pub(crate) fn key_used(&self, direction: Direction, provider: &str, key_id: &str, now: jiff::Timestamp) {
        let labels = KeyLabels {
            transformation_type: direction.label(),
            provider_name: provider.to_owned(),
            key_id_hash: hash(key_id.as_bytes()),
            apiserver_id_hash: self.0.apiserver_id_hash.clone(),
        };
        self.0.keys.get_or_create(&labels).inc();
        self.0.keys_last.get_or_create(&labels).set(seconds(now));
    }

    /// A KMS plugin named its key.
    pub(crate) fn key_named(&self, provider: &str, key_id: &str, now: jiff::Timestamp) {
        let labels = StatusKeyLabels {
            provider_name: provider.to_owned(),
            key_id_hash: hash(key_id.as_bytes()),
            apiserver_id_hash: self.0.apiserver_id_hash.clone(),
        };
        self.0.status_keys_last.get_or_create(&labels).set(seconds(now));
    }

    /// A KMS plugin named no key, or one with too long a name.
    pub(crate) fn key_invalid(&self, provider: &str, error: &'static str) {
        self.0
            .invalid_keys
            .get_or_create(&InvalidKeyLabels { provider_name: provider.to_owned(), error })
            .inc();
    }

    /// So many seeds of a provider are in memory.
    pub(crate) fn seeds_known(&self, provider: &str, count: usize) {
        let labels = ProviderLabels { provider_name: provider.to_owned() };
        self.0.seeds.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Another configuration was tried.
    pub(crate) fn reloaded(&self, is_ok: bool, now: jiff::Timestamp) {
        let status = if is_ok { "success" } else { "failure" };
        let labels = ReloadLabels { status, apiserver_id_hash: self.0.apiserver_id_hash.clone() };
        self.0.reloads.get_or_create(&labels).inc();
        self.0.reloads_last.get_or_create(&labels).set(seconds(now));
    }

    /// The configuration that counts now, by the hash of its text.
    pub(crate) fn config(&self, text_hash: &[u8]) {
        self.0.config.clear();
        let hash = hexed(text_hash);
        let labels = ConfigLabels { apiserver_id_hash: self.0.apiserver_id_hash.clone(), hash };
        self.0.config.get_or_create(&labels).set(1);
    }
}

/// The metrics of one prefix; what succeeds is counted without a look-up.
pub(crate) struct LinkMetrics {
    metrics: Metrics,
    prefix: String,
    done: [OnceLock<(Counter, Histogram)>; 2],
}

impl LinkMetrics {
    /// Counts one value; `failure` is the gRPC code of a failure, or upstream's word for having none.
    pub(crate) fn record(&self, direction: Direction, started: Instant, failure: Option<&'static str>) {
        if let Some(code) = failure {
            self.metrics.0.operations.get_or_create(&self.labels(direction, code)).inc();
            return;
        }
        let [from, to] = &self.done;
        let slot = match direction {
            Direction::FromStorage => from,
            Direction::ToStorage => to,
        };
        let (count, durations) = slot.get_or_init(|| {
            let labels = DurationLabels {
                transformation_type: direction.label(),
                transformer_prefix: self.label(direction),
            };
            (
                self.metrics.0.operations.get_or_create_owned(&self.labels(direction, "OK")),
                self.metrics.0.durations.get_or_create_owned(&labels),
            )
        });
        count.inc();
        durations.observe(started.elapsed().as_secs_f64());
    }

    fn labels(&self, direction: Direction, status: &'static str) -> OperationLabels {
        OperationLabels {
            transformation_type: direction.label(),
            transformer_prefix: self.label(direction),
            status,
        }
    }

    /// Upstream says `identity` on the way from the store, and nothing on the way to it.
    fn label(&self, direction: Direction) -> String {
        match direction {
            Direction::FromStorage if self.prefix.is_empty() => "identity".to_owned(),
            _ => self.prefix.clone(),
        }
    }
}

/// `sha256:` and the hash in hexadecimal digits; empty for nothing. Source: `kmsv2.GetHashIfNotEmpty`.
pub(crate) fn hash(data: &[u8]) -> String {
    if data.is_empty() {
        return String::new();
    }
    hexed(ring::digest::digest(&ring::digest::SHA256, data).as_ref())
}

fn hexed(digest: &[u8]) -> String {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn seconds(now: jiff::Timestamp) -> f64 {
    now.as_duration().as_secs_f64()
}

/// Go's name of a gRPC code.
pub(crate) fn code_name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: `storage/value/metrics.go`, `storage/value/encrypt/envelope/metrics/metrics.go` and
    /// `server/options/encryptionconfig/metrics/metrics.go` of upstream.
    #[test]
    fn metrics_have_upstreams_names_and_labels() {
        let registry = base::Metrics::new();
        let metrics = Metrics::new(&registry, "server");
        let link = metrics.link("k8s:enc:aesgcm:v1:");
        let (started, now) = (Instant::now(), "2026-01-01T00:00:00Z".parse().unwrap());
        link.record(Direction::ToStorage, started, None);
        link.record(Direction::FromStorage, started, None);
        link.record(Direction::FromStorage, started, Some("unknown-non-grpc"));
        metrics.link("").record(Direction::FromStorage, started, None);
        metrics.cache_miss();
        metrics.key_generated(started, true);
        metrics.key_generated(started, false);
        metrics.called(
            "vault",
            "/v2.KeyManagementService/Decrypt",
            Duration::ZERO,
            tonic::Code::FailedPrecondition,
        );
        metrics.key_used(Direction::ToStorage, "vault", "key", now);
        metrics.key_named("vault", "key", now);
        metrics.key_invalid("vault", "too_long");
        metrics.seeds_known("vault", 3);
        metrics.reloaded(true, now);
        metrics.reloaded(false, now);
        metrics.config(&[0xab; 32]);
        metrics.config(&[0xcd; 32]);
        let text = registry.render();
        let (server, key) = (hash(b"server"), hash(b"key"));
        let cd = format!("sha256:{}", "cd".repeat(32));
        for line in [
            r#"apiserver_storage_transformation_operations_total{transformation_type="to_storage",transformer_prefix="k8s:enc:aesgcm:v1:",status="OK"} 1"#,
            r#"apiserver_storage_transformation_operations_total{transformation_type="from_storage",transformer_prefix="k8s:enc:aesgcm:v1:",status="unknown-non-grpc"} 1"#,
            r#"apiserver_storage_transformation_operations_total{transformation_type="from_storage",transformer_prefix="identity",status="OK"} 1"#,
            r#"apiserver_storage_transformation_duration_seconds_count{transformation_type="from_storage",transformer_prefix="k8s:enc:aesgcm:v1:"} 1"#,
            "apiserver_storage_envelope_transformation_cache_misses_total 1",
            "apiserver_storage_data_key_generation_duration_seconds_count 1",
            "apiserver_storage_data_key_generation_failures_total 1",
            r#"apiserver_envelope_encryption_kms_operations_latency_seconds_count{provider_name="vault",method_name="/v2.KeyManagementService/Decrypt",grpc_status_code="FailedPrecondition"} 1"#,
            &format!(
                r#"apiserver_envelope_encryption_key_id_hash_total{{transformation_type="to_storage",provider_name="vault",key_id_hash="{key}",apiserver_id_hash="{server}"}} 1"#
            ),
            &format!(
                r#"apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{{transformation_type="to_storage",provider_name="vault",key_id_hash="{key}",apiserver_id_hash="{server}"}} 1767225600"#
            ),
            &format!(
                r#"apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{{provider_name="vault",key_id_hash="{key}",apiserver_id_hash="{server}"}} 1767225600"#
            ),
            r#"apiserver_envelope_encryption_invalid_key_id_from_status_total{provider_name="vault",error="too_long"} 1"#,
            r#"apiserver_envelope_encryption_dek_source_cache_size{provider_name="vault"} 3"#,
            &format!(
                r#"apiserver_encryption_config_controller_automatic_reloads_total{{status="success",apiserver_id_hash="{server}"}} 1"#
            ),
            &format!(
                r#"apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds{{status="failure",apiserver_id_hash="{server}"}} 1767225600"#
            ),
            &format!(
                r#"apiserver_encryption_config_controller_last_config_info{{apiserver_id_hash="{server}",hash="{cd}"}} 1"#
            ),
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(text.matches("last_config_info{").count(), 1, "of configurations the last one alone");
    }

    /// Source: `TestComputeEncryptionConfigHash` of upstream, and `GetHashIfNotEmpty`.
    #[test]
    fn hashes_are_upstreams() {
        assert_eq!(hash(b""), "");
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hexed(ring::digest::digest(&ring::digest::SHA256, b"").as_ref()), empty);
        assert_eq!(hash(b"1"), "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b");
    }

    /// Source: `codes/code_string.go` of grpc-go.
    #[test]
    fn codes_have_gos_names() {
        let names = [
            "OK",
            "Canceled",
            "Unknown",
            "InvalidArgument",
            "DeadlineExceeded",
            "NotFound",
            "AlreadyExists",
            "PermissionDenied",
            "ResourceExhausted",
            "FailedPrecondition",
            "Aborted",
            "OutOfRange",
            "Unimplemented",
            "Internal",
            "Unavailable",
            "DataLoss",
            "Unauthenticated",
        ];
        for (number, name) in (0..).zip(names) {
            assert_eq!(code_name(tonic::Code::from_i32(number)), name, "{number}");
        }
    }
}
