//! What is counted about policies.
//!
//! Source: `plugin/policy/{mutating,validating}/metrics`.

use std::time::Duration;

use base::metrics::Metrics as Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

const SECONDS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Check {
    policy: String,
    policy_binding: String,
    error_type: &'static str,
    enforcement_action: &'static str,
}

/// `apiserver_validating_admission_policy_*`.
pub struct ValidationMetrics {
    checks: Family<Check, Counter>,
    durations: Family<Check, Histogram, fn() -> Histogram>,
}

/// What is done about a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// Nothing, although it could not be evaluated.
    Allow,
    /// The request is refused.
    Deny,
    /// The audit event says so.
    Audit,
    /// The client is warned.
    Warn,
}

impl Enforcement {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Audit => "audit",
            Self::Warn => "warn",
        }
    }
}

impl ValidationMetrics {
    /// Counts in a registry.
    pub fn new(registry: &Registry) -> Self {
        let checks = Family::default();
        let durations: Family<Check, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let name = |rest: &str| format!("apiserver_validating_admission_policy_{rest}");
        registry.register(
            &name("check"),
            "Validations that failed or could not be evaluated, by policy, binding and what was done about it",
            &checks,
        );
        registry.register(
            &name("check_duration_seconds"),
            "How long such validations took, by policy, binding and what was done about it",
            &durations,
        );
        Self { checks, durations }
    }

    /// Counts what was done about a validation. `said` is what came of it, in upstream's words.
    pub fn checked(
        &self,
        (policy, binding): (&str, &str),
        enforcement: Enforcement,
        (said, took): (&str, Duration),
    ) {
        let labels = Check {
            policy: policy.to_owned(),
            policy_binding: binding.to_owned(),
            error_type: error_type(said),
            enforcement_action: enforcement.as_str(),
        };
        self.checks.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

/// Upstream tells by the message, and calls a validation that fails as it is meant to invalid, too.
fn error_type(said: &str) -> &'static str {
    if said.starts_with("compilation") {
        "compile_error"
    } else if said.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Change {
    policy: String,
    policy_binding: String,
    error_type: &'static str,
}

/// `apiserver_mutating_admission_policy_*`.
pub struct MutationMetrics {
    checks: Family<Change, Counter>,
    durations: Family<Change, Histogram, fn() -> Histogram>,
}

impl MutationMetrics {
    /// Counts in a registry.
    pub fn new(registry: &Registry) -> Self {
        let checks = Family::default();
        let durations: Family<Change, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let name = |rest: &str| format!("apiserver_mutating_admission_policy_{rest}");
        registry.register(
            &name("check"),
            "Mutations that were made or failed, by policy and binding",
            &checks,
        );
        registry.register(
            &name("check_duration_seconds"),
            "How long each mutation took, by policy and binding",
            &durations,
        );
        Self { checks, durations }
    }

    /// Counts a mutation. `why` is why it failed, if it did, in upstream's words.
    pub fn checked(&self, (policy, binding): (&str, &str), why: Option<&str>, took: Duration) {
        let labels = Change {
            policy: policy.to_owned(),
            policy_binding: binding.to_owned(),
            error_type: why.map_or("no_error", error_type),
        };
        self.checks.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }
}
