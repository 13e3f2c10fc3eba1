//! A connection to an endpoint, and the version of HTTP that is spoken on it.

use std::io;
use std::time::Duration;

use base::{KeepAlive, Tasks};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tls::Trust;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::body::Upload;
use super::limits::{HEAD_BYTES_MAX, HEAD_LIST_BYTES_MAX, HEADERS_MAX, SEND_BUFFER_BYTES_MAX};
use crate::table::{Protocol, Target};

const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle_seconds: 30, every_seconds: 10, probes_max: 3, unconfirmed_max_ms: None };
/// Over HTTP/2, how long nothing may be heard while something is asked.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Why there is no connection. Nothing was asked on it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("the endpoint does not take a connection in time")]
    Slow,
    #[error("the endpoint takes no connection")]
    Refused(#[source] io::Error),
    #[error("the endpoint speaks no HTTP")]
    Handshake(#[source] hyper::Error),
    #[error("what the endpoint is verified by cannot be used")]
    Authority(#[source] tls::Error),
}

/// How requests are sent on a connection.
pub(super) enum Sender {
    /// One at a time.
    Http1(http1::SendRequest<Upload>),
    /// Many at a time.
    Http2(http2::SendRequest<Upload>),
}

/// How an endpoint is connected to.
pub(super) struct Dialer {
    target: Target,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
    tasks: Tasks,
}

impl Dialer {
    pub(super) fn new(target: Target, timeout: Duration, tasks: Tasks) -> Result<Self, ConnectError> {
        let tls = match &target.protocol {
            Protocol::Http1 | Protocol::H2c => None,
            Protocol::Tls { name, authority } => {
                let connector = connector(authority.as_deref()).map_err(ConnectError::Authority)?;
                let name = ServerName::try_from(name.clone());
                let name =
                    name.map_err(|_| ConnectError::Authority(rustls::Error::UnsupportedNameType.into()))?;
                Some((connector, name))
            }
        };
        Ok(Self { target, tls, timeout, tasks })
    }

    /// Connects, all within one time-out.
    pub(super) async fn dial(&self) -> Result<Sender, ConnectError> {
        let dialled = tokio::time::timeout(self.timeout, self.connect()).await;
        dialled.unwrap_or(Err(ConnectError::Slow))
    }

    async fn connect(&self) -> Result<Sender, ConnectError> {
        let stream = TcpStream::connect(self.target.address).await.map_err(ConnectError::Refused)?;
        let stream = set_up(stream).map_err(ConnectError::Refused)?;
        let Some((connector, name)) = &self.tls else {
            return match self.target.protocol {
                Protocol::H2c => self.http2(stream).await,
                _ => self.http1(stream).await,
            };
        };
        let stream = connector.connect(name.clone(), stream).await.map_err(ConnectError::Refused)?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        if is_http2 { self.http2(stream).await } else { self.http1(stream).await }
    }

    async fn http1<S>(&self, stream: S) -> Result<Sender, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(ConnectError::Handshake)?;
        self.tasks.spawn("ingress backend", async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::trace!(%error, "a connection to a backend ended");
            }
        });
        Ok(Sender::Http1(sender))
    }

    async fn http2<S>(&self, stream: S) -> Result<Sender, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .max_header_list_size(HEAD_LIST_BYTES_MAX)
            .max_send_buf_size(SEND_BUFFER_BYTES_MAX);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(ConnectError::Handshake)?;
        self.tasks.spawn("ingress backend", async move {
            if let Err(error) = connection.await {
                tracing::trace!(%error, "a connection to a backend ended");
            }
        });
        Ok(Sender::Http2(sender))
    }
}

/// Notices when the other host is gone without a word.
pub(super) fn set_up(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    KEEP_ALIVE.set(&stream)?;
    Ok(stream)
}

/// Where its Service names no authority, every certificate is believed: the endpoint is known by its address, as it is
/// without TLS.
fn connector(authority: Option<&[u8]>) -> Result<TlsConnector, tls::Error> {
    let trust = match authority {
        Some(pem) => Trust::Authorities(tls::authorities(pem)?),
        None => Trust::Anybody,
    };
    tls::connector(trust, None, tls::HTTP2)
}
