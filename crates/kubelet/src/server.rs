//! The kubelet's HTTPS server: logs, exec, attach, port-forward, and what the node runs, for the API server alone.
//!
//! Every connection must show a client certificate that the configured CA signed and whose common name is
//! allowed; there is nothing for anyone else, health included.

pub(crate) mod cri_streams;
mod csi;
mod log_file;
mod logs;
mod port_forward;
mod query;
mod streams;
mod summary;
mod upgrade;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use controller::Informer;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use k8s_openapi::api::core::v1::Pod;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::ServerConfig;
use crate::context::Context;

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 1024;
/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// An answer's body.
pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

/// What the handlers look at.
pub(crate) struct Server {
    pub(crate) context: Arc<Context>,
    pub(crate) pods: Informer<Pod>,
}

/// A failure as the API server expects it: a code and a text.
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) String);

impl Refusal {
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

/// Accepts connections for ever.
pub(crate) async fn serve(server: Arc<Server>, listener: TcpListener, config: ServerConfig) {
    let acceptor = TlsAcceptor::from(config.tls.clone());
    let config = Arc::new(config);
    let limit = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = limit.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection to the kubelet was not accepted");
                // Out of descriptors: others must close theirs first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (server, acceptor, config) = (server.clone(), acceptor.clone(), config.clone());
        server.context.tasks.clone().spawn("kubelet connection", async move {
            if let Err(error) = connection(server, acceptor, &config, stream).await {
                tracing::debug!(error, "a connection to the kubelet ended");
            }
            drop(permit);
        });
    }
}

async fn connection(
    server: Arc<Server>,
    acceptor: TlsAcceptor,
    config: &ServerConfig,
    stream: TcpStream,
) -> Result<(), String> {
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
    let stream = handshake.map_err(|_| "the handshake took too long")?.map_err(|e| e.to_string())?;
    let user = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).and_then(|c| common_name(c));
    let is_allowed = user.as_ref().is_some_and(|user| config.allowed_users.contains(user));
    let service = service_fn(move |request| {
        let (server, user) = (server.clone(), user.clone());
        async move {
            let answer = match is_allowed {
                true => route(&server, request).await,
                false => Err(forbidden(user.as_deref())),
            };
            Ok::<_, Infallible>(answer.unwrap_or_else(|Refusal(code, message)| text(code, message)))
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await.map_err(|e| e.to_string())
}

fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).map(str::to_owned)
}

fn forbidden(user: Option<&str>) -> Refusal {
    match user {
        Some(user) => Refusal(StatusCode::FORBIDDEN, format!("Forbidden (user={user})")),
        None => Refusal(StatusCode::UNAUTHORIZED, "Unauthorized".into()),
    }
}

async fn route(server: &Arc<Server>, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["healthz"] => Ok(text(StatusCode::OK, "ok".into())),
        ["csi"] => csi::call(server, request).await,
        ["pods"] => Ok(json(summary::pods(server))),
        ["metrics"] => Ok(text(StatusCode::OK, summary::metrics(server))),
        ["stats", "summary"] => Ok(json(summary::stats(server).await)),
        ["containerLogs", namespace, pod, container] => {
            logs::logs(server, (namespace, pod, container), request.uri().query()).await
        }
        ["exec", namespace, pod, container] | ["exec", namespace, pod, _, container] => {
            streams::exec(server, (namespace, pod, container), request).await
        }
        ["attach", namespace, pod, container] | ["attach", namespace, pod, _, container] => {
            streams::attach(server, (namespace, pod, container), request).await
        }
        ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
            port_forward::port_forward(server, (namespace, pod), request).await
        }
        _ => Err(Refusal::not_found("404 page not found")),
    }
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

fn json(content: serde_json::Value) -> Response<Body> {
    let mut response = Response::new(full(content.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

impl Server {
    fn idle_timeout(&self) -> Duration {
        self.context.config.streaming_connection_idle_timeout
    }

    /// The Pod of that name.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Result<Arc<Pod>, Refusal> {
        let found = self.pods.get(&format!("{namespace}/{name}"));
        found.ok_or_else(|| Refusal::not_found(format!("pod \"{name}\" not found")))
    }
}
