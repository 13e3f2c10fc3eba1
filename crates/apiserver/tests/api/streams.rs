//! Logs and exec: bytes pass between a real client and a stand-in for the kubelet.

use std::sync::Arc;

use crate::server::{self, TestServer, start};
use auth::pki::{Subject, kubeconfig};
use futures::SinkExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, LogParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

/// TLS with a certificate for 127.0.0.1 that the cluster's authority signed.
fn acceptor(server: &TestServer) -> TlsAcceptor {
    let subject = Subject::server("kubelet", "system:node:n1", vec![], vec!["127.0.0.1".parse().unwrap()]);
    let identity = server.authority.issue(server.dir.path(), &subject, server::now()).unwrap();
    let chain =
        CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn client(server: &TestServer) -> kube::Client {
    let subject = Subject::client("admin", "admin", "system:masters");
    let identity = server.authority.issue(server.dir.path(), &subject, server::now()).unwrap();
    let url = format!("https://{}", server.server.address().unwrap());
    let text = kubeconfig(&url, server.authority.certificate_pem(), "admin", &identity);
    let config = Kubeconfig::from_yaml(&text).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// A server with a Pod on a node whose kubelet listens here.
async fn with_pod() -> (TestServer, TcpListener, Api<Pod>) {
    let server = start(Some("127.0.0.1:0".parse().unwrap())).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let node = format!(
        "{{metadata: {{name: n1}}, status: {{addresses: [{{type: InternalIP, address: 127.0.0.1}}], \
         daemonEndpoints: {{kubeletEndpoint: {{Port: {port}}}}}}}}}"
    );
    let made = server.call("POST", "/api/v1/nodes", "{metadata: {name: n1}}").await;
    assert_eq!(made.code, 201, "{}", made.body);
    let status = server.call("PUT", "/api/v1/nodes/n1/status", &node).await;
    assert_eq!(status.code, 200, "{}", status.body);
    server.call("POST", "/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: default}}").await;
    let pod = "{metadata: {name: p}, spec: {nodeName: n1, containers: [{name: a, image: b}]}}";
    let made = server.call("POST", "/api/v1/namespaces/default/pods", pod).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let pods = Api::namespaced(client(&server).await, "default");
    (server, listener, pods)
}

#[tokio::test]
async fn logs_are_copied() {
    let (server, listener, pods) = with_pod().await;
    let acceptor = acceptor(&server);
    let kubelet = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut head = vec![0; 4096];
        let length = stream.read(&mut head).await.unwrap();
        let head = String::from_utf8_lossy(&head[..length]).into_owned();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello\n").await.unwrap();
        stream.shutdown().await.unwrap();
        head
    });
    let params = LogParams { tail_lines: Some(1), ..LogParams::default() };
    assert_eq!(pods.logs("p", &params).await.unwrap(), "hello\n");
    let head = kubelet.await.unwrap();
    assert!(head.starts_with("GET /containerLogs/default/p/a?"), "{head}");
    assert!(head.contains("tailLines=1"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn exec_is_joined_by_web_socket() {
    let (server, listener, pods) = with_pod().await;
    let acceptor = acceptor(&server);
    let kubelet = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor.accept(stream).await.unwrap();
        let mut uri = String::new();
        #[expect(clippy::result_large_err, reason = "tungstenite's own type")]
        let callback = |request: &Request, mut response: Response| {
            uri = request.uri().to_string();
            let offered = request.headers().get("sec-websocket-protocol").unwrap().to_str().unwrap();
            let first = offered.split(',').next().unwrap().trim();
            response.headers_mut().insert("sec-websocket-protocol", first.parse().unwrap());
            Ok(response)
        };
        let mut socket = tokio_tungstenite::accept_hdr_async(stream, callback).await.unwrap();
        socket.send(Message::binary(b"\x01hello".to_vec())).await.unwrap();
        socket.send(Message::binary(b"\x03{\"status\":\"Success\"}".to_vec())).await.unwrap();
        socket.close(None).await.unwrap();
        uri
    });
    let params = AttachParams::default().stderr(false);
    let mut process = pods.exec("p", ["echo", "a b"], &params).await.unwrap();
    let mut text = String::new();
    process.stdout().unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hello");
    let uri = kubelet.await.unwrap();
    assert_eq!(uri, "/exec/default/p/a?output=1&command=echo&command=a+b");
    server.stop().await;
}

/// Serves these answers, one connection each; gives the heads of the requests.
fn stand_in(
    acceptor: TlsAcceptor,
    listener: TcpListener,
    answers: Vec<&'static str>,
) -> tokio::task::JoinHandle<Vec<String>> {
    tokio::spawn(async move {
        let mut heads = Vec::new();
        for answer in answers {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            heads.push(head);
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
        heads
    })
}

#[tokio::test]
async fn what_a_backend_says_passes_as_it_is() {
    let (server, listener, _) = with_pod().await;
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\nconnection: close, x-hop\r\n\
                x-hop: 1\r\nkeep-alive: timeout=5\r\n\r\n{\"a\":{\"b\":1}}";
    let kubelet = stand_in(acceptor(&server), listener, vec![json]);
    let (path, headers) = ("/api/v1/nodes/n1/proxy/pods", [("user-agent", "curl/8")]);
    let user = Some(server::admin());
    let response = server::send(server.server.service(), user, "GET", path, &headers, "").await;
    // HTTP/2 has no such headers, and a length that is not that of the body ends the stream there.
    for name in ["connection", "x-hop", "keep-alive", "transfer-encoding"] {
        assert!(!response.headers().contains_key(name), "{name}");
    }
    assert_eq!(response.headers()["content-length"], "13");
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert_eq!(body, "{\"a\":{\"b\":1}}");
    kubelet.await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn only_who_reads_is_led_to_the_root_with_a_slash() {
    let (server, listener, _) = with_pod().await;
    let empty = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let kubelet = stand_in(acceptor(&server), listener, vec![empty; 3]);
    let root = "/api/v1/nodes/n1/proxy";
    for (method, path, code) in [
        ("GET", "?x=1", 301),
        ("HEAD", "", 301),
        ("DELETE", "?x=1", 200),
        ("POST", "", 200),
        ("GET", "/?x=1", 200),
    ] {
        let answer = server.call(method, &format!("{root}{path}"), "").await;
        assert_eq!(answer.code.as_u16(), code, "{method} {path}: {}", answer.body);
    }
    let heads = kubelet.await.unwrap();
    let lines: Vec<&str> = heads.iter().map(|head| head.lines().next().unwrap()).collect();
    assert_eq!(lines, ["DELETE /?x=1 HTTP/1.1", "POST / HTTP/1.1", "GET /?x=1 HTTP/1.1"]);
    server.stop().await;
}

#[tokio::test]
async fn a_log_is_sent_over_web_socket_to_who_asks_for_it() {
    let (server, listener, _) = with_pod().await;
    let log = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello\n";
    let kubelet = stand_in(acceptor(&server), listener, vec![log; 4]);
    let path = "/api/v1/namespaces/default/pods/p/log?follow=true";
    for (offered, code, chosen) in [
        ("", 101, None),
        ("base64.binary.k8s.io", 101, Some("base64.binary.k8s.io")),
        ("v9.channel.k8s.io, binary.k8s.io", 101, Some("binary.k8s.io")),
        ("v4.channel.k8s.io", 403, None),
    ] {
        let mut headers = vec![
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        if !offered.is_empty() {
            headers.push(("sec-websocket-protocol", offered));
        }
        let user = Some(server::admin());
        let response = server::send(server.server.service(), user, "GET", path, &headers, "").await;
        assert_eq!(response.status().as_u16(), code, "{offered}");
        let protocol = response.headers().get("sec-websocket-protocol").map(|value| value.to_str().unwrap());
        assert_eq!(protocol, chosen, "{offered}");
        if code == 101 {
            assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        }
    }
    for head in kubelet.await.unwrap() {
        assert!(!head.to_lowercase().contains("websocket"), "{head}");
    }
    server.stop().await;
}
