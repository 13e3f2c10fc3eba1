//! The audit webhook: what it gets, who waits for it, and what becomes of events that it does not take.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::audit::webhook::{Batch, Config, Mode, Truncate};
use apiserver::audit::{self, LogFile, policy::Policy};
use apiserver::webhook_client::kubeconfig::Target;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::hook_server::{Answer, HookServer};
use crate::server::{TestServer, admin, send, start_with};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICY: &str = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [\
                      {level: RequestResponse, users: [admin], resources: [{group: '', resources: [configmaps]}]}, {level: None}]}";

fn target(hooks: &HookServer) -> Target {
    let file = json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k"}}],
        "clusters": [{"name": "k", "cluster": {
            "server": hooks.url("/audit"), "certificate-authority-data": hooks.ca_bundle()}}],
    });
    Target::load("/hook", |_| Ok(file.to_string())).unwrap()
}

async fn server(hooks: &HookServer, mode: Mode, change: impl FnOnce(&mut Config)) -> TestServer {
    let mut webhook = Config {
        target: target(hooks),
        mode,
        initial_backoff: Duration::from_millis(10),
        batch: Batch::default(),
        truncate: None,
    };
    change(&mut webhook);
    webhook.check().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let log = LogFile { path: dir.path().join("audit.log"), ..LogFile::default() };
    let policy = Policy::parse(POLICY).unwrap();
    start_with(None, |config| {
        config.options.audit = Some(audit::Config { policy, log, webhook: Some(webhook) });
    })
    .await
}

async fn create(server: &TestServer, name: &str, data: &str) -> u16 {
    let body = format!("{{metadata: {{name: {name}}}, data: {{a: '{data}'}}}}");
    server.call("POST", CONFIG_MAPS, &body).await.code.as_u16()
}

async fn metric(server: &TestServer, name: &str) -> Option<String> {
    let answer = send(server.server.service(), Some(admin()), "GET", "/metrics", &[], "").await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    text.lines().find_map(|line| line.strip_prefix(name).map(|value| value.trim().to_owned()))
}

/// A webhook that takes every list of events, and where they are.
async fn collecting() -> (HookServer, mpsc::UnboundedReceiver<Value>) {
    let (sender, lists) = mpsc::unbounded_channel();
    let hooks = HookServer::start(move |path, list| {
        assert_eq!(path, "/audit");
        sender.send(list.clone()).ok();
        Answer::Raw(200, String::new())
    })
    .await;
    (hooks, lists)
}

fn told(list: &Value) -> Vec<String> {
    let one = |event: &Value| {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
        format!("{} {} {}", text("/stage"), text("/verb"), text("/objectRef/name"))
    };
    list["items"].as_array().unwrap().iter().map(one).collect()
}

#[tokio::test]
async fn requests_wait_for_the_webhook_where_they_are_to() {
    let (hooks, mut lists) = collecting().await;
    let server = server(&hooks, Mode::Blocking, |_| {}).await;
    assert_eq!(create(&server, "a", "b").await, 201);
    let first = lists.try_recv().unwrap();
    assert_eq!((&first["kind"], &first["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
    assert_eq!(told(&first), ["RequestReceived create -"]);
    let last = lists.try_recv().unwrap();
    assert_eq!(told(&last), ["ResponseComplete create a"]);
    assert_eq!(last["items"][0]["requestObject"]["data"], json!({"a": "b"}));
    assert!(lists.try_recv().is_err());
    assert_eq!(metric(&server, "apiserver_audit_event_total").await.unwrap(), "2");
    assert_eq!(metric(&server, "apiserver_audit_level_total{level=\"RequestResponse\"}").await.unwrap(), "1");
    server.stop().await;
}

#[tokio::test]
async fn events_are_sent_together_when_there_are_enough_or_it_is_time() {
    let (hooks, mut lists) = collecting().await;
    let server = server(&hooks, Mode::Batch, |config| config.batch.size_max = 4).await;
    for name in ["a", "b"] {
        assert_eq!(create(&server, name, "x").await, 201);
    }
    assert_eq!(told(&lists.recv().await.unwrap()).len(), 4);
    assert_eq!(create(&server, "c", "x").await, 201);
    assert!(lists.try_recv().is_err(), "others may come");
    server.stop().await;
    let rest = ["RequestReceived create -", "ResponseComplete create c"];
    assert_eq!(told(&lists.recv().await.unwrap()), rest, "what is left is sent at the end");

    let (hooks, mut lists) = collecting().await;
    let server =
        self::server(&hooks, Mode::Batch, |config| config.batch.wait_max = Duration::from_millis(50)).await;
    assert_eq!(create(&server, "a", "x").await, 201);
    let mut seen = told(&lists.recv().await.unwrap());
    while seen.len() < 2 {
        seen.extend(told(&lists.recv().await.unwrap()));
    }
    assert_eq!(seen, ["RequestReceived create -", "ResponseComplete create a"]);
    server.stop().await;
}

#[tokio::test]
async fn only_who_is_strict_refuses_requests_that_the_webhook_does_not_hear_of() {
    for (mode, expect) in [(Mode::Batch, 201), (Mode::Blocking, 201), (Mode::BlockingStrict, 500)] {
        let hooks = HookServer::start(|_, _| Answer::Raw(400, "no".to_owned())).await;
        let server = server(&hooks, mode, |_| {}).await;
        assert_eq!(create(&server, "a", "b").await, expect, "{mode:?}");
        let code = server.call("GET", &format!("{CONFIG_MAPS}/a"), "").await.code.as_u16();
        let read = match mode {
            Mode::BlockingStrict => 500,
            Mode::Batch | Mode::Blocking => 200,
        };
        assert_eq!(code, read, "{mode:?}");
        let lost = metric(&server, "apiserver_audit_error_total{plugin=\"webhook\"}").await;
        assert_eq!(lost.is_some(), mode != Mode::Batch, "{mode:?}");
        let rejected = metric(&server, "apiserver_audit_requests_rejected_total").await.unwrap();
        assert_eq!(rejected != "0", mode == Mode::BlockingStrict, "{mode:?}");
        server.stop().await;
    }
}

#[tokio::test]
async fn whatever_fails_is_tried_again() {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let hooks = HookServer::start(move |_, _| {
        let mut count = count.lock().unwrap();
        *count += 1;
        match *count {
            1 => Answer::Raw(403, "no".to_owned()),
            2 => Answer::Close,
            _ => Answer::Raw(204, String::new()),
        }
    })
    .await;
    let server = server(&hooks, Mode::BlockingStrict, |_| {}).await;
    assert_eq!(create(&server, "a", "b").await, 201);
    assert!(*asked.lock().unwrap() >= 4);
    assert_eq!(metric(&server, "apiserver_audit_error_total{plugin=\"webhook\"}").await, None);
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_hangs_holds_nothing_up_and_nothing_grows() {
    let hooks = HookServer::start(|_, _| Answer::Hang).await;
    let server = server(&hooks, Mode::Batch, |config| {
        config.batch = Batch { buffer_size: 4, size_max: 1, wait_max: Duration::ZERO, throttle: None };
    })
    .await;
    for number in 0..40 {
        assert_eq!(create(&server, &format!("a{number}"), "b").await, 201);
    }
    let lost = metric(&server, "apiserver_audit_error_total{plugin=\"buffered\"}").await.unwrap();
    assert!(lost.parse::<u64>().unwrap() > 0, "{lost}");
    let begun = tokio::time::Instant::now();
    server.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_is_too_long_is_cut_or_dropped() {
    let (hooks, mut lists) = collecting().await;
    let truncate = Truncate { batch_bytes_max: 4000, event_bytes_max: 2000 };
    let server = server(&hooks, Mode::Blocking, |config| config.truncate = Some(truncate)).await;
    assert_eq!(create(&server, "long", &"x".repeat(5000)).await, 201);
    lists.try_recv().unwrap();
    let list = lists.try_recv().unwrap();
    let event = &list["items"][0];
    assert_eq!(event["annotations"]["audit.k8s.io/truncated"], "true");
    assert!(event.get("requestObject").is_none() && event.get("responseObject").is_none());
    let path = format!("{CONFIG_MAPS}?labelSelector={}", "a".repeat(3000));
    server.call("GET", &path, "").await;
    assert!(lists.try_recv().is_err());
    assert_eq!(metric(&server, "apiserver_audit_error_total{plugin=\"truncate\"}").await.unwrap(), "2");
    server.stop().await;
}
