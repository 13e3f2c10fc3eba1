//! A schema as server-side apply reads it: which value is a leaf, which is merged field by field, how elements of a
//! list are told apart.
//!
//! Lists without a list type follow their strategic patch strategy, as upstream's conversion of OpenAPI does.

use std::borrow::Cow;
use std::sync::LazyLock;

use schema::{Field, ListKind, Names, SchemaRef, Shape, Type, TypeRef};
use serde_json::{Map, Value};

use super::element::{Element, Scalar};

/// A type where it is used: the field that holds it can make it atomic or name its merge key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Typed<'a> {
    ty: TypeRef<'a>,
    field: Option<&'a Field>,
}

/// How a value is merged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Atom<'a> {
    /// As a whole.
    Leaf,
    /// By declared fields.
    Struct(SchemaRef<'a>),
    /// By keys.
    Map(Typed<'a>),
    /// By elements.
    List(Associative<'a>),
    /// Objects by keys, anything else as a whole.
    Any,
}

/// What values of a type look like, however they are merged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values<'a> {
    /// Without parts.
    Scalar(Type),
    /// With declared fields.
    Object(SchemaRef<'a>),
    /// With keys.
    Map(Typed<'a>),
    /// With elements.
    List(Typed<'a>),
    /// Whatever JSON has.
    Any,
}

/// Why an element cannot be told from others. The words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoElement {
    #[error("associative list with keys may not have a null element")]
    KeyedNull,
    #[error("associative list with keys may not have non-map elements")]
    KeyedScalar,
    #[error(
        "associative list with keys has an element that omits all key fields {0:?} (and doesn't have default values for \
         any key fields)"
    )]
    NoKeys(Vec<String>),
    #[error("associative list without keys has an element that's a map type")]
    Map,
    #[error("not supported: associative list with lists as elements")]
    List,
    #[error("associative list without keys has an element that's an explicit null")]
    Null,
}

/// A list whose elements are told apart by keys, or by value if it has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Associative<'a> {
    /// The type of the elements.
    pub(super) item: Typed<'a>,
    keys: &'a Names,
    merge_key: Option<&'a str>,
}

impl<'a> Typed<'a> {
    /// The type of a whole object.
    pub(super) fn root(schema: SchemaRef<'a>) -> Self {
        Self { ty: schema.as_type(), field: None }
    }

    fn of(ty: TypeRef<'a>) -> Self {
        Self { ty, field: None }
    }

    /// The type of a field of `schema`.
    pub(super) fn field(schema: SchemaRef<'a>, field: &'a Field) -> Self {
        Self { ty: TypeRef { schemas: schema.schemas(), ty: field.ty }, field: Some(field) }
    }

    /// The type of what `schema` has at `name`: that of a field, or any where unknown fields are taken.
    pub(super) fn named(schema: SchemaRef<'a>, name: &str) -> Option<Self> {
        match schema.field(name) {
            Some(field) => Some(Self::field(schema, field)),
            None => schema.message().is_open().then(|| Self::root(schema).any()),
        }
    }

    /// What values of the type look like.
    pub(super) fn values(self) -> Values<'a> {
        match self.ty.shape() {
            Shape::Json => Values::Any,
            Shape::Scalar if self.is_free_form() => Values::Any,
            Shape::Scalar => Values::Scalar(self.ty.ty),
            Shape::Object(schema) => Values::Object(schema),
            Shape::Map(item) => Values::Map(Self::of(item)),
            Shape::List(item, ..) => Values::List(Self::of(item)),
        }
    }

    fn is_free_form(self) -> bool {
        use Type::{FieldsV1, PropsOrArray, PropsOrBool, PropsOrStrings};
        matches!(self.ty.ty, FieldsV1 | PropsOrArray | PropsOrBool | PropsOrStrings)
    }

    /// The same type for values below that nothing is known of.
    pub(super) fn any(self) -> Self {
        Self::of(TypeRef { schemas: self.ty.schemas, ty: Type::Json })
    }

    /// How values of the type are merged.
    pub(super) fn atom(self) -> Atom<'a> {
        let is_atomic = self.field.is_some_and(Field::is_atomic);
        match self.ty.shape() {
            Shape::Json => Atom::Any,
            Shape::Scalar if self.is_free_form() => Atom::Any,
            Shape::Scalar => Atom::Leaf,
            Shape::Object(schema) if is_atomic || schema.message().is_atomic() => Atom::Leaf,
            Shape::Object(schema) => Atom::Struct(schema),
            Shape::Map(_) if is_atomic => Atom::Leaf,
            Shape::Map(item) => Atom::Map(Self::of(item)),
            Shape::List(item, kind, keys) => {
                let item = Self::of(item);
                let merges = self.field.filter(|field| field.merges());
                match kind {
                    ListKind::Map => Atom::List(Associative { item, keys, merge_key: None }),
                    ListKind::Set => Atom::List(Associative { item, keys: &NO_KEYS, merge_key: None }),
                    ListKind::Unset if merges.is_some() => {
                        let key = merges.map(|field| &*field.merge_key).filter(|key| !key.is_empty());
                        Atom::List(Associative { item, keys: &NO_KEYS, merge_key: key })
                    }
                    ListKind::Atomic | ListKind::Unset => Atom::Leaf,
                }
            }
        }
    }
}

impl<'a> Associative<'a> {
    /// The element's place in a path.
    ///
    /// # Errors
    /// It cannot be told from others.
    pub(super) fn element(&self, item: &'a Value) -> Result<Element<'a>, NoElement> {
        if self.keys.is_empty() && self.merge_key.is_none() {
            return by_value(item);
        }
        let names = || self.keys.iter().chain(self.merge_key);
        let object = match item {
            Value::Object(object) => object,
            Value::Null => return Err(NoElement::KeyedNull),
            _ => return Err(NoElement::KeyedScalar),
        };
        let mut fields: Vec<(Cow<'a, str>, Scalar<'a>)> = Vec::with_capacity(self.keys.len() + 1);
        for name in names() {
            let value = match object.get(name) {
                Some(value) => Scalar::of(value),
                None => match self.default(name) {
                    Some(value) => value,
                    None => continue,
                },
            };
            fields.push((Cow::Borrowed(name), value));
        }
        if fields.is_empty() {
            return Err(NoElement::NoKeys(names().map(str::to_owned).collect()));
        }
        fields.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(Element::Key(fields))
    }

    fn default(&self, name: &str) -> Option<Scalar<'a>> {
        let Shape::Object(schema) = self.item.ty.shape() else { return None };
        let json = schema.field(name).map(|field| &*field.default).filter(|json| !json.is_empty())?;
        // Nearly all defaults are short texts.
        let plain = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        if let Some(text) = plain.filter(|text| !text.contains(['"', '\\'])) {
            return Some(Scalar::Text(Cow::Borrowed(text)));
        }
        match serde_json::from_str(json).ok()? {
            Value::String(text) => Some(Scalar::Text(Cow::Owned(text))),
            Value::Bool(flag) => Some(Scalar::Bool(flag)),
            Value::Number(number) => number.as_i64().map(Scalar::Int),
            _ => None,
        }
    }
}

fn by_value(item: &Value) -> Result<Element<'_>, NoElement> {
    match item {
        Value::Object(_) => Err(NoElement::Map),
        Value::Array(_) => Err(NoElement::List),
        Value::Null => Err(NoElement::Null),
        scalar => Ok(Element::Value(Scalar::of(scalar))),
    }
}

static NO_KEYS: Names = Names::NONE;
static NULL: Value = Value::Null;
static FALSE: Value = Value::Bool(false);
static EMPTY_TEXT: Value = Value::String(String::new());
static ZERO: LazyLock<Value> = LazyLock::new(|| Value::from(0));
static EMPTY_OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// The object without fields.
pub(super) fn empty_object() -> &'static Value {
    &EMPTY_OBJECT
}

/// What Go writes for a field that is not set, where it writes it at all.
pub(super) fn implied(field: &Field) -> Option<&'static Value> {
    if field.is_by_value() && matches!(field.ty, Type::Message(_)) {
        return Some(&EMPTY_OBJECT);
    }
    if field.is_null_unset() {
        return Some(&NULL);
    }
    if !field.is_required() || field.omits_zero() {
        return None;
    }
    Some(match field.ty {
        Type::String => &EMPTY_TEXT,
        Type::Bool => &FALSE,
        Type::Int32 | Type::Int64 | Type::Double => &ZERO,
        _ => &NULL,
    })
}
