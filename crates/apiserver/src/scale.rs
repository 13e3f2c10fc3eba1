//! The `autoscaling/v1` Scale of an object: what autoscalers, and those who watch over them, see of it.

use machinery::labels;
use machinery::metadata::Metadata;
use resources::ScalePaths;
use serde_json::{Value, json};

/// The Scale of an object whose parts are at these places.
pub fn of(paths: &ScalePaths, object: &Value) -> Value {
    let metadata = Metadata::of(object);
    let replicas = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut status = json!({"replicas": replicas(&paths.status_replicas)});
    if let Some(selector) =
        selector_text(object.pointer(&paths.selector).filter(|_| !paths.selector.is_empty()))
    {
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
        "spec": {"replicas": replicas(&paths.spec_replicas)},
        "status": status,
    })
}

/// Gives an object the replicas of a Scale.
pub fn put(paths: &ScalePaths, object: &mut Value, scale: &Value) {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    set(object, &paths.spec_replicas, replicas.into());
}

/// Writes a field, and the objects on the way to it that are not there.
pub fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for name in pointer.split('/').skip(1) {
        let name = name.replace("~1", "/").replace("~0", "~");
        let Some(fields) = at.as_object_mut() else { return };
        at = fields.entry(name).or_insert_with(|| json!({}));
    }
    *at = value;
}

/// The selector as text, as which custom kinds have it; ReplicationControllers have a plain map.
fn selector_text(selector: Option<&Value>) -> Option<String> {
    let selector = selector?;
    if let Some(text) = selector.as_str() {
        return (!text.is_empty()).then(|| text.to_owned());
    }
    let is_label_selector =
        selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
    if is_label_selector {
        return labels::Selector::from_label_selector(Some(selector)).ok().map(|s| s.to_string());
    }
    Some(labels::Selector::from_labels(selector.as_object()?).to_string())
}
