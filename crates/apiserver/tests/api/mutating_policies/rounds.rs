//! Policies among others that change objects: webhooks, and policies that want to see what others make of their work.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{about, apply, create, install, start};
use crate::hook_server::{Answer as Reply, HookServer};
use crate::server::TestServer;

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// A mutation that logs that it was made.
fn logging(name: &str) -> Value {
    apply(&format!("Object{{data: {{'log': (has(object.data.log) ? object.data.log : '') + '{name}'}}}}"))
}

/// Installs a webhook that logs as a policy does, and says what it was shown.
async fn hook(server: &TestServer, hooks: &HookServer, reinvocation: &str) {
    let hook = json!({
        "name": "w.example.com",
        "clientConfig": {"url": hooks.url("/"), "caBundle": hooks.ca_bundle()},
        "rules": about(&["configmaps"])["resourceRules"],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "reinvocationPolicy": reinvocation,
    });
    super::make(server, WEBHOOKS, &json!({"metadata": {"name": "w"}, "webhooks": [hook]})).await;
}

async fn logger() -> HookServer {
    HookServer::start(|_, review| {
        let log = review["request"]["object"]["data"]["log"].as_str().unwrap_or_default();
        let patch = json!([{"op": "add", "path": "/data/log", "value": format!("{log}W")}]);
        Reply::Says(
            json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())}),
        )
    })
    .await
}

/// As upstream: policies before webhooks, each in the second round only if it wants to be; one that wants to is also asked
/// again about what it has made itself.
#[tokio::test]
async fn who_wants_to_sees_what_others_make_of_it() {
    for (first, second, webhook, expected) in [
        ("Never", "Never", None, "ab"),
        ("IfNeeded", "Never", None, "aba"),
        ("Never", "IfNeeded", None, "abb"),
        ("IfNeeded", "IfNeeded", None, "abab"),
        ("Never", "Never", Some("Never"), "abW"),
        ("IfNeeded", "Never", Some("Never"), "abWa"),
        ("Never", "Never", Some("IfNeeded"), "abW"),
        ("IfNeeded", "IfNeeded", Some("IfNeeded"), "abWabW"),
    ] {
        let server = start().await;
        for (name, reinvocation) in [("a", first), ("b", second)] {
            install(&server, name, &[logging(name)], json!({"reinvocationPolicy": reinvocation})).await;
        }
        let hooks = logger().await;
        if let Some(reinvocation) = webhook {
            hook(&server, &hooks, reinvocation).await;
        }
        let made = create(&server, "x", json!({"n": "1"})).await;
        let shown = format!("{first} {second} {webhook:?}: {}", made.body);
        assert_eq!(made.body["data"]["log"], expected, "{shown}");
        server.stop().await;
    }
}

#[tokio::test]
async fn a_policy_that_changes_nothing_makes_nobody_look_again() {
    let server = start().await;
    install(&server, "a", &[apply("Object{data: {'n': '1'}}")], json!({})).await;
    let hooks = logger().await;
    hook(&server, &hooks, "IfNeeded").await;
    let made = create(&server, "x", json!({"n": "1"})).await;
    assert_eq!(made.body["data"]["log"], "W", "{}", made.body);
    server.stop().await;
}
