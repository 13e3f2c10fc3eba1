//! Certificates of Pods over their life, with time that leaps from one timer to the next.

use std::time::Duration;

use base::Clock;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::api::Api;
use super::{Node, is_ready, pod};

const START: &str = "2026-01-01T00:00:00Z";

/// A node with a Pod that mounts a certificate.
async fn start() -> Node {
    // All tests of this process have it; only these have something to do with it.
    let gate = "PodCertificateRequest=true".parse().unwrap();
    machinery::features::turn_on(&[gate]).unwrap_or_else(drop);
    let (clock, api) = (Clock::simulated(START.parse().unwrap()), Api::default());
    api.set_clock(clock.clone());
    api.set(
        "/api/v1/namespaces/shop/serviceaccounts/robot",
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "uid": "s1"}}),
    );
    let node = Node::start_at(clock, api, |config| config.sync_frequency = Duration::from_secs(24 * 3600));
    let source = json!({"signerName": "a.b/c", "keyType": "ED25519", "maxExpirationSeconds": 7200,
        "credentialBundlePath": "all.pem", "keyPath": "tls.key", "certificateChainPath": "tls.crt",
        "userAnnotations": {"a.b/role": "web"}});
    let volume = json!({"name": "certs", "projected": {"sources": [{"secret": {"name": "none", "optional": true}},
        {"podCertificate": source}]}});
    node.api.put(pod(json!({"volumes": [volume], "serviceAccountName": "robot"})));
    node
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": START})
}

/// Issued now for two hours; to be renewed after one.
fn issued(node: &Node, chain: &str) -> Value {
    let at = |minutes: i64| (node.clock.now() + SignedDuration::from_mins(minutes)).to_string();
    let chain = format!("signed by hand\n{}", crate::volumes::pem::write("CERTIFICATE", chain.as_bytes()));
    json!({"conditions": [condition("Issued")], "certificateChain": chain, "notBefore": at(0),
        "beginRefreshAt": at(60), "notAfter": at(120)})
}

fn file(node: &Node, name: &str) -> String {
    let volume = node.dir.path().join("kubelet/pods/u1/volumes/kubernetes.io~projected/certs");
    std::fs::read_to_string(volume.join(name)).unwrap()
}

fn chain(text: &str) -> String {
    crate::volumes::pem::write("CERTIFICATE", text.as_bytes())
}

async fn sleep_until(node: &Node, minutes: i64) {
    let end = START.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes);
    tokio::time::sleep(Duration::try_from(end.duration_since(node.clock.now())).unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_asked_for_and_renewed_when_its_signer_said() {
    let node = start().await;
    let request = node.api.answer_request(1, issued(&node, "first")).await;
    let spec = &request["spec"];
    assert_eq!(
        [&spec["signerName"], &spec["podName"], &spec["podUID"], &spec["serviceAccountName"]],
        ["a.b/c", "web", "u1", "robot"]
    );
    assert_eq!([&spec["serviceAccountUID"], &spec["nodeName"]], ["s1", "n1"]);
    assert_eq!(spec["maxExpirationSeconds"], 7200);
    assert_eq!(spec["unverifiedUserAnnotations"], json!({"a.b/role": "web"}));
    assert_eq!(request["metadata"]["ownerReferences"][0]["uid"], "u1");
    node.until("readiness", is_ready).await;
    let (key, all) = (file(&node, "tls.key"), file(&node, "all.pem"));
    assert_eq!((file(&node, "tls.crt"), all), (chain("first"), format!("{key}{}", chain("first"))));

    sleep_until(&node, 59).await;
    assert_eq!(node.api.requests_made(), 1, "before its time");
    node.api.answer_request(2, issued(&node, "second")).await;
    let asked_at = node.clock.now().duration_since(START.parse().unwrap()).as_secs();
    assert!((3600..3900).contains(&asked_at), "{asked_at}: within five minutes after it");
    sleep_until(&node, 66).await;
    assert_eq!(file(&node, "tls.crt"), chain("second"));
    assert_ne!(file(&node, "tls.key"), key, "another key for each request");

    // Nobody answers: what there is stays, and is complained about when it should have been renewed, and when it ends.
    sleep_until(&node, 145).await;
    node.api.until_event("CertificateOverdueForRefresh", "PodCertificate refresh overdue").await;
    sleep_until(&node, 190).await;
    node.api.until_event("CertificateExpired", "PodCertificate expired").await;
    assert_eq!(file(&node, "tls.crt"), chain("second"));
    node.api.delete();
    node.until_gone().await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_told_and_for_good() {
    let node = start().await;
    let waits = "MountVolume.SetUp failed for volume \"certs\" : credential bundle is not issued yet";
    node.api.until_event("FailedMount", waits).await;
    node.api.answer_request(1, json!({"conditions": [condition("Denied")]})).await;
    let told = "PodCertificateRequest shop/req-1 was denied, reason=\"R\", message=\"m\"";
    node.api.until_event("Denied", told).await;
    let denied = "MountVolume.SetUp failed for volume \"certs\" : PodCertificateRequest was permanently denied: \
                  reason=\"R\" message=\"m\"";
    node.api.until_event("FailedMount", denied).await;
    sleep_until(&node, 120).await;
    assert_eq!(node.api.requests_made(), 1, "nobody is asked again");
    node.api.delete();
    node.until_gone().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_starts_again_asks_anew() {
    let node = start().await;
    node.api.answer_request(1, issued(&node, "first")).await;
    node.until("readiness", is_ready).await;
    let key = file(&node, "tls.key");
    node.stop_kubelet();
    node.spawn_kubelet();
    node.api.answer_request(2, issued(&node, "second")).await;
    sleep_until(&node, 10).await;
    assert_eq!(file(&node, "tls.crt"), chain("second"));
    assert_ne!(file(&node, "tls.key"), key, "keys are nowhere but in memory and in the volume");
    node.api.delete();
    node.until_gone().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_lost_is_made_again() {
    let node = start().await;
    node.api.answer_request(1, json!({})).await;
    node.api.lose_request(1);
    sleep_until(&node, 9).await;
    assert_eq!(node.api.requests_made(), 1, "it may still come");
    node.api.answer_request(2, issued(&node, "second")).await;
    node.until("readiness", is_ready).await;
    node.api.delete();
    node.until_gone().await;
}
