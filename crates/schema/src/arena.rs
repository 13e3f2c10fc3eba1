//! Looking things up in an arena of schemas.
//!
//! A reference is an arena and an index: two words to copy, valid as long as the arena. An index that the arena
//! does not have cannot come out of a lookup.

use crate::generated::{kinds::KINDS, messages};
use crate::rows::{Field, Kind, List, ListKind, Message, Names, Schemas, Type};
use crate::rules::{Location, Rules};
use std::borrow::Cow;
use std::collections::BTreeMap;

static BUILTIN: Schemas = Schemas {
    messages: Cow::Borrowed(&messages::MESSAGES),
    lists: Cow::Borrowed(&messages::LISTS),
    maps: Cow::Borrowed(&messages::MAPS),
    kinds: Cow::Borrowed(&KINDS),
    rules: BTreeMap::new(),
    fingerprint: Cow::Borrowed(""),
};

/// The options and events that every group-version lists among its kinds.
const GROUPLESS: &[&str] = &[
    "ApplyOptions",
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
    "WatchEvent",
];

/// The schemas of all built-in kinds.
pub fn builtin() -> &'static Schemas {
    &BUILTIN
}

/// An object type within its arena.
#[derive(Clone, Copy, Debug)]
pub struct SchemaRef<'a> {
    pub(crate) schemas: &'a Schemas,
    pub(crate) index: u16,
    pub(crate) message: &'a Message,
}

/// A type within its arena.
#[derive(Clone, Copy, Debug)]
pub struct TypeRef<'a> {
    /// The arena.
    pub schemas: &'a Schemas,
    /// The type.
    pub ty: Type,
}

/// The shape of a type.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'a> {
    /// A value without parts, or one whose parts are not told apart.
    Scalar,
    /// Anything that JSON has.
    Json,
    /// An object with fields.
    Object(SchemaRef<'a>),
    /// A map with text keys and values of one type.
    Map(TypeRef<'a>),
    /// A list.
    List(TypeRef<'a>, ListKind, &'a Names),
}

impl Schemas {
    /// The message behind a kind; `None` if this arena does not have it.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<SchemaRef<'_>> {
        let options = || {
            self.message(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"))
                .filter(|_| GROUPLESS.contains(&kind))
        };
        self.own_kind(group, version, kind).or_else(options)
    }

    /// The message behind a kind that only its own group-version has.
    pub(crate) fn own_kind(&self, group: &str, version: &str, kind: &str) -> Option<SchemaRef<'_>> {
        let wanted = (group, version, kind);
        let found = self.kinds.binary_search_by(|row| (&*row.group, &*row.version, &*row.kind).cmp(&wanted));
        self.at(self.kinds.get(found.ok()?)?.message)
    }

    /// The message of this name, such as `io.k8s.api.core.v1.Pod`.
    pub fn message(&self, name: &str) -> Option<SchemaRef<'_>> {
        let index = self.messages.binary_search_by(|message| (*message.name).cmp(name)).ok()?;
        self.at(u16::try_from(index).ok()?)
    }

    /// All kinds, in order of group, version and kind.
    pub fn kinds(&self) -> impl Iterator<Item = (&Kind, SchemaRef<'_>)> {
        self.kinds.iter().filter_map(|kind| Some((kind, self.at(kind.message)?)))
    }

    /// All messages, in order of name.
    pub fn messages(&self) -> impl Iterator<Item = SchemaRef<'_>> {
        (0..self.messages.len()).filter_map(|index| self.at(u16::try_from(index).ok()?))
    }

    /// The message at an index.
    pub fn at(&self, index: u16) -> Option<SchemaRef<'_>> {
        let message = self.messages.get(usize::from(index))?;
        Some(SchemaRef { schemas: self, index, message })
    }

    /// The list type at an index.
    pub fn list(&self, index: u16) -> Option<&List> {
        self.lists.get(usize::from(index))
    }

    /// The type of a map's values, by its index.
    pub fn map(&self, index: u16) -> Type {
        self.maps.get(usize::from(index)).copied().unwrap_or(Type::Json)
    }

    /// A hash of what the arena was made from at run time, in hexadecimal; empty for built-in kinds.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// `true` if any rule is to be evaluated over values.
    pub fn has_validations(&self) -> bool {
        self.rules.values().any(|rules| !rules.validations.is_empty())
    }

    /// The rules for a value at this location, beside its type.
    pub fn rules(&self, location: Location) -> Option<&Rules> {
        self.rules.get(&location)
    }

    /// The type of a list's elements.
    pub(crate) fn item(&self, index: u16) -> Type {
        self.list(index).map_or(Type::Json, |list| list.item)
    }

    /// A type's name as Go prints it.
    pub(crate) fn go_type(&self, ty: Type) -> String {
        match ty {
            Type::Bool => "bool".into(),
            Type::Int32 => "int32".into(),
            Type::Int64 => "int64".into(),
            Type::Double => "float64".into(),
            Type::String => "string".into(),
            Type::Bytes => "[]uint8".into(),
            Type::Quantity => "resource.Quantity".into(),
            Type::IntOrString => "intstr.IntOrString".into(),
            Type::Time => "v1.Time".into(),
            Type::MicroTime => "v1.MicroTime".into(),
            Type::Duration => "v1.Duration".into(),
            Type::Json => "runtime.RawExtension".into(),
            Type::FieldsV1 => "v1.FieldsV1".into(),
            Type::PropsOrArray => "v1.JSONSchemaPropsOrArray".into(),
            Type::PropsOrBool => "v1.JSONSchemaPropsOrBool".into(),
            Type::PropsOrStrings => "v1.JSONSchemaPropsOrStringArray".into(),
            Type::Message(index) => self.at(index).map_or_else(String::new, |schema| {
                let mut parts = schema.message.name.rsplitn(3, '.');
                let (name, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{version}.{name}")
            }),
            Type::List(index) | Type::Wrapped(index) => format!("[]{}", self.go_type(self.item(index))),
            Type::Map(index) => format!("map[string]{}", self.go_type(self.map(index))),
        }
    }
}

impl<'a> SchemaRef<'a> {
    /// The arena.
    pub fn schemas(self) -> &'a Schemas {
        self.schemas
    }

    /// The message.
    pub fn message(self) -> &'a Message {
        self.message
    }

    /// The message's name, such as `io.k8s.api.core.v1.Pod`.
    pub fn message_name(self) -> &'a str {
        &self.message.name
    }

    /// The fields as JSON has them, in order of name.
    pub fn fields(self) -> &'a [Field] {
        &self.message.fields
    }

    /// The field of this JSON name.
    pub fn field(self, name: &str) -> Option<&'a Field> {
        self.message.field(name).map(|(_, field)| field)
    }

    /// The type of the field of this JSON name.
    pub fn field_type(self, name: &str) -> Option<TypeRef<'a>> {
        Some(TypeRef { schemas: self.schemas, ty: self.field(name)?.ty })
    }

    /// The message as a type.
    pub fn as_type(self) -> TypeRef<'a> {
        TypeRef { schemas: self.schemas, ty: Type::Message(self.index) }
    }
}

impl<'a> TypeRef<'a> {
    /// The shape of the type.
    pub fn shape(self) -> Shape<'a> {
        let of = |ty| TypeRef { schemas: self.schemas, ty };
        match self.ty {
            Type::Json => Shape::Json,
            Type::Message(index) => self.schemas.at(index).map_or(Shape::Json, Shape::Object),
            Type::Map(index) => Shape::Map(of(self.schemas.map(index))),
            Type::List(index) | Type::Wrapped(index) => match self.schemas.list(index) {
                Some(list) => Shape::List(of(list.item), list.kind, &list.keys),
                None => Shape::Json,
            },
            _ => Shape::Scalar,
        }
    }
}
