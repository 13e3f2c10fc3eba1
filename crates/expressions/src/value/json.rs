//! JSON as values.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::Value as Json;

use super::{List, Map, Object, Text, Value, text};
use crate::declared::{Declared, ListKind, Scalar, Shape};

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
        (Shape::Map(value), Json::Object(members)) => Value::Map(Map::Json { members, value: Some(value) }),
        (Shape::Object(..), Json::Object(members)) => Value::Object(Object::Json { members, declared }),
        _ => dynamic(json),
    }
}

fn scalar(scalar: Scalar, json: &Json) -> Option<Value<'_>> {
    match (scalar, json) {
        (Scalar::Int, Json::Number(number)) => {
            number.as_i64().or_else(|| super::number::whole(number.as_f64()?)).map(Value::Int)
        }
        (Scalar::Double, Json::Number(number)) => number.as_f64().map(Value::Double),
        (Scalar::Bytes, Json::String(text)) => STANDARD.decode(text).ok().map(|bytes| Value::Bytes(Arc::from(bytes))),
        (Scalar::Timestamp, Json::String(text)) => text::timestamp(text).map(Value::Timestamp),
        (Scalar::Date, Json::String(text)) => {
            let moment = text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?;
            Some(Value::Timestamp(moment.timestamp()))
        }
        (Scalar::Duration, Json::String(text)) => text::loose_duration(text).map(Value::Duration),
        (Scalar::Quantity, Json::String(text)) => text.parse().ok().map(Value::Quantity),
        _ => None,
    }
}
