//! Who is it, and may they: joins `auth` to requests and to the cached RBAC objects.

use std::sync::Arc;

use auth::{Attributes, Decision, UserInfo};
use http::HeaderMap;
use rustls_pki_types::CertificateDer;
use serde_json::Value;

use crate::api::{Api, Config};
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
#[derive(Default)]
pub struct Security {}

impl Security {
    /// Reads the configured keys.
    ///
    /// # Errors
    /// What cannot be used.
    pub fn new(_config: &Config) -> std::result::Result<Self, String> {
        Ok(Self {})
    }

    /// The user behind a certificate or a token; `None` if there is neither.
    ///
    /// # Errors
    /// 401 when what was presented is not valid.
    pub fn authenticate(
        &self,
        _api: &Api,
        _headers: &HeaderMap,
        _peer: Option<&Peer>,
    ) -> Result<Option<UserInfo>> {
        Ok(None)
    }

    /// The user that an authenticated one may act as.
    ///
    /// # Errors
    /// 403 when they may not.
    pub fn impersonate(&self, _api: &Api, user: UserInfo, _headers: &HeaderMap) -> Result<UserInfo> {
        Ok(user)
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
        _api: &Api,
        _token: &str,
        _audiences: &[String],
    ) -> std::result::Result<(UserInfo, Vec<String>), String> {
        Err("invalid bearer token".to_owned())
    }

    /// Whether the user may grant what a role or binding grants.
    ///
    /// # Errors
    /// Upstream's text of what is missing.
    pub fn may_grant(&self, _request: &Request, _object: &Value) -> std::result::Result<(), String> {
        Ok(())
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
