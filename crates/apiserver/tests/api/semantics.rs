//! What a client of upstream relies on and a table of verbs does not show: what patches may say, evictions, warnings.

mod answers;

use crate::server::{self, TestServer, admin, send, start};
use http::header::WARNING;
use http_body_util::BodyExt;
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";
const YAML: &str = "application/yaml";

const DEPLOYMENT: &str = "{metadata: {name: web, annotations: {a: b}}, spec: {selector: {matchLabels: {a: b}}, \
                          template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}";
const POD: &str = "{metadata: {name: p}, spec: {nodeName: node, containers: [{name: c, image: i}]}}";

/// Sends a request; answers status, body and the texts of its warnings.
async fn ask(
    server: &TestServer,
    (method, path, content_type, body): (&str, &str, &str, &str),
) -> (u16, Value, Vec<String>) {
    let headers = [("content-type", content_type)];
    let response = send(server.server.service(), Some(admin()), method, path, &headers, body).await;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all(WARNING).iter();
    let warnings: Vec<String> = warnings
        .map(|one| {
            one.to_str().unwrap().strip_prefix("299 - \"").unwrap().strip_suffix('"').unwrap().to_owned()
        })
        .collect();
    let bytes = match response.headers().contains_key("content-length") || !path.contains("watch=") {
        true => response.into_body().collect().await.unwrap().to_bytes(),
        false => Default::default(),
    };
    (code, serde_json::from_slice(&bytes).unwrap_or_default(), warnings)
}

async fn made(server: &TestServer, path: &str, body: &str) -> Value {
    let (code, object, _) = ask(server, ("POST", path, YAML, body)).await;
    assert_eq!(code, 201, "{path}: {object}");
    object
}

/// A server whose default namespace takes Pods.
async fn with_account() -> TestServer {
    let server = start(None).await;
    made(&server, &format!("{NAMESPACE}/serviceaccounts"), "{metadata: {name: default}}").await;
    server
}

#[tokio::test]
async fn a_strategic_patch_may_call_the_object_what_it_likes() {
    let server = start(None).await;
    let web = "/apis/apps/v1/namespaces/default/deployments/web";
    made(&server, "/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT).await;
    type Row<'a> = (&'a str, (&'a str, &'a str, &'a str), u16, &'a str, Value);
    let scale = format!("{web}/scale");
    let rows: &[Row<'_>] = &[
        (
            "the scaled object's kind",
            (
                &scale,
                STRATEGIC,
                r#"{"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2}}"#,
            ),
            200,
            "/spec/replicas",
            json!(2),
        ),
        (
            "another version of Scale",
            (
                &scale,
                STRATEGIC,
                r#"{"kind": "Scale", "apiVersion": "extensions/v1beta1", "spec": {"replicas": 3}}"#,
            ),
            200,
            "/kind",
            json!("Scale"),
        ),
        (
            "a kind that is none",
            (web, STRATEGIC, r#"{"kind": "Nonsense", "apiVersion": "no/v1", "spec": {"replicas": 4}}"#),
            200,
            "/kind",
            json!("Deployment"),
        ),
        (
            "no kind",
            (web, STRATEGIC, r#"{"kind": null, "apiVersion": null}"#),
            200,
            "/apiVersion",
            json!("apps/v1"),
        ),
        ("no text", (web, STRATEGIC, r#"{"kind": 5}"#), 422, "/reason", json!("Invalid")),
        (
            "a merge patch is read as what it says",
            (web, MERGE, r#"{"kind": "ReplicaSet"}"#),
            400,
            "/reason",
            json!("BadRequest"),
        ),
        (
            "a merge patch of a Scale too",
            (&scale, MERGE, r#"{"kind": "Deployment", "spec": {"replicas": 9}}"#),
            400,
            "/reason",
            json!("BadRequest"),
        ),
    ];
    for (name, (path, content_type, patch), code, pointer, expect) in rows {
        let (got, body, _) = ask(&server, ("PATCH", path, content_type, patch)).await;
        assert_eq!(got, *code, "{name}: {body}");
        assert_eq!(body.pointer(pointer), Some(expect), "{name}: {body}");
    }
    let (_, stored, _) = ask(&server, ("GET", web, YAML, "")).await;
    assert_eq!((&stored["kind"], &stored["spec"]["replicas"]), (&json!("Deployment"), &json!(4)));
    server.stop().await;
}

#[tokio::test]
async fn a_uid_is_a_precondition_of_whole_objects_only() {
    let server = start(None).await;
    made(&server, &format!("{NAMESPACE}/configmaps"), "{metadata: {name: a}}").await;
    let rows = [
        ("PUT", "configmaps/a", YAML, "{metadata: {name: a, uid: x}}", 409, "Precondition failed: UID"),
        ("PUT", "limitranges/a", YAML, "{metadata: {name: a, uid: x}}", 409, "Precondition failed: UID"),
        ("PUT", "limitranges/a", YAML, "{metadata: {name: a}}", 201, ""),
        ("PATCH", "configmaps/a", MERGE, r#"{"metadata": {"uid": "x"}}"#, 422, "field is immutable"),
        ("PATCH", "configmaps/a", STRATEGIC, r#"{"metadata": {"uid": "x"}}"#, 422, "field is immutable"),
    ];
    for (method, path, content_type, body, code, message) in rows {
        let (got, answer, _) =
            ask(&server, (method, &format!("{NAMESPACE}/{path}"), content_type, body)).await;
        assert_eq!(got, code, "{method} {path} {body}: {answer}");
        let told = answer["message"].as_str().unwrap_or_default();
        assert!(told.contains(message), "{method} {path} {body}: {told}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_changed_pod_keeps_the_default_tolerations() {
    let server = with_account().await;
    let pod = made(&server, &format!("{NAMESPACE}/pods"), POD).await;
    assert_eq!(pod["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
    let patch = r#"{"spec": {"tolerations": [{"key": "mine", "operator": "Exists"}]}}"#;
    let (code, pod, _) = ask(&server, ("PATCH", &format!("{NAMESPACE}/pods/p"), MERGE, patch)).await;
    assert_eq!(code, 200, "{pod}");
    let keys: Vec<&str> = pod["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["mine", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    server.stop().await;
}

#[tokio::test]
async fn an_evicted_pod_says_so_before_it_goes() {
    let server = with_account().await;
    let (pods, one) = (format!("{NAMESPACE}/pods"), format!("{NAMESPACE}/pods/p"));
    let eviction = format!("{one}/eviction");
    made(&server, &pods, POD).await;
    let rows = [
        ("no name", "{}", 400, false),
        ("another name", "{metadata: {name: q}}", 400, false),
        ("another uid", "{metadata: {name: p}, deleteOptions: {preconditions: {uid: x}}}", 409, false),
        ("dry run", "{metadata: {name: p}, deleteOptions: {dryRun: [All]}}", 201, false),
        ("for real", "{metadata: {name: p}}", 201, true),
        ("again", "{metadata: {name: p}}", 201, true),
    ];
    for (name, body, code, is_evicted) in rows {
        let (got, answer, _) = ask(&server, ("POST", &eviction, YAML, body)).await;
        assert_eq!(got, code, "{name}: {answer}");
        let (_, pod, _) = ask(&server, ("GET", &one, YAML, "")).await;
        assert_eq!(pod["metadata"].get("deletionTimestamp").is_some(), is_evicted, "{name}: {pod}");
        let targets: Vec<&Value> = pod["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|one| one["type"] == "DisruptionTarget")
            .collect();
        let said = (&json!("True"), &json!("EvictionByEvictionAPI"), &json!("Eviction API: evicting"));
        let found: Vec<_> =
            targets.iter().map(|one| (&one["status"], &one["reason"], &one["message"])).collect();
        assert_eq!(found, if is_evicted { vec![said] } else { vec![] }, "{name}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_shows_the_deletion_that_would_be() {
    let server = with_account().await;
    made(&server, &format!("{NAMESPACE}/pods"), POD).await;
    let placeless = "{metadata: {name: q}, spec: {containers: [{name: c, image: i}]}}";
    made(&server, &format!("{NAMESPACE}/pods"), placeless).await;
    for (path, grace) in
        [("pods/p?dryRun=All", 30), ("pods/p?dryRun=All&gracePeriodSeconds=0", 0), ("pods/q?dryRun=All", 0)]
    {
        let (code, pod, _) = ask(&server, ("DELETE", &format!("{NAMESPACE}/{path}"), YAML, "")).await;
        assert_eq!(code, 200, "{path}: {pod}");
        assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{path}: {pod}");
        assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], grace, "{path}");
    }
    let (_, pod, _) = ask(&server, ("GET", &format!("{NAMESPACE}/pods/p"), YAML, "")).await;
    assert_eq!(pod["metadata"].get("deletionTimestamp"), None);
    server.stop().await;
}

#[tokio::test]
async fn annotations_of_a_deployment_raise_its_generation() {
    let server = start(None).await;
    let web = "/apis/apps/v1/namespaces/default/deployments/web";
    made(&server, "/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT).await;
    let rows = [
        (web.to_owned(), r#"{"metadata": {"annotations": {"a": "b"}}}"#, 1),
        (web.to_owned(), r#"{"metadata": {"labels": {"x": "y"}}}"#, 1),
        (web.to_owned(), r#"{"metadata": {"annotations": {"a": "c"}}}"#, 2),
        (format!("{web}/status"), r#"{"metadata": {"annotations": {"a": "d"}}}"#, 2),
        (web.to_owned(), r#"{"spec": {"paused": true}}"#, 3),
    ];
    for (path, patch, generation) in rows {
        let (code, body, _) = ask(&server, ("PATCH", &path, MERGE, patch)).await;
        assert_eq!(
            (code, &body["metadata"]["generation"]),
            (200, &json!(generation)),
            "{path} {patch}: {body}"
        );
    }
    server.stop().await;
}

const OLD_ENDPOINTS: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

#[tokio::test]
async fn deprecated_kinds_are_warned_of_by_every_verb() {
    let server = start(None).await;
    let (all, one) = (format!("{NAMESPACE}/endpoints"), format!("{NAMESPACE}/endpoints/e"));
    let rows = [
        ("POST", all.as_str(), "{metadata: {name: e}}", 201),
        ("GET", &one, "", 200),
        ("GET", &all, "", 200),
        ("GET", &format!("{all}?watch=true&timeoutSeconds=1"), "", 200),
        ("PUT", &one, "{metadata: {name: e}}", 200),
        ("DELETE", &one, "", 200),
        ("GET", &one, "", 404),
        ("DELETE", &all, "", 200),
    ];
    for (method, path, body, code) in rows {
        let (got, answer, warnings) = ask(&server, (method, path, YAML, body)).await;
        assert_eq!(got, code, "{method} {path}: {answer}");
        assert_eq!(warnings.first().map(String::as_str), Some(OLD_ENDPOINTS), "{method} {path}");
    }
    let (_, _, warnings) = ask(&server, ("GET", &format!("{NAMESPACE}/services"), YAML, "")).await;
    assert_eq!(warnings, [""; 0]);
    server.stop().await;
}

const JOB: &str = "{metadata: {name: j}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}";

#[tokio::test]
async fn warnings_are_not_lost_when_the_request_is_refused() {
    let server = start(None).await;
    let all = format!("{NAMESPACE}/configmaps");
    let body = "{metadata: {name: a}, nonsense: 1}";
    for code in [201, 409] {
        let (got, _, warnings) = ask(&server, ("POST", &all, YAML, body)).await;
        assert_eq!((got, warnings), (code, vec!["unknown field \\\"nonsense\\\"".to_owned()]));
    }
    let stale = "{metadata: {name: a, resourceVersion: '1'}, nonsense: 1}";
    let (got, _, warnings) = ask(&server, ("PUT", &format!("{all}/a"), YAML, stale)).await;
    assert_eq!((got, warnings.len()), (409, 1));
    server.stop().await;
}

#[tokio::test]
async fn who_deletes_a_job_is_told_that_its_pods_stay() {
    let server = start(None).await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = format!("{jobs}/j");
    let rows = [
        ("DELETE", job.as_str(), "", true),
        ("DELETE", &format!("{job}?propagationPolicy=Background"), "", false),
        ("DELETE", &job, "{propagationPolicy: Orphan}", false),
        ("DELETE", jobs, "", true),
    ];
    for (method, path, body, is_warned) in rows {
        made(&server, jobs, JOB).await;
        let (code, answer, warnings) = ask(&server, (method, path, YAML, body)).await;
        assert_eq!(code, 200, "{path}: {answer}");
        let told = warnings.iter().any(|one| one.starts_with("child pods are preserved by default"));
        assert_eq!(told, is_warned, "{path} {body}: {warnings:?}");
        // What holds it until its Pods are orphans goes.
        ask(&server, ("PATCH", &job, MERGE, r#"{"metadata": {"finalizers": null}}"#)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn who_writes_what_no_part_acts_on_is_told() {
    let server = start(None).await;
    let policy = "{metadata: {name: np}, spec: {podSelector: {}}}";
    let rows = [
        ("POST", "networking.k8s.io", "networkpolicies", "", policy, 201),
        (
            "POST",
            "networking.k8s.io",
            "networkpolicies",
            "?dryRun=All",
            "{metadata: {name: m}, spec: {podSelector: {}}}",
            201,
        ),
        ("PUT", "networking.k8s.io", "networkpolicies", "/np", policy, 200),
        ("POST", "batch", "jobs", "", JOB, 201),
        ("POST", "apps", "deployments", "", DEPLOYMENT, 201),
        ("GET", "networking.k8s.io", "networkpolicies", "/np", "", 200),
        ("POST", "networking.k8s.io", "networkpolicies", "", policy, 409),
    ];
    for (method, group, resource, rest, body, code) in rows {
        let path = format!("/apis/{group}/v1/namespaces/default/{resource}{rest}");
        let (got, answer, warnings) = ask(&server, (method, &path, YAML, body)).await;
        assert_eq!(got, code, "{method} {path}: {answer}");
        let is_written = method != "GET" && code < 300;
        let unserved = machinery::unserved::unserved(group, resource).filter(|_| is_written);
        let expect: Vec<String> = unserved.map(ToString::to_string).into_iter().collect();
        assert_eq!(warnings, expect, "{method} {path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_only_posted_is_no_table() {
    let server = with_account().await;
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let body = "{spec: {nonResourceAttributes: {path: /, verb: get}}}";
    let token = format!("{NAMESPACE}/serviceaccounts/default/token");
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let rows = [
        (review, body, TABLE.to_owned(), 406, "Status"),
        (review, body, format!("{TABLE},application/json"), 201, "SelfSubjectAccessReview"),
        (&token, "{}", TABLE.to_owned(), 406, "Status"),
        (&format!("{NAMESPACE}/configmaps"), "{metadata: {name: a}}", TABLE.to_owned(), 201, "Table"),
    ];
    for (path, body, accept, code, kind) in rows {
        let headers = [("content-type", YAML), ("accept", accept.as_str())];
        let answer = server.call_with("POST", path, &headers, body).await;
        assert_eq!((answer.code.as_u16(), &answer.body["kind"]), (code, &json!(kind)), "{path} {accept}");
    }
    server.stop().await;
}

#[tokio::test]
async fn events_are_found_by_whoever_reported_them() {
    let server = start(None).await;
    let event = |name: &str, who: &str| {
        format!(
            "{{metadata: {{name: {name}}}, regarding: {{kind: Pod, namespace: default}}, eventTime: '2026-01-01T00:00:00.000000Z', \
                 type: Normal, reason: R, action: a, reportingController: {who}, reportingInstance: i}}"
        )
    };
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    made(&server, new, &event("a", "one")).await;
    made(&server, new, &event("b", "two")).await;
    let old =
        "{metadata: {name: c}, involvedObject: {kind: Pod, namespace: default}, source: {component: one}}";
    made(&server, &format!("{NAMESPACE}/events"), old).await;
    for (selector, expect) in
        [("source%3Done", vec!["a", "c"]), ("source%3Dtwo", vec!["b"]), ("source%3D", vec![])]
    {
        let (_, list, _) =
            ask(&server, ("GET", &format!("{NAMESPACE}/events?fieldSelector={selector}"), YAML, "")).await;
        let names: Vec<&str> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, expect, "{selector}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_upstream_refuses_drops_or_takes() {
    let server = start(None).await;
    const APPS: &str = "/apis/apps/v1/namespaces/default";
    let template = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}";
    let set = format!(
        "{{metadata: {{name: s}}, spec: {{selector: {{matchLabels: {{a: b}}}}, revisionHistoryLimit: -1, template: {template}, \
         updateStrategy: {{type: RollingUpdate, rollingUpdate: {{maxUnavailable: 2}}}}}}}}"
    );
    let lease = "{metadata: {name: l}, spec: {strategy: OldestEmulationVersion, preferredHolder: x}}";
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let service = "{metadata: {name: svc}, spec: {ipFamilyPolicy: '', ports: [{port: 80}]}}";
    let claim =
        "{metadata: {name: c}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    type Row<'a> = (&'a str, String, &'a str, u16, &'a str, Value);
    let rows: Vec<Row<'_>> = vec![
        (
            "gated",
            format!("{APPS}/statefulsets"),
            &set,
            201,
            "/spec/updateStrategy/rollingUpdate",
            json!({"partition": 0}),
        ),
        ("gated", leases.to_owned(), lease, 201, "/spec", json!({})),
        (
            "any name",
            budgets.to_owned(),
            "{metadata: {name: 'A_b:C'}}",
            201,
            "/metadata/name",
            json!("A_b:C"),
        ),
        ("a path", budgets.to_owned(), "{metadata: {name: 'a/b'}}", 422, "/reason", json!("Invalid")),
        (
            "empty",
            format!("{NAMESPACE}/services"),
            service,
            422,
            "/details/causes/0/field",
            json!("spec.ipFamilyPolicy"),
        ),
        (
            "phase",
            format!("{NAMESPACE}/persistentvolumeclaims"),
            claim,
            201,
            "/status/phase",
            json!("Pending"),
        ),
        (
            "no object",
            format!("{APPS}/controllerrevisions"),
            "{metadata: {name: r}, revision: 1, data: [1]}",
            422,
            "/details/causes/0/field",
            json!("data"),
        ),
    ];
    for (name, path, body, code, pointer, expect) in &rows {
        let (got, answer, _) = ask(&server, ("POST", path, YAML, body)).await;
        assert_eq!(got, *code, "{name} {path}: {answer}");
        assert_eq!(answer.pointer(pointer), Some(expect), "{name} {path}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_job_cannot_begin_to_choose_its_pods_by_hand_or_cease_to() {
    let server = start(None).await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    made(&server, jobs, JOB).await;
    let by_hand = "{metadata: {name: m}, spec: {manualSelector: true, selector: {matchLabels: {a: b}}, template: \
                   {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}";
    made(&server, jobs, by_hand).await;
    for (name, manual, code) in [("m", "false", 422), ("m", "true", 200), ("j", "false", 200)] {
        let patch = format!("{{\"spec\": {{\"manualSelector\": {manual}}}}}");
        let (got, answer, _) = ask(&server, ("PATCH", &format!("{jobs}/{name}"), MERGE, &patch)).await;
        assert_eq!(got, code, "{name} {manual}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_said_of_the_server_is_read_only_and_negotiated() {
    let server = start(None).await;
    let json = "application/json, */*";
    let rows = [
        ("GET", "/version", json, 200),
        ("GET", "/version", "application/yaml", 406),
        ("GET", "/version", "image/png", 406),
        ("POST", "/version", json, 405),
        ("PUT", "/version", json, 405),
        ("GET", "/apis", json, 200),
        ("GET", "/apis", "application/yaml", 200),
        ("GET", "/apis", "image/png", 406),
        ("GET", "/api/v1", "application/json;as=Table;v=v1;g=meta.k8s.io", 406),
        ("POST", "/apis/apps", json, 405),
        ("DELETE", "/api", json, 405),
        ("POST", "/apis/none", json, 404),
        ("GET", "/api/v1/namespaces/default/pods?timeoutSeconds=x", json, 400),
        ("GET", "/api/v1/namespaces/default/pods?watch=1&timeoutSeconds=x", json, 400),
        ("GET", "/statusz", json, 404),
    ];
    for (method, path, accept, code) in rows {
        let answer = server.call_with(method, path, &[("accept", accept)], "").await;
        assert_eq!(answer.code.as_u16(), code, "{method} {path} {accept}: {}", answer.body);
    }
    server.stop().await;
}

#[tokio::test]
async fn component_statuses_are_those_of_the_leases_and_of_the_store() {
    let server = start(None).await;
    let now = server::now();
    let lease = |name: &str, renewed: jiff::Timestamp| {
        format!(
            "{{metadata: {{name: {name}}}, spec: {{holderIdentity: me, leaseDurationSeconds: 15, renewTime: '{renewed:.6}'}}}}"
        )
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    made(&server, leases, &lease("kube-scheduler", now)).await;
    made(&server, leases, &lease("kube-controller-manager", now - jiff::SignedDuration::from_mins(1))).await;
    let all = "/api/v1/componentstatuses";
    let (code, list, warnings) = ask(&server, ("GET", all, YAML, "")).await;
    assert_eq!((code, &list["kind"]), (200, &json!("ComponentStatusList")), "{list}");
    assert_eq!(warnings, ["v1 ComponentStatus is deprecated in v1.19+"]);
    let shown: Vec<(&str, &str, &str)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let condition = &one["conditions"][0];
            let text = |value: &'static str| condition[value].as_str().unwrap_or_default();
            (one["metadata"]["name"].as_str().unwrap(), text("status"), text("message"))
        })
        .collect();
    assert_eq!(
        shown,
        [("controller-manager", "False", ""), ("scheduler", "True", "ok"), ("etcd-0", "True", "ok")]
    );
    let (code, one, _) = ask(&server, ("GET", &format!("{all}/scheduler"), YAML, "")).await;
    assert_eq!((code, &one["metadata"]["name"]), (200, &json!("scheduler")));
    let (code, none, _) = ask(&server, ("GET", &format!("{all}/none"), YAML, "")).await;
    assert_eq!((code, &none["message"]), (404, &json!("componentstatus \"none\" not found")));
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = server.call_with("GET", all, &table, "").await.body;
    assert_eq!(table["rows"][1]["cells"], json!(["scheduler", "Healthy", "ok", ""]), "{table}");
    server.stop().await;
}

#[tokio::test]
async fn health_names_what_is_checked_as_upstream_does() {
    let server = start(None).await;
    for (endpoint, has_shutdown) in [("livez", false), ("healthz", false), ("readyz", true)] {
        let answer = server.call("GET", &format!("/{endpoint}?verbose"), "").await;
        let text = answer.body.as_str().unwrap_or_default().to_owned();
        for name in [
            "ping",
            "etcd",
            "poststarthook/rbac/bootstrap-roles",
            "poststarthook/priority-and-fairness-filter",
        ] {
            assert!(text.contains(&format!("[+]{name} ok\n")), "{endpoint} {name}: {text}");
        }
        assert_eq!(text.contains("[+]shutdown ok\n"), has_shutdown, "{endpoint}: {text}");
        assert!(text.ends_with(&format!("{endpoint} check passed\n")), "{text}");
    }
    let indicators = server.call("GET", "/metrics/slis", "").await.body.as_str().unwrap().to_owned();
    for line in [
        "kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1",
        "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} 1",
    ] {
        assert!(indicators.contains(line), "{line}: {indicators}");
    }
    server.stop().await;
}
