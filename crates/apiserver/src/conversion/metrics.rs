//! The metrics of conversion webhooks.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/metrics.go`.

use std::time::Duration;

use base::metrics::Metrics as Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

const SECONDS: [f64; 15] =
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

/// Why a conversion failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureType {
    Call,
    MalformedResponse,
    PartialResponse,
    InvalidConvertedObject,
}

impl FailureType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Call => "conversion_webhook_call_failure",
            Self::MalformedResponse => "conversion_webhook_malformed_response_failure",
            Self::PartialResponse => "conversion_webhook_partial_response_failure",
            Self::InvalidConvertedObject => "conversion_webhook_invalid_converted_object_failure",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Converted {
    crd_name: String,
    from_version: String,
    to_version: String,
    succeeded: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Asked {
    result: &'static str,
    failure_type: &'static str,
}

/// `apiserver_conversion_webhook_*` and `apiserver_crd_conversion_webhook_*`.
pub(super) struct ConversionMetrics {
    by_definition: Family<Converted, Histogram, fn() -> Histogram>,
    durations: Family<Asked, Histogram, fn() -> Histogram>,
    requests: Family<Asked, Counter>,
}

impl ConversionMetrics {
    /// Counts in a registry.
    pub(super) fn new(registry: &Registry) -> Self {
        let by_definition: Family<Converted, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 15)));
        let durations: Family<Asked, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let requests = Family::default();
        registry.register(
            "apiserver_crd_conversion_webhook_duration_seconds",
            "How long conversions take, by definition and versions",
            &by_definition,
        );
        registry.register(
            "apiserver_conversion_webhook_duration_seconds",
            "How long calls to conversion webhooks take",
            &durations,
        );
        registry.register("apiserver_conversion_webhook_request", "Calls to conversion webhooks", &requests);
        Self { by_definition, durations, requests }
    }

    /// Counts a call.
    pub(super) fn asked(
        &self,
        definition: &str,
        from: &str,
        to: &str,
        took: Duration,
        failure: Option<FailureType>,
    ) {
        let labels = Converted {
            crd_name: definition.to_owned(),
            from_version: from.to_owned(),
            to_version: to.to_owned(),
            succeeded: if failure.is_none() { "true" } else { "false" },
        };
        self.by_definition.get_or_create(&labels).observe(took.as_secs_f64());
        let (result, failure_type) = match failure {
            None => ("success", ""),
            Some(failure) => ("failure", failure.as_str()),
        };
        let labels = Asked { result, failure_type };
        self.requests.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }
}
