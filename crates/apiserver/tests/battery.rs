//! Bad input, over every row of the table: the answer is a Status of the 4xx family, and nothing is stored.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]

mod fixtures;
mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Random;
use fixtures::{collection, stored};
use http_body_util::BodyExt;
use resources::Resource;
use schema::{SchemaRef, Shape, Type, TypeRef};
use serde_json::{Value, json};
use server::{TestServer, start};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
const SEED: u64 = 7;

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
struct Findings(Vec<String>);

impl Findings {
    async fn refused(&mut self, server: &TestServer, name: &str, request: (&str, &str, &str), body: Vec<u8>) {
        let (method, path, kind) = request;
        if let Some(why) = broken(&send(server, method, path, kind, body).await) {
            self.0.push(format!("{name}: {method} {path}: {why}"));
        }
    }

    fn none(self) {
        let shown: Vec<_> =
            self.0.iter().take(40).map(|text| text.chars().take(400).collect::<String>()).collect();
        assert!(self.0.is_empty(), "{} findings: {shown:#?}", self.0.len());
    }
}

fn bodies(row: &Resource, random: &Random) -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let object = fixtures::of(row).unwrap();
    let json = object.to_string().into_bytes();
    let schema = schema::builtin().kind(row.group, row.version, row.kind).unwrap();
    let proto = schema::proto::encode(schema, &object).unwrap();
    let mut bodies: Vec<(&'static str, &'static str, Vec<u8>)> = vec![
        ("wrong content type", "text/plain", json.clone()),
        ("wrong content type", "application/xml", json.clone()),
        ("empty", JSON, Vec::new()),
        ("no object", JSON, b"[]".to_vec()),
        ("no object", JSON, b"5".to_vec()),
        ("no object", YAML, b"- a".to_vec()),
        ("two objects", JSON, [json.clone(), json.clone()].concat()),
        ("invalid UTF-8", JSON, b"{\"metadata\": {\"name\": \"\xff\xfe\"}}".to_vec()),
        ("invalid UTF-8", YAML, b"metadata: {name: \"\xff\xfe\"}".to_vec()),
        ("deep", JSON, [b"{\"metadata\":".repeat(20_000), b"}".repeat(20_000)].concat()),
        ("deep", JSON, b"[".repeat(100_000)),
        ("deep", YAML, b"[".repeat(20_000)),
        ("aliases", YAML, aliases()),
        ("protobuf without its magic", PROTOBUF, json.clone()),
        (
            "other kind",
            JSON,
            b"{\"apiVersion\":\"v1\",\"kind\":\"Nonsense\",\"metadata\":{\"name\":\"a\"}}".to_vec(),
        ),
        (
            "other version",
            JSON,
            b"{\"apiVersion\":\"example.com/v9\",\"metadata\":{\"name\":\"a\"}}".to_vec(),
        ),
    ];
    for _ in 0..4 {
        let cut = |bytes: &[u8], from: usize| {
            let span = u64::try_from(bytes.len() - from).unwrap();
            from + usize::try_from(random.below(span)).unwrap()
        };
        bodies.push(("truncated", JSON, json[..cut(&json, 1)].to_vec()));
        // What is left of the envelope is no message: its length says more.
        bodies.push(("truncated", PROTOBUF, proto[..cut(&proto, 4)].to_vec()));
        let noise: Vec<u8> = (0..200).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        bodies.push(("random", JSON, noise.clone()));
        bodies.push(("random", YAML, [b"{".to_vec(), noise.clone()].concat()));
        bodies.push(("random", PROTOBUF, noise.clone()));
        bodies.push(("random", PROTOBUF, [b"k8s\0".to_vec(), noise].concat()));
    }
    bodies
}

/// A few lines that would be a billion.
fn aliases() -> Vec<u8> {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..10 {
        let list = vec![format!("*a{}", i - 1); 10].join(", ");
        text.push_str(&format!("a{i}: &a{i} [{list}]\n"));
    }
    text.into_bytes()
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused() {
    let server = start(None).await;
    let before = everything(&server).await;
    let random = Random::seeded(SEED);
    let mut findings = Findings::default();
    for row in stored() {
        let path = collection(row);
        let one = format!("{path}/{}", fixtures::of(row).unwrap()["metadata"]["name"].as_str().unwrap());
        for (name, kind, body) in bodies(row, &random) {
            findings.refused(&server, name, ("POST", &path, kind), body.clone()).await;
            if name != "empty" {
                findings.refused(&server, name, ("PUT", &one, kind), body).await;
            }
        }
    }
    findings.none();
    assert_eq!(everything(&server).await, before, "nothing was stored");
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_are_too_large_are_refused() {
    let server = start(None).await;
    let mut findings = Findings::default();
    for row in stored().take(5) {
        let path = collection(row);
        let body = vec![b' '; BODY_BYTES_MAX + 1];
        findings.refused(&server, "3 MiB + 1", ("POST", &path, JSON), body).await;
        let operations = vec![json!({"op": "test", "path": "/kind", "value": "x"}); 10_001];
        let body = Value::Array(operations).to_string().into_bytes();
        let one = "/api/v1/namespaces/default";
        findings
            .refused(&server, "10,001 operations", ("PATCH", one, "application/json-patch+json"), body)
            .await;
    }
    findings.none();
    server.stop().await;
}

#[tokio::test]
async fn patches_that_cannot_be_read_are_refused() {
    let server = start(None).await;
    let mut findings = Findings::default();
    for row in stored() {
        let object = fixtures::of(row).unwrap();
        let path = collection(row);
        let (code, answer) = send(&server, "POST", &path, JSON, object.to_string().into_bytes()).await;
        // Pods wait for an account that nobody makes here.
        if row.plural == "pods" {
            continue;
        }
        assert_eq!(code, 201, "{path}: {answer}");
        let one = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
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
            ("text/plain", "{}"),
        ] {
            findings.refused(&server, body, ("PATCH", &one, kind), body.as_bytes().to_vec()).await;
        }
    }
    findings.none();
    server.stop().await;
}

/// Every message that a body can have, with a path to it from a row: names of fields, and `0` for an element.
fn reachable() -> Vec<(&'static Resource, Vec<String>, SchemaRef<'static>)> {
    let mut seen = BTreeSet::new();
    let mut queue: VecDeque<_> = stored()
        .map(|row| (row, Vec::new(), schema::builtin().kind(row.group, row.version, row.kind).unwrap()))
        .collect();
    let mut found = Vec::new();
    while let Some((row, path, schema)) = queue.pop_front() {
        if !seen.insert(schema.message_name()) {
            continue;
        }
        for field in schema.fields() {
            let mut path: Vec<String> = path.clone();
            path.push(field.name.to_string());
            let mut ty = schema.field_type(&field.name).unwrap();
            loop {
                ty = match ty.shape() {
                    Shape::List(item, ..) => {
                        path.push("0".to_owned());
                        item
                    }
                    Shape::Map(item) => {
                        path.push("key".to_owned());
                        item
                    }
                    Shape::Object(inner) => {
                        queue.push_back((row, path, inner));
                        break;
                    }
                    Shape::Scalar | Shape::Json => break,
                }
            }
        }
        found.push((row, path, schema));
    }
    found
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

/// `value` at the end of `path`.
fn nested(path: &[String], value: &str) -> String {
    path.iter().rev().fold(value.to_owned(), |inner, step| match step.as_str() {
        "0" => format!("[{inner}]"),
        name => format!("{{{name:?}: {inner}}}"),
    })
}

#[tokio::test]
async fn wrong_types_in_every_field_are_refused_by_name() {
    let server = start(None).await;
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
            for value in wrong(schema.field_type(&field.name).unwrap()) {
                let body = nested(&full, value);
                let target = format!("{}?dryRun=All", collection(row));
                let answer = send(&server, "POST", &target, JSON, body.clone().into_bytes()).await;
                let is_named =
                    answer.1["message"].as_str().is_some_and(|text| text.contains(field.name.as_ref()));
                if let Some(why) = broken(&answer) {
                    findings.0.push(format!("{body}: {why}"));
                } else if !is_named {
                    findings.0.push(format!("{body}: the field is not named: {}", answer.1["message"]));
                }
            }
        }
    }
    findings.none();
    assert_eq!(everything(&server).await, before, "nothing was stored");
    server.stop().await;
}

#[tokio::test]
async fn unknown_and_duplicate_fields_are_refused_under_strict_validation() {
    let server = start(None).await;
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

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let server = start(None).await;
    let before = everything(&server).await;
    let mut findings = Findings::default();
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
    const WRITES: &[&str] = &["dryRun=Some", "fieldValidation=Loose", "fieldManager=%00"];
    const DELETES: &[&str] = &[
        "dryRun=Some",
        "gracePeriodSeconds=x",
        "propagationPolicy=Sideways",
        "propagationPolicy=Orphan&orphanDependents=true",
    ];
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
    let server = start(None).await;
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
