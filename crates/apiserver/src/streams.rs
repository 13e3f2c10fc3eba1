//! Streams to kubelets: logs, exec, attach, port-forward.
//!
//! A log is a response that is copied, the others are HTTP upgrades (WebSocket or SPDY) whose two ends are joined.
//! The kubelet is found by the Node object, its certificate is checked, and it sees the API server's.

mod container;
mod log_options;

use http::header::UPGRADE;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use serde_json::{Value, json};

use crate::admission::unstored;
use crate::api::Api;
use crate::backend::kubelet::kubelet;
use crate::backend::{self, Outgoing};
use crate::request::Authorized;
use crate::request_info::{Query, ResourceInfo, Verb};
use crate::respond::{Body, websocket};
use crate::status::{Error, Result};
use crate::tree::text;
use crate::write::change::current;

/// Calls of the storage driver that every Node of knarr has, for whoever makes its volumes: they need no right to the rest
/// of a kubelet. Upstream has no such path, and discovery does not name it.
const STORAGE: &str = "csi";
/// How much of a kubelet's error text is shown, as upstream.
const ERROR_BYTES_MAX: usize = 50_000;

/// Whether a request is passed on to somebody else.
pub(crate) fn is_stream(resource: &ResourceInfo) -> bool {
    let subresource = resource.subresource.as_str();
    resource.group.is_empty()
        && match resource.resource.as_str() {
            "pods" => matches!(subresource, "log" | "exec" | "attach" | "portforward" | "proxy"),
            "services" => subresource == "proxy",
            "nodes" => matches!(subresource, "proxy" | STORAGE),
            _ => false,
        }
}

/// Passes a request on to whoever answers it.
///
/// # Errors
/// 400 when the Pod is on no node or the container is not named, 503 when a proxied backend is not reached, 500 when
/// a kubelet is not.
pub(crate) async fn stream(
    api: &Api,
    request: &Authorized,
    client: OnUpgrade,
    body: Body,
) -> Result<Response<Body>> {
    let subresource = request.resource.subresource.as_str();
    if subresource == STORAGE {
        return storage(api, request, client, body).await;
    }
    let known = request.kind.row().subresource(subresource).ok_or_else(Error::unknown_path)?;
    if !known.verbs.contains(&request.resource.verb.as_str()) {
        return Err(Error::method_not_allowed());
    }
    match subresource {
        "proxy" => {
            let asked = unstored::connect(api, request, || proxy_options(request)).await?;
            if asked.is_some_and(|left| left != proxy_options(request)) {
                // Upstream would go to the other path; here it has been authorised already.
                return Err(Error::internal("admission webhooks may not change where a proxy leads"));
            }
            crate::proxy::proxy(api, request, client, body).await
        }
        "log" => log(api, request, client).await,
        _ => session(api, request, client).await,
    }
}

/// exec, attach, port-forward: the kubelet's answer passes as it is, so that clients show its own words.
async fn session(api: &Api, request: &Authorized, client: OnUpgrade) -> Result<Response<Body>> {
    if request.resource.verb == Verb::Get {
        // Reading does not include running commands, whatever the method that a WebSocket needs (KEP-4006).
        let mut info = request.info.clone();
        if let Some(resource) = &mut info.resource {
            resource.verb = Verb::Create;
        }
        api.security.authorize(request.user(), &info).await?;
    }
    let asked = unstored::connect(api, request, || session_options(request)).await?;
    let query = asked.map_or_else(|| request.info.query.clone(), |options| query_of_options(&options));
    let pod = request.kind.value(&*current(api, request, &request.key()).await?);
    let node = text(&pod, "/spec/nodeName");
    if node.is_empty() {
        let name = &request.resource.name;
        return Err(Error::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let path = session_path(request, &query, &pod)?;
    if request.headers.get(http::header::UPGRADE).is_none() {
        return Err(Error::bad_request("Upgrade request required"));
    }
    let response = send(api, request, &request.headers, node, path).await?;
    Ok(backend::answer(api, response, client))
}

async fn storage(api: &Api, request: &Authorized, client: OnUpgrade, body: Body) -> Result<Response<Body>> {
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

async fn log(api: &Api, request: &Authorized, client: OnUpgrade) -> Result<Response<Body>> {
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
        true => send(api, request, &without_upgrade(&request.headers), node, path).await?,
        false => send(api, request, &request.headers, node, path).await?,
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

fn without_upgrade(headers: &HeaderMap) -> HeaderMap {
    let is_kept = |name: &HeaderName| name != UPGRADE && !name.as_str().starts_with("sec-websocket-");
    let kept = headers.iter().filter(|(name, _)| is_kept(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A kubelet's refusal in the API's form.
async fn refused(request: &Authorized, response: Response<Incoming>) -> Error {
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

/// The options of a session as an object: `PodExecOptions`, `PodAttachOptions`, `PodPortForwardOptions`.
fn session_options(request: &Authorized) -> Value {
    let query = &request.info.query;
    let kind = match request.resource.subresource.as_str() {
        "portforward" => {
            let ports: Vec<i64> = query
                .all("ports")
                .flat_map(|all| all.split(','))
                .filter_map(|port| port.parse().ok())
                .collect();
            let mut options = json!({"kind": "PodPortForwardOptions", "apiVersion": "v1"});
            if !ports.is_empty() {
                options["ports"] = json!(ports);
            }
            return options;
        }
        "attach" => "PodAttachOptions",
        _ => "PodExecOptions",
    };
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(flag) {
            options[flag] = true.into();
        }
    }
    if let Some(container) = query.get("container") {
        options["container"] = container.into();
    }
    if kind == "PodExecOptions" {
        options["command"] = query.all("command").collect();
    }
    options
}

/// The query that such options come from.
fn query_of_options(options: &Value) -> Query {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in options.as_object().into_iter().flatten() {
        match value {
            Value::Bool(true) => drop(query.append_pair(name, "true")),
            Value::String(value) => drop(query.append_pair(name, value)),
            Value::Array(all) => all.iter().for_each(|one| {
                query.append_pair(name, one.as_str().unwrap_or(&one.to_string()));
            }),
            _ => {}
        }
    }
    Query::parse(&query.finish())
}

/// The options of a proxy as an object.
fn proxy_options(request: &Authorized) -> Value {
    let kind = match request.resource.resource.as_str() {
        "services" => "ServiceProxyOptions",
        "nodes" => "NodeProxyOptions",
        _ => "PodProxyOptions",
    };
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    if !request.resource.rest.is_empty() {
        options["path"] = request.resource.rest.as_str().into();
    }
    options
}

/// The kubelet's path for a session.
fn session_path(request: &Authorized, query: &Query, pod: &Value) -> Result<String> {
    let (namespace, name) = (&request.resource.namespace, &request.resource.name);
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

async fn send(
    api: &Api,
    request: &Authorized,
    headers: &HeaderMap,
    node: &str,
    path: String,
) -> Result<Response<Incoming>> {
    let kubelet = kubelet(api, node).await?;
    let outgoing = Outgoing {
        method: request.info.method.clone(),
        path,
        headers: backend::request_headers(headers),
        body: backend::empty(),
    };
    let sent = backend::send(api, &kubelet, outgoing).await;
    sent.map_err(|failure| Error::internal(format!("error dialing backend: {failure}")))
}
