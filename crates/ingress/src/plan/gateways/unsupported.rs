//! What a rule asks for that is not done here. Its route's status says so, and its requests are refused.

use http::header::HeaderName;

use crate::matching::BadPattern;

/// The part of a rule that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsupported {
    /// There is no such thing, as far as is known here.
    #[error("{0} is not supported")]
    Kind(String),
    #[error("filter {0} is not supported for a backend")]
    OfBackend(String),
    #[error("filter {0} must say what it does")]
    EmptyFilter(String),
    #[error("filter {0} must stand once")]
    Twice(String),
    #[error("filter RequestRedirect must not stand with URLRewrite or RequestMirror")]
    BesideRedirect,
    #[error("{0} cannot be matched: {1}")]
    Pattern(String, BadPattern),
    /// Of a header or a host.
    #[error("{0} {1:?} must be a name")]
    Name(&'static str, String),
    #[error("header {0} cannot be changed")]
    OurHeader(HeaderName),
    #[error("the value of header {0} must be one line")]
    HeaderValue(HeaderName),
    #[error("path {0:?} must begin with /")]
    Path(String),
    #[error("path {0:?} must be one that begins with /")]
    NewPath(String),
    #[error("a service or method must have no /")]
    Method,
    #[error("ReplacePrefixMatch needs a match with a PathPrefix")]
    NoPrefix,
    #[error("a redirect's scheme {0} must be http or https")]
    Scheme(String),
    #[error("a redirect's port must be between 1 and 65535")]
    Port,
    #[error("a redirect's status {0} must be 301, 302, 303, 307 or 308")]
    Status(i64),
    #[error("timeout {0:?} must be a duration such as 1m30s")]
    Timeout(String),
}
