//! Takes paths out of a value, and completes sets by the fields on the way.
//!
//! Source: `typed.RemoveItems` and `Set.EnsureNamedFieldsAreMembers` of `sigs.k8s.io/structured-merge-diff`.

use serde_json::{Map, Value};

use super::element::Element;
use super::set::Set;
use super::typed::{Atom, Typed};

/// The value without the paths of `gone`. What has nothing left becomes null.
pub(super) fn remove(typed: Typed<'_>, value: &Value, gone: &Set<'_>) -> Value {
    if gone.is_empty() {
        return value.clone();
    }
    match (typed.atom(), value) {
        (Atom::Struct(_) | Atom::Map(_) | Atom::Any, Value::Object(map)) => {
            let kept: Map<String, Value> = map
                .iter()
                .filter_map(|(name, value)| {
                    let item = below(typed, &Element::field(name));
                    keep(item, value, gone, &Element::field(name)).map(|value| (name.clone(), value))
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Atom::List(list), Value::Array(items)) => {
            let keep = |item: &Value| match list.element(item) {
                Ok(element) => keep(list.item, item, gone, &element),
                Err(_) => Some(item.clone()),
            };
            let kept: Vec<Value> = items.iter().filter_map(keep).collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        // What is below something that has no parts cannot be taken out of it.
        (_, Value::Object(_) | Value::Array(_)) => Value::Null,
        (_, scalar) => scalar.clone(),
    }
}

fn keep(typed: Typed<'_>, value: &Value, gone: &Set<'_>, element: &Element<'_>) -> Option<Value> {
    match gone.get(element) {
        None => Some(value.clone()),
        Some(node) if node.is_member => None,
        Some(node) => Some(remove(typed, value, &node.children)),
    }
}

/// The type of what is at `element`.
pub(super) fn below<'a>(typed: Typed<'a>, element: &Element<'_>) -> Typed<'a> {
    match (typed.atom(), element) {
        (Atom::Struct(schema), Element::Field(name)) => {
            schema.field(name).map_or_else(|| typed.any(), |field| Typed::field(schema, field))
        }
        (Atom::Map(item), Element::Field(_)) => item,
        (Atom::List(list), Element::Key(_)) => list.item,
        _ => typed.any(),
    }
}

/// The set with the declared fields on the way to its members as members too.
pub(super) fn with_named_fields<'a>(typed: Typed<'_>, set: &Set<'a>) -> Set<'a> {
    let mut complete = Set::new();
    for node in set.nodes() {
        let is_declared = match (typed.atom(), &node.element) {
            (Atom::Struct(schema), Element::Field(name)) => schema.field(name).is_some(),
            _ => false,
        };
        let is_member = node.is_member || is_declared && !node.children.is_empty();
        let children = with_named_fields(below(typed, &node.element), &node.children);
        complete.attach(node.element.clone(), is_member, children);
    }
    complete
}
