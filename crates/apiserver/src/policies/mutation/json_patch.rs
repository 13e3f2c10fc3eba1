//! Mutations that are JSON patches.
//!
//! Source: `plugin/policy/mutating/patch/json_patch.go`, `k8s.io/apiserver/pkg/cel/mutation/jsonpatch.go`.

use expressions::{JsonBudget, Made, NoJson, Object, Value as Cel};
use serde_json::Value;

use super::names::WrongNames;
use super::{Failure, names};
use crate::codec::{self, Operation, PatchError};

/// An expression that has made no operations, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum OperationError {
    /// It has made something else.
    #[error("type mismatch: JSONPatchType.expression should evaluate to array")]
    NoList,
    /// It has made a list of something else.
    #[error(
        "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {0}"
    )]
    Element(String),
    /// A field has another type.
    #[error("unexpected type {type_name} for JSONPatchType '{name}' field")]
    Field {
        /// The field.
        name: String,
        /// Its type.
        type_name: String,
    },
    /// A field cannot be written.
    #[error(transparent)]
    Written(#[from] NoJson),
    /// A value cannot be written.
    #[error("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {0}")]
    Value(#[source] NoJson),
    /// Objects in a value are of other types than their fields.
    #[error(transparent)]
    Names(#[from] WrongNames),
}

/// The operations that an expression has made.
///
/// # Errors
/// If they are none, or cannot be written.
pub(super) fn operations(made: &Cel<'_>) -> Result<Vec<Operation>, OperationError> {
    let Cel::List(list) = made else {
        return Err(OperationError::NoList);
    };
    let mut budget = JsonBudget::default();
    list.iter().map(|element| operation(&element, &mut budget)).collect()
}

fn operation(made: &Cel<'_>, budget: &mut JsonBudget) -> Result<Operation, OperationError> {
    let Cel::Object(Object::Shared(patch)) = made else {
        return Err(OperationError::Element(made.type_name().to_string()));
    };
    let value = patch.fields.get("value").map(|value| {
        let written = value.to_json(budget).map_err(OperationError::Value)?;
        names::check(value)?;
        Ok::<_, OperationError>(written)
    });
    let from = text(patch, "from", budget)?.filter(|from| !from.is_empty());
    Ok(Operation {
        op: Some(text(patch, "op", budget)?.unwrap_or_default()),
        path: Some(text(patch, "path", budget)?.unwrap_or_default()),
        from,
        value: value.transpose()?,
    })
}

/// A field that must be text, whatever was known of it before.
fn text(patch: &Made<'_>, name: &str, budget: &mut JsonBudget) -> Result<Option<String>, OperationError> {
    let Some(value) = patch.fields.get(name) else { return Ok(None) };
    match value.to_json(budget) {
        Ok(Value::String(text)) if matches!(value, Cel::String(_)) => Ok(Some(text)),
        Err(why) => Err(why.into()),
        Ok(_) => {
            Err(OperationError::Field { name: name.to_owned(), type_name: value.type_name().to_string() })
        }
    }
}

/// The object with the operations applied, or as it is if a test of theirs says no.
///
/// # Errors
/// If an operation does not apply.
pub(super) fn patched(operations: Vec<Operation>, object: &Value) -> Result<Value, Failure> {
    match codec::apply_operations(object.clone(), operations) {
        Err(PatchError::TestFailed(_)) => Ok(object.clone()),
        patched => patched.map_err(|why| Failure::Policy(format!("JSON Patch: {why}"))),
    }
}
