//! Definitions and objects that are meant to do harm.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;

fn with_schema(schema: Value) -> Value {
    let mut one = version("v1", true);
    for part in ["subresources", "selectableFields", "additionalPrinterColumns"] {
        one.as_object_mut().unwrap().remove(part);
    }
    one["schema"]["openAPIV3Schema"] = schema;
    definition("widgets", "Widget", vec![one])
}

fn of_spec(spec: Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

#[tokio::test]
async fn definitions_that_are_too_much_are_refused_and_others_served_on() {
    let server = start(None).await;
    let deep = (0..200)
        .fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
    let mut protected = widgets();
    protected["metadata"]["name"] = json!("widgets.example.k8s.io");
    protected["spec"]["group"] = json!("example.k8s.io");
    for (what, definition) in [
        ("deep", with_schema(of_spec(deep))),
        ("protected", protected),
        ("pattern", with_schema(of_spec(json!({"type": "string", "pattern": "(a{1000}){1000}"})))),
        ("no type", with_schema(of_spec(json!({"properties": {"a": {}}})))),
    ] {
        let started = Instant::now();
        let answer = server.call("POST", DEFINITIONS, &definition.to_string()).await;
        assert!(answer.code.is_client_error(), "{what}: {} {}", answer.code, answer.body);
        assert!(started.elapsed() < Duration::from_secs(20), "{what} took {:?}", started.elapsed());
    }
    // A column that cannot be read is not shown, nor are those after it.
    let mut column = widgets();
    column["spec"]["versions"][0]["additionalPrinterColumns"][1]["jsonPath"] = json!(".a[");
    define(&server, &column).await;
    assert_eq!(post(&server, &widget("a", json!({"size": 1}))).await.code, 201);
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    assert_eq!(server.call_with("GET", WIDGETS, &table, "").await.body["rows"][0]["cells"], json!(["a", 1]));
    server.stop().await;
}

#[tokio::test]
async fn many_properties_and_strange_objects_end_in_time() {
    let server = start(None).await;
    let properties: serde_json::Map<String, Value> =
        (0..10_000).map(|number| (format!("p{number}"), json!({"type": "string", "default": "x"}))).collect();
    let spec = json!({"type": "object", "properties": {
        "wide": {"type": "object", "properties": properties},
        "text": {"type": "string", "pattern": "^(a+)+$"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"wide": {"type": "object", "default": {},
            "properties": {"a": {"type": "string", "default": "x".repeat(1000)}}}}}}}});
    define(&server, &with_schema(of_spec(spec))).await;
    let started = Instant::now();
    let wide = post(&server, &widget("wide", json!({"wide": {}}))).await;
    assert_eq!(wide.code, 201, "{}", wide.body);
    assert_eq!(wide.body["spec"]["wide"].as_object().unwrap().len(), 10_000);
    let text = post(&server, &widget("text", json!({"text": format!("{}b", "a".repeat(100_000))}))).await;
    assert_eq!(text.code, 422);
    // Defaults that multiply take no more memory than one object may.
    let bomb = post(&server, &widget("bomb", json!({"list": vec![json!({}); 400_000]}))).await;
    assert!(bomb.code.is_client_error(), "{}", bomb.code);
    let deep = (0..1000).fold("1".to_owned(), |inner, _| format!("[{inner}]"));
    let body = format!(
        r#"{{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {{"name": "a"}}, "spec": {deep}}}"#
    );
    assert!(server.call("POST", WIDGETS, &body).await.code.is_client_error());
    for strange in
        [json!([]), json!("x"), json!({"metadata": 1}), json!({"metadata": {"name": 7}}), json!({"spec": []})]
    {
        let answer = post(&server, &strange).await;
        assert!(answer.code.is_client_error(), "{strange}: {}", answer.code);
    }
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
    server.stop().await;
}

#[tokio::test]
async fn definitions_of_built_in_kinds_change_nothing_of_them() {
    let server = start(None).await;
    let mut leases = widgets();
    leases["metadata"] = json!({"name": "leases.coordination.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}});
    leases["spec"]["group"] = json!("coordination.k8s.io");
    leases["spec"]["names"] =
        json!({"plural": "leases", "singular": "lease", "kind": "Lease", "listKind": "LeaseList"});
    let answer = server.call("POST", DEFINITIONS, &leases.to_string()).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}});
    assert_eq!(server.call("POST", path, &lease.to_string()).await.code, 201);
    assert_eq!(
        server.call("DELETE", &format!("{DEFINITIONS}/leases.coordination.k8s.io"), "").await.code,
        200
    );
    define(&server, &widgets()).await;
    assert_eq!(server.call("GET", &format!("{path}/a"), "").await.body["spec"]["holderIdentity"], "me");
    server.stop().await;
}
