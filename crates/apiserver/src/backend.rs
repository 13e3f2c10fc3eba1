//! One request passed on to a backend: a kubelet, a Pod, a node. Bytes pass through as they are.
//!
//! A connection serves one request. When both sides switch protocols, their two ends are joined. What a client said
//! to prove who it is stays here.

pub mod kubelet;

use base::relay::relay;
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Method, Request as HttpRequest, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tracing::debug;
use tunnel::Connection;

use crate::api::Api;
use crate::body::finish::PassedOn;
use crate::connection_error::ConnectionError;
use crate::dial::Destination;
use crate::request::CAUSE_HEADER;
use crate::respond::{Body, full};
use crate::security::credentials;

/// Headers of one connection, not of the request. Source: RFC 9110 section 7.6.1.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What this server itself says with a response, and what would let other sites' pages read it. Source for the latter:
/// `corsRemovingTransport`.
const OURS: [&str; 7] = [
    "audit-id",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// The destination of a request.
#[derive(Clone)]
pub struct Backend {
    /// The destination.
    pub to: Destination,
    /// The TLS of the connection; `None` is plain HTTP.
    pub tls: Option<TlsConnector>,
}

/// TLS that takes any certificate: what upstream does for Pods and Services behind a proxy, whose certificates nobody
/// in the cluster vouches for. Never for kubelets.
pub fn unverified() -> Result<TlsConnector, tls::Error> {
    tls::connector(tls::Trust::Anybody, None, &[])
}

/// The request to a backend.
pub struct Outgoing {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Headers, as [`request_headers`] leaves them.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

/// Sends a request and answers with the response's head; the body follows as it comes.
///
/// # Errors
/// What went wrong, in Go's words where it has some: clients look for `connection refused`.
pub async fn send(
    api: &Api,
    backend: &Backend,
    outgoing: Outgoing,
) -> Result<Response<Incoming>, ConnectionError> {
    let authority = backend.to.authority();
    let stream = connect(&backend.to).await?;
    let Outgoing { method, path, mut headers, body } = outgoing;
    if let Ok(value) = authority.parse() {
        headers.insert(HOST, value);
    }
    let mut request = HttpRequest::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(http::Error::from)?;
    *request.headers_mut() = headers;
    match &backend.tls {
        None => exchange(api, stream, request).await,
        Some(connector) => {
            let name = ServerName::try_from(backend.to.server_name().to_owned())?;
            exchange(api, connector.connect(name, stream).await?, request).await
        }
    }
}

/// Connects to a destination.
pub(crate) async fn connect(to: &Destination) -> Result<Connection, ConnectionError> {
    let connected = to.connect().await;
    connected.map_err(|source| ConnectionError::Connect { authority: to.authority(), source })
}

/// Sends a request on a connection that is for it alone.
///
/// # Errors
/// As [`send`].
pub(crate) async fn exchange<S>(
    api: &Api,
    stream: S,
    request: HttpRequest<Body>,
) -> Result<Response<Incoming>, ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Ok(http1::send(stream, request, &api.serving, "backend").await?)
}

/// A client's headers as a backend may see them.
pub fn request_headers(client: &HeaderMap) -> HeaderMap {
    let mut headers = passed(client);
    // They are gone already; but a request that comes here by another way must not lead around it.
    credentials::clear(&mut headers, None);
    headers.remove(CAUSE_HEADER);
    headers
}

/// A backend's headers as a client may see them.
fn response_headers(backend: &HeaderMap) -> HeaderMap {
    let mut headers = passed(backend);
    for name in OURS {
        headers.remove(name);
    }
    headers
}

/// Headers that are not about one connection; an upgrade is about both.
fn passed(from: &HeaderMap) -> HeaderMap {
    let mut headers = from.clone();
    let upgrade = from.get(http::header::UPGRADE).cloned();
    let named = from.get_all(http::header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    for name in named.flat_map(|value| value.split(',')) {
        headers.remove(name.trim());
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    if let Some(upgrade) = upgrade {
        headers.insert(http::header::UPGRADE, upgrade);
        headers.insert(http::header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
    }
    headers
}

/// An empty body.
pub fn empty() -> Body {
    Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync()
}

/// A backend's response as the client's, where nobody wanted to switch protocols.
pub fn plain_answer(response: Response<Incoming>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    parts.headers = response_headers(&parts.headers);
    parts.headers.remove(http::header::UPGRADE);
    parts.headers.remove(http::header::CONNECTION);
    parts.extensions.insert(PassedOn);
    Response::from_parts(parts, body.map_err(Into::into).boxed_unsync())
}

/// A backend's response as the client's. If the backend has switched protocols, so does the client.
pub fn answer(api: &Api, mut response: Response<Incoming>, client: OnUpgrade) -> Response<Body> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return plain_answer(response);
    }
    let headers = response_headers(response.headers());
    let backend = hyper::upgrade::on(&mut response);
    api.serving.spawn("stream", async move {
        match tokio::try_join!(client, backend) {
            Ok((client, backend)) => {
                relay(TokioIo::new(client), TokioIo::new(backend)).await;
            }
            Err(failure) => debug!(%failure, "a stream was not switched"),
        }
    });
    let mut switched = Response::new(full(Bytes::new()));
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switched.headers_mut() = headers;
    switched
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;

    use super::*;

    #[test]
    fn a_backend_never_sees_who_the_client_claims_to_be() {
        let mut client = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("impersonate-user", "root"),
            ("x-remote-group", "system:masters"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "for this connection only"),
            ("accept", "text/plain"),
        ] {
            client.insert(name, value.parse().unwrap());
        }
        let headers = request_headers(&client);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }

    #[test]
    fn a_backend_does_not_speak_for_the_server() {
        let mut backend = HeaderMap::new();
        for name in OURS.into_iter().chain(["audit-id", "set-cookie", "transfer-encoding"]) {
            backend.append(name, "x".parse().unwrap());
        }
        let headers = response_headers(&backend);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["set-cookie"]);
    }

    #[test]
    fn an_upgrade_passes() {
        let mut client = HeaderMap::new();
        client.insert("connection", "keep-alive, Upgrade".parse().unwrap());
        client.insert("upgrade", "websocket".parse().unwrap());
        let headers = request_headers(&client);
        assert_eq!(headers.get("upgrade").unwrap(), "websocket");
        assert_eq!(headers.get("connection").unwrap(), "Upgrade");
    }
}
