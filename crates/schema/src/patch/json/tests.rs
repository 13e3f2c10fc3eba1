use super::super::PatchError;
use serde_json::{Value, json};

fn check(target: Value, patch: &Value, expect: Result<Value, PatchError>) {
    assert_eq!(super::super::json(target, patch.to_string().as_bytes()), expect, "{patch}");
}

fn refused(target: Value, patch: &Value) -> String {
    super::super::json(target, patch.to_string().as_bytes())
        .map_or_else(|why| why.to_string(), |v| v.to_string())
}

#[test]
fn operations_apply_in_order() {
    check(
        json!({"a": [1, 2]}),
        &json!([
            {"op": "test", "path": "/a/0", "value": 1},
            {"op": "add", "path": "/a/-", "value": 3},
            {"op": "remove", "path": "/a/0"},
            {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "replace", "path": "/b/0", "value": "x"},
            {"op": "move", "from": "/a/1", "path": "/c"},
        ]),
        Ok(json!({"a": [2], "b": ["x", 3], "c": 3})),
    );
}

#[test]
fn each_operation_does_what_upstreams_library_does() {
    let target = || json!({"a": [1, 2, 3], "o": {"k/e~y": 1}, "n": null});
    for (operation, expected) in [
        (json!({"op": "add", "path": "/a/0", "value": 0}), json!({"a": [0, 1, 2, 3]})),
        (json!({"op": "add", "path": "/a/3", "value": 4}), json!({"a": [1, 2, 3, 4]})),
        (json!({"op": "add", "path": "/a/-1", "value": 4}), json!({"a": [1, 2, 3, 4]})),
        (json!({"op": "add", "path": "/a/-4", "value": 0}), json!({"a": [0, 1, 2, 3]})),
        (json!({"op": "add", "path": "/x"}), json!({"x": null})),
        (json!({"op": "add", "path": "/", "value": 1}), json!({"": 1})),
        (json!({"op": "add", "path": "/o/k~1e~0y", "value": 2}), json!({"o": {"k/e~y": 2}})),
        (json!({"op": "remove", "path": "/a/-1"}), json!({"a": [1, 2]})),
        (json!({"op": "replace", "path": "/a/-3", "value": 0}), json!({"a": [0, 2, 3]})),
        (json!({"op": "replace", "path": "/new", "value": 0}), json!({"new": 0})),
        (json!({"op": "copy", "from": "/o/none", "path": "/x"}), json!({"x": null})),
        (json!({"op": "copy", "from": "/a/0", "path": "/a/0"}), json!({"a": [1, 1, 2, 3]})),
        (json!({"op": "test", "path": "/n"}), json!({})),
        (json!({"op": "test", "path": "/none", "value": null}), json!({})),
        (json!({"op": "test", "path": "", "value": target()}), json!({})),
    ] {
        let mut whole = target();
        for (name, value) in expected.as_object().unwrap() {
            whole[name] = value.clone();
        }
        check(target(), &json!([operation]), Ok(whole));
    }
    check(target(), &json!([{"op": "replace", "path": "", "value": {"x": 1}}]), Ok(json!({"x": 1})));
}

#[test]
fn what_is_not_there_is_null() {
    let patch = json!([
        {"op": "test", "path": "/metadata/a~1b", "value": null},
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["x"]},
    ]);
    check(json!({"metadata": {}}), &patch, Ok(json!({"metadata": {"finalizers": ["x"]}})));
}

#[test]
fn an_operation_that_does_not_apply_is_named() {
    for (operation, text) in [
        (json!({"op": "test", "path": "/x", "value": 2}), "testing value /x failed: test failed"),
        (json!({"op": "test", "path": "/a", "value": 2}), "testing value /a failed: test failed"),
        (
            json!({"op": "test", "path": "/x/y", "value": null}),
            "test operation does not apply: is missing path: /x/y: missing value",
        ),
        (
            json!({"op": "test", "path": "/l/1", "value": null}),
            "error in test for path: '/l/1': Unable to access invalid index: 1: invalid index referenced",
        ),
        (
            json!({"op": "remove", "path": "/x"}),
            "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            json!({"op": "remove", "path": "/x/y"}),
            r#"remove operation does not apply: doc is missing path: "/x/y": missing value"#,
        ),
        (
            json!({"op": "remove", "path": "/l/-"}),
            "error in remove for path: '/l/-': strconv.Atoi: parsing \"-\": invalid syntax",
        ),
        (
            json!({"op": "replace", "path": "/x/y", "value": 1}),
            "replace operation does not apply: doc is missing path: /x/y: missing value",
        ),
        (
            json!({"op": "replace", "path": "/l/7", "value": 1}),
            "replace operation does not apply: doc is missing key: /l/7: missing value",
        ),
        (json!({"op": "replace", "path": "", "value": 1}), "replace operation value must be object or array"),
    ] {
        assert_eq!(refused(json!({"a": 1, "l": [1]}), &json!([operation])), text, "{operation}");
    }
}

#[test]
fn what_cannot_be_added_moved_or_copied_is_named() {
    for (operation, text) in [
        (
            json!({"op": "add", "path": "/x/y", "value": 1}),
            r#"add operation does not apply: doc is missing path: "/x/y": missing value"#,
        ),
        (
            json!({"op": "add", "path": "", "value": {}}),
            r#"add operation does not apply: doc is missing path: "": missing value"#,
        ),
        (
            json!({"op": "add", "path": "/a/b", "value": 1}),
            r#"add operation does not apply: doc is missing path: "/a/b": missing value"#,
        ),
        (
            json!({"op": "add", "path": "/l/x", "value": 1}),
            "error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": \
             invalid syntax",
        ),
        (
            json!({"op": "add", "path": "/l/99999999999999999999", "value": 1}),
            "error in add for path: '/l/99999999999999999999': value was not a proper array index: \
             '99999999999999999999': strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        (
            json!({"op": "add", "path": "/l/-3", "value": 1}),
            "error in add for path: '/l/-3': Unable to access invalid index: -3: invalid index referenced",
        ),
        (json!({"op": "add", "value": 1}), "add operation failed to decode path: missing value"),
        (
            json!({"op": "test", "path": null}),
            "test operation failed to decode path: operation missing path field: missing value",
        ),
        (
            json!({"op": "move", "path": "/x"}),
            "move operation failed to decode from: operation, missing from field: missing value",
        ),
        (
            json!({"op": "move", "from": "/x", "path": "/y"}),
            "error in move for path: 'x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            json!({"op": "move", "from": "/l", "path": "/l/0"}),
            "move operation does not apply: doc is missing destination path: /l/0: missing value",
        ),
        (
            json!({"op": "copy", "from": "/x/y", "path": "/z"}),
            "copy operation does not apply: doc is missing from path: /x/y: missing value",
        ),
        (
            json!({"op": "copy", "from": "/a", "path": "/l/9"}),
            "error while adding value during copy: Unable to access invalid index: 9: invalid index referenced",
        ),
    ] {
        assert_eq!(refused(json!({"a": 1, "l": [1]}), &json!([operation])), text, "{operation}");
    }
}

#[test]
fn copies_cannot_explode() {
    let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let patch = Value::Array(vec![double; 64]);
    let result = super::super::json(json!({"a": ["0123456789"]}), patch.to_string().as_bytes());
    assert!(matches!(result, Err(PatchError::TooLarge(_))), "{result:?}");
}

/// What is nested beyond any bound would end whoever walks over it.
#[test]
fn no_patch_nests_without_end() {
    let deepest = |levels: usize| format!("/a{}", "/0".repeat(levels));
    // Each copy nests twice as deeply as the one before it.
    let doubling = (0..20).map(|round| json!({"op": "copy", "from": "/a", "path": deepest(1 << round)}));
    let patch = Value::Array(
        [json!({"op": "add", "path": "/a/0", "value": []})].into_iter().chain(doubling).collect(),
    );
    assert_eq!(refused(json!({"a": []}), &patch), "exceeded max depth 128");
    let swaps = (0..400).flat_map(|round| {
        let (inner, outer) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
        [
            json!({"op": "add", "path": format!("/{outer}"), "value": {}}),
            json!({"op": "move", "from": format!("/{inner}"), "path": format!("/{outer}/x")}),
        ]
    });
    assert_eq!(refused(json!({"a": {}}), &Value::Array(swaps.collect())), "exceeded max depth 128");
    let path = "/x".repeat(1_000_000);
    let missing = refused(json!({}), &json!([{"op": "remove", "path": path}]));
    assert!(
        missing.starts_with("remove operation does not apply: doc is missing path"),
        "{}",
        &missing[..80]
    );
}

#[test]
fn a_patch_has_at_most_ten_thousand_operations() {
    let one = json!({"op": "test", "path": "/a", "value": 1});
    check(json!({"a": 1}), &Value::Array(vec![one.clone(); 10_000]), Ok(json!({"a": 1})));
    check(
        json!({"a": 1}),
        &Value::Array(vec![one; 10_001]),
        Err(PatchError::TooLarge(
            "The allowed maximum operations in a JSON patch is 10000, got 10001".into(),
        )),
    );
}

#[test]
fn a_patch_that_is_none_is_told_what_it_is() {
    let check = |patch: &str, expect: &str| {
        let result = super::super::json(json!({}), patch.as_bytes());
        assert_eq!(result.unwrap_err().to_string(), expect, "{patch}");
    };
    check("[", "error decoding patch: unexpected end of JSON input");
    check(
        "{}",
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
    );
    check(
        "[5]",
        "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
    );
    check(
        r#"[{"op": 1}]"#,
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
    );
    check(r#"[{"op": "fly", "path": "/a"}]"#, "Unexpected kind: fly");
    check(r#"[{"path": "/a"}]"#, "Unexpected kind: unknown");
}
