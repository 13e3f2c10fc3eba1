//! Nobody gives away what they do not have: the checks on writes of roles and bindings.
//!
//! Who may `escalate` a role, or `bind` it, is exempt; so is `system:masters`.
//! Source: `pkg/registry/rbac/validation`, the policy-based storages of the RBAC kinds.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};

use crate::rbac::{GROUP, Rbac, RoleError, aggregate, path_matches};
use crate::{Attributes, UserInfo};

/// A forbidden write, with the reason; the text is upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Escalation {
    /// The rules go beyond the user's own.
    #[error("{0}")]
    Beyond(String),
    /// Only who may do everything may make a role whose rules grow on their own.
    #[error("must have cluster-admin privileges to use an aggregationRule")]
    Aggregation,
    /// The role that a binding names is not there, so its rules cannot be compared.
    #[error(transparent)]
    NoRole(#[from] RoleError),
}

/// The rights that somebody is about to give away.
#[derive(Clone, Copy, Debug)]
pub enum Grant<'a> {
    /// The rules of a Role (`namespace` set) or ClusterRole (empty).
    Role {
        /// Where.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
        /// What it gives.
        rules: &'a [PolicyRule],
    },
    /// A ClusterRole that has an `aggregationRule` (or had one, and changes it).
    Aggregation {
        /// Its name.
        name: &'a str,
    },
    /// A RoleBinding (`namespace` set) or ClusterRoleBinding (empty).
    Binding {
        /// Where.
        namespace: &'a str,
        /// To which role.
        role: &'a RoleRef,
    },
}

impl Grant<'_> {
    /// The right that lets its holder give anything: `escalate` for roles, `bind` for bindings.
    pub fn exemption(&self) -> Attributes {
        let (verb, resource, namespace, name) = match self {
            Self::Role { namespace: "", name, .. } | Self::Aggregation { name } => {
                ("escalate", "clusterroles", "", *name)
            }
            Self::Role { namespace, name, .. } => ("escalate", "roles", *namespace, *name),
            // A RoleBinding to a ClusterRole gives it in one namespace only: `bind` is asked for there.
            Self::Binding { namespace, role } => ("bind", resource_of(role), *namespace, role.name.as_str()),
        };
        Attributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_resource: true,
            ..Attributes::default()
        }
    }

    /// Checks a grant of somebody who is not exempt.
    ///
    /// # Errors
    /// If they do not hold all that they would give.
    pub fn check(&self, rbac: &Rbac, user: &UserInfo) -> Result<(), Escalation> {
        match self {
            Self::Role { namespace, rules, .. } => check_rules(rbac, user, namespace, rules),
            Self::Aggregation { .. } => {
                check_rules(rbac, user, "", &everything()).map_err(|_| Escalation::Aggregation)
            }
            Self::Binding { namespace, role } => {
                let rules = rbac.rules_of(role, namespace)?;
                check_rules(rbac, user, namespace, &rules)
            }
        }
    }
}

fn resource_of(role: &RoleRef) -> &'static str {
    if role.kind == "Role" { "roles" } else { "clusterroles" }
}

/// Rules by which everything may be done.
pub fn everything() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule { api_groups: Some(all()), resources: Some(all()), verbs: all(), ..PolicyRule::default() },
        PolicyRule { non_resource_urls: Some(all()), verbs: all(), ..PolicyRule::default() },
    ]
}

fn check_rules(
    rbac: &Rbac,
    user: &UserInfo,
    namespace: &str,
    rules: &[PolicyRule],
) -> Result<(), Escalation> {
    let own = rbac.rules_for(user, namespace);
    let missing = uncovered(&own.rules, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = compact(missing).iter().map(describe).collect();
    lines.sort();
    lines.dedup();
    let mut text = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        lines.join("\n")
    );
    if let Some(errors) = aggregate(&own.errors) {
        text.push_str(&format!("; resolution errors: [{errors}]"));
    }
    Err(Escalation::Beyond(text))
}

/// The parts of `wanted`, each with one verb on one thing, that no rule in `own` covers.
pub fn uncovered(own: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let parts = wanted.iter().flat_map(break_down);
    parts.filter(|part| !own.iter().any(|rule| covers(rule, part))).collect()
}

fn break_down(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |value: &String| Some(vec![value.clone()]);
    let mut parts = Vec::new();
    for verb in &rule.verbs {
        let verbs = vec![verb.clone()];
        for url in rule.non_resource_urls.iter().flatten() {
            let part =
                PolicyRule { non_resource_urls: one(url), verbs: verbs.clone(), ..PolicyRule::default() };
            parts.push(part);
        }
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let part = PolicyRule {
                    api_groups: one(group),
                    resources: one(resource),
                    verbs: verbs.clone(),
                    ..PolicyRule::default()
                };
                match rule.resource_names.as_deref() {
                    Some(names) if !names.is_empty() => {
                        let named = |name| PolicyRule { resource_names: one(name), ..part.clone() };
                        parts.extend(names.iter().map(named));
                    }
                    _ => parts.push(part),
                }
            }
        }
    }
    parts
}

/// Whether one rule covers one part.
fn covers(rule: &PolicyRule, part: &PolicyRule) -> bool {
    let has = |own: &[String], wanted: &[String]| {
        own.iter().any(|one| one == "*") || wanted.iter().all(|one| own.contains(one))
    };
    fn list(values: &Option<Vec<String>>) -> &[String] {
        values.as_deref().unwrap_or_default()
    }
    if !has(&rule.verbs, &part.verbs) {
        return false;
    }
    if let [url] = list(&part.non_resource_urls) {
        return list(&rule.non_resource_urls).iter().any(|own| own == url || path_matches(own, url));
    }
    let resources = list(&rule.resources);
    let has_resource = has(resources, list(&part.resources))
        || list(&part.resources).iter().all(|wanted| match wanted.split_once('/') {
            Some((_, sub)) => resources.contains(&format!("*/{sub}")),
            None => false,
        });
    let names = list(&rule.resource_names);
    let has_names = names.is_empty()
        || (!list(&part.resource_names).is_empty()
            && list(&part.resource_names).iter().all(|name| names.contains(name)));
    has(list(&rule.api_groups), list(&part.api_groups)) && has_resource && has_names
}

/// Parts about resources that differ in their verb only, as one rule. Source: `CompactRules`.
fn compact(parts: Vec<PolicyRule>) -> Vec<PolicyRule> {
    type Thing = [Option<Vec<String>>; 3];
    let mut by_thing: BTreeMap<Thing, Vec<String>> = BTreeMap::new();
    let (mut rules, parts): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| part.non_resource_urls.is_some());
    for part in parts {
        by_thing
            .entry([part.api_groups, part.resources, part.resource_names])
            .or_default()
            .extend(part.verbs);
    }
    let whole = |([api_groups, resources, resource_names], verbs): (Thing, _)| PolicyRule {
        api_groups,
        resources,
        resource_names,
        verbs,
        ..PolicyRule::default()
    };
    rules.extend(by_thing.into_iter().map(whole));
    rules
}

/// Upstream's short form of a rule.
fn describe(rule: &PolicyRule) -> String {
    let mut parts = Vec::new();
    let mut add = |name: &str, values: &[String]| {
        if !values.is_empty() {
            parts.push(format!("{name}:{}", quoted(values)));
        }
    };
    add("APIGroups", rule.api_groups.as_deref().unwrap_or_default());
    add("Resources", rule.resources.as_deref().unwrap_or_default());
    add("NonResourceURLs", rule.non_resource_urls.as_deref().unwrap_or_default());
    add("ResourceNames", rule.resource_names.as_deref().unwrap_or_default());
    add("Verbs", &rule.verbs);
    format!("{{{}}}", parts.join(", "))
}

/// Go's `%q` of a list.
fn quoted(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests;
