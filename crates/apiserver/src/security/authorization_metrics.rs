//! The metrics of authorizers and their webhooks.
//!
//! Source: `k8s.io/apiserver/pkg/authorization/metrics`, `plugin/pkg/authorizer/webhook/metrics`.

use std::time::Duration;

use base::metrics::Metrics as Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// Prometheus' own buckets.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DecisionLabels {
    r#type: &'static str,
    name: String,
    decision: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    name: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AuthorizerLabels {
    r#type: &'static str,
    name: String,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    /// Nobody waits for it any more.
    Canceled,
    /// There was no answer in time.
    Timeout,
    /// There was no good answer.
    Error,
    /// There was.
    Success,
}

impl CallResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Canceled => "canceled",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::Success => "success",
        }
    }
}

/// `apiserver_authorization_*`.
pub(super) struct AuthorizationMetrics {
    decisions: Family<DecisionLabels, Counter>,
    calls: Family<CallLabels, Counter>,
    durations: Family<CallLabels, Histogram, fn() -> Histogram>,
    failed_open: Family<CallLabels, Counter>,
    exclusions: Family<AuthorizerLabels, Counter>,
    condition_errors: Family<AuthorizerLabels, Counter>,
    condition_seconds: Family<AuthorizerLabels, Histogram, fn() -> Histogram>,
}

impl AuthorizationMetrics {
    /// Counts in a registry.
    pub(super) fn new(registry: &Registry) -> Self {
        let metrics = Self {
            decisions: Family::default(),
            calls: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            failed_open: Family::default(),
            exclusions: Family::default(),
            condition_errors: Family::default(),
            condition_seconds: Family::new_with_constructor(|| {
                Histogram::new([0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25])
            }),
        };
        let name = |rest: &str| format!("apiserver_authorization_{rest}");
        registry.register(
            &name("decisions"),
            "Decisions by authorizer: those after which nobody else was asked",
            &metrics.decisions,
        );
        registry.register(&name("webhook_evaluations"), "Calls of authorization webhooks", &metrics.calls);
        registry.register(
            &name("webhook_duration_seconds"),
            "How long calls of authorization webhooks take",
            &metrics.durations,
        );
        registry.register(
            &name("webhook_evaluations_fail_open"),
            "Calls of authorization webhooks that failed and had others asked",
            &metrics.failed_open,
        );
        registry.register(
            &name("match_condition_exclusions"),
            "Times that an authorization webhook was not asked because of its match conditions",
            &metrics.exclusions,
        );
        registry.register(
            &name("match_condition_evaluation_errors"),
            "Times that match conditions of an authorization webhook could not be evaluated",
            &metrics.condition_errors,
        );
        registry.register(
            &name("match_condition_evaluation_seconds"),
            "How long match conditions of authorization webhooks take",
            &metrics.condition_seconds,
        );
        metrics
    }

    /// Counts an evaluation of match conditions, and what came of it, if anything.
    pub(super) fn matched(&self, name: &str, took: Duration, matched: Option<bool>) {
        let labels = AuthorizerLabels { r#type: "Webhook", name: name.to_owned() };
        self.condition_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        match matched {
            Some(true) => {}
            Some(false) => {
                self.exclusions.get_or_create(&labels).inc();
            }
            None => {
                self.condition_errors.get_or_create(&labels).inc();
            }
        }
    }

    /// Where an authorizer counts what it allows and denies.
    pub(super) fn decisions(&self, kind: &'static str, name: &str) -> [Counter; 2] {
        ["allowed", "denied"].map(|decision| {
            let labels = DecisionLabels { r#type: kind, name: name.to_owned(), decision };
            self.decisions.get_or_create_owned(&labels)
        })
    }

    /// Counts a call.
    pub(super) fn called(&self, name: &str, result: CallResult, took: Duration) {
        let labels = CallLabels { name: name.to_owned(), result: result.as_str() };
        self.calls.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts a failure after which somebody else was asked.
    pub(super) fn failed_open(&self, name: &str, result: CallResult) {
        let labels = CallLabels { name: name.to_owned(), result: result.as_str() };
        self.failed_open.get_or_create(&labels).inc();
    }
}
