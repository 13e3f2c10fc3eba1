//! Strict decoding: bytes or a parsed value in, a value of the schema's shape out.
//!
//! One pass. What the schema does not know is pruned and, as asked, ignored, warned about or refused, like
//! duplicate keys. A value of the wrong type is always refused, with Go's text. The result is what Go would
//! write after reading the same: nulls are dropped, empty values where Go omits them, and objects that Go holds
//! by value are there. Nesting is bounded by the parser (128 levels), memory by a [`Budget`].

use crate::Object;
use crate::arena::{SchemaRef, TypeRef};
use crate::rows::{Field, Message, Schemas, Type};
use crate::time::Precision;
use crate::walk::budget::{Allowance, Budget, Exceeded};
use crate::walk::names::name_of;
use crate::walk::path::{Path, Style};
use crate::walk::stack::with_stack;
use crate::walk::syntax::{SyntaxError, complaint};
use crate::{duration, scalar, time};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

/// The treatment of unknown and duplicate fields (`fieldValidation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Say nothing.
    Ignore,
    /// Warn.
    Warn,
    /// Refuse.
    Strict,
}

/// A decoded value and what is to be warned about.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The value: only fields that the schema has, of the right types.
    pub value: Value,
    /// One line per unknown or duplicate field; empty unless [`FieldValidation::Warn`].
    pub warnings: Vec<String>,
}

/// The reason why a body cannot be decoded. The texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body is not JSON, or nested too deeply.
    #[error("{0}")]
    Syntax(String),
    /// A field holds the wrong type.
    #[error("{0}")]
    Type(String),
    /// There are unknown or duplicate fields.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
    /// The value would take far more memory than its text.
    #[error("Request entity too large: the values of the body take too much memory")]
    TooLarge,
}

/// How many unknown and duplicate fields are reported.
const STRICT_ERRORS_MAX: usize = 100;

/// Decodes JSON bytes.
///
/// # Errors
/// If the bytes are not JSON, hold a value of the wrong type, or, when strict, an unknown or duplicate field.
pub fn from_json(
    schema: SchemaRef<'_>,
    bytes: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let budget = Budget::new(Allowance::of(schema.message_name()), bytes.len());
    let state = State::new(schema.schemas, validation, budget);
    let result = with_stack(|| root(&state, schema).deserialize(&mut deserializer));
    let result = result.and_then(|value| deserializer.end().map(|()| value));
    state.finish(result).map_err(|error| in_words_of_go(error, bytes))
}

/// Decodes a value that is parsed already, such as the result of a patch.
///
/// # Errors
/// Like [`from_json`].
pub fn from_value(
    schema: SchemaRef<'_>,
    value: Value,
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    let state = State::new(schema.schemas, validation, Budget::unlimited());
    let result = with_stack(|| root(&state, schema).deserialize(value));
    state.finish(result)
}

/// A copy of a value of a kind without the fields that its schema does not know; `None` if a field holds the wrong type.
pub fn known(schema: SchemaRef<'_>, value: &Value) -> Option<Value> {
    let state = State::new(schema.schemas, FieldValidation::Ignore, Budget::unlimited());
    with_stack(|| root(&state, schema).deserialize(value)).ok()
}

/// Prunes a value of any type of an arena: what its schema does not know is not there.
///
/// A value of the wrong type stays as it is.
pub(crate) fn pruned(ty: TypeRef<'_>, owner: &Message, value: Value) -> Value {
    let state = State::new(ty.schemas, FieldValidation::Ignore, Budget::unlimited());
    let seed = Seed { state: &state, ty: ty.ty, owner, path: &Path::Base("") };
    let as_it_was = value.clone();
    let result = with_stack(|| seed.deserialize(value));
    result.unwrap_or(as_it_was)
}

/// Reads any value of a text of `length` bytes as it is.
///
/// # Errors
/// What the parser says, [`DecodeError::TooLarge`], and when strict, a duplicate key.
pub(crate) fn untyped<'de, D: Deserializer<'de>>(
    deserializer: D,
    length: usize,
    allowance: Allowance,
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    let schemas = crate::builtin();
    let state = State::new(schemas, validation, Budget::new(allowance, length));
    let Some(schema) = schemas.at(0) else { return Err(DecodeError::Syntax("no schema".to_owned())) };
    let result = with_stack(|| Seed { ty: Type::Json, ..root(&state, schema) }.deserialize(deserializer));
    state.finish(result)
}

fn root<'a>(state: &'a State<'a>, schema: SchemaRef<'a>) -> Seed<'a> {
    state.is_custom.set(schema.message.is_lenient());
    Seed { state, ty: Type::Message(schema.index), owner: schema.message, path: &Path::Root }
}

/// What is told of a field. Of kinds that are built in, it is told in the order of the body; of custom ones in this order,
/// as upstream's decoders find it one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strict {
    /// It comes twice.
    Duplicate,
    /// The object's metadata does not know it.
    UnknownMetadata,
    /// The definition does not know it; these are told in order of their paths.
    Unknown,
    /// The metadata of a resource within the object does not know it.
    UnknownInner,
}

struct State<'a> {
    schemas: &'a Schemas,
    validation: FieldValidation,
    strict: RefCell<Vec<(Strict, String)>>,
    /// Whether what is read is of a custom kind.
    is_custom: Cell<bool>,
    /// The first wrong type; it ends the walk.
    wrong: RefCell<Option<DecodeError>>,
    /// What would be said if what the parser stumbled over is a number beyond all bounds.
    number: RefCell<Option<String>>,
    budget: Budget,
}

impl<'a> State<'a> {
    fn new(schemas: &'a Schemas, validation: FieldValidation, budget: Budget) -> Self {
        let (strict, wrong, number) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { schemas, validation, strict, is_custom: Cell::new(false), wrong, number, budget }
    }

    /// Ends the walk if there is no memory left.
    fn afford<E: de::Error>(&self, charged: Result<(), Exceeded>) -> Result<(), E> {
        charged.map_err(|Exceeded| {
            *self.wrong.borrow_mut() = Some(DecodeError::TooLarge);
            E::custom("")
        })
    }

    fn duplicate(&self, path: &Path<'_>, name: &str) {
        self.report("duplicate", path, name, |_| Strict::Duplicate);
    }

    /// A field that `owner` does not know.
    fn unknown(&self, path: &Path<'_>, name: &str, owner: &Message) {
        self.report("unknown", path, name, |path| match owner.is_lenient() {
            true => Strict::Unknown,
            false if path.starts_with("metadata.") => Strict::UnknownMetadata,
            false => Strict::UnknownInner,
        });
    }

    /// The same is told once.
    fn report(&self, problem: &str, path: &Path<'_>, name: &str, place: impl Fn(&str) -> Strict) {
        if self.validation == FieldValidation::Ignore {
            return;
        }
        let mut strict = self.strict.borrow_mut();
        if strict.len() < STRICT_ERRORS_MAX {
            let path = Path::Field(path, name).to_text(Style::Fields);
            let told = (place(&path), format!("{problem} field \"{path}\""));
            if !strict.contains(&told) {
                strict.push(told);
            }
        }
    }

    fn finish<E: fmt::Display>(self, result: Result<Value, E>) -> Result<Decoded, DecodeError> {
        if let Some(wrong) = self.wrong.into_inner() {
            return Err(wrong);
        }
        let value = result.map_err(|failure| match (self.number.into_inner(), failure.to_string()) {
            (Some(number), text) if is_beyond_numbers(&text) => DecodeError::Type(number),
            (_, text) => DecodeError::Syntax(text),
        })?;
        let mut strict = self.strict.into_inner();
        if self.is_custom.get() {
            strict.sort_by(|(place, line), (other, other_line)| match place.cmp(other) {
                Ordering::Equal if *place == Strict::Unknown => line.cmp(other_line),
                order => order,
            });
        }
        let strict: Vec<String> = strict.into_iter().map(|(_, line)| line).collect();
        if self.validation == FieldValidation::Strict && !strict.is_empty() {
            return Err(DecodeError::Strict(strict));
        }
        Ok(Decoded { value, warnings: strict })
    }
}

/// Whether the parser of JSON met a number beyond all bounds: its errors tell them apart by nothing but their texts.
fn is_beyond_numbers(complaint: &str) -> bool {
    complaint.starts_with("number out of range")
}

/// Whether the parser of JSON refused to go deeper: see [`is_beyond_numbers`].
fn is_beyond_depth(complaint: &str) -> bool {
    complaint.starts_with("recursion limit exceeded")
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    state: &'a State<'a>,
    ty: Type,
    /// The message that holds the value, for Go's texts.
    owner: &'a Message,
    path: &'a Path<'a>,
}

impl<'a> Seed<'a> {
    fn wrong<E: de::Error>(&self, found: &str) -> E {
        self.refuse(match self.ty {
            Type::Quantity => scalar::QUANTITY_PATTERN.to_owned(),
            Type::PropsOrBool => "boolean or JSON schema expected".to_owned(),
            _ => self.mismatch(found),
        })
    }

    fn mismatch(&self, found: &str) -> String {
        let ty = self.go_type();
        match self.path.to_text(Style::Indexless) {
            path if path.is_empty() => format!("json: cannot unmarshal {found} into Go value of type {ty}"),
            path => {
                let owner = self.owner.short_name();
                format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {ty}")
            }
        }
    }

    /// What Go says it wanted. Types with a notation of their own want what they read that from.
    fn go_type(&self) -> Cow<'static, str> {
        let named = || self.path.holder().and_then(|(field, levels)| name_of(self.owner, field, levels));
        match self.ty {
            Type::Time | Type::MicroTime | Type::Duration => "string".into(),
            Type::IntOrString => "int32".into(),
            ty => named().map_or_else(|| self.state.schemas.go_type(ty).into(), Cow::from),
        }
    }

    fn refuse<E: de::Error>(&self, text: String) -> E {
        *self.state.wrong.borrow_mut() = Some(DecodeError::Type(text));
        E::custom("")
    }

    /// Remembers where the parser stumbled, innermost first.
    fn stumbled(&self) {
        let mut number = self.state.number.borrow_mut();
        if number.is_none() && self.state.wrong.borrow().is_none() {
            *number = Some(self.mismatch("number"));
        }
    }

    fn with(&self, ty: Type) -> Self {
        Self { ty, ..*self }
    }

    /// Whether a value of another type is left for validation to report, which knows more rules than types.
    fn is_lenient(&self) -> bool {
        let is_own = |index| self.state.schemas.at(index).is_some_and(|schema| schema.message.is_lenient());
        self.owner.is_lenient()
            && !self.path.is_root()
            && !matches!(self.ty, Type::Message(index) if !is_own(index))
    }

    fn text<E: de::Error>(&self, text: &str) -> Result<Value, E> {
        self.state.afford(self.state.budget.text(text.len()))?;
        match self.ty {
            _ if self.is_lenient() => Ok(Value::String(text.to_owned())),
            Type::String | Type::Json | Type::IntOrString => Ok(Value::String(text.to_owned())),
            Type::Bytes => match scalar::canonical_base64(text) {
                Ok(canonical) => Ok(canonical.into()),
                Err(error) => Err(self.refuse(error.to_string())),
            },
            Type::Quantity => match scalar::check_quantity(text.trim()) {
                Ok(()) => Ok(text.trim().into()),
                Err(error) => Err(self.refuse(error.to_owned())),
            },
            Type::Time => self.time(text, Precision::Seconds),
            Type::MicroTime => self.time(text, Precision::Micros),
            Type::Duration => match duration::parse(text) {
                Ok(nanoseconds) => Ok(duration::format(nanoseconds).into()),
                Err(error) => Err(self.refuse(error.to_string())),
            },
            _ => Err(self.wrong("string")),
        }
    }

    /// Go's zero time is null.
    fn time<E: de::Error>(&self, text: &str, precision: Precision) -> Result<Value, E> {
        match time::parse(text, precision) {
            Ok(time) if time == time::ZERO => Ok(Value::Null),
            Ok(time) => Ok(time::format(time, precision).into()),
            Err(error) => Err(self.refuse(error.to_string())),
        }
    }

    fn whole<E: de::Error>(&self, number: i128, value: Number) -> Result<Value, E> {
        let fits = match self.ty {
            _ if self.is_lenient() => return Ok(go_number(number, value)),
            Type::Int32 | Type::IntOrString => i32::try_from(number).is_ok(),
            Type::Int64 => i64::try_from(number).is_ok(),
            Type::Double | Type::Json => true,
            Type::Quantity => return Ok(number.to_string().into()),
            _ => return Err(self.wrong("number")),
        };
        if fits { Ok(Value::Number(value)) } else { Err(self.wrong(&format!("number {number}"))) }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self).inspect_err(|_| self.stumbled())
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        match self.ty {
            _ if self.is_lenient() => Ok(Value::Bool(value)),
            Type::Bool | Type::Json | Type::PropsOrBool => Ok(Value::Bool(value)),
            _ => Err(self.wrong("bool")),
        }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        self.whole(value.into(), value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        self.whole(value.into(), value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        match (self.ty, Number::from_f64(value)) {
            (_, Some(number)) if self.is_lenient() => Ok(go_float(value, number)),
            (Type::Double, Some(number)) => Ok(go_float(value, number)),
            (Type::Json, Some(number)) => Ok(Value::Number(number)),
            (Type::Quantity, _) => Ok(value.to_string().into()),
            (Type::Int32 | Type::Int64 | Type::IntOrString, _) => Err(self.wrong(&format!("number {value}"))),
            _ => Err(self.wrong("number")),
        }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        self.text(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let ty = match self.ty {
            Type::List(index) | Type::Wrapped(index) => self.state.schemas.item(index),
            Type::Json => Type::Json,
            Type::PropsOrStrings => Type::String,
            Type::PropsOrArray => props(self.state.schemas),
            Type::Message(_) if self.is_lenient() => self.ty,
            _ if self.is_lenient() => Type::Json,
            _ => return Err(self.wrong("array")),
        };
        let mut values = Vec::new();
        loop {
            let path = Path::Index(self.path, values.len());
            let seed = Seed { ty, path: &path, state: self.state, owner: self.owner };
            let Some(value) = items.next_element_seed(seed)? else { break };
            let value = if value.is_null() && !self.is_lenient() { self.zero(ty) } else { value };
            let is_empty_object = value.as_object().is_some_and(Object::is_empty);
            self.state.afford(self.state.budget.element(is_empty_object))?;
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        match self.ty {
            Type::Message(index) => match self.state.schemas.at(index) {
                Some(schema) => self.object(schema, entries),
                None => Err(self.wrong("object")),
            },
            Type::PropsOrArray | Type::PropsOrBool | Type::PropsOrStrings => {
                self.with(props(self.state.schemas)).visit_map(entries)
            }
            Type::Map(index) => self.map(self.state.schemas.map(index), entries),
            Type::Json | Type::FieldsV1 => self.map(Type::Json, entries),
            _ if self.is_lenient() => self.map(Type::Json, entries),
            _ => Err(self.wrong("object")),
        }
    }
}

impl<'a> Seed<'a> {
    /// What Go has in a list or map where JSON has null.
    fn zero(&self, ty: Type) -> Value {
        match ty {
            Type::String => Value::String(String::new()),
            Type::Bool => Value::Bool(false),
            Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => Value::Number(0.into()),
            Type::Quantity => Value::String("0".to_owned()),
            Type::Message(_) => Value::Object(Object::new()),
            _ => Value::Null,
        }
    }

    fn map<'de, A: MapAccess<'de>>(self, ty: Type, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Object::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = Path::Entry(self.path, &key);
            let seed = Seed { ty, path: &path, state: self.state, owner: self.owner };
            let value = entries.next_value_seed(seed)?;
            if object.contains_key(&key) {
                self.state.duplicate(self.path, &key);
            }
            let value = if value.is_null() && !self.is_lenient() { self.zero(ty) } else { value };
            self.state.afford(self.state.budget.entry(object.len(), key.len()))?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }

    fn object<'de, A: MapAccess<'de>>(
        self,
        schema: SchemaRef<'a>,
        mut entries: A,
    ) -> Result<Value, A::Error> {
        let message = schema.message;
        let mut object = Object::new();
        let (mut seen, mut unknown) = (0u128, BTreeSet::new());
        while let Some(key) = entries.next_key_seed(KeySeed(message))? {
            let (index, field) = match key {
                Key::Known(index, field) => (index, field),
                Key::Unknown(name) if message.preserves_unknown_fields() => {
                    self.preserve(message, &mut object, name, &mut entries)?;
                    continue;
                }
                Key::Unknown(name) => {
                    // Upstream reads custom kinds without their schema first, and sees what comes twice then.
                    if message.is_lenient()
                        && unknown.len() < STRICT_ERRORS_MAX
                        && !unknown.insert(name.clone())
                    {
                        self.state.duplicate(self.path, &name);
                    }
                    self.state.unknown(self.path, &name, message);
                    entries.next_value::<de::IgnoredAny>()?;
                    continue;
                }
            };
            let bit = u32::try_from(index).ok().and_then(|index| 1u128.checked_shl(index));
            if bit.map_or_else(|| object.contains_key(&*field.name), |bit| seen & bit != 0) {
                self.state.duplicate(self.path, &field.name);
            }
            seen |= bit.unwrap_or(0);
            let at = match field.via.is_empty() {
                true => Path::Field(self.path, &field.name),
                false => Path::Inlined(self.path, message, field),
            };
            // The metadata of custom kinds is read apart from the rest, also by upstream.
            let is_alone = message.is_lenient() && self.path.is_root() && field.name == "metadata";
            let path = if is_alone { &Path::Alone(&at) } else { &at };
            let seed = Seed { ty: field.ty, path, state: self.state, owner: message };
            let value = entries.next_value_seed(seed)?;
            let is_left_out = value.is_null() && !seed.is_lenient() || field.omits_zero() && is_zero(&value);
            if !is_left_out {
                self.state.afford(self.state.budget.entry(object.len(), field.name.len()))?;
                object.insert(field.name.clone().into_owned(), value);
            }
        }
        self.state.afford(complete(schema, &mut object, &self.state.budget))?;
        Ok(Value::Object(object))
    }
}

impl<'a> Seed<'a> {
    /// Keeps a field that the schema does not know.
    fn preserve<'de, A: MapAccess<'de>>(
        self,
        owner: &'a Message,
        object: &mut Object,
        name: String,
        entries: &mut A,
    ) -> Result<(), A::Error> {
        if object.contains_key(&name) {
            self.state.duplicate(self.path, &name);
        }
        let path = Path::Field(self.path, &name);
        let value =
            entries.next_value_seed(Seed { ty: Type::Json, path: &path, state: self.state, owner })?;
        self.state.afford(self.state.budget.entry(object.len(), name.len()))?;
        object.insert(name, value);
        Ok(())
    }
}

/// A whole number as Go holds it where it knows no type: beyond 64 bits as a floating-point number.
fn go_number(number: i128, value: Number) -> Value {
    let is_held = i64::try_from(number).is_ok();
    let float = || value.as_f64().and_then(Number::from_f64);
    Value::Number(if is_held { value } else { float().unwrap_or(value) })
}

/// A floating-point number as Go writes it: one without a fraction is read again as a whole number.
pub(crate) fn go_float(value: f64, number: Number) -> Value {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is small enough")]
        return Value::Number((value as i64).into());
    }
    Value::Number(number)
}

/// Adds the objects that Go holds by value.
pub(crate) fn complete(schema: SchemaRef<'_>, object: &mut Object, budget: &Budget) -> Result<(), Exceeded> {
    for field in schema.fields().iter().filter(|field| field.is_by_value()) {
        if let Type::Message(index) = field.ty
            && !object.contains_key(&*field.name)
            && let Some(inner) = schema.schemas.at(index)
        {
            let mut value = Object::new();
            complete(inner, &mut value, budget)?;
            budget.entry(object.len(), field.name.len())?;
            object.insert(field.name.clone().into_owned(), Value::Object(value));
        }
    }
    Ok(())
}

/// Whether Go's `omitempty` leaves the value out.
pub(crate) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

pub(crate) fn props(schemas: &Schemas) -> Type {
    let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    schemas.message(name).map_or(Type::Json, |schema| Type::Message(schema.index))
}

enum Key<'a> {
    Known(usize, &'a Field),
    Unknown(String),
}

/// Finds the field of a key without making a string of it.
struct KeySeed<'a>(&'a Message);

impl<'de, 'a> DeserializeSeed<'de> for KeySeed<'a> {
    type Value = Key<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key<'a>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for KeySeed<'a> {
    type Value = Key<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a field name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Key<'a>, E> {
        Ok(match self.0.field(name) {
            Some((index, field)) => Key::Known(index, field),
            None => Key::Unknown(name.to_owned()),
        })
    }
}

/// The parser's complaint about a syntax error, in the words of Go.
pub(crate) fn in_words_of_go(failure: DecodeError, bytes: &[u8]) -> DecodeError {
    match failure {
        DecodeError::Syntax(text) => DecodeError::Syntax(match complaint(bytes) {
            Some(complaint) => complaint.to_string(),
            None if is_beyond_depth(&text) => SyntaxError::Depth.to_string(),
            None => text,
        }),
        other => other,
    }
}

#[cfg(test)]
mod tests;
