use serde_json::json;

use super::*;

mod upstream;

fn check(selector: &str, labels: Value, expect: bool) {
    let parsed = Selector::parse(selector).unwrap();
    assert_eq!(parsed.matches(labels.as_object()), expect, "{selector} on {labels}");
}

#[test]
fn each_operator_judges_the_label_it_names() {
    check("", json!({}), true);
    check("app=web", json!({"app": "web"}), true);
    check("app==web,tier!=x", json!({"app": "web"}), true);
    check("app in (a, b)", json!({"app": "b"}), true);
    check("app notin (a,b)", json!({}), true);
    check("app notin (a,b)", json!({"app": "a"}), false);
    check("app", json!({"app": ""}), true);
    check("!app", json!({"app": ""}), false);
    check("n>3,n<5", json!({"n": "4"}), true);
    check("app=", json!({"app": ""}), true);
}

#[test]
fn what_cannot_be_read_is_named() {
    for (text, error) in [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
    ] {
        assert_eq!(Selector::parse(text).unwrap_err().to_string(), error);
    }
    assert!(Selector::parse("a b").is_err());
    assert!(Selector::parse("a in b").is_err());
    assert!(Selector::parse("a in (b").is_err());
    assert!(Selector::parse("-a=b").is_err());
}

#[test]
fn a_label_selector_joins_labels_and_expressions() {
    let selector =
        json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]});
    let selector = Selector::from_label_selector(Some(&selector)).unwrap();
    assert_eq!(selector.to_string(), "a=b,c");
    assert!(selector.matches(json!({"a": "b", "c": ""}).as_object()));
    assert!(!Selector::from_label_selector(None).unwrap().matches(None));
    assert!(Selector::from_label_selector(Some(&json!({}))).unwrap().matches(None));
}
