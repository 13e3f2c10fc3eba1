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
            "The order in patch list:\n[map[name:c]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n"
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

/// A list in words: elements apart by blanks, each a name and perhaps `=` and an image.
fn named(text: &str) -> Value {
    let element = |text: &str| match text.split_once('=') {
        None => json!({"name": text}),
        Some((name, "null")) => json!({"name": name, "image": null}),
        Some((name, "gone")) => json!({"name": name, "$patch": "delete"}),
        Some((name, image)) => json!({"name": name, "image": image}),
    };
    text.split(' ').filter(|text| !text.is_empty()).map(element).collect()
}

/// Source of this and of what follows: `TestCustomStrategicMergePatch` of upstream's
/// `apimachinery/pkg/util/strategicpatch`.
#[test]
fn merged_lists_have_the_order_of_the_patch_and_keep_what_it_does_not_name() {
    for (name, original, order, patch, expect) in [
        ("one is changed", "1 2=b 3", None, "2=c", "1 2=c 3"),
        ("one is added", "1 2", None, "3", "3 1 2"),
        ("a field is taken away", "1 2=b", None, "2=null", "1 2"),
        ("one that is not there is deleted", "1 2", None, "3=gone", "1 2"),
        ("all are deleted", "1 2", None, "1=gone 2=gone", ""),
        ("one goes and one comes", "1 2", None, "1=gone 3", "3 2"),
        ("all are named", "1 2=b 3", None, "3=c 1=a 2", "3=c 1=a 2=b"),
        ("some are named", "1 2=b 3", None, "3=c 1=a", "2=b 3=c 1=a"),
        ("an order alone", "1 2 3", Some("3 2 1"), "", "3 2 1"),
        ("an order and a change", "1 2 3", Some("3 2 1"), "1=a", "3 2 1=a"),
        ("an order names one that is not there", "1 3", Some("3 2 1"), "3=c 1=a", "3=c 1=a"),
        ("an order of some", "1 2 3 4", Some("4 2"), "", "1 3 4 2"),
        ("what the server has beside them", "1 x 2", Some("1 2 3"), "3", "1 x 2 3"),
        ("at the beginning", "x 1 2", Some("2 1"), "", "x 2 1"),
        ("at the end", "1 2 x", Some("2 1"), "", "2 1 x"),
        ("one goes", "1 2 3", Some("3 1"), "2=gone", "3 1"),
        ("none was there", "", Some("2 1"), "2 1", "2 1"),
    ] {
        let mut spec = json!({});
        if let Some(order) = order {
            spec["$setElementOrder/containers"] = named(order);
        }
        if !patch.is_empty() {
            spec["containers"] = named(patch);
        }
        let schema = crate::builtin().kind(POD.0, POD.1, POD.2).expect("a kind");
        let found = strategic(schema, containers(named(original)), json!({"spec": spec}));
        assert_eq!(found, Ok(containers(named(expect))), "{name}");
    }
    for (order, patch) in [("1 2 3", "3=c 1=a"), ("2", "1"), ("1 2", "2 3")] {
        let spec = json!({"$setElementOrder/containers": named(order), "containers": named(patch)});
        let schema = crate::builtin().kind(POD.0, POD.1, POD.2).expect("a kind");
        let refused = strategic(schema, containers(named("1 3 2")), json!({"spec": spec})).unwrap_err();
        assert!(refused.to_string().contains("doesn't match $setElementOrder list"), "{order} {patch}");
    }
}

#[test]
fn lists_of_values_merge_in_the_order_of_the_patch() {
    let list =
        |text: &str| text.split(' ').filter(|text| !text.is_empty()).map(Value::from).collect::<Value>();
    for (name, original, order, gone, patch, expect) in [
        ("all are named", "1 2 3", None, None, Some("3 1 2"), "3 1 2"),
        ("some are named", "1 2 3", None, None, Some("3 1"), "2 3 1"),
        ("one twice", "1 2", None, None, Some("3 3"), "3 1 2"),
        ("an order", "1 3", Some("3 2 1"), None, None, "3 1"),
        ("an order and one more", "1 2", Some("3 2 1"), None, Some("3"), "3 2 1"),
        ("one goes", "1 2 3", None, Some("2"), None, "1 3"),
        ("one that is not there goes", "1 2", None, Some("3"), None, "1 2"),
        ("one goes and one comes", "1 2", Some("3 2"), Some("1"), Some("3"), "3 2"),
    ] {
        let mut metadata = json!({});
        for (key, values) in [
            ("$setElementOrder/finalizers", order),
            ("$deleteFromPrimitiveList/finalizers", gone),
            ("finalizers", patch),
        ] {
            if let Some(values) = values {
                metadata[key] = list(values);
            }
        }
        let of = |finalizers: &str| json!({"metadata": {"finalizers": list(finalizers)}});
        let schema = crate::builtin().kind(POD.0, POD.1, POD.2).expect("a kind");
        let found = strategic(schema, of(original), json!({"metadata": metadata}));
        assert_eq!(found, Ok(of(expect)), "{name}");
    }
}

#[test]
fn retained_keys_take_the_others_away() {
    for (name, original, patch, expect) in [
        (
            "nothing is said",
            json!({"type": "a"}),
            json!({"rollingUpdate": {}}),
            Some(json!({"type": "a", "rollingUpdate": {}})),
        ),
        ("an empty patch", json!({"type": "a"}), json!({}), Some(json!({"type": "a"}))),
        (
            "one is added",
            json!({"type": "a"}),
            json!({"$retainKeys": ["type", "rollingUpdate"], "rollingUpdate": {}}),
            Some(json!({"type": "a", "rollingUpdate": {}})),
        ),
        ("all go", json!({"type": "a"}), json!({"$retainKeys": []}), Some(json!({}))),
        (
            "a null need not be retained",
            json!({"type": "a", "rollingUpdate": {}}),
            json!({"$retainKeys": ["type"], "rollingUpdate": null}),
            Some(json!({"type": "a"})),
        ),
        ("one is not retained", json!({"type": "a"}), json!({"$retainKeys": [], "type": "b"}), None),
        ("it is no list", json!({}), json!({"$retainKeys": "type"}), None),
        ("not of texts", json!({}), json!({"$retainKeys": [1]}), None),
    ] {
        let of = |value: Value| json!({"spec": {"strategy": value}});
        let expect = expect.map(of).ok_or(PatchError::Malformed("invalid patch format of retainKeys".into()));
        let schema = crate::builtin().kind(DEPLOYMENT.0, DEPLOYMENT.1, DEPLOYMENT.2).expect("a kind");
        assert_eq!(strategic(schema, of(original), of(patch)), expect, "{name}");
    }
}
