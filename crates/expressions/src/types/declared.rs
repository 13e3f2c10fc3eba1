//! The knowledge of values before there are any: their types, and how large they can be.
//!
//! A schema becomes a tree of these. Types are what expressions are checked with, sizes what their costs are estimated
//! with, and both say how JSON is read. Source: `k8s.io/apiserver/pkg/cel/types.go`, `cel/common/schemas.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Type;
use crate::escape::escape;

/// Bytes of the largest request that is accepted, and so of the largest object.
pub const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;
/// Bytes of the largest text of a request, without its quotes.
const TEXT_BYTES_MAX: u64 = REQUEST_BYTES_MAX - 2;
/// Bytes of a character in UTF-8 at most.
const CHARACTER_BYTES_MAX: u64 = 4;
/// The name of objects that have none yet.
const ANONYMOUS: &str = "object";

/// The type of a value, with the sizes that it can have. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Declared(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shape: Shape,
    /// Elements, entries, or bytes at most.
    elements_max: u64,
    /// Bytes that it has in JSON at least.
    bytes_min: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Scalar(Scalar),
    List(Declared, ListKind),
    /// The values, and the characters of keys.
    Map(Declared, u64),
    Object(Arc<str>, BTreeMap<Box<str>, Member>),
}

/// What is no container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Dyn,
    Any,
    Bool,
    Int,
    Double,
    String,
    /// Base64 in JSON.
    Bytes,
    /// A day in JSON.
    Date,
    /// A moment in JSON.
    Timestamp,
    Duration,
    Quantity,
}

/// The relation of a list's elements: `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    /// By their order.
    #[default]
    Atomic,
    /// Each is there once, in any order.
    Set,
    /// By the values of these fields, in any order.
    Map(Arc<[Box<str>]>),
}

/// A field of an object as it is declared.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name in JSON.
    pub name: String,
    /// Its type.
    pub declared: Declared,
    /// `true` if it is always there: required, and without a default.
    pub is_required: bool,
}

/// A field by the identifier that stands for it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Its name in JSON.
    pub(crate) name: Box<str>,
    pub(crate) declared: Declared,
}

impl Declared {
    fn scalar(scalar: Scalar, elements_max: u64, bytes_min: u64) -> Self {
        Self(Arc::new(Inner { shape: Shape::Scalar(scalar), elements_max, bytes_min }))
    }

    /// Whatever JSON says.
    #[must_use]
    pub fn dynamic() -> Self {
        Self::scalar(Scalar::Dyn, 0, 1)
    }

    /// A value that has a type only when it is there, and is not larger than that.
    #[must_use]
    pub fn unknown(elements_max: u64) -> Self {
        Self::scalar(Scalar::Any, elements_max, 1)
    }

    /// A number or a text: `x-kubernetes-int-or-string`.
    #[must_use]
    pub fn int_or_string(characters_max: Option<u64>) -> Self {
        Self::scalar(Scalar::Dyn, text_max(characters_max), 1)
    }

    /// A boolean.
    #[must_use]
    pub fn boolean() -> Self {
        Self::scalar(Scalar::Bool, 0, 4)
    }

    /// A whole number.
    #[must_use]
    pub fn integer() -> Self {
        Self::scalar(Scalar::Int, 0, 1)
    }

    /// A number.
    #[must_use]
    pub fn double() -> Self {
        Self::scalar(Scalar::Double, 0, 1)
    }

    /// A text, of at most so many characters.
    #[must_use]
    pub fn string(characters_max: Option<u64>) -> Self {
        Self::scalar(Scalar::String, text_max(characters_max), 2)
    }

    /// One of some texts, the longest of which has so many bytes.
    #[must_use]
    pub fn string_of(bytes_max: u64) -> Self {
        Self::scalar(Scalar::String, bytes_max, 2)
    }

    /// Bytes, which are base64 in JSON: `format: byte`.
    #[must_use]
    pub fn bytes(bytes_max: Option<u64>) -> Self {
        Self::scalar(Scalar::Bytes, bytes_max.unwrap_or(TEXT_BYTES_MAX), 2)
    }

    /// `format: duration`.
    #[must_use]
    pub fn duration() -> Self {
        Self::scalar(Scalar::Duration, 32, 3)
    }

    /// `format: date`.
    #[must_use]
    pub fn date() -> Self {
        Self::scalar(Scalar::Date, 12, 12)
    }

    /// `format: date-time`.
    #[must_use]
    pub fn timestamp() -> Self {
        Self::scalar(Scalar::Timestamp, 32, 21)
    }

    /// An amount, which is a text in JSON.
    #[must_use]
    pub fn quantity() -> Self {
        Self::scalar(Scalar::Quantity, 0, 8)
    }

    /// A list of at most so many elements; as many as a request holds if nobody says.
    #[must_use]
    pub fn list(element: Self, kind: ListKind, elements_max: Option<u64>) -> Self {
        let fitting = TEXT_BYTES_MAX / (element.0.bytes_min + 1);
        let elements_max = elements_max.unwrap_or(fitting);
        Self(Arc::new(Inner { shape: Shape::List(element, kind), elements_max, bytes_min: 2 }))
    }

    /// A map of at most so many entries, by texts; as many as a request holds if nobody says.
    #[must_use]
    pub fn map(value: Self, entries_max: Option<u64>) -> Self {
        let fitting = TEXT_BYTES_MAX / (value.0.bytes_min + 6);
        let elements_max = entries_max.unwrap_or(fitting);
        Self(Arc::new(Inner { shape: Shape::Map(value, 0), elements_max, bytes_min: 2 }))
    }

    /// The same map with keys of at most so many characters. Schemas of custom kinds say nothing of keys.
    #[must_use]
    pub fn with_keys(&self, characters_max: u64) -> Self {
        let Inner { elements_max, bytes_min, .. } = *self.0;
        let shape = match &self.0.shape {
            Shape::Map(value, _) => Shape::Map(value.clone(), characters_max),
            other => other.clone(),
        };
        Self(Arc::new(Inner { shape, elements_max, bytes_min }))
    }

    /// An object. Fields whose names no identifier can stand for are left out: expressions do not see them.
    #[must_use]
    pub fn object(fields: impl IntoIterator<Item = Field>) -> Self {
        let (mut members, mut bytes_min) = (BTreeMap::new(), 2_u64);
        for Field { name, declared, is_required } in fields {
            if is_required {
                let length = u64::try_from(name.len()).unwrap_or(u64::MAX);
                bytes_min = bytes_min.saturating_add(length).saturating_add(declared.0.bytes_min + 4);
            }
            if let Some(identifier) = escape(&name) {
                members.insert(identifier.into(), Member { name: name.into(), declared });
            }
        }
        Self(Arc::new(Inner { shape: Shape::Object(ANONYMOUS.into(), members), elements_max: 0, bytes_min }))
    }

    /// The same object with what every resource has, as far as rules may look at it: `apiVersion`, `kind`, and of
    /// `metadata` `name` and `generateName`. If a schema says all of that it says more of the metadata, too.
    #[must_use]
    pub fn with_object_meta(&self) -> Self {
        let Shape::Object(name, members) = &self.0.shape else { return self.clone() };
        let metadata = members.get("metadata").map(|member| &member.declared);
        let says = |field| metadata.is_some_and(|metadata| metadata.member(field).is_some());
        let is_whole = ["apiVersion", "kind"].iter().all(|field| members.contains_key(*field));
        if is_whole && says("name") && says("generateName") {
            return self.clone();
        }
        let text = || Self::string(None);
        let part = |name: &str| Field { name: name.to_owned(), declared: text(), is_required: false };
        let metadata = Self::object([part("name"), part("generateName")]);
        let mut members = members.clone();
        for (field, declared) in [("apiVersion", text()), ("kind", text()), ("metadata", metadata)] {
            let member = Member { name: field.into(), declared };
            if field == "metadata" {
                members.insert(field.into(), member);
            } else {
                members.entry(field.into()).or_insert(member);
            }
        }
        let shape = Shape::Object(name.clone(), members);
        Self(Arc::new(Inner { shape, elements_max: self.0.elements_max, bytes_min: self.0.bytes_min }))
    }

    /// The same with names for all objects that have none: `name`, `name.field`, `name.field.@idx`, `name.field.@elem`.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        let shape = match &self.0.shape {
            Shape::Scalar(_) => return self.clone(),
            Shape::List(element, kind) => Shape::List(element.named(&format!("{name}.@idx")), kind.clone()),
            Shape::Map(value, keys) => Shape::Map(value.named(&format!("{name}.@elem")), *keys),
            Shape::Object(known, members) => {
                let name = if &**known == ANONYMOUS { name } else { known };
                let named = |identifier: &str, member: &Member| {
                    let declared = member.declared.named(&format!("{name}.{identifier}"));
                    (identifier.into(), Member { name: member.name.clone(), declared })
                };
                Shape::Object(name.into(), members.iter().map(|(key, member)| named(key, member)).collect())
            }
        };
        let Inner { elements_max, bytes_min, .. } = *self.0;
        Self(Arc::new(Inner { shape, elements_max, bytes_min }))
    }

    /// The type that expressions are checked with.
    #[must_use]
    pub fn checked(&self) -> Type {
        match &self.0.shape {
            Shape::Scalar(scalar) => match scalar {
                Scalar::Dyn => Type::Dyn,
                Scalar::Any => Type::Any,
                Scalar::Bool => Type::Bool,
                Scalar::Int => Type::Int,
                Scalar::Double => Type::Double,
                Scalar::String => Type::String,
                Scalar::Bytes => Type::Bytes,
                Scalar::Date | Scalar::Timestamp => Type::Timestamp,
                Scalar::Duration => Type::Duration,
                Scalar::Quantity => Type::named("kubernetes.Quantity"),
            },
            Shape::List(element, _) => Type::list(element.checked()),
            Shape::Map(value, _) => Type::map(Type::String, value.checked()),
            Shape::Object(name, _) => Type::object(name.clone(), self.clone()),
        }
    }

    /// The number of times that a value below this list or map can be there, at most, in a request: what an element's
    /// rules cost once they can cost that often. Source: `maxCardinality` of the API server for extensions.
    #[must_use]
    pub fn cardinality_max(&self) -> u64 {
        REQUEST_BYTES_MAX / (self.0.bytes_min + 1)
    }

    /// Elements, entries, or bytes at most; 0 for what has no size.
    #[must_use]
    pub fn elements_max(&self) -> u64 {
        self.0.elements_max
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The field that an identifier stands for. Words of the language are fields' names, too.
    pub(crate) fn member(&self, identifier: &str) -> Option<&Member> {
        let Shape::Object(_, members) = &self.0.shape else {
            return None;
        };
        members.get(identifier).or_else(|| {
            let is_word = crate::escape::RESERVED.contains(&identifier);
            if is_word { members.get(&*format!("__{identifier}__")) } else { None }
        })
    }

    /// What is below, by a step of a path as costs are estimated by: a field's identifier, `@items`, `@keys`, `@values`.
    pub(crate) fn below(&self, step: &str) -> Option<Self> {
        match (&self.0.shape, step) {
            (Shape::List(element, _), "@items" | "@values") => Some(element.clone()),
            (Shape::Map(value, _), "@items" | "@values") => Some(value.clone()),
            // Attributes of devices are all as large, whatever they are called.
            (Shape::Map(value, _), name)
                if !name.starts_with('@') && matches!(value.shape(), Shape::Scalar(Scalar::Any)) =>
            {
                Some(value.clone())
            }
            (Shape::Map(_, keys), "@keys") => Some(Self::scalar(Scalar::String, *keys, 2)),
            _ => self.member(step).map(|member| member.declared.clone()),
        }
    }
}

fn text_max(characters_max: Option<u64>) -> u64 {
    characters_max.map_or(TEXT_BYTES_MAX, |characters| characters.saturating_mul(CHARACTER_BYTES_MAX))
}
