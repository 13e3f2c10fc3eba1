//! Every verb, in-process, by table: a request and what is expected of its answer.

use std::sync::Arc;

use crate::server::{self, TestServer, start};
use http_body_util::BodyExt;
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// `method path body -> code`, and fields of the answer as JSON pointers.
async fn check(
    server: &TestServer,
    request: (&str, &str, &str),
    code: u16,
    fields: &[(&str, Value)],
) -> Value {
    let (method, path, body) = request;
    let answer = server.call(method, path, body).await;
    assert_eq!(answer.code.as_u16(), code, "{method} {path}: {}", answer.body);
    for (pointer, expect) in fields {
        let found = answer.body.pointer(pointer).cloned().unwrap_or(Value::Null);
        assert_eq!(&found, expect, "{method} {path} {pointer}: {}", answer.body);
    }
    answer.body
}

#[tokio::test]
async fn an_object_lives_through_all_verbs() {
    let server = start(None).await;
    let one = format!("{CONFIG_MAPS}/one");
    let created = check(
        &server,
        ("POST", CONFIG_MAPS, "{metadata: {name: one, labels: {a: b}}, data: {k: v}}"),
        201,
        &[("/kind", json!("ConfigMap")), ("/metadata/namespace", json!("default"))],
    )
    .await;
    let version = created["metadata"]["resourceVersion"].clone();
    check(&server, ("GET", &one, ""), 200, &[("/metadata/resourceVersion", version.clone())]).await;
    check(
        &server,
        ("POST", CONFIG_MAPS, "{metadata: {name: one}}"),
        409,
        &[("/reason", json!("AlreadyExists")), ("/message", json!("configmaps \"one\" already exists"))],
    )
    .await;
    check(&server, ("GET", CONFIG_MAPS, ""), 200, &[("/items/0/metadata/name", json!("one"))]).await;
    let list = check(&server, ("GET", &format!("{CONFIG_MAPS}?labelSelector=a%3Db"), ""), 200, &[]).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    check(
        &server,
        ("PUT", &one, "{metadata: {name: one, resourceVersion: '1'}, data: {k: w}}"),
        409,
        &[("/reason", json!("Conflict"))],
    )
    .await;
    let put = check(
        &server,
        ("PUT", &one, "{metadata: {name: one}, data: {k: w}}"),
        200,
        &[("/data/k", json!("w"))],
    )
    .await;
    let again = check(&server, ("PUT", &one, "{metadata: {name: one}, data: {k: w}}"), 200, &[]).await;
    assert_eq!(
        put["metadata"]["resourceVersion"], again["metadata"]["resourceVersion"],
        "no change, no write"
    );
    check(
        &server,
        ("PATCH", &one, "{\"data\": {\"x\": \"y\", \"k\": null}}"),
        200,
        &[("/data", json!({"x": "y"}))],
    )
    .await;
    check(
        &server,
        ("DELETE", &one, ""),
        200,
        &[("/status", json!("Success")), ("/details/name", json!("one"))],
    )
    .await;
    check(&server, ("GET", &one, ""), 404, &[("/message", json!("configmaps \"one\" not found"))]).await;
    server.stop().await;
}

#[tokio::test]
async fn bad_requests_are_told_what_is_wrong() {
    let server = start(None).await;
    type Row = (&'static str, (&'static str, &'static str, &'static str), u16, &'static str);
    let rows: &[Row] = &[
        (
            "unknown resource",
            ("GET", "/api/v1/nonsense", ""),
            404,
            "the server could not find the requested resource",
        ),
        (
            "unknown namespace",
            ("POST", "/api/v1/namespaces/none/configmaps", "{metadata: {name: a}}"),
            404,
            "namespaces \"none\" not found",
        ),
        (
            "other namespace",
            ("POST", CONFIG_MAPS, "{metadata: {name: a, namespace: b}}"),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "other name",
            ("PUT", "/api/v1/namespaces/default/configmaps/x", "{metadata: {name: a}}"),
            400,
            "the name of the object (a) does not match the name on the URL (x)",
        ),
        (
            "immortal",
            ("DELETE", "/api/v1/namespaces/default", ""),
            403,
            "namespaces \"default\" is forbidden: this namespace may not be deleted",
        ),
        (
            "method",
            ("POST", "/api/v1/componentstatuses", "{}"),
            405,
            "the server does not allow this method on the requested resource",
        ),
        (
            "version",
            ("GET", "/api/v1/namespaces/default/configmaps?resourceVersion=x", ""),
            400,
            "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
    ];
    for (name, (method, path, body), code, message) in rows {
        let answer = server.call(method, path, body).await;
        assert_eq!(
            (answer.code.as_u16(), answer.body["message"].as_str().unwrap_or_default()),
            (*code, *message),
            "{name}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn lists_come_in_pages_of_one_revision() {
    let server = start(None).await;
    for name in ["a", "b", "c"] {
        check(
            &server,
            ("POST", "/api/v1/namespaces/kube-public/secrets", &format!("{{metadata: {{name: {name}}}}}")),
            201,
            &[],
        )
        .await;
    }
    let path = "/api/v1/namespaces/kube-public/secrets?limit=2";
    let first = check(&server, ("GET", path, ""), 200, &[("/metadata/remainingItemCount", json!(1))]).await;
    check(&server, ("DELETE", "/api/v1/namespaces/kube-public/secrets/c", ""), 200, &[]).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = check(
        &server,
        ("GET", &format!("{path}&continue={token}"), ""),
        200,
        &[
            ("/items/0/metadata/name", json!("c")),
            ("/metadata/resourceVersion", first["metadata"]["resourceVersion"].clone()),
        ],
    )
    .await;
    assert!(rest["metadata"].get("continue").is_none());
    server.stop().await;
}

#[tokio::test]
async fn a_watch_tells_what_happens_and_what_enters_its_selector() {
    let server = start(None).await;
    let list = server.call("GET", CONFIG_MAPS, "").await.body;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}&labelSelector=watched");
    let response = server::send(server.server.service(), Some(server::admin()), "GET", &path, &[], "").await;
    let mut body = response.into_body();
    let one = format!("{CONFIG_MAPS}/one");
    check(&server, ("POST", CONFIG_MAPS, "{metadata: {name: one}}"), 201, &[]).await;
    check(&server, ("PATCH", &one, "{\"metadata\": {\"labels\": {\"watched\": \"1\"}}}"), 200, &[]).await;
    check(&server, ("PATCH", &one, "{\"data\": {\"a\": \"b\"}}"), 200, &[]).await;
    check(&server, ("PATCH", &one, "{\"metadata\": {\"labels\": null}}"), 200, &[]).await;
    let mut events = Vec::new();
    let mut text = String::new();
    while events.len() < 3 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&frame).unwrap());
        while let Some((line, rest)) = text.split_once('\n') {
            let event: Value = serde_json::from_str(line).unwrap();
            events.push(event["type"].as_str().unwrap().to_owned());
            text = rest.to_owned();
        }
    }
    assert_eq!(events, ["ADDED", "MODIFIED", "DELETED"]);
    server.stop().await;
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let server = start(None).await;
    let path = "/api/v1/namespaces?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let response = server::send(server.server.service(), Some(server::admin()), "GET", path, &[], "").await;
    let frame = response.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
    let events: Vec<Value> = frame
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    assert_eq!(events.len(), 5);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "BOOKMARK");
    assert_eq!(last["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    server.stop().await;
}

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_gone() {
    let server = start(None).await;
    let one = format!("{CONFIG_MAPS}/one");
    check(&server, ("POST", CONFIG_MAPS, "{metadata: {name: one, finalizers: [example.com/a]}}"), 201, &[])
        .await;
    let held = check(&server, ("DELETE", &one, ""), 200, &[("/kind", json!("ConfigMap"))]).await;
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    check(&server, ("PATCH", &one, "{\"metadata\": {\"finalizers\": null}}"), 200, &[]).await;
    check(&server, ("GET", &one, ""), 404, &[]).await;
    server.stop().await;
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one session, step by step")]
async fn pods_are_bound_scaled_objects_scale_and_services_get_addresses() {
    let server = start(None).await;
    check(
        &server,
        ("POST", "/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: default}}"),
        201,
        &[],
    )
    .await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = check(
        &server,
        ("POST", pods, "{metadata: {generateName: web-}, spec: {containers: [{name: a, image: b}]}}"),
        201,
        &[
            ("/spec/serviceAccountName", json!("default")),
            ("/spec/restartPolicy", json!("Always")),
            ("/spec/containers/0/volumeMounts/0/readOnly", json!(true)),
            ("/spec/tolerations/0/tolerationSeconds", json!(300)),
            ("/status/phase", json!("Pending")),
        ],
    )
    .await;
    let name = pod["metadata"]["name"].as_str().unwrap();
    assert_eq!(name.len(), "web-".len() + 5);
    let binding = format!("{pods}/{name}/binding");
    check(
        &server,
        ("POST", &binding, &format!("{{metadata: {{name: {name}}}, target: {{kind: Node, name: n1}}}}")),
        201,
        &[("/status", json!("Success"))],
    )
    .await;
    let second = format!("{{metadata: {{name: {name}}}, target: {{kind: Node, name: n2}}}}");
    check(&server, ("POST", &binding, &second), 409, &[]).await;
    let bound =
        check(&server, ("GET", &format!("{pods}/{name}"), ""), 200, &[("/spec/nodeName", json!("n1"))]).await;
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    check(
        &server,
        ("DELETE", &format!("{pods}/{name}"), ""),
        200,
        &[("/metadata/deletionGracePeriodSeconds", json!(30))],
    )
    .await;
    check(&server, ("DELETE", &format!("{pods}/{name}?gracePeriodSeconds=0"), ""), 200, &[]).await;
    check(&server, ("GET", &format!("{pods}/{name}"), ""), 404, &[]).await;

    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template = "{metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}";
    let deployment = format!(
        "{{metadata: {{name: web}}, spec: {{replicas: 2, selector: {{matchLabels: {{a: b}}}}, template: {template}}}}}"
    );
    check(&server, ("POST", deployments, &deployment), 201, &[("/metadata/generation", json!(1))]).await;
    let scale = format!("{deployments}/web/scale");
    check(
        &server,
        ("GET", &scale, ""),
        200,
        &[("/spec/replicas", json!(2)), ("/status/selector", json!("a=b"))],
    )
    .await;
    check(&server, ("PATCH", &scale, "{\"spec\": {\"replicas\": 5}}"), 200, &[("/spec/replicas", json!(5))])
        .await;
    check(&server, ("GET", &format!("{deployments}/web"), ""), 200, &[("/metadata/generation", json!(2))])
        .await;
    check(
        &server,
        (
            "PATCH",
            &format!("{deployments}/web/status"),
            "{\"status\": {\"replicas\": 5}, \"spec\": {\"replicas\": 1}}",
        ),
        200,
        &[("/status/replicas", json!(5)), ("/spec/replicas", json!(5)), ("/metadata/generation", json!(2))],
    )
    .await;

    let services = "/api/v1/namespaces/default/services";
    let service = check(
        &server,
        ("POST", services, "{metadata: {name: web}, spec: {type: NodePort, ports: [{port: 80}]}}"),
        201,
        &[("/spec/ipFamilies", json!(["IPv4"]))],
    )
    .await;
    let address = service["spec"]["clusterIP"].as_str().unwrap();
    assert!(address.starts_with("10.43."), "{address}");
    assert!(service["spec"]["ports"][0]["nodePort"].as_u64().unwrap() >= 30000);
    let taken =
        format!("{{metadata: {{name: other}}, spec: {{clusterIP: {address}, ports: [{{port: 80}}]}}}}");
    check(&server, ("POST", services, &taken), 422, &[]).await;
    check(&server, ("DELETE", &format!("{services}/web"), ""), 200, &[]).await;
    check(&server, ("POST", services, &taken), 201, &[]).await;
    server.stop().await;
}

#[tokio::test]
async fn a_token_is_issued_and_authenticates() {
    let server = start(None).await;
    check(
        &server,
        ("POST", "/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: robot}}"),
        201,
        &[],
    )
    .await;
    let token = check(
        &server,
        ("POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", "{spec: {}}"),
        201,
        &[("/spec/expirationSeconds", json!(3600))],
    )
    .await;
    let bearer = format!("Bearer {}", token["status"]["token"].as_str().unwrap());
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let service = server.server.service();
    let response = server::send(service, None, "POST", path, &[("authorization", &bearer)], "{}").await;
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(review["status"]["userInfo"]["username"], "system:serviceaccount:default:robot", "{review}");
    let nobody = server::send(server.server.service(), None, "GET", "/api/v1/pods", &[], "").await;
    assert_eq!(nobody.status(), 403);
    let health = server::send(server.server.service(), None, "GET", "/readyz?verbose", &[], "").await;
    assert_eq!(health.status(), 200);
    server.stop().await;
}

#[tokio::test]
async fn bad_input_is_refused_in_bounded_time() {
    let server = start(None).await;
    let deep = format!("{{\"data\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let big = "x".repeat(4 * 1024 * 1024);
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
    let (json, yaml, protobuf) =
        ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf");
    let rows: &[(&str, &str, &str, &str, u16)] = &[
        ("too large", json, CONFIG_MAPS, &big, 413),
        ("too deep", json, CONFIG_MAPS, &deep, 400),
        ("no JSON", json, CONFIG_MAPS, "{", 400),
        ("empty", json, CONFIG_MAPS, "", 400),
        ("a list", json, CONFIG_MAPS, "[]", 400),
        ("a YAML bomb", yaml, CONFIG_MAPS, bomb, 400),
        ("no protobuf", protobuf, CONFIG_MAPS, "nonsense", 400),
        ("cut protobuf", protobuf, CONFIG_MAPS, "k8s\0\n\u{7f}", 400),
        ("unknown type", "image/png", CONFIG_MAPS, "x", 415),
        ("wrong type", json, CONFIG_MAPS, r#"{"metadata": {"name": 5}}"#, 400),
        (
            "wrong kind",
            json,
            CONFIG_MAPS,
            r#"{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}"#,
            400,
        ),
        ("no name", json, CONFIG_MAPS, "{}", 422),
        ("bad name", json, CONFIG_MAPS, r#"{"metadata": {"name": "A_b"}}"#, 422),
        (
            "unknown field",
            json,
            "/api/v1/namespaces/default/configmaps?fieldValidation=Strict",
            r#"{"metadata": {"name": "a"}, "bogus": 1}"#,
            400,
        ),
        (
            "bad dry run",
            json,
            "/api/v1/namespaces/default/configmaps?dryRun=yes",
            r#"{"metadata": {"name": "a"}}"#,
            422,
        ),
    ];
    for (name, content_type, path, body, code) in rows {
        let answer = server.call_with("POST", path, &[("content-type", content_type)], body).await;
        assert_eq!(answer.code.as_u16(), *code, "{name}: {}", answer.body);
        assert_eq!(answer.body["kind"], "Status", "{name}");
    }
    let unacceptable = server.call_with("GET", CONFIG_MAPS, &[("accept", "image/png")], "").await;
    assert_eq!(unacceptable.code, 406);
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let server = start(None).await;
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    let made =
        check(&server, ("POST", &path, "{metadata: {name: one}}"), 201, &[("/metadata/name", json!("one"))])
            .await;
    assert!(made["metadata"].get("resourceVersion").is_none());
    check(&server, ("GET", &format!("{CONFIG_MAPS}/one"), ""), 404, &[]).await;
    server.stop().await;
}

#[tokio::test]
async fn objects_come_as_tables_metadata_yaml_and_protobuf() {
    let server = start(None).await;
    let path = "/api/v1/namespaces";
    let accept = |text| [("accept", text)];
    let table =
        server.call_with("GET", path, &accept("application/json;as=Table;v=v1;g=meta.k8s.io"), "").await;
    assert_eq!(table.body["kind"], "Table");
    assert_eq!(table.body["rows"][0]["cells"][0], "default");
    let partial = server
        .call_with(
            "GET",
            path,
            &accept("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
            "",
        )
        .await;
    assert_eq!(partial.body["kind"], "PartialObjectMetadataList");
    assert!(partial.body["items"][0].get("spec").is_none());
    let yaml = server.call_with("GET", "/api/v1/namespaces/default", &accept("application/yaml"), "").await;
    assert!(yaml.body.as_str().unwrap().contains("kind: Namespace"), "{}", yaml.body);
    for path in ["/api/v1/namespaces/default", "/api/v1/namespaces", "/api/v1/namespaces/none"] {
        let accept = [("accept", "application/vnd.kubernetes.protobuf")];
        let response =
            server::send(server.server.service(), Some(server::admin()), "GET", path, &accept, "").await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(bytes.starts_with(b"k8s\0"), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_chain_of_causes_can_be_asked_for() {
    let server = start(None).await;
    let made = server.call("POST", CONFIG_MAPS, "{metadata: {name: one}}").await.body;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let headers = [("knarr-cause", version), ("user-agent", "tester/1.0 x")];
    server.call_with("POST", CONFIG_MAPS, &headers, r#"{"metadata": {"name": "two"}}"#).await;
    let span = format!(
        r#"[{{"cause": {version}, "component": "c", "name": "n", "object": "o", "start_us": 1, "end_us": 2}}]"#
    );
    assert_eq!(server.call_with("POST", "/debug/knarr/spans", &[], &span).await.code, 200);
    let chain =
        server.call("GET", "/debug/knarr/trace?resource=cm&namespace=default&name=one", "").await.body;
    assert_eq!(chain["commits"][0]["key"], "configmaps/default/one");
    assert_eq!(chain["commits"][1]["key"], "configmaps/default/two");
    assert_eq!(chain["commits"][1]["component"], "tester");
    assert_eq!(chain["spans"][0]["name"], "n");
    let nothing = server.call("GET", "/debug/knarr/trace?resource=foo&namespace=default&name=one", "").await;
    assert_eq!(nothing.code, 400, "what is no resource has no chain: {}", nothing.body);
    let made = server.call("POST", "/api/v1/nodes", "{metadata: {name: node-1}}").await;
    assert_eq!(made.code, 201, "{}", made.body);
    let node = server.call("GET", "/debug/knarr/trace?resource=node&name=node-1", "").await.body;
    assert_eq!(node["commits"][0]["key"], "nodes/node-1", "by the resource, wherever it is stored: {node}");
    server.stop().await;
}

#[tokio::test]
async fn a_chain_of_causes_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let store: Arc<dyn store::Store> = Arc::new(
        store::embedded::Embedded::open(&folder.path().join("db"), store::embedded::Options::default())
            .unwrap(),
    );
    let start = async || {
        let keys = tempfile::tempdir().unwrap();
        let configure = |config: &mut apiserver::Config| config.options.trace_file = Some(file.clone());
        server::start_on(Arc::clone(&store), keys, None, configure).await
    };
    let chain = async |server: &server::TestServer, name: &str| {
        let path = format!("/debug/knarr/trace?resource=configmaps&namespace=default&name={name}");
        server.call("GET", &path, "").await.body
    };
    let commits = async |server: &server::TestServer, name: &str| {
        chain(server, name).await["commits"].as_array().map_or(0, Vec::len)
    };
    // What is remembered comes a moment after the server does.
    let eventually = async |server: &server::TestServer, name: &str| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while commits(server, name).await == 0 {
            assert!(std::time::Instant::now() < deadline, "{name} is forgotten");
            tokio::task::yield_now().await;
        }
    };
    let first = start().await;
    first.call("POST", CONFIG_MAPS, "{metadata: {name: kept}}").await;
    assert_eq!(commits(&first, "kept").await, 1);
    first.server.save_trace().unwrap();
    first.call("POST", CONFIG_MAPS, "{metadata: {name: after}}").await;
    first.tasks.stop_and_wait().await;
    let second = start().await;
    eventually(&second, "after").await;
    eventually(&second, "kept").await;
    assert_eq!(commits(&second, "kept").await, 1, "once, though file and store have it");

    // Spans are in the file soon, so that they outlive a server that is killed.
    let revision = chain(&second, "after").await["commits"][0]["revision"].clone();
    let span = json!([{"cause": revision, "component": "c", "name": "woke", "object": "o", "start_us": 1, "end_us": 2}]);
    second.call("POST", "/debug/knarr/spans", &span.to_string()).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("woke")) {
        assert!(std::time::Instant::now() < deadline, "the span is not kept");
        tokio::task::yield_now().await;
    }
    second.tasks.stop_and_wait().await;
    let third = start().await;
    eventually(&third, "after").await;
    assert_eq!(chain(&third, "after").await["spans"][0]["name"], "woke");
    third.tasks.stop_and_wait().await;
    std::fs::write(&file, "{ not whole").unwrap();
    let fourth = start().await;
    eventually(&fourth, "kept").await;
    fourth.stop().await;
}

#[tokio::test]
async fn a_chain_of_causes_outlives_crashes_after_which_revisions_leap() {
    let folder = tempfile::tempdir().unwrap();
    let trace = "/debug/knarr/trace?resource=configmaps&namespace=default&name=kept";
    let mut revision = 0;
    for start in 0..4 {
        let open = store::embedded::Embedded::open;
        let db = |start| folder.path().join(format!("db-{start}"));
        let store = open(&db(start), store::embedded::Options::default()).unwrap();
        let server = server::start_on(Arc::new(store), tempfile::tempdir().unwrap(), None, |config| {
            config.options.trace_file = Some(folder.path().join("trace.json"));
        })
        .await;
        let name = if start == 0 { "kept".to_owned() } else { format!("later-{start}") };
        let made = server.call("POST", CONFIG_MAPS, &format!("{{metadata: {{name: {name}}}}}")).await.body;
        revision = made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while server.call("GET", trace, "").await.body["commits"].as_array().is_none_or(|it| it.len() != 1) {
            assert!(std::time::Instant::now() < deadline, "forgotten after {start} crashes");
            tokio::task::yield_now().await;
        }
        // What a crash leaves: nothing is saved, and the store is not closed.
        std::fs::create_dir(db(start + 1)).unwrap();
        std::fs::copy(db(start).join("data.mdb"), db(start + 1).join("data.mdb")).unwrap();
        server.stop().await;
    }
    assert!(revision > apiserver::trace::COMMITS_MAX as u64, "{revision}: too small a leap shows nothing");
}

#[tokio::test]
async fn a_balanced_service_that_stays_local_has_a_health_check_port_of_its_own() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let server = start(None).await;
    let local = "type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80}]";
    let made = server.call("POST", SERVICES, &format!("{{metadata: {{name: a}}, spec: {{{local}}}}}")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let port = made.body["spec"]["healthCheckNodePort"].clone();
    assert!(port.as_u64().is_some_and(|port| (30000..=32767).contains(&port)), "{}", made.body);
    assert_ne!(port, made.body["spec"]["ports"][0]["nodePort"]);
    let same = format!("{{metadata: {{name: b}}, spec: {{{local}, healthCheckNodePort: {port}}}}}");
    let refused = server.call("POST", SERVICES, &same).await;
    assert_eq!(refused.code, 422);
    let text = format!("spec.healthCheckNodePort: Invalid value: {port}: provided port is already allocated");
    assert!(refused.body["message"].as_str().unwrap().contains(&text), "{}", refused.body);
    let path = format!("{SERVICES}/a");
    let plain = server.call("PATCH", &path, r#"{"spec": {"externalTrafficPolicy": "Cluster"}}"#).await;
    assert_eq!(plain.body["spec"].get("healthCheckNodePort"), None, "{}", plain.body);
    server.stop().await;
}

/// The answer is the page that was deleted, as a LIST would have shown it, with the token of the next one.
#[tokio::test]
async fn a_collection_is_deleted_page_by_page() {
    let server = start(None).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let some = format!("{path}?labelSelector=some");
    for name in ["a", "b", "c"] {
        let object = format!("{{metadata: {{name: {name}, labels: {{some: here}}}}}}");
        assert_eq!(server.call("POST", path, &object).await.code, 201);
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let dry = server.call("DELETE", &format!("{some}&limit=2&dryRun=All"), "").await.body;
    assert_eq!(names(&dry), ["a", "b"]);
    let refused = server.call("DELETE", &some, "{preconditions: {uid: other}}").await;
    assert_eq!((refused.code.as_u16(), &refused.body["reason"]), (409, &json!("Conflict")));
    assert_eq!(names(&server.call("GET", &some, "").await.body), ["a", "b", "c"]);
    let first = server.call("DELETE", &format!("{some}&limit=2&propagationPolicy=Foreground"), "").await.body;
    assert_eq!(
        (&first["kind"], names(&first)),
        (&json!("ConfigMapList"), vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(first["items"][0]["metadata"].get("deletionTimestamp"), None, "as it was before");
    let left = server.call("GET", &some, "").await.body;
    assert_eq!(left["items"][0]["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(left["items"][2]["metadata"].get("deletionTimestamp"), None);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = server.call("DELETE", &format!("{some}&limit=2&continue={token}"), "").await.body;
    assert_eq!((names(&rest), rest["metadata"].get("continue")), (vec!["c".to_owned()], None));
    let table = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let table = server.call_with("DELETE", path, &table, "").await.body;
    assert_eq!(table["kind"], "Table");
    assert_eq!(server.call("DELETE", &format!("{some}&limit=x"), "").await.code, 400);
    server.stop().await;
}

/// What Go holds by value and has no `omitempty` for is null where it is not set, in what clients see; no rule sees it.
#[tokio::test]
async fn what_is_not_set_is_null_where_go_writes_it() {
    let server = start(None).await;
    let events = "/api/v1/namespaces/default/events";
    let event =
        "{metadata: {name: e}, reason: Tested, involvedObject: {namespace: default, name: x}, type: Normal}";
    let made = server.call("POST", events, event).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body.get("firstTimestamp"), Some(&Value::Null));
    assert_eq!(made.body.get("eventTime"), Some(&Value::Null));
    for accept in ["application/json", "application/yaml"] {
        let read = server.call_with("GET", &format!("{events}/e"), &[("accept", accept)], "").await.body;
        let text = read.as_str().map_or_else(|| read.to_string(), str::to_owned);
        assert!(text.contains("lastTimestamp"), "{text}");
    }
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = server.call("POST", roles, "{metadata: {name: none}}").await.body;
    assert_eq!(role.get("rules"), Some(&Value::Null));
    let template = "{metadata: {name: t}, template: {spec: {containers: [{name: c, image: i}]}}}";
    let template = server.call("POST", "/api/v1/namespaces/default/podtemplates", template).await.body;
    assert_eq!(template["template"]["metadata"], json!({}), "since 1.34");
    // What was read and is written back changes nothing.
    for object in [&made.body, &role] {
        let path = if object["kind"] == "Role" { format!("{roles}/none") } else { format!("{events}/e") };
        let again = server.call("PUT", &path, &object.to_string()).await.body;
        assert_eq!(again["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"], "{again}");
        let same = server.call("PATCH", &path, "{}").await.body;
        assert_eq!(same["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"], "{same}");
    }
    server.stop().await;
}

/// What upstream's router says of a path, before any kind is asked.
#[tokio::test]
async fn paths_lead_where_upstreams_lead() {
    let server = start(None).await;
    let object = "{metadata: {name: keep}}";
    assert_eq!(server.call("POST", "/api/v1/namespaces/default/configmaps", object).await.code, 201);
    let cases = [
        ("GET", "/api/v1/configmaps", 200, ""),
        ("DELETE", "/api/v1/configmaps", 405, "MethodNotAllowed"),
        ("POST", "/api/v1/configmaps", 405, "MethodNotAllowed"),
        ("GET", "/api/v1/configmaps/keep", 404, "NotFound"),
        ("DELETE", "/api/v1/configmaps/keep", 404, "NotFound"),
        ("GET", "/api/v1/namespaces/default/nodes", 404, "NotFound"),
        ("GET", "/api/v1/namespaces/default", 200, ""),
        ("GET", "/api/v1/namespaces/default/nonsense", 404, "NotFound"),
        ("GET", "/apis/apps/v9/deployments", 404, "NotFound"),
        ("HEAD", "/api/v1/namespaces/default/configmaps/keep", 405, "MethodNotAllowed"),
        ("PUT", "/api/v1/namespaces/default/configmaps", 405, "MethodNotAllowed"),
        ("GET", "/apis/nonsense/v1/things", 404, "404 page not found\n"),
        ("GET", "/nonsense", 404, "404 page not found\n"),
    ];
    for (method, path, code, reason) in cases {
        let answer = server.call(method, path, if method == "POST" { object } else { "" }).await;
        let found = answer.body.as_str().or_else(|| answer.body["reason"].as_str()).unwrap_or_default();
        assert_eq!((answer.code.as_u16(), found), (code, reason), "{method} {path}: {}", answer.body);
    }
    let path = "/api/v1/namespaces/default/configmaps/keep";
    assert_eq!(server.call("GET", path, "").await.code, 200, "it is still there");
    for (query, message) in [
        ("pods?fieldSelector=spec.x=1", "field label not supported: spec.x"),
        (
            "configmaps?fieldSelector=spec.x=1",
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("pods?fieldSelector=x", "invalid selector: 'x'; can't understand 'x'"),
        (
            "pods?resourceVersion=x",
            "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
    ] {
        let answer = server.call("GET", &format!("/api/v1/namespaces/default/{query}"), "").await;
        assert_eq!((answer.code.as_u16(), &answer.body["message"]), (400, &json!(message)), "{query}");
    }
    server.stop().await;
}
