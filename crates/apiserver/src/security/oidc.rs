//! Tokens of outside issuers: who made them, whom they stand for.
//!
//! Keys are asked for when a token needs them, and when a configuration is to take the place of another one.
//! Source: `plugin/pkg/authenticator/token/oidc`, `pkg/kubeapiserver/authenticator/config.go`.

mod elsewhere;
mod error;
mod fetch;
mod keys;
mod metrics;

use std::sync::Arc;
use std::time::Duration;

use auth::UserInfo;
use auth::oidc::issuer_of;
use base::Tasks;
use futures::future::try_join_all;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::authentication_config::JwtAuthenticator;
use crate::configuration_error::ConfigurationError;
use elsewhere::Elsewhere;
pub(super) use error::IssuerError;
use keys::RemoteKeys;
pub(super) use metrics::JwtMetrics;

/// How long the issuers of a configuration that is to count have to tell their keys. Source:
/// `UpdateAuthenticationConfigTimeout`.
const READY_MAX: Duration = Duration::from_secs(60);
/// How soon they are asked again.
const READY_RETRY: Duration = Duration::from_secs(10);

/// The configured issuers.
pub(super) struct Oidc {
    issuers: Vec<Trusted>,
    metrics: Arc<JwtMetrics>,
}

struct Trusted {
    authenticator: Arc<JwtAuthenticator>,
    keys: Arc<RemoteKeys>,
    elsewhere: Elsewhere,
}

impl Oidc {
    /// Issuers that have told nothing yet.
    pub(super) fn new(all: &[Arc<JwtAuthenticator>], tasks: &Tasks, metrics: &Arc<JwtMetrics>) -> Self {
        Self { issuers: Vec::new(), metrics: Arc::clone(metrics) }.with(all, tasks)
    }

    /// Other issuers; those that are here already are not asked again.
    pub(super) fn with(&self, all: &[Arc<JwtAuthenticator>], tasks: &Tasks) -> Self {
        let trusted = |authenticator: &Arc<JwtAuthenticator>| {
            let issuer = &authenticator.issuer;
            let known = self.issuers.iter().find(|known| known.authenticator.issuer == *issuer);
            let keys = known.map(|known| Arc::clone(&known.keys));
            let metrics = Some(Arc::clone(&self.metrics));
            let keys = keys.unwrap_or_else(|| RemoteKeys::new(issuer.clone(), tasks.clone(), metrics));
            let elsewhere = Elsewhere::new(authenticator, tasks.clone());
            Trusted { authenticator: Arc::clone(authenticator), keys, elsewhere }
        };
        Self { issuers: all.iter().map(trusted).collect(), metrics: Arc::clone(&self.metrics) }
    }

    /// Waits until each issuer has told its keys.
    ///
    /// # Errors
    /// Which one does not, and why.
    pub(super) async fn ready(&self, now: impl Fn() -> Timestamp) -> Result<(), ConfigurationError> {
        let end = Instant::now() + READY_MAX;
        loop {
            let told = self.issuers.iter().map(|trusted| async {
                let url = &trusted.authenticator.issuer.url;
                trusted.keys.told(now()).await.map_err(ConfigurationError::of(format!("issuer {url:?}")))
            });
            match try_join_all(told).await {
                Err(why) if Instant::now() + READY_RETRY > end => return Err(why),
                Err(_) => tokio::time::sleep(READY_RETRY).await,
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Forgets what was counted of issuers that are not among these.
    pub(super) fn forget_all_but(&self, others: &Self) {
        let url = |trusted: &Trusted| trusted.authenticator.issuer.url.clone();
        for gone in
            self.issuers.iter().map(url).filter(|gone| !others.issuers.iter().any(|one| url(one) == *gone))
        {
            self.metrics.forget(&gone);
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
        if self.issuers.is_empty() {
            return None;
        }
        let name = issuer_of(token)?;
        let trusted = self.issuers.iter().find(|trusted| trusted.authenticator.issuer.url == name)?;
        let begun = Instant::now();
        let user = trusted.user(token, now).await;
        self.metrics.authenticated(&name, user.is_ok(), begun.elapsed());
        Some(user.map(|user| (user, name)))
    }
}

impl Trusted {
    async fn user(&self, token: &str, now: Timestamp) -> Result<UserInfo, IssuerError> {
        let mut claims = self.keys.verify(token, now).await?;
        self.elsewhere.complete(&mut claims, token, now).await?;
        Ok(self.authenticator.mapping.user(&claims)?)
    }
}

#[cfg(test)]
mod tests {
    use base::metrics::Metrics as Registry;

    use super::*;
    use crate::authentication_config::Authentication;

    #[tokio::test(start_paused = true)]
    async fn an_issuer_that_tells_nothing_is_waited_for_and_not_for_ever() {
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n\
                    - issuer: {url: 'https://127.0.0.1:1', audiences: [a]}\n  \
                    claimMappings: {username: {claim: sub, prefix: ''}}\n";
        let config = Authentication::parse(text, "").unwrap();
        let metrics = Arc::new(JwtMetrics::new(&Registry::new(), "server"));
        let oidc = Oidc::new(&config.jwt, &Tasks::new(), &metrics);
        let (begun, start) = (Instant::now(), Timestamp::UNIX_EPOCH);
        let why = oidc.ready(|| start + begun.elapsed()).await.unwrap_err();
        assert!(base::error_chain(&why).starts_with("issuer \"https://127.0.0.1:1\": "), "{why}");
        let waited = begun.elapsed();
        assert!(waited >= READY_MAX && waited < 3 * READY_MAX, "{waited:?}");
    }
}
