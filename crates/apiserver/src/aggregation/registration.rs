//! The content of an APIService. Pure.
//!
//! Source: `apiregistration.k8s.io/v1`, `k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::metadata::Metadata;
use serde_json::Value;

use crate::catalogue::priorities::OWN_GROUP;
use crate::service_reference::ServiceReference;
use crate::tree::text;

/// An APIService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// `VERSION.GROUP`.
    pub name: String,
    /// The group; empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// `spec.groupPriorityMinimum`.
    pub group_priority: i64,
    /// `spec.versionPriority`.
    pub version_priority: i64,
    /// The server that serves it, if not this one.
    pub target: Option<Target>,
    /// `true` if the condition `Available` is true.
    pub is_available: bool,
    /// `true` if it says that this server is who serves.
    pub is_said_local: bool,
}

/// The server that serves a group-version elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The Service in front of them.
    pub service: ServiceReference,
    /// The certificates that are believed.
    pub trust: Trust,
}

/// The certificates that are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those of these authorities, PEM.
    Authorities(Vec<u8>),
    /// Those of the host's authorities.
    Host,
    /// Any: `insecureSkipTLSVerify`.
    Anybody,
}

impl Registration {
    /// The content of an APIService.
    ///
    /// `None` for what validation would have refused.
    pub fn of(object: &Value) -> Option<Self> {
        let name = Metadata::of(object).name();
        let (group, version) = (text(object, "/spec/group"), text(object, "/spec/version"));
        if name != format!("{version}.{group}") || version.is_empty() {
            return None;
        }
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        let service = object.pointer("/spec/service").filter(|service| !service.is_null());
        let target = match service.filter(|_| group != OWN_GROUP) {
            None => None,
            Some(service) => Some(Target { service: ServiceReference::of(service)?, trust: trust(object) }),
        };
        Some(Self {
            name: name.to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            group_priority: number("/spec/groupPriorityMinimum"),
            version_priority: number("/spec/versionPriority"),
            target,
            is_available: condition(object).is_some_and(|condition| text(condition, "/status") == "True"),
            is_said_local: condition(object).is_some_and(|condition| text(condition, "/reason") == "Local"),
        })
    }
}

impl Registration {
    /// The path of the group-version.
    pub fn path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }
}

/// The condition `Available` of an APIService.
pub fn condition(object: &Value) -> Option<&Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|condition| text(condition, "/type") == "Available")
}

fn trust(object: &Value) -> Trust {
    let bundle = text(object, "/spec/caBundle");
    if object.pointer("/spec/insecureSkipTLSVerify") == Some(&Value::Bool(true)) {
        return Trust::Anybody;
    }
    match bundle.is_empty() {
        true => Trust::Host,
        // What is no base64 is no certificate either: then nobody is believed.
        false => Trust::Authorities(STANDARD.decode(bundle).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_api_service_says_who_serves_and_whom_to_believe() {
        let check = |spec: Value, expect: Option<Option<Trust>>| {
            let mut object = json!({"metadata": {"name": "v1.example.com"}, "spec": {"group": "example.com", "version": "v1"}});
            object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let found = Registration::of(&object).map(|one| one.target.map(|target| target.trust));
            assert_eq!(found, expect, "{spec}");
        };
        let service = json!({"namespace": "a", "name": "b"});
        check(json!({}), Some(None));
        check(json!({"service": null}), Some(None));
        check(json!({"service": service}), Some(Some(Trust::Host)));
        check(json!({"service": service, "insecureSkipTLSVerify": true}), Some(Some(Trust::Anybody)));
        let authorities = Some(Some(Trust::Authorities(b"pem".to_vec())));
        check(json!({"service": service, "caBundle": "cGVt"}), authorities);
        check(json!({"service": service, "caBundle": "!"}), Some(Some(Trust::Authorities(Vec::new()))));
        check(json!({"service": {"name": "b"}}), None);
        check(json!({"version": "v2"}), None);
        check(json!({"group": "../x"}), None);
    }

    #[test]
    fn nobody_else_serves_registrations() {
        let object = json!({
            "metadata": {"name": "v1.apiregistration.k8s.io"},
            "spec": {"group": OWN_GROUP, "version": "v1", "service": {"namespace": "a", "name": "b"}},
        });
        assert_eq!(Registration::of(&object).unwrap().target, None);
    }
}
