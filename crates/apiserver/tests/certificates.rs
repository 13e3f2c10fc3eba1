//! CertificateSigningRequests: who sent them, and that nobody says so but the server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]

mod fixtures;
mod server;

use serde_json::json;
use server::start;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[tokio::test]
async fn a_request_names_its_sender_whatever_it_says() {
    let server = start(None).await;
    let row = resources::find("certificates.k8s.io", "v1", "certificatesigningrequests").unwrap();
    let mut request = fixtures::of(row).unwrap();
    request["spec"]["username"] = "system:node:other".into();
    request["spec"]["groups"] = json!(["system:nodes"]);
    request["spec"]["uid"] = "u".into();
    request["spec"]["extra"] = json!({"a": ["b"]});
    let json_type = [("content-type", "application/json")];
    let made = server.call_with("POST", REQUESTS, &json_type, &request.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let spec = &made.body["spec"];
    assert_eq!(spec["username"], "admin");
    assert_eq!(spec["groups"], json!(["system:masters", "system:authenticated"]));
    assert_eq!((spec.get("uid"), spec.get("extra")), (None, None));
    let mut changed = made.body.clone();
    changed["spec"]["username"] = "system:node:other".into();
    let path = format!("{REQUESTS}/fixture");
    server.call_with("PUT", &path, &json_type, &changed.to_string()).await;
    let after = server.call("GET", &path, "").await.body;
    assert_eq!(after["spec"]["username"], "admin", "it stays so");
    server.stop().await;
}
