//! Updates that only say that something is alive.

use serde_json::Value;

/// A kubelet that has nothing new to say renews `lastHeartbeatTime` of its Node's conditions, every five minutes.
pub(super) fn node(new: &Value, old: &Value) -> bool {
    new != old && without_beats(new) == without_beats(old)
}

/// The object without its heartbeats, and without who wrote what when.
fn without_beats(node: &Value) -> Value {
    let mut node = node.clone();
    let conditions = node.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove("lastHeartbeatTime");
    }
    if let Some(metadata) = node.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    node
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_times_of_heartbeats_make_a_heartbeat() {
        let node_at = |time: &str, ready: &str| {
            json!({
                "metadata": {"name": "one", "resourceVersion": time, "managedFields": [{"time": time}]},
                "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": time}]},
            })
        };
        let before = node_at("2026-01-01T12:00:00Z", "True");
        assert!(node(&node_at("2026-01-01T12:05:00Z", "True"), &before));
        assert!(!node(&node_at("2026-01-01T12:05:00Z", "False"), &before));
        assert!(!node(&before, &before), "nothing to write");
        let mut labelled = node_at("2026-01-01T12:05:00Z", "True");
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert!(!node(&labelled, &before));
    }
}
