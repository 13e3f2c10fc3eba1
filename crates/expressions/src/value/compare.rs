//! The equality and order of values.

use std::cmp::Ordering;
use std::collections::HashSet;

use serde_json::Value as Json;

use super::number::{int_to_double, uint_to_double};
use super::{JsonBudget, List, Map, Object, Value};
use crate::types::ListKind;

impl<'a> Value<'a> {
    /// `true` if two values are the same. Values of different types are not, apart from numbers.
    #[must_use]
    pub fn equals(&self, other: &Value<'a>) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::String(one), Self::String(other)) => **one == **other,
            (Self::Bytes(one), Self::Bytes(other)) => one == other,
            (Self::Type(one), Self::Type(other)) => one == other,
            (Self::List(one), Self::List(other)) => {
                stacker::maybe_grow(64 << 10, 1 << 20, || lists(one, other))
            }
            (Self::Map(one), Self::Map(other)) => stacker::maybe_grow(64 << 10, 1 << 20, || maps(one, other)),
            (Self::Object(one), Self::Object(other)) => {
                stacker::maybe_grow(64 << 10, 1 << 20, || objects(one, other))
            }
            (Self::Object(object), Self::Map(map)) | (Self::Map(map), Self::Object(object)) => {
                stacker::maybe_grow(64 << 10, 1 << 20, || as_map(object, map))
            }
            (Self::Optional(one), Self::Optional(other)) => match (one, other) {
                (Some(one), Some(other)) => one.equals(other),
                (None, None) => true,
                _ => false,
            },
            (Self::Semver(one), Self::Semver(other)) => one.cmp_precedence(other) == Ordering::Equal,
            (Self::Quantity(one), Self::Quantity(other)) => one == other,
            (Self::Ip(one), Self::Ip(other)) => one == other,
            (Self::Cidr(one), Self::Cidr(other)) => one == other,
            (Self::Url(one), Self::Url(other)) => one.text() == other.text(),
            (Self::Format(one), Self::Format(other)) => one.name == other.name,
            (one, other) => one.order(other) == Some(Ordering::Equal),
        }
    }

    /// The order of two values, if they have one.
    #[must_use]
    pub fn order(&self, other: &Value<'a>) -> Option<Ordering> {
        Some(match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Int(one), Self::Int(other)) => one.cmp(other),
            (Self::Uint(one), Self::Uint(other)) => one.cmp(other),
            (Self::Double(one), Self::Double(other)) => return one.partial_cmp(other),
            (Self::Int(one), Self::Uint(other)) => i128::from(*one).cmp(&i128::from(*other)),
            (Self::Uint(one), Self::Int(other)) => i128::from(*one).cmp(&i128::from(*other)),
            (Self::Int(one), Self::Double(other)) => return int_to_double(*one, *other),
            (Self::Double(one), Self::Int(other)) => {
                return int_to_double(*other, *one).map(Ordering::reverse);
            }
            (Self::Uint(one), Self::Double(other)) => return uint_to_double(*one, *other),
            (Self::Double(one), Self::Uint(other)) => {
                return uint_to_double(*other, *one).map(Ordering::reverse);
            }
            (Self::String(one), Self::String(other)) => (**one).cmp(&**other),
            (Self::Bytes(one), Self::Bytes(other)) => one.cmp(other),
            (Self::Duration(one), Self::Duration(other)) => one.cmp(other),
            (Self::Timestamp(one), Self::Timestamp(other)) => one.cmp(other),
            _ => return None,
        })
    }

    /// Whether values of this type have an order among themselves.
    pub(crate) fn is_comparable(&self) -> bool {
        matches!(
            self,
            Self::Bool(_)
                | Self::Int(_)
                | Self::Uint(_)
                | Self::Double(_)
                | Self::String(_)
                | Self::Bytes(_)
                | Self::Duration(_)
                | Self::Timestamp(_)
        )
    }

    /// Whether there is nothing in it: `optional.ofNonZeroValue`.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(yes) => !yes,
            Self::Int(number) => *number == 0,
            Self::Uint(number) => *number == 0,
            Self::Double(number) => *number == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Duration(nanos) => *nanos == 0,
            Self::Timestamp(moment) => moment.is_zero(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Object(Object::Shared(made)) => made.fields.is_empty(),
            Self::Optional(value) => value.as_ref().is_none_or(|value| value.is_zero()),
            _ => false,
        }
    }
}

fn lists<'a>(one: &List<'a>, other: &List<'a>) -> bool {
    if one.len() != other.len() {
        return false;
    }
    // As upstream: what a schema says of the first operand decides.
    match one.kind() {
        ListKind::Atomic => one.iter().zip(other.iter()).all(|(one, other)| one.equals(&other)),
        ListKind::Set => sets(one, other),
        ListKind::Map(keys) => by_keys(one, other, keys),
    }
}

/// Elements that are compared with each other before they are looked up by what they are in JSON.
const FEW: usize = 16;

fn sets<'a>(one: &List<'a>, other: &List<'a>) -> bool {
    if one.len() > FEW
        && let Some(known) = one.iter().map(|element| set_key(&element)).collect::<Option<HashSet<_>>>()
    {
        return other.iter().all(|element| set_key(&element).is_some_and(|key| known.contains(&key)));
    }
    other.iter().all(|element| one.iter().any(|known| known.equals(&element)))
}

/// What an element of a set is known by.
pub(crate) fn set_key(element: &Value<'_>) -> Option<String> {
    element.to_json(&mut JsonBudget::default()).ok().map(|json| json.to_string())
}

fn by_keys<'a>(one: &List<'a>, other: &List<'a>, keys: &[Box<str>]) -> bool {
    let by_key: std::collections::HashMap<String, Value<'a>> =
        one.iter().map(|element| (key_of(&element, keys), element)).collect();
    other
        .iter()
        .all(|element| by_key.get(&key_of(&element, keys)).is_some_and(|known| known.equals(&element)))
}

/// What an element of a list by keys is known by.
pub(crate) fn key_of(element: &Value<'_>, keys: &[Box<str>]) -> String {
    let part = |key: &str| -> String {
        let value = match element {
            Value::Object(Object::Json { members, .. }) => members.get(key).map(Json::to_string),
            Value::Map(Map::Json { members, .. }) => members.get(key).map(Json::to_string),
            Value::Map(map) => map.field(key).map(|value| format!("{value:?}")),
            _ => None,
        };
        value.unwrap_or_default()
    };
    keys.iter().map(|key| part(key)).collect::<Vec<_>>().join("\u{0}")
}

fn maps<'a>(one: &Map<'a>, other: &Map<'a>) -> bool {
    if one.len() != other.len() {
        return false;
    }
    one.entries()
        .iter()
        .all(|(key, value)| other.contains(key) && other.get(key).is_some_and(|same| value.equals(&same)))
}

/// Whether an object has what a map has.
fn as_map<'a>(object: &Object<'a>, map: &Map<'a>) -> bool {
    let entries = object.entries();
    entries.len() == map.len()
        && entries.iter().all(|(name, value)| map.field(name).is_some_and(|same| value.equals(&same)))
}

fn objects<'a>(one: &Object<'a>, other: &Object<'a>) -> bool {
    match (one, other) {
        (Object::Shared(one), Object::Shared(other)) => {
            one.name == other.name
                && one.fields.len() == other.fields.len()
                && one
                    .fields
                    .iter()
                    .all(|(name, value)| other.fields.get(name).is_some_and(|same| value.equals(same)))
        }
        (Object::Json { members: one, declared }, Object::Json { members: other, declared: theirs }) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| {
                    let Some(same) = other.get(name) else { return false };
                    let known = crate::escape::escape(name)
                        .and_then(|name| Some((declared.member(&name)?, theirs.member(&name)?)));
                    match known {
                        Some((mine, theirs)) => Value::declared(value, &mine.declared)
                            .equals(&Value::declared(same, &theirs.declared)),
                        None => value == same,
                    }
                })
        }
        _ => false,
    }
}
