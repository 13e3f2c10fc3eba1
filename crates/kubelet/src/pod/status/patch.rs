//! The difference between two statuses, as a strategic merge patch.
//!
//! Only changed fields are sent, and of the conditions only changed ones, so that conditions of others that
//! the informer has not shown yet stay. Only those that are ours alone and there for a while are taken away.

use serde_json::{Map, Value, json};

use super::conditions::RESIZE;

/// The patch that makes `new` out of `old`; `None` if they are equal. `uid` guards against a namesake.
pub fn status_patch(uid: &str, old: &Value, new: &Value) -> Option<Value> {
    let empty = Map::new();
    let old = old.as_object().unwrap_or(&empty);
    let new = new.as_object().unwrap_or(&empty);
    let mut status = Map::new();
    for (key, value) in new {
        if old.get(key) != Some(value) {
            status.insert(key.clone(), field_patch(key, old.get(key), value));
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        status.insert(key.clone(), Value::Null);
    }
    (!status.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": status}))
}

fn field_patch(key: &str, old: Option<&Value>, new: &Value) -> Value {
    let Some(items) = new.as_array() else { return new.clone() };
    match key {
        "conditions" => {
            let before = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let changed = items.iter().filter(|item| !before.contains(item)).map(|item| {
                let same_type = before.iter().find(|b| b["type"] == item["type"]);
                with_nulls(same_type, item)
            });
            let is_gone = |item: &&Value| {
                let is_ours = RESIZE.iter().any(|type_| item["type"] == *type_);
                is_ours && items.iter().all(|new| new["type"] != item["type"])
            };
            let gone =
                before.iter().filter(is_gone).map(|item| json!({"type": item["type"], "$patch": "delete"}));
            Value::Array(changed.chain(gone).collect())
        }
        // Merged by `ip` otherwise, which would keep addresses that are gone.
        "podIPs" | "hostIPs" if old.is_some() => {
            let mut list = vec![json!({"$patch": "replace"})];
            list.extend(items.iter().cloned());
            Value::Array(list)
        }
        _ => new.clone(),
    }
}

/// `new`, with a null for each field that only `old` has.
fn with_nulls(old: Option<&Value>, new: &Value) -> Value {
    let mut merged = new.clone();
    if let (Some(old), Some(map)) = (old.and_then(Value::as_object), merged.as_object_mut()) {
        for key in old.keys() {
            map.entry(key.clone()).or_insert(Value::Null);
        }
    }
    merged
}
