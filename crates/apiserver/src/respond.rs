//! From an answer to an HTTP response: the form that the client asked for, headers, the body.

pub mod finish;
pub mod protobuf;
pub mod table;
pub mod watch;
pub mod websocket;

use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use futures::StreamExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};

use crate::cache::CachedObject;
use crate::codec;
use crate::kinds::Kind;
use crate::negotiate::{Accept, Format, JSON, PROTOBUF, View, YAML};
use crate::status::{Error, Result};
use crate::verbs::list::Listed;
use crate::verbs::{Answer, Request};

/// Why a body broke off.
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

/// The response of a verb.
pub fn answer(request: &Request, answer: Answer, now: jiff::Timestamp) -> Response<Body> {
    let accept = request.accept;
    match answer {
        Answer::Response(response) => response,
        Answer::Object { code, object, warnings } => {
            let kind = request.kind;
            let response = match accept.view {
                View::Object if accept.format == Format::Json => text(code, JSON, kind.json(&object)),
                View::Object if accept.format == Format::Protobuf => match protobuf::object(kind, &object) {
                    Some(bytes) => text(code, PROTOBUF, bytes),
                    None => text(code, JSON, kind.json(&object)),
                },
                View::Object => serialised(code, accept.format, &kind.value(&object)),
                View::Table => {
                    let table = table::one(request, &kind.value(&object), now);
                    serialised(code, accept.format, &table)
                }
                View::Metadata => {
                    serialised(code, accept.format, &partial(kind.value(&object), accept.meta_version))
                }
            };
            warned(response, &warnings)
        }
        Answer::Value { code, value, warnings } => warned(serialised(code, accept.format, &value), &warnings),
        Answer::List(listed) => list(request, &listed, now),
    }
}

fn serialised(code: StatusCode, format: Format, value: &Value) -> Response<Body> {
    match format {
        Format::Yaml => match serde_saphyr::to_string(value) {
            Ok(yaml) => text(code, YAML, yaml),
            Err(_) => json(code, value),
        },
        Format::Protobuf => match codec::encode_protobuf(value) {
            Some(bytes) => text(code, PROTOBUF, bytes),
            None => json(code, value),
        },
        Format::Json => json(code, value),
    }
}

fn warned(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

fn list(request: &Request, listed: &Listed, now: jiff::Timestamp) -> Response<Body> {
    let kind = request.kind;
    let metadata = list_metadata(listed);
    match (request.accept.view, request.accept.format) {
        (View::Object, Format::Json) => text(StatusCode::OK, JSON, list_json(kind, listed, &metadata)),
        (View::Object, Format::Protobuf) => match protobuf::list(kind, listed, &metadata) {
            Some(bytes) => text(StatusCode::OK, PROTOBUF, bytes),
            None => text(StatusCode::OK, JSON, list_json(kind, listed, &metadata)),
        },
        (View::Table, format) => {
            let table = table::many(request, listed, metadata, now);
            serialised(StatusCode::OK, format, &table)
        }
        (View::Metadata, format) => {
            let items: Vec<Value> =
                listed.objects.iter().map(|o| partial(kind.value(o), request.accept.meta_version)).collect();
            let value = json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": request.accept.meta_version,
                "metadata": metadata,
                "items": items,
            });
            serialised(StatusCode::OK, format, &value)
        }
        (View::Object, Format::Yaml) => {
            let items: Vec<Value> = listed.objects.iter().map(|o| kind.value(o)).collect();
            let value = json!({
                "kind": kind.row().list_kind,
                "apiVersion": kind.api_version(),
                "metadata": metadata,
                "items": items,
            });
            serialised(StatusCode::OK, Format::Yaml, &value)
        }
    }
}

/// `ListMeta` of a collection.
pub fn list_metadata(listed: &Listed) -> Value {
    let mut metadata = json!({"resourceVersion": listed.revision.to_string()});
    if let Some(token) = &listed.continue_token {
        metadata["continue"] = token.as_str().into();
    }
    if let Some(remaining) = listed.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    metadata
}

/// The objects' bytes, joined.
fn list_json(kind: Kind, listed: &Listed, metadata: &Value) -> Bytes {
    let head = format!(
        r#"{{"kind":"{}","apiVersion":"{}","metadata":{metadata},"items":["#,
        kind.row().list_kind,
        kind.api_version()
    );
    let size: usize = listed.objects.iter().map(|object| object.json.len() + 1).sum();
    let mut out = BytesMut::with_capacity(head.len() + size + 4);
    out.put_slice(head.as_bytes());
    for (index, object) in listed.objects.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        out.put_slice(&kind.json(object));
    }
    out.put_slice(b"]}\n");
    out.freeze()
}

/// The `PartialObjectMetadata` of an object, in a version of `meta.k8s.io`.
pub fn partial(mut object: Value, meta_version: &str) -> Value {
    let metadata = object.get_mut("metadata").map(Value::take).unwrap_or_default();
    json!({"kind": "PartialObjectMetadata", "apiVersion": meta_version, "metadata": metadata})
}

/// The same as JSON, without a look at the rest of the object.
pub fn partial_json(object: &CachedObject, meta_version: &str) -> String {
    let metadata = object.metadata();
    format!(r#"{{"apiVersion":"{meta_version}","kind":"PartialObjectMetadata","metadata":{metadata}}}"#)
}

/// A response whose body is a stream of frames.
pub fn watch_response(
    request: &Request,
    code: StatusCode,
    frames: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
) -> Response<Body> {
    let body = StreamBody::new(frames.map(|frame| frame.map(Frame::data)));
    let mut response = Response::new(BodyExt::boxed_unsync(body));
    *response.status_mut() = code;
    let content_type = match request.accept.format {
        Format::Protobuf if request.accept.view == View::Object => {
            "application/vnd.kubernetes.protobuf;stream=watch"
        }
        Format::Yaml | Format::Json | Format::Protobuf => JSON,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
