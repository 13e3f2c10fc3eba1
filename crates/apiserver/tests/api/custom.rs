//! Custom kinds, from their definition to their end.

mod hostile;
mod life;
mod many;
mod servers;

use serde_json::{Value, json};

use crate::server::{self, Answer, TestServer, start};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const APPLY: [(&str, &str); 1] = [("content-type", "application/apply-patch+yaml")];

/// A schema with a bit of everything.
fn schema() -> Value {
    json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
            "name": {"type": "string", "maxLength": 5, "pattern": "^[a-z]+$", "nullable": true},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "boolean"}}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 3, "items": {"type": "string"}},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "required": ["id"], "properties": {
                    "id": {"type": "string"}, "count": {"type": "integer", "default": 1}}}},
            "replicas": {"type": "integer"}}},
        "status": {"type": "object", "properties": {
            "phase": {"type": "string", "enum": ["Up", "Down"]}, "replicas": {"type": "integer"},
            "selector": {"type": "string"}, "seen": {"type": "string", "format": "date-time"}}}}})
}

fn version(name: &str, is_stored: bool) -> Value {
    json!({"name": name, "served": true, "storage": is_stored, "schema": {"openAPIV3Schema": schema()},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
        "selectableFields": [{"jsonPath": ".spec.mode"}],
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1, "description": "How fast."},
            {"name": "First", "type": "string", "jsonPath": ".spec.parts[0].id"},
            {"name": "Seen", "type": "date", "jsonPath": ".status.seen"}]})
}

/// The definition of a kind, in the group `example.com`.
fn definition(plural: &str, kind: &str, versions: Vec<Value>) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "shortNames": [format!("{plural}x")],
                "categories": ["all"]}}})
}

fn widgets() -> Value {
    definition("widgets", "Widget", vec![version("v1", true)])
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn define(server: &TestServer, definition: &Value) {
    let answer = server.call("POST", DEFINITIONS, &definition.to_string()).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
}

async fn read(server: &TestServer, name: &str) -> Value {
    server.call("GET", &format!("{DEFINITIONS}/{name}"), "").await.body
}

/// Replaces a definition by what `change` makes of it.
async fn redefine(server: &TestServer, name: &str, change: impl FnOnce(&mut Value)) -> Answer {
    let mut definition = read(server, name).await;
    change(&mut definition);
    server.call("PUT", &format!("{DEFINITIONS}/{name}"), &definition.to_string()).await
}

async fn post(server: &TestServer, object: &Value) -> Answer {
    server.call("POST", WIDGETS, &object.to_string()).await
}

fn condition<'a>(definition: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let all = definition["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let found = all.iter().find(|condition| condition["type"] == kind);
    found.map_or(("", ""), |found| (found["status"].as_str().unwrap(), found["reason"].as_str().unwrap()))
}

#[tokio::test]
async fn a_kind_can_be_used_as_soon_as_it_is_defined() {
    let server = start(None).await;
    assert_eq!(server.call("GET", WIDGETS, "").await.code, 404);
    define(&server, &widgets()).await;
    let made = post(&server, &widget("a", json!({"size": 3}))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body["spec"], json!({"size": 3, "mode": "fast"}));
    assert_eq!((&made.body["metadata"]["generation"], &made.body["status"]), (&json!(1), &Value::Null));

    let definition = read(&server, "widgets.example.com").await;
    assert_eq!(condition(&definition, "NamesAccepted"), ("True", "NoConflicts"));
    assert_eq!(condition(&definition, "Established"), ("True", "InitialNamesAccepted"));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(definition["status"]["acceptedNames"]["listKind"], "WidgetList");

    // Discovery and both versions of OpenAPI know it at once.
    let list = server.call("GET", "/apis/example.com/v1", "").await.body;
    let names: Vec<&Value> = list["resources"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    assert_eq!(list["resources"][0]["shortNames"], json!(["widgetsx"]));
    let third = server.call("GET", "/openapi/v3/apis/example.com/v1", "").await.body;
    crate::discovery::check_references(&third, &third["components"]["schemas"], "#/components/schemas/");
    let spec = &third["components"]["schemas"]["com.example.v1.Widget"]["properties"]["spec"];
    assert_eq!(spec["properties"]["mode"]["default"], "fast");
    let second = server.call("GET", "/openapi/v2", "").await.body;
    assert_eq!(
        second["definitions"]["com.example.v1.Widget"]["properties"]["spec"]["required"],
        json!(["size"])
    );

    // Lists, Tables, fields.
    let listed = server.call("GET", WIDGETS, "").await.body;
    assert_eq!((&listed["kind"], listed["items"].as_array().unwrap().len()), (&json!("WidgetList"), 1));
    // Items of custom kinds say what they are, as upstream's do.
    let one = server.call("GET", &format!("{WIDGETS}/a"), "").await.body;
    assert_eq!((&listed["items"][0], &one["kind"]), (&one, &json!("Widget")));
    let yaml = [("accept", "application/yaml")];
    let yaml = server::send(server.server.service(), Some(server::admin()), "GET", WIDGETS, &yaml, "").await;
    let yaml = http_body_util::BodyExt::collect(yaml.into_body()).await.unwrap().to_bytes();
    let yaml: Value = serde_saphyr::from_slice(&yaml).unwrap();
    assert_eq!(yaml, listed);
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = server.call_with("GET", WIDGETS, &table, "").await.body;
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, "fast", null, null]));
    let columns = table["columnDefinitions"].as_array().unwrap();
    assert_eq!(columns[2]["description"], "How fast.");
    assert_eq!(
        columns[1]["description"],
        "Custom resource definition column (in JSONPath format): .spec.size"
    );
    for (selector, count) in [("fast", 1), ("slow", 0)] {
        let path = format!("{WIDGETS}?fieldSelector=spec.mode%3D{selector}");
        assert_eq!(server.call("GET", &path, "").await.body["items"].as_array().unwrap().len(), count);
    }
    let other = server.call("GET", &format!("{WIDGETS}?fieldSelector=spec.size%3D3"), "").await;
    assert!(
        other.code == 400
            && other.body["message"].as_str().unwrap().ends_with("field label not supported: spec.size")
    );
    server.stop().await;
}

#[tokio::test]
async fn what_the_schema_refuses_is_told_as_upstream_tells_it() {
    let server = start(None).await;
    define(&server, &widgets()).await;
    for (spec, expect) in [
        (json!({}), "spec.size: Required value"),
        (
            json!({"size": 0}),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": "x"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 1, "mode": "x"}),
            "spec.mode: Unsupported value: \"x\": supported values: \"fast\", \"slow\"",
        ),
        (json!({"size": 1, "name": "abcdef"}), "spec.name: Too long: may not be more than 5 bytes"),
        (
            json!({"size": 1, "name": "A"}),
            "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'",
        ),
        (json!({"size": 1, "tags": ["a", "a"]}), "spec.tags[1]: Duplicate value: \"a\""),
        (
            json!({"size": 1, "tags": ["a", "b", "c", "d"]}),
            "spec.tags: Too many: 4: must have at most 3 items",
        ),
        (
            json!({"size": 1, "parts": [{"id": "a"}, {"id": "a"}]}),
            "spec.parts[1]: Duplicate value: {\"id\":\"a\"}",
        ),
        (json!({"size": 1, "template": {"apiVersion": "v1"}}), "spec.template.kind: Required value"),
        (
            json!({"size": 1, "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a b": "c"}}}}),
            "spec.template.metadata.labels: Invalid value: \"a b\": name part must consist of",
        ),
        (
            json!({"size": 1, "replicas": -1}),
            ".spec.replicas: Invalid value: -1: should be a non-negative integer",
        ),
    ] {
        let refused = post(&server, &widget("a", spec.clone())).await;
        let message = refused.body["message"].as_str().unwrap_or_default();
        let start = "Widget.example.com \"a\" is invalid: ";
        assert_eq!(refused.code, 422, "{spec}: {message}");
        assert!(message.starts_with(&format!("{start}{expect}")), "{spec}: {message}");
    }
    let several = post(&server, &widget("A_", json!({"size": 11, "mode": "x"}))).await;
    let causes: Vec<_> =
        several.body["details"]["causes"].as_array().unwrap().iter().map(|c| &c["field"]).collect();
    assert_eq!(causes, ["metadata.name", "spec.mode", "spec.size"]);
    let missing = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
    assert!(
        post(&server, &missing).await.body["message"].as_str().unwrap().ends_with("spec: Required value")
    );
    let other = json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "a"}});
    assert_eq!(post(&server, &other).await.code, 400);
    // What is right is taken as it is.
    let right = json!({"size": 1, "name": null, "port": "http", "free": {"x": [1], "known": true},
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"any": 1}}});
    let made = post(&server, &widget("right", right.clone())).await;
    assert_eq!(made.code, 201, "{}", made.body);
    for (name, value) in right.as_object().unwrap() {
        assert_eq!(made.body["spec"][name], *value, "{name}");
    }
    server.stop().await;
}

#[tokio::test]
async fn unknown_fields_are_pruned_warned_of_or_refused() {
    let server = start(None).await;
    define(&server, &widgets()).await;
    let object = widget("a", json!({"size": 1, "sice": 2, "free": {"x": 1}, "parts": [{"id": "a", "x": 1}]}));
    let strict = server.call("POST", &format!("{WIDGETS}?fieldValidation=Strict"), &object.to_string()).await;
    assert_eq!(strict.code, 400);
    let message = strict.body["message"].as_str().unwrap();
    assert!(
        message.contains("unknown field \"spec.parts[0].x\"")
            && message.contains("unknown field \"spec.sice\""),
        "{message}"
    );
    let warned = server::send(
        server.server.service(),
        Some(server::admin()),
        "POST",
        &format!("{WIDGETS}?fieldValidation=Warn"),
        &[("content-type", "application/json")],
        object.to_string(),
    )
    .await;
    assert_eq!((warned.status().as_u16(), warned.headers().get_all("warning").iter().count()), (201, 2));
    let made = server.call("GET", &format!("{WIDGETS}/a"), "").await.body;
    assert_eq!(
        made["spec"],
        json!({"size": 1, "mode": "fast", "free": {"x": 1}, "parts": [{"id": "a", "count": 1}]})
    );
    server.stop().await;
}

#[tokio::test]
async fn protobuf_has_no_objects_of_custom_kinds_but_their_metadata() {
    let server = start(None).await;
    define(&server, &widgets()).await;
    let one = format!("{WIDGETS}/a");
    assert_eq!(post(&server, &widget("a", json!({"size": 1}))).await.code, 201);
    let types = [("content-type", "application/vnd.kubernetes.protobuf")];
    assert_eq!(server.call_with("POST", WIDGETS, &types, "k8s\0").await.code, 415);
    let types = [("accept", "application/vnd.kubernetes.protobuf")];
    assert_eq!(server.call_with("GET", &one, &types, "").await.code, 406);
    let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let partial = server.call_with("GET", WIDGETS, &[("accept", partial)], "").await;
    assert!(partial.code == 200 && partial.body.as_str().unwrap().contains("PartialObjectMetadataList"));
    let both = [("accept", "application/vnd.kubernetes.protobuf,application/json")];
    assert_eq!(server.call_with("GET", &one, &both, "").await.body["kind"], "Widget");
    server.stop().await;
}

#[tokio::test]
async fn objects_are_updated_patched_applied_and_scaled() {
    let server = start(None).await;
    define(&server, &widgets()).await;
    let one = format!("{WIDGETS}/a");
    let made = post(&server, &widget("a", json!({"size": 1}))).await.body;
    // An update needs a revision.
    let put = server.call("PUT", &one, &widget("a", json!({"size": 2})).to_string()).await;
    assert_eq!(put.code, 422, "{}", put.body);
    let mut new = made.clone();
    new["spec"]["size"] = json!(2);
    new["status"] = json!({"phase": "Up"});
    let put = server.call("PUT", &one, &new.to_string()).await.body;
    assert_eq!(
        (&put["metadata"]["generation"], &put["status"], &put["spec"]["size"]),
        (&json!(2), &Value::Null, &json!(2))
    );
    // Patches of three types, and one that needs a Go type.
    let merged =
        server.call("PATCH", &one, r#"{"spec": {"size": 3}, "metadata": {"labels": {"a": "b"}}}"#).await;
    assert_eq!((merged.code.as_u16(), &merged.body["metadata"]["generation"]), (200, &json!(3)));
    let types = [("content-type", "application/json-patch+json")];
    let json = server
        .call_with("PATCH", &one, &types, r#"[{"op": "replace", "path": "/spec/size", "value": 4}]"#)
        .await;
    assert_eq!(json.body["spec"]["size"], 4);
    let types = [("content-type", "application/strategic-merge-patch+json")];
    let strategic = server.call_with("PATCH", &one, &types, "{}").await;
    assert_eq!(strategic.code, 415);
    assert_eq!(
        strategic.body["message"],
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    );
    let wrong = server.call("PATCH", &one, r#"{"spec": {"size": 40}}"#).await;
    assert_eq!(wrong.code, 422);
    // Status is written by itself.
    let status = server
        .call(
            "PATCH",
            &format!("{one}/status"),
            r#"{"status": {"phase": "Up", "replicas": 2, "selector": "a=b"}, "spec": {"size": 9}}"#,
        )
        .await
        .body;
    assert_eq!(
        (&status["spec"]["size"], &status["status"]["phase"], &status["metadata"]["generation"]),
        (&json!(4), &json!("Up"), &json!(4))
    );
    let refused = server.call("PATCH", &format!("{one}/status"), r#"{"status": {"phase": "x"}}"#).await;
    let expect = "Widget.example.com \"a\" is invalid: status.phase: Unsupported value: \"x\": supported values: \"Up\", \"Down\"";
    assert_eq!((refused.code.as_u16(), refused.body["message"].as_str()), (422, Some(expect)));

    // A Scale over the paths of the definition.
    let scale = format!("{one}/scale");
    let unset = server.call("GET", &scale, "").await;
    assert_eq!(unset.code, 500, "{}", unset.body);
    let empty = server.call("PATCH", &scale, "{}").await;
    assert_eq!(
        (empty.code.as_u16(), &empty.body["message"]),
        (400, &json!("the spec replicas field \".spec.replicas\" cannot be empty"))
    );
    let scaled = server.call("PATCH", &scale, r#"{"spec": {"replicas": 5}}"#).await;
    assert_eq!(
        (scaled.code.as_u16(), &scaled.body["spec"], &scaled.body["status"]),
        (200, &json!({"replicas": 5}), &json!({"replicas": 2, "selector": "a=b"})),
        "{}",
        scaled.body
    );
    assert_eq!(server.call("GET", &one, "").await.body["spec"]["replicas"], 5);
    server.stop().await;
}

#[tokio::test]
async fn lists_are_applied_by_their_keys() {
    let server = start(None).await;
    define(&server, &widgets()).await;
    let one = format!("{WIDGETS}/a");
    let apply = async |manager: &str, spec: Value| {
        let path = format!("{one}?fieldManager={manager}");
        server.call_with("PATCH", &path, &APPLY, &widget("a", spec).to_string()).await
    };
    let first = apply("one", json!({"size": 1, "tags": ["x"], "parts": [{"id": "a", "count": 2}]})).await;
    assert_eq!(first.code, 201, "{}", first.body);
    let second = apply("two", json!({"size": 1, "tags": ["y"], "parts": [{"id": "b"}]})).await;
    assert_eq!(second.code, 200, "{}", second.body);
    assert_eq!(second.body["spec"]["parts"], json!([{"id": "a", "count": 2}, {"id": "b", "count": 1}]));
    assert_eq!(second.body["spec"]["tags"], json!(["x", "y"]));
    let conflict = apply("two", json!({"size": 1, "parts": [{"id": "a", "count": 3}]})).await;
    assert_eq!(conflict.code, 409);
    let message = conflict.body["message"].as_str().unwrap();
    assert!(message.contains(r#".spec.parts[id="a"].count"#), "{message}");
    let gone = apply("one", json!({"size": 1})).await.body;
    assert_eq!(gone["spec"]["parts"], json!([{"id": "b", "count": 1}]));
    let wrong = apply("one", json!({"size": 1, "unknown": 1})).await;
    assert_eq!(wrong.code, 400, "{}", wrong.body);
    let entries = gone["metadata"]["managedFields"].as_array().unwrap();
    let mut owners: Vec<_> = entries.iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    // The one who wrote in an earlier second comes first.
    owners.sort_unstable();
    assert_eq!(owners, ["one", "two"]);
    server.stop().await;
}
