//! The places of the parts of a custom kind's Scale, and the values that may stand there.
//!
//! Source: `ValidateScaleSpec` and `ValidateScaleStatus` of `k8s.io/apiextensions-apiserver/pkg/registry/customresource`.

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::jsonpath::printed;
use resources::ScalePaths;
use serde_json::Value;

use crate::definition::Scale;

/// The names of a path such as `.spec.replicas`.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

/// A path such as `.spec.replicas` as a JSON pointer.
pub(super) fn pointer(path: &str) -> String {
    names(path).map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
}

pub(super) fn paths(scale: &Scale) -> ScalePaths {
    ScalePaths {
        spec_replicas: pointer(&scale.spec_replicas_path).into(),
        status_replicas: pointer(&scale.status_replicas_path).into(),
        selector: scale.label_selector_path.as_deref().map(pointer).unwrap_or_default().into(),
    }
}

/// What is wrong with the replicas that are wanted.
pub(super) fn check_spec(scale: &Scale, object: &Value) -> FieldErrors {
    replicas(&scale.spec_replicas_path, object)
}

/// What is wrong with the replicas that are there, and with their labels.
pub(super) fn check_status(scale: &Scale, object: &Value) -> FieldErrors {
    let mut errors = replicas(&scale.status_replicas_path, object);
    if let Some(path) = scale.label_selector_path.as_deref()
        && let Err(why) = text(path, object)
    {
        errors.push(FieldError::invalid(&Path::new(path), "", &why.to_string()));
    }
    errors
}

fn replicas(path: &str, object: &Value) -> FieldErrors {
    let at = Path::new(path);
    match number(path, object) {
        Err(why) => FieldError::invalid(&at, 0, &why.to_string()).into(),
        Ok(number) if number < 0 => {
            FieldError::invalid(&at, number, "should be a non-negative integer").into()
        }
        Ok(number) if number > i64::from(i32::MAX) => {
            let why = format!("should be less than or equal to {}", i32::MAX);
            FieldError::invalid(&at, number, &why).into()
        }
        Ok(_) => FieldErrors::new(),
    }
}

/// A value on a path that is of another type, as Go tells it.
#[derive(Debug, thiserror::Error)]
#[error(".{path} accessor error: {shown} is of the type {found}, expected {wanted}")]
struct AccessorError {
    path: String,
    shown: String,
    found: &'static str,
    wanted: &'static str,
}

/// What a path leads to; nothing, if a field on its way is not there.
fn find<'v>(path: &str, object: &'v Value) -> Result<Option<&'v Value>, AccessorError> {
    let mut at = object;
    let mut passed = String::new();
    for name in names(path) {
        passed.push('.');
        passed.push_str(name);
        at = match at {
            Value::Object(fields) => match fields.get(name) {
                Some(value) => value,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => return Err(mismatch(&passed, other, "map[string]interface {}")),
        };
    }
    Ok(Some(at))
}

fn number(path: &str, object: &Value) -> Result<i64, AccessorError> {
    match find(path, object)? {
        None => Ok(0),
        Some(value) => value.as_i64().ok_or_else(|| mismatch(path, value, "int64")),
    }
}

fn text<'v>(path: &str, object: &'v Value) -> Result<&'v str, AccessorError> {
    match find(path, object)? {
        None => Ok(""),
        Some(value) => value.as_str().ok_or_else(|| mismatch(path, value, "string")),
    }
}

fn mismatch(path: &str, value: &Value, wanted: &'static str) -> AccessorError {
    const SHOWN_MAX: usize = 1024;
    let found = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let mut shown = if value.is_null() { "<nil>".to_owned() } else { printed(value) };
    shown.truncate(shown.floor_char_boundary(SHOWN_MAX));
    AccessorError { path: path.strip_prefix('.').unwrap_or(path).to_owned(), shown, found, wanted }
}
