//! Mutations that are JSON patches.
//!
//! Source: `plugin/policy/mutating/patch/json_patch.go`, `k8s.io/apiserver/pkg/cel/mutation/jsonpatch.go`.

use expressions::{JsonBudget, Made, Object, Value as Cel};
use serde_json::Value;

use super::{Failure, names};
use crate::codec::{self, Operation, PatchError};

/// The operations that an expression has made.
///
/// # Errors
/// If they are none, or cannot be written.
pub(super) fn operations(made: &Cel<'_>) -> Result<Vec<Operation>, String> {
    let Cel::List(list) = made else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut budget = JsonBudget::default();
    list.iter().map(|element| operation(&element, &mut budget)).collect()
}

fn operation(made: &Cel<'_>, budget: &mut JsonBudget) -> Result<Operation, String> {
    let Cel::Object(Object::Shared(patch)) = made else {
        let name = made.type_name();
        return Err(format!(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {name}"
        ));
    };
    let value = patch.fields.get("value").map(|value| {
        let written = value.to_json(budget);
        let written = written.map_err(|why| {
            format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
        })?;
        names::check(value)?;
        Ok::<_, String>(written)
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
fn text(patch: &Made<'_>, name: &str, budget: &mut JsonBudget) -> Result<Option<String>, String> {
    let Some(value) = patch.fields.get(name) else { return Ok(None) };
    match value.to_json(budget) {
        Ok(Value::String(text)) if matches!(value, Cel::String(_)) => Ok(Some(text)),
        Err(why) => Err(why.to_string()),
        Ok(_) => Err(format!("unexpected type {} for JSONPatchType '{name}' field", value.type_name())),
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
