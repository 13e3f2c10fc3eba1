//! Authentication and authorization: joins `auth` to requests and to the cached RBAC objects.

mod attributes;
mod authentication;
mod authorization;
mod permit;

mod bearer;
pub mod credentials;
pub mod peer;
pub mod proof;
pub mod token_uses;

mod issuers;
mod oidc;
mod token_review;
mod webhook_authenticator;

mod access_review;
mod authorization_metrics;
mod chain;
mod index;
mod verdict;
mod webhook_authorizer;

mod answer_cache;
mod reloads;
mod reviewed;

use std::sync::Arc;

use auth::authorizer::Authorizer;
use auth::token::Tokens;
use base::metrics::Metrics as Registry;
use base::{Clock, Random, Tasks};
use parking_lot::RwLock;
use serde_json::{Value, json};

pub use crate::authentication_config;
use crate::authorization_config::Authorization;
use crate::cache::Cache;
use crate::config::Config;
use crate::configuration_error::ConfigurationError;
pub use crate::front_proxy;
use crate::front_proxy::FrontProxy;
use crate::kinds::Kinds;
pub use attributes::attributes;
pub use authorization::forbidden;
use chain::Chain;
use issuers::Issuers;
pub use peer::Peer;
pub use permit::{Permit, system_user};
pub use proof::{Proof, Verified};
use reloads::Reloads;
use token_uses::Uses;
pub use verdict::Verdict;
use webhook_authenticator::WebhookAuthenticator;

/// Authenticators and authorizers.
pub struct Security {
    tokens: Tokens,
    /// Where the keys of our tokens are read.
    keys_url: String,
    authorizer: RwLock<Authorizer>,
    chain: RwLock<Arc<Chain>>,
    /// What the server was started with.
    first: Authorization,
    reloads: Reloads,
    outside: Outside,
    clock: Clock,
    front_proxy: Option<FrontProxy>,
    issuers: Issuers,
    token_webhook: Option<WebhookAuthenticator>,
    uses: Uses,
    cache: Arc<Cache>,
    builtin: Kinds,
}

/// The means of asking others.
pub struct Outside {
    /// The tasks that connections live in.
    pub tasks: Tasks,
    /// Chance, for delays.
    pub random: Random,
    /// The registry that calls are counted in.
    pub registry: Registry,
}

/// What signs and checks the tokens of ServiceAccounts: the cluster's own, as far as operators have not said otherwise.
fn tokens(config: &Config) -> Result<Tokens, auth::token::TokenError> {
    let said = &config.options.service_accounts;
    let key = said.key.as_ref().unwrap_or(&config.service_account_key);
    let issuer = said.issuers.first().unwrap_or(&config.service_account_issuer);
    let audiences = match (said.audiences.as_slice(), said.issuers.as_slice()) {
        ([], []) => &config.service_account_audiences,
        ([], issuers) => issuers,
        (audiences, _) => audiences,
    };
    Ok(Tokens::new(key, issuer, audiences.to_vec())?.believing(&said.issuers, &said.believed))
}

impl Security {
    /// Reads the configured keys.
    ///
    /// # Errors
    /// What cannot be used.
    pub fn new(
        config: &Config,
        clock: Clock,
        (cache, builtin): (Arc<Cache>, Kinds),
        outside: Outside,
    ) -> Result<Self, ConfigurationError> {
        let chain = authorization::chain(config.options.authorization.clone(), &outside)?;
        let token_webhook = config.options.token_webhook.clone().map(|webhook| {
            WebhookAuthenticator::new(webhook, &outside.tasks, outside.random.clone(), &outside.registry)
        });
        let token_webhook = token_webhook.transpose()?;
        let (shared, server) = ((outside.tasks.clone(), clock.clone()), config.advertise_address.to_string());
        let issuers = Issuers::new(config.options.authentication.clone(), shared, &outside.registry, &server);
        let tokens = tokens(config).map_err(ConfigurationError::unusable)?;
        let own_url = || format!("https://{}/openid/v1/jwks", config.advertise_address);
        let keys_url = config.options.service_accounts.jwks_uri.clone().unwrap_or_else(own_url);
        Ok(Self {
            tokens,
            keys_url,
            authorizer: RwLock::new(Authorizer::new()),
            chain: RwLock::new(Arc::new(chain)),
            first: config.options.authorization.clone(),
            reloads: Reloads::new(&outside.registry, "authorization", &server),
            outside,
            clock,
            front_proxy: config.options.front_proxy.clone(),
            issuers,
            token_webhook,
            uses: Uses::default(),
            cache,
            builtin,
        })
    }

    /// Signs and checks service account tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// The tokens in Secrets that were used today for the first time.
    pub fn uses(&self) -> &Uses {
        &self.uses
    }

    /// `/.well-known/openid-configuration`: where the keys of tokens are, by an address that every reader reaches. Nothing if
    /// the issuer is none that others could ask. Source: `pkg/serviceaccount/openidmetadata.go`.
    pub fn openid_configuration(&self) -> Option<Value> {
        let issuer = self.tokens.issuer();
        let can_be_asked = issuer.starts_with("https://") && !issuer.contains(['?', '#']);
        can_be_asked.then(|| {
            json!({
                "issuer": issuer,
                "jwks_uri": self.keys_url,
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": self.tokens.algorithms(),
            })
        })
    }
}
