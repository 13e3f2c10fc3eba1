//! Who is it, and may they: joins `auth` to requests and to the cached RBAC objects.

mod access_review;
mod answers;
mod authorization_metrics;
mod bearer;
mod chain;
pub mod credentials;
mod index;
mod oidc;
pub mod peer;
pub mod proof;
mod reloads;
mod reviewed;
mod token_review;
mod webhook_authenticator;
mod webhook_authorizer;

use auth::authorizer::{Authorizer, forbidden_message};
use auth::escalation::Grant;
use auth::token::{Lookup, TokenError, Tokens};
use auth::{Attributes, Decision, UserInfo};
use base::metrics::Metrics as Registry;
use base::{Clock, Random, Tasks};
use http::HeaderMap;
use k8s_openapi::api::rbac::v1::PolicyRule;
use machinery::metadata::Metadata;
use parking_lot::RwLock;
use serde_json::{Value, json};
use tracing::debug;

use crate::config::Config;
use std::sync::Arc;

pub use crate::authentication_config;
use crate::authorization_config::{Authorization, Read};
use crate::cache::{Cache, CacheEvent};
pub use crate::front_proxy;
use crate::front_proxy::FrontProxy;
use crate::impersonation;
use crate::kinds::Kinds;
use crate::request_info::RequestInfo;
use crate::status::{Error, Result, Subject};
use authorization_metrics::AuthorizationMetrics;
use chain::Chain;
pub use chain::Verdict;
pub use peer::Peer;
pub use proof::{Proof, Verified};
use reloads::{Outcome, Reloads};
use webhook_authenticator::WebhookAuthenticator;
use webhook_authorizer::WebhookAuthorizer;

/// What everybody may see, also before there are roles. Source: the default of `--authorization-always-allow-paths`.
const ALWAYS_ALLOWED: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// How long a token is good after what it is bound to was to be deleted. Source: `jwt.DefaultLeeway`.
const DELETION_LEEWAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// That somebody may do what they ask for. Only [`Security::permit`] makes one, and the server for itself.
#[derive(Clone, Debug)]
pub struct Permit {
    user: UserInfo,
    reason: String,
    is_servers: bool,
}

impl Permit {
    /// What the server does on its own account.
    pub(crate) fn server() -> Self {
        Self { user: system_user(), reason: String::new(), is_servers: true }
    }

    /// Who.
    pub fn user(&self) -> &UserInfo {
        &self.user
    }

    /// Whether it is the server's own account, and not that of somebody who may be called the same.
    pub fn is_servers(&self) -> bool {
        self.is_servers
    }

    /// Why they may.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// The API server's own identity. It may everything because it makes the roles that everybody else's rights come from; it
/// is a value in this process and no certificate or token is for it. Source: upstream's loopback client.
pub fn system_user() -> UserInfo {
    UserInfo {
        name: "system:apiserver".to_owned(),
        groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        ..UserInfo::default()
    }
}

/// Authenticators and authorizers.
pub struct Security {
    tokens: Tokens,
    issuer: String,
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
    oidc: oidc::Oidc,
    token_webhook: Option<WebhookAuthenticator>,
    cache: Arc<Cache>,
    builtin: Kinds,
}

/// What is needed to ask others.
pub struct Outside {
    /// Where connections live.
    pub tasks: Tasks,
    /// Chance, for delays.
    pub random: Random,
    /// Where calls are counted.
    pub registry: Registry,
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
    ) -> std::result::Result<Self, String> {
        let chain = chain(config.options.authorization.clone(), &outside)?;
        let token_webhook = config.options.token_webhook.clone().map(|webhook| {
            WebhookAuthenticator::new(webhook, &outside.tasks, outside.random.clone(), &outside.registry)
        });
        let token_webhook = token_webhook.transpose()?;
        let tokens = Tokens::new(
            &config.service_account_key,
            &config.service_account_issuer,
            config.service_account_audiences.clone(),
        );
        Ok(Self {
            tokens: tokens.map_err(|failure| failure.to_string())?,
            issuer: config.service_account_issuer.clone(),
            keys_url: format!("https://{}/openid/v1/jwks", config.advertise_address),
            authorizer: RwLock::new(Authorizer::new()),
            chain: RwLock::new(Arc::new(chain)),
            first: config.options.authorization.clone(),
            reloads: Reloads::new(&outside.registry, "authorization", &config.advertise_address.to_string()),
            outside,
            clock,
            front_proxy: config.options.front_proxy.clone(),
            oidc: oidc::Oidc::new(config.options.oidc.clone()),
            token_webhook,
            cache,
            builtin,
        })
    }

    /// Signs and checks service account tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// `/.well-known/openid-configuration`: where the keys of tokens are, by an address that every reader reaches.
    pub fn openid_configuration(&self) -> Value {
        json!({
            "issuer": self.issuer,
            "jwks_uri": self.keys_url,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// The user behind what was presented, in upstream's order: a front proxy's headers, a client certificate, a
    /// token. The first that is good counts; `None` if nothing was presented.
    ///
    /// # Errors
    /// 401 when something was presented and none of it is good.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<Option<(UserInfo, Proof)>> {
        let proxied = self.front_proxy.as_ref().zip(peer.and_then(|peer| peer.proxy.as_ref()));
        let by_proxy = proxied.filter(|(proxy, name)| proxy.believes(name));
        if let Some((user, name)) = by_proxy.and_then(|(proxy, name)| Some((proxy.user(headers)?, name))) {
            return Ok(Some((known(user), Proof::FrontProxy(name.clone()))));
        }
        if let Some(user) = peer.and_then(|peer| peer.user.as_ref()) {
            return Ok(Some((known(user.clone()), Proof::Certificate)));
        }
        let mut is_refused = peer.is_some_and(|peer| peer.is_refused);
        let tokens = credentials::tokens(headers);
        if !tokens.is_empty() {
            // What this server has made or taken back of tokens and accounts counts at once.
            self.cache.reached(self.cache.policy_revision()).await?;
        }
        for token in tokens {
            is_refused = true;
            let checked = match token {
                Ok(token) => self.check_token(&token, &[]).await,
                Err(malformed) => Err(malformed.0.to_owned()),
            };
            match checked {
                Ok(found) => return Ok(Some((known(found.user), found.proof))),
                Err(why) => debug!(%why, "a token was refused"),
            }
        }
        if is_refused { Err(Error::unauthorized()) } else { Ok(None) }
    }

    /// Takes out of a request's headers what was sent to prove who it is.
    pub fn clear(&self, headers: &mut HeaderMap) {
        credentials::clear(headers, self.front_proxy.as_ref());
    }

    /// The user that an authenticated one acts as: `Impersonate-User` and its kin. `None` if they stay who they are.
    ///
    /// # Errors
    /// 400 when something but no user is asked for, 403 when they may not.
    pub async fn impersonate(&self, user: &UserInfo, headers: &HeaderMap) -> Result<Option<UserInfo>> {
        let Some(wanted) = impersonation::wanted(headers).map_err(Error::bad_request)? else {
            return Ok(None);
        };
        for attributes in &wanted.attributes {
            match self.decide(user, attributes).await.decision {
                Decision::Allow(_) => {}
                Decision::NoOpinion(why) | Decision::Deny(why) => {
                    return Err(forbidden(user, attributes, &why));
                }
            }
        }
        Ok(Some(wanted.user))
    }

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

    /// Lets a request of somebody who is known pass, or not.
    ///
    /// # Errors
    /// As [`Security::authorize`].
    pub async fn permit(&self, user: UserInfo, info: &RequestInfo) -> Result<Permit> {
        let reason = self.authorize(&user, info).await?;
        Ok(Permit { user, reason, is_servers: false })
    }

    /// What the authorizers say. Webhooks among them may take their time.
    pub async fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Verdict {
        let chain = Arc::clone(&self.chain.read());
        chain.decide(&self.authorizer, user, attributes).await
    }

    /// What the authorizers say; `None` if a webhook has to be asked for it.
    pub fn decide_at_once(&self, user: &UserInfo, attributes: &Attributes) -> Option<Verdict> {
        let chain = Arc::clone(&self.chain.read());
        chain.decide_at_once(&self.authorizer.read(), user, attributes)
    }

    /// Has those asked from now on whom a file names; says whether they are others. What webhooks answered before is
    /// forgotten then. `read` reads what the file names.
    ///
    /// # Errors
    /// That it cannot be used. Then nothing changes.
    pub fn reload_authorization(&self, text: &str, read: impl Read) -> std::result::Result<bool, String> {
        let taken = Authorization::parse(text, read).and_then(|config| self.replace(config));
        let outcome = match &taken {
            Ok(true) => Outcome::Taken,
            Ok(false) => Outcome::Same,
            Err(_) => Outcome::Refused,
        };
        self.reloads.record(outcome, text, self.clock.now());
        taken
    }

    fn replace(&self, config: Authorization) -> std::result::Result<bool, String> {
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

    /// Whom a token stands for: service accounts', bootstrap tokens, outside issuers', what the webhook knows.
    ///
    /// # Errors
    /// Why it is not valid.
    pub async fn check_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> std::result::Result<Verified, String> {
        let why = match (self.check_own_token(token, audiences).await, &self.token_webhook) {
            (Ok(found), _) => return Ok(found),
            (Err(why), None) => return Err(why),
            (Err(why), Some(_)) => why,
        };
        self.ask_about(token, audiences).await.ok_or(why)
    }

    /// Whom the webhook knows by a token; `None` also if it cannot be asked.
    async fn ask_about(&self, token: &str, audiences: &[String]) -> Option<Verified> {
        let accepted = if audiences.is_empty() { self.tokens.audiences() } else { audiences };
        let known = self.token_webhook.as_ref()?.known(token, accepted).await.ok()??;
        // A webhook that does not care for audiences means this server.
        let named = if known.audiences.is_empty() { self.tokens.audiences() } else { &known.audiences };
        let audiences: Vec<String> =
            accepted.iter().filter(|audience| named.contains(audience)).cloned().collect();
        let is_for_one = !audiences.is_empty();
        is_for_one.then(|| Verified { user: known.user.clone(), audiences, proof: Proof::Webhook })
    }

    /// Whom a token stands for that this server can check.
    async fn check_own_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> std::result::Result<Verified, String> {
        let accepted = if audiences.is_empty() { self.tokens.audiences() } else { audiences };
        let now = self.clock.now();
        let verified = self.tokens.verify(token, audiences, now, &Existing(&self.builtin, now));
        let why = match verified {
            Ok((user, claims)) => {
                let audiences =
                    claims.aud.into_iter().filter(|audience| accepted.contains(audience)).collect();
                return Ok(Verified { user, audiences, proof: Proof::BoundToken });
            }
            Err(TokenError::Audience { audiences }) => {
                return Err(format!(
                    "token audiences {audiences:?} is invalid for the target audiences {accepted:?}"
                ));
            }
            Err(why) => why,
        };
        // What else there is means the API server itself, and nobody else.
        let own: Vec<String> =
            self.tokens.audiences().iter().filter(|audience| accepted.contains(audience)).cloned().collect();
        if own.is_empty() {
            return Err("invalid bearer token".to_owned());
        }
        let verified = |user, proof| Verified { user, audiences: own.clone(), proof };
        if let Some(user) = self.of_secret(token).await? {
            return Ok(verified(user, Proof::SecretToken));
        }
        if let Some(user) = bearer::bootstrap(&self.builtin, token, now) {
            return Ok(verified(user, Proof::BootstrapToken));
        }
        match self.oidc.user(token, now).await {
            Some(Ok((user, issuer))) => Ok(verified(user, Proof::Oidc(issuer))),
            Some(Err(why)) => {
                debug!(%why, "an issuer's token was refused");
                Err("invalid bearer token".to_owned())
            }
            None => {
                debug!(%why, "a token was refused");
                Err("invalid bearer token".to_owned())
            }
        }
    }

    /// The service account of a token that lies in a Secret. The Secret may be so new that only the store knows it; anybody
    /// may send anything, and only what our key has signed is worth a question to the store.
    async fn of_secret(&self, token: &str) -> std::result::Result<Option<UserInfo>, String> {
        let Ok(claims) = self.tokens.verify_legacy(token) else { return Ok(None) };
        if let Some(user) = bearer::legacy(&self.builtin, &claims, token) {
            return Ok(Some(user));
        }
        self.cache.fresh().await.map_err(|failure| failure.to_string())?;
        Ok(bearer::legacy(&self.builtin, &claims, token))
    }

    /// Whether the user may grant what a role or binding grants.
    ///
    /// # Errors
    /// Upstream's text of what is missing.
    pub async fn may_grant(
        &self,
        user: &UserInfo,
        resource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> std::result::Result<(), String> {
        let metadata = Metadata::of(object);
        let (namespace, name) = (metadata.namespace(), metadata.name());
        let read = |field: &str| object.get(field).cloned().unwrap_or_default();
        if resource.ends_with("bindings") {
            let role = serde_json::from_value(read("roleRef"))
                .map_err(|why| format!("roleRef cannot be read: {why}"))?;
            return self.may(user, Grant::Binding { namespace, role: &role }).await;
        }
        let aggregates = |object: &Value| object.get("aggregationRule").is_some_and(|rule| !rule.is_null());
        if aggregates(object) || old.is_some_and(aggregates) {
            self.may(user, Grant::Aggregation { name }).await?;
        }
        let rules: Option<Vec<PolicyRule>> =
            serde_json::from_value(read("rules")).map_err(|why| format!("rules cannot be read: {why}"))?;
        self.may(user, Grant::Role { namespace, name, rules: &rules.unwrap_or_default() }).await
    }

    async fn may(&self, user: &UserInfo, grant: Grant<'_>) -> std::result::Result<(), String> {
        if let Decision::Allow(_) = self.decide(user, &grant.exemption()).await.decision {
            return Ok(());
        }
        grant.check(self.authorizer.read().rbac(), user).map_err(|why| why.to_string())
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
fn chain(config: Authorization, outside: &Outside) -> std::result::Result<Chain, String> {
    let metrics = outside.registry.part(AuthorizationMetrics::new);
    Chain::new(config, &metrics, |webhook| {
        let client = webhook.target.client(&outside.tasks)?;
        Ok(WebhookAuthorizer::new(webhook, client, Arc::clone(&metrics), outside.random.clone()))
    })
}

/// Whoever is known is in `system:authenticated`, unless a proxy says that they are not.
fn known(mut user: UserInfo) -> UserInfo {
    let is_said = user.is_in(auth::AUTHENTICATED) || user.is_in(auth::UNAUTHENTICATED);
    if user.name != "system:anonymous" && !is_said {
        user.groups.push(auth::AUTHENTICATED.to_owned());
    }
    user
}

/// Whether what a token is bound to is still there.
struct Existing<'a>(&'a Kinds, jiff::Timestamp);

impl Existing<'_> {
    fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let kind = self.0.find("", "v1", resource)?;
        kind.cache().get(&kind.key(namespace, name)).map(|object| object.value())
    }

    /// The uid of what is there, and was not to be deleted long ago: finalizers do not keep a token alive.
    fn uid(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        let object = self.object(resource, namespace, name)?;
        let metadata = Metadata::of(&object);
        let is_over = |deletion: jiff::Timestamp| deletion + DELETION_LEEWAY < self.1;
        (!metadata.deletion_timestamp().is_some_and(is_over)).then(|| metadata.uid().to_owned())
    }
}

impl Lookup for Existing<'_> {
    fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String> {
        let account = self.object("serviceaccounts", namespace, name)?;
        let metadata = Metadata::of(&account);
        (!metadata.is_terminating()).then(|| metadata.uid().to_owned())
    }

    fn pod_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("pods", namespace, name)
    }

    fn secret_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("secrets", namespace, name)
    }

    fn node_uid(&self, name: &str) -> Option<String> {
        self.uid("nodes", "", name)
    }
}

/// A request as authorizers see it.
pub fn attributes(info: &RequestInfo) -> Attributes {
    let Some(resource) = &info.resource else {
        return Attributes {
            verb: info.method.as_str().to_ascii_lowercase(),
            path: info.path.clone(),
            ..Attributes::default()
        };
    };
    Attributes {
        verb: resource.verb.as_str().to_owned(),
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.resource.clone(),
        subresource: resource.subresource.clone(),
        namespace: resource.namespace.clone(),
        name: selected_name(info).unwrap_or_else(|| resource.name.clone()),
        path: info.path.clone(),
        field_selector: info.query.get("fieldSelector").unwrap_or_default().to_owned(),
        label_selector: label_selector(info).to_owned(),
        is_resource: true,
    }
}

fn is_of_many(verb: &str) -> bool {
    matches!(verb, "list" | "watch" | "deletecollection")
}

/// What labels a request for many objects asks for.
fn label_selector(info: &RequestInfo) -> &str {
    let is_asked = info.resource.as_ref().is_some_and(|resource| is_of_many(resource.verb.as_str()));
    let asked = is_asked.then(|| info.query.get("labelSelector")).flatten();
    asked.unwrap_or_default()
}

/// A list of the one object that `fieldSelector=metadata.name=` names is a request for that object.
fn selected_name(info: &RequestInfo) -> Option<String> {
    let resource = info.resource.as_ref().filter(|resource| resource.name.is_empty())?;
    if !is_of_many(resource.verb.as_str()) {
        return None;
    }
    let selector = machinery::fields::Selector::parse(info.query.get("fieldSelector")?).ok()?;
    selector.required("metadata.name").map(str::to_owned)
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
