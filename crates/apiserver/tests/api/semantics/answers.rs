//! What clients are told when something is refused: code, reason, message and details of each kind of refusal, for kinds
//! with a group and without, with a namespace and without. The words are upstream's.

use std::fmt::Write;

use auth::UserInfo;
use expect_test::expect_file;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{DEPLOYMENT, MERGE, NAMESPACE, POD, STRATEGIC, YAML, made};
use crate::server::{TestServer, admin, send, start_with};

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Method, path, content type, body.
type Row<'a> = (&'a str, &'a str, &'a str, &'a str);

/// Objects that are not there, or are there already.
const THERE_OR_NOT: &[Row<'_>] = &[
    ("GET", "/api/v1/namespaces/default/configmaps/none", "", ""),
    ("GET", "/apis/apps/v1/namespaces/default/deployments/none", "", ""),
    ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/none", "", ""),
    ("GET", "/api/v1/namespaces/default/pods/none/log", "", ""),
    ("GET", "/apis/apps/v1/namespaces/default/deployments/none/scale", "", ""),
    ("PUT", "/apis/apps/v1/namespaces/default/deployments/none", YAML, DEPLOYMENT_NONE),
    ("PATCH", "/api/v1/namespaces/default/configmaps/none", MERGE, "{}"),
    ("DELETE", "/apis/apps/v1/namespaces/default/deployments/none", "", ""),
    ("GET", "/api/v1/foos", "", ""),
    ("GET", "/apis/example.com/v1/foos", "", ""),
    ("GET", "/api/v1/namespaces/default/configmaps/a/none", "", ""),
    ("POST", CONFIG_MAPS, YAML, "{metadata: {name: a}}"),
    ("POST", DEPLOYMENTS, YAML, DEPLOYMENT),
    ("POST", CLUSTER_ROLES, YAML, "{metadata: {name: r}}"),
    ("POST", CONFIG_MAPS, YAML, "{metadata: {name: a, generateName: a-}}"),
    ("POST", "/api/v1/namespaces/none/configmaps", YAML, "{metadata: {name: a}}"),
    ("POST", "/api/v1/namespaces/going/configmaps", YAML, "{metadata: {name: a}}"),
    ("DELETE", "/api/v1/namespaces/default", "", ""),
    ("PUT", CONFIG_MAPS, YAML, "{}"),
    ("POST", "/api/v1/namespaces/default/configmaps/a", YAML, "{}"),
    ("DELETE", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", ""),
];

const DEPLOYMENT_NONE: &str = "{metadata: {name: none}, spec: {selector: {matchLabels: {a: b}}, \
                               template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}";

/// Somebody was quicker, or means another object.
const CONFLICTS: &[Row<'_>] = &[
    ("PUT", "/api/v1/namespaces/default/configmaps/a", YAML, "{metadata: {name: a, resourceVersion: '1'}}"),
    (
        "PATCH",
        "/apis/apps/v1/namespaces/default/deployments/web",
        MERGE,
        r#"{"metadata": {"resourceVersion": "1"}}"#,
    ),
    ("PUT", "/api/v1/namespaces/default/configmaps/a", YAML, "{metadata: {name: a, uid: other}}"),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a", MERGE, r#"{"metadata": {"uid": "other"}}"#),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a", MERGE, r#"{"metadata": {"name": "b"}}"#),
    ("DELETE", "/api/v1/namespaces/default/configmaps/a", YAML, "{preconditions: {uid: other}}"),
    (
        "DELETE",
        "/apis/apps/v1/namespaces/default/deployments/web",
        YAML,
        "{preconditions: {resourceVersion: '1'}}",
    ),
    ("PUT", "/api/v1/namespaces/default/configmaps/a", YAML, "{metadata: {name: b}}"),
    ("PUT", "/api/v1/namespaces/default/configmaps/a", YAML, "{metadata: {name: a, namespace: b}}"),
    ("POST", CONFIG_MAPS, YAML, "{metadata: {name: new, namespace: b}}"),
    ("POST", CONFIG_MAPS, YAML, "{metadata: {name: new, resourceVersion: '1'}}"),
    (
        "PATCH",
        "/apis/apps/v1/namespaces/default/deployments/web?fieldManager=other",
        APPLY,
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5, revisionHistoryLimit: 4}}",
    ),
    (
        "PATCH",
        "/api/v1/namespaces/default/configmaps/new?fieldManager=other",
        APPLY,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: new, uid: other}}",
    ),
    ("POST", "/api/v1/namespaces/default/pods/p/eviction", YAML, "{metadata: {name: q}}"),
    (
        "POST",
        "/api/v1/namespaces/default/pods/p/binding",
        YAML,
        "{metadata: {name: q}, target: {name: node}}",
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods/p/binding",
        YAML,
        "{metadata: {name: p}, target: {name: node}}",
    ),
];

/// Bodies that cannot be read, and options that are none.
const UNREADABLE: &[Row<'_>] = &[
    ("POST", CONFIG_MAPS, JSON, "{"),
    ("POST", CONFIG_MAPS, JSON, ""),
    ("POST", CONFIG_MAPS, JSON, "[]"),
    ("POST", CONFIG_MAPS, JSON, r#"{"kind": "Pod", "apiVersion": "v1"}"#),
    ("POST", CONFIG_MAPS, JSON, r#"{"kind": "ConfigMap", "apiVersion": "v2"}"#),
    ("POST", CONFIG_MAPS, JSON, r#"{"kind": "Pot", "apiVersion": "v1"}"#),
    ("POST", CONFIG_MAPS, JSON, r#"{"metadata": {"name": 5}}"#),
    (
        "POST",
        "/api/v1/namespaces/default/configmaps?fieldValidation=Strict",
        JSON,
        r#"{"metadata": {"name": "new"}, "a": 1}"#,
    ),
    (
        "POST",
        "/apis/apps/v1/namespaces/default/deployments?fieldValidation=Strict",
        JSON,
        r#"{"metadata": {"name": "new"}, "spec": {"replicas": 1, "replicas": 2, "x": 1}}"#,
    ),
    ("POST", "/api/v1/namespaces/default/configmaps?fieldValidation=strict", YAML, "{metadata: {name: new}}"),
    ("POST", "/api/v1/namespaces/default/configmaps?dryRun=yes", YAML, "{metadata: {name: new}}"),
    ("POST", "/api/v1/namespaces/default/configmaps?timeout=soon", YAML, "{metadata: {name: new}}"),
    ("POST", CONFIG_MAPS, "image/png", "x"),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a", JSON, "{}"),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a", MERGE, "{"),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a", JSON_PATCH, "{}"),
    (
        "PATCH",
        "/api/v1/namespaces/default/configmaps/a",
        JSON_PATCH,
        r#"[{"op": "remove", "path": "/data/x"}]"#,
    ),
    (
        "PATCH",
        "/api/v1/namespaces/default/configmaps/a",
        JSON_PATCH,
        r#"[{"op": "test", "path": "/data/a", "value": "c"}]"#,
    ),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a", STRATEGIC, r#"{"metadata": {"finalizers": [{}]}}"#),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a", STRATEGIC, r#"{"$patch": "oops"}"#),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a", APPLY, "{apiVersion: v1, kind: ConfigMap}"),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a?fieldManager=m", APPLY, "{apiVersion: v1, kind: Pod}"),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a?fieldManager=m", APPLY, "a: ["),
    ("PATCH", "/api/v1/namespaces/default/configmaps/a?force=true", MERGE, "{}"),
    ("DELETE", "/api/v1/namespaces/default/configmaps/a?propagationPolicy=Some", "", ""),
    (
        "DELETE",
        "/api/v1/namespaces/default/configmaps/a",
        YAML,
        "{orphanDependents: true, propagationPolicy: Orphan}",
    ),
    ("DELETE", "/api/v1/namespaces/default/configmaps/a", JSON, "{"),
];

/// Objects that are not valid.
const INVALID: &[Row<'_>] = &[
    ("POST", CONFIG_MAPS, YAML, "{}"),
    ("POST", CONFIG_MAPS, YAML, "{metadata: {name: A_b, labels: {'a b': c}}}"),
    ("POST", DEPLOYMENTS, YAML, "{metadata: {name: new}, spec: {replicas: -1}}"),
    (
        "POST",
        DEPLOYMENTS,
        YAML,
        "{metadata: {name: new}, spec: {selector: {matchLabels: {a: c}}, template: {metadata: {labels: {a: b}}, spec: \
         {restartPolicy: Never, containers: [{name: c, image: i}, {name: c, image: i}]}}}}",
    ),
    (
        "PATCH",
        "/apis/apps/v1/namespaces/default/deployments/web",
        MERGE,
        r#"{"spec": {"selector": {"matchLabels": {"a": "c"}}}}"#,
    ),
    ("POST", "/api/v1/namespaces/default/pods", YAML, "{metadata: {name: new}, spec: {}}"),
    ("PATCH", "/api/v1/namespaces/default/pods/p", MERGE, r#"{"spec": {"nodeName": "x"}}"#),
    (
        "POST",
        "/api/v1/namespaces/default/services",
        YAML,
        "{metadata: {name: new}, spec: {type: Other, ports: [{port: 70000}, {port: 80}]}}",
    ),
    (
        "PATCH",
        "/apis/apps/v1/namespaces/default/deployments/web/scale",
        MERGE,
        r#"{"spec": {"replicas": -1}}"#,
    ),
    (
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        YAML,
        "{metadata: {name: new}, roleRef: {kind: Role}}",
    ),
    (
        "POST",
        "/apis/batch/v1/namespaces/default/jobs",
        YAML,
        "{metadata: {name: new}, spec: {template: {spec: {containers: []}}}}",
    ),
];

/// Lists that are asked for in a wrong way.
const LISTS: &[Row<'_>] = &[
    ("GET", "/api/v1/namespaces/default/configmaps?labelSelector=a%20b", "", ""),
    ("GET", "/api/v1/namespaces/default/configmaps?fieldSelector=spec.x%3D1", "", ""),
    ("GET", "/apis/apps/v1/namespaces/default/deployments?fieldSelector=a", "", ""),
    ("GET", "/api/v1/namespaces/default/configmaps?limit=x", "", ""),
    ("GET", "/api/v1/namespaces/default/configmaps?continue=x", "", ""),
    ("GET", "/api/v1/namespaces/default/configmaps?resourceVersionMatch=Exact", "", ""),
    ("GET", "/api/v1/namespaces/default/configmaps?resourceVersionMatch=Other&resourceVersion=1", "", ""),
    ("GET", "/api/v1/namespaces/default/configmaps?sendInitialEvents=true", "", ""),
    ("GET", "/api/v1/namespaces/default/configmaps?resourceVersion=999999", "", ""),
];

/// What a client is told that wants another form, or has no right.
async fn forms_and_rights(server: &TestServer, text: &mut String) {
    let service = || server.server.service();
    for (path, accept) in [
        (CONFIG_MAPS, "image/png"),
        (CONFIG_MAPS, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
        ("/api/v1/namespaces/default/configmaps/a", "application/json;as=Table;g=meta.k8s.io;v=v2"),
    ] {
        let response = send(service(), Some(admin()), "GET", path, &[("accept", accept)], "").await;
        write(text, &format!("GET {path} {accept}"), response).await;
    }
    let nobody = || UserInfo { name: "nobody".into(), ..UserInfo::default() };
    for (method, path) in [
        ("GET", "/api/v1/namespaces/default/configmaps/a"),
        ("GET", "/api/v1/pods"),
        ("DELETE", DEPLOYMENTS),
        ("POST", "/api/v1/namespaces/default/pods/p/exec"),
        ("GET", "/metrics"),
    ] {
        let response = send(service(), Some(nobody()), method, path, &[], "").await;
        write(text, &format!("{method} {path} as nobody"), response).await;
    }
    let token = [("authorization", "Bearer wrong")];
    let response = send(service(), None, "GET", CONFIG_MAPS, &token, "").await;
    write(text, &format!("GET {CONFIG_MAPS} with a wrong token"), response).await;
}

async fn write(text: &mut String, asked: &str, response: http::Response<apiserver::respond::Body>) {
    let code = response.status().as_u16();
    assert!(!response.status().is_success(), "{asked}: {code}");
    let retry = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)));
    // Paths of no group are nobody's.
    if let Some(plain) = body.as_str() {
        writeln!(text, "{asked}\n  {code} {}", plain.trim_end()).unwrap();
        return;
    }
    assert_eq!(body["status"], "Failure", "{asked}: {body}");
    assert_eq!(body["code"], code, "{asked}");
    writeln!(text, "{asked}\n  {code} {}", body["reason"].as_str().unwrap()).unwrap();
    for line in body["message"].as_str().unwrap().lines() {
        writeln!(text, "  {line}").unwrap();
    }
    if let Some(details) = body["details"].as_object() {
        let mut shown = details.clone();
        let causes = shown.remove("causes");
        writeln!(text, "  {}", Value::Object(shown)).unwrap();
        for cause in causes.iter().filter_map(Value::as_array).flatten() {
            writeln!(text, "    {cause}").unwrap();
        }
    }
    assert_eq!(retry.as_deref(), body.pointer("/details/retryAfterSeconds").map(Value::to_string).as_deref());
}

#[tokio::test]
async fn refusals_are_told_in_upstreams_words() {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    made(&server, &format!("{NAMESPACE}/serviceaccounts"), "{metadata: {name: default}}").await;
    made(&server, CONFIG_MAPS, "{metadata: {name: a}, data: {a: b}}").await;
    made(&server, DEPLOYMENTS, DEPLOYMENT).await;
    made(&server, CLUSTER_ROLES, "{metadata: {name: r}}").await;
    made(&server, &format!("{NAMESPACE}/pods"), POD).await;
    made(&server, "/api/v1/namespaces", "{metadata: {name: going}}").await;
    assert_eq!(server.call("DELETE", "/api/v1/namespaces/going", "").await.code, 200);
    let applied = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, revisionHistoryLimit: 3}}";
    let path = format!("{DEPLOYMENTS}/web?fieldManager=first&force=true");
    assert_eq!(server.call_with("PATCH", &path, &[("content-type", APPLY)], applied).await.code, 200);

    let mut text = String::new();
    for (method, path, content_type, body) in [THERE_OR_NOT, CONFLICTS, UNREADABLE, INVALID, LISTS].concat() {
        let content_type = if content_type.is_empty() { JSON } else { content_type };
        let headers = [("content-type", content_type)];
        let response = send(server.server.service(), Some(admin()), method, path, &headers, body).await;
        let asked = format!("{method} {path} {body}");
        write(&mut text, asked.trim_end(), response).await;
    }
    forms_and_rights(&server, &mut text).await;
    let uid = server.call("GET", &format!("{CONFIG_MAPS}/a"), "").await.body["metadata"]["uid"].clone();
    let web = server.call("GET", &format!("{DEPLOYMENTS}/web"), "").await.body;
    let revision = web["metadata"]["resourceVersion"].as_str().unwrap();
    let text = text.replace(uid.as_str().unwrap(), "UID").replace(&format!("({revision})"), "(REVISION)");
    let text = text.replace(&format!("current: {revision}"), "current: REVISION");
    expect_file!["../golden/answers.txt"].assert_eq(&text);
    server.stop().await;
}
