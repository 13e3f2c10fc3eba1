//! What every request passes: fair queueing, deadlines, the audit log.

use std::convert::Infallible;

use crate::server::{TestServer, admin, send, start_with};
use apiserver::audit::{self, LogFile, policy::Policy};
use auth::UserInfo;
use bytes::Bytes;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Waits until a change of flow control has taken effect, by what a response says.
async fn classified(server: &TestServer, user: &UserInfo, uid: &str) {
    in_time(async {
        loop {
            let answer = send(server.server.service(), Some(user.clone()), "GET", MAPS, &[], "").await;
            let header = answer.headers().get("x-kubernetes-pf-flowschema-uid").cloned();
            if header.is_some_and(|header| header == uid) {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Whatever a test waits for comes soon or never.
async fn in_time<T>(waiting: impl Future<Output = T>) -> T {
    let limit = std::time::Duration::from_secs(60);
    tokio::time::timeout(limit, waiting).await.expect("it comes in time")
}

#[tokio::test]
async fn a_full_level_sends_away_and_the_exempt_pass() {
    let server = start_with(None, |config| config.requests_in_flight_max = 1).await;
    let api = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let level = "{metadata: {name: narrow}, spec: {type: Limited, limited: {nominalConcurrencyShares: 1000000, \
                 borrowingLimitPercent: 0, limitResponse: {type: Reject}}}}";
    let made = server.call("POST", &format!("{api}/prioritylevelconfigurations"), level).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let schema = "{metadata: {name: bobs}, spec: {matchingPrecedence: 3, priorityLevelConfiguration: {name: narrow}, \
                  distinguisherMethod: {type: ByUser}, rules: [{subjects: [{kind: User, user: {name: bob}}], resourceRules: \
                  [{verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: ['*'], clusterScope: true}]}]}}";
    let made = server.call("POST", &format!("{api}/flowschemas"), schema).await;
    assert_eq!(made.code, 201, "{}", made.body);
    // No member of system:masters, who are exempt.
    let binding = "{metadata: {name: bob}, subjects: [{kind: User, name: bob, apiGroup: rbac.authorization.k8s.io}], \
                   roleRef: {kind: ClusterRole, name: cluster-admin, apiGroup: rbac.authorization.k8s.io}}";
    let bound = server.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    assert_eq!(bound.code, 201, "{}", bound.body);
    let bob = UserInfo { name: "bob".into(), ..UserInfo::default() };
    classified(&server, &bob, made.body["metadata"]["uid"].as_str().unwrap()).await;

    // A body that does not come holds its request's seat.
    let (sender, receiver) =
        futures::channel::mpsc::unbounded::<Result<http_body::Frame<Bytes>, Infallible>>();
    let mut request = http::Request::post(MAPS).body(StreamBody::new(receiver)).unwrap();
    request.extensions_mut().insert(bob.clone());
    let held = tokio::spawn(server.server.service().oneshot(request));
    let executing =
        "apiserver_flowcontrol_current_executing_requests{flow_schema=\"bobs\",priority_level=\"narrow\"} 1";
    in_time(async {
        while !server.call("GET", "/metrics", "").await.body.as_str().unwrap().contains(executing) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let answer = send(server.server.service(), Some(bob.clone()), "GET", MAPS, &[], "").await;
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "1");
    let metrics = server.call("GET", "/metrics", "").await.body;
    let metrics = metrics.as_str().unwrap();
    for line in [
        "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"bobs\",priority_level=\"narrow\",reason=\"concurrency-limit\"}",
        executing,
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"narrow\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    let other = send(server.server.service(), Some(admin()), "GET", MAPS, &[], "").await;
    assert_eq!(other.status(), 200, "others have their own seats");
    drop(sender);
    assert_eq!(held.await.unwrap().unwrap().status(), 400, "an empty body");
    let again = send(server.server.service(), Some(bob), "GET", MAPS, &[], "").await;
    assert_eq!(again.status(), 200, "the seat is free again");
    server.stop().await;
}

#[tokio::test]
async fn flow_controls_own_objects_are_kept() {
    let server = start_with(None, |_| {}).await;
    let api = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let level = format!("{api}/prioritylevelconfigurations/workload-low");
    let shares = "/spec/limited/nominalConcurrencyShares";
    let change = r#"{"spec": {"limited": {"nominalConcurrencyShares": 7}}}"#;
    assert_eq!(server.call("PATCH", &level, change).await.code, 200);
    let is = async |path: &str, pointer: &str, wanted: Value| {
        in_time(async {
            while server.call("GET", path, "").await.body.pointer(pointer) != Some(&wanted) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    is(&level, shares, json!(100)).await;
    let own = r#"{"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}, "spec": {"limited": {"nominalConcurrencyShares": 7}}}"#;
    assert_eq!(server.call("PATCH", &level, own).await.code, 200);
    let schema = format!("{api}/flowschemas/global-default");
    let uid = server.call("GET", &schema, "").await.body["metadata"]["uid"].clone();
    assert_eq!(server.call("DELETE", &schema, "").await.code, 200);
    is(&schema, "/spec/matchingPrecedence", json!(9900)).await;
    assert_ne!(server.call("GET", &schema, "").await.body["metadata"]["uid"], uid);
    is(&level, shares, json!(7)).await;
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_told_so() {
    let server = start_with(None, |_| {}).await;
    let (_sender, receiver) =
        futures::channel::mpsc::unbounded::<Result<http_body::Frame<Bytes>, Infallible>>();
    let mut request =
        http::Request::post(format!("{MAPS}?timeout=5ms")).body(StreamBody::new(receiver)).unwrap();
    request.extensions_mut().insert(admin());
    let answer = server.server.service().oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 504);
    let refused = server.call("GET", &format!("{MAPS}?timeout=soon"), "").await;
    assert_eq!(
        refused.body["message"],
        json!("invalid timeout specified in the request URL - time: invalid duration \"soon\"")
    );
    server.stop().await;
}

#[tokio::test]
async fn the_audit_log_says_what_its_policy_wants() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: \
                  RequestResponse, resources: [{group: '', resources: [configmaps]}], verbs: [create]}, {level: Metadata, \
                  resources: [{group: '', resources: [secrets]}]}]}";
    let log = LogFile { path: path.clone(), ..LogFile::default() };
    let server = start_with(None, |config| {
        config.options.audit =
            Some(audit::Config { policy: Policy::parse(policy).unwrap(), log, webhook: None });
    })
    .await;
    // The log is JSON, whatever was sent.
    let wanted = [("content-type", "application/yaml"), ("accept", "application/vnd.kubernetes.protobuf")];
    let made =
        send(server.server.service(), Some(admin()), "POST", MAPS, &wanted, "{metadata: {name: b}}").await;
    assert_eq!(made.status(), 201);
    let headers = [("content-type", "application/yaml"), ("impersonate-user", "jane"), ("audit-id", "one")];
    server.call_with("POST", MAPS, &headers, "{metadata: {name: a}, data: {k: v}}").await;
    server
        .call("POST", "/api/v1/namespaces/default/secrets", "{metadata: {name: s}, stringData: {k: hidden}}")
        .await;
    server.call("GET", MAPS, "").await;
    let headers = [("authorization", "Bearer nobody-knows")];
    let unknown =
        send(server.server.service(), None, "GET", "/api/v1/namespaces/default/secrets", &headers, "").await;
    assert_eq!(unknown.status(), 401);
    server.stop().await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hidden"), "secrets stay secret: {text}");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 4, "{text}");
    let (made, events) = (&events[0], &events[1..]);
    assert_eq!(made["responseObject"]["metadata"]["name"], "b");
    assert_eq!(made["responseObject"]["kind"], "ConfigMap");
    assert_eq!((&events[2]["stage"], &events[2]["user"]), (&json!("ResponseStarted"), &json!({})));
    assert_eq!(events[2]["responseStatus"]["code"], 401);
    assert_eq!(events[2]["responseStatus"]["message"], "Authentication failed, attempted: bearer");
    assert_eq!(events[1]["objectRef"]["name"], "s", "the path of what is new has no name");
    let refused = &events[0];
    assert_eq!(refused["auditID"], "one");
    assert_eq!(refused["impersonatedUser"]["username"], "jane");
    assert_eq!(
        (&refused["stage"], &refused["level"]),
        (&json!("ResponseComplete"), &json!("RequestResponse"))
    );
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(refused["responseStatus"]["code"], 403);
    assert_eq!(refused["objectRef"]["resource"], "configmaps");
    assert_eq!(events[1]["responseStatus"]["code"], 201);
    assert_eq!(events[1].get("requestObject"), None);
}

/// Whatever clients write into requests, what is counted of them has as few names as before.
#[tokio::test]
async fn no_text_of_a_client_becomes_a_label() {
    let server = start_with(None, |_| {}).await;
    let ask = async |round: usize| {
        let text = format!("hostile{round}");
        for (method, path) in [
            ("GET", format!("/{text}")),
            ("BREW", format!("/api/v1/namespaces/{text}/pods")),
            (&*text.to_ascii_uppercase(), "/api/v1/pods".to_owned()),
            ("GET", format!("/api/v1/{text}")),
            ("GET", format!("/apis/{text}/v1/things")),
            ("GET", format!("/apis/apps/{text}/deployments")),
            ("GET", format!("/api/v1/namespaces/{text}/pods/{text}/{text}")),
            ("GET", format!("/readyz/{text}")),
            ("GET", format!("/api/v1/pods?fieldSelector=metadata.name={text}&{text}={text}")),
            ("POST", format!("/api/v1/namespaces/{text}/configmaps?fieldManager={text}&dryRun={text}")),
            ("GET", format!("/openapi/v3/apis/{text}")),
            ("GET", format!("/metrics/{text}")),
        ] {
            let headers = [("user-agent", &*text), ("content-type", "application/json"), ("accept", "*/*")];
            let user = UserInfo::new(&text, &["system:masters"]);
            send(server.server.service(), Some(user), method, &path, &headers, "{}").await;
        }
    };
    let counted = async || {
        let mut names: Vec<String> = Vec::new();
        for path in ["/metrics", "/metrics/slis"] {
            let text = server.call("GET", path, "").await.body.as_str().unwrap().to_owned();
            let series = text.lines().filter(|line| !line.starts_with('#'));
            names.extend(series.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())));
        }
        names
    };
    ask(0).await;
    counted().await;
    let before = counted().await;
    for round in 1..20 {
        ask(round).await;
    }
    let after = counted().await;
    assert!(before.len() > 20 && !after.iter().any(|name| name.to_ascii_lowercase().contains("hostile")));
    assert_eq!(
        after.len(),
        before.len(),
        "{:?}",
        after.iter().filter(|one| !before.contains(one)).collect::<Vec<_>>()
    );
    server.stop().await;
}
