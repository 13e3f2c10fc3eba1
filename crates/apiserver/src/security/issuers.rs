//! The outside issuers that count, which can be others while the server runs.

use std::sync::Arc;

use auth::UserInfo;
use base::metrics::Metrics as Registry;
use base::{Clock, Tasks};
use jiff::Timestamp;
use parking_lot::RwLock;

use super::oidc::{IssuerError, JwtMetrics, Oidc};
use super::reloads::{Outcome, Reloads};
use crate::authentication_config::Authentication;
use crate::configuration_error::ConfigurationError;

/// The issuers, and the configuration that names them.
pub(super) struct Issuers {
    /// What the server was started with.
    first: Authentication,
    current: RwLock<Arc<Current>>,
    reloads: Reloads,
    tasks: Tasks,
    clock: Clock,
}

struct Current {
    config: Authentication,
    oidc: Oidc,
}

impl Issuers {
    /// Nobody has been asked yet. `apiserver_id` tells servers apart.
    pub(super) fn new(
        config: Authentication,
        (tasks, clock): (Tasks, Clock),
        registry: &Registry,
        apiserver_id: &str,
    ) -> Self {
        let metrics = registry.part(|registry| JwtMetrics::new(registry, apiserver_id));
        let oidc = Oidc::new(&config.jwt, &tasks, &metrics);
        Self {
            first: config.clone(),
            current: RwLock::new(Arc::new(Current { config, oidc })),
            reloads: Reloads::new(registry, "authentication", apiserver_id),
            tasks,
            clock,
        }
    }

    /// The user of a token and its issuer; `None` if no issuer here made it.
    ///
    /// # Errors
    /// Why it is refused, for the log.
    pub(super) async fn user(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Option<Result<(UserInfo, String), IssuerError>> {
        let current = Arc::clone(&self.current.read());
        current.oidc.user(token, now).await
    }

    /// Takes another file; says whether it is another one. `own` is the issuer of the cluster's own tokens.
    ///
    /// # Errors
    /// Why it cannot be used. Then nothing changes.
    pub(super) async fn reload(&self, text: &str, own: &str) -> Result<bool, ConfigurationError> {
        let taken = match Authentication::parse(text, own) {
            Ok(config) => self.replace(config).await,
            Err(why) => Err(why),
        };
        let outcome = match &taken {
            Ok(true) => Outcome::Taken,
            Ok(false) => Outcome::Same,
            Err(_) => Outcome::Refused,
        };
        self.reloads.record(outcome, text, self.clock.now());
        taken
    }

    async fn replace(&self, config: Authentication) -> Result<bool, ConfigurationError> {
        config.may_replace(&self.first)?;
        let before = Arc::clone(&self.current.read());
        if before.config == config {
            return Ok(false);
        }
        let oidc = before.oidc.with(&config.jwt, &self.tasks);
        oidc.ready(|| self.clock.now()).await?;
        before.oidc.forget_all_but(&oidc);
        *self.current.write() = Arc::new(Current { config, oidc });
        Ok(true)
    }
}
