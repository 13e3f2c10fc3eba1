//! What is wrong with a plugin. The words are upstream's: the server's health tells them.

use crate::errors::{EnvelopeError, Rpc, SealError};

/// The plugins that are not well.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", aggregate(.0))]
pub struct Unhealthy(pub(crate) Vec<UnwellProvider>);

/// One of them, by its place in the configuration.
#[derive(Clone, Debug, thiserror::Error)]
#[error("kms-provider-{at}: {why}")]
pub(crate) struct UnwellProvider {
    pub(crate) at: usize,
    pub(crate) why: Unwell,
}

/// Why a plugin is not well. It is kept until it is asked again.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Unwell {
    /// It does not say how it is.
    #[error("failed to perform status section of the healthz check for KMS Provider {name}, error: {rpc}")]
    Status { name: String, rpc: Rpc },
    /// What it says is not well.
    #[error("kmsv2 Provider {name} is not healthy, error: {}", aggregate(.flaws))]
    Flaws { name: String, flaws: Vec<Flaw> },
}

/// What is wrong with what a plugin says.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Flaw {
    #[error("got unexpected healthz status: {0}")]
    Healthz(String),
    #[error("expected KMSv2 API version v2, got {0}")]
    Version(String),
    #[error(
        "KMSv2 API version should not change after the initial status response version {first}, got {said}"
    )]
    OtherVersion { first: String, said: String },
    #[error("got invalid KMSv2 KeyID hash {hash:?}: {why}")]
    KeyId { hash: String, why: String },
    #[error(
        "failed to rotate DEK useSeed=true, {unmade}, statusKeyIDHash={status_key_id_hash:?}, stateKeyIDHash={state_key_id_hash:?}"
    )]
    Rotate { unmade: Unmade, status_key_id_hash: String, state_key_id_hash: String },
}

/// Why there is no new seed for the key that the plugin names.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Unmade {
    /// It was encrypted with another key.
    #[error("errGen=<nil>, encryptKeyIDHash={0:?}")]
    OtherKey(String),
    /// It could not be made.
    #[error("errGen={0}, encryptKeyIDHash=\"\"")]
    Seed(SeedError),
}

/// Why a seed could not be made.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum SeedError {
    #[error(transparent)]
    Random(#[from] SealError),
    #[error("failed to encrypt DEK, error: {0}")]
    Encrypt(Rpc),
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
}

/// One as it is, several in brackets.
fn aggregate<T: std::fmt::Display>(all: &[T]) -> String {
    match all {
        [one] => one.to_string(),
        many => format!("[{}]", many.iter().map(T::to_string).collect::<Vec<_>>().join(", ")),
    }
}
