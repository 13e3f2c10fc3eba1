//! A group-version that a server elsewhere serves: requests are passed on to it as they are, with who sends them.
//!
//! Who it is was found out here, and whether they may; the other server believes our front proxy's certificate and decides
//! for itself again. What a client says of itself in such headers never gets there. Neither requests nor answers are kept
//! in memory.
//!
//! Source: `proxyHandler` of `k8s.io/kube-aggregator/pkg/apiserver`, `SetAuthProxyHeaders` of client-go.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use auth::{MASTERS, UserInfo};
use futures::future::BoxFuture;
use http::header::{CONNECTION, LOCATION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;

use super::link::{Held, Link};
use super::registration::{Registration, Target};
use crate::api::Api;
use crate::backend;
use crate::body::while_body::WhileBody;
use crate::body::{self, Body};
use crate::catalogue::remote_discovery::RemoteDiscovery;
use crate::catalogue::{Asked, Delegate, Told};
use crate::connection_error::ConnectionError;
use crate::kinds::Kind;
use crate::status::{Error, Result};

/// How long discovery of a group-version may take. Source: `aggregatedDiscoveryTimeout`.
const DISCOVERY_MAX: Duration = Duration::from_secs(5);

/// A group-version that is served by passing requests on.
pub struct Remote {
    /// Which has this, in turn, in its catalogue.
    api: Weak<Api>,
    registration: Registration,
    link: Arc<Link>,
    discovery: Arc<RemoteDiscovery>,
}

impl Remote {
    /// Of an APIService with a Service, what is known of whoever is behind it.
    pub fn new(
        api: Weak<Api>,
        registration: Registration,
        link: Arc<Link>,
        discovery: Arc<RemoteDiscovery>,
    ) -> Self {
        Self { api, registration, link, discovery }
    }

    async fn pass(
        &self,
        mut http: Request<Body>,
        (path, query): (&str, &str),
        user: &UserInfo,
    ) -> Result<Response<Body>> {
        if !is_plain(path) {
            return Err(Error::unknown_path());
        }
        if !self.registration.is_available {
            return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n"));
        }
        let api = self.api.upgrade().ok_or_else(|| Error::unavailable("the server is stopping"))?;
        if let Some(fault) = self.link.fault() {
            return Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("{fault}\n")));
        }
        let to = match self.link.target().service.resolve(&api).await {
            Ok(to) => to,
            Err(failure) => {
                tracing::warn!(api = self.registration.name, failure = failure.message, "not resolved");
                return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n"));
            }
        };
        let is_upgrade = is_upgrade(http.headers());
        let client = is_upgrade.then(|| hyper::upgrade::on(&mut http));
        let request = outgoing(http, path, query, user)?;
        let Some(client) = client else {
            let (response, held) = match self.link.send(&api, &to, request).await {
                Ok(answered) => answered,
                Err(failure) => return Ok(unreachable(&failure)),
            };
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(unreachable("it switched protocols, for which nobody asked"));
            }
            if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
                let text = "the backend attempted to redirect this request, which is not permitted";
                return Ok(plain(StatusCode::BAD_GATEWAY, text));
            }
            let (head, body) = backend::plain_answer(response).into_parts();
            return Ok(Response::from_parts(head, WhileBody::new(body, held).boxed_unsync()));
        };
        let response = match self.link.switch(&api, &to, request).await {
            Ok(response) => response,
            Err(failure) => return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{failure}\n"))),
        };
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS && status.as_u16() < 400 {
            let text = format!("invalid upgrade response: status code {}\n", status.as_u16());
            return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, &text));
        }
        Ok(backend::answer(&api, response, client))
    }
}

impl Delegate for Remote {
    fn group_version(&self) -> (&str, &str) {
        (&self.registration.group, &self.registration.version)
    }

    fn kinds(&self) -> &[Kind] {
        &[]
    }

    fn openapi(&self) -> Vec<u8> {
        Vec::new()
    }

    fn discovery(&self) -> Option<&RemoteDiscovery> {
        Some(&self.discovery)
    }

    fn tell(&self, told: Told) -> BoxFuture<'_, Result<Response<Body>>> {
        Box::pin(async move {
            let Told { http, info, permit } = told;
            // Other hashes than the one of the moment are for this server to judge.
            let query = if info.path.starts_with("/openapi/") { "" } else { &info.raw_query };
            let passed = self.pass(http, (&info.path, query), permit.user());
            match tokio::time::timeout(DISCOVERY_MAX, passed).await {
                Ok(answer) => answer,
                Err(_) => Ok(unreachable(ConnectionError::Deadline)),
            }
        })
    }

    fn serve(&self, asked: Asked) -> BoxFuture<'_, Result<Response<Body>>> {
        Box::pin(async move {
            let resource = &asked.resource;
            let names = [&resource.name, &resource.namespace, &resource.resource];
            if names.into_iter().any(|name| name.contains('/')) {
                return Err(Error::unknown_path());
            }
            let mut http = asked.http;
            forwarded(http.headers_mut(), asked.origin);
            let path = (asked.info.path.as_str(), asked.info.raw_query.as_str());
            self.pass(http, path, asked.permit.user()).await
        })
    }
}

/// Whom the server elsewhere sees when this one asks on its own account.
pub(super) fn aggregator() -> UserInfo {
    UserInfo {
        name: "system:kube-aggregator".to_owned(),
        groups: vec![MASTERS.to_owned()],
        ..UserInfo::default()
    }
}

/// A request of the server itself, for what a server elsewhere tells of itself. Source: the users that upstream's
/// discovery, availability and OpenAPI controllers are.
pub fn own_request(path: &str, accept: &str, user: &UserInfo) -> Result<Request<Body>> {
    let mut request = Request::new(backend::empty());
    *request.uri_mut() = path.parse().map_err(Error::internal)?;
    let accept = HeaderValue::from_str(accept).map_err(Error::internal)?;
    request.headers_mut().insert(http::header::ACCEPT, accept);
    identify(request.headers_mut(), user)?;
    Ok(request)
}

/// Sends a request of the server itself to `target`, and reads the whole answer.
///
/// # Errors
/// What went wrong, also when the answer is too long.
pub async fn ask(
    api: &Api,
    link: &Link,
    request: Request<Body>,
    bytes_max: usize,
) -> std::result::Result<Response<bytes::Bytes>, ConnectionError> {
    let Target { service, .. } = link.target();
    let to = service.resolve(api).await?;
    let (response, _held): (_, Held) = link.send(api, &to, request).await?;
    let (head, body) = response.into_parts();
    let whole = http_body_util::Limited::new(body, bytes_max).collect().await;
    let whole = whole.map_err(ConnectionError::Body)?.to_bytes();
    Ok(Response::from_parts(head, whole))
}

/// The request as it is passed on.
fn outgoing(http: Request<Body>, path: &str, query: &str, user: &UserInfo) -> Result<Request<Body>> {
    let (head, body) = http.into_parts();
    let uri = match query {
        "" => path.to_owned(),
        query => format!("{path}?{query}"),
    };
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    *request.uri_mut() = uri.parse().map_err(|_| Error::unknown_path())?;
    *request.headers_mut() = backend::request_headers(&head.headers);
    if !is_upgrade(&head.headers) {
        // Of the client's connection only, and not to be said on one that many share.
        request.headers_mut().remove(UPGRADE);
        request.headers_mut().remove(CONNECTION);
    }
    identify(request.headers_mut(), user)?;
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        // Nobody reads it, and some servers refuse it.
        request.headers_mut().remove(http::header::CONTENT_LENGTH);
        *request.body_mut() = backend::empty();
    }
    Ok(request)
}

/// Says who asks, in the headers that the ConfigMap `extension-apiserver-authentication` names.
///
/// # Errors
/// 500 for a name that no header can have: who it is must never be said in part.
fn identify(headers: &mut HeaderMap, user: &UserInfo) -> Result<()> {
    let value = |text: &str| {
        let cannot = |_| Error::internal("the user cannot be named in a header");
        HeaderValue::from_bytes(text.as_bytes()).map_err(cannot)
    };
    headers.insert(HeaderName::from_static("x-remote-user"), value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert(HeaderName::from_static("x-remote-uid"), value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append(HeaderName::from_static("x-remote-group"), value(group)?);
    }
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", escaped(key));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(Error::internal)?;
        for one in values {
            headers.append(name.clone(), value(one)?);
        }
    }
    Ok(())
}

/// Says where a client is, behind what it says itself. Source: `AppendForwardedForHeader`.
fn forwarded(headers: &mut HeaderMap, origin: Option<IpAddr>) {
    const NAME: HeaderName = HeaderName::from_static("x-forwarded-for");
    let Some(origin) = origin else { return };
    let said = headers.get_all(&NAME).into_iter().filter_map(|value| value.to_str().ok());
    let all: Vec<String> = said.map(str::to_owned).chain([origin.to_string()]).collect();
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(NAME, value);
    }
}

/// A key as part of a header's name: what no name has, and the percent sign, in hexadecimal.
fn escaped(key: &str) -> String {
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        match is_kept(byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Whether a path means the same to whoever reads it: none of its segments leads upwards, however it is written.
fn is_plain(path: &str) -> bool {
    let lower = path.to_ascii_lowercase().replace("%2e", ".");
    let mut segments =
        lower.split(['/', '\\']).flat_map(|part| part.split("%2f")).flat_map(|part| part.split("%5c"));
    !segments.any(|segment| matches!(segment, "." | ".."))
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    let names = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    let is_named =
        names.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("upgrade"));
    is_named && headers.contains_key(UPGRADE)
}

fn unreachable(why: impl std::fmt::Display) -> Response<Body> {
    plain(StatusCode::SERVICE_UNAVAILABLE, &format!("error trying to reach service: {why}\n"))
}

/// What upstream says as text, where everybody else says a Status.
fn plain(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = body::text(code, "text/plain; charset=utf-8", text.to_owned());
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_upwards_is_not_passed_on() {
        for (path, expect) in [
            ("/apis/example.com/v1/namespaces/a/things/b", true),
            ("/apis/example.com/v1/things/a.b..c", true),
            ("/apis/example.com/v1/things/system%3Aa", true),
            ("/apis/example.com/v1/things/a/proxy/x%2Fy", true),
            ("/apis/example.com/v1/things/..", false),
            ("/apis/example.com/v1/things/../../../api/v1/secrets", false),
            ("/apis/example.com/v1/things/%2e%2e/secrets", false),
            ("/apis/example.com/v1/things/.%2E/secrets", false),
            ("/apis/example.com/v1/./things", false),
            ("/apis/example.com/v1/things/%2e%2e%2f%2e%2e%2fapi", false),
            ("/apis/example.com/v1/things/a/proxy/..%2Fx", false),
            ("/apis/example.com/v1/things/%2e%2e%5capi", false),
        ] {
            assert_eq!(is_plain(path), expect, "{path}");
        }
    }

    #[test]
    fn the_headers_say_all_of_who_asks_or_nothing() {
        let user = UserInfo {
            name: "jane".into(),
            uid: "7".into(),
            groups: vec!["dev".into(), "ops".into()],
            extra: [("example.com/Scope%".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into(),
        };
        let mut headers = HeaderMap::new();
        identify(&mut headers, &user).unwrap();
        let shown: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        assert_eq!(
            shown,
            [
                "x-remote-user=jane",
                "x-remote-uid=7",
                "x-remote-group=dev",
                "x-remote-group=ops",
                "x-remote-extra-example.com%2fscope%25=a",
                "x-remote-extra-example.com%2fscope%25=b",
            ]
        );
        for bad in ["a\nx-remote-group: system:masters", "a\0", "a\r"] {
            let forged = UserInfo { groups: vec![bad.to_owned()], ..user.clone() };
            assert!(identify(&mut HeaderMap::new(), &forged).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_of_the_clients_connection_stays_there() {
        let sent = |headers: &[(&str, &str)]| {
            let mut http = Request::new(backend::empty());
            for (name, value) in headers {
                http.headers_mut()
                    .append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            let request = outgoing(http, "/apis", "a=b", &UserInfo::default()).unwrap();
            assert_eq!(request.uri(), "/apis?a=b");
            let names = request.headers().keys().map(|name| name.as_str().to_owned());
            names.filter(|name| name != "x-remote-user").collect::<Vec<_>>()
        };
        assert_eq!(sent(&[("upgrade", "h2c"), ("connection", "keep-alive")]), Vec::<String>::new());
        let mut both = sent(&[("upgrade", "websocket"), ("connection", "Upgrade, x-hop"), ("x-hop", "1")]);
        both.sort();
        assert_eq!(both, ["connection", "upgrade"]);
        assert_eq!(
            sent(&[("content-length", "0"), ("impersonate-user", "root"), ("x-remote-uid", "0")]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn both_headers_make_an_upgrade() {
        for (pairs, expect) in [
            (&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")][..], true),
            (&[("upgrade", "websocket")], false),
            (&[("connection", "Upgrade")], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            assert_eq!(is_upgrade(&headers), expect, "{pairs:?}");
        }
    }
}
