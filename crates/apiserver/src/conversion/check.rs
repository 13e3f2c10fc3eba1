//! The check of a converted object: the same object in the version that was asked for. Of its metadata only labels and
//! annotations may be other ones; all else is the original's, whatever the webhook says.
//!
//! Source: `validateConvertedObject` and `restoreObjectMeta` of `webhook_converter.go`.

use machinery::field::FieldErrors;
use resources::validation::metadata::{converted_annotations, converted_labels};
use schema::go::type_name;
use serde_json::{Map, Value};

use crate::formats;
use crate::negotiate::Format;

/// An object that is not what was asked for, in upstream's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unconverted {
    /// It is no object.
    #[error("returned invalid converted object at index 0: {0}")]
    Unreadable(String),
    /// It is of another kind or version.
    #[error("returned invalid object at index 0: invalid {what} (expected {expected}, received {received})")]
    Other { what: &'static str, expected: String, received: String },
    /// It is another object.
    #[error("returned invalid object: must have the same {field}: {expected} != {received}")]
    Identity { field: &'static str, expected: String, received: String },
    /// Its metadata cannot be used.
    #[error("returned invalid metadata: {0}")]
    Metadata(#[from] MetadataError),
}

/// Metadata that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MetadataError {
    /// There is none.
    #[error("missing metadata in converted object")]
    Missing,
    /// It, or its labels or annotations, is no object.
    #[error("invalid {field} of type {found} in converted object")]
    Type { field: String, found: &'static str },
    /// A label or annotation is no text.
    #[error("{field} must be a string, but is {found} in converted object")]
    NoText { field: String, found: &'static str },
    /// Labels or annotations break rules.
    #[error("{}", aggregate(.0))]
    Fields(FieldErrors),
}

/// The converted object with the original's metadata.
///
/// # Errors
/// What is wrong with it, after the name of what was converted.
pub(super) fn converted(original: &Value, answer: &str, to: &str) -> Result<Value, Unconverted> {
    let mut object =
        formats::decode(Format::Json, answer.as_bytes()).map_err(|f| Unconverted::Unreadable(f.message))?;
    if !object.is_object() || text(&object, "kind").is_empty() {
        let shown: String = answer.chars().take(200).collect();
        return Err(Unconverted::Unreadable(format!("Object 'Kind' is missing in '{shown}'")));
    }
    let invalid = |what, expected: &str, received: &str| {
        let (expected, received) = (expected.to_owned(), received.to_owned());
        Unconverted::Other { what, expected, received }
    };
    let received = text(&object, "apiVersion");
    if received != to {
        return Err(invalid("groupVersion", to, received));
    }
    if text(&object, "kind") != text(original, "kind") {
        return Err(invalid("kind", text(original, "kind"), text(&object, "kind")));
    }
    same_identity(original, &object)?;
    restore(original, &mut object)?;
    Ok(object)
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn same_identity(original: &Value, object: &Value) -> Result<(), Unconverted> {
    for (field, told) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let of = |object: &Value| {
            object.get("metadata").map(|all| text(all, field).to_owned()).unwrap_or_default()
        };
        let (expected, received) = (of(original), of(object));
        if expected != received {
            return Err(Unconverted::Identity { field: told, expected, received });
        }
    }
    Ok(())
}

/// Puts the original's metadata in place, with the labels and annotations that were converted.
fn restore(original: &Value, object: &mut Value) -> Result<(), MetadataError> {
    let mut said = match object.get_mut("metadata").map(Value::take) {
        None => return Err(MetadataError::Missing),
        Some(Value::Object(said)) => said,
        Some(other) => {
            return Err(MetadataError::Type { field: "metadata".to_owned(), found: type_name(&other) });
        }
    };
    let mut restored = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match said.remove(field) {
            None | Some(Value::Null) => drop(restored.remove(field)),
            Some(Value::Object(map)) => {
                check_map(field, &map, restored.get(field).and_then(Value::as_object))?;
                restored.insert(field.to_owned(), map.into());
            }
            Some(other) => {
                let field = format!("metadata.{field}");
                return Err(MetadataError::Type { field, found: type_name(&other) });
            }
        }
    }
    if let Some(object) = object.as_object_mut() {
        object.insert("metadata".to_owned(), restored.into());
    }
    Ok(())
}

/// Checks labels or annotations. What was there before may be as it was, whatever the rules say today.
fn check_map(
    field: &str,
    map: &Map<String, Value>,
    before: Option<&Map<String, Value>>,
) -> Result<(), MetadataError> {
    if let Some((key, value)) = map.iter().find(|(_, value)| !value.is_string()) {
        let field = format!("metadata.{field}[{key}]");
        return Err(MetadataError::NoText { field, found: type_name(value) });
    }
    if before.is_some_and(|before| before == map) || (before.is_none() && map.is_empty()) {
        return Ok(());
    }
    let value = Value::Object(map.clone());
    let errors: FieldErrors = match field {
        "labels" => converted_labels(&value),
        _ => converted_annotations(&value),
    };
    if errors.is_empty() { Ok(()) } else { Err(MetadataError::Fields(errors)) }
}

fn aggregate(errors: &FieldErrors) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn original() -> Value {
        json!({"apiVersion": "a.b/v1", "kind": "W", "metadata": {"name": "n", "namespace": "s", "uid": "u",
            "generation": 3, "finalizers": ["a.b/f"], "labels": {"a": "A", "b": "B"}, "annotations": {"a": "1"}}, "old": 1})
    }

    /// An answer that is right but for what is changed.
    fn answered(change: impl FnOnce(&mut Value)) -> String {
        let mut answer = original();
        answer["apiVersion"] = json!("a.b/v2");
        answer["new"] = answer.as_object_mut().unwrap().remove("old").unwrap();
        change(&mut answer);
        answer.to_string()
    }

    fn metadata(change: impl FnOnce(&mut Value)) -> Result<Value, String> {
        let answer = answered(|answer| change(&mut answer["metadata"]));
        let converted = converted(&original(), &answer, "a.b/v2").map_err(|why| why.to_string());
        converted.map(|object| object["metadata"].clone())
    }

    fn refused(answer: &str, why: &str) {
        assert_eq!(converted(&original(), answer, "a.b/v2").unwrap_err().to_string(), why, "{answer}");
    }

    #[test]
    fn only_labels_and_annotations_of_the_metadata_can_be_converted() {
        let same = converted(&original(), &answered(|_| ()), "a.b/v2").unwrap();
        assert_eq!((&same["new"], &same["metadata"]), (&json!(1), &original()["metadata"]));
        let expect = |change: fn(&mut Value)| {
            let mut expect = original()["metadata"].clone();
            change(&mut expect);
            Ok(expect)
        };
        let changed = metadata(|all| {
            all["labels"] = json!({"a": "AA", "c": "C"});
            all["annotations"] = json!({"b": "2"});
            all["generation"] = json!(9);
            all["finalizers"] = json!([]);
            all["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            all["managedFields"] = json!([{"manager": "me"}]);
        });
        assert_eq!(
            changed,
            expect(|all| {
                all["labels"] = json!({"a": "AA", "c": "C"});
                all["annotations"] = json!({"b": "2"});
            })
        );
        let nulls = metadata(|all| {
            all["labels"] = Value::Null;
            all.as_object_mut().unwrap().remove("annotations");
        });
        assert_eq!(
            nulls,
            expect(|all| {
                all.as_object_mut().unwrap().retain(|name, _| name != "labels" && name != "annotations");
            })
        );
    }

    #[test]
    fn what_labels_must_be_is_asked_only_of_new_ones() {
        let mut before = original();
        before["metadata"]["labels"] = json!({"bad/key/here": "x"});
        let mut after = before.clone();
        after["apiVersion"] = json!("a.b/v2");
        assert!(converted(&before, &after.to_string(), "a.b/v2").is_ok());
        let starts = |change: fn(&mut Value), why: &str| {
            let found = metadata(change).unwrap_err();
            assert!(found.starts_with(why), "{found}");
        };
        starts(
            |all| all["labels"] = json!({"x/y/z": "x"}),
            "returned invalid metadata: metadata.labels: Invalid value: \"x/y/z\"",
        );
        starts(
            |all| all["labels"] = json!({"foo": "üäö"}),
            "returned invalid metadata: metadata.labels: Invalid value: \"üäö\"",
        );
        starts(
            |all| all["labels"] = json!({"a": null}),
            "returned invalid metadata: metadata.labels[a] must be a string, but is <nil> in converted object",
        );
        starts(
            |all| all["labels"] = json!(["a"]),
            "returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
        );
        starts(
            |all| all["annotations"] = json!({"x/y/z": "x"}),
            "returned invalid metadata: metadata.annotation: Invalid value: \"x/y/z\"",
        );
        starts(
            |all| all["annotations"] = json!({"a": "x".repeat(256 * 1024)}),
            "returned invalid metadata: metadata.annotation: Too long",
        );
    }

    #[test]
    fn another_object_is_not_what_was_asked_for() {
        let index = "returned invalid object at index 0: invalid";
        let v2 = |change: fn(&mut Value)| answered(change);
        refused(&original().to_string(), &format!("{index} groupVersion (expected a.b/v2, received a.b/v1)"));
        refused(
            &v2(|all| all["apiVersion"] = json!(7)),
            &format!("{index} groupVersion (expected a.b/v2, received )"),
        );
        refused(&v2(|all| all["kind"] = json!("X")), &format!("{index} kind (expected W, received X)"));
        refused(
            &v2(|all| all["metadata"]["name"] = json!("m")),
            "returned invalid object: must have the same name: n != m",
        );
        refused(
            &v2(|all| all["metadata"]["namespace"] = json!("t")),
            "returned invalid object: must have the same namespace: s != t",
        );
        refused(
            &v2(|all| all["metadata"]["uid"] = json!("v")),
            "returned invalid object: must have the same UID: u != v",
        );
        let missing = "returned invalid converted object at index 0: Object 'Kind' is missing in '";
        for strange in ["{}", "[]", "null", "7", r#"{"kind":7}"#] {
            refused(strange, &format!("{missing}{strange}'"));
        }
        let nowhere = json!({"apiVersion": "a.b/v2", "kind": "W"});
        refused(&nowhere.to_string(), "returned invalid object: must have the same name: n != ");
        let bare = json!({"apiVersion": "a.b/v1", "kind": "W"});
        let found = |answer: Value| converted(&bare, &answer.to_string(), "a.b/v2").unwrap_err().to_string();
        assert_eq!(found(nowhere), "returned invalid metadata: missing metadata in converted object");
        let listed = json!({"apiVersion": "a.b/v2", "kind": "W", "metadata": ["foo"]});
        assert_eq!(
            found(listed),
            "returned invalid metadata: invalid metadata of type []interface {} in converted object"
        );
    }
}
