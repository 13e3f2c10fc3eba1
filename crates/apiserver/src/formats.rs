//! Between bytes and values by what they say that they are: no kind is asked. What a kind adds is in `codec`.

use bytes::Bytes;
use schema::text;
use schema::walk::budget::Allowance;
use schema::walk::decode::{self, DecodeError};
use schema::walk::nulls::Nulls;
use schema::{SchemaRef, proto};
use serde_json::{Value, json};
use tracing::warn;

use crate::negotiate::Format;
use crate::status::{Error, Result};

/// Parses a body of any type: nothing is pruned or checked.
///
/// # Errors
/// 400 when it cannot be parsed, 413 when it would take too much memory.
pub fn decode(format: Format, body: &[u8]) -> Result<Value> {
    let ignore = decode::FieldValidation::Ignore;
    let decoded = match format {
        Format::Json => text::json(body, Allowance::Usual, ignore),
        Format::Yaml => text::yaml(body, Allowance::Usual, ignore),
        Format::Protobuf => return decode_protobuf(body).map_err(|failure| unreadable(&failure)),
    };
    decoded.map(|decoded| decoded.value).map_err(|failure| match failure {
        DecodeError::Syntax(why) if format == Format::Json => {
            Error::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
        }
        DecodeError::TooLarge => Error::entity_too_large(failure.to_string()),
        _ => Error::bad_request(failure.to_string()),
    })
}

fn unreadable(failure: &proto::ProtoError) -> Error {
    match failure {
        proto::ProtoError::TooLarge => Error::entity_too_large(failure.to_string()),
        _ => Error::bad_request(failure.to_string()),
    }
}

/// Parses a stored object: JSON, or the protobuf that a kube-apiserver writes. `None` if it is neither.
pub fn decode_stored(bytes: &[u8]) -> Option<Value> {
    let format = if bytes.starts_with(proto::MAGIC) { Format::Protobuf } else { Format::Json };
    decode(format, bytes).ok()
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

/// Writes null where Go does for what is not set: how an object is stored and sent.
pub fn fill_nulls(object: &mut Value) {
    if let Some(schema) = schema_of_object(object) {
        Nulls::builtin().fill(schema, object);
    }
}

/// Takes the nulls of [`fill_nulls`] out again: how an object is worked with.
pub fn strip_nulls(object: &mut Value) {
    if let Some(schema) = schema_of_object(object) {
        Nulls::builtin().strip(schema, object);
    }
}

/// The schema of what an object says that it is.
fn schema_of_object(object: &Value) -> Option<SchemaRef<'static>> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = machinery::group::split_api_version(text("apiVersion"))?;
    schema::builtin().kind(group, version, text("kind"))
}

/// The schema of any type by `apiVersion` and kind; options, Status and tables are of every group.
pub(crate) fn schema_named(api_version: &str, kind: &str) -> Option<SchemaRef<'static>> {
    let (group, version) = machinery::group::split_api_version(api_version)?;
    let schemas = schema::builtin();
    schemas
        .kind(group, version, kind)
        .or_else(|| schemas.message(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")))
}

/// What an envelope holds, by the type that it names.
pub(crate) fn decode_protobuf(body: &[u8]) -> std::result::Result<Value, proto::ProtoError> {
    let envelope = proto::open(body)?;
    match schema_named(envelope.api_version, envelope.kind) {
        Some(schema) => proto::decode(schema, &envelope),
        // Whoever knows what it must be says what is wrong.
        None => Ok(json!({"apiVersion": envelope.api_version, "kind": envelope.kind})),
    }
}

/// An object in protobuf, in its envelope; `None` if its type has no such form.
pub fn encode_protobuf(value: &Value) -> Option<Bytes> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let schema = schema_named(text("apiVersion"), text("kind"))?;
    logged(proto::encode(schema, value))
}

/// What was encoded; that it could not be is logged.
pub(crate) fn logged(encoded: std::result::Result<Vec<u8>, proto::ProtoError>) -> Option<Bytes> {
    encoded.map(Bytes::from).inspect_err(|failure| warn!(%failure, "an object has no protobuf form")).ok()
}
