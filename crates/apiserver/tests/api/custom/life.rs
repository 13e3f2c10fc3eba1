//! Definitions that change and go, and objects that are there meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apiserver::respond::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use store::embedded::{Embedded, Options};
use store::{Change, Durability, Expect, Store, Write};

use super::*;
use crate::server::{send, start_on};

const NEWER: &str = "/apis/example.com/v2/namespaces/default/widgets";
const NAME: &str = "widgets.example.com";

async fn with_store() -> (Arc<dyn Store>, TestServer) {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let server = start_on(Arc::clone(&store), dir, None, |_| {}).await;
    (store, server)
}

async fn stored(store: &Arc<dyn Store>, prefix: &str) -> Vec<(String, String)> {
    let page = store.range(prefix, &format!("{}0", prefix.trim_end_matches('/')), None, 0).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    page.entries.iter().map(|entry| (entry.key.clone(), text(&entry.value))).collect()
}

async fn follow(server: &TestServer, path: &str) -> Body {
    let response = send(server.server.service(), Some(server::admin()), "GET", path, &[], "").await;
    assert_eq!(response.status(), 200, "{path}");
    response.into_body()
}

/// What a watch tells until it ends.
async fn told(mut body: Body) -> Vec<String> {
    let mut text = String::new();
    while let Some(frame) = body.frame().await {
        text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
    }
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events
        .map(|event| {
            format!(
                "{} {}",
                event["type"].as_str().unwrap(),
                event["object"]["metadata"]["name"].as_str().unwrap()
            )
        })
        .collect()
}

/// Waits until something is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap_or_else(|_| panic!("{what}"));
}

/// Waits until an object is gone; tells how far its definition was, if that takes too long.
async fn goes(server: &TestServer, path: &str) {
    let wait = async {
        while server.call("GET", path, "").await.code != 404 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(30), wait).await.is_err() {
        panic!("{path} is there: {}", read(server, NAME).await["status"]);
    }
}

fn two_versions() -> Value {
    let mut newer = version("v2", false);
    newer.as_object_mut().unwrap().remove("selectableFields");
    newer["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] =
        json!({"type": "string"});
    let mut older = version("v1", true);
    older["deprecated"] = json!(true);
    definition("widgets", "Widget", vec![older, newer])
}

#[tokio::test]
async fn versions_differ_in_name_and_schema() {
    let (store, server) = with_store().await;
    define(&server, &two_versions()).await;
    let group = server.call("GET", "/apis/example.com", "").await.body;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let mut object = widget("a", json!({"size": 1, "extra": "x"}));
    object["apiVersion"] = json!("example.com/v2");
    let made = server.call("POST", NEWER, &object.to_string()).await;
    assert_eq!(
        (made.code.as_u16(), &made.body["apiVersion"]),
        (201, &json!("example.com/v2")),
        "{}",
        made.body
    );
    // What the version that is stored does not know is not stored.
    let [older, newer] = [WIDGETS, NEWER].map(|path| format!("{path}/a"));
    assert_eq!(server.call("GET", &newer, "").await.body["spec"], json!({"size": 1, "mode": "fast"}));
    assert_eq!(server.call("GET", &older, "").await.body["apiVersion"], "example.com/v1");
    let list = server.call("GET", NEWER, "").await.body;
    assert_eq!(list["apiVersion"], "example.com/v2");
    assert_eq!(list["items"][0], server.call("GET", &newer, "").await.body);
    let warned = send(server.server.service(), Some(server::admin()), "GET", &older, &[], "").await;
    assert_eq!(warned.headers()["warning"], "299 - \"example.com/v1 Widget is deprecated\"");

    // Another version is stored from now on.
    let changed = redefine(&server, NAME, |definition| {
        definition["spec"]["versions"][0]["storage"] = json!(false);
        definition["spec"]["versions"][1]["storage"] = json!(true);
    })
    .await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    assert_eq!(read(&server, NAME).await["status"]["storedVersions"], json!(["v1", "v2"]));
    let is_old = |stored: &[(String, String)]| stored[0].1.contains("example.com/v1\"");
    assert!(is_old(&stored(&store, "/registry/example.com/widgets/").await));
    for (path, api_version) in [(&older, "example.com/v1"), (&newer, "example.com/v2")] {
        assert_eq!(server.call("GET", path, "").await.body["apiVersion"], api_version);
    }
    // A write that changes nothing moves the object to it.
    let same = server.call("GET", &newer, "").await.body;
    assert_eq!(server.call("PUT", &newer, &same.to_string()).await.code, 200);
    assert!(!is_old(&stored(&store, "/registry/example.com/widgets/").await));
    let patched = server.call("PATCH", &newer, r#"{"spec": {"extra": "y"}}"#).await;
    assert_eq!(patched.body["spec"]["extra"], "y");

    // A version goes.
    let changed =
        redefine(&server, NAME, |definition| definition["spec"]["versions"][0]["served"] = json!(false))
            .await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    assert_eq!(server.call("GET", &older, "").await.code, 404);
    assert_eq!(server.call("GET", &newer, "").await.body["spec"]["extra"], "y");
    server.stop().await;
}

#[tokio::test]
async fn objects_are_read_as_the_schema_says_today() {
    let server = start(None).await;
    define(&server, &widgets()).await;
    let one = format!("{WIDGETS}/a");
    assert_eq!(post(&server, &widget("a", json!({"size": 9, "name": "abc"}))).await.code, 201);
    let kept = follow(&server, &format!("{WIDGETS}?watch=true&resourceVersion=0")).await;
    // Names change: nobody who follows the objects is cut.
    let renamed =
        redefine(&server, NAME, |definition| definition["spec"]["names"]["shortNames"] = json!(["w"])).await;
    assert_eq!(renamed.code, 200, "{}", renamed.body);
    assert_eq!(
        server.call("GET", "/apis/example.com/v1", "").await.body["resources"][0]["shortNames"],
        json!(["w"])
    );
    assert_eq!(post(&server, &widget("b", json!({"size": 1}))).await.code, 201);
    // The schema changes: what has a default now is there, what is not known any more is not.
    let changed = redefine(&server, NAME, |definition| {
        let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            ["properties"];
        spec["colour"] = json!({"type": "string", "default": "red"});
        spec["size"]["maximum"] = json!(5);
        spec.as_object_mut().unwrap().remove("name");
    })
    .await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    assert_eq!(told(kept).await, ["ADDED a", "ADDED b"], "a watch is told of everything before it ends");
    let expect = json!({"size": 9, "mode": "fast", "colour": "red"});
    assert_eq!(server.call("GET", &one, "").await.body["spec"], expect);
    assert_eq!(server.call("GET", WIDGETS, "").await.body["items"][0]["spec"], expect);
    // What is wrong by the new rules and stays as it is may stay.
    let patched = server.call("PATCH", &one, r#"{"spec": {"mode": "slow"}}"#).await;
    assert_eq!(patched.code, 200, "{}", patched.body);
    assert_eq!(server.call("PATCH", &one, r#"{"spec": {"size": 8}}"#).await.code, 422);
    assert_eq!(post(&server, &widget("c", json!({"size": 6}))).await.code, 422);
    let third = server.call("GET", "/openapi/v3/apis/example.com/v1", "").await.body;
    let spec = &third["components"]["schemas"]["com.example.v1.Widget"]["properties"]["spec"]["properties"];
    assert_eq!((&spec["colour"]["default"], &spec["name"]), (&json!("red"), &Value::Null));
    server.stop().await;
}

#[tokio::test]
async fn a_definition_goes_after_its_objects() {
    let (store, server) = with_store().await;
    define(&server, &widgets()).await;
    let mut held = widget("held", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    for object in [widget("free", json!({"size": 1})), held] {
        assert_eq!(post(&server, &object).await.code, 201);
    }
    let body = follow(&server, &format!("{WIDGETS}?watch=true&resourceVersion=0")).await;
    let path = format!("{DEFINITIONS}/{NAME}");
    let deleted = server.call("DELETE", &path, "").await;
    assert_eq!(deleted.code, 200, "{}", deleted.body);
    assert_eq!(deleted.body["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    goes(&server, &format!("{WIDGETS}/free")).await;
    let definition = read(&server, NAME).await;
    assert_eq!(condition(&definition, "Terminating"), ("True", "InstanceDeletionInProgress"));
    let refused = post(&server, &widget("new", json!({"size": 1}))).await;
    let expect = "create not allowed while custom resource definition is terminating";
    assert_eq!((refused.code.as_u16(), refused.body["message"].as_str()), (405, Some(expect)));
    let applied = server
        .call_with(
            "PATCH",
            &format!("{WIDGETS}/new?fieldManager=m"),
            &APPLY,
            &widget("new", json!({"size": 1})).to_string(),
        )
        .await;
    assert_eq!(applied.code, 405, "{}", applied.body);
    let verbs = server.call("GET", "/apis/example.com/v1", "").await.body["resources"][0]["verbs"].clone();
    assert_eq!(verbs, json!(["delete", "deletecollection", "get", "list", "watch"]));
    // With the finalizer of the last object goes everything.
    let patched =
        server.call("PATCH", &format!("{WIDGETS}/held"), r#"{"metadata": {"finalizers": null}}"#).await;
    assert_eq!(patched.code, 200, "{}", patched.body);
    goes(&server, &path).await;
    until("the kind goes", async || server.call("GET", WIDGETS, "").await.code == 404).await;
    let told = told(body).await;
    assert_eq!(told.last().map(String::as_str), Some("DELETED held"), "{told:?}");
    assert_eq!(server.call("GET", "/apis/example.com", "").await.code, 404);
    assert_eq!(stored(&store, "/registry/example.com/widgets/").await, []);
    // It comes again, with nothing.
    define(&server, &widgets()).await;
    assert_eq!(server.call("GET", WIDGETS, "").await.body["items"], json!([]));
    assert_eq!(post(&server, &widget("free", json!({"size": 1}))).await.code, 201);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_created_meanwhile_stays_behind() {
    let (store, server) = with_store().await;
    let server = Arc::new(server);
    for round in 0..5 {
        define(&server, &widgets()).await;
        let is_over = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
                tokio::spawn(async move {
                    let mut made = 0;
                    for number in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let object = widget(&format!("w{writer}-{number}"), json!({"size": 1}));
                        made += u32::from(post(&server, &object).await.code == 201);
                        tokio::task::yield_now().await;
                    }
                    made
                })
            })
            .collect();
        until("objects are made", async || stored(&store, "/registry/example.com/widgets/").await.len() > 4)
            .await;
        let path = format!("{DEFINITIONS}/{NAME}");
        assert_eq!(server.call("DELETE", &path, "").await.code, 200);
        goes(&server, &path).await;
        is_over.store(true, Ordering::Relaxed);
        let mut made = 0;
        for writer in writers {
            made += writer.await.unwrap();
        }
        assert!(made > 0, "round {round} had no writes");
        assert_eq!(stored(&store, "/registry/example.com/widgets/").await, [], "round {round}");
    }
    Arc::into_inner(server).unwrap().stop().await;
}

#[tokio::test]
async fn names_are_the_first_ones_and_then_whose_turn_it_is() {
    let server = start(None).await;
    define(&server, &widgets()).await;
    let other = definition("gadgets", "Widget", vec![version("v1", true)]);
    define(&server, &other).await;
    let refused = read(&server, "gadgets.example.com").await;
    assert_eq!(condition(&refused, "NamesAccepted").0, "False");
    assert_eq!(condition(&refused, "Established"), ("False", "NotAccepted"));
    let gadgets = WIDGETS.replace("widgets", "gadgets");
    assert_eq!(server.call("GET", &gadgets, "").await.code, 404);
    assert_eq!(post(&server, &widget("a", json!({"size": 1}))).await.code, 201);
    assert_eq!(server.call("DELETE", &format!("{DEFINITIONS}/{NAME}"), "").await.code, 200);
    until("the other is served", async || server.call("GET", &gadgets, "").await.code == 200).await;
    // It is served before that is said.
    let said = async || condition(&read(&server, "gadgets.example.com").await, "Established").0 == "True";
    until("the other is established", said).await;
    server.stop().await;
}

/// Writes a value as another server would.
async fn put(store: &Arc<dyn Store>, key: &str, value: &Value) {
    let change = Change::Put { value: value.to_string().into(), ttl_seconds: None };
    let write = Write {
        key: key.to_owned(),
        expect: Expect::Absent,
        change,
        durability: Durability::Relaxed,
        cause: Default::default(),
        only_while: None,
    };
    store.commit(write).await.unwrap();
}

#[tokio::test]
async fn stored_kinds_are_served_from_the_start_whatever_else_is_stored() {
    let (store, server) = with_store().await;
    define(&server, &widgets()).await;
    assert_eq!(post(&server, &widget("a", json!({"size": 1}))).await.code, 201);
    let good = read(&server, NAME).await;
    server.stop().await;
    let prefix = "/registry/apiextensions.k8s.io/customresourcedefinitions";
    let named = |plural: &str, change: &dyn Fn(&mut Value)| {
        let text = good.to_string().replace("widgets", plural).replace("Widget", &plural.to_uppercase());
        let mut definition: Value = serde_json::from_str(&text).unwrap();
        definition["metadata"]["uid"] = json!(plural);
        change(&mut definition);
        definition
    };
    let bad = [
        named("badas", &|definition| {
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "nothing"})
        }),
        named("badbs", &|definition| definition["spec"]["versions"] = json!(7)),
        named("badcs", &|definition| definition["status"]["acceptedNames"]["kind"] = json!("")),
        named("zadds", &|definition| definition["status"]["acceptedNames"]["kind"] = json!("Widget")),
        named("bades", &|definition| definition["spec"]["preserveUnknownFields"] = json!(true)),
    ];
    for definition in &bad {
        put(&store, &format!("{prefix}/{}", definition["metadata"]["name"].as_str().unwrap()), definition)
            .await;
    }
    let server = start_on(Arc::clone(&store), tempfile::tempdir().unwrap(), None, |_| {}).await;
    let found = server.call("GET", &format!("{WIDGETS}/a"), "").await;
    assert_eq!(found.body["spec"]["size"], 1, "{}", found.body);
    assert_eq!(post(&server, &widget("b", json!({"size": 1}))).await.code, 201);
    // What another server defines is followed.
    let late = named("lates", &|_| {});
    put(&store, &format!("{prefix}/lates.example.com"), &late).await;
    let lates = WIDGETS.replace("widgets", "lates");
    until("what another server defines is served", async || server.call("GET", &lates, "").await.code == 200)
        .await;
    server.stop().await;
}

#[tokio::test]
async fn a_deletion_goes_on_after_a_restart() {
    let (store, server) = with_store().await;
    define(&server, &widgets()).await;
    let mut held = widget("held", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_eq!(post(&server, &held).await.code, 201);
    let path = format!("{DEFINITIONS}/{NAME}");
    assert_eq!(server.call("DELETE", &path, "").await.code, 200);
    server.stop().await;
    let server = start_on(Arc::clone(&store), tempfile::tempdir().unwrap(), None, |_| {}).await;
    assert_eq!(post(&server, &widget("new", json!({"size": 1}))).await.code, 405);
    let patched =
        server.call("PATCH", &format!("{WIDGETS}/held"), r#"{"metadata": {"finalizers": null}}"#).await;
    assert_eq!(patched.code, 200, "{}", patched.body);
    goes(&server, &path).await;
    assert_eq!(stored(&store, "/registry/example.com/").await, []);
    server.stop().await;
}
