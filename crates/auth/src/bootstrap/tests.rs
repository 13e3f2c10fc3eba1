use super::*;
use crate::rbac::Rbac;
use crate::{Attributes, Decision, UserInfo};

fn index() -> Rbac {
    let mut rbac = Rbac::new();
    cluster_roles().iter().for_each(|role| rbac.insert_cluster_role(role));
    cluster_role_bindings().iter().for_each(|binding| rbac.insert_cluster_role_binding(binding));
    super::roles().iter().for_each(|role| rbac.insert_role(role));
    role_bindings().iter().for_each(|binding| rbac.insert_role_binding(binding));
    rbac
}

fn may(rbac: &Rbac, user: &UserInfo, request: &str) -> bool {
    let words: Vec<&str> = request.split(' ').collect();
    let verb = words[0].to_owned();
    let attributes = match words[1].strip_prefix('/') {
        Some(_) if words.len() == 2 => {
            Attributes { verb, path: words[1].to_owned(), ..Attributes::default() }
        }
        _ => {
            let mut parts = words[1].split('/').map(str::to_owned);
            Attributes {
                verb,
                group: parts.next().unwrap(),
                resource: parts.next().unwrap(),
                subresource: parts.next().unwrap_or_default(),
                namespace: words[2].trim_matches('-').to_owned(),
                name: words.get(3).copied().unwrap_or_default().to_owned(),
                is_resource: true,
                ..Attributes::default()
            }
        }
    };
    matches!(rbac.authorize(user, &attributes), Decision::Allow(_))
}

#[test]
fn the_defaults_give_each_component_what_it_needs() {
    let user = |name: &str| UserInfo::new(name, &[]);
    let account = |name: &str| UserInfo::service_account("kube-system", name, "");
    let root = UserInfo::new("root", &[crate::MASTERS]);
    let rows = [
        (UserInfo::anonymous(), "get /healthz", true),
        (UserInfo::anonymous(), "get /version", true),
        (UserInfo::anonymous(), "get /apis", false),
        (UserInfo::anonymous(), "get /pods default", false),
        (user("someone"), "get /apis/apps/v1", true),
        (user("someone"), "get /openapi/v3", true),
        (user("someone"), "get /metrics", false),
        (user("someone"), "create authorization.k8s.io/selfsubjectaccessreviews -", true),
        (user("someone"), "list /pods default", false),
        (root, "delete anything/at all default", true),
        (user("system:kube-scheduler"), "create /pods/binding default x", true),
        (user("system:kube-scheduler"), "create /pods default", false),
        (user("system:kube-proxy"), "watch discovery.k8s.io/endpointslices -", true),
        (user("system:knarr"), "create networking.k8s.io/ingressclasses -", true),
        (user("system:kube-proxy"), "watch networking.k8s.io/networkpolicies -", true),
        (user("system:kube-proxy"), "update networking.k8s.io/networkpolicies default", false),
        (user("system:kube-proxy"), "list /pods -", true),
        (user("system:kube-proxy"), "get /secrets default", false),
        (user("system:kube-proxy"), "create /pods default", false),
        (UserInfo::new("system:node:a", &[crate::NODES]), "list /nodes -", false),
        (UserInfo::new("system:node:a", &[crate::NODES]), "watch discovery.k8s.io/endpointslices -", false),
        (
            UserInfo::new("system:node:a", &[crate::NODES]),
            "get /configmaps kube-system knarr-authorities",
            true,
        ),
        (UserInfo::new("system:node:a", &[crate::NODES]), "get /configmaps kube-system other", false),
        (UserInfo::new("api", &[crate::KUBELET_API_CLIENTS]), "create /nodes/proxy - a", true),
        (UserInfo::new("api", &[crate::KUBELET_API_CLIENTS]), "get /nodes/stats - a", true),
        (UserInfo::new("api", &[crate::KUBELET_API_CLIENTS]), "get /secrets default", false),
        (UserInfo::new("api", &[crate::KUBELET_API_CLIENTS]), "list /pods default", false),
        (user("system:knarr"), "update /configmaps kube-system knarr-authorities", true),
        (user("system:knarr"), "get /secrets kube-system", false),
        (user("system:knarr"), "create rbac.authorization.k8s.io/clusterrolebindings -", false),
        (
            user("system:knarr"),
            "delete rbac.authorization.k8s.io/clusterrolebindings - knarr:node-proxier",
            true,
        ),
        (user("system:knarr"), "delete rbac.authorization.k8s.io/clusterrolebindings - cluster-admin", false),
        (user("system:kube-controller-manager"), "watch apps/deployments -", true),
        (user("system:kube-controller-manager"), "create apps/replicasets default", false),
        (account("deployment-controller"), "create apps/replicasets default", true),
        (account("replicaset-controller"), "create /pods default", true),
        (account("replicaset-controller"), "create /secrets default", false),
        (account("generic-garbage-collector"), "delete x/y default z", true),
        (account("endpointslice-controller"), "create discovery.k8s.io/endpointslices default", true),
        (account("servicelb-controller"), "patch /services/status default x", true),
        (account("servicelb-controller"), "patch /services default x", true),
        (account("servicelb-controller"), "delete /services default x", false),
        (account("servicelb-controller"), "patch /nodes - x", false),
        (account("servicelb-controller"), "create /pods default", false),
        (account("kube-dns"), "watch /services -", true),
        (account("anything"), "get /openid/v1/jwks", true),
        (
            user("system:kube-scheduler"),
            "get /configmaps kube-system extension-apiserver-authentication",
            true,
        ),
        (UserInfo::new("system:node:a", &["system:nodes"]), "get /secrets default x", false),
    ];
    check(&rows);
}

#[test]
fn a_clouds_controllers_act_as_the_accounts_of_upstreams_roles_and_no_others() {
    let cloud = || UserInfo::new(crate::CLOUD_CONTROLLER_MANAGER, &[]);
    check(&[
        (cloud(), "watch /services -", true),
        (cloud(), "update coordination.k8s.io/leases kube-system cloud-controller-manager", true),
        (cloud(), "update coordination.k8s.io/leases kube-system kube-scheduler", false),
        (cloud(), "patch /nodes - x", false),
        (cloud(), "patch /services/status default x", false),
        (cloud(), "create /serviceaccounts/token kube-system node-controller", true),
        (cloud(), "create /serviceaccounts/token kube-system namespace-controller", false),
    ]);
}

#[test]
fn what_serves_requests_only_reads_and_its_controllers_write_statuses() {
    let ingress = || UserInfo::new("system:knarr:ingress", &[]);
    let account = |name: &str| UserInfo::service_account("kube-system", name, "");
    check(&[
        (ingress(), "watch networking.k8s.io/ingresses -", true),
        (ingress(), "list discovery.k8s.io/endpointslices -", true),
        (ingress(), "list /secrets -", false),
        (ingress(), "patch networking.k8s.io/ingresses/status default x", false),
        (ingress(), "create /events default", false),
        (ingress(), "watch gateway.networking.k8s.io/httproutes -", true),
        (ingress(), "list apiextensions.k8s.io/customresourcedefinitions -", true),
        (ingress(), "patch gateway.networking.k8s.io/httproutes/status default x", false),
        (account("gateway-controller"), "patch gateway.networking.k8s.io/httproutes/status default x", true),
        (account("gateway-controller"), "create gateway.networking.k8s.io/gatewayclasses -", true),
        (account("gateway-controller"), "patch gateway.networking.k8s.io/httproutes default x", false),
        (account("gateway-controller"), "delete gateway.networking.k8s.io/gatewayclasses - x", false),
        (account("gateway-controller"), "list /secrets -", false),
        (account("ingress-controller"), "patch networking.k8s.io/ingresses/status default x", true),
        (account("ingress-controller"), "create /events default", true),
        (account("ingress-controller"), "patch networking.k8s.io/ingresses default x", false),
        (account("ingress-controller"), "list /secrets -", false),
    ]);
}

fn check(rows: &[(UserInfo, &str, bool)]) {
    let rbac = index();
    for (user, request, expected) in rows {
        assert_eq!(may(&rbac, user, request), *expected, "{}: {request}", user.name);
    }
}

#[test]
fn admin_has_all_of_edit_and_edit_all_of_view() {
    let rbac = index();
    let rules = |name: &str| rbac.rules_of(&role_ref("ClusterRole", name), "").unwrap();
    assert!(uncovered(&rules("admin"), &rules("edit")).is_empty());
    assert!(uncovered(&rules("edit"), &rules("view")).is_empty());
    assert!(!uncovered(&rules("view"), &rules("edit")).is_empty());
    assert!(!uncovered(&rules("edit"), &rules("admin")).is_empty());
    let secrets =
        rules("view").iter().any(|rule| rule.resources.iter().flatten().any(|one| one == "secrets"));
    assert!(!secrets, "view must not read secrets");
}

#[test]
fn every_default_is_marked_and_named_once() {
    let mut names = std::collections::BTreeSet::new();
    for role in cluster_roles() {
        assert!(names.insert(role.metadata.name.clone()), "{:?} twice", role.metadata.name);
        assert_eq!(role.metadata.labels.unwrap()["kubernetes.io/bootstrapping"], "rbac-defaults");
        assert_eq!(role.metadata.annotations.unwrap()[AUTOUPDATE_ANNOTATION], "true");
        for rule in role.rules.into_iter().flatten() {
            assert!(!rule.verbs.is_empty());
        }
    }
    for binding in cluster_role_bindings() {
        assert!(names.contains(&Some(binding.role_ref.name.clone())), "{}", binding.role_ref.name);
    }
    let roles: std::collections::BTreeSet<_> =
        roles().into_iter().map(|role| (role.metadata.namespace, role.metadata.name)).collect();
    for binding in role_bindings() {
        assert!(roles.contains(&(binding.metadata.namespace, Some(binding.role_ref.name))));
    }
}

#[test]
fn reconciliation_adds_what_is_missing_and_takes_nothing_away() {
    let wanted = &cluster_roles()[1];
    let (meta, rules) = (&wanted.metadata, wanted.rules.as_deref().unwrap());
    assert_eq!(reconcile_role((meta, rules), (meta, rules)), None);
    let own = paths("get", "/own").build();
    let (merged, all) =
        reconcile_role((&ObjectMeta::default(), std::slice::from_ref(&own)), (meta, rules)).unwrap();
    assert!(uncovered(&all, rules).is_empty() && all.contains(&own));
    assert_eq!(merged.labels, meta.labels);
    let off = ObjectMeta {
        annotations: Some(BTreeMap::from([(AUTOUPDATE_ANNOTATION.to_owned(), "false".to_owned())])),
        ..ObjectMeta::default()
    };
    assert_eq!(reconcile_role((&off, &[]), (meta, rules)), None);
    let subjects = subjects(&["user:x"]).unwrap();
    assert_eq!(reconcile_subjects((meta, &subjects), (meta, &subjects)), None);
    assert_eq!(reconcile_subjects((meta, &[]), (meta, &subjects)).unwrap().1, subjects);
}
