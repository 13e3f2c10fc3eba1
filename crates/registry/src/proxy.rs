//! The proxy for a registry, and the connection through it.
//!
//! What TLS protects goes through a tunnel (CONNECT); what is in the clear is asked of the proxy itself. A host is not
//! the proxy's business if `NO_PROXY` says so, or if it is this very machine.
//!
//! Source: `golang.org/x/net/http/httpproxy`, by which containerd and other runtimes choose; RFC 9110, section 9.3.6.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use http::uri::{Authority, Uri};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::Service;

/// Largest answer of a proxy to CONNECT.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// How long a proxy may take to make a tunnel.
const TUNNEL_TIMEOUT: Duration = Duration::from_secs(15);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Proxies by the scheme of what is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    exceptions: Vec<Exception>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    authority: Authority,
    /// `Proxy-Authorization`.
    pub(crate) authorization: Option<HeaderValue>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({})", self.authority)
    }
}

/// An entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    Everything,
    /// Addresses that begin with so many bits of this one.
    Network(IpAddr, u8),
    /// An address, at one port or any.
    Address(IpAddr, Option<u16>),
    /// A name's end that begins with a dot, whether it is a name itself, and a port.
    Domain(String, bool, Option<u16>),
}

/// A variable that names no proxy.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct ProxyError(&'static str, Flaw);

/// Why a text names none.
#[derive(Debug, thiserror::Error)]
enum Flaw {
    #[error("it is no URL")]
    NoUrl,
    #[error("proxies of scheme {0:?} are not supported")]
    Scheme(String),
    #[error("it names no host")]
    NoHost,
    #[error(transparent)]
    Credentials(#[from] http::header::InvalidHeaderValue),
}

impl Proxies {
    /// Of this process's environment. What cannot be understood is said once and left out.
    pub fn of_environment() -> Self {
        Self::of(|name| std::env::var(name).ok()).unwrap_or_else(|error| {
            tracing::warn!(%error, "images are pulled without a proxy");
            Self::default()
        })
    }

    /// Of `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, in capitals or not.
    ///
    /// # Errors
    /// Names the variable.
    pub fn of(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let find = |name: &str| {
            let found = lookup(name).or_else(|| lookup(&name.to_lowercase()));
            found.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let proxy = |name: &'static str| {
            let parsed = find(name).map(|value| Proxy::parse(&value));
            parsed.transpose().map_err(|flaw| ProxyError(name, flaw))
        };
        let exceptions = find("NO_PROXY").unwrap_or_default();
        let exceptions = exceptions.split(',').filter_map(|entry| Exception::parse(entry.trim()));
        Ok(Self {
            http: proxy("HTTP_PROXY")?,
            https: proxy("HTTPS_PROXY")?,
            exceptions: exceptions.collect(),
        })
    }

    /// The proxy for a URL.
    pub(crate) fn for_uri(&self, uri: &Uri) -> Option<&Proxy> {
        let is_tls = uri.scheme_str() == Some("https");
        let proxy = if is_tls { &self.https } else { &self.http };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let address: Option<IpAddr> = host.parse().ok();
        let is_here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        let is_excepted = || self.exceptions.iter().any(|it| it.covers(&host, address, port));
        proxy.as_ref().filter(|_| !is_here && !is_excepted())
    }
}

impl Proxy {
    fn parse(text: &str) -> Result<Self, Flaw> {
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        // Credentials are not told.
        let uri: Uri = with_scheme.parse().map_err(|_| Flaw::NoUrl)?;
        match uri.scheme_str() {
            Some("http") => {}
            other => return Err(Flaw::Scheme(other.unwrap_or_default().to_owned())),
        }
        let authority = uri.authority().ok_or(Flaw::NoHost)?;
        let (user, host) = match authority.as_str().rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority.as_str()),
        };
        let authority = host.parse().map_err(|_| Flaw::NoHost)?;
        let authorization = user.map(|user| {
            let user = if user.contains(':') { user.to_owned() } else { format!("{user}:") };
            let plain = percent_decoded(&user);
            HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(plain)))
        });
        let mut authorization = authorization.transpose()?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        Ok(Self { authority, authorization })
    }

    fn uri(&self) -> Result<Uri, http::Error> {
        Uri::builder().scheme("http").authority(self.authority.clone()).path_and_query("/").build()
    }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
        decoded.push(byte.unwrap_or(*first));
    }
    decoded
}

impl Exception {
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.to_ascii_lowercase();
        if entry.is_empty() {
            return None;
        }
        if entry == "*" {
            return Some(Self::Everything);
        }
        if let Some((network, bits)) = entry.split_once('/') {
            return Some(Self::Network(network.parse().ok()?, bits.parse().ok()?));
        }
        if let Ok(address) = entry.parse() {
            return Some(Self::Address(address, None));
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => {
                (host.trim_start_matches('[').trim_end_matches(']'), Some(port.parse().ok()?))
            }
            None => (entry.as_str(), None),
        };
        if let Ok(address) = host.parse() {
            return Some(Self::Address(address, port));
        }
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        match host.strip_prefix('.') {
            Some("") => None,
            Some(_) => Some(Self::Domain(host.to_owned(), false, port)),
            None => Some(Self::Domain(format!(".{host}"), true, port)),
        }
    }

    fn covers(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let is_port = |wanted: &Option<u16>| wanted.is_none_or(|wanted| wanted == port);
        match self {
            Self::Everything => true,
            Self::Network(network, bits) => address.is_some_and(|it| is_in(it, *network, *bits)),
            Self::Address(excepted, wanted) => address == Some(*excepted) && is_port(wanted),
            Self::Domain(end, is_name, wanted) => {
                let is_below = host.ends_with(end.as_str());
                let is_it = *is_name && end.strip_prefix('.') == Some(host);
                (is_below || is_it) && is_port(wanted)
            }
        }
    }
}

fn is_in(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let ((address, length), (network, wanted_length)) = (number(address), number(network));
    let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
    length == wanted_length && bits <= length && address & mask == network & mask
}

/// Connects directly or by a proxy.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) http: HttpConnector,
    pub(crate) proxies: Arc<Proxies>,
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Failure>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let proxy = self.proxies.for_uri(&target).cloned();
        let mut http = self.http.clone();
        Box::pin(async move {
            let Some(proxy) = proxy else {
                return Ok(Stream { io: http.call(target).await?, is_proxied: false });
            };
            let by =
                |error: &dyn std::fmt::Display| Failure::from(format!("proxy {}: {error}", proxy.authority));
            let io = http.call(proxy.uri()?).await.map_err(|error| by(&base::error_chain(&error)))?;
            if target.scheme_str() != Some("https") {
                return Ok(Stream { io, is_proxied: true });
            }
            let made = tokio::time::timeout(TUNNEL_TIMEOUT, tunnel(io, &target, &proxy)).await;
            let io = made.map_err(|_| by(&"it makes no tunnel"))?.map_err(|error| by(&error))?;
            Ok(Stream { io, is_proxied: false })
        })
    }
}

async fn tunnel(io: TokioIo<TcpStream>, target: &Uri, proxy: &Proxy) -> Result<TokioIo<TcpStream>, Failure> {
    let mut socket = io.into_inner();
    let host = target.host().ok_or("no host is named")?;
    let host = format!("{host}:{}", target.port_u16().unwrap_or(443));
    let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    if let Some(value) = &proxy.authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    socket.write_all(&request).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= ANSWER_BYTES_MAX {
            return Err("its answer is too long".into());
        }
        // One by one: what comes after the answer is the tunnel's.
        answer.push(socket.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&answer);
    let status = text.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") if status.starts_with("HTTP/1.") => Ok(TokioIo::new(socket)),
        _ => Err(status.chars().filter(|c| !c.is_control()).take(100).collect::<String>().into()),
    }
}

/// A connection.
pub(crate) struct Stream {
    io: TokioIo<TcpStream>,
    /// The proxy itself answers: it must be told the whole URL.
    is_proxied: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.io.connected().proxy(self.is_proxied)
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
