//! What can be asked of a list, and of two as sets.
//!
//! Source: `k8s.io/apiserver/pkg/cel/library` (lists), cel-go's `ext.Sets`.

use std::cmp::Ordering;
use std::sync::Arc;

use cel::extractors::This;
use cel::{Context, DeclarationError, ExecutionError, Value};

use super::{Answer, wrong};

type List = Arc<Vec<Value>>;

/// Adds the functions.
pub(super) fn add(context: &mut Context<'_, '_>) -> Result<(), DeclarationError> {
    context.add_function("isSorted", |This(list): This<List>| {
        let pairs = list.iter().zip(list.iter().skip(1));
        let mut orders = pairs.map(|(one, next)| order("isSorted", one, next));
        orders.try_fold(true, |sorted, order| order.map(|order| sorted && order != Ordering::Greater))
    })?;
    context.add_function("min", |This(list): This<List>| extreme("min", &list, Ordering::Less))?;
    context.add_function("max", |This(list): This<List>| extreme("max", &list, Ordering::Greater))?;
    context.add_function("sum", |This(list): This<List>| -> Answer {
        let mut items = list.iter();
        let first = items.next().cloned().unwrap_or(Value::Int(0));
        items.try_fold(first, |sum, item| plus(&sum, item))
    })?;
    context.add_function("sets.contains", |one: List, other: List| {
        other.iter().all(|item| one.contains(item))
    })?;
    context.add_function("sets.equivalent", |one: List, other: List| {
        other.iter().all(|item| one.contains(item)) && one.iter().all(|item| other.contains(item))
    })?;
    context
        .add_function("sets.intersects", |one: List, other: List| other.iter().any(|item| one.contains(item)))
}

fn order(function: &str, one: &Value, other: &Value) -> Result<Ordering, ExecutionError> {
    let order = one.partial_cmp(other);
    order.ok_or_else(|| wrong(function, &format!("{} and {}", one.type_of(), other.type_of())))
}

fn extreme(function: &str, list: &[Value], better: Ordering) -> Answer {
    let mut items = list.iter();
    let empty = || ExecutionError::function_error(function, format!("{function} called on empty list"));
    let mut best = items.next().ok_or_else(empty)?;
    for item in items {
        if order(function, item, best)? == better {
            best = item;
        }
    }
    Ok(best.clone())
}

fn plus(sum: &Value, item: &Value) -> Answer {
    let sum = match (sum, item) {
        (Value::Int(sum), Value::Int(item)) => sum.checked_add(*item).map(Value::Int),
        (Value::UInt(sum), Value::UInt(item)) => sum.checked_add(*item).map(Value::UInt),
        (Value::Float(sum), Value::Float(item)) => Some(Value::Float(sum + item)),
        _ => return Err(wrong("sum", &format!("{} and {}", sum.type_of(), item.type_of()))),
    };
    sum.ok_or_else(|| ExecutionError::function_error("sum", "integer overflow"))
}
