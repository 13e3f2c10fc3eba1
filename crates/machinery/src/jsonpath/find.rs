//! From a path and an object to values.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use super::{Comparison, FindError, RESULTS_MAX, Slice, Step};

type Found<'v> = Vec<Cow<'v, Value>>;

/// Where steps lead from a value.
pub(super) fn follow<'v>(steps: &[Step], value: &'v Value) -> Result<Found<'v>, FindError> {
    let mut found: Found<'v> = vec![Cow::Borrowed(value)];
    for step in steps {
        found = take(step, found)?;
        if found.len() > RESULTS_MAX {
            return Err(FindError);
        }
    }
    Ok(found)
}

fn take<'v>(step: &Step, from: Found<'v>) -> Result<Found<'v>, FindError> {
    let mut found = Found::new();
    if let Step::Literal(value) = step {
        return Ok(vec![Cow::Owned(value.clone()); from.len()]);
    }
    // Paths through values of one's own lead nowhere: they have no parts.
    for value in from.iter().filter_map(borrowed) {
        match step {
            Step::Literal(_) => {}
            Step::Field(name) => found.extend(value.get(name).map(Cow::Borrowed)),
            Step::Wildcard => found.extend(parts(value).into_iter().map(Cow::Borrowed)),
            Step::Recursive => recursive(value, &mut found)?,
            Step::Slice(slice) => elements(value, *slice, &mut found)?,
            Step::Union(paths) => {
                for path in paths {
                    found.extend(follow(path, value)?);
                }
            }
            Step::Filter(left, comparison, right) => {
                for item in value.as_array().ok_or(FindError)? {
                    if holds(item, left, *comparison, right)? {
                        found.push(Cow::Borrowed(item));
                    }
                }
            }
        }
        if found.len() > RESULTS_MAX {
            return Err(FindError);
        }
    }
    Ok(found)
}

fn borrowed<'v>(value: &Cow<'v, Value>) -> Option<&'v Value> {
    match value {
        Cow::Borrowed(value) if !value.is_null() => Some(value),
        _ => None,
    }
}

fn parts(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}

/// Everything within a value that has parts. As deep as JSON can be, which parsers bound.
fn recursive<'v>(value: &'v Value, found: &mut Found<'v>) -> Result<(), FindError> {
    let parts = parts(value);
    if parts.is_empty() {
        return Ok(());
    }
    if found.len() >= RESULTS_MAX {
        return Err(FindError);
    }
    found.push(Cow::Borrowed(value));
    parts.into_iter().try_for_each(|part| recursive(part, found))
}

fn elements<'v>(value: &'v Value, slice: Slice, found: &mut Found<'v>) -> Result<(), FindError> {
    let items = value.as_array().ok_or(FindError)?;
    let length = i64::try_from(items.len()).map_err(|_| FindError)?;
    let from_end = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
    let start = from_end(slice.start.unwrap_or(0));
    let end = match slice.end {
        None => length,
        Some(0) if slice.is_one => length,
        Some(end) => from_end(end),
    };
    if start == end {
        return Ok(());
    }
    if !(0..length).contains(&start) || !(0..=length).contains(&end) || start > end {
        return Err(FindError);
    }
    let step = usize::try_from(slice.step.unwrap_or(1)).ok().filter(|step| *step > 0).ok_or(FindError)?;
    let at = |at: i64| usize::try_from(at).map_err(|_| FindError);
    let chosen = items.get(at(start)?..at(end)?).ok_or(FindError)?;
    found.extend(chosen.iter().step_by(step).map(Cow::Borrowed));
    Ok(())
}

fn holds(item: &Value, left: &[Step], comparison: Comparison, right: &[Step]) -> Result<bool, FindError> {
    let left = follow(left, item);
    if comparison == Comparison::Exists {
        return Ok(left.is_ok_and(|left| !left.is_empty()));
    }
    let (left, right) = (left?, follow(right, item)?);
    let (left, right) = match (left.as_slice(), right.as_slice()) {
        ([left], [right]) => (left, right),
        ([], _) | (_, []) => return Ok(false),
        _ => return Err(FindError),
    };
    let order = compare(left, right).ok_or(FindError)?;
    Ok(match comparison {
        Comparison::Exists => true,
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::AtMost => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::AtLeast => order.is_ge(),
    })
}

/// Values of one type, in their order; whole and other numbers are of two.
fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
            _ => None,
        },
        _ => None,
    }
}
