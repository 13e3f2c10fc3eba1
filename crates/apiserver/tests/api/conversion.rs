//! Custom kinds in several versions, between which a webhook converts.

mod hostile;
mod stored;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::respond::Body;
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};

use crate::hook_server::{self, HookServer};
use crate::server::{self, Answer, TestServer, start};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GEARS: &str = "gears.example.com";
const V1: &str = "/apis/example.com/v1/namespaces/default/gears";
const V2: &str = "/apis/example.com/v2/namespaces/default/gears";
const TABLE: [(&str, &str); 1] = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
const APPLY: [(&str, &str); 1] = [("content-type", "application/apply-patch+yaml")];
const MERGE: [(&str, &str); 1] = [("content-type", "application/merge-patch+json")];

/// What of a spec is called how in v1 and v2.
const FIELDS: [(&str, &str); 3] = [("teeth", "cogs"), ("material", "made"), ("replicas", "count")];

fn version(name: &str, is_stored: bool, at: usize) -> Value {
    let field = |field: usize| {
        let (old, new) = FIELDS[field];
        if at == 0 { old } else { new }
    };
    let mut spec = Map::new();
    spec.insert(field(0).to_owned(), json!({"type": "integer"}));
    spec.insert(field(1).to_owned(), json!({"type": "string", "default": format!("iron-{name}")}));
    spec.insert(field(2).to_owned(), json!({"type": "integer"}));
    json!({"name": name, "served": true, "storage": is_stored,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": {"turns": {"type": "integer"}}}}}},
        "subresources": {"status": {}, "scale": {
            "specReplicasPath": format!(".spec.{}", field(2)), "statusReplicasPath": ".status.turns"}},
        "selectableFields": [{"jsonPath": format!(".spec.{}", field(0))}],
        "additionalPrinterColumns": [{"name": field(0), "type": "integer", "jsonPath": format!(".spec.{}", field(0))}]})
}

/// The definition of gears, stored in v1, which are converted at this place.
fn gears(hook: &HookServer, path: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": GEARS},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "versions": [version("v1", true, 0), version("v2", false, 1)],
            "names": {"plural": "gears", "singular": "gear", "kind": "Gear"},
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1", "v1beta1"],
                "clientConfig": {"url": hook.url(path), "caBundle": hook.ca_bundle()}}}}})
}

/// An object as a good webhook converts it: fields are called otherwise.
fn converted(object: &Value, to: &str) -> Value {
    let mut object = object.clone();
    let is_new = to.ends_with("/v2");
    object["apiVersion"] = json!(to);
    let named = |name: &str| {
        FIELDS.iter().find_map(|(old, new)| match is_new {
            true => (*old == name).then_some(*new),
            false => (*new == name).then_some(*old),
        })
    };
    if let Some(spec) = object["spec"].as_object() {
        let spec = spec.iter().map(|(name, value)| (named(name).unwrap_or(name).to_owned(), value.clone()));
        object["spec"] = Value::Object(spec.collect());
    }
    object
}

/// The response of a good webhook.
fn response(review: &Value) -> Value {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap();
    let objects: Vec<Value> =
        request["objects"].as_array().unwrap().iter().map(|object| converted(object, to)).collect();
    json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects})
}

fn said(review: &Value, response: Value) -> hook_server::Answer {
    hook_server::Answer::Whole(
        json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response}),
    )
}

/// What a webhook was asked about: name and version of each object, as often as it was asked.
type Asked = Arc<Mutex<BTreeMap<String, usize>>>;

/// A webhook that does what it should.
async fn good_hook() -> (HookServer, Asked) {
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let hook = HookServer::start(move |_, review| {
        for object in review["request"]["objects"].as_array().unwrap() {
            assert_eq!(object["metadata"].get("resourceVersion"), None);
            let (name, from) = (object["metadata"]["name"].as_str().unwrap(), &object["apiVersion"]);
            let to = &review["request"]["desiredAPIVersion"];
            let version = |version: &Value| version.as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            let what = format!("{name} {} {}", version(from), version(to));
            *seen.lock().unwrap().entry(what).or_default() += 1;
        }
        said(review, response(review))
    })
    .await;
    (hook, asked)
}

fn take(asked: &Asked) -> BTreeMap<String, usize> {
    std::mem::take(&mut asked.lock().unwrap())
}

async fn define(server: &TestServer, definition: &Value) {
    let answer = server.call("POST", DEFINITIONS, &definition.to_string()).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
}

async fn redefine(server: &TestServer, change: impl FnOnce(&mut Value)) {
    let path = format!("{DEFINITIONS}/{GEARS}");
    let mut definition = server.call("GET", &path, "").await.body;
    change(&mut definition);
    let answer = server.call("PUT", &path, &definition.to_string()).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

fn gear(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Gear", "metadata": {"name": name}, "spec": spec})
}

async fn make(server: &TestServer, place: &str, object: &Value) -> Value {
    let answer = server.call("POST", place, &object.to_string()).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body
}

async fn get(server: &TestServer, path: &str) -> Value {
    let answer = server.call("GET", path, "").await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    answer.body
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// A watch and what was read of it.
struct Events {
    body: Body,
    text: String,
}

impl Events {
    async fn of(server: &TestServer, path: &str) -> Self {
        let admin = Some(server::admin());
        let response = server::send(server.server.service(), admin, "GET", path, &[], "").await;
        assert_eq!(response.status(), 200, "{path}");
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event; `None` if the watch ends.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let event = serde_json::from_str(line).unwrap();
                self.text = rest.to_owned();
                return Some(event);
            }
            let frame = tokio::time::timeout(Duration::from_secs(20), self.body.frame());
            let frame = frame.await.expect("something happens")?.unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }

    /// Type, name and spec of the next event.
    async fn told(&mut self) -> (String, String, Value) {
        let event = self.next().await.expect("the watch goes on");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &event["object"];
        (text(&event["type"]), text(&object["metadata"]["name"]), object["spec"].clone())
    }
}

fn event(kind: &str, name: &str, spec: Value) -> (String, String, Value) {
    (kind.to_owned(), name.to_owned(), spec)
}

#[tokio::test]
async fn every_version_can_be_written_and_read() {
    let (hook, asked) = good_hook().await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/convert")).await;
    // Defaults are those of the version that is written; what it does not know is dropped.
    let made = make(&server, V2, &gear("v2", "a", json!({"cogs": 8, "teeth": 9}))).await;
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("example.com/v2"), &json!({"cogs": 8, "made": "iron-v2"}))
    );
    let v1 = get(&server, &format!("{V1}/a")).await;
    assert_eq!(
        (&v1["apiVersion"], &v1["spec"]),
        (&json!("example.com/v1"), &json!({"teeth": 8, "material": "iron-v2"}))
    );
    let v2 = get(&server, &format!("{V2}/a")).await;
    assert_eq!((&v2["spec"], &v2["metadata"]), (&made["spec"], &v1["metadata"]));
    assert_eq!(
        take(&asked),
        BTreeMap::from([("a v1 v2".into(), 1), ("a v2 v1".into(), 1)]),
        "reads cost nothing more"
    );

    // Nobody is asked about what is written and read as it is stored.
    make(&server, V1, &gear("v1", "b", json!({"teeth": 3}))).await;
    assert_eq!(names(&get(&server, V1).await), ["a", "b"]);
    assert_eq!(take(&asked), BTreeMap::new());

    let listed = get(&server, V2).await;
    assert_eq!(
        (&listed["apiVersion"], listed["items"][1]["spec"].clone()),
        (&json!("example.com/v2"), json!({"cogs": 3, "made": "iron-v1"}))
    );
    assert_eq!(names(&get(&server, &format!("{V2}?limit=1")).await), ["a"]);
    assert_eq!(names(&get(&server, &format!("{V2}?fieldSelector=spec.cogs%3D3")).await), ["b"]);
    assert_eq!(names(&get(&server, &format!("{V1}?fieldSelector=spec.teeth%3D8")).await), ["a"]);
    let table = server.call_with("GET", V2, &TABLE, "").await.body;
    assert_eq!(
        (&table["columnDefinitions"][1]["name"], &table["rows"][1]["cells"]),
        (&json!("cogs"), &json!(["b", 3]))
    );
    assert_eq!(take(&asked), BTreeMap::from([("b v1 v2".into(), 1)]), "each object is converted once");
    server.stop().await;
}

#[tokio::test]
async fn every_version_can_be_changed_and_deleted() {
    let (hook, _) = good_hook().await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/convert")).await;
    let mut changed = make(&server, V2, &gear("v2", "a", json!({"cogs": 8}))).await;
    make(&server, V1, &gear("v1", "b", json!({"teeth": 3}))).await;
    changed["spec"]["cogs"] = json!(10);
    let put = server.call("PUT", &format!("{V2}/a"), &changed.to_string()).await;
    assert_eq!((put.code.as_u16(), &put.body["spec"]["cogs"]), (200, &json!(10)), "{}", put.body);
    let same = server.call("PUT", &format!("{V2}/a"), &put.body.to_string()).await.body;
    assert_eq!(same, put.body, "nothing changes");
    let patched =
        server.call_with("PATCH", &format!("{V2}/a"), &MERGE, r#"{"spec": {"cogs": 11, "count": 2}}"#).await;
    assert_eq!(patched.body["spec"], json!({"cogs": 11, "made": "iron-v2", "count": 2}), "{}", patched.body);
    let status =
        server.call_with("PATCH", &format!("{V2}/a/status"), &MERGE, r#"{"status": {"turns": 5}}"#).await;
    assert_eq!((&status.body["status"], &status.body["spec"]["cogs"]), (&json!({"turns": 5}), &json!(11)));
    let scale = get(&server, &format!("{V2}/a/scale")).await;
    assert_eq!((&scale["spec"], &scale["status"]["replicas"]), (&json!({"replicas": 2}), &json!(5)));
    let scaled =
        server.call_with("PATCH", &format!("{V2}/a/scale"), &MERGE, r#"{"spec": {"replicas": 4}}"#).await;
    assert_eq!(scaled.body["spec"]["replicas"], 4, "{}", scaled.body);
    let v1 = get(&server, &format!("{V1}/a")).await;
    assert_eq!(v1["spec"], json!({"teeth": 11, "material": "iron-v2", "replicas": 4}));

    // Nothing is stored of a dry run; deletions answer with what was there.
    let dry = server
        .call("POST", &format!("{V2}?dryRun=All"), &gear("v2", "c", json!({"cogs": 1})).to_string())
        .await;
    assert_eq!((dry.code.as_u16(), &dry.body["spec"]), (201, &json!({"cogs": 1, "made": "iron-v2"})));
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    server.call_with("PATCH", &format!("{V2}/b"), &MERGE, &held.to_string()).await;
    let deleted = server.call("DELETE", &format!("{V2}/b"), "").await;
    assert_eq!((deleted.code.as_u16(), &deleted.body["spec"]["cogs"]), (200, &json!(3)), "{}", deleted.body);
    assert!(deleted.body["metadata"]["deletionTimestamp"].is_string());
    let freed =
        server.call_with("PATCH", &format!("{V2}/b"), &MERGE, r#"{"metadata": {"finalizers": null}}"#).await;
    assert_eq!((freed.code.as_u16(), &freed.body["spec"]["cogs"]), (200, &json!(3)));
    assert_eq!(server.call("GET", &format!("{V1}/b"), "").await.code, 404);
    let all = server.call("DELETE", V2, "").await;
    assert_eq!((names(&all.body), &all.body["items"][0]["spec"]["cogs"]), (vec!["a"], &json!(11)));
    assert_eq!(names(&get(&server, V1).await), [""; 0]);
    let metrics = server.call("GET", "/metrics", "").await.body.to_string();
    for name in [
        "apiserver_crd_conversion_webhook_duration_seconds_count",
        "apiserver_conversion_webhook_request_total",
    ] {
        assert!(metrics.contains(name), "{name}");
    }
    server.stop().await;
}

#[tokio::test]
async fn watches_tell_in_their_version_and_each_object_is_converted_once() {
    let (hook, asked) = good_hook().await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/convert")).await;
    make(&server, V1, &gear("v1", "a", json!({"teeth": 1}))).await;
    let mut watches = Vec::new();
    for path in
        ["?watch=1", "?watch=1&fieldSelector=spec.cogs%3D1", "?watch=1&fieldSelector=metadata.name%3Da"]
    {
        watches.push(Events::of(&server, &format!("{V2}{path}")).await);
    }
    for watch in &mut watches {
        assert_eq!(watch.told().await, event("ADDED", "a", json!({"cogs": 1, "made": "iron-v1"})));
    }
    let changed = r#"{"spec": {"teeth": 2, "material": "gold"}}"#;
    assert_eq!(server.call_with("PATCH", &format!("{V1}/a"), &MERGE, changed).await.code, 200);
    let gold = |teeth: i64| json!({"cogs": teeth, "made": "gold"});
    for (watch, expect) in watches.iter_mut().zip([
        event("MODIFIED", "a", gold(2)),
        event("DELETED", "a", json!({"cogs": 1, "made": "iron-v1"})),
        event("MODIFIED", "a", gold(2)),
    ]) {
        assert_eq!(watch.told().await, expect);
    }
    assert_eq!(take(&asked), BTreeMap::from([("a v1 v2".into(), 2)]), "two revisions");
    assert_eq!(server.call("DELETE", &format!("{V1}/a"), "").await.code, 200);
    for watch in [0, 2] {
        assert_eq!(watches[watch].told().await, event("DELETED", "a", gold(2)));
    }
    assert_eq!(take(&asked), BTreeMap::new());
    server.stop().await;
}

#[tokio::test]
async fn a_large_collection_is_converted_in_parts() {
    let (hook, asked) = good_hook().await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/convert")).await;
    for at in 0..250 {
        make(&server, V1, &gear("v1", &format!("g{at:03}"), json!({"teeth": at}))).await;
    }
    let lists = futures::future::join_all((0..4).map(|_| get(&server, V2))).await;
    for list in lists {
        let cogs: Vec<i64> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["spec"]["cogs"].as_i64().unwrap())
            .collect();
        assert_eq!(cogs, (0..250).collect::<Vec<i64>>());
    }
    let asked = take(&asked);
    assert_eq!((asked.len(), asked.values().all(|times| *times == 1)), (250, true), "once, however many ask");
    server.stop().await;
}

#[tokio::test]
async fn fields_are_owned_in_the_version_in_which_they_were_written() {
    let (hook, _) = good_hook().await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/convert")).await;
    let apply = |version: &str, manager: &str, spec: Value| {
        let path = format!("/apis/example.com/{version}/namespaces/default/gears/a?fieldManager={manager}");
        let body = gear(version, "a", spec).to_string();
        let server = &server;
        async move { server.call_with("PATCH", &path, &APPLY, &body).await }
    };
    assert_eq!(apply("v1", "old", json!({"teeth": 1, "material": "tin"})).await.code, 201);
    // The same field under its other name is the same field.
    let taken = apply("v2", "new", json!({"cogs": 2})).await;
    let why = r#"Apply failed with 1 conflict: conflict with "old": .spec.teeth"#;
    assert_eq!((taken.code.as_u16(), &taken.body["message"]), (409, &json!(why)));
    let added = apply("v2", "new", json!({"count": 3})).await;
    assert_eq!(
        (added.code.as_u16(), &added.body["spec"]),
        (200, &json!({"cogs": 1, "made": "tin", "count": 3}))
    );
    // What its owner does not apply any more is gone in every version.
    let left = apply("v1", "old", json!({"teeth": 1})).await;
    assert_eq!(left.body["spec"], json!({"teeth": 1, "material": "iron-v1", "replicas": 3}), "{}", left.body);
    // A plain write takes from whoever owns it in another version.
    let path = format!("{V2}/a?fieldManager=editor");
    assert_eq!(server.call_with("PATCH", &path, &MERGE, r#"{"spec": {"cogs": 7}}"#).await.code, 200);
    let object = get(&server, &format!("{V1}/a")).await;
    let mut owners: Vec<(&str, &str)> = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["manager"].as_str().unwrap(), entry["apiVersion"].as_str().unwrap()))
        .collect();
    owners.sort_unstable();
    assert_eq!(owners, [("editor", "example.com/v2"), ("new", "example.com/v2")]);
    server.stop().await;
}

#[tokio::test]
async fn the_first_version_of_the_review_that_is_known_is_spoken() {
    let hook = HookServer::start(|_, review| {
        assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1beta1");
        let mut response = response(review);
        response["uid"] = json!("nobody looks at it");
        hook_server::Answer::Whole(json!({"response": response}))
    })
    .await;
    let server = start(None).await;
    let mut definition = gears(&hook, "/convert");
    definition["spec"]["conversion"]["webhook"]["conversionReviewVersions"] = json!(["v7", "v1beta1", "v1"]);
    define(&server, &definition).await;
    make(&server, V2, &gear("v2", "a", json!({"cogs": 1}))).await;
    assert_eq!(get(&server, &format!("{V1}/a")).await["spec"]["teeth"], 1);
    server.stop().await;
}

/// A policy sees its parameters in the version that it names.
#[tokio::test]
async fn parameters_of_policies_are_converted() {
    let (server, (hook, _)) = (start(None).await, good_hook().await);
    define(&server, &gears(&hook, "/convert")).await;
    make(&server, V1, &gear("v1", "limit", json!({"teeth": 2}))).await;
    let admission = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "few"}, "spec": {"failurePolicy": "Fail",
            "paramKind": {"apiVersion": "example.com/v2", "kind": "Gear"},
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "object.data.size() <= params.spec.cogs"}]}});
    make(&server, &format!("{admission}ies"), &policy).await;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "few"}, "spec": {"policyName": "few", "validationActions": ["Deny"],
            "paramRef": {"name": "limit", "parameterNotFoundAction": "Deny"}}});
    make(&server, &format!("{admission}ybindings"), &binding).await;
    let create = async |name: &str, data: Value| {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        server.call("POST", "/api/v1/namespaces/default/configmaps", &object.to_string()).await
    };
    assert_eq!(create("two", json!({"a": "", "b": ""})).await.code, 201);
    let refused = create("three", json!({"a": "", "b": "", "c": ""})).await;
    assert_eq!(refused.code, 422, "{}", refused.body);

    // Nobody answers any more.
    redefine(&server, |definition| {
        definition["spec"]["conversion"]["webhook"]["clientConfig"]["url"] =
            json!("https://127.0.0.1:1/convert");
    })
    .await;
    let refused = create("one", json!({"a": ""})).await;
    let said = "ValidatingAdmissionPolicy 'few' with binding 'few' denied request: failed to configure binding: \
                conversion webhook for example.com/v1, Kind=Gear failed";
    assert!(refused.body["message"].as_str().unwrap().contains(said), "{}", refused.body);
    let (few, ignore) = (format!("{admission}ies/few"), r#"{"spec": {"failurePolicy": "Ignore"}}"#);
    let ignoring = server.call_with("PATCH", &few, &MERGE, ignore).await;
    assert_eq!(ignoring.code, 200, "{}", ignoring.body);
    assert_eq!(create("one", json!({"a": ""})).await.code, 201);
}

/// Asserts that something was refused with 500 and a text that begins and ends so.
fn failed(answer: &Answer, begins: &str, ends: &str) {
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(answer.code == 500 && message.starts_with(begins) && message.ends_with(ends), "{}", answer.body);
}
