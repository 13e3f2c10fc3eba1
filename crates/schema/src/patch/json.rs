//! JSON patch, operation by operation, with bounds on their number and on what `copy` makes.

use super::PatchError;
use crate::walk::budget::{Room, fits};
use crate::walk::decode::{DecodeError, FieldValidation};
use json_patch::{PatchErrorKind, PatchOperation};
use serde_json::Value;

/// How many operations one patch may have; upstream's bound.
const OPERATIONS_MAX: usize = 10_000;
/// How many bytes all `copy` operations of one patch may add; upstream's bound on a request.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

pub(super) fn apply(mut target: Value, patch: &[u8]) -> Result<Value, PatchError> {
    let mut copied = 0usize;
    for operation in &read(patch)? {
        if let PatchOperation::Copy(copy) = operation
            && let Some(value) = target.pointer(copy.from.as_str())
        {
            copied = copied.saturating_add(value.to_string().len());
            if copied > COPIED_BYTES_MAX || !fits(value, 0) {
                return Err(PatchError::TooLarge(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, \
                     exceeding the limit {COPIED_BYTES_MAX}"
                )));
            }
        }
        // What is not there counts as null: operators ask in this way that nobody has been faster.
        if let PatchOperation::Test(test) = operation
            && is_absent(&target, test.path.as_str())
        {
            if test.value.is_null() {
                continue;
            }
            return Err(failure(operation, &PatchErrorKind::TestFailed));
        }
        let one = std::slice::from_ref(operation);
        json_patch::patch(&mut target, one).map_err(|error| failure(operation, &error.kind))?;
    }
    Ok(target)
}

/// Reads the operations.
fn read(patch: &[u8]) -> Result<Vec<PatchOperation>, PatchError> {
    let decoded = crate::text::json(patch, Room::Usual, FieldValidation::Ignore);
    let decoded = decoded.map_err(|error| match error {
        DecodeError::TooLarge => PatchError::TooLarge(error.to_string()),
        other => PatchError::Malformed(format!("error decoding patch: {other}")),
    })?;
    let Value::Array(items) = decoded.value else {
        return Err(wrong_type(&decoded.value, "Go value of type []handlers.jsonPatchOp"));
    };
    if items.len() > OPERATIONS_MAX {
        let count = items.len();
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"
        )));
    }
    items.into_iter().map(operation).collect()
}

fn operation(item: Value) -> Result<PatchOperation, PatchError> {
    if !item.is_object() {
        return Err(wrong_type(&item, "Go value of type handlers.jsonPatchOp"));
    }
    for name in ["op", "path", "from"] {
        if let Some(value) = item.get(name).filter(|value| !value.is_string()) {
            return Err(wrong_type(value, &format!("Go struct field jsonPatchOp.{name} of type string")));
        }
    }
    let name = item.get("op").and_then(Value::as_str).unwrap_or("unknown").to_owned();
    serde_json::from_value(item).map_err(|error| {
        PatchError::Invalid(match &*name {
            "add" | "remove" | "replace" | "move" | "copy" | "test" => {
                format!("{name} operation does not apply: {error}")
            }
            _ => format!("Unexpected kind: {name}"),
        })
    })
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

/// Whether `path` names a field that an object lacks.
fn is_absent(target: &Value, path: &str) -> bool {
    let Some((parent, key)) = path.rsplit_once('/') else { return false };
    let object = target.pointer(parent).and_then(Value::as_object);
    object.is_some_and(|object| !object.contains_key(&key.replace("~1", "/").replace("~0", "~")))
}

fn failure(operation: &PatchOperation, kind: &PatchErrorKind) -> PatchError {
    let path = operation.path().as_str();
    let name = match operation {
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
        PatchOperation::Test(_) => "test",
    };
    PatchError::Invalid(match (operation, kind) {
        (_, PatchErrorKind::TestFailed) => format!("testing value {path} failed: test failed"),
        (PatchOperation::Test(_), _) => format!("testing path {path} failed: missing value"),
        (PatchOperation::Replace(_), _) => {
            format!("replace operation does not apply: doc is missing key: {path}: missing value")
        }
        (_, PatchErrorKind::CannotMoveInsideItself) => {
            format!("{name} operation does not apply: cannot move the value {path} inside itself")
        }
        (_, PatchErrorKind::InvalidFromPointer) => {
            format!("{name} operation does not apply: doc is missing from path: missing value")
        }
        _ => format!("{name} operation does not apply: doc is missing path: {path:?}: missing value"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::PatchError;
    use serde_json::{Value, json};

    fn check(target: Value, patch: &Value, expect: Result<Value, PatchError>) {
        assert_eq!(super::super::json(target, patch.to_string().as_bytes()), expect);
    }

    fn invalid(text: &str) -> Result<Value, PatchError> {
        Err(PatchError::Invalid(text.into()))
    }

    #[test]
    fn operations_apply_in_order() {
        check(
            json!({"a": [1, 2]}),
            &json!([
                {"op": "test", "path": "/a/0", "value": 1},
                {"op": "add", "path": "/a/-", "value": 3},
                {"op": "remove", "path": "/a/0"},
                {"op": "copy", "from": "/a", "path": "/b"},
                {"op": "replace", "path": "/b/0", "value": "x"},
            ]),
            Ok(json!({"a": [2, 3], "b": ["x", 3]})),
        );
    }

    #[test]
    fn what_is_not_there_is_null() {
        let patch = json!([
            {"op": "test", "path": "/metadata/a~1b", "value": null},
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["x"]},
        ]);
        check(json!({"metadata": {}}), &patch, Ok(json!({"metadata": {"finalizers": ["x"]}})));
    }

    #[test]
    fn an_operation_that_does_not_apply_is_named() {
        let cases = [
            (json!({"op": "test", "path": "/x", "value": 2}), "testing value /x failed: test failed"),
            (json!({"op": "test", "path": "/x/y", "value": null}), "testing path /x/y failed: missing value"),
            (json!({"op": "test", "path": "/a", "value": 2}), "testing value /a failed: test failed"),
            (
                json!({"op": "remove", "path": "/x"}),
                r#"remove operation does not apply: doc is missing path: "/x": missing value"#,
            ),
            (
                json!({"op": "replace", "path": "/x", "value": 1}),
                "replace operation does not apply: doc is missing key: /x: missing value",
            ),
            (
                json!({"op": "add", "path": "/x/y", "value": 1}),
                r#"add operation does not apply: doc is missing path: "/x/y": missing value"#,
            ),
        ];
        for (operation, text) in cases {
            check(json!({"a": 1}), &json!([operation]), invalid(text));
        }
    }

    #[test]
    fn copies_cannot_explode() {
        let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        let patch = Value::Array(vec![double; 64]);
        let result = super::super::json(json!({"a": ["0123456789"]}), patch.to_string().as_bytes());
        assert!(matches!(result, Err(PatchError::TooLarge(_))), "{result:?}");
    }

    #[test]
    fn a_patch_has_at_most_ten_thousand_operations() {
        let one = json!({"op": "test", "path": "/a", "value": 1});
        check(json!({"a": 1}), &Value::Array(vec![one.clone(); 10_000]), Ok(json!({"a": 1})));
        check(
            json!({"a": 1}),
            &Value::Array(vec![one; 10_001]),
            Err(PatchError::TooLarge(
                "The allowed maximum operations in a JSON patch is 10000, got 10001".into(),
            )),
        );
    }

    #[test]
    fn a_patch_that_is_none_is_told_what_it_is() {
        let check = |patch: &str, expect: &str| {
            let result = super::super::json(json!({}), patch.as_bytes());
            assert_eq!(result.unwrap_err().to_string(), expect, "{patch}");
        };
        check("[", "error decoding patch: unexpected end of JSON input");
        check(
            "{}",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        );
        check(
            "[5]",
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        );
        check(
            r#"[{"op": 1}]"#,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        );
        check(r#"[{"op": "fly", "path": "/a"}]"#, "Unexpected kind: fly");
        check(r#"[{"path": "/a"}]"#, "Unexpected kind: unknown");
    }
}
