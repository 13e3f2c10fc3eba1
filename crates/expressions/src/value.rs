//! The values that expressions are evaluated over.
//!
//! What comes from JSON is referred to and read when it is selected; what expressions make is shared, so that values are
//! cheap to clone.

mod compare;
mod format;
mod json;
mod moment;
mod network;
pub(crate) mod number;
pub(crate) mod text;
mod url;

pub(crate) use compare::{key_of, set_key};
pub use format::NamedFormat;
pub use json::{JsonBudget, NoJson};
pub use moment::Moment;
pub use network::Range;
pub(crate) use network::{NetworkError, address};
pub use url::Url;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use machinery::quantity::Quantity;
use serde_json::Value as Json;

use crate::authorizer::{AuthorizerValue, Decision, GroupCheck, PathCheck, ResourceCheck};
use crate::types::{Declared, ListKind};

type JsonMap = serde_json::Map<String, Json>;

/// A value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `uint`.
    Uint(u64),
    /// `double`.
    Double(f64),
    /// `string`.
    String(Text<'a>),
    /// `bytes`.
    Bytes(Arc<[u8]>),
    /// A span of time, in nanoseconds.
    Duration(i64),
    /// A moment.
    Timestamp(Moment),
    /// A list.
    List(List<'a>),
    /// A map.
    Map(Map<'a>),
    /// An object with declared fields.
    Object(Object<'a>),
    /// A value, or none.
    Optional(Option<Arc<Self>>),
    /// A type, by name.
    Type(Arc<str>),
    /// An amount.
    Quantity(Quantity),
    /// A version by semver.org.
    Semver(Arc<semver::Version>),
    /// An address.
    Ip(IpAddr),
    /// A range of addresses.
    Cidr(Range),
    /// A URL.
    Url(Arc<Url>),
    /// What a text may look like.
    Format(&'static NamedFormat),
    /// Who is asked whether somebody may do something.
    Authorizer(Arc<AuthorizerValue>),
    /// A question about a path.
    PathCheck(Arc<PathCheck>),
    /// A question about an API group.
    GroupCheck(Arc<GroupCheck>),
    /// A question about a resource.
    ResourceCheck(Arc<ResourceCheck>),
    /// An authorizer's answer.
    Decision(Arc<Decision>),
}

/// A text of an object, or one that has been made.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Of an object.
    Borrowed(&'a str),
    /// Made.
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

/// A list of an object, or one that has been made.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Of an object.
    Json {
        /// As they stand there.
        elements: &'a [Json],
        /// Their type, if it has been declared.
        element: Option<&'a Declared>,
        /// How they belong together.
        kind: &'a ListKind,
    },
    /// Made.
    Shared(Arc<Vec<Value<'a>>>),
    /// Made of one whose elements belong together in another way than by their order.
    Kept {
        /// Each element.
        elements: Arc<Vec<Value<'a>>>,
        /// How they belong together.
        kind: &'a ListKind,
    },
}

/// A map of an object, or one that has been made.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Of an object.
    Json {
        /// As they stand there.
        members: &'a JsonMap,
        /// The values' type, if it has been declared.
        value: Option<&'a Declared>,
    },
    /// Made.
    Shared(Arc<Entries<'a>>),
}

/// The entries of a map that has been made.
#[derive(Clone, Debug, Default)]
pub struct Entries<'a> {
    /// By key.
    pub by_key: BTreeMap<Key<'a>, Value<'a>>,
    /// The value of every other key when it is asked for; it is not there otherwise.
    pub other: Option<Value<'a>>,
}

/// A map's key. Numbers that are equal are the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key<'a> {
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `uint` beyond what `int` holds, or as such.
    Uint(u64),
    /// `string`.
    String(std::borrow::Cow<'a, str>),
}

/// An object with declared fields, or one that has been made.
#[derive(Clone, Debug)]
pub enum Object<'a> {
    /// Of JSON.
    Json {
        /// As they stand there.
        members: &'a JsonMap,
        /// What fields there are.
        declared: &'a Declared,
    },
    /// Made by an expression: `Object{...}`, `JSONPatch{...}`.
    Shared(Arc<Made<'a>>),
}

/// An object that an expression has made.
#[derive(Clone, Debug)]
pub struct Made<'a> {
    /// The name of its type.
    pub name: Arc<str>,
    /// Its fields that have been set.
    pub fields: BTreeMap<Arc<str>, Value<'a>>,
}

impl<'a> Value<'a> {
    /// JSON as it is, without a declared type.
    #[must_use]
    pub fn of(json: &'a Json) -> Self {
        json::dynamic(json)
    }

    /// JSON of a declared type; a value of another type is read as it is.
    #[must_use]
    pub fn declared(json: &'a Json, declared: &'a Declared) -> Self {
        json::declared(json, declared)
    }

    /// The value as JSON, as it is stored: bytes in base64, moments and spans as texts. It takes of the room what it needs.
    ///
    /// # Errors
    /// If it has no such form, as a type, or a map whose keys are no texts; or there is no room for it.
    pub fn to_json(&self, budget: &mut JsonBudget) -> Result<Json, NoJson> {
        json::written(self, budget)
    }

    /// A text that has been made.
    #[must_use]
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    /// A list that has been made.
    #[must_use]
    pub fn list(elements: Vec<Self>) -> Self {
        Self::List(List::Shared(Arc::new(elements)))
    }

    /// A map that has been made.
    #[must_use]
    pub fn map(by_key: BTreeMap<Key<'a>, Self>) -> Self {
        Self::Map(Map::Shared(Arc::new(Entries { by_key, other: None })))
    }

    /// A value that is there.
    #[must_use]
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// A key of a map.
    #[must_use]
    pub fn key(&self) -> Option<Key<'a>> {
        Some(match self {
            Self::Bool(key) => Key::Bool(*key),
            Self::Int(key) => Key::Int(*key),
            Self::Uint(key) => Key::Uint(*key),
            Self::String(Text::Borrowed(key)) => Key::String((*key).into()),
            Self::String(key) => Key::String(key.to_string().into()),
            _ => return None,
        })
    }

    /// The name of the value's type.
    #[must_use]
    pub fn type_name(&self) -> Arc<str> {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            // As upstream, where objects with declared fields are maps when it comes to it.
            Self::Object(Object::Json { .. }) => "map",
            Self::Object(Object::Shared(made)) => return made.name.clone(),
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::PathCheck(_) => "kubernetes.authorization.PathCheck",
            Self::GroupCheck(_) => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck(_) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
        .into()
    }

    /// Characters, bytes, elements, entries; 1 for everything else. What costs are reckoned with.
    #[must_use]
    pub fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Object(Object::Json { members, .. }) => members.len(),
            Self::Ip(IpAddr::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) => 16,
            Self::Cidr(range) => range.size(),
            Self::Optional(Some(value)) => return value.size(),
            _ => 1,
        };
        u64::try_from(size).unwrap_or(u64::MAX)
    }
}

impl<'a> List<'a> {
    /// Elements in it.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Json { elements, .. } => elements.len(),
            Self::Shared(elements) | Self::Kept { elements, .. } => elements.len(),
        }
    }

    /// `true` if there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Json { elements, element, .. } => {
                let json = elements.get(index)?;
                Some(element.map_or_else(|| json::dynamic(json), |declared| json::declared(json, declared)))
            }
            Self::Shared(elements) | Self::Kept { elements, .. } => elements.get(index).cloned(),
        }
    }

    /// Each element.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.get(index).unwrap_or(Value::Null))
    }

    pub(crate) fn kind(&self) -> &'a ListKind {
        match self {
            Self::Json { kind, .. } | Self::Kept { kind, .. } => kind,
            Self::Shared(_) => &ListKind::Atomic,
        }
    }
}

impl<'a> Map<'a> {
    /// Entries in it.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Json { members, .. } => members.len(),
            Self::Shared(entries) => entries.by_key.len(),
        }
    }

    /// `true` if there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &Value<'a>) -> Option<Value<'a>> {
        match (self, key) {
            (_, Value::String(name)) => self.field(name),
            (Self::Json { .. }, _) => None,
            (Self::Shared(entries), Value::Double(key)) => {
                number::whole(*key).and_then(|key| entries.get(&Key::Int(key)))
            }
            (Self::Shared(entries), key) => entries.get(&key.key()?),
        }
    }

    /// The value of a text.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Self::Json { members, value } => {
                let json = members.get(name)?;
                Some(value.map_or_else(|| json::dynamic(json), |declared| json::declared(json, declared)))
            }
            Self::Shared(entries) => {
                // A key of any lifetime compares as one of this one.
                let found =
                    entries.by_key.iter().find(|(key, _)| matches!(key, Key::String(key) if key == name));
                let found = if entries.by_key.len() > FEW {
                    entries.by_key.get(&Key::String(name.to_owned().into()))
                } else {
                    found.map(|(_, value)| value)
                };
                found.or(entries.other.as_ref()).cloned()
            }
        }
    }

    /// `true` if a key is there.
    #[must_use]
    pub fn contains(&self, key: &Value<'a>) -> bool {
        match self {
            Self::Json { .. } => self.get(key).is_some(),
            Self::Shared(entries) => match key {
                Value::Double(key) => {
                    number::whole(*key).is_some_and(|key| entries.find(&Key::Int(key)).is_some())
                }
                key => key.key().is_some_and(|key| entries.find(&key).is_some()),
            },
        }
    }

    /// Each key and value.
    #[must_use]
    pub fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        match self {
            Self::Json { members, value } => members
                .iter()
                .map(|(name, json)| {
                    let value =
                        value.map_or_else(|| json::dynamic(json), |declared| json::declared(json, declared));
                    (Value::String(Text::Borrowed(name)), value)
                })
                .collect(),
            Self::Shared(entries) => {
                entries.by_key.iter().map(|(key, value)| (key.value(), value.clone())).collect()
            }
        }
    }
}

/// Entries that are looked through faster than a key is made.
const FEW: usize = 8;

impl<'a> Entries<'a> {
    fn find(&self, key: &Key<'a>) -> Option<&Value<'a>> {
        self.by_key.get(key).or_else(|| match key {
            Key::Int(key) => self.by_key.get(&Key::Uint(u64::try_from(*key).ok()?)),
            Key::Uint(key) => self.by_key.get(&Key::Int(i64::try_from(*key).ok()?)),
            _ => None,
        })
    }

    fn get(&self, key: &Key<'a>) -> Option<Value<'a>> {
        self.find(key).or(self.other.as_ref()).cloned()
    }
}

impl<'a> Key<'a> {
    /// The key as a value.
    #[must_use]
    pub fn value(&self) -> Value<'a> {
        match self {
            Self::Bool(key) => Value::Bool(*key),
            Self::Int(key) => Value::Int(*key),
            Self::Uint(key) => Value::Uint(*key),
            Self::String(std::borrow::Cow::Borrowed(key)) => Value::String(Text::Borrowed(key)),
            Self::String(key) => Value::text(&**key),
        }
    }
}

impl<'a> Object<'a> {
    /// A field by its identifier, if it is set.
    #[must_use]
    pub fn field(&self, identifier: &str) -> Option<Value<'a>> {
        match self {
            Self::Json { members, declared } => {
                let member = declared.member(identifier)?;
                let json = members.get(&*member.name).filter(|json| !json.is_null())?;
                Some(json::declared(json, &member.declared))
            }
            Self::Shared(made) => made.fields.get(identifier).cloned(),
        }
    }

    /// Each field that is set and declared, by its identifier.
    #[must_use]
    pub fn entries(&self) -> Vec<(Text<'a>, Value<'a>)> {
        match self {
            Self::Json { members, .. } => members
                .keys()
                .filter_map(|name| crate::escape::escape(name))
                .filter_map(|name| Some((Text::Shared(name.as_str().into()), self.field(&name)?)))
                .collect(),
            Self::Shared(made) => {
                made.fields.iter().map(|(name, value)| (Text::Shared(name.clone()), value.clone())).collect()
            }
        }
    }
}
