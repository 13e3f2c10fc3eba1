//! An API server elsewhere: TLS that wants our front proxy's certificate, discovery, OpenAPI, objects, a watch, a stream. It
//! can be told to misbehave.

#![allow(unreachable_pub, reason = "a part of one test file")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use auth::pki::{Authority, Identity, Subject};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::server::now;

pub const GROUP: &str = "wardle.example.com";
pub const ROOT: &str = "/apis/wardle.example.com/v1";
/// Longer than anything that is kept in memory of an answer.
pub const BIG_BYTES: usize = 48 << 20;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What it does instead of what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Well,
    /// Every answer but that of the group-version alone is absent, as on servers of old.
    Old,
    /// More than anybody reads.
    Huge,
    /// A byte now and then, without end.
    Drip,
    NoJson,
    Redirect,
    /// Another document than asked for.
    Lie,
    /// Deeper than anybody reads.
    Deep,
    Hang,
    Error,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub uri: String,
    pub headers: HeaderMap,
    pub certificates: usize,
    pub version: http::Version,
}

#[derive(Clone)]
pub struct State {
    pub manner: Arc<Mutex<Manner>>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    /// Connections that were made.
    pub connections: Arc<Mutex<usize>>,
}

pub struct Extension {
    pub address: SocketAddr,
    pub state: State,
    task: JoinHandle<()>,
}

/// Who signs what here.
pub struct Authorities {
    pub dir: tempfile::TempDir,
    pub serving: Authority,
    pub proxies: Authority,
}

impl Authorities {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| Authority::named(dir.path(), name, now()).unwrap();
        let (serving, proxies) = (make("extension-ca"), make("front-proxy-ca"));
        Self { dir, serving, proxies }
    }

    pub fn proxy_client(&self) -> Identity {
        let subject = Subject::user("front-proxy-client", "front-proxy-client");
        self.proxies.issue(self.dir.path(), &subject, now()).unwrap()
    }

    fn acceptor(&self, protocols: &[&[u8]]) -> TlsAcceptor {
        let subject = Subject::server("extension", "ext", vec!["ext.default.svc".to_owned()], vec![]);
        let identity = self.serving.issue(self.dir.path(), &subject, now()).unwrap();
        let pem = identity.certificate_pem.as_bytes();
        let chain = CertificateDer::pem_slice_iter(pem).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.proxies.certificate_pem().as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&provider),
        );
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

impl Extension {
    pub async fn start(authorities: &Authorities) -> Self {
        Self::start_at(authorities, "127.0.0.1:0".parse().unwrap(), &[b"h2", b"http/1.1"]).await
    }

    pub async fn start_at(authorities: &Authorities, address: SocketAddr, protocols: &[&[u8]]) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = authorities.acceptor(protocols);
        let state = State {
            manner: Arc::new(Mutex::new(Manner::Well)),
            seen: Arc::default(),
            connections: Arc::default(),
        };
        let task = tokio::spawn(accept(listener, acceptor, state.clone()));
        Self { address, state, task }
    }

    pub fn behave(&self, manner: Manner) {
        *self.state.manner.lock().unwrap() = manner;
    }

    /// The last request for a path.
    pub fn last(&self, path: &str) -> Seen {
        let seen = self.state.seen.lock().unwrap();
        let found = seen.iter().rfind(|one| one.uri.split('?').next().unwrap().ends_with(path));
        found.unwrap_or_else(|| panic!("{path} was not asked for: {seen:?}")).clone()
    }

    pub fn connections(&self) -> usize {
        *self.state.connections.lock().unwrap()
    }

    /// Ends it, with all of its connections.
    pub async fn stop(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: State) {
    let mut open = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, state) = (acceptor.clone(), state.clone());
        open.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            *state.connections.lock().unwrap() += 1;
            let certificates = stream.get_ref().1.peer_certificates().map_or(0, <[_]>::len);
            let service = hyper::service::service_fn(move |request| {
                let state = state.clone();
                async move { Ok::<_, Infallible>(answer(state, certificates, request).await) }
            });
            let builder = Builder::new(TokioExecutor::new());
            builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await.ok();
        });
    }
}

fn whole(code: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Response<Body> {
    let response = Response::builder().status(code).header("content-type", content_type);
    response.body(Full::new(body.into()).boxed_unsync()).unwrap()
}

fn said(value: &Value) -> Response<Body> {
    whole(StatusCode::OK, "application/json", value.to_string())
}

fn streamed(pieces: impl futures::Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let body = StreamBody::new(pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
    Response::builder().header("content-type", "application/json").body(body.boxed_unsync()).unwrap()
}

/// What it says instead of what it should, if it is to.
async fn misbehaved(manner: Manner, path: &str) -> Option<Response<Body>> {
    let is_version = path == ROOT;
    Some(match manner {
        Manner::Well => return None,
        Manner::Old if is_version || path.starts_with(&format!("{ROOT}/")) => return None,
        Manner::Old => whole(StatusCode::NOT_FOUND, "text/plain", "404 page not found"),
        // It stays available.
        _ if is_version => said(&list()),
        Manner::Huge => {
            let piece = Bytes::from(vec![b' '; 1 << 20]);
            as_discovery(streamed(futures::stream::repeat(piece).take(256)))
        }
        Manner::Drip => {
            let endless = futures::stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Some((Bytes::from_static(b" "), ()))
            });
            as_discovery(streamed(endless))
        }
        Manner::NoJson => as_discovery(whole(StatusCode::OK, "text/html", "<html>{")),
        Manner::Redirect => moved(StatusCode::FOUND),
        Manner::Lie => as_discovery(said(&json!({"kind": "Status", "items": [[[]]], "paths": 7}))),
        Manner::Deep => {
            let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
            as_discovery(whole(StatusCode::OK, "application/json", deep))
        }
        Manner::Hang => std::future::pending().await,
        Manner::Error => whole(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", "out of order"),
    })
}

fn moved(code: StatusCode) -> Response<Body> {
    let mut response = whole(code, "text/plain", "");
    response.headers_mut().insert("location", "https://192.0.2.77/stolen".parse().unwrap());
    response
}

/// Echoes a word, on what was HTTP before.
fn echo(request: &mut Request<Incoming>) -> Response<Body> {
    let client = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(client.await.unwrap());
        let mut word = [0; 4];
        stream.read_exact(&mut word).await.unwrap();
        stream.write_all(b"echo ").await.unwrap();
        stream.write_all(&word).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let mut response = whole(StatusCode::SWITCHING_PROTOCOLS, "text/plain", "");
    response.headers_mut().insert("connection", "Upgrade".parse().unwrap());
    response.headers_mut().insert("upgrade", "echo".parse().unwrap());
    response
}

async fn answer(state: State, certificates: usize, mut request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    state.seen.lock().unwrap().push(Seen {
        method: request.method().clone(),
        uri: request.uri().path_and_query().unwrap().to_string(),
        headers: request.headers().clone(),
        certificates,
        version: request.version(),
    });
    let manner = *state.manner.lock().unwrap();
    if let Some(response) = misbehaved(manner, &path).await {
        return response;
    }
    let known = request.headers().get("if-none-match").map(|value| value.to_str().unwrap().to_owned());
    match (request.method().as_str(), path.strip_prefix(ROOT).unwrap_or(&path)) {
        (_, "/apis") if known.as_deref() == Some("\"one\"") => {
            whole(StatusCode::NOT_MODIFIED, "text/plain", "")
        }
        (_, "/apis") => as_discovery(said(&groups())),
        (_, "") => said(&list()),
        (_, "/openapi/v3") => said(&json!({"paths": {
            "apis/wardle.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/wardle.example.com/v1?hash=ABC123"},
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=FORGED"},
        }})),
        (_, "/openapi/v3/apis/wardle.example.com/v1") => {
            said(&json!({"openapi": "3.0.0", "info": {"title": "wardle"}, "paths": {}}))
        }
        (_, "/openapi/v2") => said(&second()),
        ("GET", "/namespaces/default/flunders") => match request.uri().query().unwrap_or_default() {
            query if query.contains("watch=") => streamed(events()),
            _ => said(&json!({"kind": "FlunderList", "apiVersion": "wardle.example.com/v1", "items": []})),
        },
        ("POST", "/namespaces/default/flunders") => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            whole(StatusCode::CREATED, "application/json", body)
        }
        ("GET", "/namespaces/default/flunders/big") => {
            let piece = Bytes::from(vec![b'x'; 1 << 20]);
            streamed(futures::stream::repeat(piece).take(BIG_BYTES >> 20))
        }
        ("GET", "/namespaces/default/flunders/moved") => moved(StatusCode::TEMPORARY_REDIRECT),
        ("GET", "/namespaces/default/flunders/a/exec") if request.headers().contains_key("upgrade") => {
            echo(&mut request)
        }
        _ => whole(
            StatusCode::NOT_FOUND,
            "application/json",
            json!({"kind": "Status", "reason": "NotFound"}).to_string(),
        ),
    }
}

/// An event at once, and another one when somebody has had the time to see the first.
fn events() -> impl futures::Stream<Item = Bytes> + Send + 'static {
    futures::stream::unfold(0, |count| async move {
        match count {
            0 => Some((Bytes::from_static(b"{\"type\":\"ADDED\"}\n"), 1)),
            1 => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Some((Bytes::from_static(b"{\"type\":\"DELETED\"}\n"), 2))
            }
            _ => std::future::pending().await,
        }
    })
}

fn as_discovery(mut response: Response<Body>) -> Response<Body> {
    let ty = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    response.headers_mut().insert("content-type", ty.parse().unwrap());
    response.headers_mut().insert("etag", "\"one\"".parse().unwrap());
    response
}

fn groups() -> Value {
    let resource = json!({
        "resource": "flunders",
        "responseKind": {"group": GROUP, "version": "v1", "kind": "Flunder"},
        "scope": "Namespaced",
        "singularResource": "flunder",
        "verbs": ["get", "list", "watch", "create"],
        "shortNames": ["fl"],
    });
    let forged = json!({"resource": "forged", "scope": "Cluster", "verbs": ["get"]});
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": [
            {"metadata": {"name": GROUP}, "versions": [{"version": "v1", "resources": [resource]}]},
            // What is not its own is nobody's.
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [forged]}]},
        ],
    })
}

fn list() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1", "resources": [
        {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": ["get", "list"]},
    ]})
}

fn second() -> Value {
    let reference = |name: &str| json!({"$ref": format!("#/definitions/{name}")});
    let of =
        |name: &str| json!({"get": {"responses": {"200": {"description": "OK", "schema": reference(name)}}}});
    let definitions: BTreeMap<&str, Value> = [
        (
            "com.example.Flunder",
            json!({"type": "object", "properties": {"pod": reference("io.k8s.api.core.v1.Pod")}}),
        ),
        ("io.k8s.api.core.v1.Pod", json!({"type": "object", "description": "Another Pod."})),
    ]
    .into();
    json!({
        "swagger": "2.0",
        "info": {"title": "wardle"},
        "paths": {
            "/apis/wardle.example.com/v1/flunders": of("com.example.Flunder"),
            "/api/v1/pods": of("io.k8s.api.core.v1.Pod"),
        },
        "definitions": definitions,
    })
}
