use serde_json::json;

use super::*;

fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn binding(kind: &str, name: &str, namespace: &str) -> serde_json::Value {
    json!({
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": kind, "name": name, "apiGroup": GROUP},
        "subjects": [
            {"kind": "User", "name": format!("{name}-user")},
            {"kind": "Group", "name": format!("{name}-group")},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "bots"},
        ],
    })
}

fn index() -> Rbac {
    let mut rbac = Rbac::new();
    rbac.insert_cluster_role(&from(json!({"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": [""], "resources": ["pods", "pods/log", "*/status"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/healthz", "/metrics/*"], "verbs": ["get"]},
    ]})));
    rbac.insert_role(&from(json!({"metadata": {"name": "editor", "namespace": "shop"}, "rules": [
        {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get"]},
    ]})));
    rbac.insert_cluster_role_binding(&from(binding("ClusterRole", "reader", "")));
    rbac.insert_role_binding(&from(binding("Role", "editor", "shop")));
    rbac
}

/// `verb group/resource/subresource namespace name`, or `verb /path`.
fn attributes(text: &str) -> Attributes {
    let words: Vec<&str> = text.split(' ').collect();
    let verb = words[0].to_owned();
    if words[1].starts_with('/') && words.len() == 2 {
        return Attributes { verb, path: words[1].to_owned(), ..Attributes::default() };
    }
    let mut parts = words[1].split('/').map(str::to_owned);
    Attributes {
        verb,
        group: parts.next().unwrap(),
        resource: parts.next().unwrap(),
        subresource: parts.next().unwrap_or_default(),
        namespace: words.get(2).copied().unwrap_or_default().replace('-', ""),
        name: words.get(3).copied().unwrap_or_default().to_owned(),
        is_resource: true,
        ..Attributes::default()
    }
}

#[test]
fn what_is_bound_is_allowed_and_nothing_else() {
    let rows = [
        ("reader-user", "get /pods shop x", true),
        ("reader-user", "list /pods -", true),
        ("reader-user", "get /pods/log shop x", true),
        ("reader-user", "get /pods/exec shop x", false),
        ("reader-user", "get /nodes/status - x", true),
        ("reader-user", "get /nodes - x", false),
        ("reader-user", "delete /pods shop x", false),
        ("reader-user", "get apps/pods shop x", false),
        ("reader-user", "get /healthz", true),
        ("reader-user", "get /metrics/slis", true),
        ("reader-user", "get /metrics", false),
        ("editor-user", "create apps/deployments shop x", true),
        ("editor-user", "update apps/deployments/scale shop x", true),
        ("editor-user", "create apps/deployments other x", false),
        ("editor-user", "list apps/deployments -", false),
        ("editor-user", "get /secrets shop mine", true),
        ("editor-user", "get /secrets shop other", false),
        ("editor-user", "get /secrets shop", false),
        ("editor-user", "get /healthz", false),
        ("system:serviceaccount:bots:robot", "get /pods shop x", true),
        ("system:serviceaccount:shop:robot", "get /pods shop x", false),
        ("nobody", "get /pods shop x", false),
    ];
    let rbac = index();
    for (user, request, is_allowed) in rows {
        let decision = rbac.authorize(&UserInfo::new(user, &[]), &attributes(request));
        assert_eq!(matches!(decision, Decision::Allow(_)), is_allowed, "{user}: {request}: {decision:?}");
    }
    let member = UserInfo::new("anyone", &["reader-group"]);
    let reason =
        "RBAC: allowed by ClusterRoleBinding \"reader\" of ClusterRole \"reader\" to Group \"reader-group\"";
    assert_eq!(rbac.authorize(&member, &attributes("get /pods a b")), Decision::Allow(reason.to_owned()));
    let member = UserInfo::new("anyone", &["editor-group"]);
    let reason = "RBAC: allowed by RoleBinding \"editor/shop\" of Role \"editor\" to Group \"editor-group\"";
    assert_eq!(rbac.authorize(&member, &attributes("get apps/x shop b")), Decision::Allow(reason.to_owned()));
}

/// Source: `TestRuleMatches` and `TestResourceMatches` of upstream's `plugin/pkg/auth/authorizer/rbac`.
#[test]
fn a_rule_allows_what_all_its_parts_allow() {
    let resources = |verbs: &[&str], groups: &[&str], resources: &[&str]| -> PolicyRule {
        from(json!({"verbs": verbs, "apiGroups": groups, "resources": resources}))
    };
    let paths = |verbs: &[&str], paths: &[&str]| -> PolicyRule {
        from(json!({"verbs": verbs, "nonResourceURLs": paths}))
    };
    for (name, rule, allowed, refused) in [
        (
            "any verb",
            resources(&["*"], &["g1"], &["r1"]),
            &["v1 g1/r1", "v2 g1/r1"][..],
            &["v1 g2/r1", "v1 g1/r2", "v1 /r1 -"][..],
        ),
        (
            "any group",
            resources(&["v1"], &["*"], &["r1"]),
            &["v1 g1/r1", "v1 /r1 -"],
            &["v2 g1/r1", "v1 g1/r2"],
        ),
        (
            "any resource",
            resources(&["v1"], &["g1"], &["*"]),
            &["v1 g1/r1", "v1 g1/r2/sub"],
            &["v1 g2/r1", "v2 g1/r1"],
        ),
        (
            "every combination",
            resources(&["v1", "v2"], &["g1", "g2"], &["r1", "r2"]),
            &["v1 g1/r1", "v2 g2/r2", "v1 g2/r1", "v2 g1/r2"],
            &["v3 g1/r1", "v1 g3/r1", "v1 g1/r3", "v1 g1/r1/sub"],
        ),
        (
            "a subresource",
            resources(&["*"], &["*"], &["r1/s1"]),
            &["v1 g1/r1/s1"],
            &["v1 g1/r1/s2", "v1 g1/r2/s1", "v1 g1/r1"],
        ),
        (
            "of any resource",
            resources(&["*"], &["*"], &["*/s1"]),
            &["v1 g1/r1/s1", "v1 g1/r2/s1"],
            &["v1 g1/r1", "v1 g1/s1", "v1 g1/r1/s2"],
        ),
        ("any of one's own is none", resources(&["*"], &["*"], &["r1/*"]), &[], &["v1 g1/r1/s1", "v1 g1/r1"]),
        ("no group", from(json!({"verbs": ["*"], "resources": ["*"]})), &[], &["v1 g1/r1", "v1 /r1 -"]),
        ("any path", paths(&["v1"], &["*"]), &["v1 /foo", "v1 /foo/bar/one"], &["v2 /foo", "v1 g1/r1"]),
        (
            "what is below",
            paths(&["v1"], &["/foo/*"]),
            &["v1 /foo/bar", "v1 /foo/bar/one"],
            &["v1 /foo", "v1 /notfoo/bar"],
        ),
        (
            "these paths",
            paths(&["*"], &["/foo", "/foo/bar/one"]),
            &["v2 /foo", "v1 /foo/bar/one"],
            &["v1 /foo/bar", "v1 /foo/bar/one/two"],
        ),
    ] {
        for (requests, is_allowed) in [(allowed, true), (refused, false)] {
            for request in requests {
                assert_eq!(allows(&rule, &attributes(request)), is_allowed, "{name}: {request}");
            }
        }
    }
}

#[test]
fn what_is_taken_away_is_not_allowed_any_more() {
    let user = UserInfo::new("editor-user", &[]);
    let request = attributes("create apps/deployments shop x");
    let mut rbac = index();
    rbac.remove_role("shop", "editor");
    let reason = "RBAC: roles.rbac.authorization.k8s.io \"editor\" not found";
    assert_eq!(rbac.authorize(&user, &request), Decision::NoOpinion(reason.to_owned()));
    let mut rbac = index();
    rbac.remove_role_binding("shop", "editor");
    assert_eq!(rbac.authorize(&user, &request), Decision::NoOpinion(String::new()));
    let mut rbac = index();
    rbac.insert_role_binding(&from(json!({
        "metadata": {"name": "editor", "namespace": "shop"},
        "roleRef": {"kind": "Role", "name": "editor", "apiGroup": GROUP},
    })));
    assert_eq!(rbac.authorize(&user, &request), Decision::NoOpinion(String::new()));
    let mut rbac = index();
    let reader = UserInfo::new("reader-user", &[]);
    rbac.remove_cluster_role_binding("reader");
    assert_eq!(rbac.authorize(&reader, &attributes("get /pods a b")), Decision::NoOpinion(String::new()));
}

#[test]
fn rules_are_those_of_the_cluster_and_of_the_namespace() {
    let robot = UserInfo::service_account("bots", "robot", "");
    let rbac = index();
    assert_eq!(rbac.rules_for(&robot, "shop").rules.len(), 4);
    assert_eq!(rbac.rules_for(&robot, "other").rules.len(), 2);
    assert_eq!(rbac.rules_for(&robot, "").rules.len(), 2);
}

#[test]
fn aggregation_unites_what_the_selectors_match() {
    let role = |name: &str, label: &str, resource: &str| -> ClusterRole {
        from(json!({"metadata": {"name": name, "labels": {label: "true"}},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]}))
    };
    let all = [
        role("b", "to-view", "pods"),
        role("a", "to-view", "nodes"),
        role("c", "to-edit", "x"),
        role("d", "to-view", "pods"),
    ];
    let view: ClusterRole = from(json!({"metadata": {"name": "view"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-view": "true"}}]}}));
    let rules = aggregated_rules(&view, &all).unwrap();
    let resources: Vec<_> = rules.into_iter().flat_map(|rule| rule.resources.unwrap()).collect();
    assert_eq!(resources, ["nodes", "pods"]);
    let both: ClusterRole = from(
        json!({"metadata": {"name": "d"}, "aggregationRule": {"clusterRoleSelectors": [
        {"matchLabels": {"to-edit": "true"}}, {"matchExpressions": [{"key": "to-view", "operator": "Exists"}]},
        {"matchLabels": {"to-view": "true"}}]}}),
    );
    let rules = aggregated_rules(&both, &all).unwrap();
    let resources: Vec<_> = rules.into_iter().flat_map(|rule| rule.resources.unwrap()).collect();
    assert_eq!(resources, ["x", "nodes", "pods"], "one selector after the other, without itself");
    assert_eq!(aggregated_rules(&all[0], &all), None);
}

/// Source: `TestAppliesTo` of upstream's `pkg/registry/rbac/validation`. Kinds and names of subjects, the user and their
/// groups, and which subject it is.
const BINDINGS: &[(&str, &str, &str, &str, Option<&str>)] = &[
    ("one user", "User:foobar", "foobar", "", Some("User \"foobar\"")),
    ("one of two users", "User:barfoo User:foobar", "foobar", "", Some("User \"foobar\"")),
    ("none of two users", "User:barfoo User:foobar", "zimzam", "", None),
    ("a group", "User:barfoo Group:foobar", "zimzam", "foobar", Some("Group \"foobar\"")),
    ("a user of a group's name", "Group:foobar", "foobar", "", None),
    ("a group of a user's name", "User:foobar", "zimzam", "foobar", None),
    (
        "an account",
        "User:barfoo Group:foobar ServiceAccount:kube-system/default",
        "system:serviceaccount:kube-system:default",
        "",
        Some("ServiceAccount \"default/kube-system\""),
    ),
    (
        "an account of the binding's namespace",
        "ServiceAccount:default",
        "system:serviceaccount:shop:default",
        "",
        Some("ServiceAccount \"default/shop\""),
    ),
    (
        "an account of another namespace",
        "ServiceAccount:default",
        "system:serviceaccount:other:default",
        "",
        None,
    ),
    (
        "an account as a user",
        "User:system:serviceaccount:shop:default",
        "system:serviceaccount:shop:default",
        "",
        Some("User \"system:serviceaccount:shop:default\""),
    ),
    ("a star is a name", "User:* Group:*", "foobar", "system:authenticated", None),
    (
        "everybody, known",
        "Group:system:authenticated Group:system:unauthenticated",
        "foobar",
        "system:authenticated",
        Some("Group \"system:authenticated\""),
    ),
    (
        "everybody, unknown",
        "Group:system:authenticated Group:system:unauthenticated",
        "system:anonymous",
        "system:unauthenticated",
        Some("Group \"system:unauthenticated\""),
    ),
    ("another kind", "Robot:foobar", "foobar", "", None),
    ("nobody", "", "foobar", "", None),
];

#[test]
fn a_binding_is_for_its_subjects() {
    for &(name, subjects, user, groups, expect) in BINDINGS {
        let subjects: Vec<_> = subjects
            .split(' ')
            .filter_map(|subject| subject.split_once(':'))
            .map(|(kind, name)| match name.split_once('/') {
                Some((namespace, name)) => json!({"kind": kind, "name": name, "namespace": namespace}),
                None => json!({"kind": kind, "name": name}),
            })
            .collect();
        let mut rbac = Rbac::new();
        rbac.insert_role(&from(json!({"metadata": {"name": "r", "namespace": "shop"},
            "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]})));
        rbac.insert_role_binding(&from(json!({"metadata": {"name": "b", "namespace": "shop"},
            "roleRef": {"kind": "Role", "name": "r", "apiGroup": GROUP}, "subjects": subjects})));
        let groups = groups.split(' ').filter(|group| !group.is_empty()).map(str::to_owned).collect();
        let user = UserInfo { name: user.to_owned(), groups, ..UserInfo::default() };
        let decision = rbac.authorize(&user, &attributes("get /pods shop x"));
        let expect = expect.map_or(Decision::NoOpinion(String::new()), |subject| {
            Decision::Allow(format!("RBAC: allowed by RoleBinding \"b/shop\" of Role \"r\" to {subject}"))
        });
        assert_eq!(decision, expect, "{name}");
    }
}

/// Source: `TestDefaultRuleResolver`. Roles that are not there are told, and take nothing from others.
#[test]
fn the_rules_of_a_user_are_those_of_all_bindings() {
    let mut rbac = Rbac::new();
    let rule =
        |verbs: &str, resource: &str| json!({"verbs": [verbs], "apiGroups": ["v1"], "resources": [resource]});
    rbac.insert_role(&from(json!({"metadata": {"name": "readthings", "namespace": "namespace1"},
        "rules": [rule("GET", "pods"), rule("GET", "services")]})));
    for (name, resource) in [("cluster-admin", "*"), ("write-nodes", "nodes")] {
        rbac.insert_cluster_role(&from(json!({"metadata": {"name": name}, "rules": [rule("*", resource)]})));
    }
    let binding = |name: &str, namespace: &str, kind: &str, role: &str, user: &str, group: &str| {
        json!({"metadata": {"name": name, "namespace": namespace}, "roleRef": {"kind": kind, "name": role, "apiGroup": GROUP},
            "subjects": [{"kind": "User", "name": user}, {"kind": "Group", "name": group}]})
    };
    rbac.insert_role_binding(&from(binding("a", "namespace1", "Role", "readthings", "foobar", "group1")));
    rbac.insert_role_binding(&from(binding(
        "b",
        "namespace1",
        "ClusterRole",
        "write-nodes",
        "nodes",
        "group2",
    )));
    rbac.insert_role_binding(&from(binding("c", "namespace1", "Role", "gone", "lost", "group1")));
    rbac.insert_cluster_role_binding(&from(binding(
        "d",
        "",
        "ClusterRole",
        "cluster-admin",
        "admin",
        "admin",
    )));
    rbac.insert_cluster_role_binding(&from(binding("e", "", "Role", "readthings", "odd", "none")));
    let (role, no_role) = (
        "roles.rbac.authorization.k8s.io \"gone\" not found",
        "roles.rbac.authorization.k8s.io \"readthings\" not found",
    );
    for (user, groups, namespace, expect, errors) in [
        ("foobar", &[][..], "namespace1", "pods services", &[][..]),
        ("foobar", &[], "namespace2", "", &[]),
        ("foobar", &["admin"], "", "*", &[]),
        ("foobar", &["admin"], "namespace1", "* pods services", &[]),
        ("x", &["group1"], "namespace1", "pods services", &[role]),
        ("x", &["group2"], "namespace1", "nodes", &[]),
        ("x", &["group2"], "", "", &[]),
        ("lost", &[], "namespace1", "", &[role]),
        ("odd", &[], "namespace1", "", &[no_role]),
        ("", &[], "namespace1", "", &[]),
    ] {
        let found = rbac.rules_for(&UserInfo::new(user, groups), namespace);
        let resources: Vec<_> =
            found.rules.iter().flat_map(|rule| rule.resources.iter().flatten()).map(String::as_str).collect();
        assert_eq!(
            (resources.join(" ").as_str(), found.errors.iter().map(String::as_str).collect::<Vec<_>>()),
            (expect, errors.to_vec()),
            "{user} {groups:?} {namespace}"
        );
    }
}
