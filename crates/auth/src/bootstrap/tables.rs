//! The rows: users' roles, components' roles, bindings.

use machinery::features::Feature;

use super::{ALL, BindingRow, EVENTS, Gated, READ, RoleRow, Rule, WRITE, named, paths, role, rule};

/// What a kubelet may do; where its own Pods and Node matter, the Node authorizer looks closer.
pub(super) const NODE_RULES: &[Rule] = &[
    rule("create", "authentication.k8s.io", "tokenreviews"),
    rule("create", "authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews"),
    rule(READ, "core", "services"),
    rule("create get list watch", "core", "nodes"),
    rule("patch update", "core", "nodes/status"),
    rule("patch update", "core", "nodes"),
    EVENTS,
    rule(READ, "core", "pods"),
    rule("create delete", "core", "pods"),
    rule("patch update", "core", "pods/status"),
    rule("create", "core", "pods/eviction"),
    rule("get list watch", "core", "configmaps secrets"),
    rule("get", "core", "persistentvolumeclaims persistentvolumes"),
    rule("get", "core", "endpoints"),
    rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
    rule("create delete get patch update", "coordination.k8s.io", "leases"),
    rule("get", "storage.k8s.io", "volumeattachments"),
    rule("create", "core", "serviceaccounts/token"),
    rule("get patch update", "core", "persistentvolumeclaims/status"),
    rule(READ, "storage.k8s.io", "csidrivers"),
    rule("create delete get patch update", "storage.k8s.io", "csinodes"),
    rule(READ, "node.k8s.io", "runtimeclasses"),
    rule("get", "resource.k8s.io", "resourceclaims"),
    rule("deletecollection", "resource.k8s.io", "resourceslices"),
    rule("get", "core", "serviceaccounts"),
];

/// What a kubelet may do besides, where features are on.
pub(super) const GATED_NODE_RULES: Gated<Rule> = &[
    (Feature::ClusterTrustBundle, &[rule(READ, "certificates.k8s.io", "clustertrustbundles")]),
    (
        Feature::PodCertificateRequest,
        &[rule("create get list watch", "certificates.k8s.io", "podcertificaterequests")],
    ),
];

/// Roles that there are where features are on: everybody's Pods can mount ClusterTrustBundles.
pub(super) const GATED_CLUSTER_ROLES: Gated<RoleRow> = &[(
    Feature::ClusterTrustBundle,
    &[role(
        "system:cluster-trust-bundle-discovery",
        &[rule(READ, "certificates.k8s.io", "clustertrustbundles")],
    )],
)];
/// What roles allow besides, where features are on.
pub(super) const GATED_RULES: &[(Feature, &str, &[Rule])] = &[
    (Feature::GenericWorkload, "system:aggregate-to-view", &[rule(READ, "scheduling.k8s.io", "workloads")]),
    (Feature::GenericWorkload, "system:aggregate-to-edit", &[rule(WRITE, "scheduling.k8s.io", "workloads")]),
    (Feature::GenericWorkload, "system:kube-scheduler", &[rule(READ, "scheduling.k8s.io", "workloads")]),
    (
        Feature::DraDeviceTaintRules,
        "system:kube-scheduler",
        &[rule(READ, "resource.k8s.io", "devicetaintrules")],
    ),
    (
        Feature::DraDeviceTaintRules,
        "device-taint-eviction-controller",
        &[
            rule("patch update", "resource.k8s.io", "devicetaintrules/status"),
            rule(READ, "resource.k8s.io", "devicetaintrules"),
        ],
    ),
];
/// Bindings of roles that there are where features are on.
pub(super) const GATED_CLUSTER_ROLE_BINDINGS: Gated<BindingRow> = &[(
    Feature::ClusterTrustBundle,
    &[bound("system:cluster-trust-bundle-discovery", &["group:system:serviceaccounts"])],
)];

const AGGREGATE_TO_ADMIN: &str = "rbac.authorization.k8s.io/aggregate-to-admin";
const AGGREGATE_TO_EDIT: &str = "rbac.authorization.k8s.io/aggregate-to-edit";
const AGGREGATE_TO_VIEW: &str = "rbac.authorization.k8s.io/aggregate-to-view";

const fn aggregating(
    name: &'static str,
    aggregates: &'static str,
    labels: &'static [&'static str],
) -> RoleRow {
    RoleRow { name, rules: &[], labels, aggregates }
}

const fn labelled(name: &'static str, labels: &'static [&'static str], rules: &'static [Rule]) -> RoleRow {
    RoleRow { name, rules, labels, aggregates: "" }
}

const fn approver(name: &'static str, rules: &'static [Rule]) -> RoleRow {
    role(name, rules)
}

const DISCOVERY: &str =
    "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/";

pub(super) const CLUSTER_ROLES: &[RoleRow] = &[
    role("cluster-admin", &[rule("*", "*", "*"), paths("*", "*")]),
    role("system:discovery", &[paths("get", DISCOVERY)]),
    role(
        "system:monitoring",
        &[
            paths("get", "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*"),
            rule("get", "core", "nodes/metrics"),
        ],
    ),
    role(
        "system:basic-user",
        &[
            rule("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
            rule("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
    ),
    role("system:public-info-viewer", &[paths("get", "/healthz /livez /readyz /version /version/")]),
    aggregating("admin", AGGREGATE_TO_ADMIN, &[]),
    aggregating("edit", AGGREGATE_TO_EDIT, &["rbac.authorization.k8s.io/aggregate-to-admin=true"]),
    aggregating("view", AGGREGATE_TO_VIEW, &["rbac.authorization.k8s.io/aggregate-to-edit=true"]),
    labelled(
        "system:aggregate-to-admin",
        &["rbac.authorization.k8s.io/aggregate-to-admin=true"],
        &[
            rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
            rule(ALL, "rbac.authorization.k8s.io", "rolebindings roles"),
        ],
    ),
    labelled("system:aggregate-to-edit", &["rbac.authorization.k8s.io/aggregate-to-edit=true"], EDIT),
    labelled("system:aggregate-to-view", &["rbac.authorization.k8s.io/aggregate-to-view=true"], VIEW),
    // Ours to bring, as metrics-server does: knarr serves metrics.k8s.io itself.
    labelled(
        "system:aggregated-metrics-reader",
        &[
            "rbac.authorization.k8s.io/aggregate-to-admin=true",
            "rbac.authorization.k8s.io/aggregate-to-edit=true",
            "rbac.authorization.k8s.io/aggregate-to-view=true",
        ],
        &[rule(READ, "metrics.k8s.io", "nodes pods")],
    ),
    role(
        "system:heapster",
        &[rule(READ, "core", "events namespaces nodes pods"), rule(READ, "extensions", "deployments")],
    ),
    role("system:node", NODE_RULES),
    role(
        "system:node-problem-detector",
        &[rule("get", "core", "nodes"), rule("patch", "core", "nodes/status"), EVENTS],
    ),
    role(
        "system:kubelet-api-admin",
        &[
            rule("get list watch", "core", "nodes"),
            rule("proxy", "core", "nodes"),
            rule(
                "*",
                "core",
                "nodes/configz nodes/healthz nodes/log nodes/metrics nodes/pods nodes/proxy nodes/stats",
            ),
        ],
    ),
    role(
        "system:node-bootstrapper",
        &[rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests")],
    ),
    role(
        "system:auth-delegator",
        &[
            rule("create", "authentication.k8s.io", "tokenreviews"),
            rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
    role("system:kube-aggregator", &[rule(READ, "core", "endpoints services")]),
    role("system:kube-controller-manager", CONTROLLER_MANAGER),
    // Ours: what a cluster of knarr has besides, made by `system:knarr` in the API server's process.
    role(
        "knarr:addons",
        &[
            rule("create get", "storage.k8s.io", "csidrivers storageclasses"),
            rule("create get list", "networking.k8s.io", "ingressclasses"),
            rule("list patch watch", "core", "nodes"),
            named("delete get", "rbac.authorization.k8s.io", "clusterrolebindings", "knarr:node-proxier"),
        ],
    ),
    role("knarr:authority-viewer", &[paths("get", "/cacerts")]),
    // What the Node's process needs for NetworkPolicies beside what it needs for Services.
    role(
        "knarr:network-policy",
        &[
            rule("list watch", "core", "namespaces pods"),
            rule("list watch", "networking.k8s.io", "networkpolicies"),
        ],
    ),
    role(
        "knarr:proxy-certificates",
        &[
            named("approve sign", "certificates.k8s.io", "signers", crate::PROXY_SIGNER),
            named("approve sign", "certificates.k8s.io", "signers", crate::INGRESS_SIGNER),
        ],
    ),
    // What serves Ingresses; of Secrets the Node authorizer lets it see those with certificates.
    role(
        "knarr:ingress",
        &[
            rule("list watch", "networking.k8s.io", "ingressclasses ingresses"),
            rule("list watch", "core", "namespaces services"),
            rule("list watch", "discovery.k8s.io", "endpointslices"),
            rule(
                "list watch",
                "gateway.networking.k8s.io",
                "gatewayclasses gateways grpcroutes httproutes referencegrants",
            ),
            // They tell when those kinds come and go.
            rule("list watch", "apiextensions.k8s.io", "customresourcedefinitions"),
            rule("list watch", "apiregistration.k8s.io", "apiservices"),
        ],
    ),
    role(
        "knarr:gateway-controller",
        &[
            rule("create", "gateway.networking.k8s.io", "gatewayclasses"),
            rule(
                "patch update",
                "gateway.networking.k8s.io",
                "gatewayclasses/status gateways/status grpcroutes/status httproutes/status",
            ),
            EVENTS,
        ],
    ),
    role(
        "knarr:ingress-controller",
        &[rule("patch update", "networking.k8s.io", "ingresses/status"), EVENTS],
    ),
    // What of a cloud's controllers is nobody's in particular: each has the account that upstream's role for it is bound to.
    role(
        "knarr:cloud-controller-manager",
        &[
            EVENTS,
            rule("list watch", "core", "nodes services"),
            rule("create", "coordination.k8s.io", "leases"),
            named("get list update watch", "coordination.k8s.io", "leases", "cloud-controller-manager"),
            named("get", "core", "serviceaccounts", "node-controller route-controller service-controller"),
            rule("create", "core", "serviceaccounts"),
            named(
                "create",
                "core",
                "serviceaccounts/token",
                "node-controller route-controller service-controller",
            ),
            rule("create", "authentication.k8s.io", "tokenreviews"),
            rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
    role(
        "knarr:servicelb-controller",
        &[rule("patch", "core", "services services/status"), rule("create patch update", "core", "events")],
    ),
    role(
        "knarr:csi-hostpath-controller",
        &[
            rule("create delete get patch update", "core", "persistentvolumes"),
            rule("patch update", "core", "persistentvolumeclaims"),
            rule("patch", "core", "persistentvolumeclaims/status"),
            // The driver's controller side is on the volume's Node.
            rule("create", "core", "nodes/csi"),
            rule("create delete update", "storage.k8s.io", "csistoragecapacities"),
            rule("create patch update", "core", "events"),
        ],
    ),
    role("system:kube-dns", &[rule("list watch", "core", "endpoints services")]),
    role(
        "system:persistent-volume-provisioner",
        &[
            rule("create delete get list watch", "core", "persistentvolumes"),
            rule("get list update watch", "core", "persistentvolumeclaims"),
            rule(READ, "storage.k8s.io", "storageclasses"),
            rule("watch", "core", "events"),
            EVENTS,
        ],
    ),
    role(
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &[rule("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient")],
    ),
    role(
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &[rule("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeclient")],
    ),
    role(
        "system:volume-scheduler",
        &[
            rule("get list patch update watch", "core", "persistentvolumes"),
            rule(READ, "storage.k8s.io", "storageclasses"),
            rule("get list patch update watch", "core", "persistentvolumeclaims"),
        ],
    ),
    approver(
        "system:certificates.k8s.io:legacy-unknown-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/legacy-unknown")],
    ),
    approver(
        "system:certificates.k8s.io:kubelet-serving-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving")],
    ),
    approver(
        "system:certificates.k8s.io:kube-apiserver-client-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client")],
    ),
    approver(
        "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet")],
    ),
    role("system:kube-scheduler", SCHEDULER),
    role(
        "system:node-proxier",
        &[
            rule("list watch", "core", "endpoints services"),
            rule(READ, "core", "nodes"),
            EVENTS,
            rule("list watch", "discovery.k8s.io", "endpointslices"),
            rule("list watch", "networking.k8s.io", "servicecidrs"),
        ],
    ),
    role(
        "system:service-account-issuer-discovery",
        &[paths(
            "get",
            "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
        )],
    ),
];

const EDIT: &[Rule] = &[
    rule(READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
    rule("impersonate", "core", "serviceaccounts"),
    rule(WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
    rule("create", "core", "pods/eviction"),
    rule(
        WRITE,
        "core",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets \
         serviceaccounts services services/proxy",
    ),
    rule(WRITE, "core events.k8s.io", "events"),
    rule("create", "core", "serviceaccounts/token"),
    rule(
        WRITE,
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets \
         statefulsets/scale",
    ),
    rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
    rule(WRITE, "batch", "cronjobs jobs"),
    rule(
        WRITE,
        "extensions",
        "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets \
         replicasets/scale replicationcontrollers/scale",
    ),
    rule(WRITE, "policy", "poddisruptionbudgets"),
    rule(WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    rule(ALL, "coordination.k8s.io", "leases"),
    rule(WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
];

const VIEW: &[Rule] = &[
    rule(
        READ,
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers \
         replicationcontrollers/scale serviceaccounts services services/status",
    ),
    rule(
        READ,
        "core",
        "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status \
         resourcequotas resourcequotas/status",
    ),
    rule(READ, "core", "namespaces"),
    rule(READ, "core events.k8s.io", "events"),
    rule(READ, "discovery.k8s.io", "endpointslices"),
    rule(
        READ,
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status \
         replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
    ),
    rule(READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    rule(READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    rule(
        READ,
        "extensions",
        "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status \
         networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale",
    ),
    rule(READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    rule(READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    rule(READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
];

const CONTROLLER_MANAGER: &[Rule] = &[
    EVENTS,
    rule("create", "coordination.k8s.io", "leases"),
    named("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
    rule("create", "core", "secrets serviceaccounts"),
    rule("delete", "core", "secrets"),
    rule("get", "core", "configmaps namespaces secrets serviceaccounts"),
    rule("update", "core", "secrets serviceaccounts"),
    rule("create", "authentication.k8s.io", "tokenreviews"),
    rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    rule("list watch", "*", "*"),
    rule("create", "core", "serviceaccounts/token"),
];

const SCHEDULER: &[Rule] = &[
    EVENTS,
    rule("create", "coordination.k8s.io", "leases"),
    named("get list update watch", "coordination.k8s.io", "leases", "kube-scheduler"),
    rule(ALL, "coordination.k8s.io", "leasecandidates"),
    rule(READ, "core", "nodes"),
    rule("delete get list watch", "core", "pods"),
    rule("create", "core", "bindings pods/binding"),
    rule("patch update", "core", "pods/status"),
    rule(READ, "core", "replicationcontrollers services"),
    rule(READ, "apps extensions", "replicasets"),
    rule(READ, "apps", "statefulsets"),
    rule(READ, "policy", "poddisruptionbudgets"),
    rule(READ, "core", "persistentvolumeclaims persistentvolumes"),
    rule("create", "authentication.k8s.io", "tokenreviews"),
    rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    rule(READ, "storage.k8s.io", "csinodes"),
    rule(READ, "core", "namespaces"),
    rule(READ, "storage.k8s.io", "csidrivers"),
    rule(READ, "storage.k8s.io", "csistoragecapacities"),
    rule(READ, "storage.k8s.io", "volumeattachments"),
    rule(READ, "resource.k8s.io", "deviceclasses resourceclaims resourceclaims/status resourceslices"),
    rule("update", "core", "pods/finalizers"),
    rule("patch update", "resource.k8s.io", "resourceclaims resourceclaims/status"),
];

const fn binding(name: &'static str, role: &'static str, subjects: &'static [&'static str]) -> BindingRow {
    BindingRow { name, role, subjects }
}

const fn bound(role: &'static str, subjects: &'static [&'static str]) -> BindingRow {
    binding(role, role, subjects)
}

/// Hosts that come with a token of `knarr token create`.
const TOKEN_GROUP: &str = "group:system:bootstrappers:knarr:default-node-token";

pub(super) const CLUSTER_ROLE_BINDINGS: &[BindingRow] = &[
    bound("cluster-admin", &["group:system:masters"]),
    bound("system:monitoring", &["group:system:monitoring"]),
    bound("system:discovery", &["group:system:authenticated"]),
    bound("system:basic-user", &["group:system:authenticated"]),
    bound("system:public-info-viewer", &["group:system:authenticated", "group:system:unauthenticated"]),
    bound("system:node-proxier", &["user:system:kube-proxy"]),
    bound("system:kube-controller-manager", &["user:system:kube-controller-manager"]),
    bound("knarr:network-policy", &["user:system:kube-proxy"]),
    bound("knarr:addons", &["user:system:knarr"]),
    bound("knarr:authority-viewer", &["group:system:authenticated", "group:system:unauthenticated"]),
    bound("knarr:csi-hostpath-controller", &["account:csi-hostpath-controller"]),
    bound("knarr:cloud-controller-manager", &["user:system:cloud-controller-manager"]),
    bound("knarr:servicelb-controller", &["account:servicelb-controller"]),
    binding("knarr:kubelet-api-clients", "system:kubelet-api-admin", &["group:knarr:kubelet-api-clients"]),
    // Hosts that come with a token ask for a certificate, Nodes for the next one and for those of their ports and proxies.
    binding("knarr:node-bootstrapper", "system:node-bootstrapper", &[TOKEN_GROUP]),
    binding(
        "knarr:node-autoapprove-bootstrap",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &[TOKEN_GROUP],
    ),
    binding(
        "knarr:node-autoapprove-certificate-rotation",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &["group:system:nodes"],
    ),
    binding(
        "knarr:kubelet-serving-approver",
        "system:certificates.k8s.io:kubelet-serving-approver",
        &["account:certificate-controller"],
    ),
    bound("knarr:proxy-certificates", &["account:certificate-controller"]),
    binding("knarr:ingress", "knarr:ingress", &["user:system:knarr:ingress"]),
    bound("knarr:ingress-controller", &["account:ingress-controller"]),
    bound("knarr:gateway-controller", &["account:gateway-controller"]),
    bound("system:kube-dns", &["account:kube-dns"]),
    bound("system:kube-scheduler", &["user:system:kube-scheduler"]),
    bound("system:volume-scheduler", &["user:system:kube-scheduler"]),
    // Kubelets get their rules from the Node authorizer; the binding is there for those who bind it themselves.
    bound("system:node", &[]),
    bound("system:service-account-issuer-discovery", &["group:system:serviceaccounts"]),
];

const LEADER_LOCKING: &[Rule] =
    &[rule("create get list update watch", "coordination.k8s.io", "leasecandidates leases")];

const SYSTEM: &str = "kube-system";
const PUBLIC: &str = "kube-public";

pub(super) const ROLES: &[(&str, RoleRow)] = &[
    (
        SYSTEM,
        role(
            "extension-apiserver-authentication-reader",
            &[named(READ, "core", "configmaps", "extension-apiserver-authentication")],
        ),
    ),
    // Ours: what Nodes are told of their cluster, and who writes it.
    (
        SYSTEM,
        role("knarr:config-reader", &[named("get", "core", "configmaps", "knarr-config knarr-authorities")]),
    ),
    (SYSTEM, role("knarr:addons", &[rule("create get update", "core", "configmaps services")])),
    (SYSTEM, role("system:controller:bootstrap-signer", &[rule(READ, "core", "secrets")])),
    (
        SYSTEM,
        role("system:controller:cloud-provider", &[rule("create get list watch", "core", "configmaps")]),
    ),
    (
        SYSTEM,
        role("system:controller:token-cleaner", &[rule("delete get list watch", "core", "secrets"), EVENTS]),
    ),
    (SYSTEM, role("system::leader-locking-kube-controller-manager", LEADER_LOCKING)),
    (SYSTEM, role("system::leader-locking-kube-scheduler", LEADER_LOCKING)),
    (
        PUBLIC,
        role(
            "system:controller:bootstrap-signer",
            &[
                rule(READ, "core", "configmaps"),
                named("update", "core", "configmaps", "cluster-info"),
                EVENTS,
            ],
        ),
    ),
];

pub(super) const ROLE_BINDINGS: &[(&str, BindingRow)] = &[
    (
        SYSTEM,
        binding(
            "system::extension-apiserver-authentication-reader",
            "extension-apiserver-authentication-reader",
            &["user:system:kube-controller-manager", "user:system:kube-scheduler"],
        ),
    ),
    (SYSTEM, bound("knarr:config-reader", &["group:system:nodes"])),
    (SYSTEM, bound("knarr:addons", &["user:system:knarr"])),
    (SYSTEM, bound("system:controller:bootstrap-signer", &["account:bootstrap-signer"])),
    (SYSTEM, bound("system:controller:cloud-provider", &["account:cloud-provider"])),
    (SYSTEM, bound("system:controller:token-cleaner", &["account:token-cleaner"])),
    (
        SYSTEM,
        bound(
            "system::leader-locking-kube-controller-manager",
            &[
                "user:system:kube-controller-manager",
                "account:kube-controller-manager",
                "account:leader-election-controller",
            ],
        ),
    ),
    (
        SYSTEM,
        bound(
            "system::leader-locking-kube-scheduler",
            &["user:system:kube-scheduler", "account:kube-scheduler"],
        ),
    ),
    (PUBLIC, bound("system:controller:bootstrap-signer", &["account:bootstrap-signer"])),
];
