//! The names of custom kinds: each is one definition's in a group, and who has it keeps it.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/controller/status/naming_controller.go`.

use std::collections::BTreeSet;

use machinery::field::quote;
use serde_json::{Map, Value};

/// How many short names that somebody else has are told.
const CONFLICTS_MAX: usize = 50;

/// The names that definitions of one group have been given.
#[derive(Clone, Debug, Default)]
pub struct Taken<'a> {
    resources: BTreeSet<&'a str>,
    kinds: BTreeSet<&'a str>,
}

impl<'a> Taken<'a> {
    /// The names that these definitions have, as far as they are of `group`.
    pub fn of(group: &str, definitions: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut taken = Self::default();
        for definition in definitions {
            let is_of_group = definition.pointer("/spec/group").and_then(Value::as_str) == Some(group);
            if is_of_group && let Some(names) = definition.pointer("/status/acceptedNames") {
                taken.resources.extend([text(names, "plural"), text(names, "singular")]);
                taken.resources.extend(list(names, "shortNames"));
                taken.kinds.extend([text(names, "kind"), text(names, "listKind")]);
            }
        }
        taken
    }
}

/// The names that a definition is given, of those that it wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// The names that it has now (`status.acceptedNames`).
    pub names: Value,
    /// The conflict that is told, of several the last: its reason and message.
    pub conflict: Option<(&'static str, String)>,
}

/// Gives a definition the names that it wants and nobody else has; what it cannot get stays as it was.
///
/// Names that it has itself are its own only as what they are: a singular that is its own plural is taken, as upstream
/// has it.
pub fn give(definition: &Value, taken: &Taken<'_>) -> Given {
    let empty = Value::Null;
    let wanted = definition.pointer("/spec/names").unwrap_or(&empty);
    let had = definition.pointer("/status/acceptedNames").unwrap_or(&empty);
    let mut names = had.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    let mut is_free = |reason, taken: Option<String>| match taken {
        None => true,
        Some(message) => {
            conflict = Some((reason, message));
            false
        }
    };
    let one = |field: &str, taken: &BTreeSet<&str>| {
        let name = text(wanted, field);
        (name != text(had, field) && taken.contains(name)).then(|| in_use(name))
    };
    for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        if is_free(reason, one(field, &taken.resources)) {
            names.insert(field.to_owned(), text(wanted, field).into());
        }
    }
    if is_free("ShortNamesConflict", short_names(wanted, had, taken)) {
        copy_list(wanted, "shortNames", &mut names);
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        if is_free(reason, one(field, &taken.kinds)) {
            names.insert(field.to_owned(), text(wanted, field).into());
        }
    }
    copy_list(wanted, "categories", &mut names);
    names.retain(|_, value| value.as_str() != Some(""));
    for field in ["plural", "kind"] {
        names.entry(field).or_insert_with(|| "".into());
    }
    Given { names: names.into(), conflict }
}

/// What is told of the short names that cannot be had: all or none can.
fn short_names(wanted: &Value, had: &Value, taken: &Taken<'_>) -> Option<String> {
    let own: BTreeSet<&str> = list(had, "shortNames").collect();
    let mut seen = BTreeSet::new();
    let conflicts = list(wanted, "shortNames")
        .filter(|name| !own.contains(name) && taken.resources.contains(name) && seen.insert(*name));
    let messages: Vec<String> = conflicts.take(CONFLICTS_MAX).map(in_use).collect();
    match messages.as_slice() {
        [] => None,
        [message] => Some(message.clone()),
        _ => Some(format!("[{}]", messages.join(", "))),
    }
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", quote(name))
}

fn copy_list(from: &Value, field: &str, into: &mut Map<String, Value>) {
    match from.get(field).filter(|value| value.as_array().is_some_and(|list| !list.is_empty())) {
        Some(value) => into.insert(field.to_owned(), value.clone()),
        None => into.remove(field),
    };
}

fn text<'a>(names: &'a Value, field: &str) -> &'a str {
    names.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(names: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    names.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
