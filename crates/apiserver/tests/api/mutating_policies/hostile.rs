//! Policies that are wrong, large or meant badly.

use serde_json::{Value, json};

use super::{
    CONFIG_MAPS, GROUP, PODS, about, apply, bind, create, install, make, message, patch, policy, remove,
    start,
};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies";

#[tokio::test]
async fn a_policy_that_says_nothing_sensible_is_refused() {
    let server = start().await;
    for (mutation, fields, said) in [
        (
            apply("1"),
            json!({}),
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \"1\": must evaluate to Object but got int",
        ),
        (apply("Object.spec{}"), json!({}), "must evaluate to Object but got Object.spec"),
        (apply("{'a': 1}"), json!({}), "must evaluate to Object but got map(string, int)"),
        (apply("object"), json!({}), "must evaluate to Object but got dyn"),
        (apply(" "), json!({}), "spec.mutations[0].applyConfiguration.expression: Required value"),
        (patch("JSONPatch{op: 'add'}"), json!({}), "must evaluate to list(JSONPatch) but got JSONPatch"),
        (patch("[JSONPatch{operation: 'add'}]"), json!({}), "undefined field 'operation'"),
        (
            patch("[JSONPatch{op: 1}]"),
            json!({}),
            "expected type of field 'op' is 'string' but provided type is 'int'",
        ),
        (apply("Object{spec: params.a}"), json!({}), "undeclared reference to 'params'"),
        (
            apply("Object{spec: variables.a}"),
            json!({"variables": [{"name": "a", "expression": "1 +"}]}),
            "spec.variables[0].expression",
        ),
        (
            json!({"patchType": "Merge"}),
            json!({}),
            "spec.mutations[0].patchType: Unsupported value: \"Merge\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
        ),
        (
            json!({"patchType": "JSONPatch"}),
            json!({}),
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
        ),
        (
            json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'x'}]"}, "applyConfiguration": {"expression": "Object{}"}}),
            json!({}),
            "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch",
        ),
        (
            apply("Object{}"),
            json!({"matchConstraints": {"resourceRules": [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}}),
            "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
        ),
        (apply("Object{}"), json!({"reinvocationPolicy": ""}), "spec.reinvocationPolicy: Required value"),
    ] {
        let refused = server.call("POST", POLICIES, &policy("bad", &[mutation], fields).to_string()).await;
        assert_eq!(refused.code, 422, "{said}: {}", refused.body);
        assert!(message(&refused).contains(said), "{said}: {}", refused.body);
    }
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "matchResources": {"resourceRules": [
        {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}}});
    let refused =
        server.call("POST", &format!("{GROUP}/mutatingadmissionpolicybindings"), &binding.to_string()).await;
    assert!(
        message(&refused).contains("spec.matchResources.resourceRules.operations: Unsupported value"),
        "{}",
        refused.body
    );
    server.stop().await;
}

/// What fails refuses the request in upstream's words, or is left out where the failure policy says so.
#[tokio::test]
async fn what_cannot_be_applied_refuses_or_is_left_out() {
    let server = start().await;
    let doubling =
        (0..20).map(|_| "JSONPatch{op: 'copy', from: '/data', path: '/data/deeper'}").collect::<Vec<_>>();
    let swelling = (0..40)
        .map(|n| format!("JSONPatch{{op: 'copy', from: '/data', path: '/metadata/l{n}'}}"))
        .collect::<Vec<_>>();
    let deep = format!("/data{}", "/x".repeat(200));
    for (mutation, said) in [
        (apply("Object{data: Object.spec{a: 'b'}}"), "type mismatch: unexpected type name \"Object.spec\", expected \"Object.data\", which matches field name path from root Object type".to_owned()),
        (apply("Object{spec: Object.spec{a: 'b'}}"), "error applying patch: failed to convert patch object to typed object: .spec: field not declared in schema".to_owned()),
        (apply("Object{data: 'x'}"), "error applying patch: failed to convert patch object to typed object: .data: expected map, got &{x}".to_owned()),
        (apply("Object{data: {1: 'x'}}"), "a map whose keys are int has no form in JSON".to_owned()),
        (apply("Object{data: {'a': string}}"), "has no form in JSON".to_owned()),
        (apply("Object{data: {'a': object.data.nothing}}"), "resulted in error: no such key: nothing".to_owned()),
        (apply("Object{data: {'a': string(1 / 0)}}"), "resulted in error: division by zero".to_owned()),
        (patch("[JSONPatch{op: object.data.n == '1' ? dyn(1) : dyn('add'), path: '/x'}]"), "unexpected type int for JSONPatchType 'op' field".to_owned()),
        (patch("[JSONPatch{op: 'fly', path: '/x'}]"), "JSON Patch: Unexpected kind: fly".to_owned()),
        (patch("[JSONPatch{path: '/x'}]"), "JSON Patch: Unexpected kind: ".to_owned()),
        (patch("[JSONPatch{op: 'remove', path: '/data/m'}]"), "JSON Patch: error in remove for path: '/data/m': Unable to remove nonexistent key: m: missing value".to_owned()),
        (patch("[JSONPatch{op: 'add', path: '', value: {}}]"), "JSON Patch: add operation does not apply: doc is missing path: \"\": missing value".to_owned()),
        (patch("[JSONPatch{op: 'move', path: '/x'}]"), "JSON Patch: move operation failed to decode from".to_owned()),
        (patch(&format!("[JSONPatch{{op: 'add', path: '{deep}', value: 1}}]")), "JSON Patch: exceeded max depth".to_owned()),
        (patch(&format!("[{}]", doubling.join(","))), "JSON Patch: Unable to complete the copy".to_owned()),
        (patch(&format!("[{}]", swelling.join(","))), "JSON Patch: Unable to complete the copy, the accumulated size increase of copy is".to_owned()),
        (patch("[JSONPatch{op: 'add', path: '/data/m', value: object.data.big + object.data.big}]"), "large".to_owned()),
    ] {
        let data = json!({"n": "1", "big": "x".repeat(100_000)});
        for (failure, code) in [("Fail", 403), ("Ignore", 201)] {
            let fields = json!({"failurePolicy": failure});
            install(&server, "p", std::slice::from_ref(&mutation), fields).await;
            let answer = create(&server, "a", data.clone()).await;
            let shown: String = answer.body.to_string().chars().take(600).collect();
            if said == "large" {
                // A text that is large, and no more than that.
                assert_eq!(answer.code, 201, "{mutation}: {shown}");
                server.call("DELETE", &format!("{CONFIG_MAPS}/a"), "").await;
                remove(&server, "p").await;
                continue;
            }
            assert_eq!(answer.code.as_u16(), code, "{mutation}: {shown}");
            if code == 403 {
                assert_eq!(answer.body["reason"], "Invalid", "{mutation}: {shown}");
                let text = message(&answer);
                assert!(text.starts_with("policy 'p' with binding 'p' denied request: "), "{mutation}: {shown}");
                assert!(text.contains(&said), "{mutation}: {shown}");
                assert_eq!(answer.body["details"]["causes"][0]["message"], text);
            } else {
                assert_eq!(answer.body["data"], data, "{mutation}");
                server.call("DELETE", &format!("{CONFIG_MAPS}/a"), "").await;
            }
            remove(&server, "p").await;
        }
    }
    server.stop().await;
}

/// What comes out is no such object any more: whatever the failure policy says, nobody stores it.
#[tokio::test]
async fn what_is_no_such_object_any_more_is_refused() {
    let server = start().await;
    for (mutation, code, said) in [
        (
            patch("[JSONPatch{op: 'add', path: '/spec/colour', value: 'red'}]"),
            500,
            "strict decoding error: unknown field \"spec.colour\"",
        ),
        (
            patch("[JSONPatch{op: 'replace', path: '/spec', value: 'red'}]"),
            500,
            "Internal error occurred: json: cannot unmarshal string",
        ),
        (
            patch("[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]"),
            500,
            "expected v1, Kind=Pod, got v1, Kind=Secret",
        ),
        (patch("[JSONPatch{op: 'replace', path: '', value: []}]"), 500, "expected v1, Kind=Pod"),
        (
            patch("[JSONPatch{op: 'add', path: '/metadata/namespace', value: 'kube-system'}]"),
            400,
            "the namespace of the provided object does not match",
        ),
        (
            patch("[JSONPatch{op: 'remove', path: '/spec/containers'}]"),
            422,
            "spec.containers: Required value",
        ),
        (
            patch("[JSONPatch{op: 'replace', path: '/spec/containers/0/image', value: null}]"),
            422,
            "spec.containers[0].image: Required value",
        ),
        (
            apply(
                "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'UPPER', image: 'i'}]}}",
            ),
            422,
            "spec.containers[1].name",
        ),
        (apply("Object{metadata: Object.metadata{labels: {'bad key': 'x'}}}"), 422, "metadata.labels"),
    ] {
        let fields = json!({"matchConstraints": about(&["pods"]), "failurePolicy": "Ignore"});
        install(&server, "p", std::slice::from_ref(&mutation), fields).await;
        let pod = "{metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}";
        let refused = server.call("POST", PODS, pod).await;
        assert_eq!(refused.code.as_u16(), code, "{mutation}: {}", refused.body);
        assert!(message(&refused).contains(said), "{mutation}: {}", refused.body);
        remove(&server, "p").await;
    }
    server.stop().await;
}

#[tokio::test]
async fn null_is_nothing_and_an_objects_identity_stays() {
    let server = start().await;
    assert_eq!(create(&server, "a", json!({"n": "1"})).await.code, 201);
    let body = json!({"metadata": {"name": "a"}, "data": {"n": "1"}}).to_string();
    install(&server, "null", &[apply("Object{data: null, metadata: null}")], json!({})).await;
    let same = server.call("PUT", &format!("{CONFIG_MAPS}/a"), &body).await;
    assert_eq!((same.code.as_u16(), &same.body["data"]), (200, &json!({"n": "1"})), "{}", same.body);
    remove(&server, "null").await;
    for (field, value, code) in [
        ("name", "'b'", 422),
        ("uid", "'11111111-1111-1111-1111-111111111111'", 422),
        ("namespace", "'kube-system'", 400),
        ("creationTimestamp", "'2020-01-01T00:00:00Z'", 200),
        ("generation", "77", 200),
    ] {
        let mutation = patch(&format!("[JSONPatch{{op: 'add', path: '/metadata/{field}', value: {value}}}]"));
        install(&server, "p", &[mutation], json!({})).await;
        let before =
            server.call("GET", &format!("{CONFIG_MAPS}/a"), "").await.body["metadata"][field].clone();
        let answer = server.call("PUT", &format!("{CONFIG_MAPS}/a"), &body).await;
        assert_eq!(answer.code.as_u16(), code, "{field}: {}", answer.body);
        let after = server.call("GET", &format!("{CONFIG_MAPS}/a"), "").await.body["metadata"][field].clone();
        assert_eq!(after, before, "{field}");
        remove(&server, "p").await;
    }
    server.stop().await;
}

/// Parts that are the same are one in memory, until they are written.
#[tokio::test]
async fn what_swells_is_refused_in_time() {
    let server = start().await;
    let mut variables = vec![json!({"name": "v0", "expression": "[object.data.big, object.data.big]"})];
    for n in 1..40 {
        variables.push(json!({"name": format!("v{n}"), "expression": format!("[variables.v{0}, variables.v{0}]", n - 1)}));
    }
    for (mutation, said) in [
        (apply("Object{data: {'a': variables.v39}}"), "the value is too large"),
        (patch("[JSONPatch{op: 'add', path: '/data/a', value: variables.v39}]"), "the value is too large"),
        (
            apply(
                "Object{data: {'a': string([1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, \
            [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, true)))))))}}",
            ),
            "cost limit exceeded",
        ),
    ] {
        install(&server, "p", &[mutation], json!({"variables": variables})).await;
        let begun = std::time::Instant::now();
        let refused = create(&server, "a", json!({"big": "x".repeat(100_000)})).await;
        assert_eq!(refused.code, 403, "{}", refused.body);
        assert!(message(&refused).contains(said), "{}", refused.body);
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{said}");
        remove(&server, "p").await;
    }
    // What is only too large for the store is the store's to refuse, and no object is half written.
    let large = (0..30).map(|n| format!("'k{n}': object.data.big")).collect::<Vec<_>>().join(",");
    install(&server, "p", &[apply(&format!("Object{{data: {{{large}}}}}"))], json!({})).await;
    let refused = create(&server, "a", json!({"big": "x".repeat(200_000)})).await;
    assert!(refused.code.is_client_error(), "{}", refused.code);
    assert_eq!(server.call("GET", &format!("{CONFIG_MAPS}/a"), "").await.code, 404);
    server.stop().await;
}

/// Policies and bindings can always be repaired, whatever they say of everything.
#[tokio::test]
async fn nobody_is_locked_out() {
    let server = start().await;
    let everything = json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    install(
        &server,
        "all",
        &[patch("[JSONPatch{op: 'remove', path: '/nothing'}]")],
        json!({"matchConstraints": everything}),
    )
    .await;
    assert_eq!(create(&server, "a", json!({})).await.code, 403);
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let asked = server
        .call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review.to_string())
        .await;
    assert_eq!(asked.code, 201, "{}", asked.body);
    let other = policy("other", &[apply("Object{}")], json!({}));
    make(&server, POLICIES, &other).await;
    remove(&server, "all").await;
    assert_eq!(create(&server, "a", json!({})).await.code, 201);
    server.stop().await;
}

/// Parameters that are not there, kinds that nobody knows, a binding that waits for its policy.
#[tokio::test]
async fn what_is_not_there_refuses_or_not_as_it_is_written() {
    let server = start().await;
    bind(&server, "early", json!({})).await;
    assert_eq!(create(&server, "a", json!({})).await.code, 201);
    make(&server, POLICIES, &policy("early", &[apply("Object{data: {'early': 'yes'}}")], json!({}))).await;
    assert_eq!(create(&server, "b", json!({})).await.body["data"], json!({"early": "yes"}));
    remove(&server, "early").await;
    for (kind, action, code, said) in [
        (
            "ConfigMap",
            "Deny",
            403,
            "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
        ),
        ("ConfigMap", "Allow", 201, ""),
        (
            "Nonsense",
            "Allow",
            403,
            "failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nonsense'",
        ),
    ] {
        let fields = json!({"paramKind": {"apiVersion": "v1", "kind": kind}});
        make(&server, POLICIES, &policy("p", &[apply("Object{data: {'p': params.data.p}}")], fields)).await;
        bind(&server, "p", json!({"paramRef": {"name": "nobody", "parameterNotFoundAction": action}})).await;
        let answer = create(&server, "c", json!({})).await;
        assert_eq!(answer.code.as_u16(), code, "{kind} {action}: {}", answer.body);
        assert!(message(&answer).contains(said), "{kind} {action}: {}", answer.body);
        if code == 403 {
            assert_eq!(answer.body["reason"], "Forbidden", "{}", answer.body);
        }
        remove(&server, "p").await;
    }
    server.stop().await;
}

/// Each of a thousand policies that changes a field, in seconds.
#[tokio::test]
async fn many_policies_are_applied() {
    let server = start().await;
    for n in 0..200 {
        install(
            &server,
            &format!("p{n:03}"),
            &[apply(&format!("Object{{data: {{'k{n}': 'v'}}}}"))],
            json!({}),
        )
        .await;
    }
    let made = create(&server, "a", json!({})).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body["data"].as_object().map(serde_json::Map::len), Some(200));
    let other: Value = server.call("GET", &format!("{CONFIG_MAPS}/a"), "").await.body;
    assert_eq!(other["data"], made.body["data"]);
    server.stop().await;
}
