//! Managed fields and server-side apply, in-process: who owns what after each write, and what is a conflict.

use crate::server::{Answer, TestServer, start};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

async fn call(server: &TestServer, agent: &str, request: (&str, &str, &str), content_type: &str) -> Answer {
    let (method, path, body) = request;
    let headers = [("content-type", content_type), ("user-agent", agent)];
    server.call_with(method, path, &headers, body).await
}

async fn apply(server: &TestServer, path: &str, manager: &str, body: &str) -> Answer {
    let sign = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{sign}fieldManager={manager}");
    call(server, "test", ("PATCH", &path, body), APPLY).await
}

/// Code, and either the message or a line per owner: `manager operation version subresource fields`.
fn check(answer: &Answer, expect: Expect) {
    let mut lines = vec![answer.code.as_u16().to_string()];
    if answer.body["kind"] == "Status" {
        lines.push(answer.body["message"].to_string());
        lines.extend(answer.body["details"]["causes"].as_array().into_iter().flatten().map(Value::to_string));
    }
    for entry in answer.body["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let text = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
        assert_eq!(text("fieldsType"), "FieldsV1");
        let time = text("time");
        assert!(time.ends_with('Z') || time == "-" && text("operation") == "Apply", "{entry}");
        let words = ["manager", "operation", "apiVersion", "subresource"].map(text).join(" ");
        lines.push(format!("{words} {}", entry["fieldsV1"]));
    }
    expect.assert_eq(&lines.join("\n"));
}

const WEB: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 1, \
    selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, \
    spec: {containers: [{name: web, image: 'web:1', ports: [{containerPort: 80}]}]}}}}";

#[tokio::test]
async fn every_write_says_who_owns_what() {
    let server = start(None).await;
    let yaml = "application/yaml";
    let one = format!("{CONFIG_MAPS}/one");
    let made =
        call(&server, "curl/8.0", ("POST", CONFIG_MAPS, "{metadata: {name: one}, data: {k: v}}"), yaml).await;
    check(
        &made,
        expect![[r#"
        201
        curl Update v1 - {"f:data":{".":{},"f:k":{}}}"#]],
    );
    let patched = call(&server, "", ("PATCH", &one, r#"{"data": {"x": "y"}}"#), MERGE).await;
    check(
        &patched,
        expect![[r#"
        200
        curl Update v1 - {"f:data":{".":{},"f:k":{}}}
        unknown Update v1 - {"f:data":{"f:x":{}}}"#]],
    );
    let put = "{metadata: {name: one, labels: {a: b}}, data: {k: w, x: 'y'}}";
    // Owners are sorted by second, then by name: each later one has a later name.
    let path = format!("{one}?fieldManager=zoe");
    let replaced = call(&server, "curl/8.0", ("PUT", &path, put), yaml).await;
    check(
        &replaced,
        expect![[r#"
            200
            curl Update v1 - {"f:data":{}}
            unknown Update v1 - {"f:data":{"f:x":{}}}
            zoe Update v1 - {"f:data":{"f:k":{}},"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#]],
    );
    let again = call(&server, "curl/8.0", ("PUT", &path, put), yaml).await;
    assert_eq!(again.body, replaced.body, "no change, no write");
    let reset = call(&server, "curl", ("PATCH", &one, r#"{"metadata": {"managedFields": []}}"#), MERGE).await;
    check(&reset, expect!["200"]);
    let untracked = call(&server, "curl", ("PATCH", &one, r#"{"data": {"z": "y"}}"#), MERGE).await;
    check(&untracked, expect!["200"]);
    let two = "{metadata: {name: two}, data: {k: w}}";
    call(&server, "curl", ("POST", CONFIG_MAPS, two), yaml).await;
    let put = "{metadata: {name: two, managedFields: []}, data: {k: w}}";
    check(&call(&server, "curl", ("PUT", &format!("{CONFIG_MAPS}/two"), put), yaml).await, expect!["200"]);
    server.stop().await;
}

#[tokio::test]
async fn a_new_deployment_is_owned_like_upstreams() {
    let server = start(None).await;
    let made = call(&server, "kubectl-create/1", ("POST", DEPLOYMENTS, WEB), "application/yaml").await;
    check(
        &made,
        expect![[r#"
        201
        kubectl-create Update apps/v1 - {"f:spec":{"f:progressDeadlineSeconds":{},"f:replicas":{},"f:revisionHistoryLimit":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},"f:template":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}}"#]],
    );
    let status = r#"{"status": {"replicas": 1, "conditions": [{"type": "Available", "status": "True"}]}}"#;
    let path = format!("{DEPLOYMENTS}/web/status");
    let patched = call(&server, "kube-controller-manager/v1", ("PATCH", &path, status), MERGE).await;
    let mut entries = patched.body["metadata"]["managedFields"].as_array().unwrap().iter();
    let status = entries.find(|entry| entry["subresource"] == "status").unwrap();
    assert_eq!(
        status["fieldsV1"],
        json!({"f:status": {
            "f:conditions": {".": {}, r#"k:{"type":"Available"}"#: {".": {}, "f:status": {}, "f:type": {}}},
            "f:replicas": {},
        }})
    );
    let path = format!("{DEPLOYMENTS}/web/scale?fieldManager=scaler");
    call(&server, "x", ("PATCH", &path, r#"{"spec": {"replicas": 3}}"#), MERGE).await;
    let web = server.call("GET", &format!("{DEPLOYMENTS}/web"), "").await;
    let scaler =
        web.body["metadata"]["managedFields"].as_array().unwrap().iter().find(|e| e["manager"] == "scaler");
    let scaler = scaler.unwrap();
    assert_eq!((&scaler["subresource"], &scaler["apiVersion"]), (&json!("scale"), &json!("apps/v1")));
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    server.stop().await;
}

#[tokio::test]
async fn nobody_owns_what_a_write_leaves_as_it_is() {
    let server = start(None).await;
    call(&server, "a", ("POST", DEPLOYMENTS, WEB), "application/yaml").await;
    let status =
        r#"{"metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}}, "status": {"replicas": 1}}"#;
    let path = format!("{DEPLOYMENTS}/web/status");
    let patched = call(&server, "controller", ("PATCH", &path, status), MERGE).await;
    assert_eq!(patched.body["metadata"]["labels"], Value::Null);
    let entries = patched.body["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["manager"] == "controller").unwrap();
    let expect = json!({
        "f:metadata": {"f:annotations": {".": {}, "f:x": {}}},
        "f:status": {"f:replicas": {}},
    });
    assert_eq!(entry["fieldsV1"], expect);
    server.stop().await;
}

#[tokio::test]
async fn an_apply_creates_merges_shares_and_drops() {
    let server = start(None).await;
    let one = format!("{CONFIG_MAPS}/one");
    let config =
        |data: &str| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: one}}, data: {data}}}");
    let made = apply(&server, &one, "a", &config("{x: '1', y: '1'}")).await;
    check(
        &made,
        expect![[r#"
        201
        a Apply v1 - {"f:data":{"f:x":{},"f:y":{}}}"#]],
    );
    let again = apply(&server, &one, "a", &config("{x: '1', y: '1'}")).await;
    assert_eq!((again.code.as_u16(), &again.body), (200, &made.body), "no change, no write");
    check(
        &apply(&server, &one, "b", &config("{x: '1'}")).await,
        expect![[r#"
        200
        b Apply v1 - {"f:data":{"f:x":{}}}
        a Apply v1 - {"f:data":{"f:x":{},"f:y":{}}}"#]],
    );
    let refused = apply(&server, &one, "b", &config("{x: '2', y: '2'}")).await;
    check(
        &refused,
        expect![[r#"
        409
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.x\n- .data.y"
        {"field":".data.x","message":"conflict with \"a\"","reason":"FieldManagerConflict"}
        {"field":".data.y","message":"conflict with \"a\"","reason":"FieldManagerConflict"}"#]],
    );
    assert_eq!(refused.body["reason"], "Conflict");
    let dry = apply(&server, &format!("{one}?force=true&dryRun=All"), "b", &config("{x: '2'}")).await;
    assert_eq!(dry.body["data"], json!({"x": "2", "y": "1"}));
    check(
        &apply(&server, &format!("{one}?force=true"), "b", &config("{x: '2'}")).await,
        expect![[r#"
        200
        a Apply v1 - {"f:data":{"f:y":{}}}
        b Apply v1 - {"f:data":{"f:x":{}}}"#]],
    );
    let dropped = apply(&server, &one, "a", &config("{}")).await;
    assert_eq!(dropped.body["data"], json!({"x": "2"}));
    server.stop().await;
}

#[tokio::test]
async fn a_conflict_names_the_owner_and_the_version() {
    let server = start(None).await;
    call(&server, "kubectl/1", ("POST", DEPLOYMENTS, WEB), "application/yaml").await;
    let web = format!("{DEPLOYMENTS}/web");
    let config = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3}}";
    check(
        &apply(&server, &web, "me", config).await,
        expect![[r#"
        409
        "Apply failed with 1 conflict: conflict with \"kubectl\" using apps/v1: .spec.replicas"
        {"field":".spec.replicas","message":"conflict with \"kubectl\" using apps/v1","reason":"FieldManagerConflict"}"#]],
    );
    let scale = "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: web}, spec: {replicas: 3}}";
    check(
        &apply(&server, &format!("{web}/scale"), "me", scale).await,
        expect![[r#"
        409
        "Apply failed with 1 conflict: conflict with \"kubectl\" using autoscaling/v1: .spec.replicas"
        {"field":".spec.replicas","message":"conflict with \"kubectl\" using autoscaling/v1","reason":"FieldManagerConflict"}"#]],
    );
    let forced = apply(&server, &format!("{web}/scale?force=true"), "me", scale).await;
    assert_eq!((forced.code.as_u16(), &forced.body["spec"]["replicas"]), (200, &json!(3)), "{}", forced.body);
    let status = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 9}, \
        status: {replicas: 2}}";
    let applied = apply(&server, &format!("{web}/status"), "me", status).await;
    assert_eq!(
        (&applied.body["spec"]["replicas"], &applied.body["status"]["replicas"]),
        (&json!(3), &json!(2))
    );
    let entries = applied.body["metadata"]["managedFields"].as_array().unwrap();
    let of = |subresource: &str| {
        entries.iter().find(|e| e["subresource"] == subresource).unwrap()["fieldsV1"].clone()
    };
    assert_eq!(of("status"), json!({"f:status": {"f:replicas": {}}}));
    assert_eq!(of("scale"), json!({"f:spec": {"f:replicas": {}}}));
    server.stop().await;
}

/// A name, the query, the body, and the answer's code and message.
const REFUSED: &[(&str, &str, &str, u16, &str)] = &[
    (
        "no manager",
        "",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}",
        422,
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
    ),
    (
        "other kind",
        "?fieldManager=a",
        "{apiVersion: v1, kind: Pod}",
        400,
        "invalid object type: /v1, Kind=Pod",
    ),
    (
        "managed fields",
        "?fieldManager=a",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: one, managedFields: []}}",
        400,
        "metadata.managedFields must be nil",
    ),
    (
        "unknown field",
        "?fieldManager=a",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, date: {}}",
        400,
        "failed to create typed patch object (/one; v1, Kind=ConfigMap): .date: field not declared in schema",
    ),
    (
        "other name",
        "?fieldManager=a",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: two}}",
        400,
        "the name of the object (two) does not match the name on the URL (one)",
    ),
    (
        "no name",
        "?fieldManager=a",
        "{apiVersion: v1, kind: ConfigMap}",
        400,
        "the name of the object (one based on URL) was undeterminable: name must be provided",
    ),
    (
        "uid",
        "?fieldManager=a",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: one, uid: u}}",
        409,
        "Operation cannot be fulfilled on configmaps \"one\": uid mismatch: the provided object specified uid u, and no existing object was found",
    ),
    (
        "duplicate",
        "?fieldManager=a&fieldValidation=Strict",
        r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {}, "data": {}}"#,
        400,
        r#"error strict decoding YAML: duplicate field "data""#,
    ),
    ("no YAML", "?fieldManager=a", "[", 400, ""),
    ("a list", "?fieldManager=a", "[]", 400, "error decoding YAML: the configuration is no object"),
];

#[tokio::test]
async fn a_configuration_that_cannot_be_applied_is_refused() {
    let server = start(None).await;
    let one = format!("{CONFIG_MAPS}/one");
    for (name, query, body, code, message) in REFUSED {
        let answer = call(&server, "x", ("PATCH", &format!("{one}{query}"), body), APPLY).await;
        assert_eq!(answer.code.as_u16(), *code, "{name}: {}", answer.body);
        if !message.is_empty() {
            assert_eq!(answer.body["message"], *message, "{name}");
        }
    }
    let forced = call(&server, "x", ("PATCH", &format!("{one}?force=true"), "{}"), MERGE).await;
    assert_eq!(
        forced.body["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
    server.stop().await;
}
