//! The reason why another server could not be asked: no connection to it, or none that lasted. In Go's words where it has
//! some: clients look for `connection refused`.

use std::io;
use std::sync::Arc;

use http::StatusCode;
use rustls_pki_types::InvalidDnsNameError;

use crate::configuration_error::{Cause, ConfigurationError};
use crate::status;

/// A server that could not be asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// What is said of the way to it cannot be used.
    #[error(transparent)]
    Configuration(#[from] Arc<ConfigurationError>),
    /// There is nowhere to connect to, or nowhere that may be connected to.
    #[error(transparent)]
    Destination(#[from] Box<status::Error>),
    /// A Service, where only hosts can be reached.
    #[error("a kubeconfig names no Service")]
    Service,
    /// This server is not there yet, or not any more.
    #[error("the server is not there")]
    NoServer,
    /// This server stops.
    #[error("stopping")]
    Stopping,
    /// None of its addresses answers.
    #[error("dial tcp {authority}: connect: {}", reason(source))]
    Connect {
        /// Host and port.
        authority: String,
        /// That of the last one.
        source: io::Error,
    },
    /// Its name has no addresses, or none of them answers.
    #[error("dial tcp {authority}: {}", plain(&source.to_string()))]
    Dial {
        /// Host and port.
        authority: String,
        /// Why.
        source: io::Error,
    },
    /// Its name is none that a certificate could have.
    #[error(transparent)]
    Name(#[from] InvalidDnsNameError),
    /// It is not who is asked for, or speaks no TLS.
    #[error("tls: {0}")]
    Tls(#[source] io::Error),
    /// The same, or that it does not answer, where no step of the way is named.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The handshake takes too long.
    #[error("net/http: TLS handshake timeout")]
    HandshakeTimeout,
    /// There is no room for another connection.
    #[error("too many connections")]
    TooMany,
    /// What is asked for has no URI.
    #[error(transparent)]
    Uri(#[from] http::Error),
    /// The exchange broke.
    #[error("{0}")]
    Exchange(#[from] hyper::Error),
    /// The exchange broke on a connection that many share.
    #[error("{}", base::error_chain(.0))]
    Stream(#[source] hyper::Error),
    /// The answer broke off, or is too long.
    #[error("{0}")]
    Body(#[source] Cause),
    /// There was no answer in time.
    #[error("context deadline exceeded")]
    Deadline,
    /// It answered with another status than a good one.
    #[error("bad status from {url}: {}", status.as_u16())]
    Status {
        /// What was asked for.
        url: String,
        /// The status.
        status: StatusCode,
    },
}

impl From<status::Error> for ConnectionError {
    fn from(failure: status::Error) -> Self {
        Self::Destination(Box::new(failure))
    }
}

/// The system's word for an error, as Go prints it.
fn reason(error: &io::Error) -> String {
    let text = error.to_string().to_lowercase();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// The system's text as Go has it.
pub(crate) fn plain(text: &str) -> String {
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_lowercase(),
        None => text.to_owned(),
    }
}
