//! Evaluation of a policy's expressions, with its variables, under one budget.
//!
//! A [`Scope`] is for expressions that see the same: a variable is computed by the first that mentions it, and what it costs
//! is taken off the budget of all of them. Source: `plugin/cel/{activation,composition}.go`.

use std::cell::{Cell, OnceCell, RefCell};

use expressions::{Activation, Budget, EvalError, Fields, Value as Cel};
use resources::match_conditions::ExpressionError;
use resources::policy_expressions::VARIABLES;

use super::policy::{Expression, Variables};

/// Expressions that see the same.
#[derive(Debug)]
pub struct Scope<'v> {
    variables: &'v Variables,
    computed: Vec<RefCell<Slot<'v>>>,
    names: OnceCell<Names<'v>>,
    seen: OnceCell<Activation<'v>>,
    left: Cell<u64>,
}

/// A variable.
#[derive(Debug)]
enum Slot<'v> {
    /// Nobody has asked for it.
    Unknown,
    /// It is being computed.
    Pending,
    Known(Result<Cel<'v>, EvalError>),
}

/// The variables by name.
#[derive(Debug)]
struct Names<'v>(&'v Scope<'v>);

/// The reason why an expression, or some of them, has no value, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It does not compile; others can be evaluated.
    #[error("compilation error: {0}")]
    Compilation(#[source] ExpressionError),
    /// It fails; others can be evaluated.
    #[error("expression '{expression}' resulted in error: {source}")]
    Expression {
        /// The expression.
        expression: String,
        /// Why.
        source: EvalError,
    },
    /// None of them can be evaluated any more.
    #[error(transparent)]
    All(EvalError),
    /// What is said of a validation that fails.
    #[error("failed messageExpression: {0}")]
    Message(#[source] Box<Self>),
    /// Several conditions.
    #[error("[{}]", texts(.0).join(", "))]
    Several(Vec<Self>),
}

impl<'v> Scope<'v> {
    /// Expressions that may cost so much together.
    pub fn new(variables: &'v Variables, budget: u64) -> Self {
        let computed = (0..variables.len()).map(|_| RefCell::new(Slot::Unknown)).collect();
        Self { variables, computed, names: OnceCell::new(), seen: OnceCell::new(), left: Cell::new(budget) }
    }

    /// Lets expressions see something, once and for all.
    #[must_use]
    pub fn seeing(&'v self, seen: Activation<'v>) -> &'v Self {
        let names = self.names.get_or_init(|| Names(self));
        self.seen.get_or_init(|| seen.computing(VARIABLES, names));
        self
    }

    /// The rest of the budget.
    pub fn left(&self) -> u64 {
        self.left.get()
    }

    /// Evaluates an expression.
    ///
    /// # Errors
    /// As [`Failure`].
    pub fn evaluate(&'v self, expression: &'v Expression) -> Result<Cel<'v>, Failure> {
        let program = expression.program.as_ref();
        let program = program.map_err(|why| Failure::Compilation(why.clone()))?;
        self.run(program).map_err(|failure| match failure {
            EvalError::Failed(_) | EvalError::NoOverload | EvalError::CostLimit => {
                Failure::Expression { expression: expression.source.clone(), source: failure }
            }
            last => Failure::All(last),
        })
    }

    fn run(&'v self, program: &'v expressions::Program) -> Result<Cel<'v>, EvalError> {
        let seen = self.seen.get_or_init(Activation::new);
        let mut budget = Budget::new(self.left.get());
        let evaluation = program.evaluate(seen, &mut budget);
        // Variables have drawn on what is left meanwhile.
        let left = self.left.get().checked_sub(evaluation.cost);
        self.left.set(left.unwrap_or(0));
        match left {
            Some(_) => evaluation.result,
            None => Err(EvalError::Budget),
        }
    }

    fn variable(&'v self, place: usize) -> Option<Result<Cel<'v>, EvalError>> {
        let slot = self.computed.get(place)?;
        let (name, program) = self.variables.get(place)?;
        let fails = |why: &dyn std::fmt::Display| {
            EvalError::from(format!("composited variable {name:?} fails to evaluate: {why}"))
        };
        match &*slot.borrow() {
            Slot::Known(value) => return Some(value.clone()),
            Slot::Pending => return Some(Err(fails(&"it is made of itself"))),
            Slot::Unknown => {}
        }
        let program = match program {
            Ok(program) => program,
            Err(why) => {
                return Some(Err(format!("composited variable {name:?} fails to compile: {why}").into()));
            }
        };
        slot.replace(Slot::Pending);
        let value = self.run(program).map_err(|failure| match failure {
            EvalError::Failed(_) | EvalError::NoOverload | EvalError::CostLimit => fails(&failure),
            last => last,
        });
        slot.replace(Slot::Known(value.clone()));
        Some(value)
    }
}

impl Fields for Names<'_> {
    fn field<'a>(&'a self, name: &str) -> Option<Result<Cel<'a>, EvalError>> {
        let scope = self.0;
        scope.variable(scope.variables.find(name)?)
    }
}

/// The conjunction of all conditions. One that does not hold is enough, and then failures of others do not matter.
///
/// # Errors
/// What fails, if no condition says no.
pub fn hold<'v>(scope: &'v Scope<'v>, conditions: &'v [Expression]) -> Result<bool, Vec<Failure>> {
    let mut failures = Vec::new();
    for condition in conditions {
        match scope.evaluate(condition) {
            Ok(Cel::Bool(false)) => return Ok(false),
            Ok(_) => {}
            // As upstream, which then forgets what conditions have said already.
            Err(last @ Failure::All(_)) => return Err(vec![last]),
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() { Ok(true) } else { Err(failures) }
}

/// Several errors as one. Source: `k8s.io/apimachinery/pkg/util/errors`, `Aggregate`.
pub fn joined(failures: Vec<Failure>) -> Failure {
    let mut seen: Vec<Failure> = Vec::new();
    for failure in failures {
        if !seen.contains(&failure) {
            seen.push(failure);
        }
    }
    match <[Failure; 1]>::try_from(seen) {
        Ok([one]) => one,
        Err(many) => Failure::Several(many),
    }
}

fn texts(failures: &[Failure]) -> Vec<String> {
    failures.iter().map(ToString::to_string).collect()
}
