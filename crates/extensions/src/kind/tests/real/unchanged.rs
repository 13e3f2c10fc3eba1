//! What of an object that does not change is known to be the same: what is wrong there may stay.
//!
//! Source: `CorrelatedObject` and `MakeMapList` of `k8s.io/apiserver/pkg/cel/common`.

use serde_json::Value;

/// Whether something on the way to a place is known to be the same, or the place itself. Places are written as in messages.
pub(super) fn stays(schema: &Value, value: &Value, place: &str) -> bool {
    let place = place.replace('[', ".[");
    let (mut schema, mut value) = (schema, value);
    let mut steps = place.split('.').filter(|step| !step.is_empty());
    loop {
        if is_same(schema, value) {
            return true;
        }
        let Some(step) = steps.next() else { return false };
        let index = step.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')?.parse::<usize>().ok());
        let below = match index {
            Some(index) => is_keyed(schema, &value[index]).then(|| (&schema["items"], &value[index])),
            None => field(schema, step).map(|schema| (schema, &value[step])),
        };
        let Some(next) = below else { return false };
        (schema, value) = next;
    }
}

fn is_same(schema: &Value, value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| field(schema, name).is_some_and(|schema| is_same(schema, value))),
        Value::Array(items) if schema["x-kubernetes-list-type"] == "map" => {
            items.iter().all(|item| is_keyed(schema, item) && is_same(&schema["items"], item))
        }
        _ => true,
    }
}

fn field<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let properties = schema["properties"].get(name);
    properties.or_else(|| schema.get("additionalProperties").filter(|entries| entries.is_object()))
}

/// Whether an item can be found in a list of before.
fn is_keyed(list: &Value, item: &Value) -> bool {
    let keys =
        list["x-kubernetes-list-map-keys"].as_array().filter(|_| list["x-kubernetes-list-type"] == "map");
    let is_scalar = |value: &Value| !(value.is_null() || value.is_array() || value.is_object());
    keys.is_some_and(|keys| keys.iter().all(|key| key.as_str().is_some_and(|key| is_scalar(&item[key]))))
}
