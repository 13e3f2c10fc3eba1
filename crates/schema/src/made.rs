//! The arena of a custom kind, built when it is first needed and kept from then on.
//!
//! An arena takes six times the room of its definition, and of most kinds that are defined no object is ever written. So it
//! is built once to see that it can be and what is in it, and what is kept is the schema as it was written, compressed.
//! Documents need arenas for a moment: those that nobody else needs are built for them alone.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, OnceLock};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde_json::Value;

use crate::arena::SchemaRef;
use crate::build::{BuildError, Source, build};
use crate::rows::Schemas;

/// An object type that keeps its arena: the program's own, which costs nothing, or one that is made at run time and goes
/// with its last holder.
#[derive(Clone, Debug)]
pub struct Schema(Held);

#[derive(Clone, Debug)]
enum Held {
    Builtin(SchemaRef<'static>),
    Made(Arc<Made>),
}

impl Schema {
    /// The kind of a definition. Its arena is built to see that it can be, and again when it is first needed.
    ///
    /// # Errors
    /// Everything that is wrong with its schema, in order of field.
    pub fn of_definition(source: &Source<'_>) -> Result<Self, BuildError> {
        Made::new(source).map(|made| Self(Held::Made(Arc::new(made))))
    }

    /// The type. It is always there: an arena that could be built once can be built again.
    pub fn get(&self) -> Option<SchemaRef<'_>> {
        match &self.0 {
            Held::Builtin(schema) => Some(*schema),
            Held::Made(made) => made.get(),
        }
    }

    /// The facts of a custom kind that are known without its arena.
    pub fn made(&self) -> Option<&Made> {
        match &self.0 {
            Held::Builtin(_) => None,
            Held::Made(made) => Some(made),
        }
    }

    /// `true` if both are of the same custom kind, made at the same time.
    pub fn is(&self, other: &Self) -> bool {
        matches!((&self.0, &other.0), (Held::Made(own), Held::Made(other)) if Arc::ptr_eq(own, other))
    }
}

impl From<SchemaRef<'static>> for Schema {
    fn from(schema: SchemaRef<'static>) -> Self {
        Self(Held::Builtin(schema))
    }
}

/// A custom kind, with or without its arena.
pub struct Made {
    group: Box<str>,
    version: Box<str>,
    kind: Box<str>,
    list_kind: Box<str>,
    plural: Box<str>,
    /// The schema as it was written: JSON, compressed.
    written: Box<[u8]>,
    fingerprint: Box<str>,
    message_name: Box<str>,
    has_validations: bool,
    /// The index of the kind's message.
    index: u16,
    arena: OnceLock<Option<Arc<Schemas>>>,
}

impl Made {
    pub(crate) fn new(source: &Source<'_>) -> Result<Self, BuildError> {
        let arena = build(source)?;
        let schema = arena
            .own_kind(source.group, source.version, source.kind)
            .ok_or_else(|| BuildError::Malformed("it makes no kind".to_owned()))?;
        Ok(Self {
            group: source.group.into(),
            version: source.version.into(),
            kind: source.kind.into(),
            list_kind: source.list_kind.into(),
            plural: source.plural.into(),
            written: packed(source.schema).map_err(|why| BuildError::Malformed(why.to_string()))?,
            fingerprint: arena.fingerprint().into(),
            message_name: schema.message_name().into(),
            has_validations: arena.has_validations(),
            index: schema.index,
            arena: OnceLock::new(),
        })
    }

    /// A hash of all that the arena is made from, in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The name of the kind's message, such as `com.example.v1.Foo`.
    pub fn message_name(&self) -> &str {
        &self.message_name
    }

    /// `true` if any rule is to be evaluated over values.
    pub fn has_validations(&self) -> bool {
        self.has_validations
    }

    /// `true` if the arena is kept: if anybody has needed it.
    pub fn is_kept(&self) -> bool {
        self.arena.get().is_some()
    }

    /// The schema as it was written.
    pub fn written(&self) -> Value {
        let mut text = Vec::new();
        let read = DeflateDecoder::new(&*self.written).read_to_end(&mut text);
        read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    pub(crate) fn get(&self) -> Option<SchemaRef<'_>> {
        self.arena.get_or_init(|| self.build()).as_deref()?.at(self.index)
    }

    /// The arena, for a moment: it is not kept if it was not before.
    pub fn arena(&self) -> Option<Arc<Schemas>> {
        self.arena.get().cloned().unwrap_or_else(|| self.build())
    }

    fn build(&self) -> Option<Arc<Schemas>> {
        let source = Source {
            group: &self.group,
            version: &self.version,
            kind: &self.kind,
            list_kind: &self.list_kind,
            plural: &self.plural,
            path: "schema.openAPIV3Schema",
            schema: &self.written(),
        };
        build(&source).ok().map(Arc::new)
    }
}

impl fmt::Debug for Made {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = (&self.group, &self.version, &self.kind);
        formatter.debug_struct("Made").field("kind", &name).field("is_kept", &self.is_kept()).finish()
    }
}

fn packed(schema: &Value) -> std::io::Result<Box<[u8]>> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
    // At once: each write clears the whole of the encoder's room.
    packed.write_all(&serde_json::to_vec(schema)?)?;
    packed.finish().map(Vec::into_boxed_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(schema: &Value) -> Result<Made, BuildError> {
        Made::new(&Source {
            group: "example.com",
            version: "v1",
            kind: "Foo",
            list_kind: "FooList",
            plural: "foos",
            path: "schema.openAPIV3Schema",
            schema,
        })
    }

    fn schema() -> Value {
        let told = "What it is for. ".repeat(10);
        let field = |at: usize| (format!("f{at}"), json!({"type": "string", "description": told}));
        let fields: serde_json::Map<_, _> = (0..100).map(field).collect();
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}})
    }

    #[test]
    fn an_arena_is_kept_when_it_is_needed_and_not_when_it_is_looked_at() {
        let made = made(&schema()).unwrap();
        assert!(!made.is_kept());
        assert_eq!(made.message_name(), "com.example.v1.Foo");
        let looked_at = made.arena().unwrap();
        assert!(!made.is_kept());
        let index = made.get().unwrap().index;
        assert!(made.is_kept());
        assert!(!Arc::ptr_eq(&looked_at, &made.arena().unwrap()), "what was built first was not kept");
        assert!(Arc::ptr_eq(&made.arena().unwrap(), &made.arena().unwrap()));
        assert_eq!(looked_at.at(index).unwrap().message_name(), made.message_name());
        assert_eq!(looked_at.fingerprint(), made.fingerprint());
    }

    #[test]
    fn what_is_kept_is_small_and_says_the_same() {
        let made = made(&schema()).unwrap();
        assert_eq!(made.written(), schema());
        assert!(made.written.len() * 5 < schema().to_string().len(), "{}", made.written.len());
    }

    #[test]
    fn what_cannot_be_built_is_told_of_at_once() {
        assert!(matches!(made(&json!({"type": "no"})), Err(BuildError::NotStructural(_))));
    }
}
