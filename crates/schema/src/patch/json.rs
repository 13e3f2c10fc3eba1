//! JSON patch, operation by operation, with bounds on their number, on what `copy` makes, and on depth.
//!
//! It is not quite RFC 6902 but what the library does that upstream uses: negative indices count from the end, `replace`
//! of a field that is not there sets it, and what is not there is null to `test` and `copy`. The texts are its own.
//! Source: `gopkg.in/evanphx/json-patch.v4`.

mod target;

use super::PatchError;
use crate::walk::budget::{Allowance, fits};
use crate::walk::decode::{DecodeError, FieldValidation};
use serde_json::Value;
use target::{depth, find};

/// How many operations one patch may have; upstream's bound.
const OPERATIONS_MAX: usize = 10_000;
/// How many bytes all `copy` operations of one patch may add; upstream's bound on a request.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;
/// How deeply a patched value may be nested: as deeply as one that is sent.
const DEPTH_MAX: usize = 128;

/// One operation of a JSON patch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// The operation: `add`, `remove`, `replace`, `move`, `copy` or `test`.
    pub op: Option<String>,
    /// The path at which it is to be done.
    pub path: Option<String>,
    /// From where.
    pub from: Option<String>,
    /// With what; null if it is absent.
    pub value: Option<Value>,
}

/// What a step on the way to the result fails with.
type Outcome<T = ()> = Result<T, PatchError>;

fn invalid<T>(text: String) -> Outcome<T> {
    Err(PatchError::Invalid(text))
}

pub(super) fn apply(target: Value, patch: &[u8]) -> Outcome<Value> {
    apply_operations(target, read(patch)?)
}

pub(super) fn apply_operations(mut target: Value, operations: Vec<Operation>) -> Outcome<Value> {
    if operations.len() > OPERATIONS_MAX {
        let count = operations.len();
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"
        )));
    }
    let mut copied = 0;
    for operation in operations {
        match operation.op.as_deref().unwrap_or("unknown") {
            "add" => add(&mut target, operation)?,
            "remove" => remove(&mut target, &operation)?,
            "replace" => replace(&mut target, operation)?,
            "move" => relocate(&mut target, &operation)?,
            "copy" => copy(&mut target, &operation, &mut copied)?,
            "test" => test(&mut target, &operation)?,
            other => return invalid(format!("Unexpected kind: {other}")),
        }
    }
    Ok(target)
}

/// Reads the operations.
fn read(patch: &[u8]) -> Outcome<Vec<Operation>> {
    let decoded = crate::text::json(patch, Allowance::Usual, FieldValidation::Ignore);
    let decoded = decoded.map_err(|error| match error {
        DecodeError::TooLarge => PatchError::TooLarge(error.to_string()),
        other => PatchError::Malformed(format!("error decoding patch: {other}")),
    })?;
    match decoded.value {
        Value::Array(items) => items.into_iter().map(operation).collect(),
        other => Err(wrong_type(&other, "Go value of type []handlers.jsonPatchOp")),
    }
}

fn operation(mut item: Value) -> Outcome<Operation> {
    let Some(members) = item.as_object_mut() else {
        return Err(wrong_type(&item, "Go value of type handlers.jsonPatchOp"));
    };
    let value = members.remove("value");
    let mut text = |name: &str| match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(&other, &format!("Go struct field jsonPatchOp.{name} of type string"))),
    };
    Ok(Operation { op: text("op")?, path: text("path")?, from: text("from")?, value })
}

fn wrong_type(value: &Value, wanted: &str) -> PatchError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    PatchError::Malformed(format!("error decoding patch: json: cannot unmarshal {found} into {wanted}"))
}

/// The path of an operation, or what is said of one that has none.
fn path_of<'a>(operation: &'a Operation, name: &str) -> Outcome<&'a str> {
    operation.path.as_deref().ok_or_else(|| {
        let why = if matches!(name, "replace" | "test") { "operation missing path field: " } else { "" };
        PatchError::Invalid(format!("{name} operation failed to decode path: {why}missing value"))
    })
}

fn from_of<'a>(operation: &'a Operation, name: &str) -> Outcome<&'a str> {
    const WHY: &str = "operation, missing from field: missing value";
    operation
        .from
        .as_deref()
        .ok_or_else(|| PatchError::Invalid(format!("{name} operation failed to decode from: {WHY}")))
}

/// Refuses what would be nested too deeply at this path.
fn check_depth(path: &str, value: &Value) -> Outcome {
    let levels = path.matches('/').count().saturating_add(depth(value));
    if levels > DEPTH_MAX { invalid(format!("exceeded max depth {DEPTH_MAX}")) } else { Ok(()) }
}

fn add(target: &mut Value, mut operation: Operation) -> Outcome {
    let value = operation.value.take().unwrap_or_default();
    let path = path_of(&operation, "add")?;
    check_depth(path, &value)?;
    let Some(at) = find(target, path) else {
        return invalid(format!(
            "add operation does not apply: doc is missing path: \"{path}\": missing value"
        ));
    };
    at.add(value).map_err(|why| PatchError::Invalid(format!("error in add for path: '{path}': {why}")))
}

fn remove(target: &mut Value, operation: &Operation) -> Outcome {
    let path = path_of(operation, "remove")?;
    let Some(at) = find(target, path) else {
        let said = format!("remove operation does not apply: doc is missing path: \"{path}\": missing value");
        return invalid(said);
    };
    let failed = |why| PatchError::Invalid(format!("error in remove for path: '{path}': {why}"));
    at.remove().map(drop).map_err(failed)
}

fn replace(target: &mut Value, mut operation: Operation) -> Outcome {
    let value = operation.value.take();
    let path = path_of(&operation, "replace")?;
    if path.is_empty() {
        return match value {
            Some(whole @ (Value::Object(_) | Value::Array(_))) => {
                *target = whole;
                Ok(())
            }
            _ => invalid("replace operation value must be object or array".to_owned()),
        };
    }
    let value = value.unwrap_or_default();
    check_depth(path, &value)?;
    let missing =
        |what| format!("replace operation does not apply: doc is missing {what}: {path}: missing value");
    let Some(at) = find(target, path) else { return invalid(missing("path")) };
    at.set(value).map_err(|_| PatchError::Invalid(missing("key")))
}

fn relocate(target: &mut Value, operation: &Operation) -> Outcome {
    let from = from_of(operation, "move")?;
    let missing =
        |what, path| format!("move operation does not apply: doc is missing {what}: {path}: missing value");
    let Some(at) = find(target, from) else { return invalid(missing("from path", from)) };
    let failed = |path: &str, why| PatchError::Invalid(format!("error in move for path: '{path}': {why}"));
    let key = at.key().to_owned();
    let value = at.remove().map_err(|why| failed(&key, why))?;
    let path = path_of(operation, "move")?;
    check_depth(path, &value)?;
    let Some(at) = find(target, path) else { return invalid(missing("destination path", path)) };
    at.add(value).map_err(|why| failed(path, why))
}

fn copy(target: &mut Value, operation: &Operation, copied: &mut usize) -> Outcome {
    let from = from_of(operation, "copy")?;
    let missing =
        |what, path| format!("copy operation does not apply: doc is missing {what}: {path}: missing value");
    let Some(at) = find(target, from) else { return invalid(missing("from path", from)) };
    let found = at.get();
    let found =
        found.map_err(|why| PatchError::Invalid(format!("error in copy for from: '{from}': {why}")))?;
    let path = path_of(operation, "copy")?;
    let value = match found {
        None | Some(Value::Null) => Value::Null,
        Some(value) => {
            *copied = copied.saturating_add(value.to_string().len());
            if *copied > COPIED_BYTES_MAX || !fits(value, Allowance::Usual, 0) {
                return Err(PatchError::TooLarge(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, \
                     exceeding the limit {COPIED_BYTES_MAX}"
                )));
            }
            check_depth(path, value)?;
            value.clone()
        }
    };
    let Some(at) = find(target, path) else { return invalid(missing("destination path", path)) };
    at.add(value).map_err(|why| PatchError::Invalid(format!("error while adding value during copy: {why}")))
}

fn test(target: &mut Value, operation: &Operation) -> Outcome {
    let path = path_of(operation, "test")?;
    let wanted = operation.value.as_ref().unwrap_or(&Value::Null);
    let is_same = match path {
        "" => *target == *wanted,
        path => {
            let Some(at) = find(target, path) else {
                let said = format!("test operation does not apply: is missing path: {path}: missing value");
                return invalid(said);
            };
            let failed = |why| PatchError::Invalid(format!("error in test for path: '{path}': {why}"));
            // What is not there counts as null: operators ask in this way that nobody has been faster.
            at.get().map_err(failed)?.unwrap_or(&Value::Null) == wanted
        }
    };
    match is_same {
        true => Ok(()),
        false => Err(PatchError::TestFailed(format!("testing value {path} failed: test failed"))),
    }
}

#[cfg(test)]
mod tests;
