//! Mutating admission policies as clients and administrators see them.

use machinery::features;
use serde_json::{Value, json};

use crate::server::{Answer, TestServer, start_without_flow_control};

mod hostile;
mod rounds;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1beta1";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A server with the feature on, as administrators turn it on.
pub(crate) async fn start() -> TestServer {
    let gate = "MutatingAdmissionPolicy=true".parse().unwrap();
    // Somebody in the same process may have done it before.
    features::turn_on(&[gate]).unwrap_or_else(drop);
    start_without_flow_control().await.1
}

/// Rules about all that is done to some resources, in any group.
pub(crate) fn about(resources: &[&str]) -> Value {
    let rule = json!({
        "operations": ["CREATE", "UPDATE", "CONNECT"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources,
    });
    json!({"resourceRules": [rule]})
}

pub(crate) fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

pub(crate) fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// A policy about ConfigMaps, with further fields.
pub(crate) fn policy(name: &str, mutations: &[Value], fields: Value) -> Value {
    let mut spec = json!({
        "matchConstraints": about(&["configmaps"]),
        "reinvocationPolicy": "Never",
        "mutations": mutations,
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

pub(crate) async fn make(server: &TestServer, path: &str, object: &Value) {
    let made = server.call("POST", path, &object.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

/// Installs a policy and a binding of the same name.
pub(crate) async fn install(server: &TestServer, name: &str, mutations: &[Value], fields: Value) {
    make(server, &format!("{GROUP}/mutatingadmissionpolicies"), &policy(name, mutations, fields)).await;
    bind(server, name, json!({})).await;
}

pub(crate) async fn bind(server: &TestServer, name: &str, fields: Value) {
    let mut spec = json!({"policyName": name});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let binding = json!({"metadata": {"name": name}, "spec": spec});
    make(server, &format!("{GROUP}/mutatingadmissionpolicybindings"), &binding).await;
}

pub(crate) async fn remove(server: &TestServer, name: &str) {
    for resource in ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"] {
        let gone = server.call("DELETE", &format!("{GROUP}/{resource}/{name}"), "").await;
        assert_eq!(gone.code, 200, "{}", gone.body);
    }
}

pub(crate) async fn create(server: &TestServer, name: &str, data: Value) -> Answer {
    let body = json!({"metadata": {"name": name}, "data": data});
    server.call("POST", CONFIG_MAPS, &body.to_string()).await
}

pub(crate) fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn without_the_feature_there_are_no_such_policies() {
    let (_, server) = start_without_flow_control().await;
    let answer = server.call("GET", &format!("{GROUP}/mutatingadmissionpolicies"), "").await;
    assert_eq!(answer.code, 404, "{}", answer.body);
    server.stop().await;
}

/// Mutations of one policy, and what they make of a ConfigMap's data `{n: "1"}` and labels `{a: b}`.
#[tokio::test]
async fn mutations_are_applied_in_order() {
    let server = start().await;
    for (number, (mutations, data, labels)) in [
        (vec![apply("Object{data: {'m': object.data.n}}")], json!({"n": "1", "m": "1"}), json!({"a": "b"})),
        (
            vec![apply("Object{metadata: Object.metadata{labels: {'c': 'd'}}}")],
            json!({"n": "1"}),
            json!({"a": "b", "c": "d"}),
        ),
        (vec![apply("Object{}")], json!({"n": "1"}), json!({"a": "b"})),
        (
            vec![
                patch("[JSONPatch{op: 'add', path: '/data/m', value: '2'}]"),
                apply("Object{data: {'o': object.data.m + '3'}}"),
                patch("[JSONPatch{op: 'move', from: '/data/o', path: '/data/p'}, JSONPatch{op: 'remove', path: '/data/m'}]"),
            ],
            json!({"n": "1", "p": "23"}),
            json!({"a": "b"}),
        ),
        (
            vec![patch(
                "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('x.io/y~z'.replace('~', '-')), value: 'v'}]",
            )],
            json!({"n": "1"}),
            json!({"a": "b", "x.io/y-z": "v"}),
        ),
        // A test that says no is no failure: nothing of the patch counts.
        (
            vec![patch(
                "[JSONPatch{op: 'add', path: '/data/m', value: 'x'}, JSONPatch{op: 'test', path: '/data/n', value: '7'}]",
            )],
            json!({"n": "1"}),
            json!({"a": "b"}),
        ),
        (
            vec![patch("has(object.data.nothing) ? [JSONPatch{op: 'remove', path: '/data/n'}] : []")],
            json!({"n": "1"}),
            json!({"a": "b"}),
        ),
        (
            vec![patch("[JSONPatch{op: 'replace', path: '/data', value: {'whole': string(size(object.data))}}]")],
            json!({"whole": "1"}),
            json!({"a": "b"}),
        ),
        (
            vec![patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: Object.metadata.labels{x: 'y'}}]")],
            json!({"n": "1"}),
            json!({"x": "y"}),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        install(&server, "change", &mutations, json!({})).await;
        let name = format!("a{number}");
        let body = json!({"metadata": {"name": name, "labels": {"a": "b"}}, "data": {"n": "1"}});
        let made = server.call("POST", CONFIG_MAPS, &body.to_string()).await;
        assert_eq!(made.code, 201, "{mutations:?}: {}", made.body);
        assert_eq!(made.body["data"], data, "{mutations:?}");
        assert_eq!(made.body["metadata"]["labels"], labels, "{mutations:?}");
        let stored = server.call("GET", &format!("{CONFIG_MAPS}/{name}"), "").await;
        assert_eq!(stored.body["data"], data, "{mutations:?}");
        remove(&server, "change").await;
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_injected_is_merged_by_keys_defaulted_and_seen_by_the_plugins() {
    let server = start().await;
    let sidecar = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'sidecar', image: 'proxy'}, \
                   Object.spec.containers{name: 'c', env: [Object.spec.containers.env{name: 'B', value: '2'}]}]}}";
    install(&server, "inject", &[apply(sidecar)], json!({"matchConstraints": about(&["pods"])})).await;
    let pod =
        "{metadata: {name: web}, spec: {containers: [{name: c, image: i, env: [{name: A, value: '1'}]}]}}";
    let made = server.call("POST", PODS, pod).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let containers = made.body["spec"]["containers"].as_array().unwrap();
    let names: Vec<&Value> = containers.iter().map(|container| &container["name"]).collect();
    assert_eq!(names, ["sidecar", "c"]);
    assert_eq!(containers[0]["imagePullPolicy"], "Always");
    // What the plugins do for every container they do for this one too: they run again.
    assert!(containers[0]["volumeMounts"][0]["mountPath"].is_string(), "{}", containers[0]);
    assert_eq!(containers[1]["image"], "i");
    assert_eq!(containers[1]["env"], json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]));
    server.stop().await;
}

#[tokio::test]
async fn expressions_see_the_request_its_namespace_parameters_and_variables() {
    let server = start().await;
    make(&server, CONFIG_MAPS, &json!({"metadata": {"name": "param"}, "data": {"tier": "gold"}})).await;
    let seen = "Object{data: {'seen': variables.all, 'old': oldObject == null ? 'none' : string(oldObject.data.n), \
                'may': string(authorizer.group('').resource('pods').check('list').allowed())}}";
    let fields = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [
            {"name": "where", "expression": "namespaceObject.metadata.name + '/' + request.name"},
            {"name": "all", "expression": "[variables.where, request.operation, string(params.data.tier)].join(' ')"},
        ],
        "matchConditions": [{"name": "apart", "expression": "object.metadata.name != 'param' && params.data.tier == 'gold'"}],
    });
    make(&server, &format!("{GROUP}/mutatingadmissionpolicies"), &policy("see", &[apply(seen)], fields))
        .await;
    bind(&server, "see", json!({"paramRef": {"name": "param", "parameterNotFoundAction": "Deny"}})).await;
    let made = create(&server, "a", json!({"n": "1"})).await;
    let expected = json!({"n": "1", "seen": "default/a CREATE gold", "old": "none", "may": "true"});
    assert_eq!(made.body["data"], expected, "{}", made.body);
    let body = json!({"metadata": {"name": "a"}, "data": {"n": "2"}}).to_string();
    let changed = server.call("PUT", &format!("{CONFIG_MAPS}/a"), &body).await;
    let expected = json!({"n": "2", "seen": "default/a UPDATE gold", "old": "1", "may": "true"});
    assert_eq!(changed.body["data"], expected, "{}", changed.body);
    assert_eq!(server.call("DELETE", &format!("{CONFIG_MAPS}/a"), "").await.code, 200);
    server.stop().await;
}

/// A parameter each, by name; and one policy after the other, by name.
#[tokio::test]
async fn each_policy_and_parameter_sees_what_those_before_have_made() {
    let server = start().await;
    for (name, text) in [("p2", "two"), ("p1", "one")] {
        let param = json!({"metadata": {"name": name, "labels": {"use": "it"}}, "data": {"text": text}});
        make(&server, CONFIG_MAPS, &param).await;
    }
    let fields = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
    let add = |text: &str| {
        apply(&format!(
            "Object{{data: {{'log': (has(object.data.log) ? object.data.log + ',' : '') + {text}}}}}"
        ))
    };
    make(
        &server,
        &format!("{GROUP}/mutatingadmissionpolicies"),
        &policy("b", &[add("params.data.text")], fields),
    )
    .await;
    let selected = json!({"selector": {"matchLabels": {"use": "it"}}, "parameterNotFoundAction": "Deny"});
    bind(&server, "b", json!({"paramRef": selected})).await;
    install(&server, "c", &[add("'c1'"), add("'c2'")], json!({})).await;
    install(&server, "a", &[add("'a'")], json!({})).await;
    let made = create(&server, "x", json!({"n": "1"})).await;
    assert_eq!(made.body["data"]["log"], "a,one,two,c1,c2", "{}", made.body);
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_shows_what_policies_make_of_it() {
    let server = start().await;
    install(&server, "change", &[apply("Object{data: {'dry': string(request.dryRun)}}")], json!({})).await;
    let body = json!({"metadata": {"name": "a"}}).to_string();
    let tried = server.call("POST", &format!("{CONFIG_MAPS}?dryRun=All"), &body).await;
    assert_eq!((tried.code.as_u16(), &tried.body["data"]), (201, &json!({"dry": "true"})));
    assert_eq!(server.call("GET", &format!("{CONFIG_MAPS}/a"), "").await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn subresources_have_what_is_sent_to_them() {
    let server = start().await;
    let deployment = "{metadata: {name: web}, spec: {replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: \
                      {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}";
    assert_eq!(server.call("POST", DEPLOYMENTS, deployment).await.code, 201);
    let few = "Object{spec: Object.spec{replicas: object.spec.replicas > 3 ? 3 : object.spec.replicas}}";
    install(&server, "few", &[apply(few)], json!({"matchConstraints": about(&["deployments/scale"])})).await;
    let scale = json!({"metadata": {"name": "web"}, "spec": {"replicas": 7}}).to_string();
    let scaled = server.call("PUT", &format!("{DEPLOYMENTS}/web/scale"), &scale).await;
    assert_eq!(scaled.body["spec"]["replicas"], 3, "{}", scaled.body);
    let stored = server.call("GET", &format!("{DEPLOYMENTS}/web"), "").await;
    assert_eq!(stored.body["spec"]["replicas"], 3);
    // What a policy says of the status counts where the status is written.
    let label = "Object{status: Object.status{observedGeneration: 7}}";
    let fields = json!({"matchConstraints": about(&["deployments", "deployments/status"])});
    install(&server, "status", &[apply(label)], fields).await;
    let body = r#"{"metadata": {"labels": {"x": "y"}}}"#;
    let whole = server.call("PATCH", &format!("{DEPLOYMENTS}/web"), body).await;
    assert_eq!(
        (whole.code.as_u16(), &whole.body["status"]["observedGeneration"]),
        (200, &Value::Null),
        "{}",
        whole.body
    );
    let status =
        server.call("PATCH", &format!("{DEPLOYMENTS}/web/status"), r#"{"status": {"replicas": 0}}"#).await;
    assert_eq!(status.body["status"]["observedGeneration"], 7, "{}", status.body);
    server.stop().await;
}

#[tokio::test]
async fn policies_see_the_version_that_they_name() {
    let server = start().await;
    let autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let rule = json!({"operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"],
        "resources": ["horizontalpodautoscalers"]});
    let fields = json!({"matchConstraints": {"resourceRules": [rule]}});
    let cpu = "Object{spec: Object.spec{targetCPUUtilizationPercentage: 33, minReplicas: 2}}";
    install(&server, "cpu", &[apply(cpu)], fields).await;
    let body = "{metadata: {name: a}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}}";
    let made = server.call("POST", autoscalers, body).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body["apiVersion"], "autoscaling/v2");
    assert_eq!(made.body["spec"]["minReplicas"], 2);
    assert_eq!(
        made.body["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 33,
        "{}",
        made.body
    );
    server.stop().await;
}

const DEFINITION: &str = "{metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced, names: \
    {plural: widgets, kind: Widget}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: \
    object, properties: {spec: {type: object, required: [size], properties: {size: {type: integer, minimum: 1}, colour: \
    {type: string, default: red}, parts: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], \
    items: {type: object, required: [name], properties: {name: {type: string}, weight: {type: integer}, kind: {type: \
    string, default: plain}}}}, whole: {type: array, items: {type: string}}}}}}}}]}}";

#[tokio::test]
async fn custom_objects_are_changed_by_their_schema() {
    let server = start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.call("POST", definitions, DEFINITION).await.code, 201);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let with = |expression: Value| (expression, json!({"matchConstraints": about(&["widgets"])}));
    let parts = "Object{spec: Object.spec{parts: [Object.spec.parts{name: 'b', weight: 2}, Object.spec.parts{name: 'c'}]}}";
    for (mutation, code, expected) in [
        (
            apply(parts),
            201,
            json!({"size": 1, "colour": "red", "parts": [
                {"name": "a", "kind": "plain"},
                {"name": "b", "weight": 2, "kind": "odd"},
                {"name": "c", "kind": "plain"},
            ]}),
        ),
        // What the schema does not know goes, as with what is sent.
        (
            patch(
                "[JSONPatch{op: 'add', path: '/spec/unknown', value: 1}, JSONPatch{op: 'remove', path: '/spec/parts'}]",
            ),
            201,
            json!({"size": 1, "colour": "red"}),
        ),
        (
            apply("Object{spec: Object.spec{whole: ['x']}}"),
            403,
            json!(
                "policy 'w' with binding 'w' denied request: error applying patch: invalid ApplyConfiguration: may not \
                   mutate atomic arrays, maps or structs: .spec.whole"
            ),
        ),
        (
            apply("Object{spec: Object.spec{unknown: 1}}"),
            403,
            json!(
                "policy 'w' with binding 'w' denied request: error applying patch: failed to convert patch object to typed \
                   object: .spec.unknown: field not declared in schema"
            ),
        ),
        (
            apply("Object{spec: Object.spec{size: 0}}"),
            422,
            json!(
                "Widget.example.com \"x\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than \
                   or equal to 1"
            ),
        ),
        (
            patch("[JSONPatch{op: 'remove', path: '/spec/size'}]"),
            422,
            json!("Widget.example.com \"x\" is invalid: spec.size: Required value"),
        ),
    ] {
        let (mutation, fields) = with(mutation);
        install(&server, "w", std::slice::from_ref(&mutation), fields).await;
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"size": 1,
            "parts": [{"name": "a"}, {"name": "b", "kind": "odd"}]}});
        let made = server.call("POST", widgets, &widget.to_string()).await;
        assert_eq!(made.code.as_u16(), code, "{mutation}: {}", made.body);
        if code == 201 {
            assert_eq!(made.body["spec"], expected, "{mutation}");
            assert_eq!(server.call("DELETE", &format!("{widgets}/x"), "").await.code, 200);
        } else {
            assert_eq!(made.body["message"], expected, "{mutation}");
        }
        remove(&server, "w").await;
    }
    server.stop().await;
}

#[tokio::test]
async fn what_policies_did_is_counted() {
    let server = start().await;
    install(&server, "ok", &[apply("Object{data: {'a': 'b'}}")], json!({})).await;
    let fields = json!({"failurePolicy": "Ignore"});
    install(&server, "odd", &[patch("[JSONPatch{op: 'remove', path: '/nothing'}]")], fields).await;
    assert_eq!(create(&server, "a", json!({})).await.code, 201);
    let metrics = server.call("GET", "/metrics", "").await.body;
    let metrics = metrics.as_str().unwrap();
    for (policy, kind) in [("ok", "no_error"), ("odd", "invalid_error")] {
        let line = format!(
            "apiserver_mutating_admission_policy_check_total{{policy=\"{policy}\",policy_binding=\"{policy}\",error_type=\"{kind}\"}} 1"
        );
        assert!(metrics.contains(&line), "{policy}");
    }
    assert!(metrics.contains("apiserver_mutating_admission_policy_check_duration_seconds_count"));
    server.stop().await;
}
