//! The old value that a new one took the place of, and whether it is the same.
//!
//! Fields and entries are found by name, elements of maps by their keys. Elements of other lists cannot be told apart:
//! none has an old value, and whether one is as it was is whether the list is.
//! Source: `CorrelatedObject` of `k8s.io/apiserver/pkg/cel/common`, `makeMapList`.

use std::cell::OnceCell;
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::schema_node::SchemaNode;

/// A value, and what stood in its place before.
#[derive(Debug)]
pub(super) struct Pair<'v> {
    node: &'v SchemaNode,
    new: &'v Value,
    old: &'v Value,
    is_same: OnceCell<bool>,
}

impl<'v> Pair<'v> {
    pub(super) fn new(node: &'v SchemaNode, new: &'v Value, old: &'v Value) -> Self {
        Self { node, new, old, is_same: OnceCell::new() }
    }

    fn is_same(&self) -> bool {
        *self.is_same.get_or_init(|| is_same(Some(self.node), self.new, self.old))
    }
}

/// The nearest values that have been there before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Correlation<'c> {
    own: Option<&'c Pair<'c>>,
    parent: Option<&'c Pair<'c>>,
}

impl<'c> Correlation<'c> {
    /// That of a whole object.
    pub(super) fn root(pair: Option<&'c Pair<'c>>) -> Self {
        Self { own: pair, parent: None }
    }

    /// That of a part, by the pair that it makes with its old value, if it has one.
    pub(super) fn part(self, pair: Option<&'c Pair<'c>>) -> Self {
        if self.own.is_none() { self } else { Self { own: pair, parent: self.own } }
    }

    /// Whether this is of a whole object.
    pub(super) fn is_root(self) -> bool {
        self.parent.is_none()
    }

    /// Whether the value is as it was, so that what is wrong with it now was wrong before.
    pub(super) fn is_unchanged(self) -> bool {
        self.own.or(self.parent).is_some_and(Pair::is_same)
    }
}

/// The elements of an old list by their keys.
pub(super) struct OldElements<'v> {
    keys: &'v [String],
    elements: HashMap<String, &'v Value>,
}

impl<'v> OldElements<'v> {
    /// Those of a list whose elements can be told apart. Of several with the same keys the first one counts.
    pub(super) fn of(node: &'v SchemaNode, old: Option<&'v Value>) -> Option<Self> {
        let keys = node.keys.as_deref()?;
        let mut elements = HashMap::new();
        for element in old?.as_array()? {
            if let Some(key) = element.as_object().and_then(|object| key(keys, object)) {
                elements.entry(key).or_insert(element);
            }
        }
        Some(Self { keys, elements })
    }

    pub(super) fn of_element(&self, element: &Value) -> Option<&'v Value> {
        self.elements.get(&key(self.keys, element.as_object()?)?).copied()
    }
}

/// The keys of an element; `None` if one is not there or no scalar.
fn key(keys: &[String], element: &Map<String, Value>) -> Option<String> {
    let mut text = String::new();
    for name in keys {
        match element.get(name)? {
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
            value => text.push_str(&value.to_string()),
        }
        text.push('\n');
    }
    Some(text)
}

/// Whether two values are the same. What the schema does not have is never known to be.
fn is_same(node: Option<&SchemaNode>, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Array(new_elements), Value::Array(old_elements)) => {
            if new_elements.len() != old_elements.len() {
                return false;
            }
            let Some(node) = node else { return new == old };
            match (OldElements::of(node, Some(old)), node.items.as_deref()) {
                (Some(known), Some(items)) => new_elements.iter().all(|element| {
                    known.of_element(element).is_some_and(|old| is_same(Some(items), element, old))
                }),
                _ => new == old,
            }
        }
        (Value::Object(new), Value::Object(old)) => {
            let part = |name: &str| {
                let node = node?;
                node.properties.get(name).or(node.values.as_deref())
            };
            new.len() == old.len()
                && new.iter().all(|(name, value)| {
                    let (Some(old), Some(part)) = (old.get(name), part(name)) else { return false };
                    is_same(Some(part), value, old)
                })
        }
        (new, old) => new == old,
    }
}
