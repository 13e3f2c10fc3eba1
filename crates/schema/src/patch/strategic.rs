//! Strategic merge patch: a merge patch that merges lists by key, as the schema's patch strategies say.
//!
//! Directives: `$patch` (`replace`, `delete`), `$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>` and
//! `$retainKeys`. What the schema does not know is merged as plain JSON; decoding the result refuses it.
//! Source: `k8s.io/apimachinery/pkg/util/strategicpatch`.

mod lists;

use super::PatchError;
use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Field, Schemas, Type};
use lists::Order;
use serde_json::Value;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";

pub(super) fn apply(schema: SchemaRef<'_>, target: Value, patch: Value) -> Result<Value, PatchError> {
    let (Value::Object(mut target), Value::Object(patch)) = (target, patch) else {
        return Err(malformed("invalid JSON document"));
    };
    let merger = Merger { schemas: schema.schemas };
    merger.object(&mut target, patch, Type::Message(schema.index))?;
    Ok(Value::Object(target))
}

fn malformed(text: &str) -> PatchError {
    PatchError::Malformed(text.to_owned())
}

fn bad_patch_type(directive: &Value, object: &Object) -> PatchError {
    let directive = directive.as_str().unwrap_or("not a string");
    PatchError::Invalid(format!("unknown patch type: {directive} in map: {}", lists::go_map(object)))
}

/// A value as Go's `%v` prints it.
pub fn go_text(value: &Value) -> String {
    lists::go_value(value)
}

struct Merger<'a> {
    schemas: &'a Schemas,
}

/// What the schema says about the value under one key.
#[derive(Clone, Copy)]
struct Facts<'a> {
    ty: Type,
    field: Option<&'a Field>,
}

impl Facts<'_> {
    fn merges(&self) -> bool {
        self.field.is_some_and(Field::merges)
    }

    fn merge_key(&self) -> &str {
        self.field.map_or("", |field| &field.merge_key)
    }
}

impl<'a> Merger<'a> {
    fn facts(&self, parent: Type, key: &str) -> Facts<'a> {
        match parent {
            Type::Message(index) => {
                let field = self.schemas.at(index).and_then(|schema| schema.field(key));
                Facts { ty: field.map_or(Type::Json, |field| field.ty), field }
            }
            Type::Map(index) => Facts { ty: self.schemas.map(index), field: None },
            _ => Facts { ty: Type::Json, field: None },
        }
    }

    /// Merges `patch` into `target`.
    fn object(&self, target: &mut Object, mut patch: Object, ty: Type) -> Result<(), PatchError> {
        if let Some(directive) = patch.get(PATCH) {
            match directive.as_str() {
                Some("replace") => {
                    patch.remove(PATCH);
                    *target = without_directives(patch);
                }
                Some("delete") => target.clear(),
                _ => return Err(bad_patch_type(directive, &patch)),
            }
            return Ok(());
        }
        retain_keys(target, &mut patch)?;
        self.ordered_lists(target, &mut patch, ty)?;
        for (key, value) in patch {
            if let Some(list) = key.strip_prefix(DELETE_FROM_PRIMITIVE_LIST) {
                delete_from_primitive_list(target, list, value)?;
                continue;
            }
            if value.is_null() {
                target.remove(&key);
                continue;
            }
            let facts = self.facts(ty, &key);
            match (target.get_mut(&key), value) {
                (Some(Value::Object(inner)), Value::Object(patch)) => {
                    if facts.field.is_some_and(Field::replaces) {
                        *inner = without_directives(patch);
                    } else {
                        self.object(inner, patch, facts.ty)?;
                    }
                }
                (Some(Value::Array(items)), Value::Array(patch)) if facts.merges() => {
                    let original = std::mem::take(items);
                    *items = self.list(original, patch, facts)?;
                }
                (_, value) => {
                    match clean(value) {
                        Some(value) => target.insert(key, value),
                        None => target.remove(&key),
                    };
                }
            }
        }
        Ok(())
    }

    /// Merges the lists whose order the patch states, and takes them out of the patch.
    fn ordered_lists(&self, target: &mut Object, patch: &mut Object, ty: Type) -> Result<(), PatchError> {
        let directives: Vec<String> =
            patch.keys().filter(|key| key.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
        for directive in directives {
            const BAD: &str = "invalid patch format of setElementOrder list";
            let Some(Value::Array(order)) = patch.remove(&directive) else { return Err(malformed(BAD)) };
            let name = directive.strip_prefix(SET_ELEMENT_ORDER).unwrap_or_default();
            let facts = self.facts(ty, name);
            let stated = order;
            let order = Order::new(&stated, facts.merge_key())?;
            let patched = match patch.get(name) {
                None => None,
                Some(Value::Array(_)) => match patch.remove(name) {
                    Some(Value::Array(items)) => Some(items),
                    _ => None,
                },
                // A null deletes the list; anything else is for decoding to refuse.
                Some(_) => continue,
            };
            if let Some(items) = &patched {
                order.check(items, &stated, facts.merge_key())?;
            }
            let original = match target.remove(name) {
                Some(Value::Array(items)) => Some(items),
                _ => None,
            };
            let server = original.as_deref().map(|items| Order::new(items, facts.merge_key())).transpose()?;
            let merged = match (original, patched) {
                (None, None) => continue,
                (Some(original), None) => original,
                (None, Some(patch)) => lists::cleaned(patch),
                (Some(original), Some(patch)) if facts.merges() => self.list(original, patch, facts)?,
                (Some(_), Some(patch)) => lists::cleaned(patch),
            };
            let sorted = lists::sort(merged, &order, &server.unwrap_or_default(), facts.merge_key())?;
            target.insert(name.to_owned(), Value::Array(sorted));
        }
        Ok(())
    }

    /// Merges two lists by key, or by value if their elements are not objects.
    fn list(
        &self,
        original: Vec<Value>,
        patch: Vec<Value>,
        facts: Facts<'_>,
    ) -> Result<Vec<Value>, PatchError> {
        let item = match facts.ty {
            Type::List(index) => self.schemas.item(index),
            _ => Type::Json,
        };
        let key = facts.merge_key();
        if original.iter().chain(&patch).any(Value::is_array) {
            return Err(malformed("lists of lists are not supported"));
        }
        if key.is_empty() {
            return lists::merge_primitives(original, patch);
        }
        let plan = match lists::directives(original, patch, key)? {
            lists::Planned::Replaced(items) => return Ok(lists::cleaned(items)),
            lists::Planned::Merge(plan) => plan,
        };
        let server = Order::new(&plan.original, key)?;
        let wanted = Order::new(&plan.patch, key)?;
        let mut merged = plan.original;
        let mut positions = Order::new(&merged, key)?;
        for value in plan.patch {
            let Value::Object(patch) = value else {
                return Err(malformed("invalid JSON document"));
            };
            let name = lists::key_of(&patch, key)?;
            match positions.position(&name).and_then(|at| merged.get_mut(at)) {
                Some(Value::Object(inner)) => self.object(inner, patch, item)?,
                _ => {
                    positions.push(name);
                    merged.extend(clean(Value::Object(patch)));
                }
            }
        }
        lists::sort(merged, &wanted, &server, key)
    }
}

/// Removes the keys that `$retainKeys` does not name.
fn retain_keys(target: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    const BAD: &str = "invalid patch format of retainKeys";
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(names) = directive else { return Err(malformed(BAD)) };
    let retained: Option<std::collections::BTreeSet<&str>> = names.iter().map(Value::as_str).collect();
    let Some(retained) = retained else { return Err(malformed(BAD)) };
    let is_directive =
        |key: &str| key.starts_with(DELETE_FROM_PRIMITIVE_LIST) || key.starts_with(SET_ELEMENT_ORDER);
    let unknown = |(key, value): (&String, &Value)| {
        !value.is_null() && !is_directive(key) && !retained.contains(key.as_str())
    };
    if patch.iter().any(unknown) {
        return Err(malformed(BAD));
    }
    target.retain(|key, _| retained.contains(key.as_str()));
    Ok(())
}

fn delete_from_primitive_list(target: &mut Object, list: &str, values: Value) -> Result<(), PatchError> {
    let Value::Array(values) = values else {
        return Err(malformed("invalid patch format of primitive list"));
    };
    if let Some(Value::Array(items)) = target.get_mut(list) {
        let gone: std::collections::BTreeSet<String> = values.iter().map(Value::to_string).collect();
        items.retain(|item| !gone.contains(&item.to_string()));
    }
    Ok(())
}

/// A value of the patch as it is taken over where there is nothing to merge with: no nulls, no directives. An
/// object that only says what to do with another one is nothing by itself.
fn clean(value: Value) -> Option<Value> {
    match value {
        Value::Object(object) if object.contains_key(PATCH) => None,
        Value::Object(object) => Some(Value::Object(without_directives(object))),
        Value::Array(items) => Some(Value::Array(lists::cleaned(items))),
        other => Some(other),
    }
}

fn without_directives(object: Object) -> Object {
    let is_directive = |key: &str| {
        key == PATCH
            || key == RETAIN_KEYS
            || key.starts_with(SET_ELEMENT_ORDER)
            || key.starts_with(DELETE_FROM_PRIMITIVE_LIST)
    };
    object
        .into_iter()
        .filter(|(key, value)| !value.is_null() && !is_directive(key))
        .filter_map(|(key, value)| Some((key, clean(value)?)))
        .collect()
}

#[cfg(test)]
mod tests;
