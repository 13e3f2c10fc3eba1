//! The rows of a schema, and the short constructors that the generated rows are written with.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::rules::{Location, Rules};

pub(crate) use Type::*;

/// The field must be there.
pub(crate) const REQUIRED: u16 = 1;
/// Go leaves the field out when it is empty, zero or false.
pub(crate) const OMIT_ZERO: u16 = 1 << 1;
/// Go holds the object by value, so it is always written, at least as `{}`.
pub(crate) const BY_VALUE: u16 = 1 << 2;
/// Patch strategy `merge`.
pub(crate) const MERGE: u16 = 1 << 3;
/// Patch strategy `retainKeys`.
pub(crate) const RETAIN_KEYS: u16 = 1 << 4;
/// Patch strategy `replace`.
pub(crate) const REPLACE: u16 = 1 << 5;
/// The map or object changes hands as a whole in server-side apply.
pub(crate) const ATOMIC: u16 = 1 << 6;
/// Go writes null when the field is not set.
pub(crate) const NULL: u16 = 1 << 7;
/// The object keeps fields that it does not know (`x-kubernetes-preserve-unknown-fields`).
pub(crate) const PRESERVE: u16 = 1 << 8;
/// The object is a whole resource (`x-kubernetes-embedded-resource`).
pub(crate) const EMBEDDED: u16 = 1 << 9;
/// Wrong types and nulls below are left for validation to report, which knows the rules.
pub(crate) const LENIENT: u16 = 1 << 10;
/// Server-side apply takes fields that the object does not know: unknown ones are preserved there or above, or none are named.
pub(crate) const OPEN: u16 = 1 << 11;

/// An arena of messages, lists and maps that name each other by index, and the kinds that stand for messages.
#[derive(Clone, Debug)]
pub struct Schemas {
    /// In order of name.
    pub(crate) messages: Cow<'static, [Message]>,
    pub(crate) lists: Cow<'static, [List]>,
    /// The types of map values.
    pub(crate) maps: Cow<'static, [Type]>,
    /// In order of group, version and kind.
    pub(crate) kinds: Cow<'static, [Kind]>,
    /// What values must be beside their types; built-in kinds have theirs in code.
    pub(crate) rules: BTreeMap<Location, Rules>,
    /// What it was made from at run time: a hash of that in hexadecimal. Empty for built-in kinds.
    pub(crate) fingerprint: Cow<'static, str>,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A floating-point number.
    Double,
    /// Text.
    String,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A quantity such as `100m`; a number is taken as its text.
    Quantity,
    /// A whole number or a text.
    IntOrString,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// A duration in Go's notation, such as `1m0s`.
    Duration,
    /// Any JSON (`RawExtension`, `JSON`).
    Json,
    /// An object whose keys are a set of field paths (`FieldsV1`).
    FieldsV1,
    /// `JSONSchemaPropsOrArray`: an object or a list of objects.
    PropsOrArray,
    /// `JSONSchemaPropsOrBool`: an object or a boolean.
    PropsOrBool,
    /// `JSONSchemaPropsOrStringArray`: an object or a list of texts.
    PropsOrStrings,
    /// An object, by its index among the messages.
    Message(u16),
    /// A list, by its index among the lists.
    List(u16),
    /// A list that protobuf wraps into a message (`ExtraValue`).
    Wrapped(u16),
    /// A map with text keys, by the index of its values' type.
    Map(u16),
}

/// An object type.
#[derive(Clone, Debug)]
pub struct Message {
    /// The name in OpenAPI's spelling, such as `io.k8s.api.core.v1.Pod`.
    pub name: Cow<'static, str>,
    pub(crate) flags: u16,
    /// The fields as JSON has them, in order of name.
    pub fields: Cow<'static, [Field]>,
}

/// A field of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name in JSON.
    pub name: Cow<'static, str>,
    /// The type of its value.
    pub ty: Type,
    /// The protobuf field number; 0 when protobuf does not have the field.
    pub number: u16,
    pub(crate) flags: u16,
    /// The numbers of the embedded messages that lead to this field in protobuf, from the outside in. JSON
    /// shows the fields of embedded messages beside their siblings.
    pub via: Cow<'static, [u16]>,
    /// The key by which strategic merge patch finds the elements of this list; may be empty.
    pub merge_key: Cow<'static, str>,
    /// The declared default as JSON text; may be empty.
    pub default: Cow<'static, str>,
}

/// A list type.
#[derive(Clone, Debug)]
pub struct List {
    /// The type of the elements.
    pub item: Type,
    /// The merge of the list in server-side apply.
    pub kind: ListKind,
    /// The fields that identify an element of a [`ListKind::Map`].
    pub keys: Names,
}

/// Names in constant rows, or such as were read at run time.
#[derive(Clone, Debug)]
pub enum Names {
    /// Of a constant row.
    Fixed(&'static [&'static str]),
    /// Read at run time.
    Read(Box<[std::string::String]>),
}

/// The merge of a list in server-side apply (`x-kubernetes-list-type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Not stated; treated as atomic.
    Unset,
    /// As a whole.
    Atomic,
    /// By value.
    Set,
    /// By key fields.
    Map,
}

/// The message behind a group, version and kind.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The group, empty for core.
    pub group: Cow<'static, str>,
    /// The version.
    pub version: Cow<'static, str>,
    /// The kind.
    pub kind: Cow<'static, str>,
    pub(crate) message: u16,
}

impl Names {
    /// No names.
    pub const NONE: Self = Self::Fixed(&[]);

    /// The names, in the order in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|index| match self {
            Self::Fixed(names) => names.get(index).copied(),
            Self::Read(names) => names.get(index).map(AsRef::as_ref),
        })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Fixed(names) => names.len(),
            Self::Read(names) => names.len(),
        }
    }

    /// `true` if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Message {
    /// `true` if it keeps fields that it does not know, as they are.
    pub fn preserves_unknown_fields(&self) -> bool {
        self.flags & PRESERVE != 0
    }

    /// `true` if it is a whole resource within another one, with `apiVersion`, `kind` and `metadata`.
    pub fn is_embedded_resource(&self) -> bool {
        self.flags & EMBEDDED != 0
    }

    /// `true` if decoding leaves wrong types and nulls in it for validation to report.
    pub fn is_lenient(&self) -> bool {
        self.flags & LENIENT != 0
    }

    /// `true` if server-side apply changes it as a whole.
    pub fn is_atomic(&self) -> bool {
        self.flags & ATOMIC != 0
    }

    /// `true` if server-side apply takes fields that it does not know.
    pub fn is_open(&self) -> bool {
        self.flags & OPEN != 0
    }

    /// The last part of the name, such as `Pod`.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// The field of this JSON name, with its index.
    pub fn field(&self, name: &str) -> Option<(usize, &Field)> {
        let index = self.fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?;
        Some((index, self.fields.get(index)?))
    }
}

impl Field {
    /// `true` if it must be there.
    pub fn is_required(&self) -> bool {
        self.flags & REQUIRED != 0
    }

    /// `true` if Go leaves it out of JSON when it is empty, zero or false.
    pub fn omits_zero(&self) -> bool {
        self.flags & OMIT_ZERO != 0
    }

    /// `true` if Go always writes this object, at least as `{}`.
    pub fn is_by_value(&self) -> bool {
        self.flags & BY_VALUE != 0
    }

    /// `true` if Go writes null when it is not set.
    pub fn is_null_unset(&self) -> bool {
        self.flags & NULL != 0
    }

    /// `true` if strategic merge patch merges this list, rather than replace it.
    pub fn merges(&self) -> bool {
        self.flags & MERGE != 0
    }

    /// `true` if strategic merge patch heeds `$retainKeys` here.
    pub fn retains_keys(&self) -> bool {
        self.flags & RETAIN_KEYS != 0
    }

    /// `true` if strategic merge patch replaces this object.
    pub fn replaces(&self) -> bool {
        self.flags & REPLACE != 0
    }

    /// `true` if server-side apply changes it as a whole, whatever its type says.
    pub fn is_atomic(&self) -> bool {
        self.flags & ATOMIC != 0
    }
}

/// A row for a message.
pub(crate) const fn m(name: &'static str, flags: u16, fields: &'static [Field]) -> Message {
    Message { name: Cow::Borrowed(name), flags, fields: Cow::Borrowed(fields) }
}

/// A row for a field.
pub(crate) const fn f(name: &'static str, ty: Type, number: u16, flags: u16) -> Field {
    g(name, ty, number, flags, &[], "", "")
}

/// A row for a field with all facts.
pub(crate) const fn g(
    name: &'static str,
    ty: Type,
    number: u16,
    flags: u16,
    via: &'static [u16],
    merge_key: &'static str,
    default: &'static str,
) -> Field {
    let (merge_key, default) = (Cow::Borrowed(merge_key), Cow::Borrowed(default));
    Field { name: Cow::Borrowed(name), ty, number, flags, via: Cow::Borrowed(via), merge_key, default }
}

/// A row for a list.
pub(crate) const fn l(item: Type, kind: ListKind, keys: &'static [&'static str]) -> List {
    List { item, kind, keys: Names::Fixed(keys) }
}

/// A row for a kind.
pub(crate) const fn k(group: &'static str, version: &'static str, kind: &'static str, message: u16) -> Kind {
    let (group, version) = (Cow::Borrowed(group), Cow::Borrowed(version));
    Kind { group, version, kind: Cow::Borrowed(kind), message }
}
