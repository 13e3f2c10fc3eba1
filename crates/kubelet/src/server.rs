//! The kubelet's HTTPS server: logs, exec, attach, port-forward, what the node runs, and what it measures.
//!
//! Whatever somebody's name, the API server is asked whether they may (`access.rs`). There is nothing for nobody, health
//! included.

pub(crate) mod access;
mod cadvisor;
mod checkpoint;
pub(crate) mod cri_streams;
mod csi;
mod exposition;
mod log_file;
mod logs;
mod node_logs;
mod own_metrics;
mod port_forward;
mod query;
mod resource_metrics;
mod streams;
mod summary;
mod upgrade;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base::connections::{Connections, Kept, Limits, Share, Slot, Standing};
use base::health::Checks;
use bytes::Bytes;
use controller::Informer;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::Pod;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::config::ServerConfig;
use crate::inbox::Inboxes;
use crate::kubelet::Kubelet;
use crate::kubelet::static_pods::StaticPods;
use crate::machine::Machine;
use crate::metrics::{Count, Level, Measure};
use access::{Access, Certified};
use query::Query;

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may wait for a request, the first one too, and how long a request's head may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);

/// How many connections there may be. Certificates that were let pass, such as the API server's, do not share with tokens;
/// loopback is everybody's on the host.
const LIMITS: Limits = Limits {
    strangers: Share { all: 512, of_source: 32 },
    known: Share { all: 256, of_source: 128 },
    own: Share { all: 1024, of_source: 1024 },
    is_loopback_own: false,
};

/// An answer's body.
pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

/// What the handlers look at.
pub(crate) struct Server {
    pub(crate) context: Arc<Kubelet>,
    pub(crate) pods: Informer<Pod>,
    pub(crate) inboxes: Inboxes,
    pub(crate) statics: watch::Receiver<Arc<StaticPods>>,
    access: Access,
    /// CPUs and bytes of memory.
    machine: Arc<Machine>,
}

/// A failure as the API server expects it: a code and a text.
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) String);

impl Refusal {
    fn answer(self) -> Response<Body> {
        text(self.0, self.1)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, message.into())
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, message.into())
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, message.into())
    }
}

/// Accepts connections from all listeners, which share what connections there may be.
pub(crate) fn start(server: &Arc<Server>, listeners: Vec<TcpListener>, config: &ServerConfig) {
    let (acceptor, connections) = (TlsAcceptor::from(config.tls.clone()), Connections::new(LIMITS));
    for listener in listeners {
        let (acceptor, connections) = (acceptor.clone(), connections.clone());
        server.context.tasks.spawn("kubelet server", serve(server.clone(), listener, acceptor, connections));
    }
}

/// Accepts connections for ever.
async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    connections: Arc<Connections>,
) {
    loop {
        let (stream, address) = base::listen::accepted("kubelet", || listener.accept()).await;
        let slot = connections.take(address.ip());
        let (server, acceptor) = (server.clone(), acceptor.clone());
        server.context.tasks.clone().spawn("kubelet connection", async move {
            let ended = tokio::select! {
                ended = connection(server, acceptor, stream, Arc::clone(&slot)) => ended,
                () = slot.gives_way() => Err(ConnectionError::GaveWay),
            };
            if let Err(error) = ended {
                tracing::debug!(%error, %address, "a connection to the kubelet ended");
            }
        });
    }
}

/// Why a connection has ended before its time.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("it gave way to another")]
    GaveWay,
    #[error("the handshake took too long")]
    Handshake,
    #[error(transparent)]
    Network(#[from] std::io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

async fn connection(
    server: Arc<Server>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    slot: Arc<Slot>,
) -> Result<(), ConnectionError> {
    stream.set_nodelay(true)?;
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
    let stream = handshake.map_err(|_late| ConnectionError::Handshake)??;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certified = certificate.and_then(|certificate| access::of_certificate(certificate));
    // A session that goes on after its request keeps the slot.
    let stream = Kept::new(stream, Arc::clone(&slot));
    let client = Arc::new((certified, slot));
    let service = service_fn(move |request| {
        let (server, client) = (server.clone(), client.clone());
        async move {
            let metrics = server.context.metrics.clone();
            let labels = own_metrics::request_labels(request.method(), request.uri().path());
            metrics.count(Count::HttpRequests, &labels);
            metrics.step(Level::HttpInFlight, &labels, 1.0);
            let start = std::time::Instant::now();
            let answer = match pass(&server, &client, &request).await {
                Ok(()) => route(&server, request).await.unwrap_or_else(Refusal::answer),
                Err(refusal) => closing(refusal.answer()),
            };
            metrics.measure(Measure::Http, &labels, start.elapsed());
            metrics.step(Level::HttpInFlight, &labels, -1.0);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    Ok(builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await?)
}

/// Whether the request may be answered.
async fn pass(
    server: &Server,
    (certified, slot): &(Option<Certified>, Arc<Slot>),
    request: &Request<Incoming>,
) -> Result<(), Refusal> {
    let now = server.context.clock.now();
    // A connection may outlive the certificate that it began with.
    let certified = certified.as_ref().filter(|certified| certified.is_valid(now)).map(|one| &one.user);
    access::check(&server.access, &server.context, certified, request).await?;
    slot.prove(if certified.is_some() { Standing::Own } else { Standing::Known });
    Ok(())
}

/// Whoever was refused does not keep the connection.
fn closing(mut answer: Response<Body>) -> Response<Body> {
    answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    answer
}

async fn route(server: &Arc<Server>, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["healthz", rest @ ..] => healthz(server, &rest.join("/"), request.uri().query()),
        ["csi"] => csi::call(server, request).await,
        ["pods"] => Ok(json(summary::pods(server))),
        ["runningpods"] => summary::running_pods(server).await.map(json),
        ["logs", ..] if !server.context.config.shows_logs => Err(disabled("logs")),
        ["logs", ..] => node_logs::answer(&path).await,
        ["debug", "pprof", ..] => Err(disabled("profiling")),
        ["debug", "flags", "v"] => Err(disabled("flags")),
        ["configz"] => Ok(json(serde_json::json!({"kubeletconfig": server.context.config.configz}))),
        ["metrics"] => Ok(measured(base::metrics::CONTENT_TYPE, own_metrics::render(server).await)),
        ["metrics", "probes"] => {
            Ok(measured(base::metrics::CONTENT_TYPE, server.context.metrics.probes.render()))
        }
        ["metrics", "resource"] => {
            let look = server.context.looks.now(&server.context.resources).await;
            Ok(measured(exposition::CONTENT_TYPE, resource_metrics::render(&look)))
        }
        ["metrics", "cadvisor"] => {
            let look = server.context.looks.deep(&server.context.resources).await;
            let text = cadvisor::render(&look, &server.context.config.version, &server.machine);
            Ok(measured(exposition::CONTENT_TYPE, text))
        }
        ["stats", "summary"] => {
            let query = Query::of(request.uri().query());
            let only = query.get("only_cpu_and_memory") == Some("true");
            Ok(json(summary::stats(server, only).await))
        }
        ["containerLogs", namespace, pod, container] => {
            logs::logs(server, namespace, pod, container, request.uri().query()).await
        }
        ["checkpoint", ..] if request.method() != http::Method::POST => Err(checkpoint::wrong_method()),
        ["checkpoint", namespace, pod, container] => {
            checkpoint::checkpoint(server, namespace, pod, container, request.uri().query()).await
        }
        ["exec", namespace, pod, container] | ["exec", namespace, pod, _, container] => {
            streams::exec(server, (namespace, pod, container), request).await
        }
        ["attach", namespace, pod, container] | ["attach", namespace, pod, _, container] => {
            streams::attach(server, (namespace, pod, container), request).await
        }
        ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
            port_forward::port_forward(server, namespace, pod, request).await
        }
        _ => Err(Refusal::not_found("404 page not found")),
    }
}

/// Ping and the loop are well, or nobody would answer; then the checks of the parts of this process. `rest` names one of
/// all, and what it names else is not there.
fn healthz(server: &Server, rest: &str, query: Option<&str>) -> Result<Response<Body>, Refusal> {
    let own = ["ping", "syncloop"].map(|name| (name.to_owned(), Ok(())));
    let parts = Checks::of(server.context.informers.metrics().registry()).all();
    let all = own.into_iter().chain(parts);
    let is_verbose = Query::of(query).get("verbose").is_some();
    let report = base::health::report("healthz", all, |name| rest.is_empty() || name == rest, is_verbose);
    let (is_well, told) = report.ok_or_else(|| Refusal::not_found("404 page not found"))?;
    Ok(text(if is_well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, told))
}

/// What upstream's kubelet says of a handler that is turned off.
fn disabled(what: &str) -> Refusal {
    Refusal(StatusCode::METHOD_NOT_ALLOWED, format!("{what} endpoint is disabled.\n"))
}

/// A whole text as a body.
pub(crate) fn full(content: impl Into<Bytes>) -> Body {
    Full::new(content.into()).map_err(|never: Infallible| match never {}).boxed()
}

pub(crate) fn text(code: StatusCode, content: String) -> Response<Body> {
    let mut response = Response::new(full(content));
    *response.status_mut() = code;
    let value = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

fn measured(content_type: &'static str, content: String) -> Response<Body> {
    let mut response = Response::new(full(content));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

fn json(content: serde_json::Value) -> Response<Body> {
    let mut response = Response::new(full(content.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

impl Server {
    pub(crate) fn new(
        context: Arc<Kubelet>,
        pods: Informer<Pod>,
        statics: watch::Receiver<Arc<StaticPods>>,
        (machine, inboxes): (Arc<Machine>, Inboxes),
    ) -> Self {
        Self { context, pods, statics, access: Access::new(access::LIVES), machine, inboxes }
    }

    fn idle_timeout(&self) -> Duration {
        self.context.config.streaming_connection_idle_timeout
    }

    /// The Pod of that name.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Result<Arc<Pod>, Refusal> {
        let key = format!("{namespace}/{name}");
        // Not its mirror: what runs has the uid of the static Pod.
        let found = self.statics.borrow().get(&key).cloned().or_else(|| self.pods.get(&key));
        found.ok_or_else(|| Refusal::not_found(format!("pod \"{name}\" not found")))
    }
}
