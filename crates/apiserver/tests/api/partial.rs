//! Subresources that change a part of an object: ephemeral containers, resize, finalize, binding.

use crate::server::{Answer, TestServer, start};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn with_pod() -> TestServer {
    let server = start(None).await;
    server.call("POST", "/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: default}}").await;
    let pod = "{metadata: {name: p}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '1'}, \
               limits: {cpu: '2'}}}]}}";
    let answer = server.call("POST", PODS, pod).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    server
}

async fn send(server: &TestServer, method: &str, path: &str, content_type: &str, body: &str) -> Answer {
    server.call_with(method, &format!("{PODS}/p/{path}"), &[("content-type", content_type)], body).await
}

/// The entries of managed fields of a subresource: manager and operation.
fn managers(pod: &Value, subresource: &str) -> Vec<String> {
    let entries = pod["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let of = entries.iter().filter(|entry| text(entry, "subresource") == subresource);
    of.map(|entry| format!("{} {}", text(entry, "manager"), text(entry, "operation"))).collect()
}

#[tokio::test]
async fn ephemeral_containers_come_by_every_kind_of_write() {
    let server = with_pod().await;
    let rows = [
        (
            STRATEGIC,
            "",
            r#"{"spec": {"nodeName": "x", "ephemeralContainers": [{"name": "one", "image": "i"}]}}"#,
        ),
        (
            JSON_PATCH,
            "",
            r#"[{"op": "add", "path": "/spec/ephemeralContainers/-", "value": {"name": "two", "image": "i"}}]"#,
        ),
        (
            APPLY,
            "?fieldManager=me",
            "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: b}}, spec: {ephemeralContainers: [{name: three, image: i}]}}",
        ),
    ];
    for (index, (content_type, query, body)) in rows.iter().enumerate() {
        let path = format!("ephemeralcontainers{query}");
        let answer = send(&server, "PATCH", &path, content_type, body).await;
        assert_eq!(answer.code, 200, "{content_type}: {}", answer.body);
        assert_eq!(answer.body["spec"]["ephemeralContainers"].as_array().map(Vec::len), Some(index + 1));
        assert_eq!(answer.body["spec"]["nodeName"], Value::Null);
        assert_eq!(answer.body["metadata"]["labels"], Value::Null);
        assert_eq!(answer.body["metadata"]["generation"], index + 2);
    }
    let pod = send(&server, "GET", "ephemeralcontainers", MERGE, "").await.body;
    let added = &pod["spec"]["ephemeralContainers"][0];
    assert_eq!(added["terminationMessagePolicy"], "File", "defaults are filled in");
    assert_eq!(managers(&pod, "ephemeralcontainers"), ["me Apply", "unknown Update"]);
    let removed =
        send(&server, "PATCH", "ephemeralcontainers", MERGE, r#"{"spec": {"ephemeralContainers": null}}"#);
    let removed = removed.await;
    assert_eq!(removed.code, 422);
    assert!(removed.body["message"].as_str().unwrap().contains("may not be removed"), "{}", removed.body);
    let mut put = pod.clone();
    put["spec"]["ephemeralContainers"].as_array_mut().unwrap().push(json!({"name": "four", "image": "i"}));
    let stored = send(&server, "PUT", "ephemeralcontainers", "application/json", &put.to_string()).await;
    assert_eq!(stored.code, 200, "{}", stored.body);
    let again = send(&server, "PUT", "ephemeralcontainers", "application/json", &put.to_string()).await;
    assert_eq!(again.code, 409, "the revision is a precondition: {}", again.body);
    server.stop().await;
}

#[tokio::test]
async fn a_pod_is_resized_only_where_its_node_can() {
    let server = with_pod().await;
    let more = r#"{"spec": {"containers": [{"name": "c", "image": "other", "resources": {"limits": {"cpu": "3"}}}]}}"#;
    let resized = send(&server, "PATCH", "resize", STRATEGIC, more).await;
    assert_eq!(resized.code, 200, "{}", resized.body);
    assert_eq!(resized.body["spec"]["containers"][0]["resources"]["limits"]["cpu"], "3");
    assert_eq!(resized.body["spec"]["containers"][0]["image"], "i");
    let plain = server
        .call_with(
            "PATCH",
            &format!("{PODS}/p"),
            &[("content-type", STRATEGIC)],
            &more.replace("\"3\"", "\"4\""),
        )
        .await;
    assert_eq!(plain.code, 422, "only the subresource resizes: {}", plain.body);
    let binding = "{apiVersion: v1, kind: Binding, metadata: {name: p}, target: {kind: Node, name: node-1}}";
    assert_eq!(server.call("POST", &format!("{PODS}/p/binding"), binding).await.code, 201);
    let waiting = send(&server, "PATCH", "resize", STRATEGIC, &more.replace("\"3\"", "\"4\"")).await;
    assert_eq!(waiting.code, 200, "nothing runs yet: {}", waiting.body);
    // What runs without saying with which resources runs on a node that knows no resizing.
    let running = r#"{"status": {"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true,
                  "restartCount": 0, "state": {"running": {}}}]}}"#;
    assert_eq!(send(&server, "PATCH", "status", MERGE, running).await.code, 200);
    let refused = send(&server, "PATCH", "resize", STRATEGIC, &more.replace("\"3\"", "\"5\"")).await;
    assert_eq!(refused.code, 422);
    assert_eq!(
        refused.body["message"],
        "Pod \"p\" is invalid: spec: Forbidden: Pod running on node without support for resize"
    );
    server.stop().await;
}

#[tokio::test]
async fn bindings_are_checked_by_their_rules() {
    let server = with_pod().await;
    let rows = [
        (
            "{metadata: {name: q}, target: {name: node-1}}",
            400,
            "name in URL does not match name in Binding object",
        ),
        ("{metadata: {name: p}, target: {kind: Node}}", 422, "target.name: Required value"),
        (
            "{metadata: {name: p}, target: {kind: Pod, name: node-1}}",
            422,
            "target.kind: Unsupported value: \"Pod\"",
        ),
    ];
    for (body, code, text) in rows {
        let answer = server.call("POST", &format!("{PODS}/p/binding"), body).await;
        assert_eq!(answer.code, code, "{body}: {}", answer.body);
        assert!(answer.body["message"].as_str().unwrap().contains(text), "{body}: {}", answer.body);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_bound_pod_carries_the_labels_of_its_binding_and_its_nodes_place() {
    let server = with_pod().await;
    let node = "{metadata: {name: node-1, labels: {topology.kubernetes.io/zone: a, \
                kubernetes.io/os: linux}}}";
    assert_eq!(server.call("POST", "/api/v1/nodes", node).await.code, 201);
    let nominated = r#"{"status": {"nominatedNodeName": "node-2"}}"#;
    assert_eq!(send(&server, "PATCH", "status", MERGE, nominated).await.code, 200);
    let binding = "{metadata: {name: p, labels: {by: me, topology.kubernetes.io/zone: z}}, \
                   target: {kind: Node, name: node-1}}";
    let answer = server.call("POST", &format!("{PODS}/p/binding"), binding).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let pod = server.call("GET", &format!("{PODS}/p"), "").await.body;
    let label = |name: &str| pod["metadata"]["labels"][name].as_str();
    assert_eq!(label("by"), Some("me"));
    assert_eq!(label("topology.kubernetes.io/zone"), Some("a"));
    assert_eq!(label("kubernetes.io/os"), None);
    assert_eq!(pod["status"].get("nominatedNodeName"), None, "what was hoped for is settled");
    server.stop().await;
}

#[tokio::test]
async fn finalizing_a_namespace_tracks_its_field_and_changes_nothing_else() {
    let server = start(None).await;
    let made = server.call("POST", "/api/v1/namespaces", "{metadata: {name: team}}").await.body;
    let mut put = made.clone();
    put["spec"]["finalizers"] = json!(["kubernetes", "example.com/x"]);
    put["metadata"]["labels"]["more"] = "x".into();
    let path = "/api/v1/namespaces/team/finalize";
    let json = [("content-type", "application/json")];
    let answer = server.call_with("PUT", path, &json, &put.to_string()).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(answer.body["spec"]["finalizers"], json!(["kubernetes", "example.com/x"]));
    assert_eq!(answer.body["metadata"]["labels"], made["metadata"]["labels"]);
    assert_eq!(managers(&answer.body, "finalize"), ["unknown Update"]);
    put["spec"]["finalizers"] = json!(["nonsense"]);
    put["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let answer = server.call_with("PUT", path, &json, &put.to_string()).await;
    assert_eq!(answer.code, 422, "{}", answer.body);
    server.stop().await;
}
