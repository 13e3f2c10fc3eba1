//! A value beside the one whose place it takes, and whether it is the same.
//!
//! Fields and entries are found by name, elements of maps by their keys, wherever they stand. Elements of other lists cannot
//! be told apart: they have no old value, and are the same where the whole list is. What the schema does not have is never
//! known to be the same. Source: `CorrelatedObject` of `k8s.io/apiserver/pkg/cel/common`, `MakeMapList`.

use std::collections::HashMap;

use serde_json::Value;

use super::Parts;
use crate::Object;
use crate::rows::{ListKind, Names, Schemas, Type};
use crate::rules::Location;

/// A value, and what stood in its place before.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a, 'v> {
    pub(super) new: &'v Value,
    old: Option<&'v Value>,
    /// What the parts of both are found by; `None` if the schema has nothing of it.
    shape: Option<Parts<'a>>,
}

impl<'a, 'v> Seen<'a, 'v> {
    pub(super) fn new(value: &'v Value) -> Self {
        Self { new: value, old: None, shape: None }
    }

    /// A whole value of this type.
    pub(super) fn of(ty: Type, new: &'v Value, old: Option<&'v Value>) -> Self {
        Self { new, old, shape: Some(Parts::Typed(ty)) }
    }

    /// The same value, whose parts are found by others.
    pub(super) fn with(self, shape: Parts<'a>) -> Self {
        Self { shape: Some(shape), ..self }
    }

    /// Whether both are the same, so that what is wrong now was wrong before.
    pub(super) fn is_same(self, schemas: &Schemas) -> bool {
        self.old.is_some_and(|old| is_same(schemas, self.shape, self.new, old))
    }

    /// A part that is found by name.
    pub(super) fn part(self, schemas: &'a Schemas, name: &str, new: &'v Value) -> Self {
        let shape = self.shape.and_then(|shape| part(schemas, shape, name));
        let old = self.old.and_then(|old| old.get(name)).filter(|_| shape.is_some());
        Self { new, old, shape }
    }

    /// What the elements of the value, if it is a list, are found by.
    pub(super) fn elements(self, schemas: &'a Schemas) -> Elements<'a, 'v> {
        match self.old {
            Some(Value::Array(old)) => Elements::of(schemas, self.shape, old),
            _ => Elements { keys: None, old: HashMap::new(), shape: None },
        }
    }
}

/// The elements that a list had before, by their keys if it is a map. Of several with the same keys the first one counts.
pub(super) struct Elements<'a, 'v> {
    keys: Option<&'a Names>,
    old: HashMap<String, &'v Value>,
    shape: Option<Parts<'a>>,
}

impl<'a, 'v> Elements<'a, 'v> {
    fn of(schemas: &'a Schemas, shape: Option<Parts<'a>>, old: &'v [Value]) -> Self {
        let list = match shape {
            Some(Parts::Typed(Type::List(index))) => schemas.list(index),
            _ => None,
        };
        let list = list.filter(|list| list.kind == ListKind::Map && !list.keys.is_empty());
        let mut elements = HashMap::new();
        for element in list.iter().flat_map(|list| old.iter().map(|element| (&list.keys, element))) {
            if let (keys, element @ Value::Object(object)) = element
                && let Some(key) = key(keys, object)
            {
                elements.entry(key).or_insert(element);
            }
        }
        Self {
            keys: list.map(|list| &list.keys),
            old: elements,
            shape: list.map(|list| Parts::Typed(list.item)),
        }
    }

    /// An element beside its old value, if it has one.
    pub(super) fn element(&self, new: &'v Value) -> Seen<'a, 'v> {
        Seen { new, old: self.before(new), shape: self.shape }
    }

    fn before(&self, element: &Value) -> Option<&'v Value> {
        self.old.get(&key(self.keys?, element.as_object()?)?).copied()
    }
}

/// The keys of an element; `None` if one is not there or no scalar.
fn key(names: &Names, element: &Object) -> Option<String> {
    let mut text = String::new();
    for name in names.iter() {
        match element.get(name)? {
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
            value => text.push_str(&value.to_string()),
        }
        text.push('\n');
    }
    Some(text)
}

/// What the parts of a part are found by; `None` if the schema does not have it.
fn part<'a>(schemas: &'a Schemas, shape: Parts<'a>, name: &str) -> Option<Parts<'a>> {
    match shape {
        Parts::Nested(nested) => nested.properties.get(name).map(Parts::Nested),
        Parts::Typed(Type::Message(index)) => {
            let (at, field) = schemas.at(index)?.message.field(name)?;
            // Resources have fields that no schema names.
            schemas.rules(Location::Field(index, u16::try_from(at).ok()?))?;
            Some(Parts::Typed(field.ty))
        }
        Parts::Typed(Type::Map(index)) => {
            schemas.rules(Location::Value(index))?;
            Some(Parts::Typed(schemas.map(index)))
        }
        Parts::Typed(_) => None,
    }
}

fn is_same(schemas: &Schemas, shape: Option<Parts<'_>>, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Array(new), Value::Array(old)) => {
            let known = Elements::of(schemas, shape, old);
            let is_kept = |element| {
                let before = known.before(element);
                before.is_some_and(|before| is_same(schemas, known.shape, element, before))
            };
            new.len() == old.len() && if known.keys.is_some() { new.iter().all(is_kept) } else { new == old }
        }
        (Value::Object(new), Value::Object(old)) => {
            let is_kept = |(name, value): (&String, &Value)| {
                let (Some(shape), Some(old)) = (shape, old.get(name)) else { return false };
                part(schemas, shape, name).is_some_and(|part| is_same(schemas, Some(part), value, old))
            };
            new.len() == old.len() && new.iter().all(is_kept)
        }
        (new, old) => new == old,
    }
}
