//! The authorizers in their order: the first with an opinion decides.
//!
//! Without webhooks nothing here waits. Source: `k8s.io/apiserver/pkg/authorization/union`.

use std::sync::Arc;

use auth::authorizer::Authorizer as Known;
use auth::rbac::Rules;
use auth::{Attributes, Decision, MASTERS, UserInfo, escalation};
use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;

use super::authorization_metrics::AuthorizationMetrics;
use super::verdict::Verdict;
use super::webhook_authorizer::WebhookAuthorizer;
use crate::authorization_config::{Authorization, Authorizer, Webhook};
use crate::configuration_error::ConfigurationError;

/// The authorizers.
pub(super) struct Chain {
    links: Vec<Link>,
    /// What was configured.
    pub(super) config: Authorization,
}

struct Link {
    authorizer: Asked,
    allowed: Counter,
    denied: Counter,
}

enum Asked {
    Node,
    Rbac,
    AlwaysAllow,
    AlwaysDeny,
    Webhook(Arc<WebhookAuthorizer>),
}

impl Chain {
    /// The authorizers of a configuration. `webhook` makes those that are somebody else's.
    ///
    /// # Errors
    /// That a webhook's client cannot be made.
    pub(super) fn new(
        config: Authorization,
        metrics: &AuthorizationMetrics,
        webhook: impl Fn(&Webhook) -> Result<WebhookAuthorizer, ConfigurationError>,
    ) -> Result<Self, ConfigurationError> {
        let mut links = Vec::new();
        for one in &config.authorizers {
            let [allowed, denied] = metrics.decisions(one.type_name(), one.name());
            let authorizer = match one {
                Authorizer::Node => Asked::Node,
                Authorizer::Rbac => Asked::Rbac,
                Authorizer::AlwaysAllow => Asked::AlwaysAllow,
                Authorizer::AlwaysDeny => Asked::AlwaysDeny,
                Authorizer::Webhook(config) => Asked::Webhook(Arc::new(webhook(config)?)),
            };
            links.push(Link { authorizer, allowed, denied });
        }
        Ok(Self { links, config })
    }

    /// Decides. `NoOpinion` means no.
    pub(super) async fn decide(
        &self,
        known: &RwLock<Known>,
        user: &UserInfo,
        attributes: &Attributes,
    ) -> Verdict {
        if user.is_in(MASTERS) {
            return Decision::Allow(String::new()).into();
        }
        let mut so_far = SoFar::default();
        for link in &self.links {
            let verdict = match &link.authorizer {
                Asked::Webhook(webhook) => Box::pin(webhook.authorize(user, attributes)).await,
                known_here => known_here.decide(&known.read(), user, attributes).into(),
            };
            if let Some(decided) = so_far.take(verdict, link) {
                return decided;
            }
        }
        so_far.verdict()
    }

    /// As [`Self::decide`], for those who cannot wait; `None` if a webhook has to be asked.
    pub(super) fn decide_at_once(
        &self,
        known: &Known,
        user: &UserInfo,
        attributes: &Attributes,
    ) -> Option<Verdict> {
        if user.is_in(MASTERS) {
            return Some(Decision::Allow(String::new()).into());
        }
        let mut so_far = SoFar::default();
        for link in &self.links {
            if matches!(link.authorizer, Asked::Webhook(_)) {
                return None;
            }
            let verdict = link.authorizer.decide(known, user, attributes).into();
            if let Some(decided) = so_far.take(verdict, link) {
                return Some(decided);
            }
        }
        Some(so_far.verdict())
    }

    /// The rules of somebody in a namespace; of webhooks nobody knows any.
    pub(super) fn rules(&self, known: &Known, user: &UserInfo, namespace: &str) -> Rules {
        let mut rules = Rules::default();
        for link in &self.links {
            match &link.authorizer {
                Asked::Rbac => {
                    let found = known.rbac().rules_for(user, namespace);
                    rules.rules.extend(found.rules);
                    rules.errors.extend(found.errors);
                }
                Asked::AlwaysAllow => rules.rules.extend(escalation::everything()),
                Asked::Webhook(_) => {
                    rules.errors.push("webhook authorizer does not support user rule resolution".to_owned());
                }
                Asked::Node | Asked::AlwaysDeny => {}
            }
        }
        rules
    }
}

impl Asked {
    /// What is known here; a webhook has no opinion.
    fn decide(&self, known: &Known, user: &UserInfo, attributes: &Attributes) -> Decision {
        match self {
            Self::Node => known.nodes().authorize(user, attributes),
            Self::Rbac => known.rbac().authorize(user, attributes),
            Self::AlwaysAllow => Decision::Allow(String::new()),
            // As upstream: it does not keep others from having an opinion.
            Self::AlwaysDeny => Decision::NoOpinion("Everything is forbidden.".to_owned()),
            Self::Webhook(_) => Decision::NoOpinion(String::new()),
        }
    }
}

/// What those who have been asked said.
#[derive(Default)]
struct SoFar {
    reasons: Vec<String>,
    errors: Vec<String>,
}

impl SoFar {
    /// The verdict, if this one decides.
    fn take(&mut self, verdict: Verdict, link: &Link) -> Option<Verdict> {
        match &verdict.decision {
            Decision::Allow(_) => link.allowed.inc(),
            Decision::Deny(_) => link.denied.inc(),
            Decision::NoOpinion(reason) => {
                self.reasons.extend((!reason.is_empty()).then(|| reason.clone()));
                self.errors.extend(verdict.error);
                return None;
            }
        };
        Some(verdict)
    }

    fn verdict(self) -> Verdict {
        let error = match self.errors.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            many => Some(format!("[{}]", many.join(", "))),
        };
        Verdict { decision: Decision::NoOpinion(self.reasons.join("\n")), error }
    }
}
