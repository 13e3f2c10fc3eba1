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
pub(super) fn written(value: &Value<'_>, budget: &mut JsonBudget) -> Result<Json, NoJson> {
    budget.write(value, 0)
}

/// The budget of written values: parts of a value can be the same one, each of which becomes one of its own.
#[derive(Clone, Debug)]
pub struct JsonBudget {
    bytes: usize,
}

/// The reason why a value cannot be written as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoJson {
    /// It has no such form.
    #[error("{0} has no form in JSON")]
    Unlike(Arc<str>),
    /// It would be larger, or nested more deeply, than any request may be.
    #[error("the value is too large")]
    TooLarge,
}

/// Bytes that the tree of the largest request may take.
const TREE_BYTES_MAX: usize = 24 << 20;
/// How deeply values may be nested: as deeply as those that are sent.
const DEPTH_MAX: usize = 120;
/// What trees take, as the walks over what is sent reckon it.
const ELEMENT_BYTES: usize = 64;
const ENTRY_BYTES: usize = 112;
const OBJECT_BYTES: usize = 640;

impl Default for JsonBudget {
    fn default() -> Self {
        Self { bytes: TREE_BYTES_MAX }
    }
}

impl JsonBudget {
    fn spend(&mut self, bytes: usize) -> Result<(), NoJson> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(NoJson::TooLarge)?;
        Ok(())
    }

    fn text(&mut self, text: String) -> Result<Json, NoJson> {
        self.spend(text.len())?;
        Ok(Json::String(text))
    }

    fn write(&mut self, value: &Value<'_>, depth: usize) -> Result<Json, NoJson> {
        if depth > DEPTH_MAX {
            return Err(NoJson::TooLarge);
        }
        self.spend(ELEMENT_BYTES)?;
        let unlike = || NoJson::Unlike(value.type_name());
        Ok(match value {
            Value::Null => Json::Null,
            Value::Bool(yes) => Json::Bool(*yes),
            Value::Int(number) => (*number).into(),
            Value::Uint(number) => (*number).into(),
            Value::Double(number) => {
                serde_json::Number::from_f64(*number).map(Json::Number).ok_or_else(unlike)?
            }
            Value::String(text) => {
                self.spend(text.len())?;
                Json::String(text.to_string())
            }
            Value::Bytes(bytes) => {
                self.spend(bytes.len().saturating_mul(4) / 3)?;
                Json::String(STANDARD.encode(bytes))
            }
            Value::Duration(nanos) => self.text(text::duration_text(*nanos))?,
            Value::Timestamp(moment) => self.text(moment.to_string())?,
            Value::Quantity(amount) => self.text(amount.to_string())?,
            // As it stands there: a field's name is not what stands for it in expressions.
            Value::List(List::Json { elements, .. }) => {
                elements.iter().try_for_each(|element| self.charge(element, depth + 1))?;
                Json::Array(elements.to_vec())
            }
            Value::Map(Map::Json { members, .. }) | Value::Object(Object::Json { members, .. }) => {
                self.charge_members(members, depth)?;
                Json::Object((*members).clone())
            }
            Value::List(list) => {
                let elements = list.iter().map(|element| self.write_below(&element, depth));
                Json::Array(elements.collect::<Result<_, _>>()?)
            }
            Value::Map(map) => self.write_entries(
                map.entries().into_iter().map(|(key, value)| match key {
                    Value::String(key) => Ok((key, value)),
                    other => {
                        Err(NoJson::Unlike(format!("a map whose keys are {}", other.type_name()).into()))
                    }
                }),
                depth,
            )?,
            Value::Object(object) => self.write_entries(object.entries().into_iter().map(Ok), depth)?,
            Value::Optional(Some(value)) => self.write_below(value, depth)?,
            _ => return Err(unlike()),
        })
    }

    fn write_entries<'a>(
        &mut self,
        entries: impl ExactSizeIterator<Item = Result<(Text<'a>, Value<'a>), NoJson>>,
        depth: usize,
    ) -> Result<Json, NoJson> {
        if entries.len() > 0 {
            self.spend(OBJECT_BYTES)?;
        }
        let written = entries.map(|entry| {
            let (name, value) = entry?;
            self.spend(ENTRY_BYTES.saturating_add(name.len()))?;
            Ok((name.to_string(), self.write_below(&value, depth)?))
        });
        Ok(Json::Object(written.collect::<Result<_, _>>()?))
    }

    fn charge(&mut self, json: &Json, depth: usize) -> Result<(), NoJson> {
        if depth > DEPTH_MAX {
            return Err(NoJson::TooLarge);
        }
        self.spend(ELEMENT_BYTES)?;
        match json {
            Json::String(text) => self.spend(text.len()),
            Json::Array(elements) => elements.iter().try_for_each(|element| self.charge(element, depth + 1)),
            Json::Object(members) => self.charge_members(members, depth),
            _ => Ok(()),
        }
    }

    fn charge_members(
        &mut self,
        members: &serde_json::Map<String, Json>,
        depth: usize,
    ) -> Result<(), NoJson> {
        self.spend(if members.is_empty() { 0 } else { OBJECT_BYTES })?;
        members.iter().try_for_each(|(name, json)| {
            self.spend(ENTRY_BYTES.saturating_add(name.len()))?;
            self.charge(json, depth + 1)
        })
    }

    fn write_below(&mut self, value: &Value<'_>, depth: usize) -> Result<Json, NoJson> {
        stacker::maybe_grow(64 << 10, 1 << 20, || self.write(value, depth + 1))
    }
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
