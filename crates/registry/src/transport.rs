//! HTTP to registries: connections by host, proxies, TLS by its settings, redirects, and time limits.
//!
//! A redirect to another host carries no credentials, and none leads from TLS to the clear.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, PROXY_AUTHORIZATION, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tls::{Identity, Trust};

use crate::config::{Registries, Tls};
use crate::error::Error;
use crate::proxy::{Connector, Proxies};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long an answer may take to begin.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a body may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Unused connections are kept for this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Most redirects in a row.
const REDIRECTS_MAX: usize = 10;
/// Largest text of an error that is read.
const ERROR_BYTES_MAX: u64 = 64 << 10;

type HttpClient = Client<HttpsConnector<Connector>, Full<Bytes>>;

/// Connections to all hosts.
pub(crate) struct Transport {
    registries: Arc<Registries>,
    proxies: Arc<Proxies>,
    clients: Mutex<BTreeMap<Option<Tls>, HttpClient>>,
}

/// A request without a host's peculiarities.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) authorization: Option<String>,
    pub(crate) form: Option<String>,
}

impl Ask {
    pub(crate) fn get(url: String) -> Self {
        Self { method: Method::GET, url, headers: HeaderMap::new(), authorization: None, form: None }
    }

    pub(crate) fn authorized(mut self, authorization: Option<String>) -> Self {
        self.authorization = authorization;
        self
    }
}

impl Transport {
    pub(crate) fn new(registries: Arc<Registries>, proxies: Proxies) -> Self {
        Self { registries, proxies: Arc::new(proxies), clients: Mutex::default() }
    }

    /// Sends a request and follows where it leads. The answer may be of any status but a redirect.
    pub(crate) async fn send(&self, ask: &Ask) -> Result<Response<Incoming>, Error> {
        let mut uri: Uri =
            ask.url.parse().map_err(|_| Error::Unexpected(format!("{:?} is no URL", ask.url)))?;
        let home = (uri.scheme().cloned(), uri.authority().cloned());
        for _ in 0..=REDIRECTS_MAX {
            let is_home = (uri.scheme(), uri.authority()) == (home.0.as_ref(), home.1.as_ref());
            let answer = self.send_once(ask, &uri, is_home).await?;
            let is_redirect = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            let Some(location) = answer.headers().get(LOCATION).filter(|_| is_redirect) else {
                return Ok(answer);
            };
            uri = follow(&uri, location)?;
        }
        Err(Error::Unexpected(format!("{} leads to more than {REDIRECTS_MAX} redirects", shown(&uri))))
    }

    async fn send_once(&self, ask: &Ask, uri: &Uri, is_home: bool) -> Result<Response<Incoming>, Error> {
        let wrong = |error: &dyn std::fmt::Display| Error::Unexpected(format!("{}: {error}", shown(uri)));
        if names_no_port(uri) {
            return Err(wrong(&"there is no such port"));
        }
        let body = ask.form.clone().filter(|_| is_home);
        let mut request = Request::new(Full::new(Bytes::from(body.clone().unwrap_or_default())));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = ask.headers.clone();
        let agent = HeaderValue::from_static(concat!("knarr/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        if body.is_some() {
            let form = HeaderValue::from_static("application/x-www-form-urlencoded");
            request.headers_mut().insert(http::header::CONTENT_TYPE, form);
        }
        if let Some(authorization) = ask.authorization.as_deref().filter(|_| is_home) {
            let mut value = HeaderValue::from_str(authorization).map_err(|error| wrong(&error))?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let is_clear = uri.scheme_str() != Some("https");
        let proxy = self.proxies.for_uri(uri).filter(|_| is_clear);
        if let Some(value) = proxy.and_then(|proxy| proxy.authorization.clone()) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value);
        }
        let client = self.client(uri)?;
        match tokio::time::timeout(ANSWER_TIMEOUT, client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Error::Unavailable(format!(
                "failed to do request: {} {}: {}",
                ask.method,
                shown(uri),
                base::error_chain(&error)
            ))),
            Err(_) => Err(Error::Unavailable(format!(
                "failed to do request: {} {}: no answer within {} s",
                ask.method,
                shown(uri),
                ANSWER_TIMEOUT.as_secs()
            ))),
        }
    }

    /// The client with the TLS settings of a host.
    fn client(&self, uri: &Uri) -> Result<HttpClient, Error> {
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let tls = self.registries.host(authority).and_then(|host| host.tls.clone());
        if let Some(client) = self.clients.lock().get(&tls) {
            return Ok(client.clone());
        }
        let config = client_config(tls.as_ref()).map_err(|error| match &tls {
            Some(_) => Error::Config(format!("configs[{authority}].tls: {error}")),
            None => Error::Config(error.to_string()),
        })?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(Connector { http, proxies: Arc::clone(&self.proxies) });
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        self.clients.lock().insert(tls, client.clone());
        Ok(client)
    }
}

/// The URL that a redirect means. Source: RFC 9110, section 10.2.2, without `..` and relative names.
fn follow(from: &Uri, location: &HeaderValue) -> Result<Uri, Error> {
    let bad = || Error::Unexpected(format!("{} redirects to something that is no URL", shown(from)));
    let location = location.to_str().map_err(|_| bad())?;
    let (scheme, authority) = (from.scheme_str().unwrap_or("https"), from.authority().ok_or_else(bad)?);
    let target = if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        location.to_owned()
    };
    let target: Uri = target.split('#').next().unwrap_or_default().parse().map_err(|_| bad())?;
    match (scheme, target.scheme_str()) {
        (_, Some("https")) | ("http", Some("http")) => Ok(target),
        (_, Some("http")) => {
            Err(Error::Unexpected(format!("{} redirects to {} without TLS", shown(from), shown(&target))))
        }
        _ => Err(bad()),
    }
}

/// Whether the URL has a port that is no number of one; the scheme's own would be asked instead.
fn names_no_port(uri: &Uri) -> bool {
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let behind_host = authority.rsplit(['@', ']']).next().unwrap_or_default();
    let port = behind_host.split_once(':').map_or("", |(_, port)| port);
    !port.is_empty() && uri.port_u16().is_none()
}

/// A URL without its query, which may hold signatures.
pub(crate) fn shown(uri: &Uri) -> String {
    let (scheme, authority) = (uri.scheme_str().unwrap_or_default(), uri.authority());
    format!("{scheme}://{}{}", authority.map_or("", http::uri::Authority::as_str), uri.path())
}

/// Why the files that a registry's TLS needs cannot be used; names the field.
#[derive(Debug, thiserror::Error)]
enum TlsError {
    #[error("{name}: read {}: {source}", path.display())]
    Read { name: &'static str, path: PathBuf, source: std::io::Error },
    #[error("ca_file: {}: {}", .0.display(), .1)]
    Authorities(PathBuf, tls::Error),
    #[error("{}, {}: {}", .0.display(), .1.display(), .2)]
    Identity(PathBuf, PathBuf, tls::Error),
    #[error("cert_file: {0}")]
    Unfit(tls::Error),
}

fn client_config(settings: Option<&Tls>) -> Result<rustls::ClientConfig, TlsError> {
    let read = |name, path: &Path| {
        std::fs::read(path).map_err(|source| TlsError::Read { name, path: path.to_owned(), source })
    };
    let mut roots = tls::authorities_of_host();
    if let Some(path) = settings.and_then(|tls| tls.ca_file.as_ref()) {
        let wrong = |error: tls::Error| TlsError::Authorities(path.clone(), error);
        roots.extend(tls::authorities(&read("ca_file", path)?).map_err(wrong)?.roots);
    }
    let trust = match settings.is_some_and(|tls| tls.insecure_skip_verify) {
        true => Trust::Anybody,
        false => Trust::Authorities(roots),
    };
    let files = settings.and_then(|tls| Some((tls.cert_file.as_ref()?, tls.key_file.as_ref()?)));
    let identity = files.map(|(chain, key)| {
        let read = Identity::from_pem(&read("cert_file", chain)?, &read("key_file", key)?);
        read.map_err(|error| TlsError::Identity(chain.clone(), key.clone(), error))
    });
    tls::client(trust, identity.transpose()?, &[]).map_err(TlsError::Unfit)
}

/// The next piece of a body; `None` at its end.
pub(crate) async fn next_piece(body: &mut Incoming, what: &str) -> Result<Option<Bytes>, Error> {
    let broken = |why: String| Error::Unavailable(format!("{what} broke off: {why}"));
    loop {
        let frame = tokio::time::timeout(SILENCE_MAX, body.frame()).await;
        let frame = frame.map_err(|_| broken(format!("nothing came for {} s", SILENCE_MAX.as_secs())))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(broken(base::error_chain(&error))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// A whole body of at most `limit` bytes.
pub(crate) async fn whole(answer: Response<Incoming>, what: &str, limit: u64) -> Result<Vec<u8>, Error> {
    let mut body = answer.into_body();
    let mut bytes = Vec::new();
    while let Some(piece) = next_piece(&mut body, what).await? {
        if (bytes.len() + piece.len()) as u64 > limit {
            return Err(Error::TooLarge { what: what.to_owned(), limit });
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// What an answer that is no success means, in containerd's words.
pub(crate) async fn failure(method: &Method, uri: &str, answer: Response<Incoming>) -> Error {
    let status = answer.status();
    let body = whole(answer, "the error", ERROR_BYTES_MAX).await.unwrap_or_default();
    let uri = uri.split('?').next().unwrap_or_default();
    let mut text = format!("unexpected status from {method} request to {uri}: {status}");
    if let Some(message) = registry_message(&body) {
        text.push_str(": ");
        text.push_str(&message);
    }
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::Denied(text),
        StatusCode::NOT_FOUND => Error::NotFound(text),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Error::Unavailable(text),
        status if status.is_server_error() => Error::Unavailable(text),
        _ => Error::Unexpected(text),
    }
}

/// The first error of a registry's answer. Source: OCI distribution specification, "error codes".
fn registry_message(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = value.get("errors")?.get(0)?;
    let text = |key: &str| error.get(key).and_then(|it| it.as_str()).unwrap_or_default();
    let whole = format!("{}: {}", text("code"), text("message"));
    Some(whole.chars().filter(|c| !c.is_control()).take(300).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_where_they_say_but_never_out_of_tls() {
        let check = |from: &str, to: &str, expect: Option<&str>| {
            let followed = follow(&from.parse().unwrap(), &HeaderValue::from_str(to).unwrap());
            assert_eq!(followed.ok().map(|uri| uri.to_string()).as_deref(), expect, "{from} {to}");
        };
        check("https://a/x?y", "/z?q", Some("https://a/z?q"));
        check("https://a/x", "//b/z", Some("https://b/z"));
        check("https://a/x", "https://b:1/z#f", Some("https://b:1/z"));
        check("http://a/x", "https://b/", Some("https://b/"));
        check("http://a/x", "http://b/", Some("http://b/"));
        check("https://a/x", "http://a/x", None);
        check("https://a/x", "file:///etc/passwd", None);
        check("https://a/x", "z", None);
    }
}
