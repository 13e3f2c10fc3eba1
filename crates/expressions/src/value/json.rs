//! JSON as values.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

use super::{List, Map, Moment, Object, Text, Value, text};
use crate::types::{Declared, ListKind, Scalar, Shape};

/// Lists of which nobody has said more.
static ATOMIC: ListKind = ListKind::Atomic;

/// JSON as it is.
pub(super) fn dynamic(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(yes) => Value::Bool(*yes),
        Json::Number(number) => number.as_i64().map(Value::Int).unwrap_or_else(|| {
            number.as_u64().map_or_else(|| Value::Double(number.as_f64().unwrap_or(f64::NAN)), Value::Uint)
        }),
        Json::String(text) => Value::String(Text::Borrowed(text)),
        Json::Array(elements) => Value::List(List::Json { elements, element: None, kind: &ATOMIC }),
        Json::Object(members) => Value::Map(Map::Json { members, value: None }),
    }
}

/// JSON of a type. What is of another type has been refused by whoever validates, and is read as it is.
pub(super) fn declared<'a>(json: &'a Json, declared: &'a Declared) -> Value<'a> {
    match (declared.shape(), json) {
        (Shape::Scalar(scalar), json) => self::scalar(*scalar, json).unwrap_or_else(|| dynamic(json)),
        (Shape::List(element, kind), Json::Array(elements)) => {
            Value::List(List::Json { elements, element: Some(element), kind })
        }
        (Shape::Map(value, _), Json::Object(members)) => {
            Value::Map(Map::Json { members, value: Some(value) })
        }
        (Shape::Object(..), Json::Object(members)) => Value::Object(Object::Json { members, declared }),
        _ => dynamic(json),
    }
}

/// A value as JSON.
pub(super) fn written(value: &Value<'_>) -> Option<Json> {
    Some(match value {
        Value::Null => Json::Null,
        Value::Bool(yes) => Json::Bool(*yes),
        Value::Int(number) => (*number).into(),
        Value::Uint(number) => (*number).into(),
        Value::Double(number) => serde_json::Number::from_f64(*number).map(Json::Number)?,
        Value::String(text) => Json::String(text.to_string()),
        Value::Bytes(bytes) => Json::String(STANDARD.encode(bytes)),
        Value::Duration(nanos) => Json::String(text::duration_text(*nanos)),
        Value::Timestamp(moment) => Json::String(moment.to_string()),
        Value::Quantity(amount) => Json::String(amount.to_string()),
        Value::List(List::Json { elements, .. }) => Json::Array(elements.to_vec()),
        Value::List(list) => stacker::maybe_grow(64 << 10, 1 << 20, || {
            list.iter().map(|value| written(&value)).collect::<Option<_>>()
        })
        .map(Json::Array)?,
        Value::Map(Map::Json { members, .. }) | Value::Object(Object::Json { members, .. }) => {
            Json::Object((*members).clone())
        }
        Value::Map(map) => entries(map.entries().into_iter().map(|(key, value)| match key {
            Value::String(key) => Some((key.to_string(), value)),
            _ => None,
        }))?,
        Value::Object(object) => {
            entries(object.entries().into_iter().map(|(name, value)| Some((name.to_string(), value))))?
        }
        Value::Optional(Some(value)) => written(value)?,
        _ => return None,
    })
}

fn entries<'a>(entries: impl Iterator<Item = Option<(String, Value<'a>)>>) -> Option<Json> {
    let written = |entry: Option<(String, Value<'a>)>| {
        let (name, value) = entry?;
        Some((name, written(&value)?))
    };
    stacker::maybe_grow(64 << 10, 1 << 20, || entries.map(written).collect::<Option<_>>()).map(Json::Object)
}

fn scalar(scalar: Scalar, json: &Json) -> Option<Value<'_>> {
    match (scalar, json) {
        (Scalar::Int, Json::Number(number)) => {
            number.as_i64().or_else(|| super::number::whole(number.as_f64()?)).map(Value::Int)
        }
        (Scalar::Double, Json::Number(number)) => number.as_f64().map(Value::Double),
        (Scalar::Bytes, Json::String(text)) => {
            STANDARD.decode(text).ok().map(|bytes| Value::Bytes(Arc::from(bytes)))
        }
        (Scalar::Timestamp, Json::String(text)) => Moment::parse(text).map(Value::Timestamp),
        (Scalar::Date, Json::String(text)) => Moment::of_day(text).map(Value::Timestamp),
        (Scalar::Duration, Json::String(text)) => text::loose_duration(text).map(Value::Duration),
        (Scalar::Quantity, Json::String(text)) => text.parse().ok().map(Value::Quantity),
        _ => None,
    }
}
