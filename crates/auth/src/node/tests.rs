#[path = "tests/secrets.rs"]
mod secrets;

use serde_json::json;

use super::*;

fn graph() -> NodeGraph {
    let mut graph = NodeGraph::default();
    let pod = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "nodeName": "a",
            "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{
                "name": "c",
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "env-secret", "key": "k"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "env-map", "key": "k"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "from-map"}}, {"secretRef": {"name": "from-secret"}}],
            }],
            "volumes": [
                {"name": "s", "secret": {"secretName": "volume-secret"}},
                {"name": "m", "configMap": {"name": "volume-map"}},
                {"name": "p", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "e", "ephemeral": {}},
                {"name": "x", "projected": {"sources": [
                    {"configMap": {"name": "projected-map"}}, {"secret": {"name": "projected-secret"}},
                ]}},
                {"name": "i", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi-secret"}}},
            ],
        },
    });
    graph.insert_pod(&serde_json::from_value(pod).unwrap());
    let elsewhere = json!({
        "metadata": {"name": "other", "namespace": "shop"},
        "spec": {"nodeName": "b", "containers": [], "serviceAccountName": "other",
            "imagePullSecrets": [{"name": "other-secret"}]},
    });
    graph.insert_pod(&serde_json::from_value(elsewhere).unwrap());
    let volume = json!({
        "metadata": {"name": "pv"},
        "spec": {
            "claimRef": {"namespace": "shop", "name": "claim"},
            "csi": {"driver": "d", "volumeHandle": "h",
                "nodeStageSecretRef": {"name": "stage", "namespace": "kube-system"}},
        },
    });
    graph.insert_volume(&serde_json::from_value(volume).unwrap());
    for (name, node) in [("own", json!("a")), ("others", json!("b")), ("shared", json!(null))] {
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
        let slice =
            json!({"metadata": {"name": name}, "spec": {"driver": "d", "nodeName": node, "pool": pool}});
        graph.insert_slice(&serde_json::from_value(slice).unwrap());
    }
    graph
}

fn ask(graph: &NodeGraph, node: &str, request: &str, selector: &str) -> Decision {
    let words: Vec<&str> = request.split(' ').collect();
    let mut parts = words[1].split('/').map(str::to_owned);
    let attributes = Attributes {
        verb: words[0].to_owned(),
        group: parts.next().unwrap(),
        resource: parts.next().unwrap(),
        subresource: parts.next().unwrap_or_default(),
        namespace: words[2].replace('-', ""),
        name: words.get(3).copied().unwrap_or_default().to_owned(),
        field_selector: selector.to_owned(),
        is_resource: true,
        ..Attributes::default()
    };
    let attributes = match words[2] {
        "kube-system" | "kube-node-lease" => Attributes { namespace: words[2].to_owned(), ..attributes },
        _ => attributes,
    };
    graph.authorize(&UserInfo::new(&format!("system:node:{node}"), &["system:nodes"]), &attributes)
}

#[test]
fn a_node_reaches_what_its_pods_need_and_its_own_objects() {
    let rows = [
        ("get /secrets shop pull", "", true),
        ("get /secrets shop env-secret", "", true),
        ("get /secrets shop from-secret", "", true),
        ("get /secrets shop volume-secret", "", true),
        ("watch /secrets shop projected-secret", "", true),
        ("get /secrets shop csi-secret", "", true),
        ("get /secrets kube-system stage", "", true),
        ("get /secrets shop other-secret", "", false),
        ("list /secrets shop", "", false),
        ("update /secrets shop pull", "", false),
        ("get /configmaps shop env-map", "", true),
        ("get /configmaps shop from-map", "", true),
        ("get /configmaps shop volume-map", "", true),
        ("list /configmaps shop projected-map", "", true),
        ("get /configmaps shop nobody", "", false),
        ("get /persistentvolumeclaims shop claim", "", true),
        ("get /persistentvolumeclaims shop web-e", "", true),
        ("patch /persistentvolumeclaims/status shop claim", "", true),
        ("get /persistentvolumes - pv", "", true),
        ("get /persistentvolumes - other", "", false),
        ("create /serviceaccounts/token shop robot", "", true),
        ("create /serviceaccounts/token shop other", "", false),
        ("get /serviceaccounts shop robot", "", true),
        ("get coordination.k8s.io/leases kube-node-lease a", "", true),
        ("create coordination.k8s.io/leases kube-node-lease", "", true),
        ("update coordination.k8s.io/leases kube-node-lease b", "", false),
        ("get coordination.k8s.io/leases kube-system a", "", false),
        ("list coordination.k8s.io/leases kube-node-lease", "", false),
        ("get /nodes - a", "", true),
        ("get /nodes - b", "", false),
        ("list /nodes -", "", false),
        ("watch /nodes -", "metadata.name=a", true),
        ("watch /nodes -", "metadata.name=b", false),
        ("patch /nodes/status - a", "", true),
        ("create /nodes -", "", true),
        ("list /pods -", "spec.nodeName=a", true),
        ("list /pods -", "status.phase!=Failed,spec.nodeName=a", true),
        ("list /pods -", "spec.nodeName!=a", false),
        ("list /pods -", "", false),
        ("get /pods shop web", "", true),
        ("get /pods shop other", "", false),
        ("patch /pods/status shop web", "", true),
        ("create /pods/binding shop web", "", false),
        ("create /pods/eviction shop web", "", true),
        ("list /services -", "", true),
        ("create /events shop", "", true),
        ("patch events.k8s.io/events shop x", "", true),
        ("create certificates.k8s.io/certificatesigningrequests -", "", true),
        ("list node.k8s.io/runtimeclasses -", "", true),
        ("get storage.k8s.io/csinodes - a", "", true),
        ("get storage.k8s.io/csinodes - b", "", false),
        ("create authentication.k8s.io/tokenreviews -", "", true),
        ("create resource.k8s.io/resourceslices -", "", true),
        ("patch resource.k8s.io/resourceslices - own", "", true),
        ("update resource.k8s.io/resourceslices - others", "", false),
        ("delete resource.k8s.io/resourceslices - shared", "", false),
        ("list resource.k8s.io/resourceslices -", "", false),
        ("deletecollection resource.k8s.io/resourceslices -", "spec.driver=d,spec.nodeName=a", true),
        ("deletecollection resource.k8s.io/resourceslices -", "spec.driver=d,spec.nodeName=b", false),
        ("create apps/deployments shop", "", false),
        ("delete /nodes - a", "", false),
    ];
    let graph = graph();
    for (request, selector, is_allowed) in rows {
        let decision = ask(&graph, "a", request, selector);
        assert_eq!(matches!(decision, Decision::Allow(_)), is_allowed, "{request} {selector}: {decision:?}");
    }
}

/// Source: `TestNodeAuthorizer` of upstream's `plugin/pkg/auth/authorizer/node`; what it lets pass is for admission to
/// refuse.
#[test]
fn verbs_and_subresources_are_as_upstream_has_them() {
    let rows = [
        ("create /serviceaccounts/token shop", "", false),
        ("create /serviceaccounts shop robot", "", false),
        ("update /serviceaccounts/token shop robot", "", false),
        ("patch coordination.k8s.io/leases kube-node-lease a", "", true),
        ("delete coordination.k8s.io/leases kube-node-lease b", "", false),
        ("watch coordination.k8s.io/leases kube-node-lease", "metadata.name=a", false),
        ("create coordination.k8s.io/leases kube-system", "", false),
        ("get storage.k8s.io/csinodes/status - a", "", false),
        ("list storage.k8s.io/csinodes -", "", false),
        ("create storage.k8s.io/csinodes -", "", true),
        ("get resource.k8s.io/resourceslices/status - own", "", false),
        ("watch resource.k8s.io/resourceslices -", "spec.nodeName=a", true),
        ("get /secrets/status shop pull", "", false),
        ("list /secrets - pull", "", false),
        ("list /secrets shop pull", "", true),
        ("list /persistentvolumes -", "", false),
        ("get /persistentvolumes/status - pv", "", false),
        ("update /persistentvolumeclaims shop claim", "", false),
        ("get /persistentvolumeclaims/status shop claim", "", false),
        ("list /nodes - a", "", true),
        ("watch /nodes - b", "", false),
        ("update /nodes - b", "", true),
        ("patch /nodes - b", "", true),
        ("patch /nodes/status - b", "", true),
        ("get /nodes/status - a", "", false),
        ("get /nodes/proxy - a", "", false),
        ("deletecollection /nodes -", "metadata.name=a", false),
        ("list /pods shop web", "", true),
        ("watch /pods shop web", "metadata.name=web", true),
        ("list /pods shop other", "", false),
        ("list /pods shop other", "spec.nodeName=b", false),
        ("watch /pods - web", "", false),
        ("create /pods shop", "", true),
        ("create /pods/proxy shop web", "", false),
        ("delete /pods shop web", "", true),
        ("delete /pods shop other", "", true),
        ("delete /pods/proxy shop web", "", false),
        ("deletecollection /pods shop", "spec.nodeName=a", false),
        ("update /pods/status shop other", "", true),
        ("get /pods/status shop web", "", false),
        ("update /pods shop web", "", false),
        ("create /pods/eviction shop other", "", true),
    ];
    let graph = graph();
    for (request, selector, is_allowed) in rows {
        let decision = ask(&graph, "a", request, selector);
        assert_eq!(matches!(decision, Decision::Allow(_)), is_allowed, "{request} {selector}: {decision:?}");
    }
}

#[test]
fn what_no_pod_needs_any_more_is_out_of_reach() {
    let mut graph = graph();
    graph.remove_pod("shop", "web");
    for request in ["get /secrets shop pull", "get /persistentvolumes - pv", "get /secrets kube-system stage"]
    {
        let reason = "no relationship found between node 'a' and this object".to_owned();
        assert_eq!(ask(&graph, "a", request, ""), Decision::NoOpinion(reason), "{request}");
    }
    assert!(matches!(ask(&graph, "b", "get /secrets shop other-secret", ""), Decision::Allow(_)));
}

#[test]
fn mirror_pods_and_unbound_pods_give_no_reach() {
    let mut graph = NodeGraph::default();
    for (name, node, annotation) in [("mirror", "a", MIRROR_ANNOTATION), ("unbound", "", "x")] {
        let pod = json!({
            "metadata": {"name": name, "namespace": "shop", "annotations": {annotation: "y"}},
            "spec": {"nodeName": node, "containers": [], "imagePullSecrets": [{"name": name}]},
        });
        graph.insert_pod(&serde_json::from_value(pod).unwrap());
        assert!(matches!(ask(&graph, "a", &format!("get /secrets shop {name}"), ""), Decision::NoOpinion(_)));
    }
    assert!(matches!(ask(&graph, "a", "get /pods shop mirror", ""), Decision::Allow(_)));
}

#[test]
fn others_are_not_its_business() {
    let graph = graph();
    let request = Attributes { verb: "get".to_owned(), is_resource: true, ..Attributes::default() };
    let imposter = UserInfo::new("system:node:a", &[]);
    assert_eq!(graph.authorize(&imposter, &request), Decision::NoOpinion(String::new()));
    let member = UserInfo::new("x", &["system:nodes"]);
    assert_eq!(graph.authorize(&member, &request), Decision::NoOpinion(String::new()));
    // One without a name is nobody: not the node whose name is empty, whose list of Nodes would be that of all.
    let nameless = UserInfo::new("system:node:", &["system:nodes"]);
    let reason = "unknown node for user \"system:node:\"".to_owned();
    for (verb, resource, selector) in [
        ("list", "nodes", ""),
        ("get", "nodes", ""),
        ("list", "pods", "spec.nodeName="),
        ("list", "services", ""),
    ] {
        let request = Attributes {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            field_selector: selector.to_owned(),
            ..request.clone()
        };
        let found = graph.authorize(&nameless, &request);
        assert_eq!(found, Decision::NoOpinion(reason.clone()), "{verb} {resource} {selector}");
    }
}

#[test]
fn a_node_asks_for_certificates_and_sees_its_own_requests_only() {
    let mut graph = graph();
    for (name, node) in [("own", "a"), ("others", "b")] {
        let request = json!({
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"signerName": "a.b/c", "podName": "web", "podUID": "u", "serviceAccountName": "robot",
                "serviceAccountUID": "u", "nodeName": node, "nodeUID": "u", "pkixPublicKey": "", "proofOfPossession": ""},
        });
        graph.insert_certificate_request(&serde_json::from_value(request).unwrap());
    }
    let own = "can only list/watch podcertificaterequests with nodeName field selector";
    let unrelated = "no relationship found between node 'a' and this object";
    let status = "nodes may not access the status subresource of PodCertificateRequests";
    let check =
        |graph: &NodeGraph, (verb, subresource, name, selector): (&str, &str, &str, &str), expect: &str| {
            let attributes = Attributes {
                verb: verb.to_owned(),
                subresource: subresource.to_owned(),
                namespace: "shop".to_owned(),
                name: name.to_owned(),
                field_selector: selector.to_owned(),
                ..Attributes::default()
            };
            let found = graph.certificate_request("a", &attributes).err().unwrap_or_default();
            assert_eq!(found.to_string(), expect, "{verb} {subresource} {name} {selector}");
        };
    check(&graph, ("create", "", "", ""), "");
    check(&graph, ("get", "", "own", ""), "");
    check(&graph, ("get", "", "others", ""), unrelated);
    check(&graph, ("list", "", "", "spec.nodeName=a"), "");
    check(&graph, ("watch", "", "", "spec.nodeName=b"), own);
    check(&graph, ("list", "", "", ""), own);
    check(&graph, ("update", "status", "own", ""), status);
    check(&graph, ("delete", "", "own", ""), "nodes may not delete podcertificaterequests");
    graph.remove_certificate_request("shop", "own");
    check(&graph, ("get", "", "own", ""), unrelated);
}

#[test]
fn a_node_reads_the_accounts_of_its_pods() {
    let graph = graph();
    let get = |node: &str, name: &str| ask(&graph, node, &format!("get /serviceaccounts shop {name}"), "");
    assert!(matches!(get("a", "robot"), Decision::Allow(_)));
    for (node, name) in [("a", "other"), ("b", "robot")] {
        let told = format!("no relationship found between node '{node}' and this object");
        assert_eq!(get(node, name), Decision::NoOpinion(told), "{node} {name}");
    }
    for verb in ["list", "watch", "update", "delete"] {
        let refused = ask(&graph, "a", &format!("{verb} /serviceaccounts shop robot"), "");
        assert!(matches!(refused, Decision::NoOpinion(_)), "{verb}: {refused:?}");
    }
    let refused = ask(&graph, "a", "get /nodes - b", "");
    let told = "node 'a' cannot read 'b', only its own Node object";
    assert_eq!(refused, Decision::NoOpinion(told.to_owned()));
}

/// What serves Ingresses sees certificates, all together, and no other Secret.
#[test]
fn of_secrets_only_certificates_are_seen_by_what_serves_ingresses() {
    let graph = graph();
    let user = UserInfo::new(crate::INGRESS_USER, &[]);
    let secrets = |verb: &str, name: &str, selector: &str| Attributes {
        verb: verb.to_owned(),
        resource: "secrets".to_owned(),
        name: name.to_owned(),
        field_selector: selector.to_owned(),
        is_resource: true,
        ..Attributes::default()
    };
    let pods = Attributes { resource: "pods".to_owned(), ..secrets("list", "", "type=kubernetes.io/tls") };
    let of_group =
        Attributes { group: "example.com".to_owned(), ..secrets("list", "", "type=kubernetes.io/tls") };
    let token = Attributes { subresource: "x".to_owned(), ..secrets("list", "", "type=kubernetes.io/tls") };
    let rows = [
        (secrets("list", "", "type=kubernetes.io/tls"), true),
        (secrets("watch", "", "type==kubernetes.io/tls"), true),
        (secrets("watch", "", "metadata.name=a,type=kubernetes.io/tls"), true),
        (secrets("list", "", ""), false),
        (secrets("list", "", "type=Opaque"), false),
        (secrets("list", "", "type!=kubernetes.io/tls"), false),
        (secrets("list", "", "metadata.name=kubernetes.io/tls"), false),
        (secrets("get", "web-tls", ""), false),
        (secrets("watch", "web-tls", "type=kubernetes.io/tls"), false),
        (secrets("deletecollection", "", "type=kubernetes.io/tls"), false),
        (pods, false),
        (of_group, false),
        (token, false),
    ];
    for (attributes, expected) in rows {
        let is_allowed = matches!(graph.authorize(&user, &attributes), Decision::Allow(_));
        assert_eq!(is_allowed, expected, "{attributes:?}");
    }
    let others =
        graph.authorize(&UserInfo::new("somebody", &[]), &secrets("list", "", "type=kubernetes.io/tls"));
    assert_eq!(others, Decision::NoOpinion(String::new()));
}

const UNRELATED: &str = "no relationship found between node 'a' and this object";

/// Requests of the node `a`, selectors, and why they are refused. Source: upstream's `node_authorizer.go`.
const REFUSALS: &[(&str, &str, &str)] = &[
    ("update /secrets shop pull", "", "can only read resources of this type"),
    ("get /secrets/status shop pull", "", "cannot read subresource"),
    ("list /secrets - pull", "", "can only read namespaced object of this type"),
    ("list /configmaps shop", "", "No Object name found"),
    ("get /configmaps shop nobody", "", UNRELATED),
    ("list /persistentvolumeclaims shop", "", "can only get individual resources of this type"),
    ("get /persistentvolumeclaims/scale shop claim", "", "cannot get subresource"),
    ("get /persistentvolumeclaims/status shop claim", "", "can only get/update/patch this type"),
    ("update /persistentvolumeclaims/status shop other", "", UNRELATED),
    ("get /persistentvolumes -", "", "No Object name found"),
    ("list resource.k8s.io/resourceclaims shop", "", "can only get individual resources of this type"),
    ("get resource.k8s.io/resourceclaims shop x", "", UNRELATED),
    ("watch storage.k8s.io/volumeattachments -", "", "can only get individual resources of this type"),
    ("get storage.k8s.io/volumeattachments - x", "", UNRELATED),
    ("create /serviceaccounts/token shop", "", "can only create tokens for individual service accounts"),
    ("delete /serviceaccounts shop robot", "", "can only create tokens for individual service accounts"),
    ("create /serviceaccounts shop robot", "", "can only create token subresource of serviceaccount"),
    ("create /serviceaccounts/token shop other", "", UNRELATED),
    (
        "list coordination.k8s.io/leases kube-node-lease",
        "",
        "can only get, create, update, patch, or delete a node lease",
    ),
    (
        "get coordination.k8s.io/leases kube-system a",
        "",
        "can only access leases in the \"kube-node-lease\" system namespace",
    ),
    (
        "get coordination.k8s.io/leases kube-node-lease b",
        "",
        "can only access node lease with the same name as the requesting node",
    ),
    ("watch storage.k8s.io/csinodes -", "", "can only get, create, update, patch, or delete a CSINode"),
    ("get storage.k8s.io/csinodes/status - a", "", "cannot authorize CSINode subresources"),
    (
        "get storage.k8s.io/csinodes - b",
        "",
        "can only access CSINode with the same name as the requesting node",
    ),
    ("get resource.k8s.io/resourceslices/status - own", "", "cannot authorize ResourceSlice subresources"),
    ("get resource.k8s.io/resourceslices - others", "", UNRELATED),
    (
        "list resource.k8s.io/resourceslices -",
        "spec.nodeName!=a",
        "can only list/watch/deletecollection resourceslices with nodeName field selector",
    ),
    (
        "proxy resource.k8s.io/resourceslices - own",
        "",
        "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
    ),
    ("list /nodes -", "", "node 'a' cannot read all nodes, only its own Node object"),
    ("get /nodes - b", "", "node 'a' cannot read 'b', only its own Node object"),
    ("delete /nodes - a", "", ""),
    ("list /pods -", "", "can only list/watch pods with spec.nodeName field selector"),
    ("list /pods shop other", "", UNRELATED),
    ("get /pods shop other", "", UNRELATED),
    ("update /pods shop web", "", ""),
    ("create apps/deployments shop", "", ""),
    ("get secrets.example.com/secrets shop pull", "", ""),
];

#[test]
fn what_is_refused_is_told_why() {
    let graph = graph();
    for (request, selector, reason) in REFUSALS {
        assert_eq!(
            ask(&graph, "a", request, selector),
            Decision::NoOpinion((*reason).to_owned()),
            "{request} {selector}"
        );
    }
}
