//! A value to bytes.

use super::{ProtoError, wire};
use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Schemas, Type};
use crate::time::Precision;
use crate::{duration, scalar, time};
use serde_json::Value;

pub(super) fn message(schema: SchemaRef<'_>, value: &Value) -> Result<Vec<u8>, ProtoError> {
    let Value::Object(object) = value else { return Err(ProtoError::Malformed("not an object")) };
    let mut out = Vec::with_capacity(1024);
    Walk { schemas: schema.schemas }.fields(schema, object, &[], &mut out)?;
    Ok(out)
}

#[derive(Clone, Copy)]
struct Walk<'a> {
    schemas: &'a Schemas,
}

impl Walk<'_> {
    /// Writes the fields of an object that lie in the embedded message `via`.
    fn fields(
        self,
        schema: SchemaRef<'_>,
        object: &Object,
        via: &[u16],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtoError> {
        let mut embedded: Vec<&[u16]> = Vec::new();
        for (name, value) in object {
            let Some(field) = schema.field(name) else { continue };
            if field.number == 0 || value.is_null() {
                continue;
            }
            if field.via == via {
                self.field(field.ty, field.number, value, out).map_err(|reason| ProtoError::Field {
                    field: name.clone(),
                    reason: match reason {
                        ProtoError::Malformed(reason) => reason.to_owned(),
                        other => other.to_string(),
                    },
                })?;
            } else if let Some(next) = field.via.get(..=via.len())
                && next.starts_with(via)
                && !embedded.contains(&next)
            {
                embedded.push(next);
            }
        }
        for next in embedded {
            if let Some(number) = next.last() {
                wire::nested(out, *number, |out| self.fields(schema, object, next, out))?;
            }
        }
        Ok(())
    }

    fn field(self, ty: Type, number: u16, value: &Value, out: &mut Vec<u8>) -> Result<(), ProtoError> {
        const WRONG: ProtoError = ProtoError::Malformed("the value is of the wrong type");
        match (ty, value) {
            (Type::List(index), Value::Array(items)) => {
                let item = self.schemas.item(index);
                return items.iter().try_for_each(|value| self.field(item, number, value, out));
            }
            (Type::Map(index), Value::Object(entries)) => {
                let ty = self.schemas.map(index);
                return entries.iter().try_for_each(|(key, value)| {
                    wire::nested(out, number, |out| {
                        wire::bytes(out, 1, key.as_bytes());
                        self.field(ty, 2, value, out)
                    })
                });
            }
            (Type::Message(index), Value::Object(object)) => {
                let schema = self.schemas.at(index).ok_or(ProtoError::Malformed("unknown message"))?;
                return wire::nested(out, number, |out| self.fields(schema, object, &[], out));
            }
            (Type::Wrapped(index), Value::Array(items)) => {
                let item = self.schemas.item(index);
                return wire::nested(out, number, |out| {
                    items.iter().try_for_each(|value| self.field(item, 1, value, out))
                });
            }
            (Type::PropsOrArray | Type::PropsOrBool | Type::PropsOrStrings, value) => {
                return wire::nested(out, number, |out| self.props(ty, value, out));
            }
            (Type::Json | Type::FieldsV1, value) => {
                wire::nested(out, number, |out| wire::bytes(out, 1, value.to_string().as_bytes()));
            }
            (Type::Bool, Value::Bool(value)) => wire::int(out, number, i64::from(*value)),
            (Type::Int32 | Type::Int64, Value::Number(value)) => {
                wire::int(out, number, value.as_i64().ok_or(WRONG)?);
            }
            (Type::Double, Value::Number(value)) => wire::double(out, number, value.as_f64().ok_or(WRONG)?),
            (Type::String, Value::String(text)) => wire::bytes(out, number, text.as_bytes()),
            (_, Value::String(text)) => return special(ty, number, text, out).ok_or(WRONG),
            (Type::IntOrString, Value::Number(value)) => {
                let value = value.as_i64().ok_or(WRONG)?;
                wire::nested(out, number, |out| {
                    wire::int(out, 1, 0);
                    wire::int(out, 2, value);
                    wire::bytes(out, 3, b"");
                });
            }
            _ => return Err(WRONG),
        }
        Ok(())
    }

    fn props(self, ty: Type, value: &Value, out: &mut Vec<u8>) -> Result<(), ProtoError> {
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let props = self.schemas.message(name).ok_or(ProtoError::Malformed("no JSONSchemaProps"))?;
        let props = props.as_type().ty;
        match (ty, value) {
            (Type::PropsOrBool, Value::Bool(allows)) => wire::int(out, 1, i64::from(*allows)),
            (Type::PropsOrBool, value) => {
                wire::int(out, 1, 1);
                self.field(props, 2, value, out)?;
            }
            (Type::PropsOrArray, Value::Array(items)) => {
                items.iter().try_for_each(|value| self.field(props, 2, value, out))?;
            }
            (_, Value::Array(items)) => {
                items.iter().try_for_each(|value| self.field(Type::String, 2, value, out))?;
            }
            (_, value) => self.field(props, 1, value, out)?,
        }
        Ok(())
    }
}

/// Writes a text that protobuf has as something else; `None` if it is not one.
fn special(ty: Type, number: u16, text: &str, out: &mut Vec<u8>) -> Option<()> {
    match ty {
        Type::Bytes => wire::bytes(out, number, &scalar::from_base64(text).ok()?),
        Type::Quantity => wire::nested(out, number, |out| wire::bytes(out, 1, text.as_bytes())),
        Type::IntOrString => wire::nested(out, number, |out| {
            wire::int(out, 1, 1);
            wire::int(out, 2, 0);
            wire::bytes(out, 3, text.as_bytes());
        }),
        Type::Time | Type::MicroTime => {
            let (seconds, nanos) = time::to_seconds(time::parse(text, Precision::Seconds).ok()?);
            let nanos = if ty == Type::Time { 0 } else { nanos };
            wire::nested(out, number, |out| {
                wire::int(out, 1, seconds);
                wire::int(out, 2, nanos.into());
            });
        }
        Type::Duration => {
            let duration = duration::parse(text).ok()?;
            wire::nested(out, number, |out| wire::int(out, 1, duration));
        }
        _ => return None,
    }
    Some(())
}
