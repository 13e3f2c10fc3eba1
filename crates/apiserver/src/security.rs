//! Who is it, and may they: joins `auth` to requests and to the cached RBAC objects.

mod index;

use std::sync::Arc;

use auth::authorizer::{Authorizer, forbidden_message};
use auth::token::{Lookup, Tokens};
use auth::{Attributes, Decision, UserInfo, escalation};
use base::Clock;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::rbac::v1::PolicyRule;
use machinery::metadata::Metadata;
use parking_lot::RwLock;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use tracing::debug;

use crate::admission::resource_quota::Ledger;
use crate::api::{Api, Config};
use crate::cache::{Cache, CacheEvent};
use crate::kinds::Kind;
use crate::request_info::RequestInfo;
use crate::status::{Error, Result, Subject};

/// The other end of a TLS connection. Only the listener makes one.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The client certificate, checked against the client CA during the handshake.
    pub certificate: Option<Arc<CertificateDer<'static>>>,
    /// Where it comes from.
    pub address: Option<std::net::SocketAddr>,
}

/// Authenticators and authorizers.
pub struct Security {
    tokens: Tokens,
    issuer: String,
    authorizer: RwLock<Authorizer>,
    clock: Clock,
    /// What the objects of namespaces with quotas cost.
    pub quota: Ledger,
}

impl Security {
    /// Reads the configured keys.
    ///
    /// # Errors
    /// What cannot be used.
    pub fn new(config: &Config, clock: Clock) -> std::result::Result<Self, String> {
        let tokens = Tokens::new(
            &config.service_account_key,
            &config.service_account_issuer,
            config.service_account_audiences.clone(),
        );
        Ok(Self {
            tokens: tokens.map_err(|failure| failure.to_string())?,
            issuer: config.service_account_issuer.clone(),
            authorizer: RwLock::new(Authorizer::new()),
            clock,
            quota: Ledger::default(),
        })
    }

    /// Signs and checks service account tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// `/.well-known/openid-configuration`: where the keys of tokens are.
    pub fn openid_configuration(&self) -> Value {
        json!({
            "issuer": self.issuer,
            "jwks_uri": format!("{}/openid/v1/jwks", self.issuer),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// The user behind a certificate or a token; `None` if there is neither.
    ///
    /// # Errors
    /// 401 when what was presented is not valid.
    pub fn authenticate(
        &self,
        api: &Api,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<Option<UserInfo>> {
        let certificate = peer.and_then(|peer| peer.certificate.as_ref());
        if let Some(mut user) = certificate.and_then(|certificate| auth::x509::user_of(certificate)) {
            join(&mut user, "system:authenticated");
            return Ok(Some(user));
        }
        let Some(header) = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
            return Ok(None);
        };
        let Some(token) = header.strip_prefix("Bearer ").or_else(|| header.strip_prefix("bearer ")) else {
            return Ok(None);
        };
        let (mut user, _) = self
            .check_token(api, token.trim(), &[])
            .inspect_err(|why| debug!(%why, "a token was refused"))
            .map_err(|_| Error::unauthorized())?;
        join(&mut user, "system:authenticated");
        Ok(Some(user))
    }

    /// The user that an authenticated one acts as: `Impersonate-User` and its kin.
    ///
    /// # Errors
    /// 403 when they may not.
    pub fn impersonate(&self, user: UserInfo, headers: &HeaderMap) -> Result<UserInfo> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let Some(name) = text("impersonate-user") else { return Ok(user) };
        let groups: Vec<String> = headers
            .get_all("impersonate-group")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .map(str::to_owned)
            .collect();
        let mut wanted = vec![impersonation(&name)];
        wanted.extend(groups.iter().map(|group| Attributes {
            resource: "groups".to_owned(),
            name: group.clone(),
            ..impersonation("")
        }));
        for attributes in &wanted {
            match self.decide(&user, attributes) {
                Decision::Allow(_) => {}
                Decision::NoOpinion(why) | Decision::Deny(why) => {
                    return Err(forbidden(&user, attributes, &why));
                }
            }
        }
        let mut target = UserInfo {
            name,
            groups,
            uid: text("impersonate-uid").unwrap_or_default(),
            ..UserInfo::default()
        };
        if let Some(rest) = target.name.strip_prefix("system:serviceaccount:")
            && target.groups.is_empty()
            && let Some((namespace, _)) = rest.split_once(':')
        {
            target.groups =
                vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        join(&mut target, "system:authenticated");
        Ok(target)
    }

    /// Lets a request pass, or not.
    ///
    /// # Errors
    /// 403 with upstream's text.
    pub fn authorize(&self, user: &UserInfo, info: &RequestInfo) -> Result<()> {
        if user.groups.iter().any(|group| group == "system:masters") || crate::service::is_public(info) {
            return Ok(());
        }
        let attributes = attributes(info);
        match self.decide(user, &attributes) {
            Decision::Allow(_) => Ok(()),
            Decision::NoOpinion(why) | Decision::Deny(why) => Err(forbidden(user, &attributes, &why)),
        }
    }

    /// What the authorizers say.
    pub fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        self.authorizer.read().authorize(user, attributes)
    }

    /// The rules that a user has in a namespace: the status of a SelfSubjectRulesReview.
    pub fn rules(&self, user: &UserInfo, namespace: &str) -> Value {
        let found = self.authorizer.read().rbac().rules_for(user, namespace);
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

    /// The user behind a service account token and the audiences it is valid for.
    ///
    /// # Errors
    /// Why it is not valid.
    pub fn check_token(
        &self,
        api: &Api,
        token: &str,
        audiences: &[String],
    ) -> std::result::Result<(UserInfo, Vec<String>), String> {
        let verified = self.tokens.verify(token, audiences, api.clock.now(), &Existing(api));
        let (user, claims) = verified.map_err(|failure| failure.to_string())?;
        let accepted = if audiences.is_empty() { self.tokens.audiences() } else { audiences };
        let shared = claims.aud.into_iter().filter(|audience| accepted.contains(audience)).collect();
        Ok((user, shared))
    }

    /// Whether the user may grant what a role or binding grants.
    ///
    /// # Errors
    /// Upstream's text of what is missing.
    pub fn may_grant(
        &self,
        user: &UserInfo,
        resource: &str,
        object: &Value,
    ) -> std::result::Result<(), String> {
        let metadata = Metadata::of(object);
        let authorizer = self.authorizer.read();
        let read = |field: &str| object.get(field).cloned().unwrap_or_default();
        let checked = if resource.ends_with("bindings") {
            let Ok(role) = serde_json::from_value(read("roleRef")) else { return Ok(()) };
            escalation::check_binding(&authorizer, user, metadata.namespace(), &role)
        } else {
            if object.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
                escalation::check_aggregation(&authorizer, user, metadata.name())
                    .map_err(|why| why.to_string())?;
            }
            let rules: Option<Vec<PolicyRule>> = serde_json::from_value(read("rules")).unwrap_or_default();
            let rules = rules.unwrap_or_default();
            escalation::check_role(&authorizer, user, metadata.namespace(), metadata.name(), &rules)
        };
        checked.map_err(|why| why.to_string())
    }

    /// Takes over what the cache holds.
    pub fn load(&self, cache: &Cache) {
        for prefix in index::PREFIXES {
            for object in cache.resource(prefix).list(prefix, 0).objects {
                index::insert(&mut self.authorizer.write(), prefix, &object);
            }
        }
    }

    /// Takes note of a change, so that decisions are never behind the cache.
    pub fn observe(&self, prefix: &str, event: &CacheEvent) {
        self.quota.observe(prefix, event, self.clock.now());
        if index::is_relevant(prefix, event) {
            index::apply(&mut self.authorizer.write(), prefix, event);
        }
    }
}

fn join(user: &mut UserInfo, group: &str) {
    if !user.groups.iter().any(|known| known == group) {
        user.groups.push(group.to_owned());
    }
}

fn impersonation(name: &str) -> Attributes {
    let is_account = name.starts_with("system:serviceaccount:");
    let (namespace, name, resource) =
        match name.strip_prefix("system:serviceaccount:").and_then(|n| n.split_once(':')) {
            Some((namespace, account)) if is_account => (namespace, account, "serviceaccounts"),
            _ => ("", name, "users"),
        };
    Attributes {
        verb: "impersonate".to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        is_resource: true,
        ..Attributes::default()
    }
}

/// Whether what a token is bound to is still there.
struct Existing<'a>(&'a Api);

impl Existing<'_> {
    fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let kind = Kind::find("", "v1", resource)?;
        kind.cache(self.0).get(&kind.key(namespace, name)).map(|object| object.value())
    }

    fn uid(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        self.object(resource, namespace, name).map(|object| Metadata::of(&object).uid().to_owned())
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
        namespace: if resource.resource == "namespaces" && resource.group.is_empty() {
            String::new()
        } else {
            resource.namespace.clone()
        },
        name: selected_name(info).unwrap_or_else(|| resource.name.clone()),
        path: info.path.clone(),
        field_selector: info.query.get("fieldSelector").unwrap_or_default().to_owned(),
        is_resource: true,
    }
}

/// A list of the one object that `fieldSelector=metadata.name=` names is a request for that object.
fn selected_name(info: &RequestInfo) -> Option<String> {
    let resource = info.resource.as_ref().filter(|resource| resource.name.is_empty())?;
    if !matches!(resource.verb.as_str(), "list" | "watch" | "deletecollection") {
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
