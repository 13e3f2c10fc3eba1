//! Validating admission policies as clients and administrators see them.

use apiserver::audit::{self, LogFile, policy::Policy};
use auth::UserInfo;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::server::{Answer, TestServer, admin, send, start, start_with, start_without_flow_control};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const LIMIT: &str = "/apis/example.com/v1/limits/l";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A policy about ConfigMaps, with further fields.
fn policy(name: &str, fields: Value) -> Value {
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]},
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

fn binding(name: &str, policy: &str, fields: Value) -> Value {
    let mut spec = json!({"policyName": policy, "validationActions": ["Deny"]});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn make(server: &TestServer, path: &str, object: &Value) {
    let made = server.call("POST", path, &object.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

/// Installs a policy and a binding of the same name.
async fn install(server: &TestServer, name: &str, fields: Value, bound: Value) {
    make(server, &format!("{GROUP}/validatingadmissionpolicies"), &policy(name, fields)).await;
    make(server, &format!("{GROUP}/validatingadmissionpolicybindings"), &binding(name, name, bound)).await;
}

async fn remove(server: &TestServer, name: &str) {
    for resource in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
        let gone = server.call("DELETE", &format!("{GROUP}/{resource}/{name}"), "").await;
        assert_eq!(gone.code, 200, "{}", gone.body);
    }
}

async fn create(server: &TestServer, name: &str, data: Value) -> Answer {
    let body = json!({"metadata": {"name": name}, "data": data});
    server.call("POST", CONFIG_MAPS, &body.to_string()).await
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_policy_counts_from_the_very_next_request_and_a_refusal_has_upstreams_words() {
    let (_, server) = start_without_flow_control().await;
    for round in 0..10 {
        let name = format!("a{round}");
        install(
            &server,
            "no",
            json!({"validations": [{"expression": "object.data.n == '1'", "message": "one only"}]}),
            json!({}),
        )
        .await;
        assert_eq!(create(&server, &name, json!({"n": "1"})).await.code, 201);
        let refused = create(&server, "b", json!({"n": "2"})).await;
        let said = "ValidatingAdmissionPolicy 'no' with binding 'no' denied request: one only";
        assert_eq!(refused.code, 422, "{}", refused.body);
        assert_eq!(refused.body["reason"], "Invalid");
        assert_eq!(message(&refused), format!("configmaps \"b\" is forbidden: {said}"));
        assert_eq!(
            refused.body["details"],
            json!({"name": "b", "kind": "configmaps", "causes": [{"message": said}]})
        );
        remove(&server, "no").await;
        assert_eq!(create(&server, &format!("c{round}"), json!({"n": "2"})).await.code, 201);
    }
    server.stop().await;
}

/// Rules about all that is done to some resources.
fn about(resources: &[&str]) -> Value {
    json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources}]})
}

/// One validation.
fn one(expression: &str) -> Value {
    json!([{"expression": expression}])
}

/// Why the first policy refuses, without what all refusals begin with.
fn why(answer: &Answer) -> &str {
    message(answer).split_once(" denied request: ").map_or("", |(_, why)| why)
}

#[tokio::test]
async fn a_validation_says_with_which_reason_and_code_it_refuses() {
    let (_, server) = start_without_flow_control().await;
    for (reason, code, expect) in [
        (Value::Null, 422, "Invalid"),
        (json!("Invalid"), 422, "Invalid"),
        (json!("Forbidden"), 403, "Forbidden"),
        (json!("RequestEntityTooLarge"), 413, "RequestEntityTooLarge"),
    ] {
        let validations = json!([{"expression": "true"}, {"expression": "false", "reason": reason}]);
        install(&server, "no", json!({"validations": validations}), json!({})).await;
        let refused = create(&server, "a", json!({})).await;
        assert_eq!((refused.code.as_u16(), &refused.body["reason"]), (code, &json!(expect)));
        assert_eq!(why(&refused), "failed expression: false");
        remove(&server, "no").await;
    }
    server.stop().await;
}

/// What expressions see: each of these holds for what is done.
#[tokio::test]
async fn expressions_see_what_is_done_by_whom_and_where() {
    let (_, server) = start_without_flow_control().await;
    let check = async |(method, path): (&str, &str), body: &str, constraints: Value, expressions: &[&str]| {
        let validations: Vec<Value> = expressions.iter().map(|text| json!({"expression": text})).collect();
        let fields = json!({"validations": validations, "matchConstraints": constraints});
        // The place is asked about at all.
        let all = json!({"validations": one("false"), "matchConstraints": about(&["*/*"])});
        install(&server, "seen", all, json!({})).await;
        let refused = server.call(method, path, body).await;
        assert_eq!(why(&refused), "failed expression: false", "{method} {path}: {}", refused.body);
        remove(&server, "seen").await;
        install(&server, "seen", fields, json!({})).await;
        let done = server.call(method, path, body).await;
        assert!(
            done.code.is_success() || !message(&done).contains("ValidatingAdmissionPolicy"),
            "{method} {path}: {}",
            done.body
        );
        remove(&server, "seen").await;
    };
    let made = [
        "oldObject == null",
        "object.metadata.name == 'm'",
        "object.kind == 'ConfigMap' && object.apiVersion == 'v1'",
        "request.operation == 'CREATE'",
        "request.userInfo.username == 'admin'",
        "'system:masters' in request.userInfo.groups",
        "namespaceObject.metadata.name == 'default'",
        "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'default'",
        "namespaceObject.status.phase == 'Active'",
        "request.name == 'm' && request.namespace == 'default'",
        "!request.dryRun",
        "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps'",
        "!has(request.subResource)",
        "request.options.kind == 'CreateOptions'",
        "authorizer.group('').resource('pods').namespace('default').check('create').allowed()",
        "authorizer.requestResource.check('create').allowed()",
        "authorizer.path('/healthz').check('get').allowed()",
    ];
    let map = format!("{CONFIG_MAPS}/m");
    check(("POST", CONFIG_MAPS), "{metadata: {name: m}, data: {n: '1'}}", about(&["configmaps"]), &made)
        .await;
    let changed = ["object.data.n == '2' && oldObject.data.n == '1'", "request.operation == 'UPDATE'"];
    check(("PATCH", &map), "{\"data\": {\"n\": \"2\"}}", about(&["configmaps"]), &changed).await;
    let gone = [
        "object == null && oldObject.data.n == '2'",
        "request.operation == 'DELETE' && request.options.kind == 'DeleteOptions'",
    ];
    check(("DELETE", &map), "{}", about(&["configmaps"]), &gone).await;
    let namespace = ["namespaceObject == null", "object.metadata.name == 'n1' && request.namespace == 'n1'"];
    check(("POST", "/api/v1/namespaces"), "{metadata: {name: n1}}", about(&["namespaces"]), &namespace).await;
    let node = ["namespaceObject == null", "!has(request.namespace)"];
    check(("POST", "/api/v1/nodes"), "{metadata: {name: n1}}", about(&["nodes"]), &node).await;
    let pod = "{metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}";
    let pods = "/api/v1/namespaces/default/pods";
    // What was defaulted and added on the way is there.
    let defaulted = [
        "object.spec.containers[0].terminationMessagePath == '/dev/termination-log'",
        "object.spec.serviceAccountName == 'default'",
    ];
    check(("POST", pods), pod, about(&["pods"]), &defaulted).await;
    let binding =
        ["object.kind == 'Binding' && request.subResource == 'binding'", "object.target.name == 'n1'"];
    check(
        ("POST", &format!("{pods}/p/binding")),
        "{metadata: {name: p}, target: {kind: Node, name: n1}}",
        about(&["pods/binding"]),
        &binding,
    )
    .await;
    let status = ["request.subResource == 'status' && object.status.phase == 'Running'"];
    check(
        ("PATCH", &format!("{pods}/p/status")),
        "{\"status\": {\"phase\": \"Running\"}}",
        about(&["pods/status"]),
        &status,
    )
    .await;
    let exec = ["request.operation == 'CONNECT' && object.command == ['sh'] && oldObject == null"];
    check(("POST", &format!("{pods}/p/exec?command=sh&stdout=true")), "", about(&["pods/exec"]), &exec).await;
    let dry = ["request.dryRun && request.options.dryRun == ['All']"];
    check(
        ("POST", &format!("{CONFIG_MAPS}?dryRun=All")),
        "{metadata: {name: d}}",
        about(&["configmaps"]),
        &dry,
    )
    .await;
    let token = ["object.kind == 'TokenRequest'"];
    check(
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        "{spec: {}}",
        about(&["serviceaccounts/token"]),
        &token,
    )
    .await;
    server.stop().await;
}

#[tokio::test]
async fn objects_are_seen_in_the_version_that_a_rule_names() {
    let server = start(None).await;
    let rules = json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"]}]});
    let expression = "object.apiVersion == 'autoscaling/v1' && object.spec.targetCPUUtilizationPercentage == 80 && request.kind.version == 'v1' && request.requestKind.version == 'v2'";
    install(&server, "v1", json!({"matchConstraints": rules, "validations": one(expression), "matchConditions": [{"name": "c", "expression": "request.resource.version == 'v2' && request.kind.version == 'v1'"}]}), json!({})).await;
    let scaler = |percent: u8| {
        format!(
            "{{metadata: {{name: a}}, spec: {{maxReplicas: 3, scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: d}}, metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: {percent}}}}}}}]}}}}"
        )
    };
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let refused = server.call("POST", path, &scaler(81)).await;
    assert!(why(&refused).starts_with("failed expression: object.apiVersion"), "{}", refused.body);
    assert_eq!(server.call("POST", path, &scaler(80)).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn parameters_come_from_any_kind_by_name_or_by_labels() {
    let (_, server) = start_without_flow_control().await;
    let param = |name: &str, max: u8, tier: &str| json!({"metadata": {"name": name, "labels": {"tier": tier}}, "data": {"max": max.to_string()}});
    for (namespace, name, max, tier) in
        [("default", "p5", 5, "a"), ("default", "p9", 9, "a"), ("kube-system", "p7", 7, "b")]
    {
        make(&server, &format!("/api/v1/namespaces/{namespace}/configmaps"), &param(name, max, tier)).await;
    }
    let fields = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": about(&["secrets"]),
        "validations": [{"expression": "params == null || size(object.metadata.name) <= int(params.data.max)", "messageExpression": "'at most ' + params.data.max"}],
    });
    make(&server, &format!("{GROUP}/validatingadmissionpolicies"), &policy("p", fields)).await;
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    let check = async |reference: Value, length: usize, expect: &str| {
        make(&server, &bindings, &binding("b", "p", json!({"paramRef": reference}))).await;
        let body = json!({"metadata": {"name": "x".repeat(length)}});
        let answer =
            server.call("POST", "/api/v1/namespaces/default/secrets?dryRun=All", &body.to_string()).await;
        assert_eq!(why(&answer), expect, "{reference}: {}", answer.body);
        assert_eq!(answer.code == 201, expect.is_empty());
        assert_eq!(server.call("DELETE", &format!("{bindings}/b"), "").await.code, 200);
    };
    let named = |name: &str, action: &str| json!({"name": name, "parameterNotFoundAction": action});
    check(named("p5", "Deny"), 5, "").await;
    check(named("p5", "Deny"), 6, "at most 5").await;
    check(named("p9", "Deny"), 6, "").await;
    // In the namespace of the request, unless it says otherwise.
    let missing =
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    check(named("p7", "Deny"), 8, missing).await;
    check(named("p7", "Allow"), 8, "").await;
    check(
        json!({"name": "p7", "namespace": "kube-system", "parameterNotFoundAction": "Deny"}),
        8,
        "at most 7",
    )
    .await;
    // Each that is selected counts.
    let selected = |tier: &str, action: &str| json!({"selector": {"matchLabels": {"tier": tier}}, "parameterNotFoundAction": action});
    check(selected("a", "Deny"), 5, "").await;
    check(selected("a", "Deny"), 6, "at most 5").await;
    check(selected("b", "Deny"), 5, missing).await;
    check(selected("b", "Allow"), 50, "").await;
    check(json!({"selector": {}, "parameterNotFoundAction": "Deny"}), 10, "at most 5").await;
    // Without a reference there is none.
    check(Value::Null, 50, "").await;
    server.stop().await;
}

#[tokio::test]
async fn a_kind_of_parameters_may_come_late_and_go() {
    let (_, server) = start_without_flow_control().await;
    let definition = |scope: &str| {
        json!({"metadata": {"name": "limits.example.com"}, "spec": {"group": "example.com", "scope": scope,
        "names": {"plural": "limits", "kind": "Limit"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"max": {"type": "integer"}}}}}]}})
    };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let fields = |failure: &str| {
        json!({"paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"}, "failurePolicy": failure,
        "validations": [{"expression": "size(object.data) <= params.max", "messageExpression": "'max ' + string(params.max)"}]})
    };
    let reference = json!({"paramRef": {"name": "l", "parameterNotFoundAction": "Deny"}});
    install(&server, "late", fields("Fail"), reference.clone()).await;
    let unknown = "failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'";
    assert_eq!(why(&create(&server, "a", json!({})).await), unknown);
    make(&server, definitions, &definition("Cluster")).await;
    let none =
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert_eq!(why(&create(&server, "a", json!({})).await), none);
    let limit = json!({"apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "l"}, "max": 1});
    make(&server, "/apis/example.com/v1/limits", &limit).await;
    // Parameters count once they are seen; who reads one waits for that.
    assert_eq!(server.call("GET", LIMIT, "").await.code, 200);
    assert_eq!(create(&server, "a", json!({"a": "1"})).await.code, 201);
    assert_eq!(why(&create(&server, "b", json!({"a": "1", "b": "2"})).await), "max 1");
    // Custom objects pass policies themselves.
    install(
        &server,
        "limits",
        json!({"matchConstraints": about(&["limits"]), "validations": one("object.max < 10")}),
        json!({}),
    )
    .await;
    let raised = server.call("PATCH", "/apis/example.com/v1/limits/l", "{\"max\": 10}").await;
    assert_eq!(why(&raised), "failed expression: object.max < 10", "{}", raised.body);
    assert_eq!(server.call("PATCH", LIMIT, "{\"max\": 2}").await.code, 200);
    assert_eq!(server.call("GET", LIMIT, "").await.code, 200);
    assert_eq!(create(&server, "b", json!({"a": "1", "b": "2"})).await.code, 201);
    assert_eq!(server.call("DELETE", &format!("{definitions}/limits.example.com"), "").await.code, 200);
    // It goes once its objects are gone.
    loop {
        let refused = create(&server, "c", json!({})).await;
        assert_eq!(refused.code, 422, "{}", refused.body);
        let definition = server.call("GET", &format!("{definitions}/limits.example.com"), "").await;
        if why(&refused) == unknown && definition.code == 404 {
            break;
        }
        tokio::task::yield_now().await;
    }
    remove(&server, "late").await;
    install(&server, "late", fields("Ignore"), reference).await;
    assert_eq!(create(&server, "c", json!({})).await.code, 201);
    // Of a kind in namespaces there is none for what is in none.
    make(&server, definitions, &definition("Namespaced")).await;
    remove(&server, "late").await;
    let mut of_nodes = fields("Fail");
    of_nodes["matchConstraints"] = about(&["nodes"]);
    install(
        &server,
        "late",
        of_nodes,
        json!({"paramRef": {"name": "l", "parameterNotFoundAction": "Allow"}}),
    )
    .await;
    let node = server.call("POST", "/api/v1/nodes", "{metadata: {name: n1}}").await;
    let nowhere = "failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
    assert_eq!(why(&node), nowhere, "{}", node.body);
    server.stop().await;
}

#[tokio::test]
async fn bindings_narrow_a_policy_and_nothing_counts_without_them() {
    let (_, server) = start_without_flow_control().await;
    let no = json!({"validations": one("false")});
    make(&server, &format!("{GROUP}/validatingadmissionpolicies"), &policy("no", no)).await;
    assert_eq!(create(&server, "a", json!({})).await.code, 201);
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    make(&server, &bindings, &binding("stray", "nobody", json!({}))).await;
    assert_eq!(create(&server, "b", json!({})).await.code, 201);
    let check = async |resources: Value, expect: bool| {
        make(&server, &bindings, &binding("no", "no", json!({"matchResources": resources}))).await;
        let dry = format!("{CONFIG_MAPS}?dryRun=All");
        let answer = server.call("POST", &dry, "{metadata: {name: x}}").await;
        assert_eq!(answer.code == 201, expect, "{resources}: {}", answer.body);
        assert_eq!(server.call("DELETE", &format!("{bindings}/no"), "").await.code, 200);
    };
    check(json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}), true)
        .await;
    check(json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}), false)
        .await;
    check(json!({"objectSelector": {"matchLabels": {"a": "b"}}}), true).await;
    check(json!({"excludeResourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "resourceNames": ["x"]}]}), true).await;
    check(json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}]}), true).await;
    check(json!({}), false).await;
    server.stop().await;
}

#[tokio::test]
async fn nobody_locks_the_administrator_out() {
    let (_, server) = start_without_flow_control().await;
    // Everything is refused, and what cannot be evaluated is, too.
    let all = json!({"validations": one("1 / 0 == 1"), "matchConstraints": about(&["*/*"]), "matchConditions": [{"name": "c", "expression": "1 / 0 == 1"}]});
    install(&server, "all", all, json!({})).await;
    let refused = create(&server, "a", json!({})).await;
    assert_eq!(why(&refused), "expression '1 / 0 == 1' resulted in error: division by zero");
    for (path, body) in [
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}"),
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "{spec: {resourceAttributes: {verb: get, resource: pods}}}",
        ),
    ] {
        assert_eq!(server.call("POST", path, body).await.code, 201, "{path}");
    }
    let more = binding("more", "all", json!({}));
    make(&server, &format!("{GROUP}/validatingadmissionpolicybindings"), &more).await;
    let labelled = server
        .call(
            "PATCH",
            &format!("{GROUP}/validatingadmissionpolicies/all"),
            "{\"metadata\": {\"labels\": {\"a\": \"b\"}}}",
        )
        .await;
    assert_eq!(labelled.code, 200, "{}", labelled.body);
    // Webhooks are no policies: upstream has policies asked about them.
    let hooks = server
        .call("POST", &format!("{GROUP}/validatingwebhookconfigurations"), "{metadata: {name: w}}")
        .await;
    assert_eq!(hooks.code, 422, "{}", hooks.body);
    remove(&server, "all").await;
    assert_eq!(create(&server, "a", json!({})).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_refused_when_it_is_written() {
    let server = start(None).await;
    let path = format!("{GROUP}/validatingadmissionpolicies");
    for (fields, expect) in [
        (
            json!({"validations": one("object.")}),
            "spec.validations[0].expression: Invalid value: \"object.\": compilation failed: ERROR: <input>:1:8: Syntax error",
        ),
        (
            json!({"validations": one("1")}),
            "spec.validations[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
        ),
        (json!({"validations": one("params.a == 1")}), "undeclared reference to 'params'"),
        (json!({"validations": one("variables.a == 1")}), "undefined field 'a'"),
        (
            json!({"validations": one("true"), "variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]}),
            "spec.variables[0].expression: Invalid value: \"variables.b\": compilation failed",
        ),
        (
            json!({"validations": one("true"), "matchConditions": [{"name": "c", "expression": "variables.a"}]}),
            "spec.matchConditions[0].expression: Invalid value: \"variables.a\": compilation failed",
        ),
        (
            json!({"validations": [{"expression": "true", "messageExpression": "1"}]}),
            "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
        ),
        (
            json!({"validations": [{"expression": "true", "messageExpression": "authorizer.path('/').check('get').reason()"}]}),
            "undeclared reference to 'authorizer'",
        ),
        (
            json!({"auditAnnotations": [{"key": "k", "valueExpression": "1"}]}),
            "spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string null_type] but got int",
        ),
    ] {
        let refused = server.call("POST", &path, &policy("p", fields.clone()).to_string()).await;
        assert_eq!(refused.code, 422, "{fields}: {}", refused.body);
        assert!(message(&refused).contains(expect), "{expect} in {}", message(&refused));
    }
    server.stop().await;
}

#[tokio::test]
async fn nobody_has_policies_read_what_they_may_not_read_themselves() {
    let (_, server) = start_without_flow_control().await;
    let rules = json!({"metadata": {"name": "policies"}, "rules": [
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]});
    make(&server, "/apis/rbac.authorization.k8s.io/v1/clusterroles", &rules).await;
    let bound = json!({"metadata": {"name": "policies"}, "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "policies", "apiGroup": "rbac.authorization.k8s.io"}});
    make(&server, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &bound).await;
    let as_eve = async |resource: &str, body: Value| {
        let path = format!("{GROUP}/{resource}");
        let user = UserInfo::new("eve", &["system:authenticated"]);
        let answer = send(server.server.service(), Some(user), "POST", &path, &[], body.to_string()).await;
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let of =
        |kind: &str| json!({"paramKind": {"apiVersion": "v1", "kind": kind}, "validations": one("true")});
    let refused = as_eve("validatingadmissionpolicies", policy("p", of("Secret"))).await;
    let said = "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.paramKind: Forbidden: user &{eve  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)";
    assert_eq!((&refused["message"], &refused["code"]), (&json!(said), &json!(422)));
    assert_eq!(
        as_eve("validatingadmissionpolicies", policy("maps", of("ConfigMap"))).await["kind"],
        "ValidatingAdmissionPolicy"
    );
    make(&server, &format!("{GROUP}/validatingadmissionpolicies"), &policy("secrets", of("Secret"))).await;
    let bind = |policy: &str| {
        binding("b", policy, json!({"paramRef": {"name": "s", "parameterNotFoundAction": "Deny"}}))
    };
    for (policy, expect) in [
        (
            "secrets",
            "user &{eve  [system:authenticated] map[]} does not have \"get\" permission on the object referenced by paramRef",
        ),
        (
            "nobody",
            "unable to get policy nobody to determine minimum required permissions and user &{eve  [system:authenticated] map[]} does not have \"get\" permission for all groups, versions and resources",
        ),
    ] {
        let refused = as_eve("validatingadmissionpolicybindings", bind(policy)).await;
        let message = refused["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("spec.paramRef: Forbidden: {expect}")), "{message}");
    }
    assert_eq!(
        as_eve("validatingadmissionpolicybindings", bind("maps")).await["kind"],
        "ValidatingAdmissionPolicyBinding"
    );
    server.stop().await;
}

/// A server that writes an audit log, and the folder that it is in.
async fn audited() -> (tempfile::TempDir, TestServer) {
    let dir = tempfile::tempdir().unwrap();
    let log = LogFile { path: dir.path().join("audit.log"), ..LogFile::default() };
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: Metadata}]}";
    let config = audit::Config { policy: Policy::parse(policy).unwrap(), log, webhook: None };
    let server = start_with(None, |options| options.options.audit = Some(config)).await;
    (dir, server)
}

#[tokio::test]
async fn bindings_warn_and_tell_the_audit_log() {
    let (dir, server) = audited().await;
    let two = json!({"validations": [{"expression": "true"}, {"expression": "false", "message": "size"}],
        "auditAnnotations": [{"key": "n", "valueExpression": "'n is ' + object.data.n"}, {"key": "long", "valueExpression": "object.data.n.replace('7', 'ü')"},
            {"key": "none", "valueExpression": "''"}]});
    install(&server, "two", two, json!({"validationActions": ["Warn", "Audit"]})).await;
    let more = binding("two-more", "two", json!({"validationActions": ["Audit"]}));
    make(&server, &format!("{GROUP}/validatingadmissionpolicybindings"), &more).await;
    let body = json!({"metadata": {"name": "a"}, "data": {"n": "7".repeat(11_000)}}).to_string();
    let answer =
        send(server.server.service(), Some(admin()), "POST", CONFIG_MAPS, &[("user-agent", "me")], body)
            .await;
    assert_eq!(answer.status(), 201);
    let warnings: Vec<_> = answer.headers().get_all("warning").iter().collect();
    assert_eq!(
        warnings,
        ["299 - \"Validation failed for ValidatingAdmissionPolicy 'two' with binding 'two': size\""]
    );
    drop(answer.into_body().collect().await);
    let metrics = server.call("GET", "/metrics", "").await;
    let metrics = metrics.body.as_str().unwrap();
    for (binding, action) in [("two", "warn"), ("two", "audit"), ("two-more", "audit")] {
        let line = format!(
            "apiserver_validating_admission_policy_check_total{{policy=\"two\",policy_binding=\"{binding}\",error_type=\"invalid_error\",enforcement_action=\"{action}\"}} 1"
        );
        assert!(metrics.contains(&line), "{line}");
    }
    assert!(
        metrics.contains("apiserver_validating_admission_policy_check_duration_seconds_count{policy=\"two\""),
        "durations"
    );
    server.stop().await;
    let text = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
    let mut events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let event = events.find(|event| event["userAgent"] == "me").unwrap();
    let said = &event["annotations"];
    let failure = r#"[{"message":"size","policy":"two","binding":"two","expressionIndex":1,"validationActions":["Warn","Audit"]}]"#;
    assert_eq!(said["validation.policy.admission.k8s.io/validation_failure"], failure);
    assert!(said["two/n"].as_str().unwrap().starts_with("n is 777"), "{said}");
    // It is cut between letters, and what two bindings say alike is said once.
    assert_eq!(said["two/long"].as_str().map(str::len), Some(10 * 1024));
    assert!(said.get("two/none").is_none());
}

/// Annotations that fail refuse, whatever a binding does about validations.
#[tokio::test]
async fn an_annotation_that_fails_refuses() {
    let (_, server) = start_without_flow_control().await;
    for (failure, code) in [("Fail", 422), ("Ignore", 201)] {
        let fields = json!({"failurePolicy": failure, "auditAnnotations": [{"key": "k", "valueExpression": "string(object.data.x)"}]});
        install(&server, "notes", fields, json!({"validationActions": ["Warn"]})).await;
        let answer = create(&server, "a", json!({"n": "1"})).await;
        assert_eq!(answer.code, code, "{}", answer.body);
        if code == 422 {
            assert_eq!(why(&answer), "expression 'string(object.data.x)' resulted in error: no such key: x");
        }
        remove(&server, "notes").await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_thousand_policies_are_asked_in_order_of_their_names() {
    let (_, server) = start_without_flow_control().await;
    let (policies, bindings) = (
        format!("{GROUP}/validatingadmissionpolicies"),
        format!("{GROUP}/validatingadmissionpolicybindings"),
    );
    let all = (0..1000).map(|n| {
        let (policies, bindings, server) = (&policies, &bindings, &server);
        async move {
            let name = format!("p{n:04}");
            let expression = format!("!has(object.data.no) || int(object.data.no) > {n}");
            make(server, policies, &policy(&name, json!({"validations": one(&expression)}))).await;
            make(server, bindings, &binding(&name, &name, json!({}))).await;
        }
    });
    futures::future::join_all(all).await;
    assert_eq!(create(&server, "a", json!({"n": "1"})).await.code, 201);
    let refused = create(&server, "b", json!({"no": "500"})).await;
    assert!(message(&refused).contains("'p0500' with binding 'p0500'"), "{}", message(&refused));
    server.stop().await;
}

#[tokio::test]
async fn a_status_says_what_is_probably_wrong() {
    let server = start(None).await;
    let path = format!("{GROUP}/validatingadmissionpolicies");
    let rules = json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"],
        "resources": ["deployments"]}]});
    let fields = json!({"matchConstraints": rules, "validations": one("object.spec.replicas > '1'")});
    make(&server, &path, &policy("p", fields)).await;
    let settled = async |generation: u8| loop {
        let policy = server.call("GET", &format!("{path}/p"), "").await.body;
        if policy["status"]["observedGeneration"] == generation {
            return policy["status"].clone();
        }
        tokio::task::yield_now().await;
    };
    let status = settled(1).await;
    let warning = &status["typeChecking"]["expressionWarnings"][0];
    assert_eq!(warning["fieldRef"], "spec.validations[0].expression");
    let text = warning["warning"].as_str().unwrap();
    let begins = "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload";
    assert!(text.starts_with(begins), "{text}");
    // It is looked at again when it changes.
    let mended = json!({"spec": {"validations": one("object.spec.replicas > 1")}}).to_string();
    assert_eq!(server.call("PATCH", &format!("{path}/p"), &mended).await.code, 200);
    assert_eq!(settled(2).await, json!({"observedGeneration": 2, "typeChecking": {}}));
    server.stop().await;
}
