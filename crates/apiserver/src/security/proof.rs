//! How somebody has proved who they are, which the audit log says of every request that it has.

use auth::UserInfo;

use crate::notes::Notes;

/// The audit annotation that says how.
const BY: &str = "knarr.io/authenticated-by";
/// The audit annotation that names who answers for them, if somebody else does.
const THROUGH: &str = "knarr.io/authenticated-through";

/// What proves who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It comes from a part of this process, over no network.
    InProcess,
    /// The front proxy of this common name says it in headers.
    FrontProxy(String),
    /// A client certificate.
    Certificate,
    /// A ServiceAccount's token that ends, asked for by TokenRequest.
    BoundToken,
    /// A ServiceAccount's token that lies in a Secret.
    SecretToken,
    /// A bootstrap token.
    BootstrapToken,
    /// A token of the outside issuer of this URL.
    Oidc(String),
    /// A token that the webhook knows.
    Webhook,
    /// Nothing was shown: `system:anonymous`.
    Nothing,
}

impl Proof {
    /// Says it to the audit log.
    pub fn annotate(&self, notes: &Notes) {
        let (by, through) = match self {
            Self::InProcess => ("in-process", None),
            Self::FrontProxy(name) => ("front-proxy", Some(name)),
            Self::Certificate => ("x509", None),
            Self::BoundToken => ("bound-token", None),
            Self::SecretToken => ("secret-token", None),
            Self::BootstrapToken => ("bootstrap-token", None),
            Self::Oidc(issuer) => ("oidc", Some(issuer)),
            Self::Webhook => ("webhook", None),
            Self::Nothing => ("anonymous", None),
        };
        notes.annotate(BY, by);
        if let Some(through) = through {
            notes.annotate(THROUGH, through);
        }
    }
}

/// Whom a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Who it is.
    pub user: UserInfo,
    /// For whom it is meant, of those that were asked for.
    pub audiences: Vec<String>,
    /// Which kind of token it is.
    pub proof: Proof,
}
