//! From a text to a program that may be run.

use std::collections::BTreeSet;

use cel::common::ast::{Expr, LiteralValue};
use cel::parser::Expression;
use cel::{Env, Program};

use crate::cost;

/// How deep an expression may be nested: what runs it needs stack for each level.
const DEPTH_MAX: usize = 128;
/// Bytes of stack for whatever stands in an expression's 10 KiB, until it is known how deep it is.
const STACK_BYTES: usize = 256 << 20;
/// Names that stand for types and for groups of functions.
const NAMES: &[&str] = &[
    "bool",
    "bytes",
    "cidr",
    "double",
    "google",
    "int",
    "ip",
    "list",
    "lists",
    "map",
    "null_type",
    "optional",
    "optional_type",
    "sets",
    "string",
    "type",
    "uint",
];

/// Why an expression cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It is none, or not one of this place.
    #[error("{0}")]
    Invalid(String),
    /// It could take too long.
    #[error("too complex, exceeds cost limit")]
    TooCostly,
}

/// An expression that may be run.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// What is run.
    pub(crate) program: Program,
    /// Every text in it.
    pub(crate) texts: BTreeSet<String>,
}

/// Compiles an expression that sees `variables` and must say yes or no.
pub(crate) fn compile(env: &Env, expression: &str, variables: &[&str]) -> Result<Compiled, CompileError> {
    stacker::grow(STACK_BYTES, || compile_here(env, expression, variables))
}

fn compile_here(env: &Env, expression: &str, variables: &[&str]) -> Result<Compiled, CompileError> {
    let failed = |why: String| CompileError::Invalid(format!("compilation failed: {why}"));
    let program = env.compile(expression).map_err(|error| failed(error.to_string()))?;
    let parsed = program.expression();
    if depth(parsed) > DEPTH_MAX {
        return Err(failed("nested too deeply".to_owned()));
    }
    let mut known: Vec<&str> = variables.iter().chain(NAMES).copied().collect();
    if let Some((name, id)) = undeclared(parsed, &mut known) {
        let at = program.source_info().offset_for(id).map_or(0, |(start, _)| start as usize);
        return Err(failed(point(
            expression,
            at,
            &format!("undeclared reference to '{name}' (in container '')"),
        )));
    }
    if let Expr::Literal(literal) = &parsed.expr
        && !matches!(literal, LiteralValue::Boolean(_))
    {
        return Err(CompileError::Invalid(format!("must evaluate to bool, not {}", kind(literal))));
    }
    if cost::cost(parsed) > cost::COST_MAX {
        return Err(CompileError::TooCostly);
    }
    let mut texts = BTreeSet::new();
    collect(parsed, &mut texts);
    Ok(Compiled { program, texts })
}

/// An error with its place, as clients of cel-go know it.
fn point(source: &str, at: usize, error: &str) -> String {
    let before = source.get(..at).unwrap_or_default();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let text = source.lines().nth(line).unwrap_or_default();
    format!("ERROR: <input>:{}:{}: {error}\n | {text}\n | {}^", line + 1, column + 1, ".".repeat(column))
}

fn kind(literal: &LiteralValue) -> &'static str {
    match literal {
        LiteralValue::Boolean(_) => "bool",
        LiteralValue::Bytes(_) => "bytes",
        LiteralValue::Double(_) => "double",
        LiteralValue::Int(_) => "int",
        LiteralValue::Null => "null_type",
        LiteralValue::String(_) => "string",
        LiteralValue::UInt(_) => "uint",
    }
}

/// The first name that nobody has given a meaning, and where it stands.
fn undeclared<'e>(expression: &'e Expression, known: &mut Vec<&'e str>) -> Option<(&'e str, u64)> {
    match &expression.expr {
        Expr::Ident(name) => (!known.contains(&name.as_str())).then_some((name, expression.id)),
        Expr::Comprehension(fold) => {
            let outside =
                [&fold.iter_range, &fold.accu_init].into_iter().find_map(|one| undeclared(one, known));
            if outside.is_some() {
                return outside;
            }
            let names = known.len();
            known.extend(fold.iter_var2.as_deref());
            known.extend([fold.iter_var.as_str(), &fold.accu_var]);
            let inside = [&fold.loop_cond, &fold.loop_step, &fold.result];
            let found = inside.into_iter().find_map(|one| undeclared(one, known));
            known.truncate(names);
            found
        }
        _ => below(expression).into_iter().find_map(|one| undeclared(one, known)),
    }
}

/// Every text that stands in the expression.
fn collect(expression: &Expression, texts: &mut BTreeSet<String>) {
    if let Expr::Literal(LiteralValue::String(text)) = &expression.expr {
        texts.insert(text.inner().to_owned());
    }
    below(expression).into_iter().for_each(|one| collect(one, texts));
}

/// Levels of the expression.
fn depth(expression: &Expression) -> usize {
    1 + below(expression).into_iter().map(depth).max().unwrap_or(0)
}

/// What an expression is made of.
fn below(expression: &Expression) -> Vec<&Expression> {
    match &expression.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| cost::values(&entry.expr)).collect(),
        Expr::Struct(made) => made.entries.iter().flat_map(|entry| cost::values(&entry.expr)).collect(),
        Expr::Comprehension(fold) => {
            vec![&fold.iter_range, &fold.accu_init, &fold.loop_cond, &fold.loop_step, &fold.result]
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}
