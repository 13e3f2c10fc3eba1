//! Expressions that have been compiled, and how they are evaluated.

use std::sync::Arc;

use crate::check::check;
use crate::context::EvalError;
use crate::environment::Environment;
use crate::estimate::{self, CostEstimate};
use crate::evaluate::{Activation, Budget, evaluate};
use crate::plan::{Node, PlanError, plan};
use crate::problem::Problems;
use crate::syntax::ast::{Expr, Kind, Literal};
use crate::syntax::{Dialect, parse};
use crate::types::Type;
use crate::value::Value;

/// An expression that can be evaluated, by many at the same time.
#[derive(Debug)]
pub struct Program {
    node: Node,
    variables: Vec<Arc<str>>,
    /// Which variables are mentioned.
    mentioned: Vec<bool>,
    kind: Type,
    cost: CostEstimate,
}

/// The reason why an expression cannot be evaluated. `Display` is what upstream says of a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It is wrong, as far as its text tells.
    #[error("compilation failed: {0}")]
    Check(#[source] Problems),
    /// A constant in it is none: `int('x')`.
    #[error("program instantiation failed: {0}")]
    Plan(#[source] PlanError),
}

/// A value, and what it has cost.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The value, or why there is none.
    pub result: Result<Value<'a>, EvalError>,
    /// The cost of finding out.
    pub cost: u64,
}

impl Environment {
    /// Compiles an expression.
    ///
    /// # Errors
    /// All that is wrong with it, as cel-go tells it.
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let failed = |problems| CompileError::Check(Problems::new(source, problems));
        let parsed = parse(source, Dialect { has_bindings: self.has_bindings }).map_err(failed)?;
        let checked = check(self, parsed.root, parsed.nodes).map_err(failed)?;
        let cost = estimate::cost(self, &checked);
        let kind = checked.types.get(checked.root.id).cloned().unwrap_or(Type::Error);
        let node = plan(&checked, self).map_err(CompileError::Plan)?;
        let variables: Vec<Arc<str>> =
            self.variables().iter().map(|variable| variable.name.clone()).collect();
        let mut mentioned = vec![false; variables.len()];
        for reference in &checked.references {
            if let crate::check::Reference::Variable(index) = reference
                && let Some(mention) = mentioned.get_mut(*index)
            {
                *mention = true;
            }
        }
        Ok(Program { node, variables, mentioned, kind, cost })
    }

    /// `true` if a field of what has this name is selected somewhere: `claims.email`, `claims.?email`,
    /// `has(claims.email)`. What does not parse selects nothing.
    #[must_use]
    pub fn selects(&self, source: &str, name: &str, field: &str) -> bool {
        let Ok(parsed) = parse(source, Dialect { has_bindings: self.has_bindings }) else { return false };
        let is_named = |expr: &Expr| matches!(&expr.kind, Kind::Ident(known) if &**known == name);
        let is_field =
            |expr: &Expr| matches!(&expr.kind, Kind::Literal(Literal::String(known)) if &**known == field);
        let mut open = vec![&parsed.root];
        while let Some(expr) = open.pop() {
            let is_meant = match &expr.kind {
                Kind::Select(select) => is_named(&select.operand) && &*select.field == field,
                Kind::Call(call) if &*call.function == "_?._" => {
                    matches!(call.args.as_slice(), [one, other] if is_named(one) && is_field(other))
                }
                _ => false,
            };
            if is_meant {
                return true;
            }
            open.extend(expr.children());
        }
        false
    }
}

impl Program {
    /// The type of what comes out.
    #[must_use]
    pub fn kind(&self) -> &Type {
        &self.kind
    }

    /// The cost of an evaluation, at least and at most.
    #[must_use]
    pub fn cost(&self) -> CostEstimate {
        self.cost
    }

    /// `true` if a variable is mentioned: a rule that mentions `oldSelf` is about changes.
    #[must_use]
    pub fn mentions(&self, variable: &str) -> bool {
        self.variables.iter().zip(&self.mentioned).any(|(name, mentioned)| *mentioned && &**name == variable)
    }

    /// Evaluates the expression; what it costs is taken off the budget.
    pub fn evaluate<'a>(&'a self, activation: &'a Activation<'a>, budget: &mut Budget) -> Evaluation<'a> {
        let (result, cost) = evaluate(&self.node, &self.variables, activation, budget);
        Evaluation { result, cost }
    }
}
