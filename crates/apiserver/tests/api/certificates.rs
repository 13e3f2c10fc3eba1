//! CertificateSigningRequests: who sent them, and that nobody says so but the server.

use std::sync::Arc;

use crate::fixtures;
use crate::server::{self, start};
use apiserver::security::Peer;
use apiserver::security::front_proxy::FrontProxy;
use auth::UserInfo;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

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
    let owned = made.body.pointer("/metadata/managedFields/0/fieldsV1").unwrap().as_object().unwrap();
    assert_eq!(
        owned.keys().collect::<Vec<_>>(),
        ["f:metadata"],
        "the server fills the spec, and it stays as it is"
    );
    let mut changed = made.body.clone();
    changed["spec"]["username"] = "system:node:other".into();
    let path = format!("{REQUESTS}/fixture");
    server.call_with("PUT", &path, &json_type, &changed.to_string()).await;
    let after = server.call("GET", &path, "").await.body;
    assert_eq!(after["spec"]["username"], "admin", "it stays so");
    server.stop().await;
}

/// Sends a request for a certificate as whoever `peer` is; what is written down of where it came from.
async fn address_of(server: &server::TestServer, peer: Peer, headers: &[(&str, &str)]) -> Option<Value> {
    let row = resources::find("certificates.k8s.io", "v1", "certificatesigningrequests").unwrap();
    let mut request = fixtures::of(row).unwrap();
    request["metadata"] = json!({"generateName": "r-"});
    request["spec"]["extra"] = json!({auth::PEER_ADDRESS: ["192.0.2.99"]});
    let mut builder = http::Request::post(REQUESTS).header("content-type", "application/json");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let mut request = builder.body(Full::new(Bytes::from(request.to_string()))).unwrap();
    request.extensions_mut().insert(Arc::new(peer));
    let answer = server.server.service().oneshot(request).await.unwrap();
    let code = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(code, 201, "{body}");
    body.pointer("/spec/extra").and_then(|extra| extra.get(auth::PEER_ADDRESS)).cloned()
}

#[tokio::test]
async fn where_a_request_comes_from_is_what_the_server_has_seen() {
    let server = server::start_with(None, |config| {
        config.options.front_proxy = Some(FrontProxy::new(config.client_ca_pem.clone()));
    })
    .await;
    let at = |address: &str| Peer {
        user: Some(UserInfo::new("system:node:a", &["system:masters", "system:nodes"])),
        address: Some(address.parse().unwrap()),
        ..Peer::default()
    };
    assert_eq!(address_of(&server, at("192.0.2.7:4711"), &[]).await, Some(json!(["192.0.2.7"])));
    let mapped = at("[::ffff:192.0.2.7]:4711");
    assert_eq!(address_of(&server, mapped, &[]).await, Some(json!(["192.0.2.7"])));
    // Of whoever stands behind somebody else nothing was seen.
    let proxy = Peer { proxy: Some("proxy".into()), user: None, ..at("192.0.2.7:4711") };
    let said = [
        ("x-remote-user", "system:node:a"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-knarr.io%2fpeer-address", "192.0.2.99"),
    ];
    assert_eq!(address_of(&server, proxy, &said).await, None);
    let acting = [
        ("impersonate-user", "system:node:a"),
        ("impersonate-group", "system:masters"),
        ("impersonate-extra-knarr.io%2fpeer-address", "192.0.2.99"),
    ];
    assert_eq!(address_of(&server, at("192.0.2.7:4711"), &acting).await, None);
    server.stop().await;
}
