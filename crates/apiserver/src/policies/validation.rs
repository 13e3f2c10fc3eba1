//! The outcome of a validating policy for a request: which validations fail and why, and what the audit log is told.
//!
//! Source: `plugin/policy/validating/validator.go`. There a message is computed for every validation; here only for one that
//! fails.

use std::time::Duration;

use expressions::{MATCH_CONDITIONS_BUDGET, RUNTIME_BUDGET, Type, Value as Cel};
use resources::policy_expressions::{Compiler, Sees};
use serde_json::Value;
use tokio::time::Instant;

use super::evaluation::{self, Failure, Scope};
use super::metrics::ErrorType;
use super::policy::{Evaluator, Expression, FailurePolicy, Policy};
use super::view::{Beside, View};
use crate::tree::{items, text};

/// Bytes of a message that is computed.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// The parts that only validating policies have.
#[derive(Debug)]
pub struct Validations {
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    computed_message: Option<Expression>,
    reason: Reason,
}

/// An audit annotation.
#[derive(Debug)]
struct Annotation {
    key: String,
    value: Expression,
}

/// The reason of a refusal, as its answer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// Its object is wrong.
    #[default]
    Invalid,
    /// It may not be made.
    Forbidden,
    /// Nobody knows who makes it.
    Unauthorized,
    /// It is too large.
    RequestEntityTooLarge,
}

impl Evaluator for Validations {
    fn compile(spec: &Value, compiler: &Compiler) -> Self {
        let validation = |written: &Value| {
            let computed = text(written, "/messageExpression");
            let computed = (!computed.is_empty()).then_some(computed);
            Validation {
                expression: Expression::new(
                    compiler,
                    text(written, "/expression"),
                    Sees::Authorizer,
                    &[Type::Bool],
                ),
                message: text(written, "/message").trim().to_owned(),
                computed_message: computed
                    .map(|source| Expression::new(compiler, source, Sees::Nothing, &[Type::String])),
                reason: match text(written, "/reason") {
                    "Forbidden" => Reason::Forbidden,
                    "Unauthorized" => Reason::Unauthorized,
                    "RequestEntityTooLarge" => Reason::RequestEntityTooLarge,
                    _ => Reason::Invalid,
                },
            }
        };
        let annotation = |written: &Value| Annotation {
            key: text(written, "/key").to_owned(),
            value: Expression::new(
                compiler,
                text(written, "/valueExpression"),
                Sees::Authorizer,
                &[Type::String, Type::Null],
            ),
        };
        Self {
            validations: items(spec, "/validations").map(validation).collect(),
            annotations: items(spec, "/auditAnnotations").map(annotation).collect(),
        }
    }
}

/// The verdict of one validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not.
    Fails(String, Reason),
    /// Nobody knows, and that is how it fails.
    Unknown(String),
    /// Nobody knows, and that does not matter.
    Ignored(String),
}

/// A validation's verdict, and how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The type of error that it is counted as.
    pub error_type: ErrorType,
    /// The duration.
    pub took: Duration,
}

/// The annotations for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The annotation's key, without the policy's name.
    pub key: String,
    /// Its value, or why there is none.
    pub value: Result<String, Failure>,
    /// The duration.
    pub took: Duration,
}

/// The outcome of a policy for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// One for each validation, or one for all of them.
    pub decisions: Vec<Decision>,
    /// Annotations that have a value, or fail.
    pub told: Vec<Told>,
    /// The number of match conditions that could not be evaluated.
    pub failed_conditions: usize,
}

impl Outcome {
    /// Nothing of it could be evaluated.
    fn unknown(policy: &Policy<Validations>, why: &Failure) -> Self {
        let (verdict, error_type) = (unknown(policy, why), why.into());
        Self { decisions: vec![Decision { verdict, error_type, took: Duration::ZERO }], ..Self::default() }
    }
}

fn unknown(policy: &Policy<Validations>, why: &Failure) -> Verdict {
    match policy.failure_policy {
        FailurePolicy::Fail => Verdict::Unknown(why.to_string()),
        FailurePolicy::Ignore => Verdict::Ignored(why.to_string()),
    }
}

/// Evaluates a policy.
pub fn evaluate(policy: &Policy<Validations>, view: &View, beside: &Beside<'_>) -> Outcome {
    if !policy.conditions.is_empty() {
        let scope = Scope::new(&policy.variables, MATCH_CONDITIONS_BUDGET);
        let scope = scope.seeing(view.of_conditions(beside.clone()));
        match evaluation::hold(scope, &policy.conditions) {
            Ok(true) => {}
            Ok(false) => return Outcome::default(),
            Err(failures) => {
                let failed_conditions = failures.len();
                let outcome = match policy.failure_policy {
                    FailurePolicy::Fail => Outcome::unknown(policy, &evaluation::joined(failures)),
                    FailurePolicy::Ignore => Outcome::default(),
                };
                return Outcome { failed_conditions, ..outcome };
            }
        }
    }
    let decided = decisions(policy, view, beside);
    let outcome = decided.and_then(|decisions| {
        Ok(Outcome { decisions, told: told(policy, view, beside)?, failed_conditions: 0 })
    });
    outcome.unwrap_or_else(|why| Outcome::unknown(policy, &why))
}

fn decisions(
    policy: &Policy<Validations>,
    view: &View,
    beside: &Beside<'_>,
) -> Result<Vec<Decision>, Failure> {
    let validations = &policy.evaluator.validations;
    let scope = Scope::new(&policy.variables, RUNTIME_BUDGET);
    let scope = scope.seeing(view.of_expressions(beside.clone()));
    let mut decisions = Vec::with_capacity(validations.len());
    for validation in validations {
        let begun = Instant::now();
        let (verdict, error_type) = match scope.evaluate(&validation.expression) {
            Ok(Cel::Bool(true)) => (Verdict::Holds, ErrorType::None),
            Ok(_) => (Verdict::Fails(String::new(), validation.reason), ErrorType::Invalid),
            Err(last @ Failure::All(_)) => return Err(last),
            Err(why) => (unknown(policy, &why), (&why).into()),
        };
        decisions.push(Decision { verdict, error_type, took: begun.elapsed() });
    }
    let left = scope.left();
    // What messages see has no authorizer, and so the variables are others.
    let messages = Scope::new(&policy.variables, left);
    let messages = messages.seeing(view.of_expressions(Beside { authorizer: None, ..beside.clone() }));
    for (decision, validation) in decisions.iter_mut().zip(validations) {
        if let Verdict::Fails(message, _) = &mut decision.verdict {
            match self::message(messages, validation) {
                Ok(text) => *message = text,
                Err(why) => decision.verdict = unknown(policy, &Failure::Message(Box::new(why))),
            }
        }
    }
    Ok(decisions)
}

/// What is said of a validation that fails: what is computed, if that is one short line, else what is written.
fn message<'v>(scope: &'v Scope<'v>, validation: &'v Validation) -> Result<String, Failure> {
    let computed = validation.computed_message.as_ref().map(|computed| scope.evaluate(computed));
    let computed = match computed {
        Some(Ok(Cel::String(text))) => text.trim().to_owned(),
        Some(Err(last @ Failure::All(_))) => return Err(last),
        _ => String::new(),
    };
    if !computed.is_empty() && computed.len() <= MESSAGE_BYTES_MAX && !computed.contains('\n') {
        return Ok(computed);
    }
    Ok(match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.expression.source.trim()),
        message => message.to_owned(),
    })
}

fn told(policy: &Policy<Validations>, view: &View, beside: &Beside<'_>) -> Result<Vec<Told>, Failure> {
    let scope = Scope::new(&policy.variables, RUNTIME_BUDGET);
    let scope = scope.seeing(view.of_expressions(beside.clone()));
    let mut all = Vec::new();
    for annotation in &policy.evaluator.annotations {
        let begun = Instant::now();
        let value = match scope.evaluate(&annotation.value) {
            Ok(Cel::String(text)) if !text.trim().is_empty() => Some(Ok(text.trim().to_owned())),
            Ok(_) => None,
            Err(last @ Failure::All(_)) => return Err(last),
            Err(_) if policy.failure_policy == FailurePolicy::Ignore => None,
            Err(why) => Some(Err(why)),
        };
        let took = begun.elapsed();
        all.extend(value.map(|value| Told { key: annotation.key.clone(), value, took }));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
