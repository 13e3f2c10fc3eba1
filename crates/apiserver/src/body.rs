//! Bodies and plain responses: what is there at once, and values in the formats that there are.

pub mod finish;
pub mod while_body;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use crate::formats;
use crate::negotiate::{Accept, Format, JSON, PROTOBUF, YAML};
use crate::status::Error;

/// The reason why a body broke off.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Every response's body.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body that is there at once.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A response with some text.
pub fn text(code: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A value as JSON.
pub fn json(code: StatusCode, value: &Value) -> Response<Body> {
    text(code, JSON, value.to_string())
}

/// An error as a Status.
pub fn error(error: &Error, accept: Option<Accept>) -> Response<Body> {
    let format = accept.map_or(Format::Json, |accept| accept.format);
    let mut response = serialised(error.code, format, &error.status());
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A value in a format; as JSON if its type has no such form.
pub fn serialised(code: StatusCode, format: Format, value: &Value) -> Response<Body> {
    match format {
        Format::Yaml => match serde_saphyr::to_string(value) {
            Ok(yaml) => text(code, YAML, yaml),
            Err(_) => json(code, value),
        },
        Format::Protobuf => match formats::encode_protobuf(value) {
            Some(bytes) => text(code, PROTOBUF, bytes),
            None => json(code, value),
        },
        Format::Json => json(code, value),
    }
}
