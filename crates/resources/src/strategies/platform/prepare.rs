//! The fields that callers may not set, and those that the server sets, for the kinds of this family.

use serde_json::{Value, json};

fn set_status(object: &mut Value, status: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
}

/// A new Ingress has no load balancer yet.
pub(super) fn no_load_balancer(ingress: &mut Value) {
    set_status(ingress, json!({"loadBalancer": {}}));
}

/// The spec of a request is a record of who asked for what: it stays.
pub(super) fn request_update(new: &mut Value, old: &Value) {
    if let (Some(map), Some(spec)) = (new.as_object_mut(), old.get("spec")) {
        map.insert("spec".to_owned(), spec.clone());
    }
}

/// What a driver said about a device goes with the device, once a claim gives it back.
///
/// Source: `dropDeallocatedStatusDevices`, KEP-4817.
pub(super) fn forget_released_devices(new: &mut Value, old: &Value) {
    let results = |claim: &Value| {
        let list = claim.pointer("/status/allocation/devices/results").and_then(Value::as_array);
        list.into_iter().flatten().map(device_id).collect::<Vec<_>>()
    };
    let (kept, had) = (results(new), results(old));
    let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) else { return };
    let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) else { return };
    devices.retain(|device| {
        let id = device_id(device);
        kept.contains(&id) || !had.contains(&id)
    });
    if devices.is_empty() {
        status.remove("devices");
    }
}

/// Driver, pool and name.
fn device_id(device: &Value) -> [String; 3] {
    ["driver", "pool", "device"]
        .map(|field| device.get(field).and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// The version in which custom resources are stored.
fn stored_version(definition: &Value) -> Option<Value> {
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let stored = versions.iter().find(|version| version.get("storage") == Some(&Value::Bool(true)))?;
    stored.get("name").cloned()
}

/// A new definition has no accepted names yet, and one stored version.
pub(super) fn definition_create(definition: &mut Value) {
    let stored: Vec<_> = stored_version(definition).into_iter().collect();
    let names = json!({"plural": "", "kind": ""});
    set_status(definition, json!({"acceptedNames": names, "conditions": [], "storedVersions": stored}));
}

/// A version that becomes the stored one is remembered.
pub(super) fn definition_update(new: &mut Value, _: &Value) {
    let Some(name) = stored_version(new) else { return };
    let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if let Some(list) = stored.as_array_mut()
        && !list.contains(&name)
    {
        list.push(name);
    }
}

/// An APIService without a Service is served by this API server.
pub(super) fn api_service_create(service: &mut Value) {
    let is_local = service.pointer("/spec/service").is_none_or(Value::is_null);
    let since = service.pointer("/metadata/creationTimestamp").cloned();
    let mut status = json!({});
    if is_local {
        let mut condition = json!({
            "type": "Available",
            "status": "True",
            "reason": "Local",
            "message": "Local APIServices are always available",
        });
        if let Some(since) = since {
            condition["lastTransitionTime"] = since;
        }
        status = json!({"conditions": [condition]});
    }
    set_status(service, status);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_about_a_device_goes_with_it() {
        let device = |name: &str| json!({"driver": "d", "pool": "p", "device": name});
        let claim = |results: Value, devices: Value| json!({"status": {"allocation": {"devices": {"results": results}}, "devices": devices}});
        let old = claim(json!([device("a"), device("b")]), json!([device("a"), device("b")]));
        let mut new = claim(json!([device("a")]), json!([device("a"), device("b"), device("c")]));
        forget_released_devices(&mut new, &old);
        assert_eq!(new["status"]["devices"], json!([device("a"), device("c")]));
        let mut none = json!({"status": {"devices": [device("b")]}});
        forget_released_devices(&mut none, &old);
        assert_eq!(none, json!({"status": {}}));
    }
}
