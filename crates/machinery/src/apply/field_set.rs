//! The paths that a configuration names, and whether it fits its schema at all.
//!
//! Source: `typed.ToFieldSet` and `typed.Validate` of `sigs.k8s.io/structured-merge-diff`; the texts are theirs.

use std::collections::BTreeSet;

use schema::Type;
use schema::go::type_name;
use serde_json::{Map, Value};

use super::element::Element;
use super::set::Set;
use super::typed::{Associative, Atom, Typed, Values};

/// How many problems are reported at most.
const PROBLEMS_MAX: usize = 100;

/// Every leaf and every list element of a value.
pub(super) fn field_set<'a>(typed: Typed<'a>, value: &'a Value) -> Set<'a> {
    children(typed, value).1
}

/// Whether the value itself is a leaf, and what is below.
fn children<'a>(typed: Typed<'a>, value: &'a Value) -> (bool, Set<'a>) {
    let mut set = Set::new();
    match (typed.atom(), value) {
        (Atom::Struct(schema), Value::Object(map)) => {
            for (name, value) in map {
                let field = schema.field(name);
                let item = field.map_or_else(|| typed.any(), |field| Typed::field(schema, field));
                let (is_leaf, below) = children(item, value);
                let is_member = is_leaf || field.is_none() || is_empty(value);
                set.attach(Element::field(name), is_member, below);
            }
        }
        (Atom::Map(item), Value::Object(map)) => keyed(item, map, &mut set),
        (Atom::Any, Value::Object(map)) => keyed(typed.any(), map, &mut set),
        (Atom::List(list), Value::Array(items)) => elements(list, items, &mut set),
        (Atom::Struct(_) | Atom::Map(_) | Atom::List(_), Value::Null) => {}
        _ => return (true, set),
    }
    (false, set)
}

fn keyed<'a>(item: Typed<'a>, map: &'a Map<String, Value>, set: &mut Set<'a>) {
    for (name, value) in map {
        set.attach(Element::field(name), true, children(item, value).1);
    }
}

fn elements<'a>(list: Associative<'a>, items: &'a [Value], set: &mut Set<'a>) {
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for element in items.iter().filter_map(|item| list.element(item).ok()) {
        if !seen.insert(element.clone()) {
            twice.insert(element);
        }
    }
    for item in items {
        let Ok(element) = list.element(item) else { continue };
        let below = if twice.contains(&element) { Set::new() } else { children(list.item, item).1 };
        set.attach(element, true, below);
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// What is wrong with a configuration: unknown fields, wrong types, elements that cannot be told apart.
pub(super) fn problems(typed: Typed<'_>, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(typed, value, "", &mut found);
    found
}

fn check(typed: Typed<'_>, value: &Value, path: &str, found: &mut Vec<String>) {
    if found.len() >= PROBLEMS_MAX || value.is_null() {
        return;
    }
    let mut report =
        |text: String| found.push(if path.is_empty() { text } else { format!("{path}: {text}") });
    match (typed.values(), value) {
        (Values::Scalar(ty), value) => {
            if let Some(text) = wrong_scalar(ty, value) {
                report(text);
            }
        }
        (Values::Object(schema), Value::Object(map)) => {
            for (name, value) in map {
                let path = format!("{path}.{name}");
                match Typed::named(schema, name) {
                    Some(item) => check(item, value, &path, found),
                    None => found.push(format!("{path}: field not declared in schema")),
                }
            }
        }
        (Values::Map(item), Value::Object(map)) => {
            for (name, value) in map {
                check(item, value, &format!("{path}.{name}"), found);
            }
        }
        (Values::List(item), Value::Array(items)) => {
            let associative = match typed.atom() {
                Atom::List(list) => Some(list),
                _ => None,
            };
            let mut seen = BTreeSet::new();
            for (at, value) in items.iter().enumerate() {
                let element = match associative.map(|list| list.element(value)) {
                    None => Element::Index(i64::try_from(at).unwrap_or(i64::MAX)),
                    Some(Ok(element)) => {
                        if !seen.insert(element.clone()) {
                            found.push(format!("{path}: duplicate entries for key {element}"));
                        }
                        element
                    }
                    Some(Err(text)) => {
                        found.push(format!("{path}: element {at}: {text}"));
                        return;
                    }
                };
                check(item, value, &format!("{path}{element}"), found);
            }
        }
        (Values::Object(_) | Values::Map(_), other) => {
            report(format!("expected map, got &{{{}}}", go(other)))
        }
        (Values::List(_), other) => report(format!("expected list, got &{{{}}}", go(other))),
        (Values::Any, _) => {}
    }
}

fn wrong_scalar(ty: Type, value: &Value) -> Option<String> {
    let is_container = value.is_object() || value.is_array();
    match ty {
        Type::Int32 | Type::Int64 | Type::Double if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", type_name(value)))
        }
        Type::String | Type::Bytes if !value.is_string() => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)))
        }
        Type::Bool if !value.is_boolean() => Some(format!("expected boolean, got &{{{}}}", go(value))),
        _ if is_container => Some(format!("expected any scalar, got &{{{}}}", go(value))),
        _ => None,
    }
}

/// As Go's `%v` prints it.
fn go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(name, value)| format!("{name}:{}", go(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

/// As Go's `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let entry = |(name, value): (&String, &Value)| format!("{name:?}:{}", go_syntax(value));
            format!("map[string]interface {{}}{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
