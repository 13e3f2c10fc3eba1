//! Objects, and what rules say of them.

use super::*;

fn check(schema: &Value, new: Value, old: Option<Value>) -> Vec<String> {
    let found = expressions_of(schema).check(&new, old.as_ref());
    found.iter().map(ToString::to_string).collect()
}

fn rules(mut schema: Value, rules: Value) -> Value {
    schema["x-kubernetes-validations"] = rules;
    schema
}

#[test]
fn a_broken_rule_is_told_at_its_place() {
    let spec = object(
        json!({"n": {"type": "integer"}, "s": {"type": "string"}, "m": {"type": "object", "additionalProperties": {"type": "integer"}}}),
    );
    let spec = |rule: Value| object(json!({"spec": rules(spec.clone(), json!([rule]))}));
    let new = json!({"spec": {"n": 1, "s": "a", "m": {"k": 1}}});
    for (rule, wanted) in [
        (json!({"rule": " self.n > 1 "}), "spec: Invalid value: failed rule: self.n > 1"),
        (json!({"rule": "self.n > 1", "message": " too few "}), "spec: Invalid value: too few"),
        (
            json!({"rule": "self.n > 1", "message": "few", "messageExpression": "'only ' + string(self.n)"}),
            "spec: Invalid value: only 1",
        ),
        (
            json!({"rule": "self.n > 1", "message": "few", "messageExpression": "''"}),
            "spec: Invalid value: few",
        ),
        (
            json!({"rule": "self.n > 1", "message": "few", "messageExpression": "'a\\nb'"}),
            "spec: Invalid value: few",
        ),
        (
            json!({"rule": "self.n > 1", "messageExpression": "string(1 / (self.n - 1))"}),
            "spec: Invalid value: failed rule: self.n > 1",
        ),
        (json!({"rule": "self.n > 1", "fieldPath": ".n"}), "spec.n: Invalid value: failed rule: self.n > 1"),
        (
            json!({"rule": "self.n > 1", "fieldPath": ".m['k']"}),
            "spec.m[k]: Invalid value: failed rule: self.n > 1",
        ),
        (
            json!({"rule": "self.n > 1", "reason": "FieldValueForbidden"}),
            "spec: Forbidden: failed rule: self.n > 1",
        ),
        (
            json!({"rule": "self.n > 1", "reason": "FieldValueRequired", "message": "m"}),
            "spec: Required value: m",
        ),
        (json!({"rule": "self.n > 1", "reason": "FieldValueDuplicate"}), "spec: Duplicate value"),
        (
            json!({"rule": "1 / (self.n - 1) > 0"}),
            "spec: Invalid value: \"object\": division by zero evaluating rule: 1 / (self.n - 1) > 0",
        ),
    ] {
        assert_eq!(check(&spec(rule.clone()), new.clone(), None), [wanted], "{rule}");
    }
    let scalar = object(
        json!({"s": rules(json!({"type": "string"}), json!([{"rule": "self != 'a'", "message": "m"}]))}),
    );
    assert_eq!(check(&scalar, json!({"s": "a"}), None), ["s: Invalid value: \"a\": m"]);
    assert_eq!(check(&scalar, json!({"s": null}), None), [""; 0], "null has no rules");
    assert_eq!(check(&scalar, json!({}), None), [""; 0]);
    let root = rules(
        object(json!({"s": {"type": "string"}})),
        json!([{"rule": "self.metadata.name == self.s", "message": "m"}]),
    );
    assert_eq!(
        check(&root, json!({"metadata": {"name": "b", "labels": {"x": "y"}}, "s": "a"}), None),
        ["<nil>: Invalid value: m"]
    );
    assert_eq!(check(&root, json!({"metadata": {"name": "a"}, "s": "a"}), None), [""; 0]);
}

#[test]
fn rules_about_changes_need_an_old_value() {
    let immutable = json!([{"rule": "self == oldSelf", "message": "is immutable"}]);
    let schema = object(json!({"s": rules(json!({"type": "string"}), immutable.clone()),
        "m": {"type": "object", "additionalProperties": rules(json!({"type": "integer"}), immutable.clone())},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
            "items": object(json!({"k": {"type": "string"}, "p": {"type": "integer"}, "v": rules(json!({"type": "integer"}), immutable)}))}}));
    let said = |new: Value, old: Value| check(&schema, new, Some(old));
    assert_eq!(check(&schema, json!({"s": "a"}), None), [""; 0]);
    assert_eq!(said(json!({"s": "a"}), json!({})), [""; 0]);
    assert_eq!(said(json!({"s": "a"}), json!({"s": null})), [""; 0]);
    assert_eq!(said(json!({"s": "a"}), json!({"s": "a"})), [""; 0]);
    assert_eq!(said(json!({"s": "a"}), json!({"s": "b"})), ["s: Invalid value: \"a\": is immutable"]);
    assert_eq!(
        said(json!({"m": {"a": 1, "b": 2}}), json!({"m": {"a": 2}})),
        ["m[a]: Invalid value: 1: is immutable"]
    );
    // Elements are found by their keys, wherever they stand.
    let element = |k: &str, p: Option<i64>, v: i64| match p {
        Some(p) => json!({"k": k, "p": p, "v": v}),
        None => json!({"k": k, "v": v}),
    };
    let old = json!({"l": [element("a", Some(1), 1), element("b", None, 2)]});
    assert_eq!(said(json!({"l": [element("b", None, 2), element("a", Some(1), 1)]}), old.clone()), [""; 0]);
    assert_eq!(said(json!({"l": [element("b", Some(1), 3), element("a", None, 1)]}), old.clone()), [""; 0]);
    assert_eq!(
        said(json!({"l": [element("c", Some(1), 0), element("a", Some(1), 3)]}), old.clone()),
        ["l[1].v: Invalid value: 3: is immutable"]
    );
    // One without all of its keys is found by nobody.
    assert_eq!(said(json!({"l": [element("b", None, 3)]}), old.clone()), [""; 0]);
    assert_eq!(said(json!({"l": ["stray", 1, null]}), old), [""; 0]);
}

#[test]
fn old_values_may_be_optional() {
    let rule = json!([{"rule": "!oldSelf.hasValue() || oldSelf.value() <= self", "optionalOldSelf": true, "message": "shrinks"},
        {"rule": "oldSelf.hasValue() || self > 0", "optionalOldSelf": true, "message": "begins at one"}]);
    let schema = object(json!({"n": rules(json!({"type": "integer"}), rule)}));
    assert_eq!(check(&schema, json!({"n": 0}), None), ["n: Invalid value: 0: begins at one"]);
    assert_eq!(check(&schema, json!({"n": 0}), Some(json!({}))), ["n: Invalid value: 0: begins at one"]);
    assert_eq!(check(&schema, json!({"n": 1}), Some(json!({"n": 2}))), ["n: Invalid value: 1: shrinks"]);
    assert_eq!(check(&schema, json!({"n": 0}), Some(json!({"n": 0}))), [""; 0]);
}

#[test]
fn what_was_wrong_before_and_did_not_change_may_stay() {
    let positive = json!([{"rule": "self.n > 0", "message": "m"}]);
    let part = rules(object(json!({"n": {"type": "integer"}, "o": {"type": "integer"}})), positive);
    let schema = object(json!({"a": part, "b": {"type": "integer"},
        "atomic": {"type": "array", "items": part},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["o"], "items": part},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.n > 0", "message": "m"}]}}));
    let said = |new: Value, old: Value| check(&schema, new, Some(old)).len();
    assert_eq!(said(json!({"a": {"n": 0}, "b": 1}), json!({"a": {"n": 0}, "b": 2})), 0);
    assert_eq!(said(json!({"a": {"n": 0, "o": 1}}), json!({"a": {"n": 0, "o": 2}})), 1);
    assert_eq!(said(json!({"a": {"n": 0}}), json!({})), 1);
    // Elements of a list without keys are as they were when the list is.
    let list = json!({"atomic": [{"n": 0}, {"n": 1}], "b": 1});
    assert_eq!(said(list.clone(), json!({"atomic": [{"n": 0}, {"n": 1}]})), 0);
    assert_eq!(said(list, json!({"atomic": [{"n": 0}]})), 1);
    let map = json!({"map": [{"o": 1, "n": 0}, {"o": 2, "n": 1}]});
    assert_eq!(said(map.clone(), json!({"map": [{"o": 2, "n": 5}, {"o": 1, "n": 0}]})), 0);
    assert_eq!(said(map, json!({"map": [{"o": 1, "n": -1}]})), 1);
    // What the schema does not know is never known to be the same.
    assert_eq!(said(json!({"open": {"n": 0}}), json!({"open": {"n": 0}})), 0);
    assert_eq!(said(json!({"open": {"n": 0, "x": 1}}), json!({"open": {"n": 0, "x": 1}})), 1);
}

#[test]
fn evaluations_end_with_the_budget() {
    let elements: Vec<Value> = (0..2000).map(|index| json!(format!("{index}"))).collect();
    let list = |rule: &str| {
        object(
            json!({"l": rules(json!({"type": "array", "items": {"type": "string"}}), json!([{"rule": rule}]))}),
        )
    };
    // One evaluation that costs too much.
    let quadratic = "self.all(x, self.all(y, x == x || y == y))";
    let said = check(&list(quadratic), json!({"l": elements}), None);
    assert_eq!(
        said,
        [format!(
            "l: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: {quadratic}"
        )]
    );
    // Many that do not, each.
    let each = object(
        json!({"l": {"type": "array", "items": rules(json!({"type": "array", "items": {"type": "string"}}),
        json!([{"rule": "self.all(x, x != '')"}]))}}),
    );
    let lists: Vec<Value> = (0..2000).map(|_| json!(elements)).collect();
    let said = check(&each, json!({"l": lists}), None);
    assert!(
        said.len() == 1
            && said[0].ends_with(
                "validation failed due to running out of cost budget, no further validation rules will be run"
            ),
        "{said:?}"
    );
    assert!(said[0].starts_with("l["));
}

#[test]
fn large_values_are_shown_a_bounded_number_of_times() {
    let all: Vec<Value> = (0..500).map(|_| json!({"rule": "self == ''"})).collect();
    let schema = object(json!({"s": rules(json!({"type": "string"}), json!(all))}));
    let found = expressions_of(&schema).check(&json!({"s": "x".repeat(1 << 20)}), None);
    assert!(found.iter().map(|error| error.message.len()).sum::<usize>() < 6 << 20);
    assert_eq!(found.len() + found.left_out(), 500);
}

#[test]
fn rules_that_are_stored_and_wrong_refuse_objects() {
    let schema = object(
        json!({"s": rules(json!({"type": "string"}), json!([{"rule": "self ++"}, {"rule": "self == 'a'", "message": "m"}]))}),
    );
    let said = check(&schema, json!({"s": "b"}), None);
    assert!(
        said[0].starts_with("s: Invalid value: \"string\": rule compile error: compilation failed: ERROR"),
        "{said:?}"
    );
    assert_eq!(said[1], "s: Invalid value: \"b\": m");
}
