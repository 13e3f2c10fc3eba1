//! The FlowSchema that a request belongs to. Pure.
//!
//! Source: `flowcontrol.apiserver.k8s.io/v1`, `k8s.io/apiserver/pkg/util/flowcontrol/rule.go`.

use auth::{SERVICE_ACCOUNT_PREFIX, UserInfo};
use machinery::metadata::Metadata;
use serde_json::Value;

use crate::request_info::RequestInfo;
use crate::tree::{items, text};

/// The property that tells the flows of a schema apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// They are one flow.
    None,
    /// Each user is one.
    User,
    /// Each namespace is one.
    Namespace,
}

/// A FlowSchema, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
    /// Lower ones are asked first.
    pub precedence: i64,
    /// The name of its PriorityLevelConfiguration.
    pub level: String,
    /// The property that tells its flows apart.
    pub distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Clone, Debug, PartialEq)]
enum Subject {
    User(String),
    Group(String),
    /// Namespace and name, which may be a star.
    Account(String, String),
}

#[derive(Clone, Debug, PartialEq)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster_scope: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

fn words(object: &Value, field: &str) -> Vec<String> {
    let list = object.get(field).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Schema {
    /// Reads an object.
    pub fn of(object: &Value) -> Self {
        let metadata = Metadata::of(object);
        Self {
            name: metadata.name().to_owned(),
            uid: metadata.uid().to_owned(),
            precedence: object.pointer("/spec/matchingPrecedence").and_then(Value::as_i64).unwrap_or(1000),
            level: text(object, "/spec/priorityLevelConfiguration/name").to_owned(),
            distinguisher: match text(object, "/spec/distinguisherMethod/type") {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: items(object, "/spec/rules").map(Rule::of).collect(),
        }
    }

    /// `true` if a request belongs here.
    pub fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, info))
    }

    /// The flow of the schema that a request is part of.
    pub fn flow<'a>(&self, user: &'a UserInfo, info: &'a RequestInfo) -> &'a str {
        match self.distinguisher {
            Distinguisher::None => "",
            Distinguisher::User => &user.name,
            Distinguisher::Namespace => info.resource.as_ref().map_or("", |resource| &resource.namespace),
        }
    }
}

impl Rule {
    fn of(rule: &Value) -> Self {
        let subject = |subject: &Value| {
            let name = |kind: &str| text(subject, &format!("/{kind}/name")).to_owned();
            match text(subject, "/kind") {
                "User" => Some(Subject::User(name("user"))),
                "Group" => Some(Subject::Group(name("group"))),
                "ServiceAccount" => {
                    let namespace = text(subject, "/serviceAccount/namespace").to_owned();
                    Some(Subject::Account(namespace, name("serviceAccount")))
                }
                _ => None,
            }
        };
        Self {
            subjects: items(rule, "/subjects").filter_map(subject).collect(),
            resources: items(rule, "/resourceRules")
                .map(|rule| ResourceRule {
                    verbs: words(rule, "verbs"),
                    groups: words(rule, "apiGroups"),
                    resources: words(rule, "resources"),
                    namespaces: words(rule, "namespaces"),
                    cluster_scope: rule.get("clusterScope").and_then(Value::as_bool).unwrap_or(false),
                })
                .collect(),
            paths: items(rule, "/nonResourceRules")
                .map(|rule| PathRule { verbs: words(rule, "verbs"), paths: words(rule, "nonResourceURLs") })
                .collect(),
        }
    }

    fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        let is_subject = self.subjects.iter().any(|subject| subject.is(user));
        is_subject
            && match &info.resource {
                Some(_) => self.resources.iter().any(|rule| rule.matches(info)),
                None => self.paths.iter().any(|rule| rule.matches(info)),
            }
    }
}

impl Subject {
    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(name) => name == "*" || user.is_in(name),
            Self::Account(namespace, name) => {
                let own = user.name.strip_prefix(SERVICE_ACCOUNT_PREFIX).and_then(|own| own.split_once(':'));
                own.is_some_and(|(n, account)| n == namespace && (name == "*" || name == account))
            }
        }
    }
}

fn has(list: &[String], value: &str) -> bool {
    list.iter().any(|one| one == "*" || one == value)
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let Some(resource) = &info.resource else { return false };
        let is_scope = if resource.namespace.is_empty() || resource.resource == "namespaces" {
            self.cluster_scope
        } else {
            has(&self.namespaces, &resource.namespace)
        };
        let is_resource = || {
            self.resources.iter().any(|wanted| match wanted.split_once('/') {
                None => wanted == "*" || (resource.subresource.is_empty() && *wanted == resource.resource),
                Some((one, sub)) => {
                    (one == "*" || one == resource.resource) && (sub == "*" || sub == resource.subresource)
                }
            })
        };
        is_scope
            && has(&self.verbs, resource.verb.as_str())
            && has(&self.groups, &resource.group)
            && is_resource()
    }
}

impl PathRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let verb = info.method.as_str();
        let is_verb = self.verbs.iter().any(|one| one == "*" || one.eq_ignore_ascii_case(verb));
        is_verb
            && self.paths.iter().any(|wanted| match wanted.strip_suffix('*') {
                Some(prefix) => wanted == "*" || info.path.starts_with(prefix),
                None => *wanted == info.path,
            })
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn check(rules: &str, user: &UserInfo, (method, path): (Method, &str), expect: bool) {
        let schema: Value = serde_saphyr::from_str(&format!("{{spec: {{rules: [{rules}]}}}}")).unwrap();
        let info = RequestInfo::parse(&method, path, None);
        assert_eq!(Schema::of(&schema).matches(user, &info), expect, "{rules} {path}");
    }

    #[test]
    fn subjects_and_rules_choose() {
        let kubelet = UserInfo::new("system:node:a", &["system:nodes"]);
        let account = UserInfo::service_account("kube-system", "x", "u");
        let nodes = "{subjects: [{kind: Group, group: {name: 'system:nodes'}}], resourceRules: [{verbs: ['*'], apiGroups: \
                     [''], resources: [nodes, nodes/status], clusterScope: true}]}";
        check(nodes, &kubelet, (Method::GET, "/api/v1/nodes/a"), true);
        check(nodes, &kubelet, (Method::PATCH, "/api/v1/nodes/a/status"), true);
        check(nodes, &kubelet, (Method::GET, "/api/v1/nodes/a/proxy"), false);
        check(nodes, &kubelet, (Method::GET, "/api/v1/namespaces/a/pods"), false);
        check(nodes, &account, (Method::GET, "/api/v1/nodes/a"), false);
        let leases = "{subjects: [{kind: ServiceAccount, serviceAccount: {namespace: kube-system, name: '*'}}], \
                      resourceRules: [{verbs: [get], apiGroups: [coordination.k8s.io], resources: [leases], namespaces: ['*']}]}";
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
        check(leases, &account, (Method::GET, lease), true);
        check(leases, &account, (Method::PUT, lease), false);
        check(leases, &kubelet, (Method::GET, lease), false);
        let probes = "{subjects: [{kind: User, user: {name: '*'}}], nonResourceRules: [{verbs: [get], nonResourceURLs: [/healthz, /a/*]}]}";
        check(probes, &kubelet, (Method::GET, "/healthz"), true);
        check(probes, &kubelet, (Method::GET, "/a/b"), true);
        check(probes, &kubelet, (Method::GET, "/livez"), false);
    }
}
