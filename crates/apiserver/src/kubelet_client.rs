//! Streams to kubelets: logs, exec, attach, port-forward, node proxy.
//!
//! Bytes pass through as they are: a log is a response that is copied, the others are HTTP upgrades (WebSocket or
//! SPDY) whose two ends are joined. The kubelet is found by the Node object and sees the API server's certificate.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{HeaderMap, HeaderName, Method, Request as HttpRequest, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::metadata::Metadata;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tracing::{debug, warn};

use crate::admission::text;
use crate::api::{Api, Config};
use crate::kinds::Kind;
use crate::request_info::ResourceInfo;
use crate::respond::Body;
use crate::status::{Error, Result};
use crate::verbs::{Request, current};

const KUBELET_PORT: u64 = 10250;
/// How much of a kubelet's error text is shown.
const ERROR_BYTES_MAX: usize = 8 * 1024;
/// What SPDY and WebSocket handshakes need of the client's headers, and the answer's.
const PASSED_HEADERS: [&str; 9] = [
    "connection",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
    "sec-websocket-accept",
    "x-stream-protocol-version",
    "content-type",
];

/// The TLS side of connections to kubelets.
pub struct KubeletClient {
    connector: Option<TlsConnector>,
}

impl KubeletClient {
    /// A client with the configured certificate; without one, streams answer 503.
    pub fn new(config: &Config) -> Self {
        let connector = tls(config).map_err(|failure| warn!(failure, "no streams to kubelets")).ok();
        Self { connector }
    }
}

fn tls(config: &Config) -> std::result::Result<TlsConnector, String> {
    let text = |failure: &dyn std::fmt::Display| failure.to_string();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&config.kubelet_ca_pem) {
        let certificate = certificate.map_err(|failure| text(&failure))?;
        roots.add(certificate).map_err(|failure| text(&failure))?;
    }
    let chain = CertificateDer::pem_slice_iter(&config.kubelet_client_certificate_pem)
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|failure| text(&failure))?;
    let key =
        PrivateKeyDer::from_pem_slice(&config.kubelet_client_key_pem).map_err(|failure| text(&failure))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|failure| text(&failure))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|failure| text(&failure))?;
    Ok(TlsConnector::from(Arc::new(client)))
}

/// Whether a request is passed on to a kubelet.
pub fn is_stream(resource: &ResourceInfo) -> bool {
    let is_core = resource.group.is_empty();
    match resource.resource.as_str() {
        "pods" => {
            is_core && matches!(resource.subresource.as_str(), "log" | "exec" | "attach" | "portforward")
        }
        "nodes" => is_core && resource.subresource == "proxy",
        _ => false,
    }
}

/// Subresources that need a stream but were reached without one.
///
/// # Errors
/// Always.
pub async fn proxy(_api: &Api, _request: &Request) -> Result<Response<Body>> {
    Err(Error::method_not_allowed())
}

/// Passes a request on to the kubelet in charge.
///
/// # Errors
/// 400 when the Pod is on no node or the container is not named, 502-like failures as 500.
pub async fn stream(api: &Api, request: &Request, client: OnUpgrade) -> Result<Response<Body>> {
    let subresource = request.resource.subresource.as_str();
    let known = request.kind.row().subresource(subresource).ok_or_else(Error::unknown_path)?;
    if !known.verbs.contains(&request.resource.verb.as_str()) {
        return Err(Error::method_not_allowed());
    }
    let object = request.kind.value(&*current(api, request, &request.key()).await?);
    let (node, path) = if request.resource.resource == "nodes" {
        (
            request.resource.name.clone(),
            format!("/{}{}", request.resource.rest, query_of(&request.info.raw_query)),
        )
    } else {
        let node = text(&object, "/spec/nodeName").to_owned();
        if node.is_empty() {
            let name = &request.resource.name;
            return Err(Error::bad_request(format!("pod {name} does not have a host assigned")));
        }
        (node, pod_path(request, &object)?)
    };
    let (host, port) = address(api, &node)?;
    let response = send(api, request, &host, port, &path).await?;
    answer(api, request, response, client).await
}

fn query_of(query: &str) -> String {
    if query.is_empty() { String::new() } else { format!("?{query}") }
}

/// The kubelet's path for a Pod's stream.
fn pod_path(request: &Request, pod: &Value) -> Result<String> {
    let (namespace, name) = (&request.resource.namespace, &request.resource.name);
    let query = &request.info.raw_query;
    if request.resource.subresource == "portforward" {
        return Ok(format!("/portForward/{namespace}/{name}{}", query_of(query)));
    }
    let container = container(pod, name, request.info.query.get("container"))?;
    let endpoint = match request.resource.subresource.as_str() {
        "log" => return Ok(format!("/containerLogs/{namespace}/{name}/{container}{}", query_of(query))),
        endpoint => endpoint,
    };
    let mut options = form_urlencoded::Serializer::new(String::new());
    for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if request.info.query.flag(ours) {
            options.append_pair(theirs, "1");
        }
    }
    for word in request.info.query.all("command") {
        options.append_pair("command", word);
    }
    Ok(format!("/{endpoint}/{namespace}/{name}/{container}{}", query_of(&options.finish())))
}

/// The container that is meant.
fn container(pod: &Value, pod_name: &str, wanted: Option<&str>) -> Result<String> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|c| c.get("name")?.as_str()).map(str::to_owned).collect()
    };
    let (main, init, ephemeral) =
        (names("/spec/containers"), names("/spec/initContainers"), names("/spec/ephemeralContainers"));
    if let Some(wanted) = wanted {
        let is_known = [&main, &init, &ephemeral].iter().any(|list| list.iter().any(|name| name == wanted));
        return if is_known {
            Ok(wanted.to_owned())
        } else {
            Err(Error::bad_request(format!("container {wanted} is not valid for pod {pod_name}")))
        };
    }
    if let Some(name) = Metadata::of(pod).annotation("kubectl.kubernetes.io/default-container")
        && main.iter().any(|container| container == name)
    {
        return Ok(name.to_owned());
    }
    match main.as_slice() {
        [one] => Ok(one.clone()),
        _ => {
            let mut text = format!(
                "a container name must be specified for pod {pod_name}, choose one of: [{}]",
                main.join(" ")
            );
            if !init.is_empty() {
                text.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(Error::bad_request(text))
        }
    }
}

/// Where a node's kubelet listens.
fn address(api: &Api, node: &str) -> Result<(String, u16)> {
    let kind = Kind::find("", "v1", "nodes").ok_or_else(Error::unknown_path)?;
    let object =
        kind.cache(api).get(&kind.key("", node)).ok_or_else(|| Error::not_found(kind.subject(), node))?;
    let object = kind.value(&object);
    let addresses =
        object.pointer("/status/addresses").and_then(Value::as_array).cloned().unwrap_or_default();
    let of_type = |wanted: &str| {
        addresses
            .iter()
            .find(|a| a.get("type").is_some_and(|t| t == wanted))?
            .get("address")?
            .as_str()
            .map(str::to_owned)
    };
    let host = of_type("InternalIP").or_else(|| of_type("ExternalIP")).or_else(|| of_type("Hostname"));
    let port = object.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    let port = u16::try_from(port.unwrap_or(KUBELET_PORT)).unwrap_or(10250);
    host.map(|host| (host, port)).ok_or_else(|| Error::internal(format!("node {node} has no address")))
}

/// A TLS connection to a host by its name or address.
pub(crate) async fn dial(
    connector: &TlsConnector,
    host: &str,
    port: u16,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
    connector.connect(name, TcpStream::connect((host, port)).await?).await
}

async fn send(
    api: &Api,
    request: &Request,
    host: &str,
    port: u16,
    path: &str,
) -> Result<Response<hyper::body::Incoming>> {
    let failed =
        |failure: &dyn std::fmt::Display| Error::internal(format!("error dialing backend: {failure}"));
    let connector =
        api.kubelets.connector.as_ref().ok_or_else(|| Error::unavailable("no streams to kubelets"))?;
    let stream = dial(connector, host, port).await.map_err(|failure| failed(&failure))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|failure| failed(&failure))?;
    api.tasks.spawn("kubelet-connection", async move {
        if let Err(failure) = connection.with_upgrades().await {
            debug!(%failure, "connection to a kubelet ended");
        }
    });
    let mut builder = HttpRequest::builder().method(method(request)).uri(path);
    if let Some(headers) = builder.headers_mut() {
        pass_headers(&request.headers, headers);
        if let Ok(value) = format!("{host}:{port}").parse() {
            headers.insert(HOST, value);
        }
    }
    let outgoing = builder.body(Empty::<Bytes>::new()).map_err(|failure| failed(&failure))?;
    sender.send_request(outgoing).await.map_err(|failure| failed(&failure))
}

fn method(request: &Request) -> Method {
    request.info.method.clone()
}

fn pass_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for name in PASSED_HEADERS {
        let name = HeaderName::from_static(name);
        for value in from.get_all(&name) {
            to.append(name.clone(), value.clone());
        }
    }
}

async fn answer(
    api: &Api,
    request: &Request,
    mut response: Response<hyper::body::Incoming>,
    client: OnUpgrade,
) -> Result<Response<Body>> {
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let kubelet = hyper::upgrade::on(&mut response);
        api.tasks.spawn("stream", async move {
            match tokio::try_join!(client, kubelet) {
                Ok((client, kubelet)) => {
                    let (mut client, mut kubelet) = (TokioIo::new(client), TokioIo::new(kubelet));
                    if let Err(failure) = tokio::io::copy_bidirectional(&mut client, &mut kubelet).await {
                        debug!(%failure, "stream ended");
                    }
                }
                Err(failure) => warn!(%failure, "upgrade failed"),
            }
        });
        let mut switched = Response::new(crate::respond::full(Bytes::new()));
        *switched.status_mut() = status;
        pass_headers(response.headers(), switched.headers_mut());
        return Ok(switched);
    }
    if status.is_client_error() || status.is_server_error() {
        let limited = http_body_util::Limited::new(response.into_body(), ERROR_BYTES_MAX);
        let bytes = limited.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        return Err(match status {
            StatusCode::NOT_FOUND => {
                let mut error = Error::not_found(request.subject(), &request.resource.name);
                error.message = text;
                error
            }
            status if status.is_client_error() => Error::bad_request(text),
            _ => Error::internal(text),
        });
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(CONNECTION);
    parts.headers.remove(UPGRADE);
    parts.headers.remove(http::header::TRANSFER_ENCODING);
    Ok(Response::from_parts(parts, body.map_err(Into::into).boxed_unsync()))
}
