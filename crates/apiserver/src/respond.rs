//! From an answer to an HTTP response: the form that the client asked for, headers, the body.

pub mod list;
pub mod protobuf;
pub mod table;
pub mod watch;
pub mod websocket;

use bytes::Bytes;
use futures::Stream;
use futures::StreamExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::answer::Listed;
use crate::body::finish::Finite;
pub use crate::body::{Body, BoxError, error, full, json, serialised, text};
use crate::cache::CachedObject;
use crate::negotiate::{Format, JSON, PROTOBUF, View};
use crate::request::Request;
use crate::status::Result;
use list::Pieces;
use table::Form;

/// The response of a verb.
pub fn answer(request: &Request, answer: Answer, now: jiff::Timestamp) -> Response<Body> {
    match answer {
        Answer::Response(response) => response,
        Answer::Object { code, object } => one(request, code, &object, now),
        Answer::Value { code, value } => {
            let value = viewed(request, value, now);
            serialised(code, request.accept.format, &value)
        }
        Answer::List(listed) => list(request, listed, now),
        Answer::Unstored(items) => {
            let value = table::unstored(request, &items, now);
            serialised(StatusCode::OK, request.accept.format, &value)
        }
    }
}

fn one(request: &Request, code: StatusCode, object: &CachedObject, now: jiff::Timestamp) -> Response<Body> {
    let (kind, accept) = (&request.kind, request.accept);
    match (accept.view, accept.format) {
        (View::Object | View::MetadataList, Format::Json) => text(code, JSON, kind.json(object)),
        (View::Metadata, Format::Json) if !kind.is_converted() => {
            text(code, JSON, partial_json(object, accept.meta_version))
        }
        (View::Object | View::Metadata, Format::Protobuf) => match protobuf::object(kind, accept, object) {
            Some(bytes) => text(code, PROTOBUF, bytes),
            None => serialised(code, Format::Json, &viewed(request, kind.sent(object), now)),
        },
        (_, format) => serialised(code, format, &viewed(request, kind.sent(object), now)),
    }
}

/// An object in the view that is asked for; a Status stays what it is.
fn viewed(request: &Request, value: Value, now: jiff::Timestamp) -> Value {
    match request.accept.view {
        _ if value.get("kind").is_some_and(|kind| kind == "Status") => value,
        View::Object | View::MetadataList => value,
        View::Table => table::one(request, value, now),
        View::Metadata => partial(value, request.accept.meta_version),
    }
}

fn list(request: &Request, mut listed: Listed, now: jiff::Timestamp) -> Response<Body> {
    let (kind, accept) = (&request.kind, request.accept);
    let metadata = list_metadata(&listed);
    if accept.format == Format::Protobuf
        && let Some(pieces) = protobuf::list(kind, accept, &mut listed, &metadata)
    {
        return streamed(PROTOBUF, pieces, 0);
    }
    if accept.format == Format::Yaml {
        return yaml_list(request, &listed, metadata, now);
    }
    let (version, list_kind) = list_type(request);
    let guess: usize = listed.objects.iter().map(|object| object.json.len()).sum();
    let opening = format!(r#"{{"kind":"{list_kind}","apiVersion":"{version}","metadata":{metadata},"#);
    let tail = Bytes::from_static(b"]}\n");
    let items = Bytes::from(format!(r#"{opening}"items":["#));
    let pieces = match accept.view {
        View::Table => {
            let form = Form::of(request);
            let head = format!(r#"{opening}"columnDefinitions":{},"rows":["#, table::columns(kind));
            let kind = kind.clone();
            let row = move |object: &CachedObject| table::row(&kind, kind.value(object), form, now);
            let encode = move |object: &CachedObject| Bytes::from(row(object).to_string());
            Pieces::json(Bytes::from(head), listed.objects, encode, tail)
        }
        View::Metadata | View::MetadataList => {
            let kind = kind.clone();
            let encode = move |object: &CachedObject| match kind.is_converted() {
                true => Bytes::from(partial(kind.sent(object), accept.meta_version).to_string()),
                false => Bytes::from(partial_json(object, accept.meta_version)),
            };
            Pieces::json(items, listed.objects, encode, tail)
        }
        View::Object if kind.is_converted() => {
            let kind = kind.clone();
            Pieces::json(items, listed.objects, move |object| kind.converted_item(object), tail)
        }
        View::Object => Pieces::of_objects(items, listed.objects, kind.item(), tail),
    };
    streamed(JSON, pieces, u64::try_from(guess).unwrap_or(u64::MAX))
}

/// A response in pieces; `guess` is how long it may be.
fn streamed(content_type: &'static str, pieces: Pieces, guess: u64) -> Response<Body> {
    let mut response = text(StatusCode::OK, content_type, Bytes::new());
    response.extensions_mut().insert(Finite(guess));
    *response.body_mut() = pieces.body();
    response
}

/// `apiVersion` and `kind` of a collection in the view that is asked for.
fn list_type(request: &Request) -> (&str, &str) {
    let (kind, accept) = (&request.kind, request.accept);
    match accept.view {
        View::Metadata | View::MetadataList => (accept.meta_version, "PartialObjectMetadataList"),
        View::Table => (accept.meta_version, "Table"),
        View::Object => (kind.api_version(), kind.list_kind()),
    }
}

fn yaml_list(request: &Request, listed: &Listed, metadata: Value, now: jiff::Timestamp) -> Response<Body> {
    let kind = &request.kind;
    let (version, list_kind) = list_type(request);
    if request.accept.view == View::Table {
        return serialised(StatusCode::OK, Format::Yaml, &table::many(request, listed, metadata, now));
    }
    let items: Vec<Value> = listed
        .objects
        .iter()
        .map(|object| match request.accept.view {
            View::Object | View::Table if kind.is_custom() => kind.sent(object),
            View::Object | View::Table => untyped(kind.sent(object)),
            View::Metadata | View::MetadataList => partial(kind.sent(object), version),
        })
        .collect();
    let value = json!({"kind": list_kind, "apiVersion": version, "metadata": metadata, "items": items});
    serialised(StatusCode::OK, Format::Yaml, &value)
}

/// An object as an item of a list, whose own kind says what its items are.
pub fn untyped(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|name, _| name != "kind" && name != "apiVersion");
    }
    object
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
        Format::Protobuf if request.accept.view != View::Table => {
            "application/vnd.kubernetes.protobuf;stream=watch"
        }
        Format::Yaml | Format::Json | Format::Protobuf => JSON,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
