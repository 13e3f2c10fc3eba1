use super::super::{PatchError, strategic};
use serde_json::{Value, json};

fn check(kind: (&str, &str, &str), target: Value, patch: Value, expect: Result<Value, PatchError>) {
    let schema = crate::builtin().kind(kind.0, kind.1, kind.2).expect("a kind");
    assert_eq!(strategic(schema, target, patch), expect);
}

const POD: (&str, &str, &str) = ("", "v1", "Pod");
const DEPLOYMENT: (&str, &str, &str) = ("apps", "v1", "Deployment");

fn containers(items: Value) -> Value {
    json!({"spec": {"containers": items}})
}

#[test]
fn lists_with_a_merge_key_merge_by_it() {
    check(
        POD,
        containers(json!([{"name": "a", "image": "1", "tty": true}, {"name": "b"}])),
        containers(json!([{"name": "a", "image": "2", "tty": null}, {"name": "c", "image": null}])),
        Ok(containers(json!([{"name": "a", "image": "2"}, {"name": "c"}, {"name": "b"}]))),
    );
}

#[test]
fn elements_are_deleted_by_key() {
    check(
        POD,
        containers(json!([{"name": "a"}, {"name": "b"}])),
        containers(json!([{"name": "a", "$patch": "delete"}])),
        Ok(containers(json!([{"name": "b"}]))),
    );
}

#[test]
fn a_list_can_be_replaced() {
    check(
        POD,
        containers(json!([{"name": "a"}, {"name": "b"}])),
        containers(json!([{"name": "c"}, {"$patch": "replace"}])),
        Ok(containers(json!([{"name": "c"}]))),
    );
}

#[test]
fn lists_without_a_strategy_are_replaced() {
    check(
        POD,
        containers(json!([{"name": "a", "args": ["x", "y"]}])),
        containers(json!([{"name": "a", "args": ["z"]}])),
        Ok(containers(json!([{"name": "a", "args": ["z"]}]))),
    );
}

#[test]
fn the_order_of_elements_can_be_set() {
    check(
        POD,
        containers(json!([{"name": "a"}, {"name": "s"}, {"name": "b"}])),
        json!({"spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c"}],
        }}),
        Ok(containers(json!([{"name": "s"}, {"name": "b"}, {"name": "c"}, {"name": "a"}]))),
    );
    check(
        POD,
        containers(json!([{"name": "a"}])),
        json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "c"}]}}),
        Err(PatchError::Malformed(
            "The order in patch list:\n[map[name:c]]\n doesn't match $setElementOrder list:\n[\"a\"]\n"
                .into(),
        )),
    );
}

#[test]
fn an_order_also_applies_where_elements_are_deleted() {
    check(
        POD,
        containers(json!([{"name": "a"}, {"name": "b"}])),
        json!({"spec": {
            "$setElementOrder/containers": [{"name": "b"}],
            "containers": [{"name": "a", "$patch": "delete"}],
        }}),
        Ok(containers(json!([{"name": "b"}]))),
    );
}

#[test]
fn primitive_lists_merge_and_delete_by_value() {
    check(
        POD,
        json!({"metadata": {"finalizers": ["a", "b"]}}),
        json!({"metadata": {"finalizers": ["c", "a"]}}),
        Ok(json!({"metadata": {"finalizers": ["c", "a", "b"]}})),
    );
    check(
        POD,
        json!({"metadata": {"finalizers": ["a", "b"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
        Ok(json!({"metadata": {"finalizers": ["b"]}})),
    );
}

#[test]
fn keys_that_are_not_retained_go() {
    let strategy = |value: Value| json!({"spec": {"strategy": value}});
    check(
        DEPLOYMENT,
        strategy(json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}})),
        strategy(json!({"$retainKeys": ["type"], "type": "Recreate"})),
        Ok(strategy(json!({"type": "Recreate"}))),
    );
    check(
        DEPLOYMENT,
        strategy(json!({})),
        strategy(json!({"$retainKeys": ["type"], "rollingUpdate": {}})),
        Err(PatchError::Malformed("invalid patch format of retainKeys".into())),
    );
}

#[test]
fn objects_are_replaced_or_emptied_on_demand() {
    let labels = |value: Value| json!({"metadata": {"labels": value}});
    check(
        POD,
        labels(json!({"a": "b"})),
        labels(json!({"$patch": "replace", "c": "d"})),
        Ok(labels(json!({"c": "d"}))),
    );
    check(POD, labels(json!({"a": "b"})), labels(json!({"$patch": "delete"})), Ok(labels(json!({}))));
    check(
        POD,
        labels(json!({})),
        labels(json!({"$patch": "explode"})),
        Err(PatchError::Invalid("unknown patch type: explode in map: map[$patch:explode]".into())),
    );
}

#[test]
fn directives_do_not_stay_where_there_is_nothing_to_merge_with() {
    check(
        POD,
        json!({}),
        json!({"metadata": {"labels": {"$patch": "replace", "a": null}}, "spec": {"containers": [
            {"name": "a", "$patch": "delete"}, {"name": "b", "tty": null}]}}),
        Ok(json!({"metadata": {}, "spec": {"containers": [{"name": "b"}]}})),
    );
}

#[test]
fn an_element_without_its_merge_key_is_refused() {
    check(
        POD,
        containers(json!([{"name": "a"}])),
        containers(json!([{"image": "x"}])),
        Err(PatchError::Invalid("map: map[image:x] does not contain declared merge key: name".into())),
    );
}

#[test]
fn service_ports_merge_by_port() {
    check(
        ("", "v1", "Service"),
        json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}),
        json!({"spec": {"ports": [{"port": 80, "nodePort": 30000}]}}),
        Ok(json!({"spec": {"ports": [{"port": 80, "targetPort": 8080, "nodePort": 30000}]}})),
    );
}

#[test]
fn an_order_of_nothing_says_nothing() {
    check(
        POD,
        containers(json!([{"name": "a"}])),
        json!({"spec": {"$setElementOrder/containers": [], "containers": [{"name": "b"}]}}),
        Ok(containers(json!([{"name": "a"}, {"name": "b"}]))),
    );
}

#[test]
fn values_are_deleted_from_lists_that_are_replaced_otherwise() {
    let args = |args: Value| containers(json!([{"name": "a", "args": args}]));
    check(
        POD,
        args(json!(["x", "y"])),
        containers(json!([{"name": "a", "$deleteFromPrimitiveList/args": ["x"]}])),
        Ok(args(json!(["y"]))),
    );
    check(
        POD,
        containers(json!([{"name": "a"}])),
        containers(json!([{"name": "a", "$deleteFromPrimitiveList/args": ["x"]}])),
        Ok(containers(json!([{"name": "a"}]))),
    );
}

#[test]
fn merging_has_to_be_left_unsaid() {
    check(
        POD,
        containers(json!([{"name": "a"}])),
        containers(json!([{"name": "a", "$patch": "merge"}])),
        Err(PatchError::Invalid("merging lists cannot yet be specified in the patch".into())),
    );
    check(
        POD,
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"labels": {"$patch": "merge", "c": "d"}}}),
        Err(PatchError::Invalid("unknown patch type: merge in map: map[$patch:merge c:d]".into())),
    );
}

#[test]
fn an_object_without_a_strategy_for_its_keys_is_merged_and_retained_by_key() {
    let volumes = |volumes: Value| json!({"spec": {"volumes": volumes}});
    check(
        POD,
        volumes(json!([{"name": "v", "emptyDir": {}}])),
        volumes(json!([{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}])),
        Ok(volumes(json!([{"name": "v", "hostPath": {"path": "/x"}}]))),
    );
}
