//! A server on the embedded store, driven in-process.

#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of it")]

use std::net::SocketAddr;
use std::sync::Arc;

use apiserver::{ApiServer, ApiService, Config, PortRange};
use auth::UserInfo;
use auth::pki::{Authority, Subject, service_account_key};
use base::{Clock, Random, Tasks};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use store::Store;
use store::embedded::{Embedded, Options};
use tower::ServiceExt;

/// A running server and the folder it lives in.
pub struct TestServer {
    pub server: ApiServer,
    pub tasks: Tasks,
    pub authority: Authority,
    pub dir: tempfile::TempDir,
}

/// An answer: status and parsed body.
pub struct Answer {
    pub code: StatusCode,
    pub body: Value,
}

pub fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// Starts a server; `bind` makes it listen too.
pub async fn start(bind: Option<SocketAddr>) -> TestServer {
    start_with(bind, |_| {}).await
}

/// Starts a server that is configured in some way.
pub async fn start_with(bind: Option<SocketAddr>, configure: impl FnOnce(&mut Config)) -> TestServer {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    start_on(store, dir, bind, configure).await
}

/// Starts a server that takes as many requests as come, with the account that Pods need; and its store.
pub async fn start_without_flow_control() -> (Arc<dyn Store>, TestServer) {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let server = start_on(Arc::clone(&store), dir, None, |config| config.options.is_fair = false).await;
    let made =
        server.call("POST", "/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: default}}");
    assert_eq!(made.await.code, StatusCode::CREATED);
    (store, server)
}

/// Starts a server on a store that may have others; `dir` is for its keys.
pub async fn start_on(
    store: Arc<dyn Store>,
    dir: tempfile::TempDir,
    bind: Option<SocketAddr>,
    configure: impl FnOnce(&mut Config),
) -> TestServer {
    start_at(Clock::system(), Random::seeded(1), store, dir, bind, configure).await
}

/// The same, with a time and a chance of its own.
pub async fn start_at(
    clock: Clock,
    random: Random,
    store: Arc<dyn Store>,
    dir: tempfile::TempDir,
    bind: Option<SocketAddr>,
    configure: impl FnOnce(&mut Config),
) -> TestServer {
    let authority = Authority::load_or_create(dir.path(), now()).unwrap();
    let serving = Subject::api_server("cluster.local", vec!["127.0.0.1".parse().unwrap()]);
    let serving = authority.issue(dir.path(), &serving, now()).unwrap();
    let kubelet = Subject::client("kubelet-client", "kube-apiserver-kubelet-client", "system:masters");
    let kubelet = authority.issue(dir.path(), &kubelet, now()).unwrap();
    let ca = authority.certificate_pem().as_bytes().to_vec();
    let mut config = Config {
        bind,
        certificate_pem: serving.certificate_pem.into_bytes(),
        key_pem: serving.key_pem.into_bytes(),
        client_ca_pem: ca.clone(),
        root_ca_pem: ca.clone(),
        service_account_key: service_account_key(dir.path()).unwrap(),
        service_account_issuer: "https://kubernetes.default.svc.cluster.local".into(),
        service_account_audiences: vec!["https://kubernetes.default.svc.cluster.local".into()],
        kubelet_client_certificate_pem: kubelet.certificate_pem.into_bytes(),
        kubelet_client_key_pem: kubelet.key_pem.into_bytes(),
        kubelet_ca_pem: ca,
        advertise_address: "10.0.0.1:6443".parse().unwrap(),
        service_cidrs: "10.43.0.0/16".parse().unwrap(),
        node_ports: PortRange { first: 30000, last: 32767 },
        requests_in_flight_max: 400,
        // Kubelets and Pods of tests are here.
        options: apiserver::Options { dials_also: vec!["127.0.0.1".parse().unwrap()], ..Default::default() },
    };
    configure(&mut config);
    let tasks = Tasks::new();
    let server = apiserver::start(config, store, tasks.clone(), clock, random).await.unwrap();
    server.ready().await;
    TestServer { server, tasks, authority, dir }
}

pub fn admin() -> UserInfo {
    UserInfo {
        name: "admin".into(),
        groups: vec!["system:masters".into(), "system:authenticated".into()],
        ..UserInfo::default()
    }
}

/// Sends one request as `user`; the body may be YAML or JSON.
pub async fn send(
    service: ApiService,
    user: Option<UserInfo>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> http::Response<apiserver::respond::Body> {
    let mut builder = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let mut request = builder.body(Full::new(Bytes::copy_from_slice(body.as_ref()))).unwrap();
    if let Some(user) = user {
        request.extensions_mut().insert(user);
    }
    service.oneshot(request).await.unwrap()
}

impl TestServer {
    /// Sends a request as administrator.
    pub async fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        let content_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/yaml",
        };
        self.call_with(method, path, &[("content-type", content_type)], body).await
    }

    /// Sends a request with headers as administrator.
    pub async fn call_with(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.call_bytes(method, path, headers, body.as_bytes()).await
    }

    /// The same with a body that is no text.
    pub async fn call_bytes(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let response = send(self.server.service(), Some(admin()), method, path, headers, body).await;
        let code = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer { code, body }
    }

    /// Stops everything.
    pub async fn stop(self) {
        self.tasks.stop_and_wait().await;
    }
}
