//! The policy of the audit log: the first rule that matches decides. Pure.
//!
//! Source: `audit.k8s.io/v1.Policy`, `k8s.io/apiserver/pkg/audit/policy`.

use auth::UserInfo;
use serde::Deserialize;

use crate::configuration_error::{self, ConfigurationError, check_kind};
use crate::request_info::RequestInfo;

/// The detail of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who did what when.
    Metadata,
    /// And what was sent.
    Request,
    /// And what was answered.
    RequestResponse,
}

impl Level {
    /// As events name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// The stage at which an event is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Stage {
    /// Before anything is done.
    RequestReceived,
    /// When headers are out and the body still comes: watches.
    ResponseStarted,
    /// When all is done.
    ResponseComplete,
    /// When it went wrong in a way that it must not.
    Panic,
}

impl Stage {
    /// As events name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// A policy file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// What is logged where nobody says what.
const DEFAULT: &str = include_str!("default_policy.yaml");

/// The verdict of a policy on one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The detail.
    pub level: Level,
    /// The stages at which nothing is said.
    pub omit_stages: Vec<Stage>,
    /// `true` if `managedFields` are left out.
    pub omit_managed_fields: bool,
}

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let policy: Self = configuration_error::read(text)?;
        check_kind(&policy.kind, &policy.api_version, "Policy", &["audit.k8s.io/v1"])?;
        if policy.rules.is_empty() {
            return Err(ConfigurationError::rule("rules: there must be at least one"));
        }
        Ok(policy)
    }

    /// `true` if any of its rules has something logged.
    pub fn logs_anything(&self) -> bool {
        self.rules.iter().any(|rule| rule.level != Level::None)
    }

    /// The policy that counts unless there is another: who changed what, who read Secrets, who went into Pods. It says
    /// nothing of what was sent or answered, and little of what the cluster does by itself.
    ///
    /// # Errors
    /// None: it is part of the program.
    pub fn by_default() -> Result<Self, ConfigurationError> {
        Self::parse(DEFAULT)
    }

    /// The verdict on a request.
    pub fn judge(&self, user: &UserInfo, info: &RequestInfo) -> Verdict {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(user, info)) else {
            return Verdict::default();
        };
        if rule.level == Level::None {
            return Verdict::default();
        }
        Verdict {
            level: rule.level,
            omit_stages: [self.omit_stages.clone(), rule.omit_stages.clone()].concat(),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Rule {
    fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        let has = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
        let verb = info.resource.as_ref().map_or_else(
            || info.method.as_str().to_ascii_lowercase(),
            |resource| resource.verb.as_str().to_owned(),
        );
        let is_group = self.user_groups.is_empty() || self.user_groups.iter().any(|group| user.is_in(group));
        if !has(&self.users, &user.name) || !is_group || !has(&self.verbs, &verb) {
            return false;
        }
        let is_about_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if is_about_resources {
            return self.matches_resource(info);
        }
        if !self.non_resource_urls.is_empty() {
            return info.resource.is_none()
                && self.non_resource_urls.iter().any(|url| is_path(url, &info.path));
        }
        true
    }

    fn matches_resource(&self, info: &RequestInfo) -> bool {
        let Some(resource) = &info.resource else { return false };
        if !self.namespaces.is_empty() && !self.namespaces.contains(&resource.namespace) {
            return false;
        }
        let combined = match resource.subresource.as_str() {
            "" => resource.resource.clone(),
            subresource => format!("{}/{subresource}", resource.resource),
        };
        let is_one = |wanted: &String| {
            *wanted == combined
                || wanted == "*"
                || wanted.strip_suffix("/*").is_some_and(|one| one == resource.resource)
                || wanted.strip_prefix("*/").is_some_and(|sub| sub == resource.subresource)
        };
        self.resources.is_empty()
            || self.resources.iter().any(|group| {
                let is_named =
                    group.resource_names.is_empty() || group.resource_names.contains(&resource.name);
                group.group == resource.group
                    && (group.resources.is_empty() || (group.resources.iter().any(is_one) && is_named))
            })
    }
}

fn is_path(wanted: &str, path: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => wanted == path,
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ['system:kube-proxy'], verbs: [watch], resources: [{group: '', resources: [endpoints, services]}]}
- {level: None, nonResourceURLs: ['/healthz*', /version]}
- {level: Metadata, resources: [{resources: [secrets, configmaps, tokenreviews]}]}
- {level: Request, resources: [{group: '', resources: [pods/*]}], omitManagedFields: true}
- {level: RequestResponse, namespaces: [kube-system], userGroups: [dev]}
";

    fn check(user: &str, groups: &[&str], (method, path): (Method, &str), expect: Level) {
        let (path, query) = path.split_once('?').map_or((path, None), |(p, q)| (p, Some(q)));
        let info = RequestInfo::parse(&method, path, query);
        let policy = Policy::parse(POLICY).unwrap();
        assert_eq!(policy.judge(&UserInfo::new(user, groups), &info).level, expect, "{user} {path}");
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        check("system:kube-proxy", &[], (Method::GET, "/api/v1/services?watch=1"), Level::None);
        check("x", &[], (Method::GET, "/healthz/ping"), Level::None);
        check("x", &[], (Method::GET, "/api/v1/namespaces/a/secrets/s"), Level::Metadata);
        check("x", &[], (Method::POST, "/api/v1/namespaces/a/pods/p/exec"), Level::Request);
        check("x", &[], (Method::GET, "/api/v1/namespaces/a/pods/p"), Level::Request);
        check("x", &[], (Method::GET, "/api/v1/namespaces/a/services/p"), Level::None);
        check(
            "x",
            &["dev"],
            (Method::GET, "/api/v1/namespaces/kube-system/services"),
            Level::RequestResponse,
        );
        check("x", &["dev"], (Method::GET, "/metrics"), Level::None);
    }

    #[test]
    fn by_default_changes_credentials_and_ways_in_are_logged_and_the_clusters_own_work_is_not() {
        let policy = Policy::by_default().unwrap();
        let check = |user: &str, groups: &[&str], method: Method, path: &str, expect: Level| {
            let (path, query) = path.split_once('?').map_or((path, None), |(p, q)| (p, Some(q)));
            let info = RequestInfo::parse(&method, path, query);
            let verdict = policy.judge(&UserInfo::new(user, groups), &info);
            assert_eq!(verdict.level, expect, "{user} {method} {path}");
            assert!(expect == Level::None || verdict.omit_stages == [Stage::RequestReceived]);
        };
        let (node, nodes) = ("system:node:one", ["system:nodes"]);
        let replicas = "system:serviceaccount:kube-system:replicaset-controller";
        for (user, groups, method, path) in [
            ("jane", &[][..], Method::POST, "/api/v1/namespaces/a/pods"),
            ("jane", &[], Method::DELETE, "/apis/apps/v1/namespaces/a/deployments/d"),
            ("jane", &[], Method::DELETE, "/api/v1/namespaces/a/events/e"),
            ("jane", &[], Method::DELETE, "/apis/events.k8s.io/v1/namespaces/a/events"),
            (
                "jane",
                &[],
                Method::PATCH,
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
            ),
            ("jane", &[], Method::GET, "/api/v1/namespaces/a/secrets"),
            ("jane", &[], Method::GET, "/api/v1/secrets?watch=1"),
            ("jane", &[], Method::POST, "/api/v1/namespaces/a/serviceaccounts/s/token"),
            ("jane", &[], Method::GET, "/api/v1/namespaces/a/pods/p/exec?command=id"),
            ("jane", &[], Method::POST, "/api/v1/namespaces/a/pods/p/exec?command=id"),
            ("jane", &[], Method::GET, "/api/v1/nodes/n/proxy/pods"),
            ("jane", &[], Method::GET, "/api/v1/namespaces/a/services/s/proxy/"),
            ("jane", &[], Method::PUT, "/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval"),
            ("jane", &[], Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews"),
            ("jane", &[], Method::POST, "/apis/example.com/v1/things"),
            ("jane", &[], Method::PATCH, "/api/v1/nodes/one/status"),
            (node, &nodes, Method::GET, "/api/v1/namespaces/a/secrets/s"),
            (node, &nodes, Method::PATCH, "/api/v1/nodes/one"),
            (node, &nodes, Method::DELETE, "/api/v1/namespaces/a/pods/p"),
            (replicas, &[], Method::GET, "/api/v1/secrets"),
            (replicas, &[], Method::POST, "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
            ("system:kube-controller-manager", &[], Method::POST, "/api/v1/namespaces/a/configmaps"),
        ] {
            check(user, groups, method, path, Level::Metadata);
        }
        for (user, groups, method, path) in [
            ("jane", &[][..], Method::GET, "/api/v1/namespaces/a/pods"),
            ("jane", &[], Method::GET, "/api/v1/namespaces/a/configmaps?watch=1"),
            ("jane", &[], Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
            ("system:anonymous", &[], Method::GET, "/readyz"),
            (node, &nodes, Method::PATCH, "/api/v1/nodes/one/status"),
            (node, &nodes, Method::PATCH, "/api/v1/namespaces/a/pods/p/status"),
            (node, &nodes, Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/one"),
            (node, &nodes, Method::POST, "/api/v1/namespaces/a/events"),
            (node, &nodes, Method::POST, "/debug/knarr/spans"),
            (replicas, &[], Method::POST, "/api/v1/namespaces/a/pods"),
            (replicas, &[], Method::PUT, "/apis/apps/v1/namespaces/a/replicasets/r/status"),
            ("system:kube-scheduler", &[], Method::POST, "/api/v1/namespaces/a/pods/p/binding"),
        ] {
            check(user, groups, method, path, Level::None);
        }
    }

    #[test]
    fn another_file_is_refused() {
        for text in ["{}", "{apiVersion: audit.k8s.io/v1, kind: Policy}", "{rules: [{level: Loud}]}", "%"] {
            assert!(Policy::parse(text).is_err(), "{text}");
        }
    }
}
