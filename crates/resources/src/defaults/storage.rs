//! `storage` and `resource`.

use serde_json::{Map, Value, json};

use super::{Row, absent, each_quantity, quantity, text, unset};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("io.k8s.api.storage.v1.StorageClass", storage_class),
    ("io.k8s.api.storage.v1.CSIDriverSpec", csi_driver),
    ("io.k8s.api.storage.v1.CSIStorageCapacity", |m| {
        ["capacity", "maximumVolumeSize"].iter().for_each(|name| quantity(m, name));
    }),
    ("io.k8s.api.resource.v1.CapacityRequestPolicy", |m| {
        quantity(m, "default");
        each_quantity(m, "validValues");
    }),
    ("io.k8s.api.resource.v1.CapacityRequestPolicyRange", |m| {
        ["max", "min", "step"].iter().for_each(|name| quantity(m, name));
    }),
    ("io.k8s.api.resource.v1.CapacityRequirements", |m| each_quantity(m, "requests")),
    ("io.k8s.api.resource.v1.Counter", |m| quantity(m, "value")),
    ("io.k8s.api.resource.v1.DeviceCapacity", |m| quantity(m, "value")),
    ("io.k8s.api.resource.v1.DeviceRequestAllocationResult", |m| each_quantity(m, "consumedCapacity")),
    ("io.k8s.api.resource.v1.ExactDeviceRequest", device_request),
    ("io.k8s.api.resource.v1.DeviceSubRequest", device_request),
    ("io.k8s.api.resource.v1.DeviceToleration", |m| unset(m, "operator", "Equal")),
];

fn storage_class(class: &mut Map<String, Value>) {
    absent(class, "reclaimPolicy", "Delete");
    absent(class, "volumeBindingMode", "Immediate");
}

fn csi_driver(spec: &mut Map<String, Value>) {
    absent(spec, "attachRequired", true);
    absent(spec, "podInfoOnMount", false);
    absent(spec, "storageCapacity", false);
    absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    absent(spec, "volumeLifecycleModes", json!(["Persistent"]));
    absent(spec, "requiresRepublish", false);
    absent(spec, "seLinuxMount", false);
}

fn device_request(request: &mut Map<String, Value>) {
    unset(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        unset(request, "count", 1);
    }
}
