//! A broken rule: of a value against its schema, or of a schema against what schemas may be.

use serde_json::Value;

/// The kind of a broken rule; upstream's error types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// The value is missing.
    Required,
    /// The value may not be what it is.
    Invalid,
    /// The value is of the wrong type.
    TypeInvalid,
    /// The value is none of those that are allowed.
    NotSupported,
    /// The text is too long.
    TooLong,
    /// There are too many.
    TooMany,
    /// The value is there already.
    Duplicate,
    /// Nothing may stand here.
    Forbidden,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The path of the field; empty if the rule is not of one field.
    pub path: String,
    /// The kind of rule.
    pub problem: Problem,
    /// The value found there; of [`Problem::TooMany`], how many.
    pub value: Value,
    /// The description of what is wrong; may be empty.
    pub detail: String,
    /// The largest length or number, of [`Problem::TooLong`] and [`Problem::TooMany`].
    pub max: i64,
    /// The values that are allowed, of [`Problem::NotSupported`].
    pub supported: Vec<String>,
}

impl Violation {
    /// A broken rule about a value.
    pub(crate) fn new(path: String, problem: Problem, value: Value, detail: impl Into<String>) -> Self {
        Self { path, problem, value, detail: detail.into(), max: 0, supported: Vec::new() }
    }

    /// A broken rule of which the path says enough.
    pub(crate) fn plain(path: String, problem: Problem, detail: impl Into<String>) -> Self {
        Self::new(path, problem, Value::Null, detail)
    }
}
