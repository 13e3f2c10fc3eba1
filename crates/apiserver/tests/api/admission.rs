//! Admission through the whole server: what plugins fill in, refuse and say.

use std::sync::Arc;

use crate::server::{self, TestServer, admin, send, start};
use futures::future::join_all;
use serde_json::{Value, json};
use store::embedded::{Embedded, Options};

const PODS: &str = "/api/v1/namespaces/team/pods";
const POD: &str = "{metadata: {name: NAME}, spec: {containers: [{name: x, image: i}]}}";

async fn namespace(labels: &str) -> TestServer {
    let server = start(None).await;
    let body = format!("{{metadata: {{name: team, labels: {labels}}}}}");
    assert_eq!(server.call("POST", "/api/v1/namespaces", &body).await.code, 201);
    let account = "{metadata: {name: default}}";
    let made = server.call("POST", "/api/v1/namespaces/team/serviceaccounts", account).await;
    assert_eq!(made.code, 201, "{}", made.body);
    server
}

/// What a request is answered, with the texts of its warnings.
async fn warnings(server: &TestServer, method: &str, path: &str, body: &str) -> (u16, Vec<String>) {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/yaml" };
    let headers = [("content-type", content_type)];
    let answer = send(server.server.service(), Some(admin()), method, path, &headers, body).await;
    let all = answer.headers().get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned());
    (answer.status().as_u16(), all.collect())
}

#[tokio::test]
async fn a_quota_is_never_overrun_by_concurrent_requests() {
    let server = namespace("{}").await;
    let quota = "{metadata: {name: few}, spec: {hard: {configmaps: 5, pods: 0}}}";
    server.call("POST", "/api/v1/namespaces/team/resourcequotas", quota).await;
    let bodies: Vec<String> = (0..40).map(|n| format!("{{metadata: {{name: c{n}}}}}")).collect();
    let path = "/api/v1/namespaces/team/configmaps";
    let answers = join_all(bodies.iter().map(|body| server.call("POST", path, body))).await;
    let made = answers.iter().filter(|answer| answer.code == 201).count();
    assert_eq!(made, 5);
    let refused = answers.iter().find(|answer| answer.code == 403).unwrap();
    let message = refused.body["message"].as_str().unwrap();
    let expect = "is forbidden: exceeded quota: few, requested: configmaps=1, used: configmaps=5, limited: configmaps=5";
    assert!(message.ends_with(expect), "{message}");
    let one = answers.iter().find(|answer| answer.code == 201).unwrap().body["metadata"]["name"].clone();
    server.call("DELETE", &format!("{path}/{}", one.as_str().unwrap()), "").await;
    let again = server.call("POST", path, "{metadata: {name: again}}").await;
    assert_eq!(again.code, 201, "what is deleted gives its place back: {}", again.body);
    let pod = server.call("POST", PODS, &POD.replace("NAME", "a")).await;
    assert_eq!(
        pod.body["message"],
        json!(
            "pods \"a\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0"
        )
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_never_overrun_through_two_servers() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn store::Store> =
        Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let one = server::start_on(Arc::clone(&store), dir, None, |_| {}).await;
    let two = server::start_on(store, tempfile::tempdir().unwrap(), None, |_| {}).await;
    assert_eq!(one.call("POST", "/api/v1/namespaces", "{metadata: {name: team}}").await.code, 201);
    let quota = "{metadata: {name: few}, spec: {hard: {configmaps: 7}}}";
    let quotas = "/api/v1/namespaces/team/resourcequotas";
    assert_eq!(one.call("POST", quotas, quota).await.code, 201);
    for server in [&one, &two] {
        assert_eq!(server.call("GET", &format!("{quotas}/few"), "").await.code, 200, "a consistent read");
    }
    let path = "/api/v1/namespaces/team/configmaps";
    let made = (0..40).map(|n| {
        let server = if n % 2 == 0 { &one } else { &two };
        async move { server.call("POST", path, &format!("{{metadata: {{name: c{n}}}}}")).await }
    });
    let codes: Vec<u16> = join_all(made).await.iter().map(|answer| answer.code.as_u16()).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 7, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 33, "{codes:?}");
    let quota = one.call("GET", &format!("{quotas}/few"), "").await;
    assert_eq!(quota.body["status"]["used"], json!({"configmaps": "7"}));
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn limit_ranges_fill_in_and_bound() {
    let server = namespace("{}").await;
    let range = "{metadata: {name: l}, spec: {limits: [{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 100m}, max: {cpu: 1}}]}}";
    let made = server.call("POST", "/api/v1/namespaces/team/limitranges", range).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let pod = server.call("POST", PODS, &POD.replace("NAME", "a")).await;
    assert_eq!(pod.code, 201, "{}", pod.body);
    let resources = pod.body.pointer("/spec/containers/0/resources").unwrap();
    assert_eq!(resources, &json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}));
    let big =
        "{metadata: {name: b}, spec: {containers: [{name: x, image: i, resources: {limits: {cpu: 2}}}]}}";
    let refused = server.call("POST", PODS, big).await;
    assert_eq!(
        refused.body["message"],
        json!("pods \"b\" is forbidden: maximum cpu usage per Container is 1, but limit is 2")
    );
    server.stop().await;
}

#[tokio::test]
async fn pod_security_refuses_and_warns() {
    let server = namespace(
        "{pod-security.kubernetes.io/enforce: baseline, pod-security.kubernetes.io/warn: restricted}",
    )
    .await;
    let (code, said) = warnings(&server, "POST", PODS, &POD.replace("NAME", "a")).await;
    assert_eq!(code, 201);
    assert!(
        said[0].starts_with("299 - \"would violate PodSecurity \\\"restricted:latest\\\": allowPriv"),
        "{said:?}"
    );
    let host = "{metadata: {name: h}, spec: {hostNetwork: true, containers: [{name: x, image: i}]}}";
    let refused = server.call("POST", PODS, host).await;
    assert_eq!(
        refused.body["message"],
        json!(
            "pods \"h\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"
        )
    );
    let deployment = "{metadata: {name: d}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, \
                      spec: {hostPID: true, containers: [{name: x, image: i}]}}}}";
    let (code, said) =
        warnings(&server, "POST", "/apis/apps/v1/namespaces/team/deployments", deployment).await;
    assert_eq!(code, 201, "controllers are warned only");
    assert!(said[0].contains("host namespaces (hostPID=true)"), "{said:?}");
    let stricter = r#"{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}"#;
    let (code, said) = warnings(&server, "PATCH", "/api/v1/namespaces/team", stricter).await;
    assert_eq!(code, 200);
    assert_eq!(
        said,
        [
            "299 - \"existing pods in namespace \\\"team\\\" violate the new PodSecurity enforce level \\\"restricted:latest\\\"\"",
            "299 - \"a: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile\"",
        ]
    );
    let unknown = r#"{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "strict"}}}"#;
    let refused = server.call("PATCH", "/api/v1/namespaces/team", unknown).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    server.stop().await;
}

#[tokio::test]
async fn classes_priorities_and_finalizers_are_filled_in() {
    let server = namespace("{}").await;
    let class = "{metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: p}";
    server.call("POST", "/apis/storage.k8s.io/v1/storageclasses", class).await;
    let claim =
        "{metadata: {name: c}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    let claim = server.call("POST", "/api/v1/namespaces/team/persistentvolumeclaims", claim).await;
    assert_eq!(claim.body.pointer("/spec/storageClassName"), Some(&json!("fast")), "{}", claim.body);
    assert_eq!(claim.body.pointer("/metadata/finalizers"), Some(&json!(["kubernetes.io/pvc-protection"])));
    let attributes = "{metadata: {name: gold}, driverName: d.example.com, parameters: {a: b}}";
    let attributes = server.call("POST", "/apis/storage.k8s.io/v1/volumeattributesclasses", attributes).await;
    assert_eq!(
        attributes.body.pointer("/metadata/finalizers"),
        Some(&json!(["kubernetes.io/vac-protection"]))
    );
    let class = |name: &str| format!("{{metadata: {{name: {name}}}, value: 7, globalDefault: true}}");
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    server.call("POST", classes, &class("seven")).await;
    let second = server.call("POST", classes, &class("eight")).await;
    assert_eq!(
        second.body["message"],
        json!(
            "priorityclasses.scheduling.k8s.io \"eight\" is forbidden: PriorityClass seven is already marked as default. Only one default can exist"
        )
    );
    let pod: Value = server.call("POST", PODS, &POD.replace("NAME", "a")).await.body;
    assert_eq!((&pod["spec"]["priority"], &pod["spec"]["priorityClassName"]), (&json!(7), &json!("seven")));
    server.stop().await;
}

#[tokio::test]
async fn a_service_has_its_addresses_to_itself_until_it_lets_go() {
    let server = start(None).await;
    let path = "/api/v1/namespaces/default/services";
    let service = |name: &str, more: &str| {
        format!("{{metadata: {{name: {name}}}, spec: {{selector: {{a: b}}, ports: [{{port: 80}}]{more}}}}}")
    };
    let first = server.call("POST", path, &service("one", ", clusterIP: 10.43.0.77")).await;
    assert_eq!(first.code, 201, "{}", first.body);
    for name in ["one", "two"] {
        let taken = server.call("POST", path, &service(name, ", clusterIP: 10.43.0.77")).await;
        assert_eq!(
            taken.body["message"],
            json!(format!(
                "Service \"{name}\" is invalid: spec.clusterIPs: Invalid value: [\"10.43.0.77\"]: failed to allocate IP 10.43.0.77: provided IP is already allocated"
            ))
        );
    }
    let address = "/apis/networking.k8s.io/v1/ipaddresses/10.43.0.77";
    let object = loop {
        let answer = server.call("GET", address, "").await;
        if answer.code == 200 {
            break answer.body;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        object["spec"]["parentRef"],
        json!({"group": "", "resource": "services", "namespace": "default", "name": "one"})
    );
    let external = r#"{"spec": {"type": "ExternalName", "externalName": "x.example"}}"#;
    let changed = server.call("PATCH", &format!("{path}/one"), external).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    assert_eq!(changed.body["spec"].get("clusterIP"), None, "{}", changed.body);
    while server.call("GET", address, "").await.code != 404 {
        tokio::task::yield_now().await;
    }
    let again = loop {
        let answer = server.call("POST", path, &service("two", ", clusterIP: 10.43.0.77")).await;
        if answer.code == 201 {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(again.body["spec"]["clusterIPs"], json!(["10.43.0.77"]));
    let dual = server.call("POST", path, &service("dual", ", ipFamilyPolicy: RequireDualStack")).await;
    assert_eq!(
        dual.body["message"],
        json!(
            "Service \"dual\" is invalid: spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services"
        )
    );
    server.stop().await;
}

#[tokio::test]
async fn images_are_always_pulled_where_the_plugin_says_so() {
    let server = server::start_with(None, |config| {
        config.options.admission_plugins =
            apiserver::admission::chosen(&["AlwaysPullImages".into()], &[]).unwrap();
    })
    .await;
    let (accounts, pods) = ("/api/v1/namespaces/default/serviceaccounts", "/api/v1/namespaces/default/pods");
    server.call("POST", accounts, "{metadata: {name: default}}").await;
    let pod = "{metadata: {name: a}, spec: {initContainers: [{name: i, image: i, imagePullPolicy: Never}], \
        containers: [{name: x, image: i:1, imagePullPolicy: IfNotPresent}], \
        volumes: [{name: v, image: {reference: r, pullPolicy: Never}}, {name: e, emptyDir: {}}]}}";
    let made = server.call("POST", pods, pod).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let found = |pointer: &str| made.body.pointer(pointer).cloned().unwrap_or_default();
    for pointer in [
        "/spec/initContainers/0/imagePullPolicy",
        "/spec/containers/0/imagePullPolicy",
        "/spec/volumes/0/image/pullPolicy",
    ] {
        assert_eq!(found(pointer), "Always", "{pointer}");
    }
    assert_eq!(found("/spec/volumes/1/image"), Value::Null);
    server.stop().await;
}

#[tokio::test]
async fn events_beyond_their_limit_are_refused_in_both_groups() {
    let server = server::start_with(None, |config| {
        config.options.admission_plugins =
            apiserver::admission::chosen(&["EventRateLimit".into()], &[]).unwrap();
        let limits = "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, \
            limits: [{type: Namespace, qps: 1, burst: 2}]}";
        let limits = apiserver::admission::event_rate_limit::EventRateLimits::parse(limits);
        config.options.event_rate_limits = Arc::new(limits.unwrap());
    })
    .await;
    let events = "/api/v1/namespaces/default/events";
    let event = |name: &str| {
        format!("{{metadata: {{name: {name}, namespace: default}}, involvedObject: {{namespace: default}}}}")
    };
    let dry = server.call("POST", &format!("{events}?dryRun=All"), &event("dry")).await;
    assert_eq!(dry.code, 201, "{}", dry.body);
    let mut codes = Vec::new();
    for number in 0..6 {
        let made = server.call("POST", events, &event(&format!("e{number}"))).await;
        codes.push(made.code.as_u16());
        if made.code == 429 {
            let said = "Too many requests: limit reached on type Namespace for key default";
            assert_eq!(made.body["message"], said);
        }
    }
    assert_eq!(codes[..2], [201, 201]);
    assert!(codes.contains(&429), "{codes:?}");
    let newer = "{metadata: {name: newer, namespace: default}, eventTime: '2026-01-01T00:00:00.000000Z', action: a, reason: r, \
        type: Normal, reportingController: c, reportingInstance: i, regarding: {namespace: default}}";
    let refused = server.call("POST", "/apis/events.k8s.io/v1/namespaces/default/events", newer).await;
    assert_eq!(refused.code, 429, "{}", refused.body);
    server.stop().await;
}

/// What is another's a node is not shown by writing to it in a way that changes nothing.
#[tokio::test]
async fn a_node_is_shown_nothing_of_others_by_writes_that_change_nothing() {
    let server = namespace("{}").await;
    for node in ["a", "b"] {
        for (path, body) in [
            ("/api/v1/nodes", format!("{{metadata: {{name: {node}}}}}")),
            (
                PODS,
                format!(
                    "{{metadata: {{name: p-{node}}}, spec: {{nodeName: {node}, containers: [{{name: x, image: i}}]}}}}"
                ),
            ),
            (
                "/apis/storage.k8s.io/v1/csinodes",
                format!("{{metadata: {{name: {node}}}, spec: {{drivers: []}}}}"),
            ),
        ] {
            let made = server.call("POST", path, &body).await;
            assert_eq!(made.code, 201, "{path}: {}", made.body);
        }
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    for node in ["a", "b"] {
        let made = server.call("POST", leases, &format!("{{metadata: {{name: {node}}}}}")).await;
        assert_eq!(made.code, 201, "{}", made.body);
    }
    let user = auth::UserInfo::new("system:node:a", &["system:nodes", "system:authenticated"]);
    let merge = "application/merge-patch+json";
    let apply = "application/apply-patch+yaml";
    let eviction = "{metadata: {name: p-NODE}, deleteOptions: {dryRun: [All]}}";
    for (method, content_type, path, body, own) in [
        ("PATCH", merge, format!("{PODS}/p-NODE/status"), "{}", 200),
        ("PATCH", merge, format!("{PODS}/p-NODE/status?dryRun=All"), "{}", 200),
        ("PATCH", "application/json-patch+json", format!("{PODS}/p-NODE/status"), "[]", 200),
        ("PATCH", apply, format!("{PODS}/p-NODE/status?fieldManager=x"), "{apiVersion: v1, kind: Pod}", 200),
        ("POST", "application/yaml", format!("{PODS}/p-NODE/eviction"), eviction, 201),
        ("PATCH", merge, "/api/v1/nodes/NODE".to_owned(), "{}", 200),
        ("PATCH", merge, "/api/v1/nodes/NODE/status".to_owned(), "{}", 200),
        ("PATCH", merge, "/apis/storage.k8s.io/v1/csinodes/NODE".to_owned(), "{}", 200),
        ("PATCH", merge, format!("{leases}/NODE"), "{}", 200),
    ] {
        for (node, code) in [("a", own), ("b", 403)] {
            let (path, body) = (path.replace("NODE", node), body.replace("NODE", node));
            let headers = [("content-type", content_type)];
            let answer =
                send(server.server.service(), Some(user.clone()), method, &path, &headers, &body).await;
            let got = answer.status();
            let text = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
            assert_eq!(got, code, "{method} {path}: {}", String::from_utf8_lossy(&text));
        }
    }
    server.stop().await;
}

/// A node deletes Pods of its own only, and is told nothing of others', however they are about to go.
#[tokio::test]
async fn a_node_deletes_no_pod_of_another() {
    let server = namespace("{}").await;
    for node in ["a", "b"] {
        let made = server.call("POST", "/api/v1/nodes", &format!("{{metadata: {{name: {node}}}}}")).await;
        assert_eq!(made.code, 201, "{}", made.body);
        for (name, finalizers) in [("free", ""), ("held", "example.com/hold"), ("going", "example.com/hold")]
        {
            let pod = format!(
                "{{metadata: {{name: {name}-{node}, finalizers: [{finalizers}]}}, \
                 spec: {{nodeName: {node}, containers: [{{name: x, image: i}}]}}}}"
            );
            let made = server.call("POST", PODS, &pod).await;
            assert_eq!(made.code, 201, "{}", made.body);
        }
        let path = format!("{PODS}/going-{node}?gracePeriodSeconds=0");
        assert_eq!(server.call("DELETE", &path, "").await.code, 200);
    }
    let user = auth::UserInfo::new("system:node:a", &["system:nodes", "system:authenticated"]);
    let only = "node \"a\" can only delete pods with spec.nodeName set to itself";
    let other = "{preconditions: {uid: another}}";
    for (pod, query, body, code) in [
        ("free-b", "", "", 403),
        ("free-b", "?dryRun=All", "", 403),
        ("free-b", "", other, 403),
        ("held-b", "", "", 403),
        ("going-b", "", "", 403),
        ("going-b", "?gracePeriodSeconds=0", "", 403),
        ("going-b", "?dryRun=All", "", 403),
        ("going-b", "", other, 403),
        ("none", "", "", 404),
        ("going-a", "", other, 409),
        ("going-a", "", "", 200),
        ("held-a", "?gracePeriodSeconds=0", "", 200),
        ("free-a", "?gracePeriodSeconds=0", "", 200),
    ] {
        let path = format!("{PODS}/{pod}{query}");
        let headers = [("content-type", "application/yaml")];
        let answer = send(server.server.service(), Some(user.clone()), "DELETE", &path, &headers, body).await;
        assert_eq!(answer.status(), code, "{pod}{query} {body}");
        if code == 403 {
            let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["message"], json!(format!("pods \"{pod}\" is forbidden: {only}")));
        }
    }
    server.stop().await;
}
