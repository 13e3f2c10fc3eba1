//! Since when a PersistentVolume is in its phase.
//!
//! Source: `pkg/registry/core/persistentvolume/strategy.go`, KEP-3762.

use jiff::Timestamp;
use machinery::metadata;
use serde_json::{Value, json};

use super::prepare::child;

const SINCE: &str = "lastPhaseTransitionTime";

/// A new volume is pending since it was made.
pub(super) fn create(volume: &mut Value) {
    let mut status = json!({"phase": "Pending"});
    if let Some(now) = volume.pointer("/metadata/creationTimestamp") {
        status[SINCE] = now.clone();
    }
    if let Some(map) = volume.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
}

/// A writer that says nothing new about the time has it kept, or set with the phase.
pub(super) fn status_update(new: &mut Value, old: &Value, now: Timestamp) {
    let text = |status: Option<&Value>, field: &str| {
        status.and_then(|status| status.get(field)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let was = old.get("status");
    let Some(status) = child(new, "status") else { return };
    let said = status.get(SINCE).filter(|time| !time.is_null()).cloned();
    let phase = status.get("phase").and_then(Value::as_str).unwrap_or_default();
    let had = was.and_then(|was| was.get(SINCE));
    if phase != text(was, "phase") {
        if said.is_none() || said.as_ref() == had {
            status.insert(SINCE.to_owned(), metadata::time(now).into());
        }
    } else if let (None, Some(had)) = (said, had) {
        status.insert(SINCE.to_owned(), had.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(old: Value, new: Value, expect: Value) {
        let mut volume = json!({"status": new});
        status_update(&mut volume, &json!({"status": old}), "2025-01-01T00:00:07Z".parse().unwrap());
        assert_eq!(volume["status"], expect);
    }

    #[test]
    fn the_time_changes_with_the_phase() {
        let bound = json!({"phase": "Bound", "lastPhaseTransitionTime": "2025-01-01T00:00:01Z"});
        check(bound.clone(), json!({"phase": "Bound"}), bound.clone());
        let now = json!({"phase": "Released", "lastPhaseTransitionTime": "2025-01-01T00:00:07Z"});
        check(bound.clone(), json!({"phase": "Released"}), now.clone());
        let mut stale = bound.clone();
        stale["phase"] = "Released".into();
        check(bound.clone(), stale, now);
    }

    #[test]
    fn a_writer_may_set_the_time() {
        let bound = json!({"phase": "Bound", "lastPhaseTransitionTime": "2025-01-01T00:00:01Z"});
        let own = json!({"phase": "Failed", "lastPhaseTransitionTime": "2024-01-01T00:00:00Z"});
        check(bound, own.clone(), own);
    }

    #[test]
    fn a_new_volume_is_pending_since_it_was_made() {
        let mut volume = json!({"metadata": {"creationTimestamp": "2025-01-01T00:00:01Z"}});
        create(&mut volume);
        let expect = json!({"phase": "Pending", "lastPhaseTransitionTime": "2025-01-01T00:00:01Z"});
        assert_eq!(volume["status"], expect);
    }
}
