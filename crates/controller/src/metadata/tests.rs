//! The cases of upstream's `controller_ref_test.go` of `apimachinery/pkg/apis/meta/v1`, and what absent fields are.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;

use super::*;

fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).expect("valid YAML")
}

/// Source: `TestGetControllerOf`, `TestIsControlledBy`.
#[test]
fn the_controller_is_the_owner_that_says_so() {
    let owner = |uid: &str, more: &str| format!("{{apiVersion: v1, kind: A, name: a, uid: {uid}{more}}}");
    let (plain, other) = (owner("1", ""), owner("2", ", controller: false"));
    let (first, second) = (owner("3", ", controller: true"), owner("4", ", controller: true"));
    for (name, owners, expect) in [
        ("no owner", String::new(), None),
        ("one that says nothing", plain.clone(), None),
        ("one that says no", other.clone(), None),
        ("two that do not", format!("{plain}, {other}"), None),
        ("one that does", first.clone(), Some("3")),
        ("one beside others", format!("{plain}, {first}, {other}"), Some("3")),
        ("of two the first", format!("{second}, {first}"), Some("4")),
    ] {
        let meta: ObjectMeta = parse(&format!("{{ownerReferences: [{owners}]}}"));
        assert_eq!(controller_of(&meta).map(|owner| owner.uid.as_str()), expect, "{name}");
    }
    assert_eq!(controller_of(&ObjectMeta::default()), None);
}

/// Source: `TestNewControllerRef`.
#[test]
fn a_reference_to_a_controller_keeps_it_from_going_first() {
    let set: ReplicaSet = parse("{metadata: {name: web, namespace: shop, uid: u}}");
    let reference = controller_reference(&set);
    assert_eq!((reference.controller, reference.block_owner_deletion), (Some(true), Some(true)));
    let parts = [&reference.api_version, &reference.kind, &reference.name, &reference.uid];
    assert_eq!(parts, ["apps/v1", "ReplicaSet", "web", "u"]);
    let nameless = controller_reference(&Pod::default());
    assert_eq!(
        (nameless.name.as_str(), nameless.uid.as_str(), nameless.api_version.as_str()),
        ("", "", "v1")
    );
}

#[test]
fn what_is_absent_is_empty() {
    let none = ObjectMeta::default();
    assert_eq!([name(&none), namespace(&none), uid(&none), key(&none).as_str()], [""; 4]);
    assert_eq!((annotation(&none, "a"), label(&none, "a"), is_deleting(&none)), (None, None, false));
    assert_eq!(created(&none), Timestamp::UNIX_EPOCH);
    for (yaml, expect) in [
        ("{name: a}", "a"),
        ("{name: a, namespace: n}", "n/a"),
        ("{name: a, namespace: ''}", "a"),
        ("{namespace: n}", "n/"),
    ] {
        assert_eq!(key(&parse(yaml)), expect, "{yaml}");
    }
    let meta: ObjectMeta = parse(
        "{labels: {a: b, e: ''}, annotations: {c: d}, deletionTimestamp: '2026-01-01T00:00:00Z', creationTimestamp: '2025-01-01T00:00:00Z'}",
    );
    assert_eq!((label(&meta, "a"), label(&meta, "e"), label(&meta, "c")), (Some("b"), Some(""), None));
    assert_eq!((annotation(&meta, "c"), annotation(&meta, "a")), (Some("d"), None));
    assert!(is_deleting(&meta) && created(&meta).to_string().starts_with("2025-01-01"));
}

#[test]
fn times_are_written_in_whole_seconds() {
    for (given, written) in [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.999999999Z", "2026-01-01T00:00:00Z"),
        ("1969-12-31T23:59:58Z", "1969-12-31T23:59:58Z"),
    ] {
        let given: Timestamp = given.parse().expect("a time");
        assert_eq!(time(given).0.to_string(), written, "{given}");
    }
}
