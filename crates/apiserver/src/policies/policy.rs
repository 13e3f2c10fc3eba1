//! Policies and bindings as they are written, compiled.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use expressions::{Program, Type};
use machinery::group::split_api_version;
use machinery::labels::{ParseError, Selector};
use resources::match_conditions::ExpressionError;
use resources::policy_expressions::{Compiler, Sees};
use serde_json::Value;
use tokio::time::Instant;

use super::matching::Constraints;
use crate::blocking;
use crate::tree::{items, text};
pub use crate::webhooks::hooks::FailurePolicy;

/// An expression, compiled, or why it cannot be.
#[derive(Debug)]
pub struct Expression {
    /// As it is written.
    pub source: String,
    /// The program, if it is none that is wrong.
    pub program: Result<Program, ExpressionError>,
}

impl Expression {
    /// Compiles what must be of one of some types; of any type, if there are none.
    pub fn new(compiler: &Compiler, source: &str, sees: Sees, types: &[Type]) -> Self {
        Self { source: source.to_owned(), program: compiler.compile(source, sees, types) }
    }
}

/// The variables of a policy.
#[derive(Debug, Default)]
pub struct Variables {
    all: Vec<(String, Result<Program, ExpressionError>)>,
    /// Places in `all`; the last of a name counts.
    by_name: HashMap<String, usize>,
}

impl Variables {
    fn new(spec: &Value, compiler: &mut Compiler) -> Self {
        let mut variables = Self::default();
        for (place, variable) in items(spec, "/variables").enumerate() {
            let (name, expression) = (text(variable, "/name"), text(variable, "/expression"));
            variables.all.push((name.to_owned(), compiler.variable(name, expression)));
            variables.by_name.insert(name.to_owned(), place);
        }
        variables
    }

    /// The place of a variable.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The variable at a place.
    pub fn get(&self, place: usize) -> Option<(&str, Result<&Program, &ExpressionError>)> {
        let (name, program) = self.all.get(place)?;
        Some((name, program.as_ref()))
    }

    /// The number of policies.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// `true` if there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// The kind of a policy's parameters. `Display` is how Go prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamKind {
    /// `v1` or `apps/v1`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "&ParamKind{{APIVersion:{},Kind:{},}}", self.api_version, self.kind)
    }
}

impl ParamKind {
    /// That of a policy's `spec`, if it has one.
    pub fn of(spec: &Value) -> Option<Self> {
        let kind = spec.get("paramKind").filter(|kind| !kind.is_null())?;
        Some(Self { api_version: text(kind, "/apiVersion").to_owned(), kind: text(kind, "/kind").to_owned() })
    }

    /// Group and version.
    pub fn group_version(&self) -> (&str, &str) {
        split_api_version(&self.api_version).unwrap_or(("", ""))
    }
}

/// The part of one sort of policies beside what all have.
pub trait Evaluator: Send + Sync + Sized {
    /// Compiles it from a policy's `spec`.
    fn compile(spec: &Value, compiler: &Compiler) -> Self;
}

/// One policy.
#[derive(Debug)]
pub struct Policy<E> {
    /// Its name.
    pub name: String,
    /// The treatment when it cannot be evaluated.
    pub failure_policy: FailurePolicy,
    /// The kind of its parameters, if it has any.
    pub param_kind: Option<ParamKind>,
    /// The requests that it is about.
    pub constraints: Constraints,
    /// Under which further conditions.
    pub conditions: Vec<Expression>,
    /// The variables that its expressions have in common.
    pub variables: Variables,
    /// The evaluator.
    pub evaluator: E,
    /// Whether it has taken long once.
    is_slow: AtomicBool,
}

/// How long others may have to wait for an evaluation.
const LONG: Duration = Duration::from_millis(5);

impl<E: Evaluator> Policy<E> {
    /// Compiles a policy.
    pub fn new(object: &Value) -> Self {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let param_kind = ParamKind::of(spec);
        let mut compiler = Compiler::new(param_kind.is_some());
        let variables = Variables::new(spec, &mut compiler);
        let conditions = items(spec, "/matchConditions").map(|condition| {
            Expression::new(&compiler, text(condition, "/expression"), Sees::Authorizer, &[Type::Bool])
        });
        Self {
            name: object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            failure_policy: match text(spec, "/failurePolicy") {
                "Ignore" => FailurePolicy::Ignore,
                _ => FailurePolicy::Fail,
            },
            constraints: Constraints::of(spec.get("matchConstraints").unwrap_or(&Value::Null)),
            conditions: conditions.collect(),
            evaluator: E::compile(spec, &compiler),
            variables,
            param_kind,
            is_slow: AtomicBool::new(false),
        }
    }

    /// Evaluates; of what has taken long once others do not have to wait for it any more.
    pub fn evaluate<T>(&self, evaluation: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let found = blocking::when(self.is_slow.load(Ordering::Relaxed), evaluation);
        if begun.elapsed() > LONG {
            self.is_slow.store(true, Ordering::Relaxed);
        }
        found
    }
}

/// The parameters that a binding hands to its policy.
#[derive(Debug)]
pub struct ParamRef {
    /// The name of one; empty if they are selected.
    pub name: String,
    /// The namespace that they are in; empty for the namespace of the request.
    pub namespace: String,
    /// The selector of their labels.
    pub selector: Option<Result<Selector, ParseError>>,
    /// `true` if a request is refused for which there is none.
    pub denies_without: bool,
}

/// The action when a validation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Action {
    /// The request is refused.
    Deny,
    /// The client is warned.
    Warn,
    /// The audit event says so.
    Audit,
}

/// A binding, which makes a policy count.
#[derive(Debug)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// The policy's.
    pub policy: String,
    /// The parameters.
    pub param_ref: Option<ParamRef>,
    /// The choice of the policy's requests; all, if it does not say.
    pub constraints: Option<Constraints>,
    /// The actions after a failed validation; none of mutating policies.
    pub actions: Vec<Action>,
}

impl Binding {
    /// Reads a binding.
    pub fn new(object: &Value) -> Self {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let some = |name: &str| spec.get(name).filter(|value| !value.is_null());
        let actions = items(spec, "/validationActions").filter_map(|action| match action.as_str()? {
            "Deny" => Some(Action::Deny),
            "Warn" => Some(Action::Warn),
            "Audit" => Some(Action::Audit),
            _ => None,
        });
        Self {
            name: object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            policy: text(spec, "/policyName").to_owned(),
            param_ref: some("paramRef").map(ParamRef::of),
            constraints: some("matchResources").map(Constraints::of),
            actions: actions.collect(),
        }
    }
}

impl ParamRef {
    fn of(reference: &Value) -> Self {
        let selector = reference.get("selector").filter(|selector| !selector.is_null());
        Self {
            name: text(reference, "/name").to_owned(),
            namespace: text(reference, "/namespace").to_owned(),
            selector: selector.map(|selector| Selector::from_label_selector(Some(selector))),
            denies_without: text(reference, "/parameterNotFoundAction") == "Deny",
        }
    }
}

/// A policy and the bindings that make it count.
#[derive(Debug)]
pub struct Hook<E> {
    /// The policy.
    pub policy: Arc<Policy<E>>,
    /// By name.
    pub bindings: Vec<Arc<Binding>>,
}
