//! Conditions on values beside their types: the rules that the schema of a custom kind states, in a table beside the
//! arena.
//!
//! The arena says which fields there are and of what type, so that every walk knows the way; the table says what may
//! stand there. Rules of `x-kubernetes-validations` are kept as they are written, for whoever can evaluate them.

pub mod format;
pub mod pattern;
pub mod violation;

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use crate::Object;
use format::Format;
use pattern::Pattern;

/// The location of a value in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// The whole object of a kind, by the index of its message.
    Root(u16),
    /// A field, by the index of its message and its own among the message's.
    Field(u16, u16),
    /// The elements of a list, by its index.
    Item(u16),
    /// The values of a map, by its index.
    Value(u16),
}

/// The rules of a schema for one location.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The checks of its values.
    pub checks: Checks,
    /// The value that is filled in where there is none; without the fields that the schema does not have.
    pub default: Option<Value>,
    /// The expressions to evaluate over its values.
    pub validations: Vec<Validation>,
    /// The rules that the schema adds to a type that is not its own: the metadata of resources.
    pub overlay: Option<Box<Nested>>,
    /// The location's schema as it was written, but for the schemas of its parts, in JSON: only documents need it.
    pub(crate) written: Box<str>,
}

impl Rules {
    /// The location's schema as it was written, but for the schemas of its parts.
    pub fn written(&self) -> Object {
        serde_json::from_str(&self.written).unwrap_or_default()
    }
}

/// Checks of values.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// The JSON types that are allowed; all if there is none.
    pub types: &'static [&'static str],
    /// `true` if null is allowed.
    pub nullable: bool,
    /// The format in which a text or number is read.
    pub format: Option<Format>,
    /// The checks of texts.
    pub text: Option<Box<TextChecks>>,
    /// The checks of numbers.
    pub number: Option<Box<NumberChecks>>,
    /// The bounds of a list's length.
    pub items: Option<Counts>,
    /// `true` if the elements of a list differ.
    pub unique_items: bool,
    /// The bounds of an object's number of entries.
    pub properties: Option<Counts>,
    /// The only values that are allowed.
    pub allowed: Option<Box<Allowed>>,
    /// The fields that must be there.
    pub required: Vec<String>,
    /// Other conditions, joined by all, any, one or not.
    pub junctors: Option<Box<Junctors>>,
}

/// Values to choose from.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// The values, in the order in which they were written.
    pub values: Vec<Value>,
    keys: HashSet<String>,
}

impl Allowed {
    /// These values.
    pub fn new(values: Vec<Value>) -> Self {
        let keys = values.iter().map(key).collect();
        Self { values, keys }
    }

    /// `true` if a value is one of them. Null never is: it needs no choice where it is allowed.
    pub fn contains(&self, value: &Value) -> bool {
        !value.is_null() && self.keys.contains(&key(value))
    }
}

/// A text that equal values have in common, and others do not.
pub(crate) fn key(value: &Value) -> String {
    let whole = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
    match whole {
        Some(number) => format!("{number:.0}"),
        None => value.to_string(),
    }
}

/// Checks of texts; lengths in characters.
#[derive(Clone, Debug, Default)]
pub struct TextChecks {
    /// The least length.
    pub length_min: Option<i64>,
    /// The greatest length.
    pub length_max: Option<i64>,
    /// The pattern that must be found in it.
    pub pattern: Option<Pattern>,
}

/// Checks of numbers.
#[derive(Clone, Debug, Default)]
pub struct NumberChecks {
    /// The number that it must be a multiple of.
    pub multiple_of: Option<f64>,
    /// The greatest number.
    pub maximum: Option<Bound>,
    /// The least number.
    pub minimum: Option<Bound>,
}

/// A bound of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The bound itself.
    pub at: f64,
    /// `true` if the number itself is not allowed.
    pub is_exclusive: bool,
}

/// Bounds of a number of elements.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// At least.
    pub min: Option<i64>,
    /// At most.
    pub max: Option<i64>,
}

/// Conditions that must hold in all, any, one or none of several ways.
#[derive(Clone, Debug, Default)]
pub struct Junctors {
    /// All hold.
    pub all_of: Vec<Nested>,
    /// At least one holds.
    pub any_of: Vec<Nested>,
    /// Exactly one holds.
    pub one_of: Vec<Nested>,
    /// This does not hold.
    pub not: Option<Nested>,
}

/// Checks of a value and of its parts, without types of their own.
#[derive(Clone, Debug, Default)]
pub struct Nested {
    /// Those of the value.
    pub checks: Checks,
    /// Those of its fields.
    pub properties: BTreeMap<String, Nested>,
    /// Those of its elements.
    pub items: Option<Box<Nested>>,
}

/// A rule in CEL (`x-kubernetes-validations`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Validation {
    /// The expression that must be true.
    pub rule: String,
    /// The message when it is not.
    pub message: String,
    /// The expression that computes the message.
    pub message_expression: String,
    /// The reason of the error; empty for an invalid value.
    pub reason: String,
    /// The field that is blamed, below the location.
    pub field_path: String,
    /// `true` if the rule is evaluated without an old value, too.
    pub optional_old_self: Option<bool>,
}
