//! How much an expression can cost at most, judged by its text alone.
//!
//! A device has few and small attributes, so what an expression costs is decided by what it writes down and by how it
//! nests. Judged too high is no harm as long as what people write stays far below [`COST_MAX`].
//! Source: `CELSelectorExpressionMaxCost` of `resource.k8s.io`.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue};
use cel::parser::Expression;

/// The steps that one look at one device may take.
pub(crate) const COST_MAX: u64 = 1_000_000;
/// Elements or bytes of what a device has: 32 attributes, texts of 64 bytes.
const DEVICE_PART: u64 = 64;

/// What is known of a value that has not been computed.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    /// Steps to compute it.
    cost: u64,
    /// Bytes and elements in it, all levels together.
    size: u64,
    /// Elements on its first level.
    length: u64,
}

impl Estimate {
    fn of(cost: u64, size: u64) -> Self {
        Self { cost, size, length: size }
    }
}

/// Sizes of what is bound by name, innermost last.
type Scope = Vec<(String, u64, u64)>;

/// The steps that the expression takes at most.
pub(crate) fn cost(expression: &Expression) -> u64 {
    estimate(expression, &mut Scope::new()).cost
}

fn estimate(expression: &Expression, scope: &mut Scope) -> Estimate {
    match &expression.expr {
        Expr::Unspecified => Estimate::of(1, 1),
        Expr::Literal(LiteralValue::String(text)) => Estimate::of(1, length(text.inner().len())),
        Expr::Literal(LiteralValue::Bytes(bytes)) => Estimate::of(1, length(bytes.inner().len())),
        Expr::Literal(_) => Estimate::of(1, 1),
        Expr::Ident(name) => {
            let bound = scope.iter().rev().find(|(bound, ..)| bound == name);
            let (size, length) =
                bound.map_or((DEVICE_PART, DEVICE_PART), |(_, size, length)| (*size, *length));
            Estimate { cost: 1, size, length }
        }
        Expr::Select(select) => {
            let operand = estimate(&select.operand, scope);
            Estimate { cost: operand.cost.saturating_add(1), ..operand }
        }
        Expr::List(list) => {
            let all = sum(list.elements.iter(), scope);
            Estimate { length: length(list.elements.len()), ..all }
        }
        Expr::Map(map) => sum(map.entries.iter().flat_map(|entry| values(&entry.expr)), scope),
        Expr::Struct(made) => sum(made.entries.iter().flat_map(|entry| values(&entry.expr)), scope),
        Expr::Call(call) => called(call, scope),
        Expr::Comprehension(comprehension) => folded(comprehension, scope),
    }
}

/// The expressions of an entry.
pub(crate) fn values(entry: &EntryExpr) -> Vec<&Expression> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a Expression>, scope: &mut Scope) -> Estimate {
    all.fold(Estimate::of(1, 1), |total, one| {
        let one = estimate(one, scope);
        Estimate::of(total.cost.saturating_add(one.cost), total.size.saturating_add(one.size))
    })
}

fn called(call: &CallExpr, scope: &mut Scope) -> Estimate {
    let all: Vec<Estimate> =
        call.target.as_deref().into_iter().chain(&call.args).map(|one| estimate(one, scope)).collect();
    let cost = all.iter().fold(1_u64, |total, one| total.saturating_add(one.cost));
    let total = all.iter().fold(0_u64, |total, one| total.saturating_add(one.size));
    let largest = all.iter().map(|one| one.size).max().unwrap_or(1);
    match call.func_name.as_str() {
        "_&&_" | "_||_" | "!_" => Estimate::of(cost, 1),
        "_[_]" | "_?_:_" | "_[?_]" | "_?._" => Estimate::of(cost, largest),
        // Every part of one may meet, or become, every part of the other.
        "replace"
        | "join"
        | "format"
        | "find"
        | "findAll"
        | "matches"
        | "contains"
        | "equivalent"
        | "intersects"
        | "distinct"
        | "sort"
        | "@sortByAssociatedKeys" => {
            let size = all.iter().fold(1_u64, |product, one| product.saturating_mul(one.size.max(1)));
            Estimate::of(cost.saturating_add(size), size)
        }
        "range" | "lists.range" => {
            let made = match call.args.first().map(|count| &count.expr) {
                Some(Expr::Literal(LiteralValue::Int(count))) => u64::try_from(*count.inner()).unwrap_or(0),
                _ => COST_MAX,
            };
            Estimate::of(cost.saturating_add(made), made)
        }
        _ => Estimate::of(cost.saturating_add(total), total.max(1)),
    }
}

fn folded(comprehension: &ComprehensionExpr, scope: &mut Scope) -> Estimate {
    let range = estimate(&comprehension.iter_range, scope);
    let first = estimate(&comprehension.accu_init, scope);
    let is_binding = matches!(&comprehension.iter_range.expr, Expr::List(list) if list.elements.is_empty());
    let rounds = if is_binding { 0 } else { range.length };
    let names = scope.len();
    for name in [Some(&comprehension.iter_var), comprehension.iter_var2.as_ref()].into_iter().flatten() {
        scope.push((name.clone(), range.size, range.size));
    }
    scope.push((comprehension.accu_var.clone(), first.size, first.length));
    let condition = estimate(&comprehension.loop_cond, scope);
    let step = estimate(&comprehension.loop_step, scope);
    scope.pop();
    let grown = first.size.saturating_add(rounds.saturating_mul(step.size));
    let held = if is_binding { first.length } else { rounds.max(first.length) };
    scope.push((comprehension.accu_var.clone(), grown, held));
    let result = estimate(&comprehension.result, scope);
    scope.truncate(names);
    let round = condition.cost.saturating_add(step.cost).saturating_add(1);
    let rounds = rounds.saturating_mul(round);
    let cost = [range.cost, first.cost, rounds, result.cost].into_iter().fold(1, u64::saturating_add);
    Estimate { cost, ..result }
}

fn length(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1)
}
