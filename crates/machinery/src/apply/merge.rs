//! Merges an applied configuration into an object: what the configuration says wins, and nothing is removed.
//!
//! Lists keep the object's order where the configuration says nothing, and take the configuration's otherwise.
//! Source: `typed.Merge` of `sigs.k8s.io/structured-merge-diff`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::element::Element;
use super::typed::{Associative, Atom, Typed};

/// The object with the configuration merged in.
pub(super) fn merge(typed: Typed<'_>, live: &Value, config: &Value) -> Value {
    value(typed, Some(live), Some(config))
}

fn value(typed: Typed<'_>, live: Option<&Value>, config: Option<&Value>) -> Value {
    let (live, config) = match (live, config) {
        (Some(live), Some(config)) => (live, config),
        (one, other) => return other.or(one).cloned().unwrap_or_default(),
    };
    match (typed.atom(), live, config) {
        (Atom::Struct(schema), Value::Object(live), Value::Object(config)) => entries(live, config, |name| {
            schema.field(name).map_or_else(|| typed.any(), |field| Typed::field(schema, field))
        }),
        (Atom::Map(item), Value::Object(live), Value::Object(config)) => entries(live, config, |_| item),
        (Atom::Any, Value::Object(live), Value::Object(config)) => entries(live, config, |_| typed.any()),
        (Atom::List(list), Value::Array(live), Value::Array(config))
            if !(live.is_empty() && config.is_empty()) =>
        {
            Value::Array(elements(list, live, config))
        }
        // A null container names nothing.
        (Atom::Struct(_) | Atom::Map(_) | Atom::Any, Value::Object(map), Value::Null) if !map.is_empty() => {
            live.clone()
        }
        (Atom::List(_), Value::Array(items), Value::Null) if !items.is_empty() => live.clone(),
        _ => config.clone(),
    }
}

fn entries<'a>(
    live: &Map<String, Value>,
    config: &Map<String, Value>,
    typed: impl Fn(&str) -> Typed<'a>,
) -> Value {
    let mut merged = live.clone();
    for (name, config) in config {
        let new = value(typed(name), live.get(name), Some(config));
        merged.insert(name.clone(), new);
    }
    Value::Object(merged)
}

fn elements(list: Associative<'_>, live: &[Value], config: &[Value]) -> Vec<Value> {
    let live = with_elements(list, live);
    let config = with_elements(list, config);
    let mut known: BTreeMap<&Element<'_>, Option<&Value>> = BTreeMap::new();
    for (element, item) in &live {
        known.entry(element).and_modify(|first| *first = None).or_insert(Some(item));
    }
    let wanted: BTreeSet<&Element<'_>> = config.iter().map(|(element, _)| element).collect();
    let mut shared = config.iter().map(|(element, _)| element).filter(|element| known.contains_key(element));
    let mut next_shared = shared.next();
    let merged_with = |element: &Element<'_>, new: &Value| {
        value(list.item, known.get(element).copied().flatten(), Some(new))
    };
    let (mut done, mut out) = (BTreeSet::new(), Vec::with_capacity(live.len().max(config.len())));
    let (mut lives, mut configs) = (live.iter().peekable(), config.iter().peekable());
    while lives.peek().is_some() || configs.peek().is_some() {
        if let (Some((old, _)), Some((new, item))) = (lives.peek(), configs.peek()) {
            if old == new {
                done.insert(new);
                out.push(merged_with(new, item));
                lives.next();
                configs.next();
                next_shared = shared.next();
                continue;
            }
            if wanted.contains(old) && next_shared.is_some_and(|next| next != old) {
                lives.next();
                continue;
            }
        }
        if let Some((old, item)) = lives.peek() {
            if !wanted.contains(old) {
                out.push((*item).clone());
                lives.next();
                continue;
            }
            if done.contains(old) {
                lives.next();
            }
        }
        if let Some((new, item)) = configs.next() {
            done.insert(new);
            out.push(merged_with(new, item));
            if next_shared == Some(new) {
                next_shared = shared.next();
            }
        }
    }
    out
}

fn with_elements<'a>(list: Associative<'a>, items: &'a [Value]) -> Vec<(Element<'a>, &'a Value)> {
    items.iter().filter_map(|item| Some((list.element(item).ok()?, item))).collect()
}

#[cfg(test)]
mod tests;
