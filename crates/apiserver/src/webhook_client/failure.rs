//! The reason why a call failed, in the words of Go's client, which administrators know.
//!
//! Source: `NewGenericServerResponse` of `k8s.io/apimachinery/pkg/api/errors`, `crypto/tls`, `crypto/x509`.

use std::error::Error as StdError;

use http::StatusCode;
use rustls::CertificateError;

/// How much of a text that comes with a bad status is shown.
const SHOWN_BYTES_MAX: usize = 2048;

/// A call that brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The status that metrics are kept by: the other end's, or 503.
    pub code: u16,
    cause: Cause,
    message: String,
}

/// What went wrong, as far as callers treat it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// There was no answer in time.
    Timeout,
    /// The connection broke.
    Reset,
    /// The other end answered that it would not; perhaps it may be asked again.
    Status { may_be_asked_again: bool },
    /// There was more of an answer than is read.
    Length,
    /// Anything else.
    Other,
}

impl CallError {
    /// The other end could not be asked, or did not answer.
    pub(super) fn of_transport(url: &str, why: &str) -> Self {
        Self { code: 503, cause: Cause::Other, message: format!("Post {url:?}: {why}") }
    }

    /// It did not answer in time.
    pub(super) fn of_deadline(url: &str) -> Self {
        Self { cause: Cause::Timeout, ..Self::of_transport(url, "context deadline exceeded") }
    }

    /// It answered more than is read.
    pub(super) fn of_length(url: &str, bytes_max: usize) -> Self {
        let why = format!("the answer is longer than {bytes_max} bytes");
        Self { cause: Cause::Length, ..Self::of_transport(url, &why) }
    }

    /// The connection could not be made, or did not last.
    pub(super) fn of_connection(url: &str, error: &(dyn StdError + 'static)) -> Self {
        let cause = if is_reset(error) { Cause::Reset } else { Cause::Other };
        Self { cause, ..Self::of_transport(url, &reason(error)) }
    }

    /// The same, of an answer with `Retry-After`.
    pub(super) fn asking_again(self) -> Self {
        Self { cause: Cause::Status { may_be_asked_again: true }, ..self }
    }

    /// `true` if there was no answer in time.
    pub fn is_timeout(&self) -> bool {
        self.cause == Cause::Timeout || self.code == 504
    }

    /// `true` if there was more of an answer than is read.
    pub fn is_too_long(&self) -> bool {
        self.cause == Cause::Length
    }

    /// `true` if the same call may go better in a moment. Source: `DefaultShouldRetry`.
    pub fn is_transient(&self) -> bool {
        match self.cause {
            Cause::Reset => true,
            Cause::Status { may_be_asked_again } => {
                may_be_asked_again || matches!(self.code, 429 | 500 | 504)
            }
            Cause::Timeout | Cause::Length | Cause::Other => false,
        }
    }

    /// It answered that it would not.
    pub(super) fn of_status(status: StatusCode, content_type: &str, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body.get(..SHOWN_BYTES_MAX).unwrap_or(body));
        let said = match content_type.starts_with("text/") {
            true => text.trim().to_owned(),
            false => "unknown".to_owned(),
        };
        let code = status.as_u16();
        let message = match code {
            400 => "the server rejected our request for an unknown reason".to_owned(),
            401 => "the server has asked for the client to provide credentials".to_owned(),
            404 => "the server could not find the requested resource".to_owned(),
            405 => "the server does not allow this method on the requested resource".to_owned(),
            409 => "the server reported a conflict".to_owned(),
            422 => "the server rejected our request due to an error in our request".to_owned(),
            429 => "the server has received too many requests and has asked us to try again later".to_owned(),
            503 => "the server is currently unable to handle the request".to_owned(),
            504 => "the server was unable to return a response in the time allotted, but may still be \
                    processing the request"
                .to_owned(),
            403 | 406 | 415 => said,
            500.. => format!("an error on the server ({said:?}) has prevented the request from succeeding"),
            _ => format!(
                "the server responded with the status code {code} but did not return more information"
            ),
        };
        Self { code, cause: Cause::Status { may_be_asked_again: false }, message }
    }

    /// It answered nothing.
    pub(super) fn empty(code: u16, content_type: &str) -> Self {
        let message = format!("0-length response with status code: {code} and content type: {content_type}");
        Self { code: 503, cause: Cause::Other, message }
    }

    /// The failure of an answer that cannot be read.
    pub fn unreadable(why: impl Into<String>) -> Self {
        Self { code: 503, cause: Cause::Other, message: why.into() }
    }
}

/// Whether a connection that there was broke.
fn is_reset(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
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

/// The innermost cause, which is what can be helped.
pub(super) fn reason(error: &(dyn StdError + 'static)) -> String {
    let mut innermost = error;
    loop {
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

/// The system's text as Go has it.
pub(crate) fn plain(text: &str) -> String {
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_lowercase(),
        None => text.to_owned(),
    }
}

/// Why there is no TLS.
pub(super) fn of_tls(error: &std::io::Error) -> String {
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
            let status = StatusCode::from_u16(code).unwrap();
            let error = CallError::of_status(status, content_type, body.as_bytes());
            assert_eq!((error.code, error.to_string().as_str()), (code, expect));
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
        let status = StatusCode::FORBIDDEN;
        assert_eq!(CallError::of_status(status, "text/plain", long.as_bytes()).to_string().len(), 2048);
    }

    #[test]
    fn names_of_certificates_are_shown_plainly() {
        assert_eq!(inner_name("DnsName(\"a.b\")"), "a.b");
        assert_eq!(inner_name("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(inner_name("a"), "a");
    }
}
