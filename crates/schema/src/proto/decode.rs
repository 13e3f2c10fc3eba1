//! Bytes to a value.

use super::wire::{Reader, Wire};
use super::{Envelope, MAGIC, ProtoError, open};
use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Field, Schemas, Type};
use crate::time::Precision;
use crate::walk::budget::{Allowance, Budget, Exceeded};
use crate::walk::decode::{DecodeError, FieldValidation, complete, go_float, is_zero};
use crate::walk::stack::with_stack;
use crate::{duration, scalar, time};
use serde_json::{Number, Value};

/// How deep messages may nest; the same as for JSON.
const DEPTH_MAX: usize = 128;

pub(super) fn message(schema: SchemaRef<'_>, bytes: &[u8]) -> Result<Value, ProtoError> {
    let budget = Budget::new(Allowance::of(schema.message_name()), bytes.len());
    let walk = Walk { schemas: schema.schemas, budget: &budget, depth: 0 };
    with_stack(|| walk.message(schema.as_type().ty, bytes))
}

#[derive(Clone, Copy)]
struct Walk<'a> {
    schemas: &'a Schemas,
    budget: &'a Budget,
    depth: usize,
}

impl From<Exceeded> for ProtoError {
    fn from(Exceeded: Exceeded) -> Self {
        Self::TooLarge
    }
}

impl Walk<'_> {
    fn deeper(self) -> Result<Self, ProtoError> {
        if self.depth >= DEPTH_MAX {
            return Err(ProtoError::Malformed("nested too deeply"));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn message(self, ty: Type, bytes: &[u8]) -> Result<Value, ProtoError> {
        let mut object = Object::new();
        self.merge(ty, bytes, &mut object)?;
        Ok(Value::Object(object))
    }

    /// Reads a message into what is there of it already: a field that comes twice is one message in two parts.
    fn merge(self, ty: Type, bytes: &[u8], object: &mut Object) -> Result<(), ProtoError> {
        let Type::Message(index) = ty else { return Err(ProtoError::Malformed("not a message")) };
        // Also for another part of one: two bytes are little to pay for a walk.
        self.budget.element(false)?;
        let schema = self.schemas.at(index).ok_or(ProtoError::Malformed("unknown message"))?;
        self.deeper()?.fields(schema, &mut Vec::new(), bytes, object)?;
        complete(schema, object, self.budget)?;
        Ok(())
    }

    /// Reads the fields of a message, or of one that is embedded in it along `via`.
    fn fields(
        self,
        schema: SchemaRef<'_>,
        via: &mut Vec<u16>,
        bytes: &[u8],
        object: &mut Object,
    ) -> Result<(), ProtoError> {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            let here = |field: &&Field| field.number == number && field.via == via.as_slice();
            if let Some(field) = schema.fields().iter().find(here) {
                if !object.contains_key(&*field.name) {
                    self.budget.entry(object.len(), field.name.len())?;
                }
                let slot = object.entry(&*field.name).or_insert(Value::Null);
                self.field(field.ty, wire, slot).map_err(|error| named(field, error))?;
                if slot.is_null() || field.omits_zero() && is_zero(slot) {
                    object.remove(&*field.name);
                }
                continue;
            }
            via.push(number);
            if schema.fields().iter().any(|field| field.via.starts_with(via)) {
                self.fields(schema, via, wire.bytes()?, object)?;
            }
            via.pop();
        }
        Ok(())
    }

    /// Takes one occurrence of a field.
    fn field(self, ty: Type, wire: Wire<'_>, slot: &mut Value) -> Result<(), ProtoError> {
        match ty {
            Type::List(index) => {
                let item = self.schemas.item(index);
                if !slot.is_array() {
                    *slot = Value::Array(Vec::new());
                }
                let Value::Array(items) = slot else { return Ok(()) };
                if let (Type::Int32 | Type::Int64 | Type::Bool, Wire::Bytes(packed)) = (item, wire) {
                    let mut reader = Reader::new(packed);
                    while !reader.is_empty() {
                        let number = Wire::Varint(reader.varint()?);
                        self.budget.element(false)?;
                        items.push(self.single(item, number)?);
                    }
                    return Ok(());
                }
                let value = self.single(item, wire)?;
                self.budget.element(value.as_object().is_some_and(Object::is_empty))?;
                items.push(value);
            }
            Type::Map(index) => {
                if !slot.is_object() {
                    *slot = Value::Object(Object::new());
                }
                let Value::Object(entries) = slot else { return Ok(()) };
                let (key, value) = self.entry(self.schemas.map(index), wire.bytes()?)?;
                self.budget.entry(entries.len(), key.len())?;
                entries.insert(key, value);
            }
            _ => match slot {
                Value::Object(part) if matches!(ty, Type::Message(_)) => {
                    self.merge(ty, wire.bytes()?, part)?
                }
                slot => *slot = self.single(ty, wire)?,
            },
        }
        Ok(())
    }

    fn entry(self, ty: Type, bytes: &[u8]) -> Result<(String, Value), ProtoError> {
        let mut key = String::new();
        let mut value = Value::Null;
        self.budget.element(false)?;
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            match number {
                1 => wire.text()?.clone_into(&mut key),
                2 => value = self.single(ty, wire)?,
                _ => {}
            }
        }
        if value.is_null() {
            value = match ty {
                Type::String | Type::Bytes => "".into(),
                Type::Quantity => "0".into(),
                Type::Message(_) => Value::Object(Object::new()),
                Type::Wrapped(_) => Value::Array(Vec::new()),
                _ => Value::Null,
            };
        }
        Ok((key, value))
    }

    fn single(self, ty: Type, wire: Wire<'_>) -> Result<Value, ProtoError> {
        Ok(match ty {
            Type::Bool => (wire.number()? != 0).into(),
            Type::Int32 => {
                i32::try_from(wire.int()?).map_err(|_| ProtoError::Malformed("integer overflow"))?.into()
            }
            Type::Int64 => wire.int()?.into(),
            Type::Double => {
                let value = wire.double()?;
                Number::from_f64(value).map_or(Value::Null, |number| go_float(value, number))
            }
            Type::String => {
                let text = wire.text()?;
                self.budget.text(text.len())?;
                text.into()
            }
            Type::Bytes => scalar::to_base64(wire.bytes()?).into(),
            Type::Message(_) => self.message(ty, wire.bytes()?)?,
            Type::Quantity => quantity(wire.bytes()?)?,
            Type::IntOrString => int_or_string(wire.bytes()?)?,
            Type::Time | Type::MicroTime => time(ty, wire.bytes()?)?,
            Type::Duration => {
                let parts = numbers(wire.bytes()?)?;
                duration::format(parts[0]).into()
            }
            Type::Json | Type::FieldsV1 => self.raw(wire.bytes()?)?,
            Type::Wrapped(index) => {
                let mut items = Vec::new();
                let mut reader = Reader::new(wire.bytes()?);
                while let Some((number, wire)) = reader.next()? {
                    if number == 1 {
                        self.budget.element(false)?;
                        items.push(self.single(self.schemas.item(index), wire)?);
                    }
                }
                Value::Array(items)
            }
            Type::PropsOrArray | Type::PropsOrBool | Type::PropsOrStrings => self.props(ty, wire.bytes()?)?,
            Type::List(_) | Type::Map(_) => return Err(ProtoError::Malformed("a list within a list")),
        })
    }

    /// `RawExtension`, `JSON` and `FieldsV1`: JSON in bytes, or a whole protobuf body.
    fn raw(self, bytes: &[u8]) -> Result<Value, ProtoError> {
        let mut raw: &[u8] = &[];
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            if number == 1 {
                raw = wire.bytes()?;
            }
        }
        if raw.is_empty() {
            return Ok(Value::Null);
        }
        if raw.starts_with(MAGIC) {
            return self.embedded(&open(raw)?);
        }
        match crate::text::json(raw, Allowance::Usual, FieldValidation::Ignore) {
            Ok(decoded) => Ok(decoded.value),
            Err(DecodeError::TooLarge) => Err(ProtoError::TooLarge),
            Err(error) => Err(ProtoError::Field { field: "raw".into(), reason: error.to_string() }),
        }
    }

    fn embedded(self, envelope: &Envelope<'_>) -> Result<Value, ProtoError> {
        let (group, version) = envelope.api_version.split_once('/').unwrap_or(("", envelope.api_version));
        let schema = self.schemas.kind(group, version, envelope.kind);
        let schema = schema.ok_or(ProtoError::Malformed("unknown kind within a raw extension"))?;
        let mut value = self.message(schema.as_type().ty, envelope.raw)?;
        if let Value::Object(object) = &mut value {
            object.insert("apiVersion".into(), envelope.api_version.into());
            object.insert("kind".into(), envelope.kind.into());
        }
        Ok(value)
    }

    fn props(self, ty: Type, bytes: &[u8]) -> Result<Value, ProtoError> {
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let props = self.schemas.message(name).ok_or(ProtoError::Malformed("no JSONSchemaProps"))?;
        let props = props.as_type().ty;
        let (mut schema, mut allows, mut items) = (None, false, Vec::new());
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            match (ty, number) {
                (Type::PropsOrBool, 1) => allows = wire.number()? != 0,
                (Type::PropsOrBool, 2) | (_, 1) => schema = Some(self.message(props, wire.bytes()?)?),
                (Type::PropsOrArray, 2) => {
                    self.budget.element(true)?;
                    items.push(self.message(props, wire.bytes()?)?);
                }
                (Type::PropsOrStrings, 2) => {
                    self.budget.element(false)?;
                    items.push(wire.text()?.into());
                }
                _ => {}
            }
        }
        Ok(match (schema, ty) {
            (Some(schema), _) => schema,
            (None, Type::PropsOrBool) => allows.into(),
            (None, _) => Value::Array(items),
        })
    }
}

fn named(field: &Field, error: ProtoError) -> ProtoError {
    match error {
        ProtoError::Field { field: inner, reason } => {
            ProtoError::Field { field: format!("{}.{inner}", field.name), reason }
        }
        ProtoError::Malformed(reason) => {
            ProtoError::Field { field: field.name.clone().into_owned(), reason: reason.into() }
        }
        other => other,
    }
}

/// The numbers of the fields 1 and 2; absent ones are 0.
fn numbers(bytes: &[u8]) -> Result<[i64; 2], ProtoError> {
    let mut parts = [0; 2];
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if let Some(part) = usize::from(number).checked_sub(1).and_then(|at| parts.get_mut(at)) {
            *part = wire.int()?;
        }
    }
    Ok(parts)
}

fn quantity(bytes: &[u8]) -> Result<Value, ProtoError> {
    let mut reader = Reader::new(bytes);
    let mut text = "0";
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            text = wire.text()?;
        }
    }
    scalar::check_quantity(text).map_err(ProtoError::Malformed)?;
    Ok(text.into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtoError> {
    let (mut kind, mut int, mut text) = (0, 0, "");
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => kind = wire.int()?,
            2 => int = wire.int()?,
            3 => text = wire.text()?,
            _ => {}
        }
    }
    match i32::try_from(int) {
        _ if kind == 1 => Ok(text.into()),
        Ok(int) => Ok(int.into()),
        Err(_) => Err(ProtoError::Malformed("integer overflow")),
    }
}

/// An empty message is Go's zero time, which JSON has as null.
fn time(ty: Type, bytes: &[u8]) -> Result<Value, ProtoError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let [seconds, nanos] = numbers(bytes)?;
    let nanos = i32::try_from(nanos).ok();
    let time = nanos.and_then(|nanos| time::from_seconds(seconds, nanos));
    let time = time.ok_or(ProtoError::Malformed("time out of range"))?;
    let precision = if ty == Type::Time { Precision::Seconds } else { Precision::Micros };
    Ok(time::format(time, precision).into())
}
