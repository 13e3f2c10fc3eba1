//! Between bytes and objects, and what the schema does to objects: the only file that names `schema`.

use std::borrow::Cow;
use std::sync::LazyLock;

use bytes::Bytes;
use machinery::apply::Versions;
use schema::patch::PatchError;
use schema::walk::decode::{self, DecodeError};
use schema::walk::default::Defaults;
use schema::{SchemaRef, proto};
use serde_json::Value;
use tracing::warn;

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

impl Versions for Kind {
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'static>> {
        schema_of(self.in_version(api_version)?).ok()
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let from = object.get("apiVersion").and_then(Value::as_str).and_then(|from| self.in_version(from))?;
        let stored = from.to_stored(object.clone());
        Some(self.in_version(api_version)?.to_served(Cow::Owned(stored)).into_owned())
    }
}

/// What all aliases of a YAML document together may expand to, in parser events: enough for any manifest, and a
/// document that multiplies itself is refused early.
const YAML_ALIAS_EVENTS_MAX: usize = 100_000;

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
            let alias_limits =
                serde_saphyr::alias_limits! { max_total_replayed_events: YAML_ALIAS_EVENTS_MAX };
            serde_saphyr::from_str_with_options(text, serde_saphyr::options! { alias_limits: alias_limits })
                .map_err(|failure| Error::bad_request(format!("error decoding the body as YAML: {failure}")))
        }
        Format::Protobuf => decode_protobuf(body),
    }
}

/// Parses a stored object: JSON, or the protobuf that a kube-apiserver writes. `None` if it is neither.
pub fn decode_stored(bytes: &[u8]) -> Option<Value> {
    let format = if bytes.starts_with(proto::MAGIC) { Format::Protobuf } else { Format::Json };
    decode(format, bytes).ok()
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

/// The schema of any type by `apiVersion` and kind; options, Status and tables are of every group.
fn schema_named(api_version: &str, kind: &str) -> Option<SchemaRef<'static>> {
    let (group, version) = machinery::group::split_api_version(api_version)?;
    let schemas = schema::builtin();
    schemas
        .kind(group, version, kind)
        .or_else(|| schemas.message(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")))
}

fn decode_protobuf(body: &[u8]) -> Result<Value> {
    let refused = |failure: proto::ProtoError| Error::bad_request(failure.to_string());
    let envelope = proto::open(body).map_err(refused)?;
    let Some(schema) = schema_named(envelope.api_version, envelope.kind) else {
        return Err(Error::bad_request(format!(
            "no kind {:?} is registered for version {:?}",
            envelope.kind, envelope.api_version
        )));
    };
    proto::decode(schema, &envelope).map_err(refused)
}

/// An object in protobuf, in its envelope; `None` if its type has no such form.
pub fn encode_protobuf(value: &Value) -> Option<Bytes> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let schema = schema_named(text("apiVersion"), text("kind"))?;
    logged(proto::encode(schema, value))
}

/// A stored object's message, without the envelope, in the form of `kind`.
pub fn encode_protobuf_message(kind: Kind, stored: &Value) -> Option<Bytes> {
    let value = kind.to_served(Cow::Borrowed(stored));
    logged(proto::encode_message(schema_of(kind).ok()?, &value))
}

/// A list of messages in the envelope of the kind's list.
pub fn protobuf_list(kind: Kind, metadata: &Value, items: &[Bytes]) -> Option<Bytes> {
    let items = items.iter().map(|item| item.as_ref());
    logged(proto::list(&kind.api_version(), kind.row().list_kind, metadata, items))
}

/// A message in the envelope of its kind.
pub fn protobuf_envelope(kind: Kind, message: &[u8]) -> Bytes {
    Bytes::from(proto::seal(&kind.api_version(), kind.kind(), message))
}

/// A frame of a watch around an object in its envelope.
pub fn protobuf_watch_event(event_type: &str, object: &[u8]) -> Bytes {
    Bytes::from(proto::watch_event(event_type, object))
}

fn logged(encoded: std::result::Result<Vec<u8>, proto::ProtoError>) -> Option<Bytes> {
    encoded.map(Bytes::from).inspect_err(|failure| warn!(%failure, "an object has no protobuf form")).ok()
}

/// Applies a patch to a served object.
///
/// # Errors
/// 400, 413 or 422 when it does not fit.
pub fn patch(kind: Kind, patch: &Patch, object: &Value) -> Result<Value> {
    match patch {
        Patch::Strategic(patch) => {
            schema::patch::strategic(schema_of(kind)?, object.clone(), patch.clone()).map_err(unfit)
        }
        _ => patch_untyped(patch, object),
    }
}

/// Applies a patch to an object without a schema; strategic is plain merge there.
///
/// # Errors
/// As [`patch`].
pub fn patch_untyped(patch: &Patch, object: &Value) -> Result<Value> {
    match patch {
        Patch::Json(operations) => schema::patch::json(object.clone(), operations),
        Patch::Merge(patch) | Patch::Strategic(patch) => schema::patch::merge(object.clone(), patch),
    }
    .map_err(unfit)
}

fn unfit(failure: PatchError) -> Error {
    match failure {
        PatchError::Malformed(text) => Error::bad_request(text),
        PatchError::Invalid(text) => Error::unprocessable(text),
        PatchError::TooLarge(text) => Error::entity_too_large(text),
    }
}

/// Reads an applied configuration as it is sent: YAML, of which JSON is the common case. Answers it with warnings
/// about duplicate fields.
///
/// # Errors
/// 400 when it cannot be parsed, is no object, or has duplicate fields under strict validation.
pub fn apply_config(kind: Kind, body: &[u8], validation: FieldValidation) -> Result<(Value, Vec<String>)> {
    configuration(schema_of(kind)?, body, validation)
}

/// As [`apply_config`], for the Scale of any kind.
///
/// # Errors
/// As [`apply_config`], and 400 for what is no Scale or does not fit its schema.
pub fn apply_scale(body: &[u8], validation: FieldValidation) -> Result<(Value, Vec<String>)> {
    let Some(schema) = schema_named("autoscaling/v1", "Scale") else {
        return Err(Error::internal("Scale has no schema"));
    };
    let (scale, warnings) = configuration(schema, body, validation)?;
    machinery::apply::check_configuration(schema, &scale).map_err(Error::bad_request)?;
    Ok((scale, warnings))
}

fn configuration(
    schema: SchemaRef<'_>,
    body: &[u8],
    validation: FieldValidation,
) -> Result<(Value, Vec<String>)> {
    let refused = |why: &str| Error::bad_request(format!("error decoding YAML: {why}"));
    let value = match serde_json::from_slice::<Value>(body) {
        Ok(value) => value,
        Err(_) => decode(Format::Yaml, body).map_err(|failure| refused(&failure.message))?,
    };
    if !value.is_object() {
        return Err(refused("the configuration is no object"));
    }
    if validation == FieldValidation::Ignore {
        return Ok((value, Vec::new()));
    }
    // The typed walk knows duplicates; everything else it could say is said by the apply itself.
    let decoded = decode::from_json(schema, body, decode::FieldValidation::Warn);
    let mut duplicates = decoded.map(|decoded| decoded.warnings).unwrap_or_default();
    duplicates.retain(|warning| warning.starts_with("duplicate field"));
    if validation == FieldValidation::Strict && !duplicates.is_empty() {
        return Err(Error::bad_request(format!("error strict decoding YAML: {}", duplicates.join(", "))));
    }
    Ok((value, duplicates))
}
