//! Between bytes and objects, and what the schema does to objects: the only file that names `schema`.

use std::sync::LazyLock;

use schema::SchemaRef;
use schema::walk::decode::{self, DecodeError};
use schema::walk::default::Defaults;
use serde_json::Value;

use crate::kinds::Kind;
use crate::negotiate::Format;
use crate::status::{Error, Result};
use crate::verbs::options::FieldValidation;
use crate::verbs::patch::Patch;

static DEFAULTS: LazyLock<Defaults> =
    LazyLock::new(|| Defaults::new(schema::builtin(), resources::defaults::rows()));

/// The schema of a kind.
///
/// # Errors
/// 500 for a row without a schema.
fn schema_of(kind: Kind) -> Result<SchemaRef<'static>> {
    let row = kind.row();
    schema::builtin()
        .kind(row.group, row.version, row.kind)
        .ok_or_else(|| Error::internal(format!("{} has no schema", row.kind)))
}

/// Parses a body of any type.
///
/// # Errors
/// 400 when it cannot be parsed.
pub fn decode(format: Format, body: &[u8]) -> Result<Value> {
    match format {
        Format::Json => serde_json::from_slice(body)
            .map_err(|failure| Error::bad_request(format!("error decoding the body as JSON: {failure}"))),
        Format::Yaml => {
            let text = std::str::from_utf8(body).map_err(|_| Error::bad_request("the body is no UTF-8"))?;
            serde_saphyr::from_str(text)
                .map_err(|failure| Error::bad_request(format!("error decoding the body as YAML: {failure}")))
        }
        Format::Protobuf => decode_protobuf(body),
    }
}

/// Decodes the body of an object of `kind`: strict, pruned; answers the object and warnings.
///
/// # Errors
/// 400 for what cannot be parsed, wrong types, and unknown or duplicate fields under strict validation.
pub fn decode_kind(
    kind: Kind,
    format: Format,
    body: &[u8],
    validation: FieldValidation,
) -> Result<(Value, Vec<String>)> {
    if format != Format::Json {
        return typed(kind, decode(format, body)?, validation);
    }
    let decoded = decode::from_json(schema_of(kind)?, body, mode(validation));
    decoded.map(|decoded| (decoded.value, decoded.warnings)).map_err(|failure| refused(kind, &failure))
}

/// Prunes and checks a parsed object of `kind`; answers it with warnings.
///
/// # Errors
/// As [`decode_kind`].
pub fn typed(kind: Kind, value: Value, validation: FieldValidation) -> Result<(Value, Vec<String>)> {
    let decoded = decode::from_value(schema_of(kind)?, value, mode(validation));
    decoded.map(|decoded| (decoded.value, decoded.warnings)).map_err(|failure| refused(kind, &failure))
}

/// Checks an object of some other type than its row's, such as `Eviction`.
///
/// # Errors
/// 400 for wrong types.
pub fn check_types(api_version: &str, kind: &str, value: Value) -> Result<Value> {
    let (group, version) = machinery::group::split_api_version(api_version).unwrap_or(("", api_version));
    let Some(schema) = schema::builtin().kind(group, version, kind) else { return Ok(value) };
    decode::from_value(schema, value, decode::FieldValidation::Ignore)
        .map(|decoded| decoded.value)
        .map_err(|failure| Error::bad_request(failure.to_string()))
}

fn mode(validation: FieldValidation) -> decode::FieldValidation {
    match validation {
        FieldValidation::Ignore => decode::FieldValidation::Ignore,
        FieldValidation::Warn => decode::FieldValidation::Warn,
        FieldValidation::Strict => decode::FieldValidation::Strict,
    }
}

fn refused(kind: Kind, failure: &DecodeError) -> Error {
    let row = kind.row();
    match failure {
        DecodeError::Syntax(text) | DecodeError::Type(text) => Error::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {text}",
            row.kind, row.version, row.kind
        )),
        DecodeError::Strict(_) => Error::bad_request(failure.to_string()),
    }
}

/// Fills in defaults.
pub fn default(kind: Kind, value: &mut Value) {
    if let Ok(schema) = schema_of(kind) {
        DEFAULTS.apply(schema, value);
    }
}

fn decode_protobuf(_body: &[u8]) -> Result<Value> {
    Err(Error::unsupported_media_type("application/json, application/yaml"))
}

/// Applies a patch to a served object.
///
/// # Errors
/// 400 or 422 when it does not fit.
pub fn patch(_kind: Kind, patch: &Patch, object: &Value) -> Result<Value> {
    patch_untyped(patch, object)
}

/// Applies a patch to an object without a schema.
///
/// # Errors
/// As [`patch`].
pub fn patch_untyped(patch: &Patch, object: &Value) -> Result<Value> {
    match patch {
        Patch::Merge(patch) | Patch::Strategic(patch) => {
            let mut new = object.clone();
            merge(&mut new, patch);
            Ok(new)
        }
        Patch::Json(_) => Err(Error::bad_request("JSON patch is not there yet")),
    }
}

/// RFC 7386.
fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Default::default());
    }
    let Some(object) = object.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// An object in protobuf, in its envelope; `None` if its type has no such form.
pub fn encode_protobuf(_value: &Value) -> Option<bytes::Bytes> {
    None
}

/// A stored object's message, without the envelope, in the form of `kind`.
pub fn encode_protobuf_message(_kind: Kind, _stored: &Value) -> Option<bytes::Bytes> {
    None
}
