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
    rbac.insert_cluster_role(&role("all", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])));
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
        ("all verbs", json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]}]), false),
        ("a path", json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]), false),
        ("nothing", json!([]), true),
    ];
    let authorizer = authorizer();
    for (name, wanted, is_allowed) in rows {
        let result = check_role(&authorizer, &UserInfo::new("dev", &[]), "shop", "r", &rules(wanted.clone()));
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
}

/// Source: `policy_compact_test.go` of upstream's `pkg/registry/rbac/validation`.
#[test]
fn only_verbs_on_one_resource_are_told_together() {
    for (parts, expect) in [
        ("", &[][..]),
        (
            "get /a; post /a",
            &["{NonResourceURLs:[\"/a\"], Verbs:[\"get\"]}", "{NonResourceURLs:[\"/a\"], Verbs:[\"post\"]}"],
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
        let result = check(&authorizer, &UserInfo::new(user, &[]), Grant::Binding { namespace, role: &role });
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

/// Rules in words: verbs, groups, resources and names with commas between, or verbs and paths. Several have a `;` between.
fn rules_in_words(text: &str) -> Vec<PolicyRule> {
    let list = |words: &str| (words != "-").then(|| words.split(',').map(str::to_owned).collect::<Vec<_>>());
    let rule = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let word = |at: usize| words.get(at).and_then(|words| list(words));
        let verbs = word(0).unwrap_or_default();
        if let [_, paths] = words[..] {
            return PolicyRule { verbs, non_resource_urls: list(paths), ..PolicyRule::default() };
        }
        PolicyRule {
            verbs,
            api_groups: word(1),
            resources: word(2),
            resource_names: word(3),
            non_resource_urls: word(4),
        }
    };
    text.split(';').map(str::trim).filter(|text| !text.is_empty()).map(rule).collect()
}

/// Source: `policy_comparator_test.go` of upstream's `component-helpers/auth/rbac/validation`.
#[test]
fn what_is_given_must_be_covered_in_every_part() {
    for (name, own, wanted, missing) in [
        ("the same", "get v1 builds", "get v1 builds", ""),
        ("a subresource of all", "get v1 */scale", "get v1 foo/scale", ""),
        ("of all, another", "get v1 */scale", "get v1 foo/status", "get v1 foo/status"),
        ("of all, but itself", "get v1 foo", "get v1 foo/scale", "get v1 foo/scale"),
        (
            "one by several",
            "delete v1 deployments; delete v1 builds; update v1 builds,deployments",
            "delete,update v1 builds,deployments",
            "",
        ),
        (
            "groups by several",
            "delete g1 deployments; delete g1 builds; update g1 builds,deployments; delete g2 deployments; delete g2 builds; \
             update g2 builds,deployments",
            "delete,update g1,g2 builds,deployments",
            "",
        ),
        (
            "several by one",
            "delete,update g1,g2 builds,deployments",
            "delete g1 deployments; delete g1 builds; update g1 builds,deployments; delete g2 deployments; \
             update g2 builds,deployments",
            "",
        ),
        (
            "all but one verb on one resource",
            "delete,update v1 builds,deployments; delete v1 pods",
            "delete,update v1 builds,deployments,pods",
            "update v1 pods",
        ),
        ("groups by a star", "get * roles", "get group1,group2 roles", ""),
        ("a star by groups", "get dummy-group roles", "get * roles", "get * roles"),
        ("a group's star by a star", "get * roles", "get * roles", ""),
        ("verbs by a star", "* v1 roles", "watch,list v1 roles", ""),
        ("a star by verbs", "get,list,watch,create,update,delete,exec v1 roles", "* v1 roles", "* v1 roles"),
        ("a verb's star by a star", "* v1 roles", "* v1 roles", ""),
        ("resources by a star", "get v1 *", "get v1 resourcegroup:deployments", ""),
        ("a star by resources", "get v1 roles,resourcegroup:deployments", "get v1 *", "get v1 *"),
        ("a resource's star by a star", "get v1 *", "get v1 *", ""),
        ("names by none", "get v1 pods", "get v1 pods foo,bar", ""),
        ("none by names", "get v1 pods foo,bar", "get v1 pods", "get v1 pods"),
        ("names by names", "get v1 pods foo,bar", "get v1 pods foo,baz", "get v1 pods baz"),
        ("a path", "* /apis", "* /apis", ""),
        ("paths by a star", "* *", "* /apis,/apis/v1,/", ""),
        ("what a star below a path is not for", "* /apis/*", "get /apis,/apis/v1", "get /apis"),
        ("what a star below a path is for", "* /apis/*", "get /apis/v1/foo,/apis/v1", ""),
        ("resources and paths", "get v1 builds - /apis", "get v1 builds - /apis", ""),
        ("paths that are lacking", "get v1 builds", "get v1 builds - /apis", "get /apis"),
        ("no verb is nothing", "", "- v1 pods", ""),
        ("no group is nothing", "", "get - pods", ""),
    ] {
        let found = uncovered(&rules_in_words(own), &rules_in_words(wanted));
        assert_eq!(found, rules_in_words(missing), "{name}");
    }
}

/// Source: `TestNonResourceURLCovers`.
#[test]
fn paths_are_covered_by_what_is_before_their_star() {
    for (own, wanted, expect) in [
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
        ("/api/**", "/api/v1", true),
        ("/api**", "/apis", true),
    ] {
        assert_eq!(path_matches(own, wanted), expect, "{own} {wanted}");
    }
}
