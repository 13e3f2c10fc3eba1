//! The values that Go has where JSON has null or nothing: for readers whose types are stricter than Go's.
//!
//! Go takes null for any value, as the zero value of its type. Types that are made of the API's description know null only
//! where a field may be left out: not in lists, not in maps, and not for the few times that must be there. [`fill`] makes
//! a value that such types take of any that Go takes. [`decode`] asks for it only when a value was refused, so that others
//! cost nothing.
//!
//! Source: `encoding/json`'s `Unmarshal`; the `UnmarshalJSON` of `metav1.Time`, `resource.Quantity`, `intstr.IntOrString`.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Field, Schemas, Type};
use crate::walk::decode::props;

/// Go's zero time.
const TIME_ZERO: &str = "0001-01-01T00:00:00Z";
/// The last time that the readers know: Go's go on to the end of the year.
const TIME_MAX: &str = "9999-12-30T22:00:00Z";

/// Decodes an object of a built-in kind (group, version, kind) as Go would.
///
/// # Errors
/// What the type says of a value that Go would not take either.
pub fn decode<T: DeserializeOwned>(kind: [&str; 3], text: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(text).or_else(|_| serde_json::from_slice(filled(kind, text)?.as_bytes()))
}

/// The text of an object of a built-in kind (group, version, kind) as stricter types than Go's take it. It is text again so
/// that whoever reads the one reads the other: a second decoder of every kind would be larger than all that is read by it.
///
/// # Errors
/// It is no JSON.
#[cold]
pub fn filled(kind: [&str; 3], text: &[u8]) -> Result<String, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(text)?;
    let [group, version, kind] = kind;
    if let Some(schema) = crate::builtin().kind(group, version, kind) {
        fill(schema, &mut value);
    }
    serde_json::to_string(&value)
}

/// Replaces nulls by what they mean, adds the times that must be there, and takes out what objects call themselves.
pub fn fill(schema: SchemaRef<'_>, value: &mut Value) {
    walk(schema.schemas, Type::Message(schema.index), value);
}

fn walk(schemas: &Schemas, ty: Type, value: &mut Value) {
    if value.is_null() {
        *value = zero(ty);
    }
    match (ty, value) {
        (Type::Message(index), Value::Object(object)) => {
            if let Some(schema) = schemas.at(index) {
                fields(schema, object);
            }
        }
        (Type::List(index) | Type::Wrapped(index), Value::Array(items)) => {
            items.iter_mut().for_each(|item| walk(schemas, schemas.item(index), item));
        }
        (Type::Map(index), Value::Object(entries)) => {
            entries.values_mut().for_each(|entry| walk(schemas, schemas.map(index), entry));
        }
        (Type::Time | Type::MicroTime, Value::String(text))
            if text.starts_with("9999-12-3") && text.parse::<Timestamp>().is_err() =>
        {
            TIME_MAX.clone_into(text);
        }
        (Type::PropsOrArray | Type::PropsOrBool | Type::PropsOrStrings, value @ Value::Object(_)) => {
            walk(schemas, props(schemas), value);
        }
        (Type::PropsOrArray, Value::Array(items)) => {
            items.iter_mut().for_each(|item| walk(schemas, props(schemas), item));
        }
        (Type::PropsOrStrings, Value::Array(items)) => {
            items.iter_mut().for_each(|item| walk(schemas, Type::String, item));
        }
        (Type::Bytes, Value::String(text)) => text.retain(|c| c != '\n' && c != '\r'),
        _ => {}
    }
}

fn fields(schema: SchemaRef<'_>, object: &mut Object) {
    object.retain(|_, value| !value.is_null());
    // A type of its own knows what it is, and refuses to be called otherwise, where Go does not look: in the claim
    // templates of a StatefulSet anything may stand.
    if ["apiVersion", "kind", "metadata"].iter().all(|name| schema.field(name).is_some()) {
        object.remove("apiVersion");
        object.remove("kind");
    }
    for field in schema.fields() {
        match object.get_mut(&*field.name) {
            Some(value) => walk(schema.schemas, field.ty, value),
            None if is_time_by_value(field) => {
                object.insert(field.name.clone().into_owned(), TIME_ZERO.into());
            }
            None => {}
        }
    }
}

/// The only fields that the readers do not take as absent.
fn is_time_by_value(field: &Field) -> bool {
    field.is_required() && matches!(field.ty, Type::Time | Type::MicroTime)
}

/// What Go has in a list or a map where JSON has null.
fn zero(ty: Type) -> Value {
    match ty {
        Type::Bool => Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => json!(0),
        Type::String | Type::Bytes => "".into(),
        Type::Quantity => "0".into(),
        Type::Duration => "0s".into(),
        Type::Time | Type::MicroTime => TIME_ZERO.into(),
        Type::Message(_) | Type::Map(_) | Type::FieldsV1 => json!({}),
        Type::List(_) | Type::Wrapped(_) | Type::PropsOrArray | Type::PropsOrStrings => json!([]),
        Type::PropsOrBool => Value::Bool(false),
        Type::Json => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: (&str, &str), mut object: Value, expect: Value) {
        let schema = crate::builtin().kind(kind.0, "v1", kind.1).expect("a kind");
        fill(schema, &mut object);
        assert_eq!(object, expect);
    }

    #[test]
    fn nulls_in_lists_and_maps_are_zero_values() {
        check(
            ("", "Pod"),
            json!({"metadata": {"labels": {"a": null}, "finalizers": [null], "annotations": null}, "spec": {"containers": [
                null, {"name": "a", "args": [null], "ports": [{"containerPort": null}], "resources": {"limits": {"cpu": null}}}]}}),
            json!({"metadata": {"labels": {"a": ""}, "finalizers": [""]}, "spec": {"containers": [
                {}, {"name": "a", "args": [""], "ports": [{}], "resources": {"limits": {"cpu": "0"}}}]}}),
        );
        check(
            ("", "Secret"),
            json!({"data": {"a": null, "b": "YQ\n=="}}),
            json!({"data": {"a": "", "b": "YQ=="}}),
        );
    }

    #[test]
    fn times_that_must_be_there_are_zero_and_none_is_beyond_the_end() {
        check(
            ("", "Service"),
            json!({"status": {"conditions": [{"type": "A", "lastTransitionTime": null}, {"type": "B"}]}}),
            json!({"status": {"conditions": [
                {"type": "A", "lastTransitionTime": TIME_ZERO}, {"type": "B", "lastTransitionTime": TIME_ZERO}]}}),
        );
        check(
            ("", "Pod"),
            json!({"metadata": {"creationTimestamp": null, "deletionTimestamp": "9999-12-31T23:59:59Z"}}),
            json!({"metadata": {"deletionTimestamp": TIME_MAX}}),
        );
    }

    #[test]
    fn what_an_object_is_called_does_not_matter_where_it_stands() {
        check(
            ("apps", "StatefulSet"),
            json!({"kind": "", "spec": {"volumeClaimTemplates": [{"apiVersion": "v2", "kind": "X", "spec": {
                "dataSource": {"kind": "Y"}}}]}}),
            json!({"spec": {"volumeClaimTemplates": [{"spec": {"dataSource": {"kind": "Y"}}}]}}),
        );
    }

    #[test]
    fn free_form_json_and_what_is_not_known_stay() {
        let data = json!({"data": {"a": null, "b": [null]}, "future": {"c": null}});
        check(("apps", "ControllerRevision"), data.clone(), data);
    }
}
