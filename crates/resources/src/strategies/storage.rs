//! The strategies of volumes, their classes and drivers, and of devices.

use serde_json::Value;

use super::prepare::not_attached;
use super::{claim, volume};
use crate::gated;
use crate::strategy::{FREE_STATUS_ONLY, GENERIC, SPEC, SPEC_AND_STATUS, STATUS_ONLY, Strategy};
use crate::validation as v;

/// PersistentVolumeClaims.
pub const PERSISTENT_VOLUME_CLAIM: Strategy = Strategy {
    prepare_for_create: claim::create,
    prepare_for_update: claim::update,
    validate_create: v::persistent_volume_claim::check,
    validate_update: v::persistent_volume_claim::update,
    validate_status_update: v::persistent_volume_claim::status_update,
    warnings: v::persistent_volume_claim::warnings,
    warnings_on_update: |new, _| v::persistent_volume_claim::warnings(new),
    ..FREE_STATUS_ONLY
};
/// PersistentVolumes.
pub const PERSISTENT_VOLUME: Strategy = Strategy {
    prepare_for_create: volume::create,
    prepare_for_status_update: volume::status_update,
    validate_create: v::persistent_volume::check,
    validate_update: v::persistent_volume::update,
    warnings: v::persistent_volume::warnings,
    warnings_on_update: |new, _| v::persistent_volume::warnings(new),
    ..FREE_STATUS_ONLY
};
/// StorageClasses.
pub const STORAGE_CLASS: Strategy = Strategy {
    validate_create: v::storage::class,
    validate_update: v::storage::class_update,
    warnings: v::storage::class_warnings,
    warnings_on_update: |new, _| v::storage::class_warnings(new),
    ..GENERIC
};
/// VolumeAttributesClasses.
pub const VOLUME_ATTRIBUTES_CLASS: Strategy = Strategy {
    validate_create: v::storage::attributes_class,
    validate_update: v::storage::attributes_class_update,
    ..GENERIC
};
/// VolumeAttachments.
pub const VOLUME_ATTACHMENT: Strategy = Strategy {
    allow_unconditional_update: false,
    prepare_for_create: not_attached,
    validate_create: v::storage::attachment,
    validate_update: v::storage::attachment_update,
    validate_status_update: v::storage::attachment_update,
    ..STATUS_ONLY
};
/// CSIDrivers.
pub const CSI_DRIVER: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::csi::driver,
    validate_update: v::csi::driver_update,
    ..SPEC
};
/// CSINodes.
pub const CSI_NODE: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::csi::node,
    validate_update: v::csi::node_update,
    ..GENERIC
};
/// CSIStorageCapacities.
pub const CSI_STORAGE_CAPACITY: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::csi::capacity,
    validate_update: v::csi::capacity_update,
    ..GENERIC
};
/// DeviceClasses.
pub const DEVICE_CLASS: Strategy = Strategy {
    gated: gated::DEVICE_CLASS,
    validate_create: v::device::class,
    validate_update: v::device::class_update,
    ..SPEC
};
/// ResourceClaims.
pub const RESOURCE_CLAIM: Strategy = Strategy {
    gated: gated::RESOURCE_CLAIM,
    until_on: gated::RESOURCE_CLAIM_UNTIL_ON,
    validate_create: v::device::claim,
    validate_update: v::device::claim_update,
    prepare_for_status_update: |new, old, _| forget_released_devices(new, old),
    validate_status_update: v::device_status::claim,
    ..STATUS_ONLY
};
/// ResourceClaimTemplates.
pub const RESOURCE_CLAIM_TEMPLATE: Strategy = Strategy {
    gated: gated::RESOURCE_CLAIM_TEMPLATE,
    until_on: gated::RESOURCE_CLAIM_TEMPLATE_UNTIL_ON,
    validate_create: v::device::claim_template,
    validate_update: v::device::claim_update,
    ..GENERIC
};
/// ResourceSlices.
pub const RESOURCE_SLICE: Strategy = Strategy {
    gated: gated::RESOURCE_SLICE,
    until_on: gated::RESOURCE_SLICE_UNTIL_ON,
    times: &["spec/devices/*/taints/*/timeAdded"],
    validate_create: v::resource_slice::check,
    warnings: v::resource_slice::warnings,
    warnings_on_update: |new, _| v::resource_slice::warnings(new),
    validate_update: v::resource_slice::update,
    ..SPEC
};

/// DeviceTaintRules.
pub const DEVICE_TAINT_RULE: Strategy = Strategy {
    times: &["spec/taint/timeAdded"],
    validate_create: v::device_taint_rule::check,
    validate_update: v::device_taint_rule::update,
    validate_status_update: v::device_taint_rule::status_update,
    ..SPEC_AND_STATUS
};

/// What a driver said about a device goes with the device, once a claim gives it back.
///
/// Source: `dropDeallocatedStatusDevices`, KEP-4817.
fn forget_released_devices(new: &mut Value, old: &Value) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
