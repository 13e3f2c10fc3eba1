//! A connection to an endpoint, and the version of HTTP that is spoken on it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::body::Upload;
use super::limits::{HEAD_BYTES_MAX, HEAD_LIST_BYTES_MAX, HEADERS_MAX, SEND_BUFFER_BYTES_MAX};
use crate::table::{Protocol, Target};

/// A connection on which nothing was heard for so long is probed, in seconds; then so often, and so many times.
const SILENCE_SECONDS: u32 = 30;
const PROBE_SECONDS: u32 = 10;
const PROBES_MAX: u32 = 3;
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
    Authority(#[source] rustls::Error),
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
    patience: Duration,
    tasks: Tasks,
}

impl Dialer {
    pub(super) fn new(target: Target, patience: Duration, tasks: Tasks) -> Result<Self, ConnectError> {
        let tls = match &target.protocol {
            Protocol::Http1 | Protocol::H2c => None,
            Protocol::Tls { name, authority } => {
                let config = client_config(authority.as_deref()).map_err(ConnectError::Authority)?;
                let name = ServerName::try_from(name.clone());
                let name = name.map_err(|_| ConnectError::Authority(rustls::Error::UnsupportedNameType))?;
                Some((TlsConnector::from(Arc::new(config)), name))
            }
        };
        Ok(Self { target, tls, patience, tasks })
    }

    /// Connects, all in one stretch of patience.
    pub(super) async fn dial(&self) -> Result<Sender, ConnectError> {
        let dialled = tokio::time::timeout(self.patience, self.connect()).await;
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
    setsockopt(&stream, sockopt::KeepAlive, &true)?;
    setsockopt(&stream, sockopt::TcpKeepIdle, &SILENCE_SECONDS)?;
    setsockopt(&stream, sockopt::TcpKeepInterval, &PROBE_SECONDS)?;
    setsockopt(&stream, sockopt::TcpKeepCount, &PROBES_MAX)?;
    Ok(stream)
}

fn client_config(authority: Option<&[u8]>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = match authority {
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| rustls::Error::General(error.to_string()))?;
                roots.add(certificate)?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        None => {
            let anybody = Arc::new(Anybody::default());
            builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Believes every certificate, where its Service names no authority: the endpoint is known by its address, as it is
/// without TLS. Whoever shows a certificate must have its key all the same.
#[derive(Debug)]
pub(super) struct Anybody(Arc<CryptoProvider>);

impl Default for Anybody {
    fn default() -> Self {
        Self(Arc::new(rustls::crypto::ring::default_provider()))
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
