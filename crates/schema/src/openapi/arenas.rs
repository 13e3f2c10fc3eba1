//! The arenas that a document is made from: that of the built-in kinds, and one for each version of a custom kind.

use crate::arena::SchemaRef;
use crate::rows::{Kind, Schemas, Type};

/// Several arenas, in which kinds are looked up one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Arenas<'a> {
    /// One arena.
    One(&'a Schemas),
    /// Several arenas.
    Several(&'a [&'a Schemas]),
}

impl<'a> From<&'a Schemas> for Arenas<'a> {
    fn from(schemas: &'a Schemas) -> Self {
        Self::One(schemas)
    }
}

impl<'a> From<&'a [&'a Schemas]> for Arenas<'a> {
    fn from(schemas: &'a [&'a Schemas]) -> Self {
        Self::Several(schemas)
    }
}

impl<'a> Arenas<'a> {
    fn iter(self) -> impl Iterator<Item = &'a Schemas> {
        let (one, several) = match self {
            Self::One(schemas) => (Some(schemas), &[][..]),
            Self::Several(schemas) => (None, schemas),
        };
        one.into_iter().chain(several.iter().copied())
    }

    pub(super) fn message(self, name: &str) -> Option<SchemaRef<'a>> {
        self.iter().find_map(|schemas| schemas.message(name))
    }

    pub(super) fn kinds(self) -> impl Iterator<Item = (&'a Kind, SchemaRef<'a>)> {
        self.iter().flat_map(|schemas| schemas.kinds())
    }

    /// The name of the message behind a kind. One that an arena has as its own comes before the options that all have.
    pub(super) fn name(self, (group, version, kind): (&str, &str, &str)) -> Option<&'a str> {
        let own = |schemas: &'a Schemas| schemas.own_kind(group, version, kind);
        let found = self.iter().find_map(own);
        found
            .or_else(|| self.iter().find_map(|schemas| schemas.kind(group, version, kind)))
            .map(SchemaRef::message_name)
    }

    /// The name of the message of lists of a kind, whatever they are called.
    pub(super) fn list_name(self, gvk: (&str, &str, &str)) -> Option<&'a str> {
        if let Some(name) = self.name((gvk.0, gvk.1, &format!("{}List", gvk.2))) {
            return Some(name);
        }
        let element = self.name(gvk)?;
        let is_list = |schema: &SchemaRef<'_>| match schema.field("items").map(|field| field.ty) {
            Some(Type::List(index)) => match schema.schemas.item(index) {
                Type::Message(item) => {
                    schema.schemas.at(item).is_some_and(|item| item.message_name() == element)
                }
                _ => false,
            },
            _ => false,
        };
        self.kinds().map(|(_, schema)| schema).find(is_list).map(SchemaRef::message_name)
    }
}
