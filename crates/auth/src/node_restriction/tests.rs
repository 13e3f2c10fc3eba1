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
    let objects = Objects { new: leak(new), old: leak(old), pod: leak(pod) };
    check(&UserInfo::new("system:node:a", &["system:nodes"]), &attributes, objects)
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
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "controller": true}],
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
            "node \"a\" is not allowed to modify labels: pool.node-restriction.kubernetes.io/x",
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
            "node \"a\" can only evict pods with spec.nodeName set to itself",
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
        ("account", change("/spec/serviceAccountName", json!("x")), "reference a service account"),
        ("secret", change("/spec/volumes", json!([{"secret": {"secretName": "x"}}])), "reference secrets"),
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
    assert!(check(&UserInfo::new("x", &["system:nodes"]), &delete, Objects::default()).is_err());
}
