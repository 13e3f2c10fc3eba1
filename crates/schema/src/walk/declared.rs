//! Defaults that the schema of a custom kind declares, and what becomes of nulls where null is not allowed: the default
//! stands in for them, or they go.
//!
//! A null element of a list cannot go: it stays for validation to report. Defaults multiply: what they add to one object is
//! bounded. Source: `PruneNonNullableNullsWithoutDefaults`
//! and `Default` of `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting`.

use serde_json::Value;

use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Schemas, Type};
use crate::rules::{Location, Rules};
use crate::walk::budget::{Budget, Exceeded, charge};
use crate::walk::decode::DecodeError;
use crate::walk::stack::with_stack;

/// How much memory the defaults of one object may take.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Fills in the declared defaults of `value` and of all that is in it.
///
/// # Errors
/// [`DecodeError::TooLarge`] if they take more memory than one object may.
pub fn apply(schema: SchemaRef<'_>, value: &mut Value) -> Result<(), DecodeError> {
    let budget = Budget::of_bytes(BYTES_MAX);
    with_stack(|| walk(schema.schemas, Type::Message(schema.index), value, &budget))
        .map_err(|Exceeded| DecodeError::TooLarge)
}

/// What becomes of a null.
enum Fate<'r> {
    Stays,
    Goes,
    Becomes(&'r Value),
}

fn fate(rules: Option<&Rules>) -> Fate<'_> {
    match rules {
        None => Fate::Stays,
        Some(rules) if rules.checks.nullable => Fate::Stays,
        Some(rules) => rules.default.as_ref().map_or(Fate::Goes, Fate::Becomes),
    }
}

fn walk(schemas: &Schemas, ty: Type, value: &mut Value, budget: &Budget) -> Result<(), Exceeded> {
    match (ty, value) {
        (Type::Message(index), Value::Object(object)) => {
            match schemas.at(index).filter(|schema| schema.message.is_lenient()) {
                Some(schema) => fields(schema, object, budget),
                None => Ok(()),
            }
        }
        (Type::List(index), Value::Array(items)) => {
            let rules = schemas.rules(Location::Item(index));
            items.iter_mut().try_for_each(|item| {
                if let (true, Fate::Becomes(default)) = (item.is_null(), fate(rules)) {
                    *item = copy(default, budget)?;
                }
                walk(schemas, schemas.item(index), item, budget)
            })
        }
        (Type::Map(index), Value::Object(entries)) => {
            settle(entries, |_| fate(schemas.rules(Location::Value(index))), budget)?;
            entries.values_mut().try_for_each(|entry| walk(schemas, schemas.map(index), entry, budget))
        }
        _ => Ok(()),
    }
}

fn fields(schema: SchemaRef<'_>, object: &mut Object, budget: &Budget) -> Result<(), Exceeded> {
    let rules = |index: usize| {
        let index = u16::try_from(index).ok()?;
        schema.schemas.rules(Location::Field(schema.index, index))
    };
    let fate_of = |name: &str| match schema.message.field(name) {
        Some((index, _)) => fate(rules(index)),
        None => Fate::Stays,
    };
    settle(object, fate_of, budget)?;
    for (index, field) in schema.fields().iter().enumerate() {
        if let Some(value) = object.get_mut(&*field.name) {
            walk(schema.schemas, field.ty, value, budget)?;
        } else if !field.default.is_empty()
            && let Some(default) = rules(index).and_then(|rules| rules.default.as_ref())
        {
            let mut value = copy(default, budget)?;
            walk(schema.schemas, field.ty, &mut value, budget)?;
            budget.entry(object.len(), field.name.len())?;
            object.insert(field.name.clone().into_owned(), value);
        }
    }
    Ok(())
}

/// Lets the nulls of an object meet their fate.
fn settle<'r>(
    object: &mut Object,
    fate_of: impl Fn(&str) -> Fate<'r>,
    budget: &Budget,
) -> Result<(), Exceeded> {
    let mut outcome = Ok(());
    object.retain(|name, value| match fate_of(name) {
        _ if !value.is_null() => true,
        Fate::Stays => true,
        Fate::Goes => false,
        Fate::Becomes(default) => {
            match copy(default, budget) {
                Ok(copy) => *value = copy,
                Err(exceeded) => outcome = Err(exceeded),
            }
            true
        }
    });
    outcome
}

fn copy(default: &Value, budget: &Budget) -> Result<Value, Exceeded> {
    charge(budget, default)?;
    Ok(default.clone())
}

#[cfg(test)]
mod tests;
