//! Bad input, over every row of the table: the answer is a Status of the 4xx family, and nothing is stored.

use std::collections::BTreeMap;

use crate::fixtures::{self, collection, stored};
use crate::nasty::{
    self, APPLY_PATCH, BODY_BYTES_MAX, JSON, JSON_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC_PATCH, YAML,
    nested, reachable, writable,
};
use crate::server::{self, TestServer, start_with};
use base::Random;
use http_body_util::BodyExt;
use resources::Resource;
use schema::{Field, Shape, Type, TypeRef};
use serde_json::{Value, json};

/// Bytes in; code and body out.
async fn send(server: &TestServer, method: &str, path: &str, kind: &str, body: Vec<u8>) -> (u16, Value) {
    let builder = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let body = http_body_util::Full::new(bytes::Bytes::from(body));
    let request = builder.extension(server::admin()).body(body).unwrap();
    let response = tower::ServiceExt::oneshot(server.server.service(), request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// What is wrong with an answer to bad input; `None` if nothing is.
fn broken((code, body): &(u16, Value)) -> Option<String> {
    let is_refused = (400..500).contains(code);
    let is_status = body["kind"] == "Status" && body["code"] == *code && body["status"] == "Failure";
    let is_told = body["message"].as_str().is_some_and(|text| !text.is_empty());
    (!is_refused || !is_status || !is_told).then(|| format!("{code} {body}"))
}

/// Everything that is stored: keys and revisions.
async fn everything(server: &TestServer) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for row in stored() {
        let path = collection(row).replace("/namespaces/default", "");
        let (code, list) = send(server, "GET", &path, JSON, Vec::new()).await;
        assert_eq!(code, 200, "{path}");
        for item in list["items"].as_array().into_iter().flatten() {
            let metadata = &item["metadata"];
            all.insert(
                format!("{path} {} {}", metadata["namespace"], metadata["name"]),
                metadata["resourceVersion"].clone(),
            );
        }
    }
    all
}

/// Collects what was answered wrongly, and shows all of it at the end.
#[derive(Default)]
struct Findings(Vec<String>, u64);

impl Findings {
    fn of_seed(seed: u64) -> Self {
        Self(Vec::new(), seed)
    }

    /// As `refused`, with one code only.
    async fn told(
        &mut self,
        server: &TestServer,
        expect: u16,
        name: &str,
        request: (&str, &str, &str),
        body: Vec<u8>,
    ) {
        let (method, path, kind) = request;
        let answer = send(server, method, path, kind, body).await;
        if broken(&answer).is_some() || answer.0 != expect {
            self.0.push(format!("{name}: {method} {path}: {} {}", answer.0, answer.1));
        }
    }

    async fn refused(&mut self, server: &TestServer, name: &str, request: (&str, &str, &str), body: Vec<u8>) {
        let (method, path, kind) = request;
        if let Some(why) = broken(&send(server, method, path, kind, body).await) {
            self.0.push(format!("{name}: {method} {path}: {why}"));
        }
    }

    fn none(self) {
        let shown: Vec<_> =
            self.0.iter().take(40).map(|text| text.chars().take(400).collect::<String>()).collect();
        assert!(self.0.is_empty(), "seed {}: {} findings: {shown:#?}", self.1, self.0.len());
    }
}

/// What can be sent to a row: method and path of every write, with what the URL names.
fn writes(row: &Resource) -> Vec<(&'static str, String)> {
    let path = collection(row);
    let mut writes = vec![("POST", path.clone())];
    let name = fixtures::of(row).unwrap()["metadata"]["name"].as_str().unwrap_or("x").to_owned();
    if row.allows("update") {
        writes.push(("PUT", format!("{path}/{name}")));
    }
    for subresource in row.subresources.iter().filter(|s| !STREAMS.contains(&s.name)) {
        let target = format!("{path}/{name}/{}", subresource.name);
        for (verb, method) in [("create", "POST"), ("update", "PUT")] {
            if subresource.verbs.contains(&verb) {
                writes.push((method, target.clone()));
            }
        }
    }
    writes
}

/// Subresources that lead to a kubelet, whatever the body is.
const STREAMS: [&str; 5] = ["exec", "attach", "portforward", "proxy", "log"];

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    let before = everything(&server).await;
    for seed in nasty::seeds() {
        let random = Random::seeded(seed);
        let mut findings = Findings::of_seed(seed);
        for row in writable() {
            for (name, kind, body) in nasty::bodies(row, &random) {
                for (method, path) in writes(row) {
                    // Without a body a subresource may take its defaults, and a collection is what the URL says.
                    if body.is_empty() && path != collection(row) {
                        continue;
                    }
                    findings.refused(&server, name, (method, &path, kind), body.clone()).await;
                }
            }
        }
        findings.none();
    }
    assert_eq!(everything(&server).await, before, "nothing was stored");
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_explode_are_refused() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    let mut findings = Findings::default();
    for row in writable() {
        for (name, kind, body) in nasty::bombs() {
            findings.refused(&server, name, ("POST", &collection(row), kind), body).await;
        }
    }
    findings.none();
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_are_too_large_are_refused() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    let mut findings = Findings::default();
    let operation = json!({"op": "test", "path": "/kind", "value": "x"});
    let operations = Value::Array(vec![operation; 10_001]).to_string().into_bytes();
    for row in writable() {
        for (method, path) in writes(row) {
            let body = vec![b' '; BODY_BYTES_MAX + 1];
            findings.told(&server, 413, "3 MiB + 1", (method, &path, JSON), body).await;
        }
    }
    for row in stored().filter(|row| row.plural != "pods") {
        let one = made(&server, row).await;
        findings
            .told(&server, 413, "10,001 operations", ("PATCH", &one, JSON_PATCH), operations.clone())
            .await;
        for kind in [MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH] {
            let body = vec![b' '; BODY_BYTES_MAX + 1];
            let target = format!("{one}?fieldManager=m");
            findings.told(&server, 413, "3 MiB + 1", ("PATCH", &target, kind), body).await;
        }
        unmade(&server, &one).await;
    }
    findings.none();
    server.stop().await;
}

/// Makes the fixture of a row; answers its path. Pods wait for an account that nobody makes here.
async fn made(server: &TestServer, row: &Resource) -> String {
    let object = fixtures::of(row).unwrap();
    let path = collection(row);
    let (code, answer) = send(server, "POST", &path, JSON, object.to_string().into_bytes()).await;
    assert_eq!(code, 201, "{path}: {answer}");
    format!("{path}/{}", object["metadata"]["name"].as_str().unwrap())
}

/// Another version or group of the same kind comes with the same name.
async fn unmade(server: &TestServer, one: &str) {
    send(server, "DELETE", &format!("{one}?propagationPolicy=Background"), JSON, Vec::new()).await;
}

#[tokio::test]
async fn patches_that_cannot_be_read_are_refused() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    let mut findings = Findings::default();
    for row in stored().filter(|row| row.plural != "pods") {
        let one = made(&server, row).await;
        let before = send(&server, "GET", &one, JSON, Vec::new()).await;
        for (kind, body) in [
            ("application/json-patch+json", "{}"),
            ("application/json-patch+json", "[{\"op\": \"fly\", \"path\": \"/a\"}]"),
            ("application/json-patch+json", "[{\"op\": \"remove\", \"path\": \"/none\"}]"),
            (
                "application/json-patch+json",
                "[{\"op\": \"replace\", \"path\": \"/metadata/labels\", \"value\": 5}]",
            ),
            ("application/merge-patch+json", "[1"),
            ("application/merge-patch+json", "5"),
            ("application/merge-patch+json", "{\"metadata\": {\"labels\": 5}}"),
            ("application/merge-patch+json", "{\"metadata\": null}"),
            ("application/merge-patch+json", "{\"metadata\": {\"name\": \"other\"}}"),
            ("application/merge-patch+json", "{\"kind\": \"Other\"}"),
            ("application/strategic-merge-patch+json", "{\"metadata\": {\"labels\": 5}}"),
            ("application/strategic-merge-patch+json", "{\"metadata\": {\"$patch\": \"fly\"}}"),
            (STRATEGIC_PATCH, "[]"),
            (STRATEGIC_PATCH, "{\"$retainKeys\": 5}"),
            (STRATEGIC_PATCH, "{\"$setElementOrder/a\": 5}"),
            (MERGE_PATCH, ""),
            (MERGE_PATCH, "nonsense"),
            (MERGE_PATCH, "{\"a\": \"\\ud800\"}"),
            (JSON_PATCH, "[5]"),
            (JSON_PATCH, "[{\"op\": 5}]"),
            (JSON_PATCH, "[{\"op\": \"add\", \"path\": \"no slash\", \"value\": 1}]"),
            (JSON_PATCH, "[{\"op\": \"move\", \"from\": \"/metadata\", \"path\": \"/metadata/labels/a\"}]"),
            (APPLY_PATCH, "5"),
            (APPLY_PATCH, "{a: ["),
            (APPLY_PATCH, "{}"),
            (APPLY_PATCH, "{apiVersion: v9, kind: Nonsense}"),
            ("text/plain", "{}"),
            ("application/json", "{}"),
        ] {
            let mut targets = vec![one.clone()];
            let patched = row.subresources.iter().filter(|s| s.verbs.contains(&"patch"));
            targets
                .extend(patched.filter(|s| !STREAMS.contains(&s.name)).map(|s| format!("{one}/{}", s.name)));
            for target in targets {
                // What a subresource does not change is not looked at.
                let is_ignored = target != one && body.contains("metadata") && kind != APPLY_PATCH;
                if !is_ignored {
                    let target =
                        if kind == APPLY_PATCH { format!("{target}?fieldManager=m") } else { target };
                    findings.refused(&server, body, ("PATCH", &target, kind), body.as_bytes().to_vec()).await;
                }
            }
        }
        assert_eq!(send(&server, "GET", &one, JSON, Vec::new()).await, before, "nothing was stored");
        unmade(&server, &one).await;
    }
    findings.none();
    server.stop().await;
}

/// Values that a field of this type cannot have, as JSON.
fn wrong(ty: TypeRef<'_>) -> &'static [&'static str] {
    match ty.shape() {
        Shape::Object(_) => &["\"x\"", "5", "[]", "true"],
        Shape::List(..) => &["\"x\"", "5", "{\"a\": 1}"],
        Shape::Map(_) => &["\"x\"", "5", "[1]"],
        Shape::Json => &[],
        Shape::Scalar => match ty.ty {
            Type::Bool => &["\"true\"", "1", "{}"],
            Type::Int32 => &["\"1\"", "1.5", "2147483648", "1e400", "99999999999999999999", "[]"],
            Type::Int64 => &["\"1\"", "1.5", "9223372036854775808", "1e400", "{}"],
            Type::Double => &["\"1\"", "{}"],
            Type::String => &["5", "true", "{}", "[]"],
            Type::Bytes => &["5", "{}", "\"!\""],
            Type::Quantity => &["{}", "[]", "\"many\""],
            Type::IntOrString => &["{}", "[]", "true"],
            Type::Time | Type::MicroTime => &["5", "{}", "\"yesterday\""],
            Type::Duration => &["{}", "\"long\""],
            _ => &[],
        },
    }
}

/// True for texts of the right type that cannot be read: upstream's decoder tells what is wrong with them, not where.
fn is_text_told(value: &str) -> bool {
    matches!(value, "1e400" | "\"!\"" | "\"many\"" | "\"yesterday\"" | "\"long\"")
}

/// Whether a message names a field.
fn names(answer: &(u16, Value), field: &Field) -> bool {
    answer.1["message"].as_str().is_some_and(|text| text.contains(field.name.as_ref()))
}

#[tokio::test]
async fn wrong_types_in_every_field_are_refused_by_name() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    let before = everything(&server).await;
    let mut findings = Findings::default();
    for (row, path, schema) in reachable() {
        for field in schema.fields() {
            // The type of the object itself is told apart before its fields.
            if path.is_empty() && matches!(field.name.as_ref(), "kind" | "apiVersion") {
                continue;
            }
            let mut full = path.clone();
            full.push(field.name.to_string());
            let target = format!("{}?dryRun=All", collection(row));
            let ty = schema.field_type(&field.name).unwrap();
            // Quantities read what they are themselves, and upstream's decoder does not say where.
            let is_told = matches!((ty.shape(), &ty.ty), (Shape::Scalar, Type::Quantity));
            for (at, value) in wrong(ty).iter().enumerate() {
                let body = nested(&full, value);
                // JSON is YAML; but texts of numbers are numbers there, if they are beyond all bounds.
                let kinds = if at == 0 { &[JSON, YAML][..] } else { &[JSON][..] };
                for kind in kinds {
                    let answer = send(&server, "POST", &target, kind, body.clone().into_bytes()).await;
                    if let Some(why) = broken(&answer) {
                        findings.0.push(format!("{kind} {body}: {why}"));
                    } else if !names(&answer, field) && !is_told && !is_text_told(value) {
                        let message = &answer.1["message"];
                        findings.0.push(format!("{kind} {body}: the field is not named: {message}"));
                    }
                }
            }
        }
    }
    findings.none();
    assert_eq!(everything(&server).await, before, "nothing was stored");
    server.stop().await;
}

/// A field of the wrong wire type, in every message that protobuf can have.
#[tokio::test]
async fn wrong_types_in_every_field_of_protobuf_are_refused_by_name() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    let mut findings = Findings::default();
    for (row, path, schema) in reachable() {
        let root = schema::builtin().kind(&row.group, &row.version, &row.kind).unwrap();
        for field in schema.fields().iter().filter(|field| field.number > 0 && field.via.is_empty()) {
            let is_number = matches!(field.ty, Type::Bool | Type::Int32 | Type::Int64 | Type::Double);
            // Lists of numbers may be packed into bytes: those break off within a number.
            let holds_numbers = is_number || holds_numbers(schema.field_type(&field.name).unwrap());
            let Some(wrapped) = wrap(root.as_type(), &path, wire(field.number, !holds_numbers)) else {
                continue;
            };
            let body = schema::proto::seal(&row.api_version(), &row.kind, &wrapped);
            let target = format!("{}?dryRun=All", collection(row));
            let answer = send(&server, "POST", &target, PROTOBUF, body).await;
            // Bytes that end within a number have no field any more.
            let is_named =
                names(&answer, field) || !is_number && answer.1["message"].to_string().contains("EOF");
            if let Some(why) = broken(&answer) {
                findings.0.push(format!("{path:?} {}: {why}", field.name));
            } else if !is_named {
                findings.0.push(format!("{path:?} {}: not named: {}", field.name, answer.1["message"]));
            }
        }
    }
    findings.none();
    server.stop().await;
}

fn holds_numbers(ty: TypeRef<'_>) -> bool {
    let is_number =
        |item: TypeRef<'_>| matches!(item.ty, Type::Bool | Type::Int32 | Type::Int64 | Type::Double);
    matches!(ty.shape(), Shape::List(item, ..) if is_number(item))
}

/// A field that holds a number, or bytes that are cut off within.
fn wire(number: u16, holds_number: bool) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, u64::from(number) << 3 | if holds_number { 0 } else { 2 });
    out.push(1);
    if !holds_number {
        out.push(0x80);
    }
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}

/// Puts a message's bytes at the end of a path; `None` where protobuf has no such path.
fn wrap(ty: TypeRef<'_>, path: &[String], bytes: Vec<u8>) -> Option<Vec<u8>> {
    let [name, rest @ ..] = path else { return Some(bytes) };
    let put = |number: u16, inner: Vec<u8>| {
        let mut out = Vec::new();
        varint(&mut out, u64::from(number) << 3 | 2);
        varint(&mut out, u64::try_from(inner.len()).unwrap());
        out.extend(inner);
        out
    };
    match ty.shape() {
        Shape::List(item, ..) if !matches!(ty.ty, Type::Wrapped(_)) => wrap(item, rest, bytes),
        Shape::Map(item) => Some(put(2, wrap(item, rest, bytes)?)),
        Shape::Object(schema) => {
            let field = schema.field(name).filter(|field| field.number > 0 && field.via.is_empty())?;
            Some(put(field.number, wrap(schema.field_type(name)?, rest, bytes)?))
        }
        _ => None,
    }
}

#[tokio::test]
async fn unknown_and_duplicate_fields_are_refused_under_strict_validation() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    let mut findings = Findings::default();
    for row in stored() {
        let path = format!("{}?fieldValidation=Strict&dryRun=All", collection(row));
        for body in [
            "{\"metadata\": {\"name\": \"a\", \"name\": \"b\"}}",
            "{\"metadata\": {\"name\": \"a\"}, \"metadata\": {\"name\": \"b\"}}",
            "{\"metadata\": {\"name\": \"a\"}, \"nonsense\": 1}",
        ] {
            findings.refused(&server, body, ("POST", &path, JSON), body.as_bytes().to_vec()).await;
        }
        let yaml = "metadata: {name: a}\nmetadata: {name: b}\n";
        findings.refused(&server, yaml, ("POST", &path, YAML), yaml.as_bytes().to_vec()).await;
    }
    findings.none();
    server.stop().await;
}

const READS: &[&str] = &[
    "limit=x",
    "labelSelector=a%20b%20c",
    "labelSelector=a%20in%20b",
    "fieldSelector=a",
    "fieldSelector=no.such.field%3Dx",
    "resourceVersion=x",
    "resourceVersion=-1",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=Nearly&resourceVersion=1",
    "resourceVersionMatch=Exact&resourceVersion=0",
    "continue=x",
    "continue=x&resourceVersion=1",
    "sendInitialEvents=true",
    "watch=true&sendInitialEvents=true",
    "watch=true&resourceVersion=x",
    "watch=true&timeoutSeconds=x",
];
const WRITES: &[&str] =
    &["dryRun=Some", "fieldValidation=Loose", "fieldManager=%00", "fieldManager=%E2%80%A8"];
const PATCHES: &[(&str, &str)] = &[
    (MERGE_PATCH, "force=true"),
    (MERGE_PATCH, "dryRun=Some"),
    (JSON_PATCH, "fieldValidation=Loose"),
    (APPLY_PATCH, ""),
    (APPLY_PATCH, "fieldManager=m&dryRun=Some"),
];
const DELETES: &[&str] = &[
    "dryRun=Some",
    "gracePeriodSeconds=x",
    "propagationPolicy=Sideways",
    "propagationPolicy=Orphan&orphanDependents=true",
];

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    let before = everything(&server).await;
    let mut findings = Findings::default();
    for row in stored() {
        let path = collection(row);
        for query in READS {
            findings.refused(&server, query, ("GET", &format!("{path}?{query}"), JSON), Vec::new()).await;
        }
        let body = fixtures::of(row).unwrap();
        for query in WRITES {
            let request = ("POST", &*format!("{path}?{query}"), JSON);
            findings.refused(&server, query, request, body.to_string().into_bytes()).await;
        }
        for (kind, query) in PATCHES {
            let request = ("PATCH", &*format!("{path}/x?{query}"), *kind);
            findings.refused(&server, query, request, b"{}".to_vec()).await;
        }
        let long = format!("fieldManager={}", "m".repeat(129));
        let request = ("POST", &*format!("{path}?{long}"), JSON);
        findings.refused(&server, &long, request, body.to_string().into_bytes()).await;
        for options in [
            "{\"gracePeriodSeconds\": -1, \"propagationPolicy\": \"Sideways\"}",
            "{\"orphanDependents\": true, \"propagationPolicy\": \"Orphan\"}",
            "{\"dryRun\": [\"Some\"]}",
            "{\"preconditions\": 5}",
            "{\"kind\": 5}",
            "[]",
            "nonsense",
        ] {
            for target in [format!("{path}/x"), path.clone()] {
                let is_served = row.allows(if target == path { "deletecollection" } else { "delete" });
                if is_served {
                    findings.refused(&server, options, ("DELETE", &target, JSON), options.into()).await;
                }
            }
        }
        for query in DELETES {
            findings
                .refused(&server, query, ("DELETE", &format!("{path}/x?{query}"), JSON), Vec::new())
                .await;
        }
        let options = "{\"propagationPolicy\": 5}";
        findings.refused(&server, options, ("DELETE", &format!("{path}/x"), JSON), options.into()).await;
    }
    findings.none();
    assert_eq!(everything(&server).await, before, "nothing was stored");
    server.stop().await;
}

#[tokio::test]
async fn paths_that_lead_nowhere_lead_nowhere() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    let mut findings = Findings::default();
    for row in stored() {
        let path = collection(row);
        for tail in [
            "/..",
            "/../..",
            "/%2e%2e",
            "/a%2fb",
            "/a%00b",
            "/%ff",
            "/x/nonsense",
            "/x/status/more/and/more",
            "/%2f%2e%2e%2f",
            "/..%2f..%2fetc",
            "/x/../..",
            "//..//x",
            "/%c0%ae%c0%ae",
            "/x//nonsense",
            "/x/%2e%2e",
        ] {
            for method in ["GET", "DELETE", "PATCH", "PUT"] {
                let target = format!("{path}{tail}");
                let kind = if method == "PATCH" { "application/merge-patch+json" } else { JSON };
                let body = if method == "GET" { Vec::new() } else { b"{}".to_vec() };
                findings.refused(&server, tail, (method, &target, kind), body).await;
            }
        }
    }
    for path in [
        "//api//v1",
        "/api/v1/../../etc",
        "/api/v1/namespaces//pods/x",
        "/apis//v1/x",
        "/api/v9/pods",
        "/%2e%2e/api",
    ] {
        let (code, _) = send(&server, "GET", path, JSON, Vec::new()).await;
        assert!(code < 500, "{path}: {code}");
    }
    findings.none();
    server.stop().await;
}
