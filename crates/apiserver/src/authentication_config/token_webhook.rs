//! The webhook that is asked about tokens that nothing here knows.

use std::time::Duration;

use crate::authorization_config::ReviewVersion;
use crate::configuration_error::{ConfigurationError, ReadFile};
use crate::webhook_client::kubeconfig::Target;

/// The webhook that is asked about a token that nothing here knows. Source: `--authentication-token-webhook-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWebhook {
    /// The target.
    pub target: Target,
    /// In which version it is asked.
    pub version: ReviewVersion,
    /// The time for which answers are kept; none if not at all.
    pub cache_ttl: Duration,
}

impl TokenWebhook {
    /// Reads what the flags name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(
        file: &str,
        version: &str,
        cache_ttl: Duration,
        read: impl ReadFile,
    ) -> Result<Self, ConfigurationError> {
        let version = ReviewVersion::of_flag(version, "authentication webhook")?;
        let target = Target::load(file, read).map_err(ConfigurationError::of(file.to_owned()))?;
        Ok(Self { target, version, cache_ttl })
    }
}
