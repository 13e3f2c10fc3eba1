//! The metrics of admission webhooks.
//!
//! Source: `k8s.io/apiserver/pkg/admission/metrics`.

use std::time::Duration;

use base::metrics::Metrics as Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// Greater codes are counted as this one.
const CODE_MAX: u16 = 600;
const SECONDS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Duty {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    rejected: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Asked {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    code: u16,
    rejected: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Rejected {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    error_type: &'static str,
    rejection_code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FailedOpen {
    name: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Excluded {
    name: String,
    kind: &'static str,
    r#type: &'static str,
    operation: &'static str,
}

/// `apiserver_admission_webhook_*`.
pub struct WebhookMetrics {
    durations: Family<Duty, Histogram, fn() -> Histogram>,
    requests: Family<Asked, Counter>,
    rejections: Family<Rejected, Counter>,
    failed_open: Family<FailedOpen, Counter>,
    excluded: Family<Excluded, Counter>,
    condition_errors: Family<Excluded, Counter>,
}

/// The reason why a request was refused because of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The webhook said so.
    ByWebhook,
    /// It could not be asked.
    Calling,
    /// What it answered could not be used.
    Internal,
}

impl Refusal {
    fn as_str(self) -> &'static str {
        match self {
            Self::ByWebhook => "no_error",
            Self::Calling => "calling_webhook_error",
            Self::Internal => "apiserver_internal_error",
        }
    }
}

/// The labels of a count.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The webhook's name.
    pub name: &'a str,
    /// `admit` or `validating`.
    pub step: &'static str,
    /// As [`super::rules::Operation::as_str`].
    pub operation: &'static str,
}

impl WebhookMetrics {
    /// Counts in a registry.
    pub fn new(registry: &Registry) -> Self {
        let durations: Family<Duty, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let (requests, rejections, failed_open) = (Family::default(), Family::default(), Family::default());
        let (excluded, condition_errors) = (Family::default(), Family::default());
        let name = |rest: &str| format!("apiserver_admission_{rest}");
        registry.register(
            &name("webhook_admission_duration_seconds"),
            "How long webhooks take, by name, operation and type (validating or admit)",
            &durations,
        );
        registry.register(&name("webhook_request"), "Requests to webhooks, by name and outcome", &requests);
        registry.register_plain(
            &name("webhook_rejection_count"),
            "Requests that were refused because of a webhook, by name and cause",
            &rejections,
        );
        registry.register_plain(
            &name("webhook_fail_open_count"),
            "Requests that went on although a webhook could not be asked",
            &failed_open,
        );
        registry.register(
            &name("match_condition_exclusions"),
            "Requests that a webhook was not asked about because of its match conditions",
            &excluded,
        );
        registry.register(
            &name("match_condition_evaluation_errors"),
            "Requests for which match conditions could not be evaluated",
            &condition_errors,
        );
        Self { durations, requests, rejections, failed_open, excluded, condition_errors }
    }

    /// Counts a call and how long it took.
    pub fn asked(&self, about: About<'_>, took: Duration, (code, is_rejected): (u16, bool)) {
        let About { name, step, operation } = about;
        let (name, rejected) = (name.to_owned(), if is_rejected { "true" } else { "false" });
        let asked = Asked { name: name.clone(), r#type: step, operation, code: code.min(CODE_MAX), rejected };
        self.requests.get_or_create(&asked).inc();
        let duty = Duty { name, r#type: step, operation, rejected };
        self.durations.get_or_create(&duty).observe(took.as_secs_f64());
    }

    /// Counts a request that was refused.
    pub fn rejected(&self, about: About<'_>, refusal: Refusal, code: u16) {
        let About { name, step, operation } = about;
        let labels = Rejected {
            name: name.to_owned(),
            r#type: step,
            operation,
            error_type: refusal.as_str(),
            rejection_code: code.min(CODE_MAX),
        };
        self.rejections.get_or_create(&labels).inc();
    }

    /// Counts a request that went on.
    pub fn failed_open(&self, about: About<'_>) {
        let labels = FailedOpen { name: about.name.to_owned(), r#type: about.step };
        self.failed_open.get_or_create(&labels).inc();
    }

    /// Counts a request that a webhook's conditions exclude.
    pub fn excluded(&self, about: About<'_>) {
        self.excluded.get_or_create(&by_conditions(about)).inc();
    }

    /// Counts conditions that could not be evaluated.
    pub fn condition_failed(&self, about: About<'_>) {
        self.condition_errors.get_or_create(&by_conditions(about)).inc();
    }

    /// Counts conditions of a policy, of either sort, that could not be evaluated.
    pub fn policy_conditions_failed(&self, name: &str, operation: &'static str, count: usize) {
        if count > 0 {
            let name = name.to_owned();
            let labels = Excluded { name, kind: "policy", r#type: CONDITIONS_STEP, operation };
            self.condition_errors.get_or_create(&labels).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        }
    }
}

const CONDITIONS_STEP: &str = "validate";

fn by_conditions(About { name, step, operation }: About<'_>) -> Excluded {
    // Here upstream has a word of its own for what is called `validating` elsewhere.
    let step = if step == "admit" { "admit" } else { CONDITIONS_STEP };
    Excluded { name: name.to_owned(), kind: "webhook", r#type: step, operation }
}
