//! What lists and watches promise: which revision they are of, in which order, and when they end.

use std::sync::Arc;

use crate::server::{self, TestServer, start, start_with};
use apiserver::respond::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use store::embedded::{Embedded, Options};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A watch and what was read of it.
struct Events {
    body: Body,
    text: String,
}

impl Events {
    async fn of(server: &TestServer, path: &str) -> Self {
        let response =
            server::send(server.server.service(), Some(server::admin()), "GET", path, &[], "").await;
        assert_eq!(response.status(), 200, "{path}");
        Self { body: response.into_body(), text: String::new() }
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let event = serde_json::from_str(line).unwrap();
                self.text = rest.to_owned();
                return event;
            }
            let frame = self.body.frame().await.expect("the watch goes on").unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }

    /// Type and name of the next event.
    async fn told(&mut self) -> String {
        let event = self.next().await;
        format!(
            "{} {}",
            event["type"].as_str().unwrap(),
            event["object"]["metadata"]["name"].as_str().unwrap_or("-")
        )
    }
}

/// Makes an object, or changes it; answers its revision.
async fn write(server: &TestServer, method: &str, path: &str, body: &str) -> u64 {
    let answer = server.call(method, path, body).await;
    assert!(answer.code.is_success(), "{method} {path}: {}", answer.body);
    revision(&answer.body)
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

async fn made(server: &TestServer, name: &str) -> u64 {
    write(server, "POST", CONFIG_MAPS, &format!("{{metadata: {{name: {name}}}, data: {{n: '1'}}}}")).await
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_list_is_of_now_of_a_revision_or_not_older_than_one() {
    let server = start(None).await;
    let first = made(&server, "a").await;
    let second = made(&server, "b").await;
    let last = write(&server, "PATCH", &format!("{CONFIG_MAPS}/a"), r#"{"data": {"n": "2"}}"#).await;
    let get = async |query: String| server.call("GET", &format!("{CONFIG_MAPS}?{query}"), "").await;
    let now = get(String::new()).await.body;
    assert_eq!((names(&now), &now["items"][0]["data"]["n"]), (vec!["a", "b"], &json!("2")));
    assert!(revision(&now) >= last);
    let exact = get(format!("resourceVersion={first}&resourceVersionMatch=Exact")).await.body;
    assert_eq!((names(&exact), revision(&exact)), (vec!["a"], first));
    let exact = get(format!("resourceVersion={second}&resourceVersionMatch=Exact")).await.body;
    assert_eq!((names(&exact), &exact["items"][0]["data"]["n"]), (vec!["a", "b"], &json!("1")));
    // Pages of a revision are exact without a word.
    let exact = get(format!("resourceVersion={first}&limit=9")).await.body;
    assert_eq!((names(&exact), revision(&exact)), (vec!["a"], first));
    for query in [format!("resourceVersion={first}"), "resourceVersion=0".to_owned()] {
        let newest = get(format!("{query}&resourceVersionMatch=NotOlderThan")).await.body;
        assert!(revision(&newest) >= last, "{query}");
    }
    let future = get(format!("resourceVersion={}", last + 1000)).await;
    assert_eq!(future.code, 504);
    assert_eq!(future.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(future.body["details"]["retryAfterSeconds"], 1);
    server.stop().await;
}

#[tokio::test]
async fn pages_are_of_one_revision_whatever_happens_between_them() {
    let server = start(None).await;
    for name in ["a", "b", "c", "d", "e"] {
        made(&server, name).await;
    }
    let get = async |query: &str| server.call("GET", &format!("{CONFIG_MAPS}?{query}"), "").await.body;
    // The cache has everything at hand, at the latest after a consistent read.
    get("").await;
    let whole = get("resourceVersion=0&limit=2").await;
    assert_eq!((names(&whole).len(), whole["metadata"].get("continue")), (5, None));
    let first = get("limit=2").await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(3)));
    server.call("DELETE", &format!("{CONFIG_MAPS}/d"), "").await;
    made(&server, "bb").await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = get(&format!("limit=2&continue={token}")).await;
    assert_eq!((names(&second), &second["metadata"]["remainingItemCount"]), (vec!["c", "d"], &json!(1)));
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = get(&format!("limit=2&continue={token}")).await;
    assert_eq!((names(&third), third["metadata"].get("continue")), (vec!["e"], None));
    assert_eq!(revision(&third), revision(&first));
    let selected = get("limit=1&labelSelector=!none").await;
    assert_eq!(selected["metadata"].get("remainingItemCount"), None, "nobody counts what a selector leaves");
    server.stop().await;
}

/// A server that starts has no memory of what was before; nor has any after a compaction.
#[tokio::test]
async fn what_is_forgotten_is_gone_and_the_way_on_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let before = server::start_on(Arc::clone(&store) as _, tempfile::tempdir().unwrap(), None, |_| {}).await;
    let old = made(&before, "a").await;
    made(&before, "b").await;
    let first = before.call("GET", &format!("{CONFIG_MAPS}?limit=1"), "").await.body;
    write(&before, "PATCH", &format!("{CONFIG_MAPS}/a"), r#"{"data": {"n": "2"}}"#).await;
    before.stop().await;
    let server = server::start_on(store, tempfile::tempdir().unwrap(), None, |_| {}).await;
    let exact = format!("{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    let gone = server.call("GET", &exact, "").await;
    assert_eq!((gone.code.as_u16(), &gone.body["reason"]), (410, &json!("Expired")));
    let mut watch = Events::of(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={old}")).await;
    let error = watch.next().await;
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(watch.body.frame().await.is_none(), "nothing follows");
    let token = first["metadata"]["continue"].as_str().unwrap();
    let gone = server.call("GET", &format!("{CONFIG_MAPS}?limit=1&continue={token}"), "").await;
    assert_eq!((gone.code.as_u16(), &gone.body["reason"]), (410, &json!("Expired")));
    let token = gone.body["metadata"]["continue"].as_str().expect("a token that goes on as of now");
    let rest = server.call("GET", &format!("{CONFIG_MAPS}?limit=1&continue={token}"), "").await.body;
    assert_eq!(names(&rest), ["b"]);
    server.stop().await;
}

#[tokio::test]
async fn a_watch_list_streams_what_is_there_and_says_where_it_ends() {
    let server = start(None).await;
    made(&server, "a").await;
    let newest = made(&server, "b").await;
    let path = format!(
        "{CONFIG_MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = Events::of(&server, &path).await;
    assert_eq!([watch.told().await, watch.told().await], ["ADDED a", "ADDED b"]);
    let bookmark = watch.next().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert!(revision(&bookmark["object"]) >= newest);
    made(&server, "c").await;
    assert_eq!(watch.told().await, "ADDED c");
    // Without bookmarks nothing marks the end; without initial events there are none.
    let path = format!("{CONFIG_MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let mut unmarked = Events::of(&server, &path).await;
    let path = format!("{CONFIG_MAPS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    let mut without = Events::of(&server, &path).await;
    made(&server, "d").await;
    for expect in ["ADDED a", "ADDED b", "ADDED c", "ADDED d"] {
        assert_eq!(unmarked.told().await, expect);
    }
    assert_eq!(without.told().await, "ADDED d");
    server.stop().await;
}

#[tokio::test]
async fn a_quiet_watch_is_told_how_far_everything_is() {
    let server = start(None).await;
    let from = made(&server, "a").await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}&allowWatchBookmarks=true");
    let mut watch = Events::of(&server, &path).await;
    // Something that this watch does not see.
    let elsewhere = "/api/v1/namespaces/kube-public/configmaps";
    let newest = write(&server, "POST", elsewhere, "{metadata: {name: x}}").await;
    server.call("GET", elsewhere, "").await;
    tokio::time::pause();
    let bookmark = watch.next().await;
    tokio::time::resume();
    assert_eq!(
        (&bookmark["type"], bookmark["object"]["metadata"].get("annotations")),
        (&json!("BOOKMARK"), None)
    );
    assert!(revision(&bookmark["object"]) >= newest, "{bookmark}");
    server.stop().await;
}

#[tokio::test]
async fn an_object_comes_and_goes_as_a_field_selector_sees_it() {
    let server = start(None).await;
    let account = "/api/v1/namespaces/default/serviceaccounts";
    server.call("POST", account, "{metadata: {name: default}}").await;
    let from =
        write(&server, "POST", PODS, "{metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}")
            .await;
    let watch = |selector: &str| format!("{PODS}?watch=1&resourceVersion={from}&fieldSelector={selector}");
    let mut bound = Events::of(&server, &watch("spec.nodeName%3Dn1")).await;
    let mut pending = Events::of(&server, &watch("status.phase%3DPending")).await;
    let mut other = Events::of(&server, &watch("metadata.name%3Dq")).await;
    let binding = "{metadata: {name: p}, target: {kind: Node, name: n1}}";
    assert_eq!(server.call("POST", &format!("{PODS}/p/binding"), binding).await.code, 201);
    assert_eq!(bound.told().await, "ADDED p");
    assert_eq!(pending.told().await, "MODIFIED p");
    let running =
        write(&server, "PATCH", &format!("{PODS}/p/status"), r#"{"status": {"phase": "Running"}}"#).await;
    assert_eq!(bound.told().await, "MODIFIED p");
    let left = pending.next().await;
    // Its last state that was seen, under the revision at which it was seen no more.
    assert_eq!((&left["type"], &left["object"]["status"]["phase"]), (&json!("DELETED"), &json!("Pending")));
    assert_eq!(revision(&left["object"]), running);
    server.call("DELETE", &format!("{PODS}/p?gracePeriodSeconds=0"), "").await;
    assert_eq!(bound.told().await, "DELETED p");
    write(&server, "POST", PODS, "{metadata: {name: q}, spec: {containers: [{name: c, image: i}]}}").await;
    assert_eq!([pending.told().await, other.told().await], ["ADDED q", "ADDED q"]);
    server.stop().await;
}

#[tokio::test]
async fn who_does_not_read_holds_up_nobody() {
    let server = start(None).await;
    let from = made(&server, "a").await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
    let mut idle = Events::of(&server, &path).await;
    let mut eager = Events::of(&server, &path).await;
    for round in 0..50 {
        let patch = format!(r#"{{"data": {{"n": "{round}"}}}}"#);
        let made = write(&server, "PATCH", &format!("{CONFIG_MAPS}/a"), &patch).await;
        assert_eq!(revision(&eager.next().await["object"]), made);
    }
    // Nothing was lost for the one that begins to read now.
    for round in 0..50 {
        assert_eq!(idle.next().await["object"]["data"]["n"], round.to_string());
    }
    server.stop().await;
}

/// Readiness fails at once, so that load balancers look elsewhere; who is here, or still comes, is served.
#[tokio::test]
async fn a_server_that_is_to_stop_serves_watches_until_the_delay_is_over() {
    let delay = std::time::Duration::from_secs(3600);
    let server = start_with(None, |config| config.options.shutdown_delay = delay).await;
    let path = format!("{CONFIG_MAPS}?watch=1");
    let mut before = Events::of(&server, &path).await;
    server.tasks.stop();
    assert_eq!(server.call("GET", "/readyz", "").await.code, 500);
    assert_eq!(server.call("GET", "/livez", "").await.code, 200);
    let mut after = Events::of(&server, &path).await;
    made(&server, "a").await;
    assert_eq!([before.told().await, after.told().await], ["ADDED a", "ADDED a"]);
    tokio::time::pause();
    tokio::time::advance(delay).await;
    tokio::time::resume();
    assert!(before.body.frame().await.is_none() && after.body.frame().await.is_none(), "the drain has begun");
    server.stop().await;
}
