//! Over TLS on loopback: client certificates, RBAC, HTTP/1.1 and HTTP/2 by a real client.

use std::sync::Arc;
use std::time::Duration;

use crate::server::{self, TestServer, start, start_at, start_with};
use apiserver::security::front_proxy::FrontProxy;
use auth::pki::{Authority, Identity, Subject, kubeconfig};
use base::connections::{Limits, Share};
use base::{Clock, Random};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use store::embedded::{Embedded, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn client(server: &TestServer, user: &str, group: &str) -> kube::Client {
    let subject = Subject::client(&user.replace(':', "-"), user, group);
    let identity = server.authority.issue(server.dir.path(), &subject, server::now()).unwrap();
    let url = format!("https://{}", server.server.address().unwrap());
    let text = kubeconfig(&url, server.authority.certificate_pem(), user, &identity);
    let config = Kubeconfig::from_yaml(&text).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn a_certificate_says_who_it_is_and_rbac_what_they_may() {
    let server = start(Some("127.0.0.1:0".parse().unwrap())).await;
    let admin = client(&server, "admin", "system:masters").await;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("one".into());
    let made = maps.create(&PostParams::default(), &map).await.unwrap();
    assert!(made.metadata.uid.is_some());

    let nobody = client(&server, "bob", "friends").await;
    let pods: Api<Pod> = Api::namespaced(nobody, "default");
    let refused = pods.list(&ListParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains("cannot list resource \"pods\""), "{refused}");

    let scheduler = client(&server, "system:kube-scheduler", "x").await;
    let pods: Api<Pod> = Api::all(scheduler);
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());

    let kubelet = client(&server, "system:node:n1", "system:nodes").await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(kubelet);
    let mut node = k8s_openapi::api::core::v1::Node::default();
    node.metadata.name = Some("n1".into());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    node.metadata.name = Some("n2".into());
    let refused = nodes.create(&PostParams::default(), &node).await.unwrap_err();
    assert!(refused.to_string().contains("is not allowed to"), "{refused}");
    server.stop().await;
}

/// Connects to the server's port over TLS, offering `protocols`, with a certificate if there is one.
pub(crate) async fn connected(
    server: &TestServer,
    protocols: &[&[u8]],
    identity: Option<&Identity>,
) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    connected_from(server, "127.0.0.1", protocols, identity).await
}

/// The same, from an address of loopback.
async fn connected_from(
    server: &TestServer,
    source: &str,
    protocols: &[&[u8]],
    identity: Option<&Identity>,
) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = server.authority.certificate_pem().as_bytes();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let builder =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
    let mut config = match identity {
        Some(identity) => {
            let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
    let stream = socket.connect(server.server.address().unwrap()).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// A connection costs its client nothing and the server a descriptor: nobody keeps one without asking for something.
#[tokio::test]
async fn a_connection_on_which_nothing_is_asked_is_closed() {
    let server = start(Some("127.0.0.1:0".parse().unwrap())).await;
    // The preface of HTTP/2 and empty SETTINGS.
    let preface: &'static [u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let asked: &'static [u8] = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
    /// What it is called, the protocols that are offered, what is sent, and after how many seconds it is closed.
    type Case = (&'static str, &'static [&'static [u8]], &'static [u8], u64);
    let cases: [Case; 5] = [
        ("nothing", &[], b"", 32),
        ("nothing of HTTP/2", &[b"h2"], b"", 32),
        ("no request of HTTP/2", &[b"h2"], preface, 32),
        ("half a request", &[b"http/1.1"], b"GET /livez HTTP/1.1\r\nhost:", 32),
        ("nothing more", &[b"http/1.1"], asked, 90),
    ];
    for (name, protocols, sent, limit_seconds) in cases {
        let mut stream = connected(&server, protocols, None).await;
        stream.write_all(sent).await.unwrap();
        stream.flush().await.unwrap();
        tokio::time::pause();
        let start = tokio::time::Instant::now();
        let end = async {
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.map(drop).unwrap_or_default();
        };
        let closed = tokio::time::timeout(Duration::from_secs(600), end).await;
        let elapsed = start.elapsed();
        tokio::time::resume();
        assert!(closed.is_ok(), "{name} keeps a connection");
        assert!(elapsed <= Duration::from_secs(limit_seconds + 6), "{name}: {elapsed:?}");
    }
    server.stop().await;
}

/// Asks on one connection, again and again, who somebody is.
enum Sender {
    One(hyper::client::conn::http1::SendRequest<Full<bytes::Bytes>>),
    Two(hyper::client::conn::http2::SendRequest<Full<bytes::Bytes>>),
}

impl Sender {
    async fn new(server: &TestServer, protocol: &'static [u8], identity: &Identity) -> Self {
        let stream = TokioIo::new(connected(server, &[protocol], Some(identity)).await);
        if protocol == b"h2" {
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            server.tasks.spawn("client", async { connection.await.unwrap_or_default() });
            return Self::Two(sender);
        }
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        server.tasks.spawn("client", async { connection.await.unwrap_or_default() });
        Self::One(sender)
    }

    /// The code, and the name if there is one.
    async fn whoami(&mut self, headers: &[(&str, &str)]) -> (u16, String) {
        let mut request =
            http::Request::post("https://127.0.0.1/apis/authentication.k8s.io/v1/selfsubjectreviews")
                .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(bytes::Bytes::from_static(b"{}"))).unwrap();
        let answer = match self {
            Self::One(sender) => sender.send_request(request).await.unwrap(),
            Self::Two(sender) => sender.send_request(request).await.unwrap(),
        };
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let name = body.pointer("/status/userInfo/username").and_then(serde_json::Value::as_str);
        (code, name.unwrap_or_default().to_owned())
    }
}

/// What a certificate proved when a connection was made it proves until its end, and not for as long as the connection is
/// kept; nor before it begins.
#[tokio::test]
async fn a_connection_outlives_no_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let proxies = tempfile::tempdir().unwrap();
    let start = server::now();
    let proxies = Authority::load_or_create(proxies.path(), start).unwrap();
    let clock = Clock::manual(start);
    let configure = |config: &mut apiserver::Config| {
        let authority = proxies.certificate_pem().as_bytes().to_vec();
        config.options.front_proxy = Some(FrontProxy::new(authority));
    };
    let listen = Some("127.0.0.1:0".parse().unwrap());
    let server = start_at(clock.clone(), Random::seeded(1), store, dir, listen, configure).await;
    let issued = |authority: &Authority, name: &str| {
        authority.issue(server.dir.path(), &Subject::client(name, name, "dev"), start).unwrap()
    };
    // One that outlives whoever signed it.
    let ca_end = auth::pki::ends_at(server.authority.certificate_pem()).unwrap();
    let ca_end = jiff::Timestamp::from_second(ca_end).unwrap();
    let late = ca_end - SignedDuration::from_hours(24);
    let late =
        server.authority.issue(server.dir.path(), &Subject::client("late", "late", "dev"), late).unwrap();
    let (jane, proxy) = (issued(&server.authority, "jane"), issued(&proxies, "aggregator"));
    let account = "/api/v1/namespaces/default/serviceaccounts";
    server.call("POST", account, "{metadata: {name: web}}").await;
    let end =
        SignedDuration::from_secs(auth::pki::ends_at(&jane.certificate_pem).unwrap() - start.as_second());
    let begin =
        SignedDuration::from_secs(auth::pki::begins_at(&jane.certificate_pem).unwrap() - start.as_second());
    let second = SignedDuration::from_secs(1);
    let through = [("x-remote-user", "joe")];
    for protocol in [&b"http/1.1"[..], b"h2"] {
        let mut by_late = Sender::new(&server, protocol, &late).await;
        for (at, code) in [(ca_end, 201), (ca_end + second, 401)] {
            clock.set(at);
            assert_eq!(by_late.whoami(&[]).await.0, code, "the authority's end");
        }
        clock.set(start);
        let mut by_jane = Sender::new(&server, protocol, &jane).await;
        let mut by_proxy = Sender::new(&server, protocol, &proxy).await;
        for (after, code) in [
            (SignedDuration::ZERO, 201),
            (end, 201),
            (end + second, 401),
            (end + second * 2, 401),
            (begin - second, 401),
            (begin, 201),
            (end + second, 401),
        ] {
            clock.set(start + after);
            let expect = |name: &str| (code, if code == 201 { name.to_owned() } else { String::new() });
            assert_eq!(by_jane.whoami(&[]).await, expect("jane"), "{after:?}");
            assert_eq!(by_proxy.whoami(&through).await, expect("joe"), "{after:?}");
        }
        let path = format!("{account}/web/token");
        let asked = server.call("POST", &path, "{spec: {expirationSeconds: 3600}}").await;
        assert_eq!(asked.code, 201, "{}", asked.body);
        let token = format!("Bearer {}", asked.body["status"]["token"].as_str().unwrap());
        let found = by_jane.whoami(&[("authorization", &token)]).await;
        assert_eq!(found, (201, "system:serviceaccount:default:web".to_owned()), "a token still counts");
    }
    server.stop().await;
}

/// Asks for its health on a connection; `None` if it is cut.
async fn asked(stream: &mut tokio_rustls::client::TlsStream<tokio::net::TcpStream>) -> Option<Vec<u8>> {
    let mut got = vec![0; 12];
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.ok()?;
    stream.read_exact(&mut got).await.ok()?;
    // All of the answer, so that the next one begins where it is looked for.
    let mut rest = Vec::new();
    while !rest.ends_with(b"\r\n\r\nok") {
        rest.push(stream.read_u8().await.ok()?);
    }
    Some(got)
}

/// Waits until a connection is cut; nothing was asked on it.
async fn is_cut(stream: &mut tokio_rustls::client::TlsStream<tokio::net::TcpStream>) -> bool {
    let end = tokio::time::timeout(Duration::from_secs(20), stream.read_u8());
    end.await.is_ok_and(|read| read.is_err())
}

/// Whoever fills what there is for strangers keeps nobody out, and nobody whom the server knows.
#[tokio::test]
async fn connections_have_shares() {
    let listen = Some("127.0.0.1:0".parse().unwrap());
    let server = start_with(listen, |config| {
        config.options.connections = Some(Limits {
            strangers: Share { all: 6, of_source: 3 },
            known: Share { all: 4, of_source: 2 },
            own: Share { all: 4, of_source: 4 },
            is_loopback_own: false,
        });
    })
    .await;
    let http: &[&[u8]] = &[b"http/1.1"];
    let issued = |name: &str, group: &str| {
        let subject = Subject::client(&name.replace(':', "-"), name, group);
        server.authority.issue(server.dir.path(), &subject, server::now()).unwrap()
    };
    let (jane, node) = (issued("jane", "dev"), issued("system:node:a", "system:nodes"));
    let ok = Some(b"HTTP/1.1 200".to_vec());

    // Those who are known, from the source that is to be crowded: two have the share, the third stays a stranger.
    let mut known = Vec::new();
    for _ in 0..3 {
        let mut stream = connected_from(&server, "127.0.0.2", http, Some(&jane)).await;
        assert_eq!(asked(&mut stream).await, ok);
        known.push(stream);
    }
    let mut crowd = Vec::new();
    for _ in 0..3 {
        crowd.push(connected_from(&server, "127.0.0.2", http, None).await);
    }
    let mut third = known.pop().unwrap();
    assert!(is_cut(&mut third).await, "the oldest stranger of the source gives way");
    let mut own = connected_from(&server, "127.0.0.2", http, Some(&node)).await;
    assert_eq!(asked(&mut own).await, ok, "the newest gets in");
    assert!(is_cut(&mut crowd.remove(0)).await, "in place of the oldest");

    // Other sources have theirs.
    for last in [3, 3, 3, 4] {
        let source = format!("127.0.0.{last}");
        let mut stream = connected_from(&server, &source, http, None).await;
        assert_eq!(asked(&mut stream).await, ok, "{source}");
        crowd.push(stream);
    }
    // All six places are taken: of whoever has most, the oldest goes.
    let mut late = connected_from(&server, "127.0.0.5", http, None).await;
    assert_eq!(asked(&mut late).await, ok);
    assert!(is_cut(&mut crowd[2]).await, "the first of those with three");
    known.push(own);
    for (number, stream) in known.iter_mut().enumerate() {
        assert_eq!(asked(stream).await, ok, "what proved who it is stays: {number}");
    }
    crowd.remove(2);
    crowd.push(late);
    for (number, stream) in crowd.iter_mut().enumerate() {
        assert_eq!(asked(stream).await, ok, "what did not have to give way stays: {number}");
    }
    server.stop().await;
}
