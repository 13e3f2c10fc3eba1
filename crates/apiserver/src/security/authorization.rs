//! May they: the authorizers in their order, and what they know.

use std::sync::Arc;

use auth::authorizer::{Authorizer, forbidden_message};
use auth::escalation::{Escalation, Grant};
use auth::{Attributes, Decision, UserInfo};
use k8s_openapi::api::rbac::v1::PolicyRule;
use machinery::metadata::Metadata;
use serde_json::{Value, json};

use super::authorization_metrics::AuthorizationMetrics;
use super::chain::Chain;
use super::reloads::Outcome;
use super::webhook_authorizer::WebhookAuthorizer;
use super::{Outside, Security, Verdict, attributes, index};
use crate::authorization_config::Authorization;
use crate::cache::{Cache, CacheEvent};
use crate::configuration_error::{ConfigurationError, ReadFile};
use crate::request_info::RequestInfo;
use crate::status::{Error, Result, Subject};

/// What everybody may see, also before there are roles. Source: the default of `--authorization-always-allow-paths`.
const ALWAYS_ALLOWED: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// A role or binding that somebody may not write.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// Nobody knows what it grants.
    #[error("{field} cannot be read: {source}")]
    Unreadable {
        /// The field that says so.
        field: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// It grants more than they have.
    #[error(transparent)]
    Escalation(#[from] Escalation),
}

impl GrantError {
    fn unreadable(field: &'static str) -> impl FnOnce(serde_json::Error) -> Self {
        move |source| Self::Unreadable { field, source }
    }
}

impl Security {
    /// Lets a request pass, or not; answers why it may.
    ///
    /// # Errors
    /// 403 with upstream's text; 500 if somebody could not be asked who might have let it pass.
    pub async fn authorize(&self, user: &UserInfo, info: &RequestInfo) -> Result<String> {
        let is_read = matches!(info.method, http::Method::GET | http::Method::HEAD);
        let is_always_allowed = is_read && ALWAYS_ALLOWED.contains(&info.path.as_str());
        if user.is_in(auth::MASTERS) || is_always_allowed {
            return Ok(String::new());
        }
        let attributes = attributes(info);
        let Verdict { decision, error } = self.decide(user, &attributes).await;
        match (decision, error) {
            (Decision::Allow(why), _) => Ok(why),
            (_, Some(why)) => Err(Error::internal(why)),
            (Decision::NoOpinion(why) | Decision::Deny(why), None) => Err(forbidden(user, &attributes, &why)),
        }
    }

    /// The decision of the authorizers. Webhooks among them may take their time.
    pub async fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Verdict {
        let chain = Arc::clone(&self.chain.read());
        chain.decide(&self.authorizer, user, attributes).await
    }

    /// The decision of the authorizers; `None` if a webhook has to be asked for it.
    pub fn decide_at_once(&self, user: &UserInfo, attributes: &Attributes) -> Option<Verdict> {
        let chain = Arc::clone(&self.chain.read());
        chain.decide_at_once(&self.authorizer.read(), user, attributes)
    }

    /// Has those asked from now on whom a file names; says whether they are others. What webhooks answered before is
    /// forgotten then. `read` reads what the file names.
    ///
    /// # Errors
    /// That it cannot be used. Then nothing changes.
    pub fn reload_authorization(&self, text: &str, read: impl ReadFile) -> Result<bool, ConfigurationError> {
        let taken = Authorization::parse(text, read).and_then(|config| self.replace_authorization(config));
        let outcome = match &taken {
            Ok(true) => Outcome::Taken,
            Ok(false) => Outcome::Same,
            Err(_) => Outcome::Refused,
        };
        self.reloads.record(outcome, text, self.clock.now());
        taken
    }

    /// Has those asked from now on whom flags name, whose files have changed; says whether they are others.
    ///
    /// # Errors
    /// As [`Self::reload_authorization`].
    pub fn replace_authorization(&self, config: Authorization) -> Result<bool, ConfigurationError> {
        config.may_replace(&self.first)?;
        if self.chain.read().config == config {
            return Ok(false);
        }
        let chain = chain(config, &self.outside)?;
        *self.chain.write() = Arc::new(chain);
        Ok(true)
    }

    /// The rules that a user has in a namespace: the status of a SelfSubjectRulesReview.
    pub fn rules(&self, user: &UserInfo, namespace: &str) -> Value {
        let found = self.chain.read().rules(&self.authorizer.read(), user, namespace);
        let (mut resources, mut others) = (Vec::new(), Vec::new());
        for rule in &found.rules {
            if rule.non_resource_urls.as_ref().is_some_and(|urls| !urls.is_empty()) {
                others.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
            } else {
                resources.push(json!({
                    "verbs": rule.verbs,
                    "apiGroups": rule.api_groups,
                    "resources": rule.resources,
                    "resourceNames": rule.resource_names,
                }));
            }
        }
        let mut status = json!({"resourceRules": resources, "nonResourceRules": others, "incomplete": !found.errors.is_empty()});
        if !found.errors.is_empty() {
            status["evaluationError"] = found.errors.join(", ").into();
        }
        status
    }

    /// The decision whether the user may grant what a role or binding grants.
    ///
    /// # Errors
    /// Upstream's text of what is missing.
    pub async fn may_grant(
        &self,
        user: &UserInfo,
        resource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), GrantError> {
        let metadata = Metadata::of(object);
        let (namespace, name) = (metadata.namespace(), metadata.name());
        let read = |field: &str| object.get(field).cloned().unwrap_or_default();
        if resource.ends_with("bindings") {
            let role = serde_json::from_value(read("roleRef")).map_err(GrantError::unreadable("roleRef"))?;
            return self.may(user, Grant::Binding { namespace, role: &role }).await;
        }
        let aggregates = |object: &Value| object.get("aggregationRule").is_some_and(|rule| !rule.is_null());
        if aggregates(object) || old.is_some_and(aggregates) {
            self.may(user, Grant::Aggregation { name }).await?;
        }
        let rules: Option<Vec<PolicyRule>> =
            serde_json::from_value(read("rules")).map_err(GrantError::unreadable("rules"))?;
        self.may(user, Grant::Role { namespace, name, rules: &rules.unwrap_or_default() }).await
    }

    async fn may(&self, user: &UserInfo, grant: Grant<'_>) -> Result<(), GrantError> {
        if let Decision::Allow(_) = self.decide(user, &grant.exemption()).await.decision {
            return Ok(());
        }
        Ok(grant.check(self.authorizer.read().rbac(), user)?)
    }

    /// Takes over what the cache holds.
    pub fn load(&self, cache: &Cache) {
        let mut authorizer = Authorizer::new();
        for prefix in index::PREFIXES {
            for object in cache.resource(prefix).list(prefix, 0).objects {
                if let Some(insert) = index::insertion(prefix, &object) {
                    insert(&mut authorizer);
                }
            }
        }
        *self.authorizer.write() = authorizer;
    }

    /// Takes note of a change, so that decisions are never behind the cache.
    pub fn observe(&self, prefix: &str, event: &CacheEvent) {
        if let Some(update) = index::update(prefix, event) {
            update(&mut self.authorizer.write());
        }
    }
}

/// The authorizers of a configuration, and clients for those that are somebody else's.
pub(super) fn chain(config: Authorization, outside: &Outside) -> Result<Chain, ConfigurationError> {
    let metrics = outside.registry.part(AuthorizationMetrics::new);
    Chain::new(config, &metrics, |webhook| {
        let client = webhook.target.client(&outside.tasks)?;
        Ok(WebhookAuthorizer::new(webhook, client, Arc::clone(&metrics), outside.random.clone()))
    })
}

/// Upstream's 403.
pub fn forbidden(user: &UserInfo, attributes: &Attributes, why: &str) -> Error {
    let text = forbidden_message(user, attributes, why);
    if !attributes.is_resource {
        return Error::forbidden_path(&text);
    }
    Error::forbidden(
        Subject { group: &attributes.group, resource: &attributes.resource },
        &attributes.name,
        &text,
    )
}
