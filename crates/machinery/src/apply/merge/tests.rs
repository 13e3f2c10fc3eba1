use super::*;
use serde_json::json;

fn check(live: Value, config: Value, expect: Value) {
    let schema = schema::builtin().kind("", "v1", "Pod").unwrap();
    assert_eq!(merge(Typed::root(schema), &live, &config), expect);
}

fn containers(names: &[&str]) -> Value {
    json!({"spec": {"containers": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()}})
}

#[test]
fn the_configuration_wins_and_nothing_is_removed() {
    check(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeSelector": {"x": "y"}}}),
        json!({"metadata": {"labels": {"b": "3"}}, "spec": {"nodeSelector": {"z": "y"}}}),
        json!({"metadata": {"labels": {"a": "1", "b": "3"}}, "spec": {"nodeSelector": {"z": "y"}}}),
    );
}

#[test]
fn elements_are_merged_by_key() {
    check(
        json!({"spec": {"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b"}]}}),
        json!({"spec": {"containers": [{"name": "a", "image": "2"}]}}),
        json!({"spec": {"containers": [{"name": "a", "image": "2", "tty": true}, {"name": "b"}]}}),
    );
    check(
        json!({"metadata": {"finalizers": ["a", "b"]}}),
        json!({"metadata": {"finalizers": ["b", "c"]}}),
        json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
    );
}

#[test]
fn the_order_is_the_configurations_and_others_stay_where_they_were() {
    let rows: &[(&[&str], &[&str], &[&str])] = &[
        (&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]),
        (&["a", "b"], &["a", "x", "b"], &["a", "x", "b"]),
        (&["a", "b", "c"], &["x", "b"], &["a", "x", "b", "c"]),
        (&["a", "b"], &["c"], &["a", "b", "c"]),
        (&["a", "b", "c", "d"], &["d", "b"], &["a", "c", "d", "b"]),
        (&[], &["a"], &["a"]),
        (&["a"], &[], &["a"]),
    ];
    for (live, config, expect) in rows {
        check(containers(live), containers(config), containers(expect));
    }
}
