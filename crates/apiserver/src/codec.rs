//! Between bytes and objects, and what the schema does to objects: the only module that names `schema`.

mod patch;
mod refusal;

use std::borrow::Cow;
use std::sync::LazyLock;

use bytes::Bytes;
use machinery::apply::{ApplyError, Versions};
use machinery::field::{FieldError, Path};
use schema::text;
use schema::walk::budget::{Allowance, fits};
use schema::walk::declared;
use schema::walk::decode::{self as walk, DecodeError};
use schema::walk::default::Defaults;
use schema::{SchemaRef, proto};
use serde_json::{Value, json};
use tracing::warn;

use crate::conversion::AtHand;
pub use crate::formats::{check_types, decode, encode_protobuf, fill_nulls, strip_nulls};
use crate::formats::{decode_protobuf, logged, schema_named};
use crate::kinds::{Kind, Kinds};
use crate::negotiate::Format;
use crate::request_info::Query;
use crate::status::{Error, Result, Subject};
pub use patch::{APPLY_PATCH, Patch};
pub use refusal::claim;
pub use schema::patch::{Operation, PatchError};
pub use schema::text::TypeMeta;

/// Bytes of an object that a policy makes: as many as of one that is sent.
const OBJECT_BYTES_MAX: usize = 3 * 1024 * 1024;

static DEFAULTS: LazyLock<Defaults> =
    LazyLock::new(|| Defaults::new(schema::builtin(), resources::defaults::rows()));

/// The treatment of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// A `Warning` header each; the default.
    Warn,
    /// 400.
    Strict,
}

impl FieldValidation {
    /// Reads `fieldValidation`; what makes no sense is refused elsewhere.
    pub fn of(query: &Query) -> Self {
        query.get("fieldValidation").and_then(Self::parse).unwrap_or(Self::Warn)
    }

    /// The validation of that name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// The schema of a kind.
///
/// # Errors
/// 500 for a row without a schema.
fn schema_of(kind: &Kind) -> Result<SchemaRef<'_>> {
    kind.schema().ok_or_else(|| Error::internal(format!("{} has no schema", kind.kind())))
}

/// A kind in all versions that are served.
pub struct Forms<'a> {
    /// The served kinds.
    pub kinds: &'a Kinds,
    /// The kind in one of them.
    pub kind: &'a Kind,
    /// The objects that a webhook has converted.
    pub at_hand: &'a AtHand,
}

impl Forms<'_> {
    fn in_version(&self, api_version: &str) -> Option<&Kind> {
        match api_version == self.kind.api_version() {
            true => Some(self.kind),
            false => self.kinds.in_version(self.kind, api_version),
        }
    }
}

impl Versions for Forms<'_> {
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>> {
        schema_of(self.in_version(api_version)?).ok()
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let from = object.get("apiVersion").and_then(Value::as_str).and_then(|from| self.in_version(from))?;
        let to = self.in_version(api_version)?;
        if to.api_version() == from.api_version() {
            return Some(object.clone());
        }
        if self.kind.conversion().is_some() {
            return self.at_hand.find(object, api_version);
        }
        Some(to.to_served(Cow::Owned(from.to_stored(object.clone()))).into_owned())
    }
}

/// Decodes the body of an object of `kind`: strict, pruned; answers the object and warnings.
///
/// # Errors
/// 400 for what cannot be parsed, claims to be something else, has wrong types, or under strict validation unknown or
/// duplicate fields; 413 for what would take too much memory.
pub fn decode_kind(
    kind: &Kind,
    format: Format,
    body: &[u8],
    validation: FieldValidation,
) -> Result<(Value, Vec<String>)> {
    let schema = schema_of(kind)?;
    let mode = mode(validation);
    let decoded = match format {
        Format::Json => walk::from_json(schema, body, mode),
        Format::Yaml => from_yaml(kind, body, mode),
        Format::Protobuf => {
            let value =
                decode_protobuf(body).map_err(|failure| refusal::of_protobuf(kind, body, &failure))?;
            claim(kind, &TypeMeta::of_value(&value))?;
            walk::from_value(schema, value, mode)
        }
    };
    let decoded = decoded.map_err(|failure| refusal::of_kind(kind, format, body, &failure))?;
    Ok((decoded.value, decoded.warnings))
}

/// YAML is read twice: as any document, then as an object of its kind.
fn from_yaml(
    kind: &Kind,
    body: &[u8],
    mode: walk::FieldValidation,
) -> std::result::Result<walk::Decoded, DecodeError> {
    let Ok(schema) = schema_of(kind) else { return Err(DecodeError::Syntax(String::new())) };
    let read = text::yaml(body, Allowance::of(schema.message_name()), mode)?;
    if claim(kind, &TypeMeta::of_value(&read.value)).is_err() {
        return Ok(read);
    }
    let mut decoded = walk::from_value(schema, read.value, mode)?;
    decoded.warnings.splice(..0, read.warnings);
    Ok(decoded)
}

/// Prunes and checks what a patch made of an object of `kind`; answers it with warnings. `shown` is what the client is
/// told that it sent.
///
/// # Errors
/// 422 about the patch: for wrong types, and under strict validation unknown fields.
pub fn patched(
    kind: &Kind,
    value: Value,
    validation: FieldValidation,
    shown: impl FnOnce() -> String,
) -> Result<(Value, Vec<String>)> {
    let decoded = walk::from_value(schema_of(kind)?, value, mode(validation));
    let decoded = decoded.map_err(|failure| invalid_patch(&shown(), &failure.to_string()))?;
    Ok((decoded.value, decoded.warnings))
}

/// Prunes and checks what a webhook or a policy made of an object of `kind`. Of built-in kinds unknown fields are refused
/// under strict validation; of custom ones they go.
///
/// # Errors
/// 500 for wrong types and unknown fields: the client has nothing to do with them.
pub fn made(kind: &Kind, value: Value, validation: FieldValidation) -> Result<Value> {
    let is_strict = validation == FieldValidation::Strict && !kind.is_custom();
    let mode = if is_strict { walk::FieldValidation::Warn } else { walk::FieldValidation::Ignore };
    let decoded = walk::from_value(schema_of(kind)?, value, mode).map_err(Error::internal)?;
    match decoded.warnings.as_slice() {
        [] => Ok(decoded.value),
        unknown => Err(Error::internal(format!("strict decoding error: {}", unknown.join(", ")))),
    }
}

/// Merges the configuration of a mutating policy into an object of `kind`, or of the type that was sent to a subresource.
///
/// # Errors
/// 503 if nothing is known of such objects; within, why the configuration does not fit.
pub fn merge_unowned(
    kind: &Kind,
    sent_as: Option<(&str, &str)>,
    object: &Value,
    config: &Value,
) -> Result<std::result::Result<Value, ApplyError>> {
    let schema = match sent_as {
        Some((api_version, kind)) => schema_named(api_version, kind),
        None => schema_of(kind).ok(),
    };
    let schema = schema.ok_or_else(|| {
        let name = sent_as.map_or_else(|| kind.api_version_kind(), |(version, kind)| format!("{version}, Kind={kind}"));
        Error::unavailable(format!(
            "Resource kind {name} not found. There can be a delay between when CustomResourceDefinitions are created and \
             when they are available."
        ))
    })?;
    Ok(machinery::apply::merge_unowned(schema, object, config))
}

/// Applies operations of a JSON patch that do not come from a client.
///
/// # Errors
/// Why they cannot be applied.
pub fn apply_operations(object: Value, operations: Vec<Operation>) -> std::result::Result<Value, PatchError> {
    schema::patch::operations(object, operations)
}

/// `true` if an object of `kind` takes no more memory than one that is sent may take.
pub fn is_acceptable(kind: &Kind, object: &Value) -> bool {
    let allowance = schema_of(kind).map_or(Allowance::Usual, |schema| Allowance::of(schema.message_name()));
    fits(object, allowance, OBJECT_BYTES_MAX)
}

/// 422: what a patch makes of an object is none.
pub fn invalid_patch(shown: &str, why: &str) -> Error {
    let error = FieldError::invalid(&Path::new("patch"), shown, why);
    Error::invalid(Subject { group: "", resource: "" }, "", &error.into())
}

fn mode(validation: FieldValidation) -> walk::FieldValidation {
    match validation {
        FieldValidation::Ignore => walk::FieldValidation::Ignore,
        FieldValidation::Warn => walk::FieldValidation::Warn,
        FieldValidation::Strict => walk::FieldValidation::Strict,
    }
}

/// Fills in defaults.
///
/// # Errors
/// 413 if those of a custom kind take too much memory.
pub fn default(kind: &Kind, value: &mut Value) -> Result<()> {
    let Ok(schema) = schema_of(kind) else { return Ok(()) };
    if kind.is_custom() {
        return declared::apply(schema, value)
            .map_err(|failure| Error::entity_too_large(failure.to_string()));
    }
    DEFAULTS.apply(schema, value);
    Ok(())
}

/// A stored object's message, without the envelope, in the form of `kind`.
pub fn encode_protobuf_message(kind: &Kind, stored: &Value) -> Option<Bytes> {
    let value = kind.to_served(Cow::Borrowed(stored));
    if kind.is_custom() {
        // Only its metadata has such a form, and nothing else is asked for in it.
        let schema = schema_named("meta.k8s.io/v1", "PartialObjectMetadata")?;
        return logged(proto::encode_message(schema, &json!({"metadata": value.get("metadata")})));
    }
    logged(proto::encode_message(schema_of(kind).ok()?, &value))
}

/// The bytes around the messages of a list and before each of them.
pub fn protobuf_list_frame(
    (api_version, kind): (&str, &str),
    metadata: &Value,
    lengths: impl IntoIterator<Item = usize>,
) -> Option<proto::ListFrame> {
    let frame = proto::list_frame(api_version, kind, metadata, lengths);
    frame.inspect_err(|failure| warn!(%failure, "a list has no protobuf form")).ok()
}

/// The bytes before an item of a list.
pub fn protobuf_list_item_head(length: usize) -> impl AsRef<[u8]> {
    proto::list_item_head(length)
}

/// The message of the `PartialObjectMetadata` of an object's message.
pub fn protobuf_partial(message: &[u8]) -> Option<Bytes> {
    logged(proto::partial_message(message))
}

/// A message in the envelope of its type.
pub fn protobuf_envelope((api_version, kind): (&str, &str), message: &[u8]) -> Bytes {
    Bytes::from(proto::seal(api_version, kind, message))
}

/// A frame of a watch around an object in its envelope.
pub fn protobuf_watch_event(event_type: &str, object: &[u8]) -> Bytes {
    Bytes::from(proto::watch_event(event_type, object))
}

/// Applies a patch to a served object.
///
/// # Errors
/// 400, 413 or 422 when it does not fit.
pub fn patch(kind: &Kind, patch: &Patch, object: &Value) -> Result<Value> {
    patch_of(schema_of(kind)?, patch, object)
}

/// Applies a JSON patch that does not come from a client.
///
/// # Errors
/// Why it cannot be applied.
pub fn json_patch(object: Value, operations: &[u8]) -> std::result::Result<Value, PatchError> {
    schema::patch::json(object, operations)
}

/// Applies a patch to a Scale of any kind.
///
/// # Errors
/// As [`patch`].
pub fn patch_scale(patch: &Patch, scale: &Value) -> Result<Value> {
    patch_of(scale_schema()?, patch, scale)
}

fn patch_of(schema: SchemaRef<'_>, patch: &Patch, object: &Value) -> Result<Value> {
    match patch {
        Patch::Json(operations) => schema::patch::json(object.clone(), operations),
        Patch::Merge(patch) => schema::patch::merge(object.clone(), patch),
        Patch::Strategic(patch) => schema::patch::strategic(schema, object.clone(), patch.clone())
            .map(|new| of_same_kind(new, object)),
    }
    .map_err(unfit)
}

/// What a strategic patch says of the kind counts for nothing, as long as it is text.
///
/// Source: `smpPatcher` of `k8s.io/apiserver/pkg/endpoints/handlers/patch.go`: the type is the resource's.
fn of_same_kind(mut patched: Value, object: &Value) -> Value {
    if let Some(map) = patched.as_object_mut() {
        for name in ["apiVersion", "kind"] {
            let is_counted = map.get(name).is_some_and(|said| !(said.is_string() || said.is_null()));
            if !is_counted && let Some(own) = object.get(name) {
                map.insert(name.to_owned(), own.clone());
            }
        }
    }
    patched
}

fn scale_schema() -> Result<SchemaRef<'static>> {
    schema_named("autoscaling/v1", "Scale").ok_or_else(|| Error::internal("Scale has no schema"))
}

fn unfit(failure: PatchError) -> Error {
    match failure {
        PatchError::Malformed(text) => Error::bad_request(text),
        PatchError::Invalid(text) | PatchError::TestFailed(text) => Error::unprocessable(text),
        PatchError::TooLarge(text) => Error::entity_too_large(text),
    }
}

/// Reads the body of a merge patch; answers it with what strict validation finds in it.
///
/// # Errors
/// 400 when it cannot be parsed, 413 when it would take too much memory.
pub fn merge_patch(
    kind: &Kind,
    body: &[u8],
    validation: FieldValidation,
    what: &str,
) -> Result<(Value, Vec<String>)> {
    let mode = match validation {
        FieldValidation::Ignore => walk::FieldValidation::Ignore,
        _ => walk::FieldValidation::Warn,
    };
    let refused = |why: &str| Error::bad_request(format!("{what}{why}"));
    let read = text::json(body, Allowance::of(schema_of(kind)?.message_name()), mode);
    let read = read.map_err(|failure| match failure {
        DecodeError::TooLarge => Error::entity_too_large(failure.to_string()),
        _ => refused(&failure.to_string()),
    })?;
    match &read.value {
        Value::Object(_) => Ok((read.value, read.warnings)),
        other => {
            let found = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            Err(refused(&format!(
                "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
            )))
        }
    }
}

/// A patch as Go prints a map.
pub fn go_text(patch: &Value) -> String {
    schema::patch::go_text(patch)
}

/// Reads an applied configuration as it is sent: YAML, of which JSON is the common case. Answers it with warnings
/// about duplicate fields.
///
/// # Errors
/// 400 when it cannot be parsed, is no object, or has duplicate fields under strict validation.
pub fn apply_config(kind: &Kind, body: &[u8], validation: FieldValidation) -> Result<(Value, Vec<String>)> {
    configuration(schema_of(kind)?, body, validation)
}

/// As [`apply_config`], for the Scale of any kind.
///
/// # Errors
/// As [`apply_config`], and 400 for what is no Scale or does not fit its schema.
pub fn apply_scale(body: &[u8], validation: FieldValidation) -> Result<(Value, Vec<String>)> {
    let schema = scale_schema()?;
    let (scale, warnings) = configuration(schema, body, validation)?;
    machinery::apply::check_configuration(schema, &scale)
        .map_err(|error| Error::bad_request(error.to_string()))?;
    Ok((scale, warnings))
}

fn configuration(
    schema: SchemaRef<'_>,
    body: &[u8],
    validation: FieldValidation,
) -> Result<(Value, Vec<String>)> {
    let refused = |why: &str| Error::bad_request(format!("error decoding YAML: {why}"));
    let allowance = Allowance::of(schema.message_name());
    let mode = match validation {
        FieldValidation::Ignore => walk::FieldValidation::Ignore,
        _ => walk::FieldValidation::Warn,
    };
    let read = match text::json(body, allowance, mode) {
        Err(DecodeError::Syntax(_)) => text::yaml(body, allowance, mode),
        other => other,
    };
    let read = read.map_err(|failure| match failure {
        DecodeError::TooLarge => Error::entity_too_large(failure.to_string()),
        _ => refused(&failure.to_string()),
    })?;
    if !read.value.is_object() {
        return Err(refused("the configuration is no object"));
    }
    if validation == FieldValidation::Strict && !read.warnings.is_empty() {
        return Err(Error::bad_request(format!("error strict decoding YAML: {}", read.warnings.join(", "))));
    }
    Ok((read.value, read.warnings))
}
