//! The reasons why a hook or a probe failed. The words are upstream's: statuses and events have them.

use std::io;

use tonic::Code;

use super::host_port;

/// Why a handler names no port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PortError {
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    Unknown(String),
    #[error("invalid port number: {0}")]
    OutOfRange(i32),
}

/// No connection could be made.
#[derive(Debug, thiserror::Error)]
#[error("dial tcp {}: {}", host_port(.host, *.port), reason(.error))]
pub(crate) struct DialError {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) error: io::Error,
}

/// Go's words for it.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => format!("connect: {}", nix::errno::Errno::from_raw(number).desc().to_lowercase()),
        None => error.to_string(),
    }
}

/// Why no answer came over HTTP.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("Get \"{url}\": {source}")]
    Get { url: String, source: ExchangeError },
    #[error("Get \"{0}\": stopped after {1} redirects")]
    Redirects(String, usize),
}

/// Why one request was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Late,
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The server does not speak TLS. Source: `ErrSchemeMismatch` of `net/http`.
    #[error("http: server gave HTTP response to HTTPS client")]
    NotTls,
    /// Go's word for a connection that ends before the answer.
    #[error("EOF")]
    Ended,
    #[error(transparent)]
    Name(#[from] rustls::pki_types::InvalidDnsNameError),
    #[error(transparent)]
    Tls(#[from] tls::Error),
    #[error(transparent)]
    Handshake(#[from] io::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Http(hyper::Error),
}

impl From<hyper::Error> for ExchangeError {
    fn from(error: hyper::Error) -> Self {
        let is_ended = error.is_canceled() || error.is_incomplete_message() || error.is_closed();
        if is_ended { Self::Ended } else { Self::Http(error) }
    }
}

/// Why a server is not well.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrpcError {
    #[error(transparent)]
    Address(#[from] tonic::transport::Error),
    #[error("timeout: failed to connect service \"{address}\" within {seconds}s: context deadline exceeded")]
    Unconnected { address: String, seconds: u64 },
    #[error("timeout: health rpc did not complete within {0}s")]
    Late(u64),
    #[error("this server does not implement the grpc health protocol (grpc.health.v1.Health): {0}")]
    Unimplemented(String),
    #[error("health rpc probe failed: rpc error: code = {0:?} desc = {1}")]
    Failed(Code, String),
    #[error("service unhealthy (responded with \"{0}\")")]
    Unhealthy(&'static str),
}

/// How a lifecycle hook failed. There may be secrets in it that a server has told: it is for the Pod's status, not for
/// events. Source: `pkg/kubelet/lifecycle` and `startContainer` of upstream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error("Exec lifecycle hook ([{command}]) {place} - error: {error}, message: {output:?}")]
    Exec { command: String, place: String, error: String, output: String },
    #[error("HTTP lifecycle hook ({path}) {place} - error: {source}")]
    Http { path: String, place: String, source: HttpHookError },
    #[error("Cannot run handler: invalid handler")]
    Invalid,
}

/// Why a hook was not told over HTTP.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpHookError {
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Http(#[from] HttpError),
}
