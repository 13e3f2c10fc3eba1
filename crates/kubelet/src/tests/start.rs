//! What a Pod's start depends on: the node's labels, its network, its secrets.

use serde_json::json;

use super::{Node, is_ready, pod};

/// Source: `generalFilter` of upstream's `pkg/kubelet/lifecycle/predicate.go`.
#[tokio::test]
async fn a_node_whose_labels_were_changed_just_now_is_looked_up() {
    let node = Node::start();
    node.api.put(pod(json!({})));
    node.until("readiness", is_ready).await;
    node.api.delete();
    node.until_gone().await;
    let labels = json!({"disk": "ssd", "kubernetes.io/hostname": "n1"});
    // The kubelet's informer is not told.
    let new = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}});
    node.api.set("/api/v1/nodes/n1", new);
    node.api.put(pod(json!({"nodeSelector": {"disk": "ssd"}})));
    node.until("readiness", is_ready).await;
    node.api.delete();
    node.until_gone().await;
    node.api.put(pod(json!({"nodeSelector": {"disk": "hdd"}})));
    let refused = node.until("the refusal", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(refused["status"]["reason"], "NodeAffinity");
    let message =
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    assert_eq!(refused["status"]["message"], message);
}

/// Source: `PodSandboxChanged` of upstream's `pkg/kubelet/kuberuntime/util`.
#[tokio::test]
async fn a_sandbox_that_got_no_address_is_made_anew() {
    let node = Node::start();
    node.runtime.leave_without_ip(1);
    node.api.put(pod(json!({})));
    let ready = node.until("readiness", is_ready).await;
    assert_eq!(ready["status"]["podIP"], "10.42.0.9");
    assert_eq!(ready["status"]["containerStatuses"][0]["restartCount"], 0);
    let calls = node.runtime.calls();
    let place = |call: &str| calls.iter().position(|made| made.starts_with(call));
    assert!(place("stop sandbox sb1") < place("create main 0"), "{calls:?}");
    assert_eq!(calls.iter().filter(|call| *call == "run sandbox").count(), 2, "{calls:?}");
}

/// Source: `EnsureImageExists` of upstream's `pkg/kubelet/images`, which reads secrets no earlier than it needs them.
#[tokio::test]
async fn a_secret_that_cannot_be_read_harms_no_pod_whose_image_is_there() {
    let node = Node::start();
    let data = json!({".dockerconfigjson": "ew=="});
    node.api.set(
        "/api/v1/namespaces/shop/secrets/broken",
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "data": data,
            "metadata": {"name": "broken", "namespace": "shop", "resourceVersion": "1"}}),
    );
    node.api.put(pod(json!({"imagePullSecrets": [{"name": "broken"}]})));
    node.until("readiness", is_ready).await;
    node.api.delete();
    node.until_gone().await;
    let main = json!({"name": "main", "image": "img", "imagePullPolicy": "Always"});
    node.api.put(pod(json!({"imagePullSecrets": [{"name": "broken"}], "containers": [main]})));
    let waiting = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    let refused = node.until("the refusal", |pod| waiting(pod)["reason"] == "ErrImagePull").await;
    let message = waiting(&refused)["message"].to_string();
    assert!(message.contains("EOF while parsing an object"), "{message}");
}
