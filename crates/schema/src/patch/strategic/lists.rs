//! Lists in a strategic merge patch: finding elements by key, list-level directives, and the final order.
//!
//! Elements are found through an index, so that long lists cost no more than their length.

use super::super::PatchError;
use super::{PATCH, bad_patch_type, clean};
use crate::Object;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The positions of a list's elements by the text of their key.
#[derive(Default)]
pub(super) struct Order {
    positions: BTreeMap<String, usize>,
    length: usize,
}

impl Order {
    /// Reads the keys; elements that are not objects are their own keys.
    pub(super) fn new(items: &[Value], key: &str) -> Result<Self, PatchError> {
        let mut order = Self::default();
        for item in items {
            order.push(name_of(item, key)?);
        }
        Ok(order)
    }

    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    pub(super) fn push(&mut self, name: String) {
        let at = self.length;
        self.positions.entry(name).or_insert(at);
        self.length += 1;
    }

    /// Checks that all items that stay are in this order, one after the other; an order of nothing says nothing. `stated`
    /// is it as the patch has it.
    pub(super) fn check(&self, items: &[Value], stated: &[Value], key: &str) -> Result<(), PatchError> {
        let mut last = None;
        for item in items.iter().filter(|item| item.get(PATCH).is_none()) {
            let position = self.position(&name_of(item, key)?);
            if self.length > 0 && (position.is_none() || position < last) {
                return Err(PatchError::Malformed(format!(
                    "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                    go_list(items),
                    go_list(stated)
                )));
            }
            last = position;
        }
        Ok(())
    }
}

/// The text of an object's key field.
pub(super) fn key_of(object: &Object, key: &str) -> Result<String, PatchError> {
    match object.get(key) {
        Some(value) => Ok(value.to_string()),
        None => Err(PatchError::Invalid(format!(
            "map: {} does not contain declared merge key: {key}",
            go_map(object)
        ))),
    }
}

fn name_of(item: &Value, key: &str) -> Result<String, PatchError> {
    match item {
        Value::Object(object) if !key.is_empty() => key_of(object, key),
        other => Ok(other.to_string()),
    }
}

/// An object as Go's `%v` prints it.
pub(super) fn go_map(object: &Object) -> String {
    let entries: Vec<String> =
        object.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
    format!("map[{}]", entries.join(" "))
}

pub(super) fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => go_list(items),
        Value::Object(object) => go_map(object),
        other => other.to_string(),
    }
}

fn go_list(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" "))
}

/// Both lists without what directives ask for.
pub(super) struct Plan {
    pub(super) original: Vec<Value>,
    pub(super) patch: Vec<Value>,
}

pub(super) enum Planned {
    /// The patch replaces the list.
    Replaced(Vec<Value>),
    Merge(Plan),
}

/// Obeys the elements that carry `$patch` and takes them out.
pub(super) fn directives(original: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<Planned, PatchError> {
    let mut rest = Vec::with_capacity(patch.len());
    let mut gone = BTreeSet::new();
    let mut replaced = false;
    for item in patch {
        let Some(directive) = item.get(PATCH) else {
            rest.push(item);
            continue;
        };
        match (directive.as_str(), &item) {
            (Some("delete"), Value::Object(object)) => {
                gone.insert(key_of(object, key)?);
            }
            (Some("replace"), _) => replaced = true,
            (Some("merge"), _) => {
                return Err(PatchError::Invalid("merging lists cannot yet be specified in the patch".into()));
            }
            (_, Value::Object(object)) => return Err(bad_patch_type(directive, object)),
            _ => rest.push(item),
        }
    }
    if replaced {
        return Ok(Planned::Replaced(rest));
    }
    let mut kept = Vec::with_capacity(original.len());
    for item in original {
        if gone.is_empty() || !gone.contains(&name_of(&item, key)?) {
            kept.push(item);
        }
    }
    Ok(Planned::Merge(Plan { original: kept, patch: rest }))
}

/// Merges lists of plain values: each value once.
pub(super) fn merge_primitives(original: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, PatchError> {
    let (server, wanted) = (Order::new(&original, "")?, Order::new(&patch, "")?);
    let mut seen = BTreeSet::new();
    let merged = original.into_iter().chain(patch).filter(|value| seen.insert(value.to_string())).collect();
    sort(merged, &wanted, &server, "")
}

/// Puts elements that the patch names into the patch's order, and the others where the server had them.
pub(super) fn sort(
    items: Vec<Value>,
    wanted: &Order,
    server: &Order,
    key: &str,
) -> Result<Vec<Value>, PatchError> {
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let name = name_of(&item, key)?;
        let position = server.position(&name);
        match wanted.position(&name) {
            Some(at) => named.push((at, position, item)),
            None => others.push((position, item)),
        }
    }
    named.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(position, _)| position.unwrap_or(usize::MAX));
    let mut sorted = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, position, item) in named {
        let before =
            |other: &(Option<usize>, Value)| matches!((other.0, position), (Some(l), Some(r)) if l < r);
        while let Some((_, other)) = others.next_if(before) {
            sorted.push(other);
        }
        sorted.push(item);
    }
    sorted.extend(others.map(|(_, item)| item));
    Ok(sorted)
}

/// The elements of a patch's list as they are taken over where there is nothing to merge with.
pub(super) fn cleaned(items: Vec<Value>) -> Vec<Value> {
    items.into_iter().filter_map(clean).collect()
}
