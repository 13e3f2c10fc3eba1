//! A store can be handed over between this API server and a kube-apiserver, both ways: every kind lies where upstream
//! has it, in the version that upstream stores, with nothing in it that upstream's types lack; and what upstream
//! writes there, protobuf in its envelope, is read.
//!
//! Source of the tables: `test/integration/etcd/data.go`, as of 1.35.

use std::sync::Arc;

use crate::fixtures::{self, collection, stored};
use crate::server::{TestServer, admin, send, start_without_flow_control};
use http_body_util::BodyExt;
use resources::Resource;
use serde_json::{Value, json};
use store::{Change, Durability, Entry, Expect, Store, Write};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Group, resource, and what its keys have after `/registry/` instead of the resource.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("", "endpoints", "services/endpoints"),
    ("", "nodes", "minions"),
    ("", "replicationcontrollers", "controllers"),
    ("", "services", "services/specs"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "apiextensions.k8s.io/customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices", "apiregistration.k8s.io/apiservices"),
    ("networking.k8s.io", "ingresses", "ingress"),
];

/// Group, version and resource of what is not stored in the version that it is served in, and the version that it is
/// stored in. Upstream stores definitions of custom resources as v1beta1, and reads v1 as well.
const STORED_AS: &[(&str, &str, &str, &str)] = &[
    ("autoscaling", "v1", "horizontalpodautoscalers", "autoscaling/v2"),
    ("events.k8s.io", "v1", "events", "v1"),
];

fn expected_key(row: &Resource, name: &str) -> String {
    let other = ELSEWHERE.iter().find(|(group, plural, _)| (*group, *plural) == (&*row.group, &*row.plural));
    let folder = other.map_or(&*row.plural, |(_, _, folder)| folder);
    match row.is_namespaced() {
        true => format!("/registry/{folder}/default/{name}"),
        false => format!("/registry/{folder}/{name}"),
    }
}

fn expected_version(row: &Resource) -> String {
    let found =
        STORED_AS.iter().find(|(g, v, r, _)| (*g, *v, *r) == (&*row.group, &*row.version, &*row.plural));
    found.map_or(row.api_version(), |(_, _, _, version)| (*version).to_owned())
}

struct Fixture {
    store: Arc<dyn Store>,
    server: TestServer,
}

impl Fixture {
    async fn new() -> Self {
        let (store, server) = start_without_flow_control().await;
        Self { store, server }
    }

    async fn entry(&self, key: &str) -> Entry {
        self.store.get(key).await.unwrap().unwrap_or_else(|| panic!("nothing is stored under {key}"))
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.server.call_with(method, path, &[("content-type", JSON)], &body).await;
        assert!(answer.code.is_success(), "{method} {path} with {body}: {}", answer.body);
        answer.body
    }
}

/// Without what protobuf does not tell from nothing, and what every write changes.
fn bare(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(name, _)| *name != "resourceVersion");
            let kept = kept.map(|(name, value)| (name.clone(), bare(value)));
            Value::Object(kept.filter(|(_, value)| !is_nothing(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(bare).collect()),
        other => other.clone(),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Where the stored form of `row` is served.
fn stored_form(row: &Resource) -> &'static Resource {
    let form = resources::storage_version(row).unwrap();
    assert!(form.is_served(), "{}", row.group_resource());
    form
}

#[tokio::test]
async fn every_kind_is_stored_as_a_kube_apiserver_stores_it() {
    let fixture = Fixture::new().await;
    let mut kinds = 0;
    for row in stored() {
        let object = fixtures::of(row).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        fixture.call("POST", &collection(row), &object).await;
        let entry = fixture.entry(&expected_key(row, name)).await;
        let text = std::str::from_utf8(&entry.value).unwrap();
        let mut found: Value = serde_json::from_str(text).unwrap();
        assert_eq!(found["apiVersion"], json!(expected_version(row)), "{}", row.group_resource());
        assert_eq!(found["kind"], json!(stored_form(row).kind));
        for outside in ["resourceVersion", "selfLink"] {
            assert_eq!(found["metadata"][outside], Value::Null, "{text}");
        }
        // Every field is one of the type's, and none stands twice.
        let one = format!("{}/{name}", collection(stored_form(row)));
        if row.allows("update") {
            found["metadata"]["resourceVersion"] = json!(entry.revision.to_string());
            fixture.call("PUT", &format!("{one}?fieldValidation=Strict&dryRun=All"), &found).await;
        }
        remove(&fixture, row, &one, &entry.key).await;
        kinds += 1;
    }
    assert!(kinds > 50, "{kinds}");
    fixture.server.stop().await;
}

#[tokio::test]
async fn every_kind_is_read_as_a_kube_apiserver_stores_it() {
    let fixture = Fixture::new().await;
    for row in stored() {
        let object = fixtures::of(row).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        fixture.call("POST", &collection(row), &object).await;
        let one = format!("{}/{name}", collection(row));
        let before = fixture.call("GET", &one, &Value::Null).await;
        // The stored version in the envelope, which is what upstream's codec writes.
        let form = format!("{}/{name}", collection(stored_form(row)));
        let service = fixture.server.server.service();
        let sent = send(service, Some(admin()), "GET", &form, &[("accept", PROTOBUF)], "").await;
        let value = sent.into_body().collect().await.unwrap().to_bytes();
        // Definitions and what they define are JSON at upstream too.
        assert!(value.starts_with(b"k8s\0"), "{}", row.group_resource());
        let entry = fixture.entry(&expected_key(row, name)).await;
        let revision = fixture
            .store
            .commit(Write {
                key: entry.key.clone(),
                expect: Expect::Revision(entry.revision),
                change: Change::Put { value, ttl_seconds: None },
                durability: Durability::Synced,
                cause: Default::default(),
                only_while: None,
            })
            .await
            .unwrap();
        let after = fixture.call("GET", &one, &Value::Null).await;
        assert_eq!(after["metadata"]["resourceVersion"], json!(revision.to_string()), "{one}");
        assert_eq!(bare(&after), bare(&before), "{one}");
        remove(&fixture, row, &one, &entry.key).await;
    }
    fixture.server.stop().await;
}

/// The server itself lets definitions go, after what they define.
async fn cleaned_up(fixture: &Fixture, key: &str) {
    let gone = async {
        while fixture.store.get(key).await.unwrap().is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), gone).await.unwrap();
}

/// So that the next version of the same kind may have the name.
async fn remove(fixture: &Fixture, row: &Resource, one: &str, key: &str) {
    fixture.call("DELETE", &format!("{one}?gracePeriodSeconds=0"), &Value::Null).await;
    if &*row.plural == "customresourcedefinitions" {
        return cleaned_up(fixture, key).await;
    }
    let Some(left) = fixture.store.get(key).await.unwrap() else { return };
    let mut object: Value = serde_json::from_slice(&left.value).unwrap();
    object["metadata"]["resourceVersion"] = json!(left.revision.to_string());
    object["metadata"]["finalizers"] = json!([]);
    object["spec"]["finalizers"] = json!([]);
    let path = if row.plural == "namespaces" { format!("{one}/finalize") } else { one.to_owned() };
    fixture.call("PUT", &path, &object).await;
}
