//! Arenas made at run time: the schema of a custom kind, as a CustomResourceDefinition has it, becomes messages like
//! those of built-in kinds, with a table of rules beside them.
//!
//! Each object of the schema becomes a message, lists and maps become theirs, and `metadata` is the built-in one. Only
//! structural schemas are taken: everything that a rule speaks of has a type. Numbers of messages, and how deep they
//! nest, are bounded.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema`.

mod builtin;
mod checks;
mod complete;
pub mod definition;
mod lower;
mod parts;
mod props;
mod structural;

use serde_json::Value;

use crate::rows::Schemas;
use crate::rules::pattern::PatternError;
use crate::rules::violation::Violation;
use crate::walk::path::Path;
use crate::walk::stack::with_stack;
use crate::walk::validate::report::Report;
use props::Props;

/// How deep a schema may nest; parsers go no deeper.
const DEPTH_MAX: usize = 128;
/// How many ways in which something may hold (`allOf`, `anyOf`, `oneOf`) a schema may name. Large ones have a few hundred.
const ALTERNATIVES_MAX: usize = 5_000;

/// A kind and what its definition says of it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The kind of lists of it.
    pub list_kind: &'a str,
    /// The plural name, for documents.
    pub plural: &'a str,
    /// The path of the schema, such as `spec.versions[0].schema.openAPIV3Schema`.
    pub path: &'a str,
    /// The schema (`JSONSchemaProps`).
    pub schema: &'a Value,
}

/// The reason why there can be no arena. The texts are upstream's where it has any.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// The value is no schema.
    #[error("the schema cannot be read: {0}")]
    Malformed(String),
    /// A pattern of it is none.
    #[error("the schema cannot be read: {0}")]
    Pattern(#[from] PatternError),
    /// It uses what is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// It is not structural, or contradicts itself.
    #[error("the schema is not structural")]
    NotStructural(Vec<Violation>),
    /// It is larger than an arena can be.
    #[error("the schema has more than {max} {what}; make it smaller")]
    TooLarge {
        /// Of what there are too many.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
}

impl Source<'_> {
    /// A hash of all that an arena is made from, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        lower::fingerprint(self)
    }
}

/// Makes the arena of one version of a custom kind: the kind, the kind of its lists, and what they are made of.
///
/// # Errors
/// Everything that is wrong with the schema, in order of field.
pub fn build(source: &Source<'_>) -> Result<Schemas, BuildError> {
    let path = Path::Base(source.path);
    read(source.schema, |props| {
        let mut found = Report::default();
        structural::check(props, path, &mut found);
        complete::check(props, path, &mut found);
        structural::relied_on(props, path, &mut found);
        if !found.is_valid() {
            return Err(BuildError::NotStructural(sorted(found)));
        }
        lower::lower(source, props)
    })
}

/// The violations that keep a schema from being structural, in order of field; none if it is. `path` is where it
/// stands.
///
/// # Errors
/// When it uses what no structural schema has.
///
/// Source: `ValidateStructural`.
pub fn structural(schema: &Value, path: &str) -> Result<Vec<Violation>, BuildError> {
    read(schema, |props| {
        let mut found = Report::default();
        structural::check(props, Path::Base(path), &mut found);
        complete::check(props, Path::Base(path), &mut found);
        Ok(sorted(found))
    })
}

/// Reads a schema, and does with it what may recurse as deep as it does.
fn read<T>(schema: &Value, act: impl FnOnce(&Props) -> Result<T, BuildError>) -> Result<T, BuildError> {
    check_bounds(schema)?;
    with_stack(|| {
        let props = Props::read(schema)?;
        structural::supported(&props)?;
        act(&props)
    })
}

fn sorted(found: Report) -> Vec<Violation> {
    let mut violations = found.into_violations();
    violations.sort_by(|left, right| (&left.path, &left.detail).cmp(&(&right.path, &right.detail)));
    violations
}

/// Whether a schema can be read: it takes room for every schema within it, however short that is.
fn check_bounds(schema: &Value) -> Result<(), BuildError> {
    if !is_shallow(schema, DEPTH_MAX) {
        return Err(BuildError::TooLarge { what: "levels", max: DEPTH_MAX });
    }
    if alternatives(schema) > ALTERNATIVES_MAX {
        return Err(BuildError::TooLarge {
            what: "schemas in allOf, anyOf and oneOf",
            max: ALTERNATIVES_MAX,
        });
    }
    Ok(())
}

fn alternatives(value: &Value) -> usize {
    let within = |name: &str, value: &Value| match value {
        Value::Array(items) if matches!(name, "allOf" | "anyOf" | "oneOf") => items.len(),
        _ => 0,
    };
    match value {
        Value::Array(items) => items.iter().map(alternatives).sum(),
        Value::Object(object) => {
            object.iter().map(|(name, value)| within(name, value) + alternatives(value)).sum()
        }
        _ => 0,
    }
}

fn is_shallow(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| is_shallow(item, depth - 1)),
        Value::Object(object) => depth > 0 && object.values().all(|value| is_shallow(value, depth - 1)),
        _ => true,
    }
}

#[cfg(test)]
pub(crate) mod tests;
