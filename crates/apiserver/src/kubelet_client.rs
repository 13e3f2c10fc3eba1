//! Streams to kubelets: logs, exec, attach, port-forward.
//!
//! A log is a response that is copied, the others are HTTP upgrades (WebSocket or SPDY) whose two ends are joined.
//! The kubelet is found by the Node object, its certificate is checked, and it sees the API server's.

mod container;
mod log_options;

use std::sync::Arc;

use http::header::UPGRADE;
use http::{HeaderName, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio_rustls::TlsConnector;
use tracing::warn;

use crate::api::{Api, Config};
use crate::backend::{self, Backend, Outgoing};
use crate::dial::Destination;
use crate::request_info::{ResourceInfo, Verb};
use crate::respond::{Body, websocket};
use crate::status::{Error, Result};
use crate::tree::text;
use crate::verbs::{Request, current};

const KUBELET_PORT: u16 = 10250;
/// Calls of the storage driver that every Node of knarr has, for whoever makes its volumes: they need no right to the rest
/// of a kubelet. Upstream has no such path, and discovery does not name it.
const STORAGE: &str = "csi";
/// How much of a kubelet's error text is shown, as upstream.
const ERROR_BYTES_MAX: usize = 50_000;

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

impl KubeletClient {
    /// The TLS to kubelets.
    ///
    /// # Errors
    /// 503 without a usable certificate.
    pub fn tls(&self) -> Result<TlsConnector> {
        self.connector.clone().ok_or_else(|| Error::unavailable("no streams to kubelets"))
    }
}

/// Whether a request is passed on to somebody else.
pub fn is_stream(resource: &ResourceInfo) -> bool {
    let subresource = resource.subresource.as_str();
    resource.group.is_empty()
        && match resource.resource.as_str() {
            "pods" => matches!(subresource, "log" | "exec" | "attach" | "portforward" | "proxy"),
            "services" => subresource == "proxy",
            "nodes" => matches!(subresource, "proxy" | STORAGE),
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

/// Passes a request on to whoever answers it.
///
/// # Errors
/// 400 when the Pod is on no node or the container is not named, 503 when a proxied backend is not reached, 500 when
/// a kubelet is not.
pub async fn stream(api: &Api, request: &Request, client: OnUpgrade, body: Body) -> Result<Response<Body>> {
    let subresource = request.resource.subresource.as_str();
    if subresource == STORAGE {
        return storage(api, request, client, body).await;
    }
    let known = request.kind.row().subresource(subresource).ok_or_else(Error::unknown_path)?;
    if !known.verbs.contains(&request.resource.verb.as_str()) {
        return Err(Error::method_not_allowed());
    }
    match subresource {
        "proxy" => crate::proxy::proxy(api, request, client, body).await,
        "log" => log(api, request, client).await,
        _ => session(api, request, client).await,
    }
}

/// exec, attach, port-forward: the kubelet's answer passes as it is, so that clients show its own words.
async fn session(api: &Api, request: &Request, client: OnUpgrade) -> Result<Response<Body>> {
    if request.resource.verb == Verb::Get {
        // Reading does not include running commands, whatever the method that a WebSocket needs (KEP-4006).
        let mut info = request.info.clone();
        if let Some(resource) = &mut info.resource {
            resource.verb = Verb::Create;
        }
        api.security.authorize(&request.user, &info).await?;
    }
    let pod = request.kind.value(&*current(api, request, &request.key()).await?);
    let node = text(&pod, "/spec/nodeName");
    if node.is_empty() {
        let name = &request.resource.name;
        return Err(Error::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let path = session_path(request, &pod)?;
    if request.headers.get(http::header::UPGRADE).is_none() {
        return Err(Error::bad_request("Upgrade request required"));
    }
    let response = send(api, request, node, path).await?;
    Ok(backend::answer(api, response, client))
}

async fn storage(api: &Api, request: &Request, client: OnUpgrade, body: Body) -> Result<Response<Body>> {
    if request.resource.verb != Verb::Create {
        return Err(Error::method_not_allowed());
    }
    let outgoing = Outgoing {
        method: request.info.method.clone(),
        path: "/csi".to_owned(),
        headers: backend::request_headers(&request.headers),
        body,
    };
    let sent = backend::send(api, &kubelet(api, &request.resource.name).await?, outgoing).await;
    let response = sent.map_err(|failure| Error::internal(format!("error dialing backend: {failure}")))?;
    Ok(backend::answer(api, response, client))
}

async fn log(api: &Api, request: &Request, client: OnUpgrade) -> Result<Response<Body>> {
    log_options::validate(&request.info.query, &request.resource.name)?;
    let pod = request.kind.value(&*current(api, request, &request.key()).await?);
    let (namespace, name) = (&request.resource.namespace, &request.resource.name);
    let container = container::choose(&pod, name, request.info.query.get("container"))?;
    let node = text(&pod, "/spec/nodeName");
    if node.is_empty() {
        // Upstream's answer for a Pod that has no log because it is nowhere yet.
        let mut response = Response::new(backend::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let query = query_of(&request.info.raw_query);
    let path = format!("/containerLogs/{namespace}/{name}/{container}{query}");
    let is_socket = websocket::is_wanted(&request.headers);
    let response = match is_socket {
        // The kubelet gives the log as ever; what is between the client and here is between them.
        true => send(api, &without_upgrade(request), node, path).await?,
        false => send(api, request, node, path).await?,
    };
    if response.status().is_client_error() || response.status().is_server_error() {
        return Err(refused(request, response).await);
    }
    if is_socket {
        let body = response.into_body().map_err(Into::into).boxed_unsync();
        return websocket::log(&api.serving, &request.headers, body, client);
    }
    Ok(backend::answer(api, response, client))
}

fn without_upgrade(request: &Request) -> Request {
    let mut plain = request.clone();
    let is_kept = |name: &HeaderName| name != UPGRADE && !name.as_str().starts_with("sec-websocket-");
    plain.headers = request
        .headers
        .iter()
        .filter(|(name, _)| is_kept(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    plain
}

/// A kubelet's refusal in the API's form.
async fn refused(request: &Request, response: Response<Incoming>) -> Error {
    let status = response.status();
    let limited = http_body_util::Limited::new(response.into_body(), ERROR_BYTES_MAX);
    let bytes = limited.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match status {
        StatusCode::BAD_REQUEST => Error::bad_request(text),
        StatusCode::NOT_FOUND => {
            let mut error = Error::not_found(request.subject(), &request.resource.name);
            error.message = format!("the server could not find the requested resource ({text})");
            error
        }
        _ => Error::internal(text),
    }
}

fn query_of(query: &str) -> String {
    if query.is_empty() { String::new() } else { format!("?{query}") }
}

/// The kubelet's path for a session.
fn session_path(request: &Request, pod: &Value) -> Result<String> {
    let (namespace, name) = (&request.resource.namespace, &request.resource.name);
    let query = &request.info.query;
    let mut options = form_urlencoded::Serializer::new(String::new());
    if request.resource.subresource == "portforward" {
        for port in query.all("ports") {
            options.append_pair("port", port);
        }
        return Ok(format!("/portForward/{namespace}/{name}{}", query_of(&options.finish())));
    }
    let container = container::choose(pod, name, query.get("container"))?;
    for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if query.flag(ours) {
            options.append_pair(theirs, "1");
        }
    }
    for word in query.all("command") {
        options.append_pair("command", word);
    }
    let endpoint = &request.resource.subresource;
    Ok(format!("/{endpoint}/{namespace}/{name}/{container}{}", query_of(&options.finish())))
}

async fn send(api: &Api, request: &Request, node: &str, path: String) -> Result<Response<Incoming>> {
    let kubelet = kubelet(api, node).await?;
    let outgoing = Outgoing {
        method: request.info.method.clone(),
        path,
        headers: backend::request_headers(&request.headers),
        body: backend::empty(),
    };
    let sent = backend::send(api, &kubelet, outgoing).await;
    sent.map_err(|failure| Error::internal(format!("error dialing backend: {failure}")))
}

/// Where a node's kubelet listens, and how it is spoken to.
///
/// # Errors
/// As [`address`]; 400 if the server does not connect to that, 503 without a certificate of our own.
pub async fn kubelet(api: &Api, node: &str) -> Result<Backend> {
    let (host, port) = address(api, node)?;
    let to = Destination::find(api, &host, port).await?;
    Ok(Backend { to, tls: Some(api.kubelets.tls()?) })
}

/// What a Node says of where its kubelet listens: host and port.
///
/// # Errors
/// 404 without the Node, 500 if it has no address.
pub fn address(api: &Api, node: &str) -> Result<(String, u16)> {
    let kind = api.kind("", "v1", "nodes").ok_or_else(Error::unknown_path)?;
    let object =
        kind.cache().get(&kind.key("", node)).ok_or_else(|| Error::not_found(kind.subject(), node))?;
    let object = kind.value(&object);
    let addresses = object.pointer("/status/addresses").and_then(Value::as_array);
    let addresses: Vec<&Value> = addresses.into_iter().flatten().collect();
    let of_type = |wanted: &str| {
        let found = addresses.iter().find(|a| a.get("type").is_some_and(|t| t == wanted))?;
        found.get("address")?.as_str().map(str::to_owned)
    };
    let host = of_type("InternalIP").or_else(|| of_type("ExternalIP")).or_else(|| of_type("Hostname"));
    let host = host.ok_or_else(|| Error::internal(format!("node {node} has no address")))?;
    let port = object.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(KUBELET_PORT);
    Ok((host, port))
}
