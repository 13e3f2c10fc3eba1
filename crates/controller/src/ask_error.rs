//! The reasons why the API server did not answer what it was asked.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The reason why there is no answer. It is kept where the answer would be, so it can be cloned.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AskError {
    /// The request could not be sent, or the answer broke off.
    #[error(transparent)]
    NoAnswer(Arc<dyn std::error::Error + Send + Sync>),
    /// The server took too long.
    #[error("the server did not answer for {0} s")]
    TooLate(u64),
    /// The server refuses.
    #[error("{message}")]
    Refused {
        /// The code of HTTP.
        code: u16,
        /// What it says.
        message: String,
    },
    /// The answer cannot be read.
    #[error(transparent)]
    Unreadable(Arc<serde_json::Error>),
    /// It is not that of a server with aggregated discovery, but of this kind.
    #[error("the server has no aggregated discovery: it answered a {0}")]
    NoDiscovery(String),
    /// It is of this kind, and no Scale.
    #[error("the subresource scale is a {0}")]
    NoScale(String),
    /// It does not say whose it is.
    #[error("the {0} has no uid")]
    NoUid(&'static str),
}

impl AskError {
    pub(crate) fn no_answer(error: impl Into<Cause>) -> Self {
        Self::NoAnswer(error.into().into())
    }

    /// A server's refusal, which says why if it is one of Kubernetes.
    pub fn refused(code: http::StatusCode, body: &[u8]) -> Self {
        let status: Status = serde_json::from_slice(body).unwrap_or_default();
        Self::Refused { code: code.as_u16(), message: status.message.unwrap_or_else(|| code.to_string()) }
    }
}

impl From<serde_json::Error> for AskError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(Arc::new(error))
    }
}

#[cfg(test)]
mod tests;
