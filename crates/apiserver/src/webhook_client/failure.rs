//! The reason why a call failed, in the words of Go's client, which administrators know.
//!
//! Source: `NewGenericServerResponse` of `k8s.io/apimachinery/pkg/api/errors`, `crypto/tls`, `crypto/x509`.

use std::borrow::Cow;
use std::error::Error as StdError;

use rustls::CertificateError;
use rustls_pki_types::InvalidDnsNameError;

use crate::configuration_error::Cause;
use crate::connection_error::{ConnectionError, plain};

/// How much of a text that comes with a bad status is shown.
const SHOWN_BYTES_MAX: usize = 2048;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// It was not reached.
    #[error(transparent)]
    Dial(#[from] ConnectionError),
    /// Its name is none that a certificate could have.
    #[error(transparent)]
    Name(#[from] InvalidDnsNameError),
    /// It is not who is asked for, or speaks no TLS.
    #[error("{}", of_tls(.0))]
    Tls(#[source] std::io::Error),
}

/// A call that brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There was no answer in time.
    #[error("Post {url:?}: context deadline exceeded")]
    Timeout {
        /// Where.
        url: String,
    },
    /// The server stops, and calls nobody any more.
    #[error("Post {url:?}: the server stops")]
    Stopping {
        /// Where.
        url: String,
    },
    /// The call cannot be written.
    #[error("Post {url:?}: {source}")]
    Request {
        /// Where.
        url: String,
        /// Why.
        source: http::Error,
    },
    /// The connection could not be made, or did not last.
    #[error("Post {url:?}: {}", reason(&**source))]
    Connection {
        /// Where.
        url: String,
        /// Why.
        source: Cause,
    },
    /// There was more of an answer than is read.
    #[error("Post {url:?}: the answer is longer than {bytes_max} bytes")]
    Length {
        /// Where.
        url: String,
        /// How much is read.
        bytes_max: usize,
    },
    /// The other end answered that it would not.
    #[error("{}", of_code(*code, said))]
    Status {
        /// Its status.
        code: u16,
        /// Whether it says when it may be asked again.
        may_be_asked_again: bool,
        /// Its words, as far as they are shown.
        said: String,
    },
    /// It answered nothing.
    #[error("0-length response with status code: {code} and content type: {content_type}")]
    Empty {
        /// Its status, a good one.
        code: u16,
        /// What it says there is.
        content_type: String,
    },
    /// The answer cannot be read.
    #[error(transparent)]
    Unreadable(Cause),
}

impl CallError {
    /// The connection could not be made, or did not last.
    pub(super) fn of_connection(url: &str, source: impl Into<Cause>) -> Self {
        Self::Connection { url: url.to_owned(), source: source.into() }
    }

    /// It answered that it would not.
    pub(super) fn of_status(code: u16, may_be_asked_again: bool, content_type: &str, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body.get(..SHOWN_BYTES_MAX).unwrap_or(body));
        let said = match content_type.starts_with("text/") {
            true => text.trim().to_owned(),
            false => "unknown".to_owned(),
        };
        Self::Status { code, may_be_asked_again, said }
    }

    /// The failure of an answer that cannot be read.
    pub fn unreadable(why: impl Into<Cause>) -> Self {
        Self::Unreadable(why.into())
    }

    /// The status that metrics are kept by: the other end's, or 503.
    pub fn code(&self) -> u16 {
        if let Self::Status { code, .. } = self { *code } else { 503 }
    }

    /// `true` if there was no answer in time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Status { code: 504, .. })
    }

    /// `true` if there was more of an answer than is read.
    pub fn is_too_long(&self) -> bool {
        matches!(self, Self::Length { .. })
    }

    /// `true` if the same call may go better in a moment. Source: `DefaultShouldRetry`.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection { source, .. } => is_reset(&**source),
            Self::Status { code, may_be_asked_again, .. } => {
                *may_be_asked_again || matches!(code, 429 | 500 | 504)
            }
            _ => false,
        }
    }
}

/// What a bad status means.
fn of_code(code: u16, said: &str) -> Cow<'_, str> {
    Cow::Borrowed(match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        403 | 406 | 415 => said,
        500.. => {
            return format!("an error on the server ({said:?}) has prevented the request from succeeding")
                .into();
        }
        _ => {
            let text = "but did not return more information";
            return format!("the server responded with the status code {code} {text}").into();
        }
    })
}

/// Whether a connection that there was broke.
fn is_reset(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<ConnectError>() {
            return false;
        }
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let is_cut = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
        if is_cut
            || matches!(kind, Some(std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe))
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// The innermost cause, which is what can be helped; of a connection that was never made, which step failed.
fn reason(error: &(dyn StdError + 'static)) -> String {
    let mut innermost = error;
    loop {
        if let Some(error) = innermost.downcast_ref::<ConnectError>() {
            return error.to_string();
        }
        if let Some(error) = innermost.downcast_ref::<hyper::Error>()
            && error.is_incomplete_message()
        {
            return "EOF".to_owned();
        }
        match innermost.source() {
            Some(source) => innermost = source,
            None if is_end(innermost) => return "EOF".to_owned(),
            None => return plain(&innermost.to_string()),
        }
    }
}

fn is_end(error: &(dyn StdError + 'static)) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof)
}

/// Why there is no TLS.
fn of_tls(error: &std::io::Error) -> String {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!("tls: failed to verify certificate: {}", of_certificate(why))
        }
        Some(rustls::Error::AlertReceived(alert)) => format!("remote error: tls: {alert:?}"),
        Some(rustls::Error::InvalidMessage(_)) => {
            "tls: first record does not look like a TLS handshake".to_owned()
        }
        Some(other) => format!("tls: {other}"),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => plain(&error.to_string()),
    }
}

fn of_certificate(why: &CertificateError) -> String {
    let at = |time: &rustls_pki_types::UnixTime| {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
    };
    const WHEN: &str = "x509: certificate has expired or is not yet valid";
    match why {
        // Who has the name of one that is trusted, and not its key, is unknown too.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            format!("{WHEN}: current time {} is after {}", at(time), at(not_after))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!("{WHEN}: current time {} is before {}", at(time), at(not_before))
        }
        CertificateError::Expired | CertificateError::NotValidYet => WHEN.to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            let names: Vec<&str> = presented.iter().map(|name| inner_name(name)).collect();
            match names.is_empty() {
                true => {
                    format!("x509: certificate is not valid for any names, but wanted to match {expected}")
                }
                false => format!("x509: certificate is valid for {}, not {expected}", names.join(", ")),
            }
        }
        other => format!("x509: {other}"),
    }
}

/// `a` of `DnsName("a")`, and of `IpAddress(a)`.
fn inner_name(shown: &str) -> &str {
    let inner = shown.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(shown);
    inner.trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_as_clients_of_the_api_tell_it() {
        let check = |code: u16, content_type: &str, body: &str, expect: &str| {
            let error = CallError::of_status(code, false, content_type, body.as_bytes());
            assert_eq!((error.code(), error.to_string().as_str()), (code, expect));
        };
        check(404, "text/plain", "404 page not found", "the server could not find the requested resource");
        check(
            500,
            "text/plain; charset=utf-8",
            " it broke\n",
            "an error on the server (\"it broke\") has prevented the request from succeeding",
        );
        check(
            500,
            "application/json",
            "{}",
            "an error on the server (\"unknown\") has prevented the request from succeeding",
        );
        check(403, "text/html", "go away", "go away");
        check(
            302,
            "",
            "",
            "the server responded with the status code 302 but did not return more information",
        );
        let long = "x".repeat(1 << 20);
        assert_eq!(CallError::of_status(403, false, "text/plain", long.as_bytes()).to_string().len(), 2048);
    }

    #[test]
    fn names_of_certificates_are_shown_plainly() {
        assert_eq!(inner_name("DnsName(\"a.b\")"), "a.b");
        assert_eq!(inner_name("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(inner_name("a"), "a");
    }
}
