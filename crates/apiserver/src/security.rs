//! Who is it, and may they: joins `auth` to requests and to the cached RBAC objects.

use std::sync::Arc;

use auth::token::{Lookup, Tokens};
use auth::{Attributes, Decision, UserInfo};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use machinery::metadata::Metadata;
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use tracing::debug;

use crate::api::{Api, Config};
use crate::kinds::Kind;
use crate::request_info::RequestInfo;
use crate::status::{Error, Result, Subject};
use crate::verbs::Request;

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
}

impl Security {
    /// Reads the configured keys.
    ///
    /// # Errors
    /// What cannot be used.
    pub fn new(config: &Config) -> std::result::Result<Self, String> {
        let tokens = Tokens::new(
            &config.service_account_key,
            &config.service_account_issuer,
            config.service_account_audiences.clone(),
        );
        Ok(Self { tokens: tokens.map_err(|failure| failure.to_string())? })
    }

    /// Signs and checks service account tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// The user behind a certificate or a token; `None` if there is neither.
    ///
    /// # Errors
    /// 401 when what was presented is not valid.
    pub fn authenticate(&self, api: &Api, headers: &HeaderMap, peer: Option<&Peer>) -> Result<Option<UserInfo>> {
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
    pub fn impersonate(&self, api: &Api, user: UserInfo, headers: &HeaderMap) -> Result<UserInfo> {
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
            match self.decide(api, &user, attributes) {
                Decision::Allow(_) => {}
                Decision::NoOpinion(why) | Decision::Deny(why) => {
                    return Err(forbidden(&user, attributes, &why));
                }
            }
        }
        let mut target = UserInfo { name, groups, uid: text("impersonate-uid").unwrap_or_default(), ..UserInfo::default() };
        if let Some(rest) = target.name.strip_prefix("system:serviceaccount:")
            && target.groups.is_empty()
            && let Some((namespace, _)) = rest.split_once(':')
        {
            target.groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        join(&mut target, "system:authenticated");
        Ok(target)
    }

    /// Lets a request pass, or not.
    ///
    /// # Errors
    /// 403 with upstream's text.
    pub fn authorize(&self, api: &Api, user: &UserInfo, info: &RequestInfo) -> Result<()> {
        if user.groups.iter().any(|group| group == "system:masters") || crate::service::is_public(info) {
            return Ok(());
        }
        let attributes = attributes(info);
        match self.decide(api, user, &attributes) {
            Decision::Allow(_) => Ok(()),
            Decision::NoOpinion(why) | Decision::Deny(why) => Err(forbidden(user, &attributes, &why)),
        }
    }

    /// What the authorizers say.
    pub fn decide(&self, _api: &Api, user: &UserInfo, _attributes: &Attributes) -> Decision {
        if user.groups.iter().any(|group| group == "system:masters") {
            return Decision::Allow(String::new());
        }
        Decision::NoOpinion(String::new())
    }

    /// The rules that a user has in a namespace: the status of a SelfSubjectRulesReview.
    pub fn rules(&self, _api: &Api, _user: &UserInfo, _namespace: &str) -> Value {
        serde_json::json!({"resourceRules": [], "nonResourceRules": [], "incomplete": false})
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
    pub fn may_grant(&self, _request: &Request, _object: &Value) -> std::result::Result<(), String> {
        Ok(())
    }
}

fn join(user: &mut UserInfo, group: &str) {
    if !user.groups.iter().any(|known| known == group) {
        user.groups.push(group.to_owned());
    }
}

fn impersonation(name: &str) -> Attributes {
    let is_account = name.starts_with("system:serviceaccount:");
    let (namespace, name, resource) = match name.strip_prefix("system:serviceaccount:").and_then(|n| n.split_once(':')) {
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
        name: resource.name.clone(),
        path: info.path.clone(),
        field_selector: info.query.get("fieldSelector").unwrap_or_default().to_owned(),
        is_resource: true,
    }
}

/// Upstream's 403.
pub fn forbidden(user: &UserInfo, attributes: &Attributes, why: &str) -> Error {
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    if !attributes.is_resource {
        return Error::forbidden_path(&format!(
            "User {:?} cannot {} path {:?}{why}",
            user.name, attributes.verb, attributes.path
        ));
    }
    let resource = if attributes.subresource.is_empty() {
        attributes.resource.clone()
    } else {
        format!("{}/{}", attributes.resource, attributes.subresource)
    };
    let scope = if attributes.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {:?}", attributes.namespace)
    };
    let text = format!(
        "User {:?} cannot {} resource {resource:?} in API group {:?} {scope}{why}",
        user.name, attributes.verb, attributes.group
    );
    Error::forbidden(
        Subject { group: &attributes.group, resource: &attributes.resource },
        &attributes.name,
        &text,
    )
}

/// The default RBAC objects: resource and object.
pub fn default_rbac() -> Vec<(&'static str, Value)> {
    Vec::new()
}
