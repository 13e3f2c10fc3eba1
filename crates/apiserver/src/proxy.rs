//! `proxy` below Pods, Services and Nodes: any request, any method, passed on to what listens there.
//!
//! Redirects to the backend's own pages are led back through the proxy.
//! Source: `registry/core/{pod,service,node}`, `apimachinery/pkg/util/proxy` of upstream.

mod html;
mod rewrite;
mod target;

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use hyper::upgrade::OnUpgrade;

use self::rewrite::Rewrite;
use crate::api::Api;
use crate::backend::{self, Outgoing};
use crate::request::Authorized;
use crate::respond::{Body, text};
use crate::status::{Error, Result};

const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Passes a request on.
///
/// # Errors
/// 400 for names and addresses that cannot be proxied to, 503 when nothing answers there.
pub async fn proxy(api: &Api, request: &Authorized, client: OnUpgrade, body: Body) -> Result<Response<Body>> {
    let (prefix, path) = split(request);
    let query = match request.info.raw_query.as_str() {
        "" => String::new(),
        query => format!("?{query}"),
    };
    let is_upgrade = request.headers.contains_key(UPGRADE);
    let backend = target::find(api, request).await?;
    let is_read = matches!(request.info.method, Method::GET | Method::HEAD);
    if path.is_empty() && is_read && !is_upgrade {
        return Ok(moved(&format!("{}/{query}", request.info.path)));
    }
    let mut headers = backend::request_headers(&request.headers);
    if let Ok(uri) = HeaderValue::from_str(&request.info.path) {
        headers.insert(FORWARDED_URI, uri);
    }
    if !is_upgrade {
        // Links in pages are rewritten, which needs them as they are.
        headers.remove(ACCEPT_ENCODING);
    }
    let slashed = if path.is_empty() { "/" } else { path };
    let outgoing =
        Outgoing { method: request.info.method.clone(), path: format!("{slashed}{query}"), headers, body };
    let response = backend::send(api, &backend, outgoing).await;
    let response = response
        .map_err(|failure| Error::unavailable(format!("error trying to reach service: {failure}")))?;
    let rewrite = Rewrite {
        prefix: prefix.to_owned(),
        backend: backend.to.authority(),
        host: request.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned(),
    };
    Ok(rewritten(backend::answer(api, response, client), rewrite))
}

/// The path up to and with `proxy`, and what follows.
fn split(request: &Authorized) -> (&str, &str) {
    let path = request.info.path.as_str();
    let segments = if request.resource.namespace.is_empty() { 5 } else { 7 };
    let mut at = 0;
    for _ in 0..segments {
        let start = path[at..].find(|c| c != '/').map_or(path.len(), |start| at + start);
        at = path[start..].find('/').map_or(path.len(), |end| start + end);
    }
    path.split_at(at)
}

/// A directory's page has relative links: its path ends with a slash.
fn moved(location: &str) -> Response<Body> {
    let mut response = text(StatusCode::MOVED_PERMANENTLY, "text/plain", "");
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn rewritten(response: Response<Body>, rewrite: Rewrite) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Some(location) = parts.headers.get(LOCATION).and_then(|location| location.to_str().ok()) {
        if let Ok(location) = HeaderValue::from_str(&rewrite.url(location)) {
            parts.headers.insert(LOCATION, location);
        }
        return Response::from_parts(parts, body);
    }
    if parts.status == StatusCode::SWITCHING_PROTOCOLS || !is_page(&parts.headers) {
        return Response::from_parts(parts, body);
    }
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, html::rewritten(body, rewrite))
}

fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim() == "text/html"
        && !headers.contains_key(CONTENT_ENCODING)
}
