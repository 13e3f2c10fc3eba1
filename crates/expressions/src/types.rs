//! The types that expressions are checked with.

mod declared;

use std::fmt;
use std::sync::Arc;

pub use declared::{Declared, Field, ListKind, REQUEST_BYTES_MAX};
pub(crate) use declared::{Scalar, Shape};

/// A type of CEL. `Display` is how cel-go names it in messages.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Whatever comes at run time.
    Dyn,
    /// As `Dyn`, of a type of protobuf.
    Any,
    /// What has failed a check already.
    Error,
    /// `null`.
    Null,
    /// `bool`.
    Bool,
    /// `int`.
    Int,
    /// `uint`.
    Uint,
    /// `double`.
    Double,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// `google.protobuf.Duration`.
    Duration,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `list(element)`.
    List(Arc<Self>),
    /// `map(key, value)`.
    Map(Arc<Self>, Arc<Self>),
    /// An object with fields.
    Object(ObjectRef),
    /// A type that only functions know: `optional_type(value)`, `net.IP`.
    Opaque(Arc<str>, Arc<[Self]>),
    /// The type of a type.
    Type(Option<Arc<Self>>),
    /// A type that is not known yet, by name.
    Param(Arc<str>),
}

/// An object's type: its name, and its fields if it has been declared with such. Types are the same if their names are.
#[derive(Clone, Debug)]
pub struct ObjectRef {
    name: Arc<str>,
    declared: Option<Declared>,
}

impl PartialEq for ObjectRef {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl ObjectRef {
    /// The object's type by name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn declared(&self) -> Option<&Declared> {
        self.declared.as_ref()
    }
}

pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// A list's type.
    #[must_use]
    pub fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    /// A map's type.
    #[must_use]
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// The type of what may be there or not.
    #[must_use]
    pub fn optional(value: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), Arc::new([value]))
    }

    /// An object's type whose fields nobody may select.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self::Object(ObjectRef { name: name.into(), declared: None })
    }

    pub(crate) fn object(name: Arc<str>, declared: Declared) -> Self {
        Self::Object(ObjectRef { name, declared: Some(declared) })
    }

    /// The type's name outside of the checker's messages, where some types are called otherwise.
    #[must_use]
    pub fn declared_name(&self) -> String {
        let parameters: Vec<String> = self.parameters().into_iter().map(Self::declared_name).collect();
        match parameters.as_slice() {
            [] => self.name().to_owned(),
            some => format!("{}({})", self.name(), some.join(", ")),
        }
    }

    /// What types this one is made of.
    pub(crate) fn parameters(&self) -> Vec<&Self> {
        match self {
            Self::List(element) => vec![element],
            Self::Map(key, value) => vec![key, value],
            Self::Opaque(_, parameters) => parameters.iter().collect(),
            Self::Type(Some(of)) => vec![of],
            _ => Vec::new(),
        }
    }

    /// The same type with other parameters.
    pub(crate) fn map_parameters(&self, mut change: impl FnMut(&Self) -> Self) -> Self {
        match self {
            Self::List(element) => Self::list(change(element)),
            Self::Map(key, value) => Self::map(change(key), change(value)),
            Self::Opaque(name, parameters) => {
                Self::Opaque(name.clone(), parameters.iter().map(change).collect())
            }
            Self::Type(Some(of)) => Self::Type(Some(Arc::new(change(of)))),
            same => same.clone(),
        }
    }

    /// Whether the type has more parts than that.
    pub(crate) fn is_larger_than(&self, parts_max: usize) -> bool {
        let (mut rest, mut parts) = (vec![self], 0_usize);
        while let Some(part) = rest.pop() {
            parts += 1;
            if parts > parts_max {
                return true;
            }
            rest.extend(part.parameters());
        }
        false
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || *self == Self::Error
    }

    /// The value's type of an optional's.
    pub(crate) fn unwrap_optional(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, parameters) if &**name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    /// The name of the type alone.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Any => "any",
            Self::Error => "!error!",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Object(object) => &object.name,
            Self::Opaque(name, _) | Self::Param(name) => name,
            Self::Type(_) => "type",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => return formatter.write_str("null"),
            Self::Duration => return formatter.write_str("duration"),
            Self::Timestamp => return formatter.write_str("timestamp"),
            _ => formatter.write_str(self.name())?,
        }
        for (index, parameter) in self.parameters().into_iter().enumerate() {
            write!(formatter, "{}{parameter}", if index == 0 { "(" } else { ", " })?;
        }
        if self.parameters().is_empty() { Ok(()) } else { formatter.write_str(")") }
    }
}

/// Types as they are written in tables of functions: `list(A)`, `map(K, V)`, `net.IP`. A capital letter is a parameter.
pub(crate) fn parse(text: &str) -> Option<Type> {
    let text = text.trim();
    if let Some((name, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let parameters = split(inner).into_iter().map(parse).collect::<Option<Vec<_>>>()?;
        return match (name, parameters.as_slice()) {
            ("list", [element]) => Some(Type::list(element.clone())),
            ("map", [key, value]) => Some(Type::map(key.clone(), value.clone())),
            ("type", [of]) => Some(Type::Type(Some(Arc::new(of.clone())))),
            ("optional", [value]) => Some(Type::optional(value.clone())),
            _ => None,
        };
    }
    Some(match text {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "net.IP" | "net.CIDR" => Type::Opaque(text.into(), Arc::new([])),
        letter if letter.len() == 1 => Type::Param(letter.into()),
        name => Type::named(name),
    })
}

/// What stands between commas on the first level.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_usize, 0);
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text.get(begin..index).unwrap_or_default());
                begin = index + 1;
            }
            _ => {}
        }
    }
    let last = text.get(begin..).unwrap_or_default();
    if !last.trim().is_empty() {
        parts.push(last);
    }
    parts
}
