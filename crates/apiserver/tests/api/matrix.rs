//! Every verb on every row of the table. The rows come from the table, so that a new one cannot be forgotten.

use std::panic::AssertUnwindSafe;

use crate::fixtures::{self, collection, served, stored};
use crate::server::{self, Answer, TestServer, start_with};
use auth::UserInfo;
use expect_test::expect_file;
use futures::FutureExt;
use http_body_util::BodyExt;
use resources::{Deletion, Resource};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What the namespace controller would have made; Pods wait for it.
async fn with_service_account() -> TestServer {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    let path = "/api/v1/namespaces/default/serviceaccounts";
    let answer = server.call("POST", path, "{metadata: {name: default}}").await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    server
}

/// Two objects that must be the same; what differs is named.
fn same(one: &Value, other: &Value, context: &str) {
    let mut differences = Vec::new();
    compare(one, other, String::new(), &mut differences);
    assert!(differences.is_empty(), "{context}: {differences:#?}");
}

fn compare(one: &Value, other: &Value, path: String, differences: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for name in names {
                let of = |map: &serde_json::Map<String, Value>| map.get(name).cloned().unwrap_or_default();
                compare(&of(a), &of(b), format!("{path}.{name}"), differences);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(a, b, format!("{path}[{i}]"), differences);
            }
        }
        // Protobuf does not tell the empty value of a plain field from none.
        (a, b) if a == b || (is_nothing(a) && is_nothing(b)) => {}
        (a, b) => differences.push(format!("{path}: {a} is not {b}")),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(_) | Value::Object(_) => false,
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

async fn json_call(server: &TestServer, method: &str, path: &str, body: &Value) -> Answer {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { JSON };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.call_with(method, path, &[("content-type", kind)], &body).await
}

/// Sends a request that must be answered with `code`.
async fn must(server: &TestServer, (method, path): (&str, &str), body: &Value, code: u16) -> Value {
    let answer = json_call(server, method, path, body).await;
    assert_eq!(answer.code.as_u16(), code, "{method} {path}: {}", answer.body);
    answer.body
}

async fn accepted(server: &TestServer, path: &str, accept: &str) -> Value {
    let answer = server.call_with("GET", path, &[("accept", accept)], "").await;
    assert_eq!(answer.code, 200, "{path}: {}", answer.body);
    answer.body
}

/// Bytes in, bytes out.
async fn raw(
    server: &TestServer,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> (u16, Vec<u8>) {
    let mut builder = http::Request::builder().method(method).uri(path).extension(server::admin());
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let request = builder.body(http_body_util::Full::new(bytes::Bytes::from(body))).unwrap();
    let response = tower::ServiceExt::oneshot(server.server.service(), request).await.unwrap();
    let code = response.status().as_u16();
    (code, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

/// Without what differs between two creations of the same object.
fn timeless(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for name in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        metadata.remove(name);
    }
    without_uids(&mut object);
    object
}

/// Jobs have their uid in labels and selectors, APIServices a time in a condition, Services an address, Pods a volume
/// with a name made by chance.
fn without_uids(value: &mut Value) {
    const CHANCE: &[&str] = &["lastTransitionTime", "clusterIP", "clusterIPs"];
    match value {
        Value::String(text) if text.starts_with("kube-api-access-") => text.truncate(15),
        Value::Object(map) => {
            map.retain(|name, _| !name.ends_with("controller-uid") && !CHANCE.contains(&name.as_str()));
            map.values_mut().for_each(without_uids);
        }
        Value::Array(list) => list.iter_mut().for_each(without_uids),
        _ => {}
    }
}

#[test]
fn every_row_has_a_fixture() {
    let is_read_only = |row: &&Resource| !row.allows("create");
    let missing: Vec<_> = served()
        .filter(|row| !is_read_only(row) && fixtures::of(row).is_none())
        .map(|row| row.group_resource())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn every_kind_lives_through_every_verb() {
    let server = with_service_account().await;
    let mut failed = Vec::new();
    for row in stored() {
        if AssertUnwindSafe(one_life(&server, row)).catch_unwind().await.is_err() {
            failed.push(format!("{} {}", row.api_version(), row.plural));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    server.stop().await;
}

async fn one_life(server: &TestServer, row: &Resource) {
    let object = fixtures::of(row).unwrap();
    let path = collection(row);
    let one = format!("{path}/{}", name_of(&object));
    let created = must(server, ("POST", &path), &object, 201).await;
    let again = must(server, ("POST", &path), &object, 409).await;
    assert_eq!(again["reason"], "AlreadyExists");
    same(&must(server, ("GET", &one), &Value::Null, 200).await, &created, &one);
    views(server, row, &one, &created).await;
    watched(server, row, &one, &created).await;
    let changed = changes(server, row, &one, &created).await;
    status(server, row, &one, &changed).await;
    applied(server, row, &one).await;
    ends(server, row, &path, &one).await;
    if row.deletion_is_final() {
        protobuf(server, row, &path, &one, &created).await;
        apply_creates(server, &one, &object, &created).await;
        collected(server, row, &path, &object).await;
    }
}

trait Final {
    fn deletion_is_final(&self) -> bool;
}

impl Final for Resource {
    /// Namespaces wait for their controller, volumes, claims and attributes for their protection, definitions for the objects
    /// of their kinds.
    fn deletion_is_final(&self) -> bool {
        let is_protected =
            self.plural.starts_with("persistentvolume") || self.plural == "volumeattributesclasses";
        !matches!(self.strategy.deletion, Deletion::Namespace | Deletion::Definition) && !is_protected
    }
}

/// List, Table, metadata only, and the same as protobuf.
async fn views(server: &TestServer, row: &Resource, one: &str, created: &Value) {
    let path = collection(row);
    let selected = format!("{path}?labelSelector={}", fixtures::LABEL);
    let list = accepted(server, &selected, JSON).await;
    assert_eq!(list["kind"], *row.list_kind);
    assert_eq!(list["items"][0]["metadata"]["uid"], created["metadata"]["uid"]);
    untyped(created, &list["items"][0], &selected);
    let (code, yaml) = raw(server, ("GET", &selected), &[("accept", YAML)], Vec::new()).await;
    assert_eq!(code, 200);
    let list: Value = serde_saphyr::from_slice(&yaml).unwrap();
    untyped(created, &list["items"][0], &selected);
    for version in ["v1", "v1beta1"] {
        let table = accepted(server, &selected, &format!("{JSON};as=Table;g=meta.k8s.io;v={version}")).await;
        assert_eq!(table["kind"], "Table");
        let columns = table["columnDefinitions"].as_array().unwrap();
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(columns.len(), cells.len(), "{one}");
        for (column, cell) in columns.iter().zip(cells) {
            let is_right = match column["type"].as_str().unwrap() {
                "integer" => cell.is_i64(),
                // A CronJob's `Suspend` is printed as text, upstream too.
                "boolean" => cell.is_boolean() || cell == "False",
                "string" | "date" => !cell.is_null(),
                other => panic!("{one}: a column of type {other}"),
            };
            assert!(is_right, "{one}: {column} has {cell}");
        }
    }
    partial(server, one, &selected, created).await;
    let (code, bytes) = raw(server, ("GET", &selected), &[("accept", PROTOBUF)], Vec::new()).await;
    assert_eq!(code, 200);
    let list = schema::builtin().kind(&row.group, &row.version, &row.list_kind).unwrap();
    let list = schema::proto::decode(list, &schema::proto::open(&bytes).unwrap()).unwrap();
    assert_eq!(list["items"][0]["metadata"]["uid"], created["metadata"]["uid"]);
    let (code, bytes) = raw(server, ("GET", one), &[("accept", PROTOBUF)], Vec::new()).await;
    assert_eq!(code, 200);
    same(&decoded(row, &bytes), created, one);
}

/// An item of a list says what the object says but for its kind and its version: those are the list's to tell.
fn untyped(object: &Value, item: &Value, path: &str) {
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut expect = names(object);
    expect.retain(|name| name != "kind" && name != "apiVersion");
    assert_eq!(names(item), expect, "{path}");
}

/// Metadata only, of the object and of the list, as JSON and as protobuf; one is not the other.
async fn partial(server: &TestServer, one: &str, selected: &str, created: &Value) {
    for format in [JSON, PROTOBUF] {
        let get = async |path: &str, kind: &str| {
            let accept = format!("{format};as={kind};g=meta.k8s.io;v=v1");
            let (code, bytes) = raw(server, ("GET", path), &[("accept", &accept)], Vec::new()).await;
            assert_eq!(code, 200, "{path} {accept}: {}", String::from_utf8_lossy(&bytes));
            let value: Value = match format {
                JSON => serde_json::from_slice(&bytes).unwrap(),
                _ => {
                    let envelope = schema::proto::open(&bytes).unwrap();
                    let schema = schema::builtin().kind("meta.k8s.io", "v1", envelope.kind).unwrap();
                    schema::proto::decode(schema, &envelope).unwrap()
                }
            };
            assert_eq!((&value["kind"], &value["apiVersion"]), (&kind.into(), &"meta.k8s.io/v1".into()));
            if let (JSON, Some(item)) = (format, value.pointer("/items/0")) {
                assert_eq!(item["kind"], "PartialObjectMetadata", "{path}");
            }
            value
        };
        let metadata = get(one, "PartialObjectMetadata").await;
        same(&metadata["metadata"], &created["metadata"], one);
        assert_eq!(metadata.get("spec"), None);
        let list = get(selected, "PartialObjectMetadataList").await;
        same(&list["items"][0]["metadata"], &created["metadata"], selected);
        for (path, kind) in [(selected, "PartialObjectMetadata"), (one, "PartialObjectMetadataList")] {
            let accept = format!("{format};as={kind};g=meta.k8s.io;v=v1");
            let (code, _) = raw(server, ("GET", path), &[("accept", &accept)], Vec::new()).await;
            assert_eq!(code, 406, "{path} {accept}");
        }
    }
}

/// The first event of a watch, in every form that events have.
async fn watched(server: &TestServer, row: &Resource, one: &str, created: &Value) {
    let path = format!("{}?watch=1&labelSelector={}", collection(row), fixtures::LABEL);
    let first = async |accept: &str| {
        let headers = [("accept", accept)];
        let response =
            server::send(server.server.service(), Some(server::admin()), "GET", &path, &headers, "").await;
        assert_eq!(response.status(), 200, "{path} {accept}");
        let frame = response.into_body().frame().await.unwrap().unwrap();
        frame.into_data().unwrap()
    };
    for (view, kind) in
        [("", &*row.kind), ("Table", "Table"), ("PartialObjectMetadata", "PartialObjectMetadata")]
    {
        let form = if view.is_empty() { String::new() } else { format!(";as={view};g=meta.k8s.io;v=v1") };
        let event: Value = serde_json::from_slice(&first(&format!("{JSON}{form}")).await).unwrap();
        assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!(kind)), "{one}");
        match view {
            "" => same(&event["object"], created, one),
            "Table" => {
                let columns = event["object"]["columnDefinitions"].as_array().unwrap();
                let row = &event["object"]["rows"][0];
                assert_eq!(row["cells"].as_array().unwrap().len(), columns.len(), "{one}");
                same(&row["object"]["metadata"], &created["metadata"], one);
            }
            _ => same(&event["object"]["metadata"], &created["metadata"], one),
        }
        if view == "Table" {
            continue;
        }
        let frame = first(&format!("{PROTOBUF}{form}")).await;
        let (length, event) = frame.split_first_chunk().unwrap();
        assert_eq!(u32::from_be_bytes(*length) as usize, event.len(), "{one}: one frame");
        assert!(event.starts_with(b"\x0a\x05ADDED\x12"), "{one}");
        let start = event.windows(4).position(|bytes| bytes == b"k8s\0").expect("an envelope");
        if view.is_empty() {
            same(&decoded(row, &event[start..]), created, one);
        } else {
            let envelope = schema::proto::open(&event[start..]).unwrap();
            let schema = schema::builtin().kind("meta.k8s.io", "v1", envelope.kind).unwrap();
            let object = schema::proto::decode(schema, &envelope).unwrap();
            same(&object["metadata"], &created["metadata"], one);
        }
    }
}

fn decoded(row: &Resource, bytes: &[u8]) -> Value {
    let envelope = schema::proto::open(bytes).unwrap();
    assert_eq!((envelope.api_version, envelope.kind), (row.api_version().as_str(), &*row.kind));
    let schema = schema::builtin().kind(&row.group, &row.version, &row.kind).unwrap();
    schema::proto::decode(schema, &envelope).unwrap()
}

/// PUT and PATCH; what changes nothing writes nothing.
async fn changes(server: &TestServer, row: &Resource, one: &str, created: &Value) -> Value {
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let kept = must(server, ("PUT", one), created, 200).await;
    assert_eq!(version(&kept), version(created), "{one}: a PUT that changes nothing");
    let mut new = kept.clone();
    new["metadata"]["annotations"] = json!({"a": "b"});
    let put = must(server, ("PUT", one), &new, 200).await;
    assert_ne!(version(&put), version(created));
    // ReplicaSets have their Deployment's annotations.
    let is_raised = row.strategy.generation == resources::Generation::SpecAndAnnotations;
    let generation = if is_raised { json!(2) } else { created["metadata"]["generation"].clone() };
    assert_eq!(put["metadata"]["generation"], generation, "{one}");
    let stale = must(server, ("PUT", one), &new, 409).await;
    assert_eq!(stale["reason"], "Conflict");
    let patch = json!({"metadata": {"labels": {"patched": "1"}}});
    let patched = must(server, ("PATCH", one), &patch, 200).await;
    assert_eq!(patched["metadata"]["labels"]["patched"], "1");
    let kept = must(server, ("PATCH", one), &patch, 200).await;
    assert_eq!(version(&kept), version(&patched), "{one}: a PATCH that changes nothing");
    let dry = must(
        server,
        ("PATCH", &format!("{one}?dryRun=All")),
        &json!({"metadata": {"labels": {"dry": "1"}}}),
        200,
    )
    .await;
    assert_eq!(dry["metadata"]["labels"]["dry"], "1");
    let mut new = patched.clone();
    new["metadata"]["labels"]["dry"] = json!("2");
    must(server, ("PUT", &format!("{one}?dryRun=All")), &new, 200).await;
    let now = must(server, ("GET", one), &Value::Null, 200).await;
    same(&now, &patched, &format!("{one} after a dry run"));
    if !row.strategy.allow_unconditional_update {
        let mut blind = now.clone();
        blind["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        must(server, ("PUT", one), &blind, 422).await;
    }
    now
}

/// A write to `/status` changes nothing else.
async fn status(server: &TestServer, row: &Resource, one: &str, before: &Value) {
    if !row.has_status() {
        return;
    }
    let path = format!("{one}/status");
    same(&must(server, ("GET", &path), &Value::Null, 200).await, before, &path);
    let after = must(server, ("PATCH", &path), &json!({"spec": null}), 200).await;
    assert_eq!(after["spec"], before["spec"], "{path}");
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"], "{path}");
    let mut new = after.clone();
    new["status"] = json!({});
    must(server, ("PUT", &format!("{path}?dryRun=All")), &new, 200).await;
    same(&must(server, ("GET", one), &Value::Null, 200).await, &after, &format!("{path} after a dry run"));
    let put = must(server, ("PUT", &path), &new, 200).await;
    assert_eq!(put["spec"], before["spec"], "{path}");
}

async fn apply(server: &TestServer, path: &str, config: &Value, code: u16) -> Value {
    let headers = [("content-type", "application/apply-patch+yaml")];
    let answer = server.call_with("PATCH", path, &headers, &config.to_string()).await;
    assert_eq!(answer.code.as_u16(), code, "{path}: {}", answer.body);
    answer.body
}

/// Applying an object is owning it: again changes nothing, and nobody else may.
async fn applied(server: &TestServer, row: &Resource, one: &str) {
    let config = fixtures::of(row).unwrap();
    let mine = format!("{one}?fieldManager=matrix");
    let first = apply(server, &format!("{mine}&force=true"), &config, 200).await;
    let again = apply(server, &mine, &config, 200).await;
    same(&again, &first, &mine);
    let owners = first["metadata"]["managedFields"].as_array().unwrap();
    assert!(
        owners.iter().any(|entry| entry["manager"] == "matrix" && entry["operation"] == "Apply"),
        "{one}"
    );
    let label = json!({"apiVersion": config["apiVersion"], "kind": config["kind"],
        "metadata": {"name": config["metadata"]["name"], "labels": {fixtures::LABEL: "2"}}});
    let other = format!("{one}?fieldManager=other");
    let conflict = apply(server, &other, &label, 409).await;
    assert_eq!(conflict["details"]["causes"][0]["field"], format!(".metadata.labels.{}", fixtures::LABEL));
    let dry = apply(server, &format!("{other}&force=true&dryRun=All"), &label, 200).await;
    assert_eq!(dry["metadata"]["labels"][fixtures::LABEL], "2");
    same(&must(server, ("GET", one), &Value::Null, 200).await, &first, &format!("{one} after a dry run"));
    let mut unknown = config.clone();
    unknown["nonsense"] = json!(1);
    let refused = apply(server, &mine, &unknown, 400).await;
    assert!(refused["message"].as_str().unwrap().contains(".nonsense: field not declared in schema"));
}

/// What is applied and not there is made, as a POST would have made it.
async fn apply_creates(server: &TestServer, one: &str, object: &Value, created: &Value) {
    let made = apply(server, &format!("{one}?fieldManager=matrix"), object, 201).await;
    same(&timeless(&made), &timeless(created), one);
    must(server, ("DELETE", &format!("{one}?propagationPolicy=Background")), &Value::Null, 200).await;
}

async fn ends(server: &TestServer, row: &Resource, path: &str, one: &str) {
    must(server, ("DELETE", &format!("{one}?dryRun=All")), &Value::Null, 200).await;
    must(server, ("GET", one), &Value::Null, 200).await;
    let answer =
        json_call(server, "DELETE", &format!("{one}?propagationPolicy=Background"), &Value::Null).await;
    assert!(matches!(answer.code.as_u16(), 200 | 202), "{one}: {}", answer.body);
    if row.deletion_is_final() {
        let gone = must(server, ("GET", one), &Value::Null, 404).await;
        assert_eq!(gone["reason"], "NotFound", "{path}");
    }
}

/// What comes in as protobuf is what would have come in as JSON.
async fn protobuf(server: &TestServer, row: &Resource, path: &str, one: &str, created: &Value) {
    let schema = schema::builtin().kind(&row.group, &row.version, &row.kind).unwrap();
    let bytes = schema::proto::encode(schema, &fixtures::of(row).unwrap()).unwrap();
    let dry = format!("{path}?dryRun=All");
    must(server, ("POST", &dry), &fixtures::of(row).unwrap(), 201).await;
    must(server, ("GET", one), &Value::Null, 404).await;
    let headers = [("content-type", PROTOBUF), ("accept", PROTOBUF)];
    let (code, answer) = raw(server, ("POST", &dry), &headers, bytes.clone()).await;
    assert_eq!(code, 201, "{path}: {}", String::from_utf8_lossy(&answer));
    must(server, ("GET", one), &Value::Null, 404).await;
    let (code, answer) = raw(server, ("POST", path), &headers, bytes).await;
    assert_eq!(code, 201, "{path}: {}", String::from_utf8_lossy(&answer));
    same(&timeless(&decoded(row, &answer)), &timeless(created), path);
    let read = must(server, ("GET", one), &Value::Null, 200).await;
    same(&timeless(&read), &timeless(created), path);
    must(server, ("DELETE", &format!("{one}?propagationPolicy=Background")), &Value::Null, 200).await;
}

async fn collected(server: &TestServer, row: &Resource, path: &str, object: &Value) {
    let selected = format!("{path}?labelSelector={}", fixtures::LABEL);
    if !row.allows("deletecollection") {
        must(server, ("DELETE", &selected), &Value::Null, 405).await;
        return;
    }
    must(server, ("POST", path), object, 201).await;
    must(server, ("DELETE", &format!("{selected}&dryRun=All")), &Value::Null, 200).await;
    let list = must(server, ("GET", &selected), &Value::Null, 200).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{path} after a dry run");
    must(server, ("DELETE", &format!("{selected}&propagationPolicy=Background")), &Value::Null, 200).await;
    let list = must(server, ("GET", &selected), &Value::Null, 200).await;
    assert_eq!(list["items"], json!([]), "{path}");
}

#[tokio::test]
async fn questions_are_answered_and_not_stored() {
    let server = with_service_account().await;
    for row in served().filter(|row| row.verbs == ["create"] && row.plural != "bindings") {
        let path = collection(row);
        let answer = must(&server, ("POST", &path), &fixtures::of(row).unwrap(), 201).await;
        assert!(answer["status"].is_object(), "{path}: {answer}");
        must(&server, ("GET", &path), &Value::Null, 405).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn nobody_may_do_anything_without_a_right() {
    let server = with_service_account().await;
    let nobody = || UserInfo {
        name: "nobody".into(),
        groups: vec!["system:authenticated".into()],
        ..UserInfo::default()
    };
    for row in served() {
        let path = collection(row);
        for verb in row.verbs {
            // Everybody may ask about themselves.
            if row.plural.starts_with("selfsubject") {
                continue;
            }
            let (method, path, name) = match *verb {
                "create" => ("POST", path.clone(), ""),
                "list" => ("GET", path.clone(), ""),
                "watch" => ("GET", format!("{path}?watch=1"), ""),
                "deletecollection" => ("DELETE", path.clone(), ""),
                "get" => ("GET", format!("{path}/x"), "x"),
                "update" => ("PUT", format!("{path}/x"), "x"),
                "patch" => ("PATCH", format!("{path}/x"), "x"),
                "delete" => ("DELETE", format!("{path}/x"), "x"),
                other => panic!("{other}"),
            };
            let response =
                server::send(server.server.service(), Some(nobody()), method, &path, &[], "{}").await;
            assert_eq!(response.status(), 403, "{method} {path}");
            let body: Value =
                serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
            let scope =
                if row.is_namespaced() { "in the namespace \"default\"" } else { "at the cluster scope" };
            // A Namespace is in itself.
            let scope =
                if row.plural == "namespaces" && !name.is_empty() { "in the namespace \"x\"" } else { scope };
            let subject = if name.is_empty() {
                row.group_resource()
            } else {
                format!("{} {name:?}", row.group_resource())
            };
            let message = format!(
                "{subject} is forbidden: User \"nobody\" cannot {verb} resource {:?} in API group {:?} {scope}",
                row.plural, row.group
            );
            assert_eq!(body["message"], message);
        }
    }
    server.stop().await;
}

/// A right to an object is no right to what is below it.
#[tokio::test]
async fn nobody_may_do_anything_below_an_object_without_a_right() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    for row in served() {
        for subresource in row.subresources {
            for verb in subresource.verbs {
                let method = match *verb {
                    "get" => "GET",
                    "create" => "POST",
                    "update" => "PUT",
                    "patch" => "PATCH",
                    "delete" => "DELETE",
                    other => panic!("{other}"),
                };
                let path = format!("{}/x/{}", collection(row), subresource.name);
                let nobody = UserInfo { name: "nobody".into(), ..UserInfo::default() };
                let response =
                    server::send(server.server.service(), Some(nobody), method, &path, &[], "{}").await;
                assert_eq!(response.status(), 403, "{method} {path}");
                let body = response.into_body().collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let what = format!("{}/{}", row.plural, subresource.name);
                let expect =
                    format!("User \"nobody\" cannot {verb} resource {what:?} in API group {:?}", row.group);
                assert!(body["message"].as_str().unwrap().contains(&expect), "{body}");
            }
        }
    }
    server.stop().await;
}

/// Which fields of an object may not take another value once it is there, of every kind: every value of the fixture
/// is changed, one at a time.
#[tokio::test]
async fn every_field_may_be_changed_or_is_told_why_not() {
    let server = with_service_account().await;
    let mut told = String::new();
    for row in stored() {
        let path = collection(row);
        let created = must(&server, ("POST", &path), &fixtures::of(row).unwrap(), 201).await;
        let one = format!("{path}/{}", name_of(&created));
        let mut leaves = Vec::new();
        values(&created, &mut String::new(), &mut leaves);
        for pointer in leaves {
            let mut new = created.clone();
            let value = new.pointer_mut(&pointer).unwrap();
            *value = another(value);
            let answer = json_call(&server, "PUT", &format!("{one}?dryRun=All"), &new).await;
            let why = match answer.code.as_u16() {
                200 => continue,
                422 => {
                    let causes = answer.body["details"]["causes"].as_array().unwrap().iter();
                    let words =
                        |cause: &Value| format!("{} {}", cause["field"], cause["reason"]).replace('"', "");
                    causes.map(words).collect::<Vec<_>>().join(", ")
                }
                code @ 400..500 => format!("{code} {}", answer.body["reason"]),
                code => panic!("{one}{pointer}: {code} {}", answer.body),
            };
            let line = format!("{} {} {pointer}: {why}\n", row.api_version(), row.plural);
            told.push_str(&line);
        }
        json_call(&server, "DELETE", &format!("{one}?propagationPolicy=Background"), &Value::Null).await;
    }
    server.stop().await;
    expect_file!["golden/update_rules.txt"].assert_eq(&told);
}

/// The places of all values that clients set, apart from labels and annotations.
fn values(value: &Value, pointer: &mut String, found: &mut Vec<String>) {
    const NOT_THEIRS: [&str; 4] = ["/apiVersion", "/kind", "/status", "/metadata"];
    const CHANCE: [&str; 3] = ["controller-uid", "kube-api-access", "batch.kubernetes.io~1"];
    let is_chance = |text: &str| CHANCE.iter().any(|chance| text.contains(chance));
    if NOT_THEIRS.contains(&pointer.as_str()) || is_chance(pointer) {
        return;
    }
    let length = pointer.len();
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                pointer.push('/');
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                values(value, pointer, found);
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                pointer.push_str(&format!("/{at}"));
                values(value, pointer, found);
                pointer.truncate(length);
            }
        }
        Value::Null => {}
        _ => found.push(pointer.clone()),
    }
}

/// A value of the same type.
fn another(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => (!flag).into(),
        Value::Number(number) => (number.as_i64().unwrap() + 1).into(),
        Value::String(text) => format!("{text}x").into(),
        other => other.clone(),
    }
}

/// What is said about an object with nothing but a name, of every kind.
#[tokio::test]
async fn empty_objects_are_valid_or_told_what_they_lack() {
    let server = with_service_account().await;
    let mut told = String::new();
    for row in stored() {
        let path = format!("{}?dryRun=All", collection(row));
        let answer = json_call(&server, "POST", &path, &json!({"metadata": {"name": "empty"}})).await;
        let line = match answer.code.as_u16() {
            201 => "valid".to_owned(),
            422 => {
                let causes = answer.body["details"]["causes"].as_array().unwrap();
                assert!(!causes.is_empty(), "{path}");
                let fields: Vec<_> = causes
                    .iter()
                    .map(|c| format!("{} {}", c["field"].as_str().unwrap(), c["reason"].as_str().unwrap()))
                    .collect();
                fields.join(", ")
            }
            code => panic!("{path}: {code} {}", answer.body),
        };
        told.push_str(&format!("{} {}: {line}\n", row.api_version(), row.plural));
    }
    server.stop().await;
    expect_file!["golden/empty_objects.txt"].assert_eq(&told);
}
