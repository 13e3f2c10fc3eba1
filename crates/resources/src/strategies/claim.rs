//! The data sources of a PersistentVolumeClaim.
//!
//! `dataSource` and `dataSourceRef` say the same; the older knows claims and snapshots only.
//! Source: `pkg/api/persistentvolumeclaim/util.go`, KEP-1495, KEP-3294.

use serde_json::{Map, Value, json};

use super::prepare::child;

/// Settles the sources of a new claim, which is pending.
pub(super) fn create(claim: &mut Value) {
    if let Some(map) = claim.as_object_mut() {
        map.insert("status".to_owned(), json!({"phase": "Pending"}));
    }
    settle(claim, None);
}

/// Settles the sources of a changed claim.
pub(super) fn update(new: &mut Value, old: &Value) {
    settle(new, old.get("spec"));
}

fn is_set(spec: &Map<String, Value>, field: &str) -> bool {
    spec.get(field).is_some_and(|value| !value.is_null())
}

fn settle(claim: &mut Value, old: Option<&Value>) {
    let had = |field: &str| old.and_then(|old| old.get(field)).is_some_and(|value| !value.is_null());
    let Some(spec) = child(claim, "spec") else { return };
    // Sources in other namespaces come with the gate CrossNamespaceVolumeDataSource.
    let namespace = spec.get("dataSourceRef").and_then(|source| source.get("namespace")?.as_str());
    let is_foreign = namespace.is_some_and(|namespace| !namespace.is_empty());
    if is_foreign && !had("dataSourceRef") {
        spec.remove("dataSourceRef");
    }
    let is_new = old.is_none();
    let is_known = spec.get("dataSource").is_some_and(is_claim_or_snapshot);
    if is_new && is_set(spec, "dataSource") && !is_set(spec, "dataSourceRef") && !is_known {
        spec.remove("dataSource");
    }
    match (is_set(spec, "dataSource"), is_set(spec, "dataSourceRef")) {
        (true, false) => copy(spec, "dataSource", "dataSourceRef"),
        (false, true) if !is_foreign => copy(spec, "dataSourceRef", "dataSource"),
        _ => {}
    }
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    let text = |field: &str| source.get(field).and_then(Value::as_str).unwrap_or_default();
    matches!(
        (text("apiGroup"), text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

fn copy(spec: &mut Map<String, Value>, from: &str, to: &str) {
    let mut copy = spec.get(from).cloned().unwrap_or_default();
    if let Some(copy) = copy.as_object_mut() {
        copy.remove("namespace");
    }
    spec.insert(to.to_owned(), copy);
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(spec: &str, expect: Expect) {
        let spec: Value = serde_saphyr::from_str(spec).unwrap();
        let mut claim = json!({"spec": spec});
        create(&mut claim);
        expect.assert_eq(&claim["spec"].to_string());
    }

    #[test]
    fn each_source_says_what_the_other_does() {
        check(
            "{dataSource: {kind: PersistentVolumeClaim, name: a}}",
            expect![[
                r#"{"dataSource":{"kind":"PersistentVolumeClaim","name":"a"},"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"a"}}"#
            ]],
        );
        check(
            "{dataSourceRef: {apiGroup: a.b, kind: K, name: a}}",
            expect![[
                r#"{"dataSource":{"apiGroup":"a.b","kind":"K","name":"a"},"dataSourceRef":{"apiGroup":"a.b","kind":"K","name":"a"}}"#
            ]],
        );
    }

    #[test]
    fn what_a_new_claim_may_not_say_is_dropped() {
        check("{dataSource: {apiGroup: a.b, kind: K, name: a}}", expect!["{}"]);
        check("{dataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: other}}", expect!["{}"]);
    }
}
