//! Everything that decodes bytes from strangers, as functions that must neither panic nor contradict themselves.
//!
//! `cargo fuzz run NAME` feeds them what it makes up, a test of `apiserver` what is kept under `fuzz/corpus/NAME`.
//! A function returns when its input is refused; what it asserts holds for all that is taken.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use apiserver::catalogue::remote_discovery;
use apiserver::catalogue::specification::Specification;
use apiserver::negotiate::{Accept, content_format};
use apiserver::request_info::{Query, RequestInfo};
use apiserver::verbs::list::{Continue, parse_revision};
use expressions::device::Selectors;
use http::{HeaderMap, HeaderValue, Method, header};
use machinery::apply::{self, OnConflict, Versions, Write, fields_v1, set::Set};
use machinery::{fields, labels, quantity::Quantity};
use schema::walk::budget::Allowance;
use schema::walk::decode::{FieldValidation, from_json, from_value};
use schema::{SchemaRef, patch, proto, text};
use serde_json::Value;

/// Takes any bytes without a panic; what it decodes fits together.
pub type Target = fn(&[u8]);

/// Every decoder, by the name of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("json", json),
    ("yaml", yaml),
    ("protobuf", protobuf),
    ("json_patch", json_patch),
    ("merge_patch", merge_patch),
    ("strategic_patch", strategic_patch),
    ("fields_v1", fields_v1),
    ("apply", apply),
    ("selectors", selectors),
    ("request", request),
    ("spdy", spdy),
    ("cel", cel),
    ("aggregated", aggregated),
];

const DEPLOYMENT: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"default",
"labels":{"app":"web"},"finalizers":["a","b"],"managedFields":[{"manager":"m","operation":"Apply",
"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{},"f:template":{"f:spec":{
"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}}}}}}}]},"spec":{"replicas":1,
"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[
{"name":"c","image":"i","ports":[{"containerPort":80,"protocol":"TCP"}],"env":[{"name":"A","value":"1"}]}],
"tolerations":[{"key":"k"}]}}}}"#;

fn deployment() -> Option<Value> {
    serde_json::from_str(DEPLOYMENT).ok()
}

/// A kind by the first byte, and the rest.
fn of_some_kind(bytes: &[u8]) -> Option<(SchemaRef<'static>, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let kinds = schema::builtin();
    let (_, schema) = kinds.kinds().nth(usize::from(*first) % kinds.kinds().count())?;
    Some((schema, rest))
}

/// What was decoded is what decoding it again gives.
fn settled(schema: SchemaRef<'_>, value: Value) {
    let again = from_value(schema, value.clone(), FieldValidation::Strict).map(|decoded| decoded.value);
    assert_eq!(again.as_ref(), Ok(&value));
}

/// JSON, untyped and as an object of some kind.
pub fn json(bytes: &[u8]) {
    let _ = text::TypeMeta::of_json(bytes);
    let read = text::json(bytes, Allowance::Usual, FieldValidation::Warn);
    if let Ok(read) = &read {
        let again = text::json(read.value.to_string().as_bytes(), Allowance::Schemas, FieldValidation::Warn);
        assert_eq!(again.map(|decoded| decoded.value), Ok(read.value.clone()));
    }
    let Some((schema, rest)) = of_some_kind(bytes) else { return };
    if let Ok(decoded) = from_json(schema, rest, FieldValidation::Warn) {
        settled(schema, decoded.value);
    }
}

/// YAML.
pub fn yaml(bytes: &[u8]) {
    let Ok(read) = text::yaml(bytes, Allowance::Usual, FieldValidation::Warn) else { return };
    let json = text::json(read.value.to_string().as_bytes(), Allowance::Schemas, FieldValidation::Strict);
    assert_eq!(json.map(|decoded| decoded.value), Ok(read.value));
}

/// Protobuf: the envelope, and a message of some kind.
pub fn protobuf(bytes: &[u8]) {
    if let Ok(envelope) = proto::open(bytes) {
        let (group, version) = envelope.api_version.split_once('/').unwrap_or(("", envelope.api_version));
        if let Some(schema) = schema::builtin().kind(group, version, envelope.kind) {
            let _ = proto::decode(schema, &envelope);
        }
    }
    let Some((schema, rest)) = of_some_kind(bytes) else { return };
    let Ok(value) = proto::decode_message(schema, rest) else { return };
    if let Ok(encoded) = proto::encode_message(schema, &value) {
        assert_eq!(proto::decode_message(schema, &encoded).as_ref(), Ok(&value));
    }
}

/// A JSON patch of a Deployment.
pub fn json_patch(bytes: &[u8]) {
    if let Some(target) = deployment() {
        let _ = patch::json(target, bytes);
    }
}

fn patch_body(bytes: &[u8]) -> Option<(Value, Value)> {
    let patch = text::json(bytes, Allowance::Usual, FieldValidation::Warn).ok()?.value;
    Some((deployment()?, patch))
}

/// A merge patch of a Deployment: doing it twice is doing it once.
pub fn merge_patch(bytes: &[u8]) {
    let Some((target, patch)) = patch_body(bytes) else { return };
    let Ok(once) = patch::merge(target, &patch) else { return };
    assert_eq!(patch::merge(once.clone(), &patch).as_ref(), Ok(&once));
}

/// A strategic merge patch of a Deployment.
pub fn strategic_patch(bytes: &[u8]) {
    let Some((target, patch)) = patch_body(bytes) else { return };
    let Some(schema) = schema::builtin().kind("apps", "v1", "Deployment") else { return };
    let Ok(patched) = patch::strategic(schema, target, patch) else { return };
    if let Ok(decoded) = from_value(schema, patched, FieldValidation::Warn) {
        settled(schema, decoded.value);
    }
}

/// A set of field paths.
pub fn fields_v1(bytes: &[u8]) {
    let Ok(read) = text::json(bytes, Allowance::Usual, FieldValidation::Ignore) else { return };
    let Ok(set) = fields_v1::decode(&read.value) else { return };
    let encoded = fields_v1::encode(&set);
    assert_eq!(fields_v1::decode(&encoded).as_ref(), Ok(&set));
    let json = fields_v1::in_order(&encoded);
    assert_eq!(serde_json::from_str::<Value>(&json).ok().as_ref(), Some(&encoded), "{json}");
}

/// The one version of Deployments.
struct Deployments;

impl Versions for Deployments {
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'static>> {
        schema::builtin().kind("apps", "v1", "Deployment").filter(|_| api_version == "apps/v1")
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        (api_version == "apps/v1").then(|| object.clone())
    }
}

/// A configuration applied to a Deployment: applying it again changes nothing.
pub fn apply(bytes: &[u8]) {
    let Ok(read) = text::yaml(bytes, Allowance::Usual, FieldValidation::Ignore) else { return };
    let nothing = Set::new();
    let write = Write {
        manager: "fuzz",
        api_version: "apps/v1",
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        ignored: &nothing,
    };
    let run = |live: Option<&Value>| apply::apply(&write, &Deployments, live, &read.value, OnConflict::Force);
    let live = deployment();
    let Ok(once) = run(live.as_ref()) else { return };
    assert_eq!(run(Some(&once)).as_ref(), Ok(&once));
    let mut updated = once.clone();
    apply::track(&write, &Deployments, live.as_ref(), &mut updated);
}

fn reads_what_it_writes<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    let Ok(read) = text.parse::<T>() else { return };
    let written = read.to_string();
    assert_eq!(written.parse::<T>().ok().as_ref(), Some(&read), "{text:?} is written as {written:?}");
}

/// Label selectors, field selectors, quantities, durations.
pub fn selectors(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(selector) = labels::Selector::parse(text) {
        let written = selector.to_string();
        let again = labels::Selector::parse(&written).map(|selector| selector.to_string());
        assert_eq!(again.as_ref(), Ok(&written));
    }
    let _ = fields::Selector::parse(text);
    reads_what_it_writes::<Quantity>(text);
}

/// Path, query, headers and tokens.
pub fn request(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (path, query) = text.split_once('?').unwrap_or((&text, ""));
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let info = RequestInfo::parse(&method, path, Some(query));
        if let Some(resource) = info.resource {
            assert!(!resource.verb.as_str().is_empty());
        }
    }
    let query = Query::parse(query);
    let _ = query.number("limit");
    let _ = parse_revision(&text);
    if let Ok(token) = Continue::decode(&text) {
        assert_eq!(Continue::decode(&token.encode()).as_ref().ok(), Some(&token));
    }
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, value.clone());
        headers.insert(header::CONTENT_TYPE, value);
        let _ = Accept::of(&headers);
        let _ = content_format(&headers);
    }
}

/// SPDY frames: it does not matter in which pieces they arrive.
pub fn spdy(bytes: &[u8]) {
    let whole = frames(bytes, bytes.len().max(1));
    let pieces = frames(bytes, 7);
    assert_eq!(whole, pieces);
}

/// What every frame but data is; data may come in any pieces, so that only its length counts.
fn frames(bytes: &[u8], piece: usize) -> (Vec<String>, usize) {
    let mut decoder = spdy::Decoder::default();
    let (mut control, mut data) = (Vec::new(), 0);
    for piece in bytes.chunks(piece) {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.next() {
                Ok(Some(spdy::Frame::Data { bytes, .. })) => data += bytes.len(),
                Ok(Some(frame)) => control.push(format!("{frame:?}")),
                Ok(None) => break,
                Err(failure) => {
                    control.push(failure.to_string());
                    return (control, data);
                }
            }
        }
    }
    (control, data)
}

/// What a server elsewhere tells of itself: of whatever it says, only that of its own group-version joins ours, and the
/// whole refers to nothing that it does not have.
pub fn aggregated(bytes: &[u8]) {
    let Ok(told) = text::json(bytes, Allowance::Schemas, FieldValidation::Ignore) else { return };
    let _ = remote_discovery::of_aggregated(&told.value, "example.com", "v1");
    let _ = remote_discovery::of_resource_list(&told.value, "example.com", "v1");
    let Ok(found) = Specification::of(told.value, "example.com", "v1") else { return };
    let ours = serde_json::json!({"paths": {"/api/v1/pods": {}}, "definitions": {"Pod": {}, "Thing": {"type": "integer"}}});
    let mut whole = ours.clone();
    found.join(&mut whole);
    for part in ["paths", "definitions"] {
        let kept = ours[part].as_object().into_iter().flatten();
        assert!(kept.into_iter().all(|(name, value)| whole[part].get(name) == Some(value)));
    }
    let _ = schema::openapi::v2::to_protobuf(&whole);
    if let Ok(again) = Specification::of(
        serde_json::json!({"swagger": "2.0", "paths": whole["paths"], "definitions": whole["definitions"]}),
        "example.com",
        "v1",
    ) {
        assert!(!again.hash().is_empty());
    } else {
        panic!("a reference leads nowhere");
    }
}

/// What may be run ends soon, whatever it says.
pub fn cel(bytes: &[u8]) {
    let Ok(expression) = std::str::from_utf8(bytes) else { return };
    let selectors = Selectors::default();
    // What is longer is refused before anybody reads it.
    if expression.len() > 10 * 1024 || selectors.check(expression).is_err() {
        return;
    }
    let device = serde_json::json!({
        "name": "gpu-0", "attributes": {"model": {"string": "a100"}, "index": {"int": 3}, "healthy": {"bool": true},
        "firmware": {"version": "1.2.3"}}, "capacity": {"memory": {"value": "40Gi"}},
    });
    if let Ok(device) = serde_json::from_value(device) {
        // It may say yes or no, or fail.
        drop(selectors.matches(expression, "d.example.com", &device));
    }
}
