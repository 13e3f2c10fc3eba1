//! Tunnels through the whole server: who may open one, what goes through it, and when it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::server::{self, TestServer, start_at, start_with};
use crate::tls::connected;
use apiserver::tunnels::EgressSelectorMode;
use auth::pki::{Identity, Subject};
use base::{Clock, Random, Tasks};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use jiff::SignedDuration;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use store::embedded::{Embedded, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tunnel::agent::{Guard, serve};
use tunnel::destinations::Refusal;

/// Where the Node says that it is: nobody is there (RFC 5737), and nothing is sent there.
const NODE_IP: &str = "192.0.2.77";
const UPGRADE: [(&str, &str); 2] = [("connection", "Upgrade"), ("upgrade", tunnel::PROTOCOL)];
const TIMEOUT: Duration = Duration::from_secs(20);

/// Leads to what stands in for a kubelet and for a Pod.
struct Rows(Vec<(&'static str, u16, SocketAddr)>);

impl Guard for Rows {
    fn find(&self, host: &str, port: u16) -> Result<SocketAddr, Refusal> {
        let row = self.0.iter().find(|row| (row.0, row.1) == (host, port));
        row.map(|row| row.2).ok_or(Refusal::Elsewhere)
    }
}

async fn must(server: &TestServer, (method, path): (&str, &str), body: &str) {
    let answer = server.call(method, path, body).await;
    assert!(answer.code.is_success(), "{method} {path}: {} {}", answer.code, answer.body);
}

/// A Node `n1` with a Pod `p`.
async fn with_node(server: &TestServer) {
    let spec = "{metadata: {name: n1}, spec: {podCIDR: 10.42.1.0/24, podCIDRs: [10.42.1.0/24]}}";
    must(server, ("POST", "/api/v1/nodes"), spec).await;
    let status = format!(
        "{{metadata: {{name: n1}}, status: {{addresses: [{{type: InternalIP, address: {NODE_IP}}}], \
         daemonEndpoints: {{kubeletEndpoint: {{Port: 10250}}}}}}}}"
    );
    must(server, ("PUT", "/api/v1/nodes/n1/status"), &status).await;
    let default = "/api/v1/namespaces/default";
    must(server, ("POST", &format!("{default}/serviceaccounts")), "{metadata: {name: default}}").await;
    let pod = "{metadata: {name: p}, spec: {nodeName: n1, containers: [{name: a, image: b}]}}";
    must(server, ("POST", &format!("{default}/pods")), pod).await;
    let status = "{\"status\": {\"podIP\": \"10.42.1.9\", \"podIPs\": [{\"ip\": \"10.42.1.9\"}]}}";
    must(server, ("PATCH", &format!("{default}/pods/p/status")), status).await;
}

async fn with_mode(mode: EgressSelectorMode) -> TestServer {
    let bind = Some("127.0.0.1:0".parse().unwrap());
    let server = start_with(bind, |config| config.options.egress_selector_mode = mode).await;
    with_node(&server).await;
    server
}

fn identity(server: &TestServer, user: &str, group: &str) -> Identity {
    let subject = Subject::client(&user.replace(':', "-"), user, group);
    server.authority.issue(server.dir.path(), &subject, server::now()).unwrap()
}

fn node(server: &TestServer, name: &str) -> Identity {
    identity(server, &format!("system:node:{name}"), "system:nodes")
}

/// Asks for a tunnel: the connection, or the code and message of the refusal.
async fn open(
    server: &TestServer,
    identity: Option<&Identity>,
    headers: &[(&str, &str)],
) -> Result<Upgraded, (u16, String)> {
    let stream = connected(server, &[b"http/1.1"], identity).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let mut request = http::Request::get(tunnel::PATH).header("host", "kubernetes");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    if response.status() == 101 {
        return Ok(hyper::upgrade::on(response).await.unwrap());
    }
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    Err((code, body["message"].as_str().unwrap_or_default().to_owned()))
}

/// The Node's end of a tunnel, served for as long as it stands.
fn agent(stream: Upgraded, rows: Vec<(&'static str, u16, SocketAddr)>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        serve(stream, Arc::new(Rows(rows)), &Tasks::new()).await.ok();
    })
}

/// How many tunnels the server says that it has, when that is `count`.
async fn wait_for(server: &TestServer, count: usize) {
    let begun = Instant::now();
    loop {
        let told = server.call("GET", tunnel::LIST_PATH, "").await.body;
        if told["tunnels"].as_array().unwrap().len() == count {
            return;
        }
        assert!(begun.elapsed() < TIMEOUT, "{count} tunnels: {told}");
        tokio::task::yield_now().await;
    }
}

/// Stands in for a kubelet, whose certificate names its Node and no address, or for a Pod without one.
async fn backend(server: &TestServer, is_kubelet: bool) -> SocketAddr {
    let subject = Subject::server("kubelet-server", "system:node:n1", vec!["n1".to_owned()], vec![]);
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
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match is_kubelet {
                    true => answer(acceptor.accept(stream).await.unwrap(), "of the kubelet").await,
                    false => answer(stream, "of the pod").await,
                }
            });
        }
    });
    address
}

async fn answer(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, text: &str) {
    assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0, "a request");
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.ok();
}

async fn get(server: &TestServer, path: &str) -> (u16, String) {
    let response = server::send(server.server.service(), Some(server::admin()), "GET", path, &[], "").await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}

const LOG: &str = "/api/v1/namespaces/default/pods/p/log";
const POD: &str = "/api/v1/namespaces/default/pods/p:80/proxy/";

#[tokio::test]
async fn a_kubelet_and_its_pods_are_reached_through_the_tunnel() {
    let server = with_mode(EgressSelectorMode::Pod).await;
    let rows = vec![
        (NODE_IP, 10250, backend(&server, true).await),
        ("10.42.1.9", 80, backend(&server, false).await),
    ];
    let served = agent(open(&server, Some(&node(&server, "n1")), &UPGRADE).await.unwrap(), rows);
    wait_for(&server, 1).await;
    let of_kubelet = (200, "of the kubelet".to_owned());
    assert_eq!(get(&server, LOG).await, of_kubelet);
    assert_eq!(get(&server, "/api/v1/nodes/n1/proxy/pods").await, of_kubelet);
    assert_eq!(get(&server, POD).await, (200, "of the pod".to_owned()));
    let (code, text) = get(&server, "/api/v1/namespaces/default/pods/p:81/proxy/").await;
    assert!(code == 503 && text.contains("the node's agent does not connect there"), "{code} {text}");

    // The newest is taken, and the others are there when it ends.
    let nowhere = open(&server, Some(&node(&server, "n1")), &UPGRADE).await.unwrap();
    let newest = agent(nowhere, Vec::new());
    wait_for(&server, 2).await;
    assert_eq!(get(&server, LOG).await.0, 500);
    newest.abort();
    wait_for(&server, 1).await;
    assert_eq!(get(&server, LOG).await, of_kubelet);

    // What goes with the Node.
    must(&server, ("DELETE", "/api/v1/nodes/n1"), "").await;
    tokio::time::timeout(TIMEOUT, served).await.unwrap().unwrap();
    wait_for(&server, 0).await;
    server.stop().await;
}

#[tokio::test]
async fn where_only_kubelets_are_to_be_reached_so_pods_are_not() {
    let server = start_with(Some("127.0.0.1:0".parse().unwrap()), |_| {}).await;
    with_node(&server).await;
    // The Pod's address leads nowhere but to this host: a direct connection is refused there.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let status = "{\"status\": {\"podIP\": \"127.0.0.1\", \"podIPs\": [{\"ip\": \"127.0.0.1\"}]}}";
    must(&server, ("PATCH", "/api/v1/namespaces/default/pods/p/status"), status).await;
    let rows = vec![
        (NODE_IP, 10250, backend(&server, true).await),
        ("127.0.0.1", closed.port(), backend(&server, false).await),
    ];
    let _served = agent(open(&server, Some(&node(&server, "n1")), &UPGRADE).await.unwrap(), rows);
    wait_for(&server, 1).await;
    assert_eq!(get(&server, LOG).await, (200, "of the kubelet".to_owned()));
    let (code, text) =
        get(&server, &format!("/api/v1/namespaces/default/pods/p:{}/proxy/", closed.port())).await;
    assert!(code == 503 && text.contains("connection refused"), "{code} {text}");
    server.stop().await;
}

#[tokio::test]
async fn nobody_but_a_node_opens_a_tunnel_and_only_its_own() {
    let server = with_mode(EgressSelectorMode::Agent).await;
    let (n1, admin) = (node(&server, "n1"), identity(&server, "root", "system:masters"));
    let as_node = [
        UPGRADE[0],
        UPGRADE[1],
        ("impersonate-user", "system:node:n1"),
        ("impersonate-group", "system:nodes"),
    ];
    let as_other =
        [UPGRADE[0], UPGRADE[1], ("x-remote-user", "system:node:n2"), ("x-remote-group", "system:nodes")];
    let only = "only a Node opens a tunnel, by its own certificate";
    let stray = identity(&server, "system:node:n1", "system:masters");
    for (name, identity, headers, code, message) in [
        ("nobody", None, &UPGRADE[..], 403, "cannot get path"),
        ("an administrator", Some(&admin), &UPGRADE[..], 403, only),
        ("an administrator as a node", Some(&admin), &as_node[..], 403, only),
        ("a node's name outside its group", Some(&stray), &UPGRADE[..], 403, only),
        ("somebody", Some(&identity(&server, "jane", "dev")), &UPGRADE[..], 403, "cannot get path"),
        ("a node that is not there", Some(&node(&server, "n2")), &UPGRADE[..], 404, "nodes \"n2\" not found"),
        (
            "another protocol",
            Some(&n1),
            &[UPGRADE[0], ("upgrade", "websocket")],
            400,
            "knarr-tunnel required",
        ),
        ("no protocol", Some(&n1), &[], 400, "knarr-tunnel required"),
    ] {
        let refused = open(&server, identity, headers).await.unwrap_err();
        assert!(refused.0 == code && refused.1.contains(message), "{name}: {refused:?}");
    }
    assert_eq!(server.call("GET", tunnel::LIST_PATH, "").await.body["tunnels"], serde_json::json!([]));
    // What a header says of another Node counts for nothing.
    let _served = agent(open(&server, Some(&n1), &as_other).await.unwrap(), Vec::new());
    wait_for(&server, 1).await;
    let told = server.call("GET", tunnel::LIST_PATH, "").await.body;
    assert_eq!(told.pointer("/tunnels/0/node").unwrap(), "n1");
    assert_eq!(told.pointer("/tunnels/0/from").unwrap(), "127.0.0.1");
    server.stop().await;

    let server = with_mode(EgressSelectorMode::Disabled).await;
    let refused = open(&server, Some(&node(&server, "n1")), &UPGRADE).await.unwrap_err();
    assert_eq!(refused.0, 404, "{refused:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_tunnel_ends_with_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let start = server::now();
    let clock = Clock::manual(start);
    let bind = Some("127.0.0.1:0".parse().unwrap());
    let server = start_at(clock.clone(), Random::seeded(1), store, dir, bind, |_| {}).await;
    with_node(&server).await;
    let n1 = node(&server, "n1");
    let end = jiff::Timestamp::from_second(auth::pki::ends_at(&n1.certificate_pem).unwrap()).unwrap();
    clock.set(end - SignedDuration::from_secs(1));
    let served = agent(open(&server, Some(&n1), &UPGRADE).await.unwrap(), Vec::new());
    wait_for(&server, 1).await;
    clock.set(end + SignedDuration::from_secs(1));
    tokio::time::timeout(TIMEOUT, served).await.unwrap().unwrap();
    wait_for(&server, 0).await;
    server.stop().await;
}
