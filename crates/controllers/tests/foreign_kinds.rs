//! Controllers beside an API server that has kinds of which they know nothing: custom objects are neither left behind nor
//! lost.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Random, Tasks};
use bytes::Bytes;
use controller::{Controller, Engine, Informers};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use tokio::sync::watch;

/// An API server with Widgets, which a controller manager does not know.
#[derive(Default)]
struct State {
    /// What `/apis` says of the group `example.com`; nothing if it does not know it.
    group: Option<Value>,
    namespaces: Vec<Value>,
    config_maps: Vec<Value>,
    widgets: Vec<Value>,
    quotas: Vec<Value>,
    /// Whether whoever serves Widgets answers nobody.
    is_away: bool,
    /// Whether it says of single Widgets that there is no such path.
    is_lost: bool,
    /// Every write, and every condition that says that something is wrong.
    log: Vec<String>,
}

struct Server(watch::Sender<State>);

impl Server {
    fn start(state: State, controller: Controller) -> Arc<Self> {
        let server = Arc::new(Self(watch::Sender::new(state)));
        let of = server.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = of.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let (tasks, random) = (Tasks::new(), Random::seeded(1));
        let clock = Clock::simulated("2026-01-01T12:00:00Z".parse().unwrap());
        let informers = Informers::new(kube::Client::new(service, "default"), tasks, clock, random);
        Engine::new(informers, "controllermanager").start(controller);
        server
    }

    /// Whether this is written within so many seconds.
    async fn writes(&self, line: &str, seconds: u64) -> bool {
        let mut state = self.0.subscribe();
        let written = state.wait_for(|state| state.log.iter().any(|one| one.contains(line)));
        tokio::time::timeout(Duration::from_secs(seconds), written).await.is_ok()
    }

    fn log(&self) -> Vec<String> {
        self.0.borrow().log.clone()
    }

    async fn answer(
        &self,
        request: Request<kube::client::Body>,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let is_watch = head.uri.query().unwrap_or_default().contains("watch=true");
        let body: Value =
            serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
        let mut answer = None;
        self.0.send_modify(|state| answer = Some(state.answer(&head.method, &path, &body)));
        let (code, value) = answer.unwrap();
        let pending = StreamBody::new(futures::stream::pending()).boxed_unsync();
        let full = Full::new(Bytes::from(value.to_string())).boxed_unsync();
        Response::builder().status(code).body(if is_watch { pending } else { full }).unwrap()
    }
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, body: &Value) -> (u16, Value) {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        if *method != Method::GET {
            self.log.push(format!("{method} {path}"));
            if let Some(used) = body.pointer("/status/used") {
                self.log.push(format!("used {used}"));
            }
            let conditions =
                body.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
            let wrong = conditions.filter(|condition| condition["status"] == "True");
            self.log
                .extend(wrong.map(|condition| format!("{}: {}", condition["reason"], condition["message"])));
        }
        match (method.as_str(), parts.as_slice()) {
            ("GET", ["api" | "apis"]) => (200, self.discovery(path)),
            ("GET", ["api", "v1", "namespaces"]) => list(&self.namespaces),
            ("GET", ["api", "v1", "configmaps"]) => list(&self.config_maps),
            ("GET", ["api", "v1", "resourcequotas"]) => list(&self.quotas),
            ("GET", ["apis", "example.com", ..]) if self.is_away => (
                503,
                json!({"kind": "Status", "message": "the server is currently unable to handle the request"}),
            ),
            ("GET", ["apis", "example.com", _, "namespaces", _, "widgets", _]) if self.is_lost => no_path(),
            ("GET", ["apis", "example.com", ..]) if self.group.is_none() => no_path(),
            ("GET", ["apis", "example.com", _, "namespaces", _, "widgets"]) => list(&self.widgets),
            ("GET", ["apis", "example.com", _, "widgets"]) => list(&self.widgets),
            ("GET", ["apis", "example.com", _, "namespaces", _, "widgets", name]) => {
                let found = self.widgets.iter().find(|widget| widget["metadata"]["name"] == *name);
                found.map_or_else(|| not_found(name), |widget| (200, widget.clone()))
            }
            ("DELETE", ["apis", "example.com", _, "namespaces", _, "widgets"]) => {
                // One is held by a finalizer.
                self.widgets.retain(|widget| widget["metadata"]["finalizers"].is_array());
                for widget in &mut self.widgets {
                    widget["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
                }
                (200, json!({"kind": "Status", "status": "Success"}))
            }
            ("GET", ["api" | "apis", ..]) => list(&[]),
            _ => (200, json!({"metadata": {"resourceVersion": "5"}})),
        }
    }

    fn discovery(&self, path: &str) -> Value {
        let items = if path == "/apis" { self.group.clone() } else { None };
        json!({"kind": "APIGroupDiscoveryList", "items": items.as_slice()})
    }
}

fn list(items: &[Value]) -> (u16, Value) {
    (200, json!({"metadata": {"resourceVersion": "10"}, "items": items}))
}

fn not_found(name: &str) -> (u16, Value) {
    (404, json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}}))
}

fn no_path() -> (u16, Value) {
    (404, json!({"kind": "Status", "reason": "NotFound", "details": {}}))
}

fn widgets_group() -> Value {
    json!({"metadata": {"name": "example.com"}, "versions": [{"version": "v1", "freshness": "Current", "resources": [{
        "resource": "widgets", "responseKind": {"kind": "Widget"}, "scope": "Namespaced",
        "verbs": ["delete", "deletecollection", "get", "list"],
    }]}]})
}

fn going() -> Vec<Value> {
    vec![json!({
        "metadata": {"name": "team", "uid": "n1", "resourceVersion": "5", "deletionTimestamp": "2026-01-01T11:59:00Z"},
        "spec": {"finalizers": ["kubernetes"]},
    })]
}

fn widget(name: &str, finalizers: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "finalizers": finalizers}})
}

const FINALIZE: &str = "PUT /api/v1/namespaces/team/finalize";

#[tokio::test(start_paused = true)]
async fn a_namespace_with_custom_objects_is_emptied_before_it_goes() {
    let widgets = vec![widget("free", Value::Null), widget("held", json!(["example.com/hold"]))];
    let state = State { group: Some(widgets_group()), namespaces: going(), widgets, ..State::default() };
    let server = Server::start(state, controllers::namespace::CONTROLLER);

    assert!(server.writes("widgets.example.com has 1 resource instances", 60).await, "{:?}", server.log());
    assert!(!server.writes(FINALIZE, 120).await, "one is still held: {:?}", server.log());
    server.0.send_modify(|state| state.widgets.clear());
    assert!(server.writes(FINALIZE, 60).await, "{:?}", server.log());
    let deleted = server.log().iter().filter(|line| line.starts_with("DELETE /apis/example.com")).count();
    assert_eq!(deleted, 1, "what is on its way out is not deleted again");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_stays_while_the_server_cannot_say_what_is_in_it() {
    let mut stale = widgets_group();
    stale["versions"][0]["freshness"] = json!("Stale");
    let state = State { group: Some(stale), namespaces: going(), ..State::default() };
    let server = Server::start(state, controllers::namespace::CONTROLLER);

    assert!(server.writes("\"DiscoveryFailed\": \"Discovery failed for some groups, 1 failing", 60).await);
    assert!(!server.writes(FINALIZE, 300).await, "{:?}", server.log());
    server.0.send_modify(|state| state.group = Some(widgets_group()));
    assert!(server.writes(FINALIZE, 60).await, "{:?}", server.log());
}

fn owned_by(name: &str, kind: &str) -> Value {
    let owner =
        json!({"apiVersion": "example.com/v1", "kind": kind, "name": name, "uid": format!("uid-{name}")});
    json!({"metadata": {"name": format!("of-{name}"), "namespace": "team", "uid": "c1", "resourceVersion": "7",
                        "ownerReferences": [owner]}})
}

#[tokio::test(start_paused = true)]
async fn what_a_custom_object_owns_goes_with_it_and_no_sooner() {
    let config_maps = vec![owned_by("gone", "Widget"), owned_by("here", "Widget"), owned_by("odd", "Gadget")];
    let widgets = vec![widget("here", Value::Null)];
    let state = State { group: Some(widgets_group()), config_maps, widgets, ..State::default() };
    let server = Server::start(state, controllers::garbage_collector::CONTROLLER);

    assert!(
        server.writes("DELETE /api/v1/namespaces/team/configmaps/of-gone", 60).await,
        "{:?}",
        server.log()
    );
    assert!(!server.writes("of-here", 300).await, "its owner is there: {:?}", server.log());
    server.0.send_modify(|state| state.widgets.clear());
    assert!(
        server.writes("DELETE /api/v1/namespaces/team/configmaps/of-here", 300).await,
        "{:?}",
        server.log()
    );
    assert!(!server.writes("of-odd", 300).await, "nobody knows its owner's kind: {:?}", server.log());
}

/// Widgets that can be followed.
fn followed_group() -> Value {
    let mut group = widgets_group();
    group["versions"][0]["resources"][0]["verbs"] =
        json!(["delete", "deletecollection", "get", "list", "watch"]);
    group
}

/// Widgets whose server is away.
fn stale_group() -> Value {
    let mut stale = followed_group();
    stale["versions"][0]["freshness"] = json!("Stale");
    stale["versions"][0]["resources"] = Value::Null;
    stale
}

#[tokio::test(start_paused = true)]
async fn a_kind_out_of_sight_takes_nobody_with_it_however_it_comes_and_goes() {
    let config_maps = vec![owned_by("gone", "Widget"), owned_by("here", "Widget")];
    let widgets = vec![widget("here", Value::Null)];
    // Its list is there, and then nobody answers for it: that `gone` is gone was never said.
    let state =
        State { group: Some(followed_group()), config_maps, widgets, is_away: true, ..State::default() };
    let server = Server::start(state, controllers::garbage_collector::CONTROLLER);
    let is_quiet = async |what: &str| {
        assert!(!server.writes("DELETE", 300).await, "{what}: {:?}", server.log());
    };
    is_quiet("its lists and its objects cannot be read").await;
    for _ in 0..3 {
        server.0.send_modify(|state| state.group = Some(stale_group()));
        is_quiet("its group cannot be discovered").await;
        server.0.send_modify(|state| state.is_away = false);
        server.0.send_modify(|state| state.group = None);
        is_quiet("the server knows no such kind").await;
        server.0.send_modify(|state| state.is_away = true);
        server.0.send_modify(|state| state.group = Some(followed_group()));
        is_quiet("it is back, and does not answer").await;
    }
    server.0.send_modify(|state| (state.is_away, state.is_lost) = (false, true));
    is_quiet("its informer knows no such object, and the server no such path").await;
    server.0.send_modify(|state| state.is_lost = false);
    assert!(
        server.writes("DELETE /api/v1/namespaces/team/configmaps/of-gone", 120).await,
        "{:?}",
        server.log()
    );
    assert!(!server.writes("of-here", 300).await, "{:?}", server.log());
}

#[tokio::test(start_paused = true)]
async fn a_quota_keeps_what_was_counted_of_a_kind_that_is_out_of_sight() {
    let used = json!({"count/widgets.example.com": "7"});
    let quota = json!({"metadata": {"name": "q", "namespace": "team", "uid": "q1", "resourceVersion": "4"},
                       "spec": {"hard": {"count/widgets.example.com": "9"}},
                       "status": {"hard": {"count/widgets.example.com": "9"}, "used": used}});
    let mut group = followed_group();
    group["versions"][0]["resources"][0]["verbs"] = json!(["create", "delete", "get", "list", "watch"]);
    let widgets = vec![widget("a", Value::Null), widget("b", Value::Null)];
    let state = State { group: Some(group), quotas: vec![quota], widgets, is_away: true, ..State::default() };
    let server = Server::start(state, controllers::resource_quota::CONTROLLER);
    assert!(!server.writes("PUT", 700).await, "{:?}", server.log());
    server.0.send_modify(|state| state.is_away = false);
    let line = r#"used {"count/widgets.example.com":"2"}"#;
    assert!(server.writes(line, 60).await, "it is counted as soon as it can be: {:?}", server.log());
}
