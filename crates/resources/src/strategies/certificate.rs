//! CertificateSigningRequests, which are changed in two ways: approved, and signed.
//!
//! Source: `pkg/registry/certificates/certificates/strategy.go`.

use jiff::Timestamp;
use machinery::field::FieldErrors;
use machinery::metadata;
use serde_json::{Value, json};

use super::CERTIFICATE_SIGNING_REQUEST;
use crate::resource::Resource;
use crate::validation as v;

/// Prepares a write to `/approval`, in place: it changes the conditions and nothing else of the status.
pub fn approve(new: &mut Value, old: &Value, now: Timestamp) {
    populate_times(new, old, now);
    let conditions = new.pointer("/status/conditions").cloned().unwrap_or_else(|| json!([]));
    let mut status = old.get("status").cloned().unwrap_or_else(|| json!({}));
    status["conditions"] = conditions;
    if let Some(map) = new.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
    let only_metadata_and_status =
        crate::Strategy { prepare_for_status_update: |_, _, _| (), ..CERTIFICATE_SIGNING_REQUEST };
    only_metadata_and_status.begin_status_update(new, old, now);
}

/// Every broken rule of a write to `/approval`, metadata included.
pub fn validate_approval(resource: &Resource, new: &Value, old: &Value) -> FieldErrors {
    let mut errors = v::metadata::update(resource, new, old);
    errors.extend(v::certificates::request_approval(new, old));
    errors
}

/// A signer changes its own conditions; the approver's are as they were, unless their number is not.
pub(super) fn status_update(new: &mut Value, old: &Value, now: Timestamp) {
    for kind in ["Approved", "Denied"] {
        keep_conditions(kind, new, old);
    }
    populate_times(new, old, now);
}

fn conditions(request: &Value) -> impl Iterator<Item = &Value> {
    request.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

fn keep_conditions(kind: &str, new: &mut Value, old: &Value) {
    let kept: Vec<_> = conditions(old).filter(|condition| condition["type"] == kind).collect();
    if conditions(new).filter(|condition| condition["type"] == kind).count() != kept.len() {
        return;
    }
    let list = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    let of_kind = list.into_iter().flatten().filter(|condition| condition["type"] == kind);
    for (condition, kept) in of_kind.zip(kept) {
        *condition = kept.clone();
    }
}

/// Sets the times that conditions lack; a condition that stays as it was keeps that of its last transition.
fn populate_times(new: &mut Value, old: &Value, now: Timestamp) {
    let now = metadata::time(now);
    let list = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in list.into_iter().flatten() {
        let since = conditions(old)
            .filter(|had| had["type"] == condition["type"] && had["status"] == condition["status"])
            .find_map(|had| had["lastTransitionTime"].as_str())
            .unwrap_or(&now)
            .to_owned();
        let Some(map) = condition.as_object_mut() else { continue };
        for (field, time) in [("lastUpdateTime", now.clone()), ("lastTransitionTime", since)] {
            let slot = map.entry(field).or_insert(Value::Null);
            if slot.is_null() {
                *slot = time.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: &str = "2025-01-01T00:00:01Z";
    const NOW: &str = "2025-01-01T00:00:07Z";

    fn condition(kind: &str, reason: &str, time: &str) -> Value {
        json!({"type": kind, "status": "True", "reason": reason, "lastUpdateTime": time, "lastTransitionTime": time})
    }

    fn request(conditions: Value) -> Value {
        json!({"metadata": {"name": "r", "uid": "u"}, "spec": {"signerName": "a.b/c"},
            "status": {"conditions": conditions, "certificate": "eA=="}})
    }

    #[test]
    fn an_approval_changes_conditions_only_and_says_when() {
        let old = request(json!([condition("Approved", "a", THEN)]));
        let mut new = request(json!([
            {"type": "Approved", "status": "True", "reason": "b"}, {"type": "Other", "status": "True", "reason": "c"}]));
        new["status"]["certificate"] = "eQ==".into();
        new["spec"]["signerName"] = "other.example/c".into();
        approve(&mut new, &old, NOW.parse().unwrap());
        let mut approved = condition("Approved", "b", NOW);
        approved["lastTransitionTime"] = THEN.into();
        assert_eq!(new, request(json!([approved, condition("Other", "c", NOW)])));
    }

    #[test]
    fn a_signer_leaves_the_approval_as_it_is() {
        let old = request(json!([condition("Approved", "a", THEN)]));
        let mut new = request(
            json!([{"type": "Failed", "status": "True", "reason": "b"}, {"type": "Approved", "status": "Unknown"}]),
        );
        status_update(&mut new, &old, NOW.parse().unwrap());
        assert_eq!(
            new["status"]["conditions"],
            json!([condition("Failed", "b", NOW), condition("Approved", "a", THEN)])
        );
    }
}
