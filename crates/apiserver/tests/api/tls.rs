//! Over TLS on loopback: client certificates, RBAC, HTTP/1.1 and HTTP/2 by a real client.

use std::sync::Arc;
use std::time::Duration;

use crate::server::{self, TestServer, start};
use auth::pki::{Subject, kubeconfig};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
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

/// Connects to the server's port over TLS, offering `protocols`.
async fn connected(
    server: &TestServer,
    protocols: &[&[u8]],
) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = server.authority.certificate_pem().as_bytes();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let mut config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
    let stream = tokio::net::TcpStream::connect(server.server.address().unwrap()).await.unwrap();
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
        let mut stream = connected(&server, protocols).await;
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
