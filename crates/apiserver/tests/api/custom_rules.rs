//! Rules in CEL of custom kinds, from the definition to the objects.

use serde_json::{Value, json};

use crate::server::{Answer, TestServer, start};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/example.com/v1/namespaces/default/gadgets";
const NAME: &str = "gadgets.example.com";

fn definition(spec: Value, status: Value) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": NAME},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "gadgets", "singular": "gadget",
            "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}}}]}})
}

/// Fields with a rule of each kind.
fn spec() -> Value {
    json!({"type": "object", "properties": {
        "class": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "class is immutable"}]},
        "min": {"type": "integer"}, "max": {"type": "integer"},
        "generation": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "!oldSelf.hasValue() || oldSelf.value() <= self", "optionalOldSelf": true, "message": "must not fall"},
            {"rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": true, "message": "must begin at 1"}]},
        "ports": {"type": "array", "maxItems": 8, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"},
                "number": {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "ports stay"}]}}}},
        "words": {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [
            {"rule": "self.all(x, x != 'bad')", "reason": "FieldValueForbidden"}]}},
        "x-kubernetes-validations": [{"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "fieldPath": ".min",
            "messageExpression": "'min is above max of ' + self.class"}]})
}

fn status() -> Value {
    json!({"type": "object", "properties": {"used": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0", "message": "not negative"}]}}})
}

fn gadget(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": spec})
}

async fn define(server: &TestServer, spec: Value) -> Answer {
    server.call("POST", DEFINITIONS, &definition(spec, status()).to_string()).await
}

async fn create(server: &TestServer, spec: Value) -> Answer {
    server.call("POST", GADGETS, &gadget(spec).to_string()).await
}

async fn merge(server: &TestServer, spec: Value) -> Answer {
    server.call("PATCH", &format!("{GADGETS}/a"), &json!({"spec": spec}).to_string()).await
}

/// Why an object was refused, without what all messages begin with.
fn why(answer: &Answer) -> String {
    assert_eq!(answer.code, 422, "{}", answer.body);
    let message = answer.body["message"].as_str().unwrap();
    message.split_once(" is invalid: ").map_or(message, |(_, why)| why).to_owned()
}

#[tokio::test]
async fn objects_are_refused_by_rules_and_changes_by_those_about_changes() {
    let server = start(None).await;
    let made = define(&server, spec()).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let refused = create(&server, json!({"class": "x", "min": 3, "max": 2})).await;
    assert_eq!(why(&refused), "spec.min: Invalid value: min is above max of x");
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.min");
    assert_eq!(
        why(&create(&server, json!({"generation": 2})).await),
        "spec.generation: Invalid value: 2: must begin at 1"
    );
    assert_eq!(
        why(&create(&server, json!({"words": ["bad"]})).await),
        "spec.words: Forbidden: failed rule: self.all(x, x != 'bad')"
    );
    let blocked = create(&server, json!({"min": "x", "max": 2})).await;
    assert!(
        why(&blocked).contains("some validation rules were not checked because the object was invalid"),
        "{}",
        blocked.body
    );

    let ports = json!([{"name": "a", "number": 1}, {"name": "b", "number": 2}]);
    let made =
        create(&server, json!({"class": "x", "generation": 1, "min": 1, "max": 2, "ports": ports})).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(
        why(&merge(&server, json!({"class": "y"})).await),
        "spec.class: Invalid value: \"y\": class is immutable"
    );
    let swapped = json!([{"name": "b", "number": 2}, {"name": "a", "number": 1}, {"name": "c", "number": 3}]);
    assert_eq!(merge(&server, json!({"ports": swapped})).await.code, 200);
    let changed = json!([{"name": "c", "number": 3}, {"name": "a", "number": 4}]);
    assert_eq!(
        why(&merge(&server, json!({"ports": changed})).await),
        "spec.ports[1].number: Invalid value: 4: ports stay"
    );
    assert_eq!(merge(&server, json!({"generation": 2})).await.code, 200);
    assert_eq!(
        why(&merge(&server, json!({"generation": 1})).await),
        "spec.generation: Invalid value: 1: must not fall"
    );

    let path = format!("{GADGETS}/a/status");
    let refused = server.call("PATCH", &path, "{\"status\": {\"used\": -1}}").await;
    assert_eq!(why(&refused), "status.used: Invalid value: -1: not negative");
    assert_eq!(server.call("PATCH", &path, "{\"status\": {\"used\": 1}}").await.code, 200);
}

#[tokio::test]
async fn a_rule_that_comes_later_leaves_what_does_not_change() {
    let server = start(None).await;
    let part = |rules: Value| {
        json!({"type": "object", "properties": {"other": {"type": "string"},
            "n": {"type": "integer", "x-kubernetes-validations": rules}}})
    };
    assert_eq!(define(&server, part(json!([]))).await.code, 201);
    assert_eq!(create(&server, json!({"n": -1})).await.code, 201);
    let path = format!("{DEFINITIONS}/{NAME}");
    let mut stricter = server.call("GET", &path, "").await.body;
    stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        part(json!([{"rule": "self >= 0", "message": "not negative"}]));
    let changed = server.call("PUT", &path, &stricter.to_string()).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    assert_eq!(merge(&server, json!({"other": "x"})).await.code, 200);
    assert_eq!(why(&merge(&server, json!({"n": -2})).await), "spec.n: Invalid value: -2: not negative");
}

#[tokio::test]
async fn definitions_are_refused_for_rules_that_are_wrong_or_cost_too_much() {
    let server = start(None).await;
    let text = |rule: &str| {
        json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"},
        "x-kubernetes-validations": [{"rule": rule}]}}})
    };
    let wrong = why(&define(&server, text("self.nobody()")).await);
    assert!(wrong.contains("properties[l].x-kubernetes-validations[0].rule: Invalid value: "), "{wrong}");
    assert!(
        wrong.contains("compilation failed: ERROR: <input>:1:12: undeclared reference to 'nobody'"),
        "{wrong}"
    );
    let costly = why(&define(&server, text("self.all(x, self.exists_one(y, x == y))")).await);
    assert!(costly.contains("estimated rule cost exceeds budget by factor of more than 100x"), "{costly}");
    let status = server.call("GET", &format!("{DEFINITIONS}/{NAME}"), "").await;
    assert_eq!(status.code, 404);

    // What an estimate allows can still be more than one object is worth.
    let rules = vec![json!({"rule": "self.all(x, self.all(y, x == y))"}); 10];
    let lists = json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 1000,
        "items": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 100},
            "x-kubernetes-validations": rules}}}});
    let made = define(&server, lists).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let element = "x".repeat(100);
    let object: Vec<Value> = (0..1000).map(|_| json!(vec![&element; 10])).collect();
    let made = create(&server, json!({"l": object})).await;
    assert!(why(&made).contains(
        "validation failed due to running out of cost budget, no further validation rules will be run"
    ));
}

/// Others go on while many rules are compiled and evaluated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rules_are_checked_beside_other_requests() {
    let server = start(None).await;
    let rules: Vec<Value> = (0..300).map(|index| json!({"rule": format!("self.min != {index}")})).collect();
    let mut schema = spec();
    schema["x-kubernetes-validations"] = rules.into();
    let made = define(&server, schema).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(create(&server, json!({"min": 300})).await.code, 201);
    assert_eq!(
        why(&merge(&server, json!({"min": 299})).await),
        "spec: Invalid value: failed rule: self.min != 299"
    );
}
