//! The built-in messages that custom kinds are made with, taken over into an arena of their own.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::parts::Parts;
use crate::rows::{Field, Message, Schemas, Type};

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The messages of metadata and all that they refer to, by their index among the built-in ones.
pub(super) fn needed(schemas: &Schemas) -> BTreeSet<u16> {
    let mut found = BTreeSet::new();
    let mut queue: Vec<u16> =
        [OBJECT_META, LIST_META].iter().filter_map(|name| Some(schemas.message(name)?.index)).collect();
    while let Some(index) = queue.pop() {
        let Some(schema) = schemas.at(index).filter(|_| found.insert(index)) else { continue };
        queue.extend(schema.fields().iter().filter_map(|field| message_of(schemas, field.ty)));
    }
    found
}

fn message_of(schemas: &Schemas, ty: Type) -> Option<u16> {
    match ty {
        Type::Message(index) => Some(index),
        Type::List(index) | Type::Wrapped(index) => message_of(schemas, schemas.item(index)),
        Type::Map(index) => message_of(schemas, schemas.map(index)),
        _ => None,
    }
}

/// Copies a message; `indexes` says where the messages that it refers to are in the new arena.
pub(super) fn copy(
    schemas: &Schemas,
    index: u16,
    indexes: &BTreeMap<u16, u16>,
    parts: &mut Parts,
) -> Option<Message> {
    let message = schemas.at(index)?.message;
    let mut fields: Vec<Field> = message.fields.to_vec();
    for field in &mut fields {
        field.ty = moved(schemas, field.ty, indexes, parts)?;
    }
    Some(Message { name: message.name.clone(), flags: message.flags, fields: Cow::Owned(fields) })
}

fn moved(schemas: &Schemas, ty: Type, indexes: &BTreeMap<u16, u16>, parts: &mut Parts) -> Option<Type> {
    Some(match ty {
        Type::Message(index) => Type::Message(*indexes.get(&index)?),
        Type::List(index) | Type::Wrapped(index) => {
            let mut list = schemas.list(index)?.clone();
            list.item = moved(schemas, list.item, indexes, parts)?;
            Type::List(parts.list(list).ok()?)
        }
        Type::Map(index) => {
            let values = moved(schemas, schemas.map(index), indexes, parts)?;
            Type::Map(parts.map(values).ok()?)
        }
        other => other,
    })
}
