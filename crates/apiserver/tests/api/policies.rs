//! Validating admission policies as clients and administrators see them.

use serde_json::{Value, json};

use crate::server::{Answer, TestServer, start_without_flow_control};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A policy about ConfigMaps, with further fields.
fn policy(name: &str, fields: Value) -> Value {
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]},
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

fn binding(name: &str, policy: &str, fields: Value) -> Value {
    let mut spec = json!({"policyName": policy, "validationActions": ["Deny"]});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn make(server: &TestServer, path: &str, object: &Value) {
    let made = server.call("POST", path, &object.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

/// Installs a policy and a binding of the same name.
async fn install(server: &TestServer, name: &str, fields: Value, bound: Value) {
    make(server, &format!("{GROUP}/validatingadmissionpolicies"), &policy(name, fields)).await;
    make(server, &format!("{GROUP}/validatingadmissionpolicybindings"), &binding(name, name, bound)).await;
}

async fn remove(server: &TestServer, name: &str) {
    for resource in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
        let gone = server.call("DELETE", &format!("{GROUP}/{resource}/{name}"), "").await;
        assert_eq!(gone.code, 200, "{}", gone.body);
    }
}

async fn create(server: &TestServer, name: &str, data: Value) -> Answer {
    let body = json!({"metadata": {"name": name}, "data": data});
    server.call("POST", CONFIG_MAPS, &body.to_string()).await
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_policy_counts_from_the_very_next_request_and_a_refusal_has_upstreams_words() {
    let (_, server) = start_without_flow_control().await;
    for round in 0..10 {
        let name = format!("a{round}");
        install(
            &server,
            "no",
            json!({"validations": [{"expression": "object.data.n == '1'", "message": "one only"}]}),
            json!({}),
        )
        .await;
        assert_eq!(create(&server, &name, json!({"n": "1"})).await.code, 201);
        let refused = create(&server, "b", json!({"n": "2"})).await;
        let said = "ValidatingAdmissionPolicy 'no' with binding 'no' denied request: one only";
        assert_eq!(refused.code, 422, "{}", refused.body);
        assert_eq!(refused.body["reason"], "Invalid");
        assert_eq!(message(&refused), format!("configmaps \"b\" is forbidden: {said}"));
        assert_eq!(
            refused.body["details"],
            json!({"name": "b", "kind": "configmaps", "causes": [{"message": said}]})
        );
        remove(&server, "no").await;
        assert_eq!(create(&server, &format!("c{round}"), json!({"n": "2"})).await.code, 201);
    }
    server.stop().await;
}
