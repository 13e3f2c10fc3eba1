use serde_json::json;

use super::*;

fn check_write(request: &str, new: Value, old: Value, pod: Value) -> Result<(), String> {
    let words: Vec<&str> = request.split(' ').collect();
    let mut parts = words[1].split('/').map(str::to_owned);
    let attributes = Attributes {
        verb: words[0].to_owned(),
        group: parts.next().unwrap(),
        resource: parts.next().unwrap(),
        subresource: parts.next().unwrap_or_default(),
        namespace: words.get(3).copied().unwrap_or_default().to_owned(),
        name: words.get(2).copied().unwrap_or_default().to_owned(),
        is_resource: true,
        ..Attributes::default()
    };
    let some = |value: &'static Value| (!value.is_null()).then_some(value);
    let leak = |value: Value| some(Box::leak(Box::new(value)));
    let node = leak(json!({"metadata": {"name": "a", "uid": "n"}}));
    let objects = Objects { new: leak(new), old: leak(old), pod: leak(pod), node, account: None };
    let checked = check(&UserInfo::new("system:node:a", &["system:nodes"]), &attributes, objects);
    checked.map_err(|refusal| refusal.to_string())
}

fn node(labels: Value) -> Value {
    json!({"metadata": {"name": "a", "labels": labels}})
}

fn pod(node: &str) -> Value {
    json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": node}})
}

fn mirror() -> Value {
    json!({
        "metadata": {
            "name": "m",
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "n", "controller": true}],
        },
        "spec": {"nodeName": "a", "containers": [{"name": "c"}]},
    })
}

#[test]
fn a_node_writes_only_its_own_node() {
    let plain = node(json!({"kubernetes.io/hostname": "a", "mine": "x", "node.kubernetes.io/x": "y"}));
    let with = |pointer: &str, value: Value| {
        let mut node = plain.clone();
        node["spec"] = json!({});
        *node["spec"].as_object_mut().unwrap().entry(pointer).or_insert(Value::Null) = value;
        node
    };
    let rows = [
        ("create /nodes", plain.clone(), Value::Null, ""),
        (
            "create /nodes",
            json!({"metadata": {"name": "b"}}),
            Value::Null,
            "node \"a\" is not allowed to modify node \"b\"",
        ),
        (
            "create /nodes",
            node(json!({"node-restriction.kubernetes.io/x": "", "node-role.kubernetes.io/master": ""})),
            Value::Null,
            "node \"a\" is not allowed to set the following labels: node-restriction.kubernetes.io/x, node-role.kubernetes.io/master",
        ),
        ("update /nodes a", plain.clone(), node(json!({"other": "y"})), ""),
        ("patch /nodes/status a", with("x", json!(1)), plain.clone(), ""),
        (
            "update /nodes/status b",
            json!({"metadata": {"name": "b"}}),
            json!({}),
            "node \"a\" is not allowed to modify node \"b\"",
        ),
        (
            "update /nodes a",
            with("taints", json!([{"key": "k"}])),
            plain.clone(),
            "node \"a\" is not allowed to modify taints",
        ),
        ("update /nodes a", with("taints", json!([])), plain.clone(), ""),
        (
            "update /nodes a",
            node(json!({})),
            node(json!({"pool.node-restriction.kubernetes.io/x": "y"})),
            "is not allowed to modify labels: pool.node-restriction.kubernetes.io/x",
        ),
    ];
    for (request, new, old, expected) in rows {
        let result = check_write(request, new, old, Value::Null);
        assert_eq!(result.err().unwrap_or_default(), expected, "{request}");
    }
}

#[test]
fn a_node_writes_only_pods_bound_to_it() {
    let labelled = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "a"}});
    let rows = [
        ("delete /pods p shop", Value::Null, pod("a"), Value::Null, ""),
        (
            "delete /pods p shop",
            Value::Null,
            pod("b"),
            Value::Null,
            "node \"a\" can only delete pods with spec.nodeName set to itself",
        ),
        ("patch /pods/status p shop", pod("a"), pod("a"), Value::Null, ""),
        (
            "patch /pods/status p shop",
            pod("b"),
            pod("b"),
            Value::Null,
            "node \"a\" can only update pod status for pods with spec.nodeName set to itself",
        ),
        (
            "update /pods/status p shop",
            labelled,
            pod("a"),
            Value::Null,
            "node \"a\" cannot update labels through pod status",
        ),
        ("create /pods/eviction p shop", json!({}), Value::Null, pod("a"), ""),
        (
            "create /pods/eviction p shop",
            json!({}),
            Value::Null,
            pod("b"),
            "node a can only evict pods with spec.nodeName set to itself",
        ),
    ];
    for (request, new, old, subject, expected) in rows {
        let result = check_write(request, new, old, subject);
        assert_eq!(result.err().unwrap_or_default(), expected, "{request}");
    }
    assert!(check_write("update /pods p shop", pod("a"), pod("a"), Value::Null).is_err());
}

#[test]
fn a_node_creates_only_mirror_pods_that_refer_to_nothing() {
    assert_eq!(check_write("create /pods", mirror(), Value::Null, Value::Null), Ok(()));
    let change = |pointer: &str, value: Value| {
        let mut pod = mirror();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[field] = value;
        pod
    };
    let rows = [
        ("no annotation", change("/metadata/annotations", json!({})), "can only create mirror pods"),
        ("elsewhere", change("/spec/nodeName", json!("b")), "spec.nodeName set to itself"),
        ("no owner", change("/metadata/ownerReferences", json!([])), "an owner reference set to itself"),
        (
            "another node of the name",
            change("/metadata/ownerReferences/0/uid", json!("m")),
            "node a UID mismatch: expected m got n",
        ),
        ("account", change("/spec/serviceAccountName", json!("x")), "reference a service account"),
        ("secret", change("/spec/volumes", json!([{"secret": {"secretName": "x"}}])), "reference secrets"),
        (
            "bundle",
            change(
                "/spec/volumes",
                json!([{"projected": {"sources": [{"clusterTrustBundle": {"path": "x"}}]}}]),
            ),
            "reference clustertrustbundles",
        ),
        (
            "certificate",
            change(
                "/spec/volumes",
                json!([{"projected": {"sources": [{"podCertificate": {"keyPath": "x"}}]}}]),
            ),
            "reference podcertificates",
        ),
        ("map", change("/spec/volumes", json!([{"configMap": {"name": "x"}}])), "reference configmaps"),
    ];
    for (name, pod, expected) in rows {
        let error = check_write("create /pods", pod, Value::Null, Value::Null).unwrap_err();
        assert!(error.ends_with(expected), "{name}: {error}");
    }
}

#[test]
fn a_node_asks_for_tokens_of_its_own_pods_only() {
    let request = |uid: &str| json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}}});
    let rows = [
        (request("u"), pod("a"), ""),
        (json!({"spec": {}}), pod("a"), "node requested token not bound to a pod"),
        (request(""), pod("a"), "node requested token with a pod binding without a uid"),
        (request("u"), pod("b"), "node requested token bound to a pod scheduled on a different node"),
    ];
    for (new, subject, expected) in rows {
        let result = check_write("create /serviceaccounts/token web shop", new, Value::Null, subject);
        assert_eq!(result.err().unwrap_or_default(), expected);
    }
    assert!(
        check_write("create /serviceaccounts/token web shop", request("v"), Value::Null, pod("a")).is_err()
    );
}

#[test]
fn leases_are_its_own_and_others_are_not_checked() {
    let named = |name: &str| json!({"metadata": {"name": name}});
    let lease = "coordination.k8s.io/leases";
    assert!(
        check_write(&format!("create {lease}  kube-node-lease"), named("a"), Value::Null, Value::Null)
            .is_ok()
    );
    assert!(
        check_write(&format!("create {lease}  kube-node-lease"), named("b"), Value::Null, Value::Null)
            .is_err()
    );
    assert!(check_write(&format!("update {lease} a default"), named("a"), named("a"), Value::Null).is_err());
    let delete =
        Attributes { verb: "delete".to_owned(), resource: "nodes".to_owned(), ..Attributes::default() };
    assert!(check(&UserInfo::new("admin", &[]), &delete, Objects::default()).is_ok());
    assert!(check(&UserInfo::new("x", &["system:nodes"]), &delete, Objects::default()).is_ok());
    let nameless = check(&UserInfo::new("system:node:", &["system:nodes"]), &delete, Objects::default());
    let told = nameless.err().map(|refusal| refusal.to_string());
    assert_eq!(told.as_deref(), Some("could not determine node from user \"system:node:\""));
}

#[test]
fn of_claims_a_node_writes_how_large_they_have_become() {
    let claim = |status: Value| json!({"metadata": {"name": "c"}, "status": status});
    let status = "patch /persistentvolumeclaims/status c shop";
    let old = claim(json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
    let grown = claim(json!({"phase": "Bound", "capacity": {"storage": "2Gi"}, "conditions": []}));
    assert_eq!(check_write(status, grown, old.clone(), Value::Null), Ok(()));
    assert_eq!(
        check_write(status, claim(json!({"phase": "Lost"})), old.clone(), Value::Null).unwrap_err(),
        "node \"a\" is not allowed to update fields other than status.capacity and status.conditions"
    );
    assert_eq!(
        check_write("update /persistentvolumeclaims c shop", old.clone(), old, Value::Null).unwrap_err(),
        "may only update PVC status"
    );
}

#[test]
fn a_node_offers_only_devices_of_its_own() {
    let slice = |node: &str| json!({"metadata": {"name": "s"}, "spec": {"nodeName": node}});
    let of = "resource.k8s.io/resourceslices";
    assert_eq!(check_write(&format!("create {of}"), slice("a"), Value::Null, Value::Null), Ok(()));
    assert_eq!(
        check_write(&format!("create {of}"), slice("b"), Value::Null, Value::Null).unwrap_err(),
        "can only create ResourceSlice with the same NodeName as the requesting node"
    );
    assert_eq!(
        check_write(&format!("delete {of} s"), Value::Null, slice("b"), Value::Null).unwrap_err(),
        "can only delete ResourceSlice with the same NodeName as the requesting node"
    );
}

#[test]
fn a_node_asks_for_readable_certificates_of_its_own_name() {
    let request = |signer: &str| json!({"spec": {"signerName": signer, "request": "eA=="}});
    let create = "create certificates.k8s.io/certificatesigningrequests";
    assert_eq!(check_write(create, request("example.com/x"), Value::Null, Value::Null), Ok(()));
    assert_eq!(
        check_write(create, request("kubernetes.io/kubelet-serving"), Value::Null, Value::Null).unwrap_err(),
        "unable to parse csr: PEM block type must be CERTIFICATE REQUEST"
    );
}

#[test]
fn the_audience_of_a_token_is_one_that_the_pod_projects() {
    let pod = json!({"spec": {"volumes": [
        {"projected": {"sources": [{"serviceAccountToken": {"path": "a"}}]}},
        {"projected": {"sources": [{"configMap": {}}, {"serviceAccountToken": {"audience": "vault"}}]}},
        {"emptyDir": {}},
    ]}});
    for (audience, expect) in [("", true), ("vault", true), ("other", false)] {
        assert_eq!(projects_audience(&pod, audience), expect, "{audience}");
    }
    assert_eq!(audience(&json!({"spec": {}})), Ok(""));
    assert_eq!(audience(&json!({"spec": {"audiences": ["vault"]}})), Ok("vault"));
    assert_eq!(
        audience(&json!({"spec": {"audiences": ["a", "b"]}})).unwrap_err().to_string(),
        "node may only request 0 or 1 audiences"
    );
}

/// A request for a Pod's certificate with one field changed.
fn certificate_request(field: &str, value: &str) -> Value {
    let mut request = json!({"spec": {"podName": "p", "podUID": "u", "serviceAccountName": "robot",
        "serviceAccountUID": "s", "nodeName": "a", "nodeUID": "n"}});
    request["spec"][field] = value.into();
    request
}

#[test]
fn a_node_asks_for_certificates_of_its_own_pods_only() {
    let mut running = pod("a");
    running["spec"]["serviceAccountName"] = "robot".into();
    let mut elsewhere = running.clone();
    elsewhere["spec"]["nodeName"] = "b".into();
    let mut mirror = running.clone();
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let (node, account) = (json!({"metadata": {"uid": "n"}}), json!({"metadata": {"uid": "s"}}));
    let check = |field: &str, value: &str, pod: Option<&Value>, expected: &str| {
        let request = certificate_request(field, value);
        let objects =
            Objects { new: Some(&request), pod, node: Some(&node), account: Some(&account), old: None };
        let attributes = Attributes {
            verb: "create".to_owned(),
            group: "certificates.k8s.io".to_owned(),
            resource: "podcertificaterequests".to_owned(),
            namespace: "shop".to_owned(),
            ..Attributes::default()
        };
        let user = UserInfo::new("system:node:a", &["system:nodes"]);
        let found = super::check(&user, &attributes, objects).err().unwrap_or_default().to_string();
        assert_eq!(found, expected, "{field}={value}");
    };
    let pod = Some(&running);
    check("podName", "p", pod, "");
    check(
        "nodeName",
        "b",
        pod,
        "PodCertificateRequest.Spec.NodeName=\"b\", which is not the requesting node \"a\"",
    );
    check(
        "nodeUID",
        "x",
        pod,
        "PodCertificateRequest for pod \"shop/p\" names node UID \"x\", inconsistent with the running node (\"n\")",
    );
    check(
        "podName",
        "q",
        None,
        "while retrieving pod \"shop/q\" named in the PodCertificateRequest: pod \"q\" not found",
    );
    check(
        "podUID",
        "x",
        pod,
        "PodCertificateRequest for pod \"shop/p\" contains pod UID (\"x\") which differs from running pod \"u\"",
    );
    check(
        "podName",
        "p",
        Some(&elsewhere),
        "pod \"shop/p\" is not running on node \"a\" named in the PodCertificateRequest",
    );
    check("podName", "p", Some(&mirror), "pod \"shop/p\" is a mirror pod");
    check(
        "serviceAccountName",
        "other",
        pod,
        "PodCertificateRequest for pod \"shop/p\" contains serviceAccountName (\"other\") that differs from running \
         pod (\"robot\")",
    );
    check(
        "serviceAccountUID",
        "x",
        pod,
        "PodCertificateRequest for pod \"shop/p\" names service account UID \"x\", which differs from the running \
         service account (\"s\")",
    );
}

/// Source: `Test_nodePlugin_Admit`, `getModifiedLabels` and `getForbiddenLabels` of upstream's `noderestriction`.
#[test]
fn labels_of_nodes_are_a_kubelets_or_not() {
    for (label, is_own) in [
        ("plain", true),
        ("example.com/x", true),
        ("notkubernetes.io/x", true),
        ("kubernetes.io.example.com/x", true),
        ("kubernetes.io/hostname", true),
        ("kubernetes.io/arch", true),
        ("kubernetes.io/os", true),
        ("beta.kubernetes.io/arch", true),
        ("beta.kubernetes.io/os", true),
        ("beta.kubernetes.io/instance-type", true),
        ("node.kubernetes.io/instance-type", true),
        ("failure-domain.beta.kubernetes.io/zone", true),
        ("failure-domain.beta.kubernetes.io/region", true),
        ("topology.kubernetes.io/zone", true),
        ("topology.kubernetes.io/region", true),
        ("kubelet.kubernetes.io/foo", true),
        ("foo.kubelet.kubernetes.io/foo", true),
        ("node.kubernetes.io/foo", true),
        ("foo.node.kubernetes.io/foo", true),
        ("kubernetes.io/foo", false),
        ("k8s.io/foo", false),
        ("other.kubernetes.io/foo", false),
        ("other.k8s.io/foo", false),
        ("beta.kubernetes.io/foo", false),
        ("node-role.kubernetes.io/master", false),
        ("node-restriction.kubernetes.io/foo", false),
        ("foo.node-restriction.kubernetes.io/foo", false),
        ("topology.kubernetes.io/rack", false),
        ("kubernetes.io/", false),
    ] {
        for (what, new, old, told) in [
            (
                "set",
                json!({label: "x"}),
                Value::Null,
                format!("node \"a\" is not allowed to set the following labels: {label}"),
            ),
            ("add", json!({label: "x"}), json!({}), format!("is not allowed to modify labels: {label}")),
            (
                "change",
                json!({label: "x"}),
                json!({label: "y"}),
                format!("is not allowed to modify labels: {label}"),
            ),
            ("remove", json!({}), json!({label: "y"}), format!("is not allowed to modify labels: {label}")),
            ("keep", json!({label: "x", "more": "x"}), json!({label: "x"}), String::new()),
        ] {
            let (verb, old) = if old.is_null() { ("create", old) } else { ("update", node(old)) };
            let found = check_write(&format!("{verb} /nodes a"), node(new), old, Value::Null);
            let expect = if is_own { String::new() } else { told };
            assert_eq!(found.err().unwrap_or_default(), expect, "{what} {label}");
        }
    }
}

/// Source: `Test_nodePlugin_Admit`: mirror Pods, and who owns them.
#[test]
fn a_mirror_pod_is_owned_by_its_node_alone() {
    let owner = |change: &str, value: Value| {
        let mut pod = mirror();
        pod["metadata"]["ownerReferences"][0][change] = value;
        pod
    };
    let mut twice = mirror();
    let again = twice["metadata"]["ownerReferences"][0].clone();
    twice["metadata"]["ownerReferences"].as_array_mut().unwrap().push(again);
    let itself = "node \"a\" can only create pods with an owner reference set to itself";
    for (name, pod, told) in [
        ("two", twice, "node \"a\" can only create pods with a single owner reference set to itself"),
        ("another version", owner("apiVersion", json!("v2")), itself),
        ("another kind", owner("kind", json!("Pod")), itself),
        ("another name", owner("name", json!("b")), itself),
        (
            "no controller",
            owner("controller", json!(false)),
            "node \"a\" can only create pods with a controller owner reference set to itself",
        ),
        (
            "it is not said",
            owner("controller", Value::Null),
            "node \"a\" can only create pods with a controller owner reference set to itself",
        ),
        (
            "it blocks",
            owner("blockOwnerDeletion", json!(true)),
            "node \"a\" must not set blockOwnerDeletion on an owner reference",
        ),
        ("it does not block", owner("blockOwnerDeletion", json!(false)), ""),
    ] {
        let found = check_write("create /pods", pod, Value::Null, Value::Null);
        assert_eq!(found.err().unwrap_or_default(), told, "{name}");
    }
}

/// Everything in a Pod that could make its kubelet read what it may not.
#[test]
fn a_mirror_pod_refers_to_nothing_whatever_way_it_is_written() {
    for (pointer, value, plural) in [
        ("volumes", json!([{"secret": {"secretName": "x"}}]), "secrets"),
        ("volumes", json!([{"projected": {"sources": [{"secret": {"name": "x"}}]}}]), "secrets"),
        ("volumes", json!([{"csi": {"driver": "d", "nodePublishSecretRef": {"name": "x"}}}]), "secrets"),
        ("volumes", json!([{"rbd": {"secretRef": {"name": "x"}}}]), "secrets"),
        ("volumes", json!([{"azureFile": {"secretName": "x"}}]), "secrets"),
        ("imagePullSecrets", json!([{"name": "x"}]), "secrets"),
        (
            "containers",
            json!([{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k"}}}]}]),
            "secrets",
        ),
        ("containers", json!([{"envFrom": [{"secretRef": {"name": "x"}}]}]), "secrets"),
        ("initContainers", json!([{"envFrom": [{"configMapRef": {"name": "x"}}]}]), "configmaps"),
        (
            "containers",
            json!([{"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "k"}}}]}]),
            "configmaps",
        ),
        ("volumes", json!([{"configMap": {"name": "x"}}]), "configmaps"),
        ("volumes", json!([{"projected": {"sources": [{"configMap": {"name": "x"}}]}}]), "configmaps"),
        ("volumes", json!([{"persistentVolumeClaim": {"claimName": "x"}}]), "persistentvolumeclaims"),
        ("volumes", json!([{"ephemeral": {"volumeClaimTemplate": {}}}]), "persistentvolumeclaims"),
        ("resourceClaims", json!([{"name": "x"}]), "resourceclaims"),
        ("volumes", json!([{"emptyDir": {}}, {"hostPath": {"path": "/"}}, {"downwardAPI": {}}]), ""),
        ("imagePullSecrets", json!([]), ""),
        ("resourceClaims", Value::Null, ""),
    ] {
        let mut pod = mirror();
        pod["spec"][pointer] = value.clone();
        let found = check_write("create /pods", pod, Value::Null, Value::Null);
        let told = format!("node \"a\" can not create pods that reference {plural}");
        let expect = if plural.is_empty() { String::new() } else { told };
        assert_eq!(found.err().unwrap_or_default(), expect, "{pointer}: {value}");
    }
}
