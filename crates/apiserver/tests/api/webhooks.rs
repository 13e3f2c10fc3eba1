//! Admission webhooks as clients and administrators see them: a real TLS server on loopback, which does what each test
//! tells it, also what it should not.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::hook_server::{Answer as Reply, HookServer};
use crate::server::{Answer, TestServer, start, start_without_flow_control};

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Rules about all that is done to some resources, in any group.
fn about(resources: &[&str]) -> Value {
    json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources}])
}

/// A webhook of this server under a path, with further fields.
fn hook(server: &HookServer, name: &str, path: &str, fields: Value) -> Value {
    let mut hook = json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {"url": server.url(path), "caBundle": server.ca_bundle()},
        "rules": about(&["configmaps"]),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    });
    hook.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    hook
}

async fn install(server: &TestServer, (path, name): (&str, &str), hooks: &[Value]) {
    let body = json!({"metadata": {"name": name}, "webhooks": hooks});
    let made = server.call("POST", path, &body.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

async fn remove(server: &TestServer, (path, name): (&str, &str)) {
    let gone = server.call("DELETE", &format!("{path}/{name}"), "").await;
    assert_eq!(gone.code, 200, "{}", gone.body);
}

async fn create(server: &TestServer, name: &str) -> Answer {
    server.call("POST", CONFIG_MAPS, &format!("{{metadata: {{name: {name}}}, data: {{a: b}}}}")).await
}

/// What a mutating webhook says that applies these operations.
fn patch(operations: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}

fn allowed() -> Value {
    json!({"allowed": true})
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_sidecar_is_injected_and_what_is_injected_is_defaulted_and_validated() {
    let (_, server) = start_without_flow_control().await;
    let hooks = HookServer::start(|path, review| {
        let container = match path {
            "/good" => json!({"name": "sidecar", "image": "proxy"}),
            _ => json!({"name": "UPPER", "image": "proxy"}),
        };
        assert_eq!(review["request"]["object"]["spec"]["containers"][0]["terminationMessagePolicy"], "File");
        Reply::Says(patch(json!([{"op": "add", "path": "/spec/containers/-", "value": container}])))
    })
    .await;
    let pod = "{metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}";
    let with = |path| [hook(&hooks, "sidecar", path, json!({"rules": about(&["pods"])}))];
    install(&server, (MUTATING, "sidecar"), &with("/good")).await;
    let made = server.call("POST", PODS, pod).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let sidecar = &made.body["spec"]["containers"][1];
    assert_eq!((&sidecar["image"], &sidecar["imagePullPolicy"]), (&json!("proxy"), &json!("Always")));
    // What the plugins do for every container they do for this one too: they run again.
    assert!(sidecar["volumeMounts"][0]["mountPath"].is_string(), "{sidecar}");
    remove(&server, (MUTATING, "sidecar")).await;
    install(&server, (MUTATING, "broken"), &with("/bad")).await;
    let refused = server.call("POST", PODS, &pod.replace("web", "other")).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert!(message(&refused).contains("spec.containers[1].name"), "{}", refused.body);
    server.stop().await;
}

#[tokio::test]
async fn a_configuration_counts_from_the_very_next_request() {
    let (_, server) = start_without_flow_control().await;
    let hooks = HookServer::start(|_, _| Reply::Says(json!({"allowed": false}))).await;
    for round in 0..20 {
        install(&server, (VALIDATING, "no"), &[hook(&hooks, "no", "/", json!({}))]).await;
        let refused = create(&server, &format!("a{round}")).await;
        assert_eq!(refused.code, 400, "{}", refused.body);
        remove(&server, (VALIDATING, "no")).await;
        let made = create(&server, &format!("a{round}")).await;
        assert_eq!(made.code, 201, "{}", made.body);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refusal_has_the_webhooks_words_code_and_reason() {
    let (_, server) = start_without_flow_control().await;
    let hooks = HookServer::start(|path, _| {
        Reply::Says(match path {
            "/silent" => json!({"allowed": false}),
            "/reason" => json!({"allowed": false, "status": {"reason": "TooSmall"}}),
            _ => json!({"allowed": false, "warnings": ["mind the gap", "größer"], "status": {
                "code": 403, "reason": "Forbidden", "message": "too big", "details": {"causes": [{"field": "data"}]}}}),
        })
    })
    .await;
    for (path, code, reason, said) in [
        ("/silent", 400, "", " without explanation"),
        ("/reason", 400, "TooSmall", ": TooSmall"),
        ("/full", 403, "Forbidden", ": too big"),
    ] {
        for kind in [MUTATING, VALIDATING] {
            install(&server, (kind, "no"), &[hook(&hooks, "no", path, json!({}))]).await;
            let refused = create(&server, "a").await;
            let expected = format!("admission webhook \"no.example.com\" denied the request{said}");
            assert_eq!((refused.code.as_u16(), message(&refused)), (code, expected.as_str()));
            // A Status without a reason names none.
            assert_eq!(refused.body["reason"].as_str().unwrap_or_default(), reason);
            if path == "/full" {
                assert_eq!(refused.body["details"]["causes"][0]["field"], "data");
            }
            remove(&server, (kind, "no")).await;
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn warnings_reach_the_client() {
    let (_, server) = start_without_flow_control().await;
    let hooks = HookServer::start(|_, _| {
        Reply::Says(json!({"allowed": true, "warnings": ["mind the gap", "new\nline", "", "größer"]}))
    })
    .await;
    install(&server, (VALIDATING, "warns"), &[hook(&hooks, "warns", "/", json!({}))]).await;
    let headers = [("content-type", "application/yaml")];
    let body = "{metadata: {name: a}}";
    let user = Some(crate::server::admin());
    let answer =
        crate::server::send(server.server.service(), user, "POST", CONFIG_MAPS, &headers, body).await;
    assert_eq!(answer.status(), 201);
    let texts: Vec<String> = answer
        .headers()
        .get_all("warning")
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect();
    assert!(texts.contains(&"299 - \"mind the gap\"".to_owned()), "{texts:?}");
    assert!(texts.contains(&"299 - \"größer\"".to_owned()), "{texts:?}");
    assert!(!texts.iter().any(|text| text.contains('\n')), "{texts:?}");
    server.stop().await;
}

/// A server that lies in some way, and what is said of it.
const LIARS: &[(&str, &str)] = &[
    ("/wrong-uid", "received invalid webhook response: expected response.uid="),
    ("/wrong-kind", "received invalid webhook response: expected webhook response of admission.k8s.io/v1"),
    ("/no-response", "received invalid webhook response: webhook response was absent"),
    ("/patch-without-type", "received invalid webhook response: webhook returned response.patch but not"),
    ("/type-without-patch", "received invalid webhook response: webhook returned response.patchType but not"),
    ("/other-patch", "unsupported patch type \"MergePatch\""),
    ("/undecodable", "received undecodable patch in webhook response: "),
    ("/no-list", "received undecodable patch in webhook response: "),
    ("/not-json", "failed to call webhook: couldn't get version/kind; json parse error: "),
    ("/not-base64", "failed to call webhook: illegal base64 data"),
    ("/empty", "failed to call webhook: 0-length response with status code: 200"),
    ("/error", "failed to call webhook: an error on the server (\"it broke\") has prevented the request"),
    ("/redirect", "failed to call webhook: the server responded with the status code 307"),
    ("/huge", "the answer is longer than 3145728 bytes"),
    ("/reset", "failed to call webhook: Post \"https://127.0.0.1:"),
    ("/hang", "context deadline exceeded"),
];

fn lie(path: &str, review: &Value) -> Reply {
    let uid = review["request"]["uid"].clone();
    let review = |response: Value| json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    let with_patch = |kind: &str, patch: &str| {
        review(json!({"uid": uid, "allowed": true, "patchType": kind, "patch": STANDARD.encode(patch)}))
    };
    match path {
        "/wrong-uid" => Reply::Whole(review(json!({"uid": "other", "allowed": true}))),
        "/wrong-kind" => Reply::Whole(
            json!({"apiVersion": "v1", "kind": "Pod", "response": {"uid": uid, "allowed": true}}),
        ),
        "/no-response" => {
            Reply::Whole(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}))
        }
        "/patch-without-type" => Reply::Whole(review(json!({"uid": uid, "allowed": true, "patch": "W10="}))),
        "/type-without-patch" => {
            Reply::Whole(review(json!({"uid": uid, "allowed": true, "patchType": "JSONPatch"})))
        }
        "/other-patch" => Reply::Whole(with_patch("MergePatch", "[{\"op\": \"add\"}]")),
        "/undecodable" => Reply::Whole(with_patch("JSONPatch", "[")),
        "/no-list" => Reply::Whole(with_patch("JSONPatch", "{}")),
        "/not-base64" => {
            Reply::Whole(review(json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": "%"})))
        }
        "/not-json" => Reply::Raw(200, "<html>".to_owned()),
        "/empty" => Reply::Raw(200, String::new()),
        "/error" => Reply::Raw(500, "it broke".to_owned()),
        "/redirect" => Reply::Raw(307, "x".to_owned()),
        "/huge" => Reply::Huge,
        "/reset" => Reply::Close,
        "/hang" => Reply::Hang,
        _ => Reply::Says(allowed()),
    }
}

#[tokio::test]
async fn who_lies_or_fails_is_told_from_who_refuses() {
    let (_, server) = start_without_flow_control().await;
    let hooks = HookServer::start(lie).await;
    for (path, said) in LIARS {
        let fields = json!({"timeoutSeconds": if *path == "/hang" { 1 } else { 20 }});
        let name = path.trim_start_matches('/');
        install(&server, (MUTATING, "liar"), &[hook(&hooks, "liar", path, fields.clone())]).await;
        let refused = create(&server, name).await;
        assert_eq!(
            (refused.code.as_u16(), &refused.body["reason"]),
            (500, &json!("InternalError")),
            "{path}"
        );
        let text = message(&refused);
        let opening = "Internal error occurred: failed calling webhook \"liar.example.com\": ";
        assert!(text.starts_with(opening) && text.contains(said), "{path}: {text}");
        remove(&server, (MUTATING, "liar")).await;
        let ignored = json!({"failurePolicy": "Ignore", "timeoutSeconds": fields["timeoutSeconds"]});
        install(&server, (MUTATING, "liar"), &[hook(&hooks, "liar", path, ignored)]).await;
        let made = create(&server, name).await;
        assert_eq!(made.code, 201, "{path}: {}", made.body);
        remove(&server, (MUTATING, "liar")).await;
    }
    let metrics = server.call("GET", "/metrics", "").await;
    let text = metrics.body.as_str().unwrap_or_default();
    let failed_open = "apiserver_admission_webhook_fail_open_count{name=\"liar.example.com\",type=\"admit\"}";
    assert!(text.contains(&format!("{failed_open} {}", LIARS.len())), "{text}");
    let rejected = "apiserver_admission_webhook_rejection_count{name=\"liar.example.com\",type=\"admit\",\
                    operation=\"CREATE\",error_type=\"calling_webhook_error\",rejection_code=\"500\"}";
    assert!(text.contains(rejected), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn a_patch_that_does_not_fit_is_an_error_whatever_the_failure_policy() {
    let (_, server) = start_without_flow_control().await;
    let hooks = HookServer::start(|path, _| {
        Reply::Says(patch(match path {
            "/missing" => json!([{"op": "remove", "path": "/data/nope"}]),
            "/type" => json!([{"op": "add", "path": "/data", "value": 7}]),
            "/kind" => json!([{"op": "replace", "path": "/kind", "value": "Secret"}]),
            "/version" => json!([{"op": "replace", "path": "/apiVersion", "value": "v2"}]),
            "/namespace" => json!([{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}]),
            _ => json!([{"op": "replace", "path": "", "value": []}]),
        }))
    })
    .await;
    for (path, code, said) in [
        ("/missing", 500, "Unable to remove nonexistent key: nope: missing value"),
        ("/type", 500, "Internal error occurred: "),
        ("/kind", 500, "expected v1, Kind=ConfigMap, got v1, Kind=Secret"),
        ("/version", 500, "expected v1, Kind=ConfigMap, got v2, Kind=ConfigMap"),
        ("/namespace", 400, "the namespace of the provided object does not match"),
        ("/whole", 500, "expected v1, Kind=ConfigMap"),
    ] {
        let fields = json!({"failurePolicy": "Ignore"});
        install(&server, (MUTATING, "odd"), &[hook(&hooks, "odd", path, fields)]).await;
        let refused = create(&server, "a").await;
        assert_eq!(refused.code.as_u16(), code, "{path}: {}", refused.body);
        assert!(message(&refused).contains(said), "{path}: {}", refused.body);
        remove(&server, (MUTATING, "odd")).await;
    }
    let elsewhere = server.call("GET", "/api/v1/namespaces/kube-system/configmaps/a", "").await;
    assert_eq!(elsewhere.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn an_objects_identity_stays_on_update() {
    let (_, server) = start_without_flow_control().await;
    assert_eq!(create(&server, "a").await.code, 201);
    let hooks = HookServer::start(|path, _| {
        let field = path.trim_start_matches('/');
        let path = format!("/metadata/{field}");
        Reply::Says(patch(json!([{"op": "replace", "path": path, "value": "other"}])))
    })
    .await;
    for field in ["name", "uid", "namespace"] {
        install(&server, (MUTATING, "moves"), &[hook(&hooks, "moves", &format!("/{field}"), json!({}))])
            .await;
        let refused = server.call("PATCH", &format!("{CONFIG_MAPS}/a"), r#"{"data": {"x": "y"}}"#).await;
        assert!(refused.code.is_client_error(), "{field}: {} {}", refused.code, refused.body);
        remove(&server, (MUTATING, "moves")).await;
    }
    let kept = server.call("GET", &format!("{CONFIG_MAPS}/a"), "").await;
    assert_eq!(kept.body["data"], json!({"a": "b"}));
    server.stop().await;
}

/// Appends the path's last segment to `data.seen`, and keeps what it was asked.
fn appending(asked: &Arc<Mutex<Vec<Value>>>) -> impl Fn(&str, &Value) -> Reply + Send + Sync + 'static {
    let asked = Arc::clone(asked);
    move |path, review| {
        asked.lock().unwrap().push(json!([path, review["request"].clone()]));
        let seen = review["request"]["object"]["data"]["seen"].as_str().unwrap_or_default();
        let name = path.trim_start_matches('/');
        Reply::Says(match (name.starts_with("quiet"), name.starts_with("once") && seen.contains(name)) {
            (true, _) | (_, true) => allowed(),
            _ => patch(json!([{"op": "add", "path": "/data/seen", "value": format!("{seen}{name},")}])),
        })
    }
}

fn paths(asked: &Arc<Mutex<Vec<Value>>>) -> Vec<String> {
    asked.lock().unwrap().iter().map(|one| one[0].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn webhooks_are_asked_by_name_of_their_configuration_and_then_in_its_order() {
    let (_, server) = start_without_flow_control().await;
    let asked = Arc::default();
    let hooks = HookServer::start(appending(&asked)).await;
    let one = |name: &str| hook(&hooks, name, &format!("/{name}"), json!({}));
    install(&server, (MUTATING, "b"), &[one("b1"), one("b0")]).await;
    install(&server, (MUTATING, "a"), &[one("z"), one("y")]).await;
    let made = create(&server, "x").await;
    assert_eq!(made.body["data"]["seen"], "z,y,b1,b0,", "{}", made.body);
    assert_eq!(paths(&asked), ["/z", "/y", "/b1", "/b0"]);
    server.stop().await;
}

#[tokio::test]
async fn who_wants_to_is_asked_again_after_others_have_changed_what_it_saw() {
    let (_, server) = start_without_flow_control().await;
    let asked = Arc::default();
    let hooks = HookServer::start(appending(&asked)).await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let one = |name: &str, fields: &Value| hook(&hooks, name, &format!("/{name}"), fields.clone());
    install(
        &server,
        (MUTATING, "all"),
        &[one("once1", &again), one("quiet", &again), one("once2", &json!({})), one("quiet-last", &again)],
    )
    .await;
    let made = create(&server, "x").await;
    assert_eq!(made.body["data"]["seen"], "once1,once2,", "{}", made.body);
    // The last one saw everything; the third does not want to see more.
    let expected = ["/once1", "/quiet", "/once2", "/quiet-last", "/once1", "/quiet"];
    assert_eq!(paths(&asked), expected);
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_asks_only_who_has_no_side_effects() {
    let (_, server) = start_without_flow_control().await;
    let asked = Arc::default();
    let hooks = HookServer::start(appending(&asked)).await;
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    let body = "{metadata: {name: a}, data: {a: b}}";
    install(&server, (MUTATING, "m"), &[hook(&hooks, "m", "/m", json!({"sideEffects": "NoneOnDryRun"}))])
        .await;
    let run = server.call("POST", &dry, body).await;
    assert_eq!((run.code.as_u16(), &run.body["data"]["seen"]), (201, &json!("m,")), "{}", run.body);
    let request = asked.lock().unwrap()[0][1].clone();
    assert_eq!((&request["dryRun"], &request["options"]["dryRun"]), (&json!(true), &json!(["All"])));
    assert_eq!(server.call("GET", &format!("{CONFIG_MAPS}/a"), "").await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn selectors_choose_namespaces_and_objects() {
    let (_, server) = start_without_flow_control().await;
    for (name, env) in [("prod", "prod"), ("test", "test")] {
        let namespace = format!("{{metadata: {{name: {name}, labels: {{env: {env}}}}}}}");
        assert_eq!(server.call("POST", "/api/v1/namespaces", &namespace).await.code, 201);
    }
    let hooks = HookServer::start(|_, _| Reply::Says(json!({"allowed": false}))).await;
    let selecting = |field: &str| {
        let selector = json!({"matchLabels": {"env": "prod"}});
        let rules = about(&["configmaps", "namespaces", "nodes"]);
        [hook(&hooks, "no", "/", json!({field: selector, "rules": rules}))]
    };
    let post = async |path: &str, labels: &str| {
        let body = format!("{{metadata: {{name: x, labels: {labels}}}}}");
        let code = server.call("POST", path, &body).await.code;
        if code == 201 {
            server.call("DELETE", &format!("{path}/x"), "").await;
        }
        code.as_u16()
    };
    install(&server, (VALIDATING, "ns"), &selecting("namespaceSelector")).await;
    assert_eq!(post("/api/v1/namespaces/prod/configmaps", "{}").await, 400);
    assert_eq!(post("/api/v1/namespaces/test/configmaps", "{env: prod}").await, 201);
    assert_eq!(post("/api/v1/namespaces", "{env: prod}").await, 400);
    assert_eq!(post("/api/v1/nodes", "{}").await, 400, "what is in no namespace is always asked about");
    let relabelled = r#"{"metadata": {"labels": {"env": "prod"}}}"#;
    assert_eq!(server.call("PATCH", "/api/v1/namespaces/test", relabelled).await.code, 400);
    remove(&server, (VALIDATING, "ns")).await;
    assert_eq!(server.call("PATCH", "/api/v1/namespaces/test", relabelled).await.code, 200);
    install(&server, (VALIDATING, "ns"), &selecting("namespaceSelector")).await;
    assert_eq!(
        post("/api/v1/namespaces/test/configmaps", "{}").await,
        400,
        "right after the label was written"
    );
    remove(&server, (VALIDATING, "ns")).await;
    install(&server, (VALIDATING, "objects"), &selecting("objectSelector")).await;
    assert_eq!(post("/api/v1/namespaces/prod/configmaps", "{env: prod}").await, 400);
    assert_eq!(post("/api/v1/namespaces/prod/configmaps", "{env: test}").await, 201);
    server.stop().await;
}

#[tokio::test]
async fn another_version_of_the_same_object_is_shown_in_the_webhooks() {
    let (_, server) = start_without_flow_control().await;
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = Arc::clone(&asked);
    let hooks = HookServer::start(move |_, review| {
        kept.lock().unwrap().push(review["request"].clone());
        let value = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "maxReplicas": 7, "targetCPUUtilizationPercentage": 33});
        Reply::Says(patch(json!([{"op": "replace", "path": "/spec", "value": value}])))
    })
    .await;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"],
        "resources": ["horizontalpodautoscalers"]}]);
    install(&server, (MUTATING, "hpa"), &[hook(&hooks, "hpa", "/", json!({"rules": rules}))]).await;
    let body = "{metadata: {name: a}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}}";
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let made = server.call("POST", path, body).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body["apiVersion"], "autoscaling/v2");
    assert_eq!(made.body["spec"]["maxReplicas"], 7);
    let target = &made.body["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"];
    assert_eq!(target, &json!(33), "{}", made.body);
    let request = asked.lock().unwrap()[0].clone();
    assert_eq!(request["object"]["apiVersion"], "autoscaling/v1");
    assert_eq!(request["kind"]["version"], "v1");
    assert_eq!(request["requestKind"]["version"], "v2");
    assert_eq!(request["requestResource"]["version"], "v2");
    server.stop().await;
}

#[tokio::test]
async fn nobody_locks_the_administrator_out() {
    let (_, server) = start_without_flow_control().await;
    let hooks = HookServer::start(|_, _| Reply::Says(json!({"allowed": false}))).await;
    let everything = json!({"rules": about(&["*/*"])});
    install(&server, (MUTATING, "a"), &[hook(&hooks, "no", "/", everything.clone())]).await;
    install(&server, (VALIDATING, "b"), &[hook(&hooks, "no", "/", everything)]).await;
    assert_eq!(create(&server, "a").await.code, 400);
    let touched = r#"{"metadata": {"labels": {"a": "b"}}}"#;
    assert_eq!(server.call("PATCH", &format!("{MUTATING}/a"), touched).await.code, 200);
    remove(&server, (MUTATING, "a")).await;
    remove(&server, (VALIDATING, "b")).await;
    assert_eq!(create(&server, "a").await.code, 201);
    server.stop().await;
}

/// Refuses nothing and keeps what it is asked.
async fn listening() -> (HookServer, Arc<Mutex<Vec<Value>>>) {
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = Arc::clone(&asked);
    let hooks = HookServer::start(move |_, review| {
        kept.lock().unwrap().push(review["request"].clone());
        Reply::Says(allowed())
    })
    .await;
    (hooks, asked)
}

fn take(asked: &Arc<Mutex<Vec<Value>>>) -> Vec<Value> {
    std::mem::take(&mut *asked.lock().unwrap())
}

#[tokio::test]
async fn each_write_is_asked_about_once_with_what_it_is() {
    let (_, server) = start_without_flow_control().await;
    let (hooks, asked) = listening().await;
    let rules = json!({"rules": about(&["*/*"])});
    install(&server, (VALIDATING, "all"), &[hook(&hooks, "all", "/", rules)]).await;
    assert_eq!(create(&server, "a").await.code, 201);
    let path = format!("{CONFIG_MAPS}/a");
    let headers = [("content-type", "application/merge-patch+json")];
    let patched = format!("{path}?fieldManager=me");
    assert_eq!(server.call_with("PATCH", &patched, &headers, r#"{"data": {"a": "c"}}"#).await.code, 200);
    assert_eq!(server.call("DELETE", &format!("{path}?gracePeriodSeconds=3"), "").await.code, 200);
    let all = take(&asked);
    let shown: Vec<Value> = all
        .iter()
        .map(|request| {
            json!([
                request["operation"],
                request["name"],
                request["namespace"],
                request["object"]["data"]["a"],
                request["oldObject"]["data"]["a"],
                request["options"]["kind"],
                request["userInfo"]["username"],
            ])
        })
        .collect();
    assert_eq!(
        shown,
        [
            json!(["CREATE", "a", "default", "b", null, "CreateOptions", "admin"]),
            json!(["UPDATE", "a", "default", "c", "b", "UpdateOptions", "admin"]),
            json!(["DELETE", "a", "default", null, "c", "DeleteOptions", "admin"]),
        ]
    );
    assert_eq!(all[1]["options"]["fieldManager"], "me");
    assert_eq!(all[2]["options"]["gracePeriodSeconds"], 3);
    assert!(all[2]["object"].is_null() && all[0]["object"]["metadata"]["uid"].is_string());
    for name in ["x1", "x2"] {
        create(&server, name).await;
    }
    take(&asked);
    assert_eq!(server.call("DELETE", CONFIG_MAPS, "").await.code, 200);
    let names: Vec<Value> = take(&asked).iter().map(|request| request["name"].clone()).collect();
    assert!(names.contains(&json!("x1")) && names.contains(&json!("x2")), "{names:?}");
    server.stop().await;
}

#[tokio::test]
async fn what_is_below_an_object_is_shown_as_what_it_is() {
    let (_, server) = start_without_flow_control().await;
    let deployment = "{metadata: {name: d}, spec: {replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}";
    assert_eq!(server.call("POST", DEPLOYMENTS, deployment).await.code, 201);
    let pod = "{metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}";
    assert_eq!(server.call("POST", PODS, pod).await.code, 201);
    let (hooks, asked) = listening().await;
    let rules = json!({"rules": about(&["*/*"])});
    install(&server, (VALIDATING, "all"), &[hook(&hooks, "all", "/", rules)]).await;
    let check = async |(method, path): (&str, String), body: &str, expect: [&str; 4]| {
        let answer = server.call(method, &path, body).await;
        assert!(answer.code.is_success(), "{path}: {}", answer.body);
        let all = take(&asked);
        let found: Vec<[&str; 4]> = all
            .iter()
            .map(|request| {
                let text = |pointer| request.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                [text("/operation"), text("/kind/kind"), text("/subResource"), text("/object/kind")]
            })
            .collect();
        assert_eq!(found, [expect], "{path}");
    };
    let scale = r#"{"spec": {"replicas": 3}}"#;
    check(("PATCH", format!("{DEPLOYMENTS}/d/scale")), scale, ["UPDATE", "Scale", "scale", "Scale"]).await;
    let status = r#"{"status": {"observedGeneration": 1}}"#;
    let expect = ["UPDATE", "Deployment", "status", "Deployment"];
    check(("PATCH", format!("{DEPLOYMENTS}/d/status")), status, expect).await;
    let node = "{metadata: {name: n1}}";
    check(("POST", "/api/v1/nodes".to_owned()), node, ["CREATE", "Node", "", "Node"]).await;
    let binding = "{metadata: {name: p}, target: {kind: Node, name: n1}}";
    check(("POST", format!("{PODS}/p/binding")), binding, ["CREATE", "Binding", "binding", "Binding"]).await;
    let account = "/api/v1/namespaces/default/serviceaccounts/default/token".to_owned();
    check(("POST", account), "{spec: {}}", ["CREATE", "TokenRequest", "token", "TokenRequest"]).await;
    let eviction = "{apiVersion: policy/v1, kind: Eviction, metadata: {name: p}}";
    check(("POST", format!("{PODS}/p/eviction")), eviction, ["CREATE", "Eviction", "eviction", "Eviction"])
        .await;
    server.stop().await;
}

#[tokio::test]
async fn a_scale_is_changed_by_whoever_may_change_scales() {
    let (_, server) = start_without_flow_control().await;
    let deployment = "{metadata: {name: d}, spec: {replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}";
    assert_eq!(server.call("POST", DEPLOYMENTS, deployment).await.code, 201);
    let hooks = HookServer::start(|_, review| {
        assert_eq!(review["request"]["oldObject"]["spec"]["replicas"], 1);
        Reply::Says(patch(json!([{"op": "replace", "path": "/spec/replicas", "value": 5}])))
    })
    .await;
    let rules = json!({"rules": about(&["*/scale"])});
    install(&server, (MUTATING, "scale"), &[hook(&hooks, "scale", "/", rules)]).await;
    let body = r#"{"spec": {"replicas": 3}}"#;
    let scaled = server.call("PATCH", &format!("{DEPLOYMENTS}/d/scale"), body).await;
    assert_eq!(scaled.body["spec"]["replicas"], 5, "{}", scaled.body);
    let stored = server.call("GET", &format!("{DEPLOYMENTS}/d"), "").await;
    assert_eq!(stored.body["spec"]["replicas"], 5);
    server.stop().await;
}

#[tokio::test]
async fn a_stream_is_asked_about_before_it_opens() {
    let server = start(None).await;
    server.call("POST", "/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: default}}").await;
    let pod = "{metadata: {name: p}, spec: {nodeName: n1, containers: [{name: c, image: i}]}}";
    assert_eq!(server.call("POST", PODS, pod).await.code, 201);
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = Arc::clone(&asked);
    let hooks = HookServer::start(move |_, review| {
        kept.lock().unwrap().push(review["request"].clone());
        Reply::Says(json!({"allowed": false, "status": {"message": "no shells"}}))
    })
    .await;
    let rules = json!([{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "nodes/proxy", "services/proxy"]}]);
    install(&server, (VALIDATING, "no"), &[hook(&hooks, "no", "/", json!({"rules": rules}))]).await;
    for (path, object) in [
        (
            format!("{PODS}/p/exec?command=sh&command=-c&stdout=true&tty=1&container=c"),
            json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "tty": true, "container": "c",
                "command": ["sh", "-c"]}),
        ),
        (
            format!("{PODS}/p/attach?stdin=true"),
            json!({"kind": "PodAttachOptions", "apiVersion": "v1", "stdin": true}),
        ),
        (
            format!("{PODS}/p/portforward?ports=80"),
            json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80]}),
        ),
        (
            format!("{PODS}/p/proxy/a/b"),
            json!({"kind": "PodProxyOptions", "apiVersion": "v1", "path": "a/b"}),
        ),
    ] {
        let refused = server.call("POST", &path, "").await;
        assert_eq!(refused.code, 400, "{path}: {}", refused.body);
        let expected = "admission webhook \"no.example.com\" denied the request: no shells";
        assert_eq!(message(&refused), expected, "{path}");
        let request = take(&asked).remove(0);
        assert_eq!(request["operation"], "CONNECT");
        assert_eq!(request["kind"]["kind"], object["kind"]);
        assert_eq!((&request["object"], &request["options"]), (&object, &Value::Null), "{path}");
        assert_eq!(request["name"], "p");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_service_without_endpoints_or_none_at_all_is_named() {
    let (_, server) = start_without_flow_control().await;
    let config = |name: &str| {
        json!({"name": "svc.example.com", "rules": about(&["configmaps"]), "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": name, "path": "/x"}}})
    };
    let service = "{metadata: {name: lonely}, spec: {ports: [{port: 443}]}}";
    assert_eq!(server.call("POST", "/api/v1/namespaces/default/services", service).await.code, 201);
    for (name, why) in [
        ("nowhere", "service \"nowhere\" not found"),
        ("lonely", "no endpoints available for service \"lonely\""),
    ] {
        install(&server, (VALIDATING, "svc"), &[config(name)]).await;
        let refused = create(&server, "a").await;
        let expected = format!(
            "Internal error occurred: failed calling webhook \"svc.example.com\": failed to call webhook: \
             Post \"https://{name}.default.svc:443/x?timeout=10s\": {why}"
        );
        assert_eq!((refused.code.as_u16(), message(&refused)), (500, expected.as_str()));
        remove(&server, (VALIDATING, "svc")).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn the_server_itself_is_not_called() {
    let server = start(Some("127.0.0.1:0".parse().unwrap())).await;
    let port = server.server.address().unwrap().port();
    let config = json!({"name": "self.example.com", "rules": about(&["configmaps"]), "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": format!("https://127.0.0.1:{port}/x")}});
    install(&server, (VALIDATING, "self"), &[config]).await;
    let refused = create(&server, "a").await;
    assert!(message(&refused).ends_with("address not allowed"), "{}", refused.body);
    server.stop().await;
}

#[tokio::test]
async fn validating_webhooks_are_asked_at_the_same_time() {
    let (_, server) = start_without_flow_control().await;
    // Nobody answers before all have been asked.
    let barrier = Arc::new(tokio::sync::Barrier::new(8));
    let hooks = HookServer::start_async(move |_, _| -> BoxFuture<'static, Reply> {
        let barrier = Arc::clone(&barrier);
        Box::pin(async move {
            barrier.wait().await;
            Reply::Says(allowed())
        })
    })
    .await;
    let all: Vec<Value> = (0..8).map(|n| hook(&hooks, &format!("h{n}"), "/", json!({}))).collect();
    install(&server, (VALIDATING, "all"), &all).await;
    let made = create(&server, "a").await;
    assert_eq!(made.code, 201, "{}", made.body);
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_reads_only_the_older_version_gets_it() {
    let (_, server) = start_without_flow_control().await;
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = Arc::clone(&asked);
    let hooks = HookServer::start(move |_, review| {
        kept.lock().unwrap().push(review["apiVersion"].clone());
        Reply::Whole(json!({"response": {"allowed": true}}))
    })
    .await;
    let fields = json!({"admissionReviewVersions": ["v1beta1", "v1"]});
    install(&server, (VALIDATING, "old"), &[hook(&hooks, "old", "/", fields)]).await;
    assert_eq!(create(&server, "a").await.code, 201);
    assert_eq!(take(&asked), [json!("admission.k8s.io/v1beta1")]);
    server.stop().await;
}

#[tokio::test]
async fn conditions_say_further_what_is_asked_about() {
    let (_, server) = start_without_flow_control().await;
    let hooks = HookServer::start(|_, _| Reply::Says(json!({"allowed": false}))).await;
    let one = |expression: &str, policy: &str| {
        let conditions = json!([{"name": "c", "expression": expression}]);
        let fields = json!({"matchConditions": conditions, "failurePolicy": policy});
        [hook(&hooks, "no", "/", fields)]
    };
    for (expression, policy, code) in [
        ("object.data.a == 'b'", "Fail", 400),
        ("object.data.a == 'c'", "Fail", 201),
        ("object.data.nope == 'c'", "Fail", 403),
        ("object.data.nope == 'c'", "Ignore", 201),
        ("oldObject == null", "Fail", 400),
        ("request.operation == 'CREATE' && request.resource.resource == 'configmaps'", "Fail", 400),
        ("'system:masters' in request.userInfo.groups", "Fail", 400),
        ("has(request.userInfo.uid)", "Fail", 201),
        ("has(request.subResource) && request.subResource == 'status'", "Fail", 201),
        ("authorizer.requestResource.check('anything').allowed()", "Fail", 400),
        ("authorizer.group('').resource('pods').namespace('default').check('get').allowed()", "Fail", 400),
        (
            "authorizer.serviceAccount('default', 'x').group('').resource('pods').check('get').allowed()",
            "Fail",
            201,
        ),
    ] {
        install(&server, (VALIDATING, "c"), &one(expression, policy)).await;
        let answer = create(&server, "a").await;
        assert_eq!(answer.code.as_u16(), code, "{expression} {policy}: {}", answer.body);
        // A deletion has no object, which is an error of its own in some of these.
        remove(&server, (VALIDATING, "c")).await;
        if code == 201 {
            server.call("DELETE", &format!("{CONFIG_MAPS}/a"), "").await;
        }
    }
    for wrong in ["object.", "1", "params.a == 1", "request.colour == 1"] {
        let body = json!({"metadata": {"name": "c"}, "webhooks": one(wrong, "Fail")});
        let refused = server.call("POST", VALIDATING, &body.to_string()).await;
        assert_eq!(refused.code, 422, "{wrong}: {}", refused.body);
        assert!(message(&refused).contains("webhooks[0].matchConditions[0].expression"), "{}", refused.body);
    }
    server.stop().await;
}
