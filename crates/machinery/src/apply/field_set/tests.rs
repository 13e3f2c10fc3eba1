use super::*;
use expect_test::{Expect, expect};
use serde_json::json;

fn typed() -> Typed<'static> {
    Typed::root(schema::builtin().kind("apps", "v1", "Deployment").unwrap())
}

#[test]
fn leaves_and_elements_are_named_and_what_leads_to_them_is_not() {
    let config = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {}, "finalizers": ["x"]},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {
            "containers": [{"name": "a", "args": ["x"], "securityContext": {}}], "volumes": []}}},
    });
    let set = field_set(typed(), &config);
    let paths: Vec<String> = set.paths().iter().map(ToString::to_string).collect();
    expect![[r#"
        .metadata.annotations
        .metadata.finalizers[="x"]
        .metadata.labels.a
        .spec.selector
        .spec.template.spec.containers[name="a"]
        .spec.template.spec.containers[name="a"].args
        .spec.template.spec.containers[name="a"].name
        .spec.template.spec.containers[name="a"].securityContext"#]]
    .assert_eq(&paths.join("\n"));
}

fn check(spec: Value, expect: Expect) {
    expect.assert_eq(&problems(typed(), &json!({"spec": spec})).join("\n"));
}

#[test]
fn what_does_not_fit_the_schema_is_told_with_its_path() {
    check(json!({"replica": 1}), expect![".spec.replica: field not declared in schema"]);
    check(json!({"replicas": "1"}), expect![".spec.replicas: expected numeric (int or float), got string"]);
    check(json!({"paused": "yes"}), expect![".spec.paused: expected boolean, got &{yes}"]);
    check(json!({"template": []}), expect![".spec.template: expected map, got &{[]}"]);
    let containers = |containers: Value| json!({"template": {"spec": {"containers": containers}}});
    check(containers(json!({})), expect![".spec.template.spec.containers: expected list, got &{map[]}"]);
    check(
        containers(json!([{"name": "a"}, {"name": "a", "image": 1}])),
        expect![[r#"
            .spec.template.spec.containers: duplicate entries for key [name="a"]
            .spec.template.spec.containers[name="a"].image: expected string, got &value.valueUnstructured{Value:1}"#]],
    );
    check(
        containers(json!([{"image": "a"}])),
        expect![[
            r#".spec.template.spec.containers: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)"#
        ]],
    );
    check(json!({"replicas": null}), expect![""]);
}
