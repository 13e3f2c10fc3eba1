//! Webhooks that hang, lie and fail: only who needs them notices.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;

/// What a webhook does at a path, instead of what it should.
fn behaviour(path: &str, review: &Value) -> hook_server::Answer {
    let mut good = response(review);
    let object = |change: fn(&mut Value)| {
        let mut good = response(review);
        change(&mut good["convertedObjects"][0]);
        said(review, good)
    };
    match path {
        "/fail" => {
            said(review, json!({"uid": good["uid"], "result": {"status": "Failure", "message": "not today"}}))
        }
        "/status" => said(review, json!({"uid": good["uid"], "result": {"status": "Failure"}})),
        "/none" => said(review, Value::Null),
        "/uid" => said(review, json!({"uid": "x", "result": {"status": "Success"}})),
        "/kind" => {
            hook_server::Answer::Whole(json!({"kind": "Review", "apiVersion": "v1", "response": good}))
        }
        "/few" => {
            good["convertedObjects"].as_array_mut().unwrap().pop();
            said(review, good)
        }
        "/many" => {
            let one = good["convertedObjects"][0].clone();
            good["convertedObjects"].as_array_mut().unwrap().push(one);
            said(review, good)
        }
        "/version" => object(|object| object["apiVersion"] = json!("example.com/v3")),
        "/other" => object(|object| object["kind"] = json!("Pod")),
        "/name" => object(|object| object["metadata"]["name"] = json!("z")),
        "/namespace" => object(|object| object["metadata"]["namespace"] = json!("kube-system")),
        "/owner" => object(|object| object["metadata"]["uid"] = json!("z")),
        "/label" => object(|object| object["metadata"]["labels"] = json!({"a b": "c"})),
        "/null" => object(|object| *object = Value::Null),
        "/500" => hook_server::Answer::Raw(500, "it is broken".to_owned()),
        "/text" => hook_server::Answer::Raw(200, "no JSON".to_owned()),
        "/deep" => hook_server::Answer::Raw(200, "[".repeat(1_000_000)),
        "/huge" => hook_server::Answer::Huge,
        "/close" => hook_server::Answer::Close,
        "/hang" => hook_server::Answer::Hang,
        _ => said(review, good),
    }
}

/// The path, and how the reason ends that clients are told.
const TABLE: [(&str, &str); 19] = [
    ("/fail", " failed: not today"),
    ("/status", " failed: response.result.status was 'Failure', not 'Success'"),
    ("/none", " failed: no response provided"),
    ("/uid", r#", got "x""#),
    (
        "/kind",
        " failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /v1, Kind=Review",
    ),
    ("/few", " returned 0 objects, expected 1"),
    ("/many", " returned 2 objects, expected 1"),
    (
        "/version",
        " returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
    ),
    ("/other", " returned invalid object at index 0: invalid kind (expected Gear, received Pod)"),
    ("/name", " returned invalid object: must have the same name: a != z"),
    ("/namespace", " returned invalid object: must have the same namespace: default != kube-system"),
    ("/label", "[A-Za-z0-9]')"),
    ("/null", " returned invalid converted object at index 0: Object 'Kind' is missing in 'null'"),
    ("/500", r#"failed: an error on the server ("it is broken") has prevented the request from succeeding"#),
    ("/text", "at line 1 column 2"),
    ("/deep", "at line 1 column 1"),
    ("/huge", " bytes"),
    ("/close", " encountered"),
    ("/owner", " != z"),
];

async fn lead_to(server: &TestServer, hook: &HookServer, path: &str) {
    let url = hook.url(path);
    redefine(server, |definition| {
        definition["spec"]["conversion"]["webhook"]["clientConfig"]["url"] = json!(url);
    })
    .await;
}

#[tokio::test]
async fn whoever_needs_a_broken_webhook_is_told_why_and_nobody_else_notices() {
    let hook = HookServer::start(behaviour).await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/good")).await;
    make(&server, V1, &gear("v1", "a", json!({"teeth": 1}))).await;
    for (path, why) in TABLE {
        lead_to(&server, &hook, path).await;
        let of_v1 = "conversion webhook for example.com/v1, Kind=Gear";
        failed(&server.call("GET", &format!("{V2}/a"), "").await, of_v1, why);
        failed(&server.call("GET", V2, "").await, of_v1, why);
        assert_eq!(get(&server, &format!("{V1}/a")).await["spec"]["teeth"], 1, "{path}");
        assert_eq!(names(&get(&server, V1).await), ["a"], "{path}");
    }
    lead_to(&server, &hook, "/fail").await;
    let (v1, v2) = (
        "conversion webhook for example.com/v1, Kind=Gear failed",
        "conversion webhook for example.com/v2, Kind=Gear failed",
    );
    let write = |method: &'static str, path: String, body: Value| {
        let server = &server;
        async move { server.call_with(method, &path, &MERGE, &body.to_string()).await }
    };
    let new = gear("v2", "b", json!({"cogs": 1}));
    failed(&server.call("POST", V2, &new.to_string()).await, v2, "not today");
    failed(&server.call("POST", &format!("{V2}?dryRun=All"), &new.to_string()).await, v2, "not today");
    let mut changed = gear("v2", "a", json!({"cogs": 2}));
    changed["metadata"]["resourceVersion"] = json!("1");
    for below in ["", "/status"] {
        failed(&server.call("PUT", &format!("{V2}/a{below}"), &changed.to_string()).await, v1, "not today");
        failed(
            &write("PATCH", format!("{V2}/a{below}"), json!({"spec": {"cogs": 2}})).await,
            v1,
            "not today",
        );
    }
    failed(&server.call("GET", &format!("{V2}/a/scale"), "").await, v1, "not today");
    failed(&write("PATCH", format!("{V2}/a/scale"), json!({"spec": {"replicas": 2}})).await, v1, "not today");
    failed(&server.call("DELETE", &format!("{V2}/a"), "").await, v1, "not today");
    failed(&server.call("DELETE", V2, "").await, v1, "not today");
    assert_eq!(write("PATCH", format!("{V1}/a"), json!({"spec": {"teeth": 5}})).await.code, 200);
    assert_eq!(names(&get(&server, V1).await), ["a"], "nothing came to be, and nothing went");
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_hangs_holds_up_its_own_requests_and_those_no_longer_than_they_may() {
    let hook = HookServer::start(behaviour).await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/hang")).await;
    make(&server, V1, &gear("v1", "a", json!({"teeth": 1}))).await;
    let begun = Instant::now();
    let path = format!("{V2}/a?timeout=1s");
    let hanging = futures::future::join_all((0..40).map(|_| server.call("GET", &path, "")));
    let others = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let begun = Instant::now();
        assert_eq!(names(&get(&server, V1).await), ["a"]);
        make(&server, V1, &gear("v1", "b", json!({"teeth": 1}))).await;
        assert_eq!(server.call("GET", "/api/v1/namespaces", "").await.code, 200);
        begun.elapsed()
    };
    let (hanging, others) = tokio::join!(hanging, others);
    assert!(hanging.iter().all(|answer| answer.code == 504), "{}", hanging[0].body);
    assert!(others < Duration::from_secs(1) && begun.elapsed() < Duration::from_secs(10), "{others:?}");
    // What was given up is not waited for by whoever asks next.
    lead_to(&server, &hook, "/good").await;
    assert_eq!(get(&server, &format!("{V2}/a")).await["spec"]["cogs"], 1);
    server.stop().await;
}

#[tokio::test]
async fn a_watch_whose_next_object_cannot_be_converted_ends_with_the_reason() {
    let hook = HookServer::start(|_, review| {
        let is_bad = |object: &Value| object["spec"]["teeth"] == 13;
        match review["request"]["objects"].as_array().unwrap().iter().any(is_bad) {
            true => said(review, json!({"uid": review["request"]["uid"], "result": {"status": "Failure", "message": "thirteen"}})),
            false => said(review, response(review)),
        }
    })
    .await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/convert")).await;
    make(&server, V1, &gear("v1", "a", json!({"teeth": 1}))).await;
    let mut watch = Events::of(&server, &format!("{V2}?watch=1")).await;
    assert_eq!(watch.told().await.0, "ADDED");
    for (name, teeth) in [("b", 2), ("c", 13), ("d", 4)] {
        make(&server, V1, &gear("v1", name, json!({"teeth": teeth}))).await;
    }
    assert_eq!(watch.told().await, event("ADDED", "b", json!({"cogs": 2, "made": "iron-v1"})));
    let end = watch.next().await.unwrap();
    let why = "conversion webhook for example.com/v1, Kind=Gear failed: thirteen";
    assert_eq!((&end["type"], &end["object"]["message"]), (&json!("ERROR"), &json!(why)));
    assert_eq!((&end["object"]["code"], end["object"].get("reason")), (&json!(500), None));
    assert!(watch.next().await.is_none());
    // One broken object is no other's matter.
    for name in ["a", "b", "d"] {
        get(&server, &format!("{V2}/{name}")).await;
    }
    failed(&server.call("GET", &format!("{V2}/c"), "").await, why, why);
    failed(&server.call("GET", V2, "").await, why, why);
    assert_eq!(names(&get(&server, &format!("{V2}?limit=2")).await), ["a", "b"]);
    assert_eq!(names(&get(&server, &format!("{V2}?fieldSelector=metadata.name%3Dd")).await), ["d"]);
    server.stop().await;
}
