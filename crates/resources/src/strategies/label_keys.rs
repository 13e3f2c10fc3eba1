//! `matchLabelKeys` and `mismatchLabelKeys`: a new Pod's own labels join the selectors that name them.
//!
//! The selector that is stored says it all, so nobody who reads it needs to know the keys.
//! Source: `pkg/registry/core/pod/strategy.go`, KEP-3633, KEP-3243.

use serde_json::{Map, Value, json};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Adds to the selectors of a new Pod what their label keys stand for.
pub(super) fn join(pod: &mut Value) {
    let labels = pod.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
    if labels.is_empty() {
        return;
    }
    for constraint in items(pod, "/spec/topologySpreadConstraints") {
        join_one(constraint, &labels);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for preference in items(pod, &format!("/spec/affinity/{kind}/{PREFERRED}")) {
            if let Some(term) = preference.get_mut("podAffinityTerm") {
                join_one(term, &labels);
            }
        }
        for term in items(pod, &format!("/spec/affinity/{kind}/{REQUIRED}")) {
            join_one(term, &labels);
        }
    }
}

fn items<'a>(pod: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    pod.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

/// A term without a selector selects nothing, and stays so.
fn join_one(term: &mut Value, labels: &Map<String, Value>) {
    let mut rules: Vec<Value> = Vec::new();
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term.get(list).and_then(Value::as_array).into_iter().flatten();
        let own = keys.filter_map(|key| Some((key, labels.get(key.as_str()?)?)));
        rules.extend(own.map(|(key, value)| json!({"key": key, "operator": operator, "values": [value]})));
    }
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    if rules.is_empty() {
        return;
    }
    let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
    if expressions.is_null() {
        *expressions = json!([]);
    }
    if let Some(expressions) = expressions.as_array_mut() {
        expressions.extend(rules);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &str, pointer: &str, expect: Value) {
        let spec: Value = serde_saphyr::from_str(spec).unwrap();
        let mut pod = json!({"metadata": {"labels": {"app": "web", "hash": "1"}}, "spec": spec});
        join(&mut pod);
        assert_eq!(pod["spec"].pointer(pointer), Some(&expect));
    }

    #[test]
    fn a_constraint_selects_pods_with_the_same_values() {
        check(
            "{topologySpreadConstraints: [{labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [hash, absent]}]}",
            "/topologySpreadConstraints/0/labelSelector",
            json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}]}),
        );
    }

    #[test]
    fn a_term_selects_pods_with_the_same_and_with_other_values() {
        check(
            "{affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: \
             {labelSelector: {}, matchLabelKeys: [hash], mismatchLabelKeys: [app]}}]}}}",
            "/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm/labelSelector",
            json!({"matchExpressions": [
                {"key": "hash", "operator": "In", "values": ["1"]},
                {"key": "app", "operator": "NotIn", "values": ["web"]},
            ]}),
        );
    }

    #[test]
    fn a_term_without_a_selector_stays_without() {
        check(
            "{affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{matchLabelKeys: [hash]}]}}}",
            "/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0",
            json!({"matchLabelKeys": ["hash"]}),
        );
    }
}
