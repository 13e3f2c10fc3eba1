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
mod tests {
    use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
    use serde_json::json;

    use super::*;
    use crate::authorizer::Authorizer;
    use crate::{Decision, MASTERS};

    fn check(authorizer: &Authorizer, user: &UserInfo, grant: Grant<'_>) -> Result<(), Escalation> {
        match authorizer.authorize(user, &grant.exemption()) {
            Decision::Allow(_) => Ok(()),
            _ => grant.check(authorizer.rbac(), user),
        }
    }

    fn check_role(
        authorizer: &Authorizer,
        user: &UserInfo,
        namespace: &str,
        name: &str,
        rules: &[PolicyRule],
    ) -> Result<(), Escalation> {
        check(authorizer, user, Grant::Role { namespace, name, rules })
    }

    fn rules(text: serde_json::Value) -> Vec<PolicyRule> {
        serde_json::from_value(text).unwrap()
    }

    fn authorizer() -> Authorizer {
        let mut rbac = Rbac::new();
        let role = |name: &str, rules: serde_json::Value| -> ClusterRole {
            serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap()
        };
        rbac.insert_cluster_role(&role(
            "dev",
            json!([
                {"apiGroups": ["apps"], "resources": ["deployments", "*/scale"], "verbs": ["get", "create"]},
                {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["*"]},
            ]),
        ));
        rbac.insert_cluster_role(&role(
            "binder",
            json!([{"apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["all"], "verbs": ["bind"]}]),
        ));
        rbac.insert_cluster_role(&role(
            "all",
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
        ));
        for (name, role) in [("dev", "dev"), ("binder", "binder")] {
            let binding: RoleBinding = serde_json::from_value(json!({
                "metadata": {"name": role, "namespace": "shop"},
                "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": GROUP},
                "subjects": [{"kind": "User", "name": name, "apiGroup": GROUP}],
            }))
            .unwrap();
            rbac.insert_role_binding(&binding);
        }
        let mut authorizer = Authorizer::default();
        *authorizer.rbac_mut() = rbac;
        authorizer
    }

    #[test]
    fn what_one_holds_one_may_give_and_nothing_else() {
        let rows = [
            ("held", json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]), true),
            ("any scale", json!([{"apiGroups": ["apps"], "resources": ["x/scale"], "verbs": ["get"]}]), true),
            (
                "named",
                json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"]}]),
                true,
            ),
            ("unnamed", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]), false),
            (
                "another group",
                json!([{"apiGroups": ["batch"], "resources": ["deployments"], "verbs": ["get"]}]),
                false,
            ),
            (
                "another verb",
                json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["delete"]}]),
                false,
            ),
            (
                "all verbs",
                json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]}]),
                false,
            ),
            ("a path", json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]), false),
            ("nothing", json!([]), true),
        ];
        let authorizer = authorizer();
        for (name, wanted, is_allowed) in rows {
            let result =
                check_role(&authorizer, &UserInfo::new("dev", &[]), "shop", "r", &rules(wanted.clone()));
            assert_eq!(result.is_ok(), is_allowed, "{name}: {result:?}");
            let elsewhere =
                check_role(&authorizer, &UserInfo::new("dev", &[]), "other", "r", &rules(wanted.clone()));
            assert_eq!(elsewhere.is_ok(), name == "nothing", "{name} elsewhere");
            let root = UserInfo::new("root", &[MASTERS]);
            assert!(check_role(&authorizer, &root, "shop", "r", &rules(wanted)).is_ok());
        }
    }

    /// A rule in words: verbs, `groups/resources` (`:names`) or paths, each with commas; several rules apart by `; `.
    fn short(text: &str) -> Vec<PolicyRule> {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let rule = |text: &str| {
            let (verbs, what) = text.split_once(' ').unwrap();
            let verbs = list(verbs);
            if what.starts_with(['/', '*']) && !what.contains(' ') {
                return PolicyRule { verbs, non_resource_urls: Some(list(what)), ..PolicyRule::default() };
            }
            let (groups, what) = what.split_once(' ').unwrap();
            let (resources, names) = what.split_once(':').map_or((what, None), |(r, n)| (r, Some(list(n))));
            PolicyRule {
                verbs,
                api_groups: Some(list(groups)),
                resources: Some(list(resources)),
                resource_names: names,
                non_resource_urls: None,
            }
        };
        text.split("; ").filter(|text| !text.is_empty()).map(rule).collect()
    }

    /// Source: `policy_comparator_test.go` of upstream's `component-helpers/auth/rbac/validation`.
    #[test]
    fn rules_cover_what_upstreams_cover() {
        const EACH: &str = "delete g1 deployments; delete g1 builds; update g1 builds,deployments; \
            delete g2 deployments; delete g2 builds; update g2 builds,deployments";
        for (own, wanted, missing) in [
            ("get v1 builds", "get v1 builds", ""),
            ("get v1 */scale", "get v1 foo/scale", ""),
            ("get v1 */scale", "get v1 foo/status", "get v1 foo/status"),
            ("get v1 */scale", "get v1 foo", "get v1 foo"),
            ("get v1 foo/*", "get v1 foo/scale", "get v1 foo/scale"),
            ("get v1 foo", "get v1 foo/scale", "get v1 foo/scale"),
            ("delete v1 a; delete v1 b; update v1 a,b", "delete,update v1 a,b", ""),
            (EACH, "delete,update g1,g2 builds,deployments", ""),
            ("delete,update g1,g2 builds,deployments", EACH, ""),
            ("delete,update v1 a,b; delete v1 pods", "delete,update v1 a,b,pods", "update v1 pods"),
            ("get * roles", "get g1,g2 roles", ""),
            ("get g1 roles", "get * roles", "get * roles"),
            ("get * roles", "get * roles", ""),
            ("* v1 roles", "watch,list v1 roles", ""),
            ("get,list,watch v1 roles", "* v1 roles", "* v1 roles"),
            ("* v1 roles", "* v1 roles", ""),
            ("get v1 *", "get v1 roles", ""),
            ("get v1 *", "get v1 roles/status", ""),
            ("get v1 a,b", "get v1 *", "get v1 *"),
            ("get v1 *", "get v1 *", ""),
            ("get v1 pods", "get v1 pods:foo,bar", ""),
            ("get v1 pods:foo", "get v1 pods:foo,bar", "get v1 pods:bar"),
            ("get v1 pods:foo,bar", "get v1 pods", "get v1 pods"),
            ("* /apis", "* /apis", ""),
            ("* *", "* /apis,/apis/v1,/", ""),
            ("* /apis/*", "get /apis,/apis/v1", "get /apis"),
            ("* /apis/*", "get /apis/v1/foo,/apis/v1", ""),
            ("get /apis", "get,post /apis", "post /apis"),
            ("get v1 builds", "get /apis; get v1 builds", "get /apis"),
            ("* *", "get v1 builds", "get v1 builds"),
            ("", "get v1 builds", "get v1 builds"),
        ] {
            assert_eq!(uncovered(&short(own), &short(wanted)), short(missing), "{own} | {wanted}");
        }
        for (own, path, expect) in [
            ("*", "", true),
            ("*", "/", true),
            ("*", "/api", true),
            ("/*", "", false),
            ("/*", "/", true),
            ("/*", "/foo", true),
            ("/api", "/api", true),
            ("/apis", "/api", false),
            ("/api/v1", "/api", false),
            ("/api/v1", "/api/v1", true),
            ("/api/*", "/api/v1", true),
            ("/api/*", "/api", false),
            ("/api/*/*", "/api/v1", false),
            ("/*/v1/*", "/api/v1", false),
        ] {
            assert_eq!(path_matches(own, path), expect, "{own} {path}");
        }
    }

    /// Source: `policy_compact_test.go` of upstream's `pkg/registry/rbac/validation`.
    #[test]
    fn only_verbs_on_one_resource_are_told_together() {
        for (parts, expect) in [
            ("", &[][..]),
            (
                "get /a; post /a",
                &[
                    "{NonResourceURLs:[\"/a\"], Verbs:[\"get\"]}",
                    "{NonResourceURLs:[\"/a\"], Verbs:[\"post\"]}",
                ],
            ),
            ("get v1 p; list v1 p", &["{APIGroups:[\"v1\"], Resources:[\"p\"], Verbs:[\"get\" \"list\"]}"]),
            (
                "get v1 p; get v1 p:n; list v1 p:n; list v1 p:m",
                &[
                    "{APIGroups:[\"v1\"], Resources:[\"p\"], ResourceNames:[\"m\"], Verbs:[\"list\"]}",
                    "{APIGroups:[\"v1\"], Resources:[\"p\"], ResourceNames:[\"n\"], Verbs:[\"get\" \"list\"]}",
                    "{APIGroups:[\"v1\"], Resources:[\"p\"], Verbs:[\"get\"]}",
                ],
            ),
            (
                "get a p; get b p; get a q",
                &[
                    "{APIGroups:[\"a\"], Resources:[\"p\"], Verbs:[\"get\"]}",
                    "{APIGroups:[\"a\"], Resources:[\"q\"], Verbs:[\"get\"]}",
                    "{APIGroups:[\"b\"], Resources:[\"p\"], Verbs:[\"get\"]}",
                ],
            ),
        ] {
            let mut found: Vec<_> = compact(short(parts)).iter().map(describe).collect();
            found.sort();
            assert_eq!(found, expect, "{parts}");
        }
    }

    #[test]
    fn roles_that_are_not_there_are_told_as_upstream_does() {
        let mut authorizer = authorizer();
        for name in ["gone", "lost"] {
            let binding: RoleBinding = serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "shop"},
                "roleRef": {"kind": "ClusterRole", "name": name, "apiGroup": GROUP},
                "subjects": [{"kind": "User", "name": name, "apiGroup": GROUP}, {"kind": "User", "name": "both", "apiGroup": GROUP}],
            }))
            .unwrap();
            authorizer.rbac_mut().insert_role_binding(&binding);
        }
        let gone = "clusterroles.rbac.authorization.k8s.io \"gone\" not found";
        let lost = "clusterroles.rbac.authorization.k8s.io \"lost\" not found";
        for (user, expect) in [
            ("gone", format!("; resolution errors: [{gone}]")),
            ("both", format!("; resolution errors: [[{gone}, {lost}]]")),
            ("nobody", "Verbs:[\"get\"]}".to_owned()),
        ] {
            let wanted = short("get v1 pods");
            let user = UserInfo::new(user, &[]);
            let error = check_role(&authorizer, &user, "shop", "r", &wanted).unwrap_err().to_string();
            assert!(error.ends_with(&expect), "{error}");
        }
    }

    #[test]
    fn the_message_is_upstreams() {
        let wanted = json!([
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "delete", "patch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        ]);
        let error =
            check_role(&authorizer(), &UserInfo::new("dev", &[]), "shop", "r", &rules(wanted)).unwrap_err();
        let expected = "user \"dev\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions \
                        not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}\n\
                        {APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"delete\" \"patch\"]}";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_binding_needs_the_roles_rules_or_the_verb_bind() {
        let role = |kind: &str, name: &str| RoleRef {
            api_group: GROUP.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        };
        let rows = [
            ("dev", "shop", role("ClusterRole", "dev"), true),
            ("dev", "", role("ClusterRole", "dev"), false),
            ("dev", "shop", role("ClusterRole", "all"), false),
            ("binder", "shop", role("ClusterRole", "all"), true),
            ("binder", "other", role("ClusterRole", "all"), false),
            ("dev", "shop", role("Role", "missing"), false),
        ];
        let authorizer = authorizer();
        for (user, namespace, role, is_allowed) in rows {
            let result =
                check(&authorizer, &UserInfo::new(user, &[]), Grant::Binding { namespace, role: &role });
            assert_eq!(result.is_ok(), is_allowed, "{user} {namespace} {role:?}: {result:?}");
        }
    }

    #[test]
    fn aggregation_is_for_those_who_may_do_everything() {
        let dev = UserInfo::new("dev", &[]);
        let grant = Grant::Aggregation { name: "r" };
        assert_eq!(check(&authorizer(), &dev, grant), Err(Escalation::Aggregation));
        assert!(check(&authorizer(), &UserInfo::new("root", &[MASTERS]), grant).is_ok());
    }
}
