//! From a body to an object: format, kind, strictness.

use serde_json::Value;

use crate::codec::{self, FieldValidation};
use crate::kinds::Kind;
use crate::negotiate::{Format, JSON, YAML, content_format};
use crate::request::Authorized;
use crate::status::{Error, Result};

/// An object of the request's kind, as a body or a patch has it, or as the server makes it: nothing else is written.
#[derive(Clone, Debug)]
pub struct Decoded(Value);

impl Decoded {
    /// What the server's own code makes, mostly out of what is stored.
    pub(crate) fn of_server(object: Value) -> Self {
        Self(object)
    }

    /// The object.
    pub fn object(&self) -> &Value {
        &self.0
    }

    /// The object, for the stages that complete it.
    pub(crate) fn object_mut(&mut self) -> &mut Value {
        &mut self.0
    }

    /// The object itself.
    pub fn into_object(self) -> Value {
        self.0
    }
}

/// Decodes the body as an object of the request's kind, pruned to the fields that the schema knows. What is wrong and
/// passes is warned of, whatever comes of the request.
///
/// # Errors
/// 400, 415 or 422 with what is wrong.
pub fn body(request: &Authorized) -> Result<Decoded> {
    let format = content_format(&request.headers)?;
    if format == Format::Protobuf && !request.kind.has_protobuf(&request.resource.subresource) {
        return Err(Error::unsupported_media_type(&format!("{JSON}, {YAML}")));
    }
    let validation = FieldValidation::of(&request.info.query);
    let (mut object, warnings) = codec::decode_kind(&request.kind, format, &request.body, validation)?;
    super::ownership::keep_reset_of(&request.body, format, &mut object);
    let object = check_kind(&request.kind, object)?;
    request.notes.warn_all(warnings);
    Ok(Decoded(object))
}

/// Decodes the body as an object of a kind that is never stored, and checks it.
///
/// # Errors
/// As [`body`]; 400 for another namespace than the URL's, 422 with every broken field.
pub fn unstored(request: &Authorized) -> Result<Value> {
    let mut object = body(request)?.into_object();
    super::identity::take_namespace(request, &mut object)?;
    let errors = request.kind.validate_create(&object);
    if !errors.is_empty() {
        return Err(Error::invalid(request.kind.kind_subject(), "", &errors));
    }
    Ok(object)
}

/// Decodes the body as an object of some other kind: the options and requests that subresources take.
///
/// # Errors
/// 400 or 415.
pub fn body_of(request: &Authorized, api_version: &str, kind: &str) -> Result<Value> {
    let format = content_format(&request.headers)?;
    if request.body.is_empty() {
        return Ok(serde_json::json!({"apiVersion": api_version, "kind": kind}));
    }
    let mut value = codec::decode(format, &request.body)?;
    let Some(map) = value.as_object_mut() else {
        return Err(Error::bad_request("the body of the request is no object"));
    };
    for (name, expect) in [("apiVersion", api_version), ("kind", kind)] {
        if map.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
            map.insert(name.to_owned(), expect.into());
        }
    }
    let sent = value.get("apiVersion").and_then(Value::as_str).unwrap_or(api_version).to_owned();
    codec::check_types(&sent, kind, value)
}

/// The body of a DELETE, if there is one. It may say that it is of any group.
///
/// # Errors
/// 400 or 415.
pub fn options_body(request: &Authorized) -> Result<Option<Value>> {
    if request.body.is_empty() {
        return Ok(None);
    }
    let format = content_format(&request.headers)?;
    let value = codec::decode(format, &request.body)?;
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(Error::bad_request("decoded object cannot be converted to DeleteOptions"));
    }
    codec::check_types("meta.k8s.io/v1", "DeleteOptions", value).map(Some)
}

/// Checks what a patch made of an object, and that it is still of its kind. Warns as [`body`] does.
///
/// # Errors
/// 400 if it is of another kind now, 422 about the patch with the field that is wrong.
pub fn patched(
    request: &Authorized,
    value: Value,
    validation: FieldValidation,
    shown: impl FnOnce() -> String,
) -> Result<Decoded> {
    let (object, warnings) = codec::patched(&request.kind, value, validation, shown)?;
    request.notes.warn_all(warnings);
    check_kind(&request.kind, object).map(Decoded)
}

/// The object must be what the URL says it is; what it does not say is filled in.
fn check_kind(kind: &Kind, mut object: Value) -> Result<Value> {
    codec::claim(kind, &codec::TypeMeta::of_value(&object))?;
    let Some(map) = object.as_object_mut() else {
        return Err(Error::bad_request("the body of the request is no object"));
    };
    map.insert("apiVersion".to_owned(), kind.api_version().into());
    map.insert("kind".to_owned(), kind.kind().into());
    if map.get("metadata").is_none_or(Value::is_null) {
        map.insert("metadata".to_owned(), Value::Object(Default::default()));
    }
    Ok(object)
}
