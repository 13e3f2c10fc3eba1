//! Paths to fields, such as `.spec.template['a.b']`, in a schema.
//!
//! Source: `ValidFieldPath` of `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel`.

use serde_json::Value;

use crate::build::props::Props;
use crate::walk::stack::with_stack;

/// The notation in which fields may be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// After a dot, or in brackets and quotes.
    Brackets,
    /// Only after a dot.
    Dots,
}

/// A schema in which paths are looked up.
#[derive(Debug)]
pub struct Fields(Props);

/// The schema to which a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The path in the form in which equal ones are equal.
    pub path: String,
    /// The first field of it.
    pub root: String,
    /// The type of what stands there; empty if it has none.
    pub ty: String,
}

/// The reason why a path leads nowhere. The texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The schema has no such field.
    #[error("does not refer to a valid field")]
    Nowhere,
    /// It ends in the middle of a step.
    #[error("unexpected end of JSON path")]
    End,
    /// It has brackets where only dots may be.
    #[error("array notation is not allowed")]
    Brackets,
    /// A step begins with something else.
    #[error("expected [ or . but got: {0}")]
    Step(String),
    /// Something else stands where the first was expected.
    #[error("expected {0} but got {1}")]
    Unexpected(&'static str, String),
    /// A backslash stands before what it does not go with.
    #[error("invalid string literal: invalid escape char \\{0}")]
    Escape(char),
}

impl Fields {
    /// The fields of a schema; `None` if it cannot be read.
    pub fn of(schema: &Value) -> Option<Self> {
        let is_bounded = super::check_bounds(schema).is_ok();
        is_bounded.then(|| with_stack(|| super::read(schema))).flatten().map(Self)
    }

    /// The schema to which a path leads.
    ///
    /// # Errors
    /// Why it leads nowhere.
    pub fn find(&self, path: &str, notation: Notation) -> Result<Found, PathError> {
        resolve(&self.0, path, notation)
    }
}

/// Looks a path up below a schema.
pub(super) fn resolve(props: &Props, path: &str, notation: Notation) -> Result<Found, PathError> {
    let mut tokens = Tokens(path);
    let mut at = Some(props);
    let mut found = Found { path: String::new(), root: String::new(), ty: String::new() };
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or(PathError::End)?.to_owned(),
            "[" if notation == Notation::Dots => return Err(PathError::Brackets),
            "[" => {
                let name = unquoted(tokens.next().ok_or(PathError::End)?)?;
                match tokens.next().ok_or(PathError::End)? {
                    "]" => name,
                    other => return Err(PathError::Unexpected("]", other.to_owned())),
                }
            }
            other => return Err(PathError::Step(other.to_owned())),
        };
        let here = at.ok_or(PathError::Nowhere)?;
        let is_field = !here.properties.is_empty();
        at = match is_field {
            true => Some(here.properties.get(&name).ok_or(PathError::Nowhere)?),
            false if here.additional_properties.is_some() => here.additional(),
            false => return Err(PathError::Nowhere),
        };
        if found.path.is_empty() {
            found.root.clone_from(&name);
        }
        match is_field {
            true => found.path.extend([".", &name]),
            false => found.path.extend(["[", &name, "]"]),
        }
    }
    found.ty = at.map(|schema| schema.ty.clone()).unwrap_or_default();
    Ok(found)
}

fn unquoted(token: &str) -> Result<String, PathError> {
    let inner = token.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let inner = inner.ok_or_else(|| PathError::Unexpected("single quoted string", token.to_owned()))?;
    let mut name = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => name.push(match chars.next() {
                Some(escaped @ ('\'' | '\\')) => escaped,
                Some('a') => '\u{7}',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('v') => '\u{b}',
                Some(other) => return Err(PathError::Escape(other)),
                None => '\\',
            }),
            other => name.push(other),
        }
    }
    Ok(name)
}

/// Dots, brackets, texts in quotes, and what stands between them.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0;
        let first = rest.chars().next()?;
        let end = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let mut before = first;
                let close = rest.char_indices().skip(1).find(|(_, c)| {
                    let is_close = *c == '\'' && before != '\\';
                    before = *c;
                    is_close
                });
                close.map_or(rest.len(), |(at, _)| at + 1)
            }
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at_checked(end)?;
        self.0 = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_leads_to_a_field_or_is_refused_with_a_reason() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a.b": {"type": "string"}, "it's": {"type": "integer"},
                "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
                "open": {"type": "object", "additionalProperties": true}, "leaf": {"type": "string"}}},
        }});
        let fields = Fields::of(&schema).expect("a schema");
        for (path, wanted) in [
            (".spec", Ok((".spec", "object"))),
            (".spec.leaf", Ok((".spec.leaf", "string"))),
            (".spec['a.b']", Ok((".spec.a.b", "string"))),
            ("['spec']['it\\'s']", Ok((".spec.it's", "integer"))),
            (".spec.map.x", Ok((".spec.map[x]", "boolean"))),
            (".spec.map['x y']", Ok((".spec.map[x y]", "boolean"))),
            (".spec.open.x", Ok((".spec.open[x]", ""))),
            ("", Ok(("", "object"))),
            (".spec.none", Err("does not refer to a valid field")),
            (".spec.leaf.x", Err("does not refer to a valid field")),
            (".spec.open.x.y", Err("does not refer to a valid field")),
            ("spec", Err("expected [ or . but got: spec")),
            (".", Err("unexpected end of JSON path")),
            (".spec[", Err("unexpected end of JSON path")),
            (".spec['a.b'", Err("unexpected end of JSON path")),
            (".spec['a.b'.x", Err("expected ] but got .")),
            (".spec[0]", Err("expected single quoted string but got 0")),
            (".spec['", Err("expected single quoted string but got '")),
            (".spec['a", Err("expected single quoted string but got 'a")),
            (".spec['\\x']", Err("invalid string literal: invalid escape char \\x")),
        ] {
            let found = fields.find(path, Notation::Brackets);
            let got = found.as_ref().map(|found| (&*found.path, &*found.ty)).map_err(ToString::to_string);
            assert_eq!(got, wanted.map_err(str::to_owned), "{path}");
        }
        let dots = fields.find(".spec['leaf']", Notation::Dots);
        assert_eq!(dots, Err(PathError::Brackets));
    }
}
