//! The reason why an issuer's token is refused, for the log: whoever sent it is told nothing of that.

use std::borrow::Cow;

use auth::oidc::OidcError;
use http::StatusCode;

use crate::authentication_config::MappingError;
use crate::connection_error::ConnectionError;

/// A token that is refused, or an issuer that does not tell its keys.
#[derive(Debug, thiserror::Error)]
pub(in crate::security) enum IssuerError {
    /// The token itself is not good.
    #[error(transparent)]
    Token(#[from] OidcError),
    /// It stands for nobody.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// What it says of claims elsewhere cannot be read.
    #[error("{0}")]
    Sources(Cow<'static, str>),
    /// A claim elsewhere cannot be had.
    #[error("claim {claim:?} at {endpoint:?}: {source}")]
    Claim {
        /// Which.
        claim: String,
        /// Where it is said to be.
        endpoint: String,
        /// Why.
        source: Box<Self>,
    },
    /// Nobody answers there.
    #[error("nobody answers")]
    Nobody,
    /// What is there is no text.
    #[error(transparent)]
    Text(#[from] std::str::Utf8Error),
    /// What is there is no token.
    #[error("it is no token of an issuer")]
    NoToken,
    /// The token there does not have the claim.
    #[error("the token there has it not")]
    Absent,
    /// The issuer leads to too many others.
    #[error("there are {0} other issuers already")]
    TooMany(usize),
    /// The URL of a document is not to be trusted.
    #[error("the URL must be https")]
    Scheme,
    /// What is trusted cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// A document's server could not be asked.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// It answered with another status.
    #[error("the issuer answers {0}")]
    Status(StatusCode),
    /// It did not answer in time.
    #[error("the issuer does not answer")]
    Unanswered,
    /// It is not asked again so soon.
    #[error("the issuer was asked for its keys a moment ago")]
    AskedLately,
    /// This server stops.
    #[error("the server stops")]
    Stopping,
    /// Its document cannot be read.
    #[error(transparent)]
    Document(#[from] serde_json::Error),
    /// Its document is about somebody else.
    #[error("the discovery document is another issuer's")]
    OtherIssuer,
    /// Its document does not say where its keys are.
    #[error("the discovery document has no jwks_uri")]
    NoKeys,
}
