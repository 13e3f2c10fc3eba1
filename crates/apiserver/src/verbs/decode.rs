//! From a body to an object: format, kind, strictness.

use serde_json::Value;

use super::Request;
use super::options::FieldValidation;
use crate::codec;
use crate::kinds::Kind;
use crate::negotiate::content_format;
use crate::status::{Error, Result};

/// An object as the client sent it.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// Pruned to the fields the schema knows.
    pub object: Value,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

/// Decodes the body as an object of the request's kind.
///
/// # Errors
/// 400, 415 or 422 with what is wrong.
pub fn body(request: &Request) -> Result<Decoded> {
    let format = content_format(&request.headers)?;
    if request.body.is_empty() {
        return Err(Error::bad_request("the body of the request was empty"));
    }
    let validation = FieldValidation::of(request);
    match codec::decode_kind(request.kind, format, &request.body, validation) {
        Ok((object, warnings)) => check_kind(request, request.kind, object, warnings),
        // An object of another kind may well have the wrong types; what it claims to be says more.
        Err(failure) => match codec::decode(format, &request.body) {
            Ok(object) => check_kind(request, request.kind, object, Vec::new()).and(Err(failure)),
            Err(_) => Err(failure),
        },
    }
}

/// Decodes the body as an object of some other kind: the options and requests that subresources take.
///
/// # Errors
/// 400 or 415.
pub fn body_of(request: &Request, api_version: &str, kind: &str) -> Result<Value> {
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

/// The body of a DELETE, if there is one.
///
/// # Errors
/// 400 or 415.
pub fn options_body(request: &Request) -> Result<Value> {
    if request.body.is_empty() {
        return Ok(Value::Null);
    }
    let format = content_format(&request.headers)?;
    let value = codec::decode(format, &request.body)?;
    if !value.is_object() && !value.is_null() {
        return Err(Error::bad_request("the body of the request is no object"));
    }
    Ok(value)
}

/// Checks that a parsed value is an object of `kind` and knows no other fields.
///
/// # Errors
/// 400 with every field that is wrong.
pub fn typed(request: &Request, kind: Kind, value: Value, validation: FieldValidation) -> Result<Decoded> {
    let (object, warnings) = codec::typed(kind, value, validation)?;
    check_kind(request, kind, object, warnings)
}

/// The object must be what the URL says it is; what it does not say is filled in.
fn check_kind(request: &Request, kind: Kind, mut object: Value, warnings: Vec<String>) -> Result<Decoded> {
    let Some(map) = object.as_object_mut() else {
        return Err(Error::bad_request("the body of the request is no object"));
    };
    let api_version = kind.api_version();
    let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (sent, sent_kind) = (text("apiVersion"), text("kind"));
    if !sent_kind.is_empty() && sent_kind != kind.kind() {
        return Err(wrong_kind(request, kind, &sent, &sent_kind));
    }
    if !sent.is_empty() && sent != api_version {
        return Err(Error::bad_request(format!(
            "the API version in the data ({sent}) does not match the expected API version ({api_version})"
        )));
    }
    map.insert("apiVersion".to_owned(), api_version.into());
    map.insert("kind".to_owned(), kind.kind().into());
    if map.get("metadata").is_none_or(Value::is_null) {
        map.insert("metadata".to_owned(), Value::Object(Default::default()));
    }
    Ok(Decoded { object, warnings })
}

fn wrong_kind(request: &Request, kind: Kind, sent_version: &str, sent_kind: &str) -> Error {
    let (group, version) = sent_version.split_once('/').unwrap_or(("", sent_version));
    if resources::by_kind(group, version, sent_kind).is_none() && !sent_version.is_empty() {
        return Error::bad_request(format!(
            "no kind {sent_kind:?} is registered for version {sent_version:?} in scheme \"k8s.io/apimachinery/pkg/runtime/scheme.go:110\""
        ));
    }
    Error::bad_request(format!(
        "{sent_kind} in version {:?} cannot be handled as a {}: converting ({}).{sent_kind} to ({}).{}: unknown conversion",
        request.resource.version,
        kind.kind(),
        version,
        kind.row().version,
        kind.kind(),
    ))
}
