//! Field paths and validation errors, with upstream's texts.
//!
//! Source: `k8s.io/apimachinery/pkg/util/validation/field`.

use std::fmt;

pub use schema::go::quote;
use serde_json::Value;

/// A path to a field, such as `spec.containers[0].name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// A path that starts at `name`.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The field `name` of this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { self.with([".", name, ""]) }
    }

    /// Element `index` of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.key(&index.to_string())
    }

    /// The value under `key` of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(["[", key, "]"])
    }

    /// Rules make paths for every field that they look at, broken or not: one allocation each.
    fn with(&self, ends: [&str; 3]) -> Self {
        let mut path = String::with_capacity(self.0.len() + ends.iter().map(|end| end.len()).sum::<usize>());
        path.push_str(&self.0);
        ends.iter().for_each(|end| path.push_str(end));
        Self(path)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// The reason why a field is wrong; the variant decides `Status.details.causes[].reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `FieldValueRequired`
    Required,
    /// `FieldValueInvalid`
    Invalid,
    /// `FieldValueNotSupported`
    NotSupported,
    /// `FieldValueForbidden`
    Forbidden,
    /// `FieldValueDuplicate`
    Duplicate,
    /// `FieldValueNotFound`
    NotFound,
    /// `FieldValueTooLong`
    TooLong,
    /// `FieldValueTooMany`
    TooMany,
    /// `FieldValueTypeInvalid`
    TypeInvalid,
    /// `InternalError`
    Internal,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field.
    pub path: Path,
    /// The kind of rule.
    pub reason: Reason,
    /// The text after the path, value included, as upstream prints it.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl Reason {
    /// The reason of a `Status` cause, such as `FieldValueInvalid`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }
}

/// The value found at a broken field, in the form in which it is printed: strings quoted, the rest as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown(String);

impl Shown {
    /// A value that has its printed form already.
    #[must_use]
    pub fn printed(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Shown {
    fn from(text: &str) -> Self {
        Self(quote(text))
    }
}

impl From<&String> for Shown {
    fn from(text: &String) -> Self {
        Self(quote(text))
    }
}

impl From<String> for Shown {
    fn from(text: String) -> Self {
        Self(quote(&text))
    }
}

impl From<i64> for Shown {
    fn from(number: i64) -> Self {
        Self(number.to_string())
    }
}

impl From<bool> for Shown {
    fn from(flag: bool) -> Self {
        Self(flag.to_string())
    }
}

impl From<&Value> for Shown {
    fn from(value: &Value) -> Self {
        match value {
            Value::String(text) => Self(quote(text)),
            // An absent value is printed like the text `null`.
            Value::Null => Self(quote("null")),
            other => Self(other.to_string()),
        }
    }
}

impl From<Option<&Value>> for Shown {
    fn from(value: Option<&Value>) -> Self {
        value.map_or_else(|| Self("null".to_owned()), Self::from)
    }
}

impl FieldError {
    /// `Required value: detail`; `detail` may be empty.
    pub fn required(path: &Path, detail: &str) -> Self {
        Self::of(path, Reason::Required, joined("Required value".to_owned(), detail))
    }

    /// `Invalid value: detail`, for a value that nobody should see.
    pub fn invalid_unshown(path: &Path, detail: &str) -> Self {
        Self::of(path, Reason::Invalid, joined("Invalid value".to_owned(), detail))
    }

    /// `Invalid value: "x": detail`.
    pub fn invalid(path: &Path, value: impl Into<Shown>, detail: &str) -> Self {
        Self::of(path, Reason::Invalid, joined(format!("Invalid value: {}", value.into().0), detail))
    }

    /// `Invalid value: "x": detail` for a value of the wrong type.
    pub fn type_invalid(path: &Path, value: impl Into<Shown>, detail: &str) -> Self {
        Self::of(path, Reason::TypeInvalid, joined(format!("Invalid value: {}", value.into().0), detail))
    }

    /// `Unsupported value: "x": supported values: "A", "B"`, in the given order.
    pub fn not_supported(path: &Path, value: impl Into<Shown>, supported: &[&str]) -> Self {
        let quoted: Vec<_> = supported.iter().map(|s| quote(s)).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::of(
            path,
            Reason::NotSupported,
            joined(format!("Unsupported value: {}", value.into().0), &detail),
        )
    }

    /// `Forbidden: detail`.
    pub fn forbidden(path: &Path, detail: &str) -> Self {
        Self::of(path, Reason::Forbidden, joined("Forbidden".to_owned(), detail))
    }

    /// `Duplicate value: "x"`.
    pub fn duplicate(path: &Path, value: impl Into<Shown>) -> Self {
        Self::of(path, Reason::Duplicate, format!("Duplicate value: {}", value.into().0))
    }

    /// `Duplicate value`, for a value that nobody should see.
    pub fn duplicate_unshown(path: &Path) -> Self {
        Self::of(path, Reason::Duplicate, "Duplicate value".to_owned())
    }

    /// `Not found: "x"`.
    pub fn not_found(path: &Path, value: impl Into<Shown>) -> Self {
        Self::of(path, Reason::NotFound, format!("Not found: {}", value.into().0))
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(path: &Path, bytes_max: usize) -> Self {
        let noun = if bytes_max == 1 { "byte" } else { "bytes" };
        Self::of(path, Reason::TooLong, format!("Too long: may not be more than {bytes_max} {noun}"))
    }

    /// `Too many: N: must have at most M items`.
    pub fn too_many(path: &Path, items: usize, items_max: usize) -> Self {
        let noun = if items_max == 1 { "item" } else { "items" };
        Self::of(path, Reason::TooMany, format!("Too many: {items}: must have at most {items_max} {noun}"))
    }

    /// `Internal error: detail`.
    pub fn internal(path: &Path, detail: &str) -> Self {
        Self::of(path, Reason::Internal, joined("Internal error".to_owned(), detail))
    }

    fn of(path: &Path, reason: Reason, message: String) -> Self {
        Self { path: path.clone(), reason, message }
    }
}

fn joined(head: String, detail: &str) -> String {
    if detail.is_empty() { head } else { format!("{head}: {detail}") }
}

/// More errors than this are only counted: a body of 3 MiB can break a million rules, and nobody reads so many.
const ERRORS_MAX: usize = 1000;

/// Every broken rule of one object, in the order in which upstream reports them; of very many, the first ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors {
    kept: Vec<FieldError>,
    left_out: usize,
}

impl FieldErrors {
    /// None yet.
    pub const fn new() -> Self {
        Self { kept: Vec::new(), left_out: 0 }
    }

    /// Adds one.
    pub fn push(&mut self, error: FieldError) {
        if self.kept.len() < ERRORS_MAX { self.kept.push(error) } else { self.left_out += 1 }
    }

    /// Counts errors that nobody can read.
    pub fn leave_out(&mut self, errors: usize) {
        self.left_out += errors;
    }

    /// The number of errors beside those that can be read.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl std::ops::Deref for FieldErrors {
    type Target = [FieldError];

    fn deref(&self) -> &[FieldError] {
        &self.kept
    }
}

impl Extend<FieldError> for FieldErrors {
    fn extend<T: IntoIterator<Item = FieldError>>(&mut self, errors: T) {
        errors.into_iter().for_each(|error| self.push(error));
    }
}

impl FromIterator<FieldError> for FieldErrors {
    fn from_iter<T: IntoIterator<Item = FieldError>>(errors: T) -> Self {
        let mut all = Self::new();
        all.extend(errors);
        all
    }
}

impl From<FieldError> for FieldErrors {
    fn from(error: FieldError) -> Self {
        Self { kept: vec![error], left_out: 0 }
    }
}

impl IntoIterator for FieldErrors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.into_iter()
    }
}

impl<'a> IntoIterator for &'a FieldErrors {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.iter()
    }
}

#[cfg(test)]
mod tests;
