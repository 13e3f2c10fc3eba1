//! The operations and resources that a webhook's rules name.
//!
//! Source: `RuleWithOperations` of admissionregistration/v1, `predicates/rules`.

use serde_json::Value;

/// The operation on an object, as webhooks are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It is new.
    Create,
    /// It changes.
    Update,
    /// It is removed, or marked to be.
    Delete,
    /// A stream to it is opened.
    Connect,
}

impl Operation {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The target that a rule is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The operation.
    pub operation: Operation,
    /// The group; empty for core.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// The object's namespace, a Namespace's own name; empty for all else that is in none.
    pub namespace: &'a str,
}

impl Target<'_> {
    fn is_namespace(&self) -> bool {
        (self.group, self.version, self.resource) == ("", "v1", "namespaces")
    }
}

/// One rule: all of its parts must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    operations: Vec<Box<str>>,
    groups: Vec<Box<str>>,
    versions: Vec<Box<str>>,
    /// Resource and subresource.
    resources: Vec<(Box<str>, Box<str>)>,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Namespaced,
    Cluster,
    /// A scope of which nothing is known: nothing is in it.
    Unknown,
}

impl Rule {
    /// Reads a rule as it is written.
    pub fn of(rule: &Value) -> Self {
        let texts = |name: &str| -> Vec<Box<str>> {
            let items = rule.get(name).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(Into::into).collect()
        };
        let resources = texts("resources").iter().map(|text| split(text)).collect();
        let scope = match rule.get("scope").and_then(Value::as_str) {
            None | Some("*") => Scope::All,
            Some("Namespaced") => Scope::Namespaced,
            Some("Cluster") => Scope::Cluster,
            Some(_) => Scope::Unknown,
        };
        let (operations, groups, versions) = (texts("operations"), texts("apiGroups"), texts("apiVersions"));
        Self { operations, groups, versions, resources, scope }
    }

    /// `true` if the rule names it.
    pub fn matches(&self, target: &Target<'_>) -> bool {
        self.is_in_scope(target)
            && has(&self.operations, target.operation.as_str())
            && has(&self.groups, target.group)
            && has(&self.versions, target.version)
            && self.resources.iter().any(|(resource, subresource)| {
                is(resource, target.resource) && is(subresource, target.subresource)
            })
    }

    /// A Namespace is in no namespace, whatever its requests say.
    fn is_in_scope(&self, target: &Target<'_>) -> bool {
        let is_cluster = target.is_namespace() || target.namespace.is_empty();
        match self.scope {
            Scope::All => true,
            Scope::Namespaced => !is_cluster,
            Scope::Cluster => is_cluster,
            Scope::Unknown => false,
        }
    }
}

fn split(text: &str) -> (Box<str>, Box<str>) {
    let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
    (resource.into(), subresource.into())
}

fn is(wanted: &str, found: &str) -> bool {
    wanted == "*" || wanted == found
}

fn has(wanted: &[Box<str>], found: &str) -> bool {
    wanted.iter().any(|one| is(one, found))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods(subresource: &'static str) -> Target<'static> {
        let (group, version, resource, namespace) = ("", "v1", "pods", "default");
        Target { operation: Operation::Create, group, version, resource, subresource, namespace }
    }

    fn check(rule: Value, target: Target<'_>, expect: bool) {
        let full = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let mut all = full;
        for (name, value) in rule.as_object().unwrap() {
            all[name] = value.clone();
        }
        assert_eq!(Rule::of(&all).matches(&target), expect, "{rule} {target:?}");
    }

    #[test]
    fn every_part_of_a_rule_must_match() {
        check(json!({}), pods(""), true);
        check(json!({"operations": ["UPDATE", "CREATE"]}), pods(""), true);
        check(json!({"operations": ["*"]}), pods(""), true);
        check(json!({"operations": ["UPDATE"]}), pods(""), false);
        check(json!({"operations": ["create"]}), pods(""), false);
        check(json!({"operations": []}), pods(""), false);
        check(json!({"operations": [null, 7]}), pods(""), false);
        check(json!({"apiGroups": ["apps"]}), pods(""), false);
        check(json!({"apiGroups": ["apps", "*"]}), pods(""), true);
        check(json!({"apiVersions": ["v2"]}), pods(""), false);
        check(json!({"apiVersions": ["*"]}), pods(""), true);
        check(json!({"apiVersions": "*"}), pods(""), false);
    }

    #[test]
    fn resources_and_what_is_below_them() {
        for (resources, on_pods, on_status, on_scale_of_others) in [
            (json!(["pods"]), true, false, false),
            (json!(["*"]), true, false, false),
            (json!(["pods/status"]), false, true, false),
            (json!(["pods/*"]), true, true, false),
            (json!(["*/*"]), true, true, true),
            (json!(["*/scale"]), false, false, true),
            (json!(["pods/"]), true, false, false),
            (json!(["Pods"]), false, false, false),
            (json!(["pod*"]), false, false, false),
            (json!([""]), false, false, false),
        ] {
            check(json!({"resources": resources}), pods(""), on_pods);
            check(json!({"resources": resources}), pods("status"), on_status);
            let scale = Target { resource: "replicationcontrollers", ..pods("scale") };
            check(json!({"resources": resources}), scale, on_scale_of_others);
        }
    }

    #[test]
    fn a_namespace_is_not_namespaced() {
        let all = |scope: &str| json!({"scope": scope, "resources": ["*"]});
        let namespace = Target { resource: "namespaces", ..pods("") };
        let node = Target { resource: "nodes", namespace: "", ..pods("") };
        let other = Target { resource: "namespaces", group: "example.com", ..pods("") };
        for (scope, on_pod, on_namespace, on_node) in [
            ("*", true, true, true),
            ("Namespaced", true, false, false),
            ("Cluster", false, true, true),
            ("Galaxy", false, false, false),
        ] {
            check(all(scope), pods(""), on_pod);
            check(all(scope), namespace, on_namespace);
            check(all(scope), node, on_node);
        }
        check(json!({"scope": "Namespaced", "resources": ["*"], "apiGroups": ["*"]}), other, true);
    }
}
