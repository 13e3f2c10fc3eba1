use super::*;
use expect_test::{Expect, expect};
use serde_json::json;

fn check((group, kind): (&str, &str), left: Value, right: Value, expect: Expect) {
    let schema = schema::builtin().kind(group, "v1", kind).unwrap();
    let comparison = compare(Typed::root(schema), &left, &right, &|_, _| false);
    let lines = |sign: &str, set: &Set<'_>| {
        set.paths().iter().map(|path| format!("{sign}{path}")).collect::<Vec<_>>()
    };
    let all =
        [lines("-", &comparison.removed), lines("~", &comparison.modified), lines("+", &comparison.added)];
    expect.assert_eq(&all.concat().join("\n"));
}

const POD: (&str, &str) = ("", "Pod");
const DEPLOYMENT: (&str, &str) = ("apps", "Deployment");

#[test]
fn fields_that_go_always_writes_are_there_before_they_are_set() {
    check(
        DEPLOYMENT,
        json!({}),
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {"spec": {"containers": [{"name": "x", "resources": {}, "ports": [{"containerPort": 80}]}]}}},
            "status": {}}),
        expect![[r#"
            ~.spec.selector
            +.metadata.labels
            +.metadata.labels.a
            +.spec.replicas
            +.spec.strategy.rollingUpdate
            +.spec.strategy.type
            +.spec.strategy.rollingUpdate.maxSurge
            +.spec.template.spec.containers[name="x"]
            +.spec.template.spec.containers[name="x"].name
            +.spec.template.spec.containers[name="x"].ports
            +.spec.template.spec.containers[name="x"].resources
            +.spec.template.spec.containers[name="x"].ports[containerPort=80,protocol="TCP"]
            +.spec.template.spec.containers[name="x"].ports[containerPort=80,protocol="TCP"].containerPort"#]],
    );
}

#[test]
fn elements_are_compared_by_their_key_and_atomic_lists_as_a_whole() {
    let pod = |containers: Value, finalizers: Value| json!({"metadata": {"finalizers": finalizers}, "spec": {"containers": containers}});
    check(
        POD,
        pod(json!([{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}]), json!(["f", "g"])),
        pod(json!([{"name": "c"}, {"name": "a", "image": "2", "args": ["y"]}]), json!(["g", "h"])),
        expect![[r#"
            -.metadata.finalizers[="f"]
            -.spec.containers[name="b"]
            -.spec.containers[name="b"].name
            ~.spec.containers[name="a"].args
            ~.spec.containers[name="a"].image
            +.metadata.finalizers[="h"]
            +.spec.containers[name="c"]
            +.spec.containers[name="c"].name"#]],
    );
}

#[test]
fn a_container_that_goes_takes_its_entries_along() {
    check(
        POD,
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"x": "y"}}}),
        json!({"metadata": {}, "spec": {"nodeSelector": {"x": "z"}}}),
        expect![[r#"
            -.metadata.labels
            -.metadata.labels.a
            ~.spec.nodeSelector"#]],
    );
}

#[test]
fn elements_that_cannot_be_told_apart_change_hands_together() {
    let ports = |ports: Value| json!({"spec": {"containers": [{"name": "a", "ports": ports}]}});
    check(
        POD,
        ports(json!([{"containerPort": 80}, {"containerPort": 80, "name": "x"}])),
        ports(json!([{"containerPort": 80}, {"containerPort": 80, "name": "y"}])),
        expect![[r#"~.spec.containers[name="a"].ports[containerPort=80,protocol="TCP"]"#]],
    );
}

#[test]
fn equal_values_are_the_same() {
    let pod = json!({"spec": {"containers": [{"name": "a"}], "tolerations": [{"key": "x"}]}});
    check(POD, pod.clone(), pod, expect![""]);
    check(POD, json!({"spec": {}}), json!({}), expect![""]);
}
