//! The `autoscaling/v1` Scale of an object: what autoscalers, and those who watch over them, see of it.

use machinery::labels;
use machinery::metadata::Metadata;
use serde_json::{Value, json};

/// The Scale of an object with `spec.replicas`, `spec.selector` and `status.replicas`.
pub fn of(object: &Value) -> Value {
    let metadata = Metadata::of(object);
    let replicas = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut status = json!({"replicas": replicas("/status/replicas")});
    if let Some(selector) = selector_text(object.pointer("/spec/selector")) {
        status["selector"] = selector.into();
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata.name(),
            "namespace": metadata.namespace(),
            "uid": metadata.uid(),
            "resourceVersion": metadata.resource_version(),
            "creationTimestamp": metadata.get("creationTimestamp").cloned().unwrap_or_default(),
        },
        "spec": {"replicas": replicas("/spec/replicas")},
        "status": status,
    })
}

/// Gives an object the replicas of a Scale.
pub fn put(object: &mut Value, scale: &Value) {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("replicas".to_owned(), replicas.into());
    }
}

/// The selector as text; ReplicationControllers have a plain map.
fn selector_text(selector: Option<&Value>) -> Option<String> {
    let selector = selector?;
    let is_label_selector =
        selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
    if is_label_selector {
        return labels::Selector::from_label_selector(Some(selector)).ok().map(|s| s.to_string());
    }
    Some(labels::Selector::from_labels(selector.as_object()?).to_string())
}
