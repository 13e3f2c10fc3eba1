//! The metrics of policies.
//!
//! Source: `plugin/policy/{mutating,validating}/metrics`.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use base::metrics::Metrics as Registry;
use expressions::EvalError;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::evaluation::Failure;

const SECONDS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// How often something was checked and how long that took, by what it was.
struct Checks<L> {
    checks: Family<L, Counter>,
    durations: Family<L, Histogram, fn() -> Histogram>,
}

impl<L> Checks<L>
where
    L: Clone + Debug + Hash + Eq + EncodeLabelSet + Send + Sync + 'static,
{
    /// Those of one sort of policies; `what` is said of the number, `how_long` of the time.
    fn new(registry: &Registry, sort: &str, (what, how_long): (&str, &str)) -> Self {
        let checks = Family::default();
        let durations: Family<L, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let name = |rest: &str| format!("apiserver_{sort}_admission_policy_{rest}");
        registry.register(&name("check"), what, &checks);
        registry.register(&name("check_duration_seconds"), how_long, &durations);
        Self { checks, durations }
    }

    fn count(&self, labels: &L, took: Duration) {
        self.checks.get_or_create(labels).inc();
        self.durations.get_or_create(labels).observe(took.as_secs_f64());
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Check {
    policy: String,
    policy_binding: String,
    error_type: &'static str,
    enforcement_action: &'static str,
}

/// `apiserver_validating_admission_policy_*`.
pub struct ValidationMetrics(Checks<Check>);

/// The action on a validation.
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
        let about = (
            "Validations that failed or could not be evaluated, by policy, binding and what was done about it",
            "How long such validations took, by policy, binding and what was done about it",
        );
        Self(Checks::new(registry, "validating", about))
    }

    /// Counts what was done about a validation.
    pub fn checked(
        &self,
        policy: &str,
        binding: &str,
        enforcement: Enforcement,
        error_type: ErrorType,
        took: Duration,
    ) {
        let labels = Check {
            policy: policy.to_owned(),
            policy_binding: binding.to_owned(),
            error_type: error_type.as_str(),
            enforcement_action: enforcement.as_str(),
        };
        self.0.count(&labels, took);
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Change {
    policy: String,
    policy_binding: String,
    error_type: &'static str,
}

/// `apiserver_mutating_admission_policy_*`.
pub struct MutationMetrics(Checks<Change>);

impl MutationMetrics {
    /// Counts in a registry.
    pub fn new(registry: &Registry) -> Self {
        let about = (
            "Mutations that were made or failed, by policy and binding",
            "How long each mutation took, by policy and binding",
        );
        Self(Checks::new(registry, "mutating", about))
    }

    /// Counts a mutation.
    pub fn checked(&self, policy: &str, binding: &str, error_type: ErrorType, took: Duration) {
        let labels = Change {
            policy: policy.to_owned(),
            policy_binding: binding.to_owned(),
            error_type: error_type.as_str(),
        };
        self.0.count(&labels, took);
    }
}

/// The type of an error. Upstream calls a validation that fails as it is meant to invalid, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorType {
    /// There is none.
    None,
    /// It does not compile.
    Compile,
    /// It costs more than is left.
    OutOfBudget,
    /// Anything else.
    Invalid,
}

impl ErrorType {
    fn as_str(self) -> &'static str {
        match self {
            Self::None => "no_error",
            Self::Compile => "compile_error",
            Self::OutOfBudget => "out_of_budget",
            Self::Invalid => "invalid_error",
        }
    }
}

impl From<&Failure> for ErrorType {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Compilation(_) => Self::Compile,
            Failure::All(EvalError::Budget) => Self::OutOfBudget,
            _ => Self::Invalid,
        }
    }
}
