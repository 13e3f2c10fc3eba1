//! Volumes and `storage`; also `resource`.

use serde_json::Value;

use super::{
    AGE, Column, NAME, boolean, column, flag, integer, joined, len, list, since, text, text_or, wide,
};

fn access_modes(object: &Value, pointer: &str) -> String {
    let modes = list(object, pointer).iter().filter_map(Value::as_str);
    joined(
        modes.filter_map(|mode| match mode {
            "ReadWriteOnce" => Some("RWO"),
            "ReadOnlyMany" => Some("ROX"),
            "ReadWriteMany" => Some("RWX"),
            "ReadWriteOncePod" => Some("RWOP"),
            _ => None,
        }),
        "",
    )
}

/// PersistentVolumes.
pub const PERSISTENT_VOLUME: &[Column] = &[
    NAME,
    column("Capacity", |o, _| text(o, "/spec/capacity/storage").into())
        .of("io.k8s.api.core.v1.PersistentVolumeSpec", "capacity"),
    column("Access Modes", |o, _| access_modes(o, "/spec/accessModes").into())
        .of("io.k8s.api.core.v1.PersistentVolumeSpec", "accessModes"),
    column("Reclaim Policy", |o, _| text(o, "/spec/persistentVolumeReclaimPolicy").into())
        .of("io.k8s.api.core.v1.PersistentVolumeSpec", "persistentVolumeReclaimPolicy"),
    column("Status", |o, _| phase(o).into()).of("io.k8s.api.core.v1.PersistentVolumeStatus", "phase"),
    column("Claim", |o, _| match text(o, "/spec/claimRef/name") {
        "" => "".into(),
        name => format!("{}/{name}", text(o, "/spec/claimRef/namespace")).into(),
    })
    .of("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef"),
    column("StorageClass", |o, _| class_of(o).into()).says("StorageClass of the pv"),
    column("VolumeAttributesClass", |o, _| text_or(o, "/spec/volumeAttributesClassName", "<unset>").into())
        .says("VolumeAttributesClass of the pv"),
    column("Reason", |o, _| text(o, "/status/reason").into())
        .of("io.k8s.api.core.v1.PersistentVolumeStatus", "reason"),
    AGE,
    wide("VolumeMode", |o, _| text_or(o, "/spec/volumeMode", "<unset>").into())
        .of("io.k8s.api.core.v1.PersistentVolumeSpec", "volumeMode"),
];

/// The class of a volume or claim; an old annotation goes before the field.
fn class_of(object: &Value) -> &str {
    const BETA: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
    match object.pointer(BETA).and_then(Value::as_str) {
        Some(class) => class,
        None => text(object, "/spec/storageClassName"),
    }
}

fn phase(object: &Value) -> &str {
    if machinery::metadata::Metadata::of(object).is_terminating() {
        "Terminating"
    } else {
        text(object, "/status/phase")
    }
}

/// PersistentVolumeClaims.
pub const PERSISTENT_VOLUME_CLAIM: &[Column] = &[
    NAME,
    column("Status", |o, _| phase(o).into()).of("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "phase"),
    column("Volume", |o, _| text(o, "/spec/volumeName").into())
        .of("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "volumeName"),
    column("Capacity", |o, _| match text(o, "/spec/volumeName") {
        "" => "".into(),
        _ => text(o, "/status/capacity/storage").into(),
    })
    .of("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "capacity"),
    column("Access Modes", |o, _| match text(o, "/spec/volumeName") {
        "" => "".into(),
        _ => access_modes(o, "/status/accessModes").into(),
    })
    .of("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "accessModes"),
    column("StorageClass", |o, _| class_of(o).into()).says("StorageClass of the pvc"),
    column("VolumeAttributesClass", |o, _| text_or(o, "/spec/volumeAttributesClassName", "<unset>").into())
        .says("VolumeAttributesClass of the pvc"),
    AGE,
    wide("VolumeMode", |o, _| text_or(o, "/spec/volumeMode", "<unset>").into())
        .of("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "volumeMode"),
];

/// StorageClasses.
pub const STORAGE_CLASS: &[Column] = &[
    column("Name", |o, _| class_name(o).into()).typed("string", "name").of(super::META, "name"),
    column("Provisioner", |o, _| text(o, "/provisioner").into())
        .of("io.k8s.api.storage.v1.StorageClass", "provisioner"),
    column("ReclaimPolicy", |o, _| text_or(o, "/reclaimPolicy", "Delete").into())
        .of("io.k8s.api.storage.v1.StorageClass", "reclaimPolicy"),
    column("VolumeBindingMode", |o, _| text_or(o, "/volumeBindingMode", "Immediate").into())
        .of("io.k8s.api.storage.v1.StorageClass", "volumeBindingMode"),
    column("AllowVolumeExpansion", |o, _| flag(o, "/allowVolumeExpansion").into())
        .of("io.k8s.api.storage.v1.StorageClass", "allowVolumeExpansion"),
    AGE,
];

fn class_name(class: &Value) -> String {
    let is_default = ["storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"]
        .iter()
        .any(|group| text(class, &format!("/metadata/annotations/{group}~1is-default-class")) == "true");
    let name = text(class, "/metadata/name");
    if is_default { format!("{name} (default)") } else { name.to_owned() }
}

/// VolumeAttributesClasses.
pub const VOLUME_ATTRIBUTES_CLASS: &[Column] = &[
    NAME,
    column("DriverName", |o, _| text(o, "/driverName").into())
        .of("io.k8s.api.storage.v1.VolumeAttributesClass", "driverName"),
    AGE,
];

/// VolumeAttachments.
pub const VOLUME_ATTACHMENT: &[Column] = &[
    NAME,
    column("Attacher", |o, _| text(o, "/spec/attacher").into())
        .typed("string", "name")
        .of("io.k8s.api.storage.v1.VolumeAttachmentSpec", "attacher"),
    column("PV", |o, _| text(o, "/spec/source/persistentVolumeName").into())
        .of("io.k8s.api.storage.v1.VolumeAttachmentSource", "persistentVolumeName"),
    column("Node", |o, _| text(o, "/spec/nodeName").into())
        .of("io.k8s.api.storage.v1.VolumeAttachmentSpec", "nodeName"),
    boolean("Attached", |o, _| flag(o, "/status/attached").into())
        .of("io.k8s.api.storage.v1.VolumeAttachmentStatus", "attached"),
    AGE,
];

/// CSIDrivers.
pub const CSI_DRIVER: &[Column] = &[
    NAME,
    boolean("AttachRequired", |o, _| flag(o, "/spec/attachRequired").into())
        .of("io.k8s.api.storage.v1.CSIDriverSpec", "attachRequired"),
    boolean("PodInfoOnMount", |o, _| flag(o, "/spec/podInfoOnMount").into())
        .of("io.k8s.api.storage.v1.CSIDriverSpec", "podInfoOnMount"),
    boolean("StorageCapacity", |o, _| flag(o, "/spec/storageCapacity").into())
        .of("io.k8s.api.storage.v1.CSIDriverSpec", "storageCapacity"),
    column("TokenRequests", |o, _| {
        joined(list(o, "/spec/tokenRequests").iter().map(|t| text(t, "/audience")), "<unset>").into()
    })
    .of("io.k8s.api.storage.v1.CSIDriverSpec", "tokenRequests"),
    boolean("RequiresRepublish", |o, _| flag(o, "/spec/requiresRepublish").into())
        .of("io.k8s.api.storage.v1.CSIDriverSpec", "requiresRepublish"),
    column("Modes", |o, _| {
        joined(list(o, "/spec/volumeLifecycleModes").iter().filter_map(Value::as_str), "<none>").into()
    })
    .of("io.k8s.api.storage.v1.CSIDriverSpec", "volumeLifecycleModes"),
    AGE,
];

/// CSINodes.
pub const CSI_NODE: &[Column] = &[
    NAME,
    integer("Drivers", |o, _| len(o, "/spec/drivers").into())
        .says("Drivers indicates the number of CSI drivers registered on the node"),
    AGE,
];

/// CSIStorageCapacities.
pub const CSI_STORAGE_CAPACITY: &[Column] = &[
    NAME,
    column("StorageClassName", |o, _| text(o, "/storageClassName").into())
        .of("io.k8s.api.storage.v1.CSIStorageCapacity", "storageClassName"),
    column("Capacity", |o, _| text_or(o, "/capacity", "<unset>").into())
        .of("io.k8s.api.storage.v1.CSIStorageCapacity", "capacity"),
];

/// ResourceClaims.
pub const RESOURCE_CLAIM: &[Column] = &[
    NAME,
    column("State", |o, _| claim_state(o).into())
        .says("A summary of the current state (allocated, pending, reserved, etc.)."),
    AGE,
];

fn claim_state(claim: &Value) -> String {
    let mut states = Vec::new();
    if machinery::metadata::Metadata::of(claim).is_terminating() {
        states.push("deleted");
    }
    if claim.pointer("/status/allocation").is_none() {
        if states.is_empty() {
            states.push("pending");
        }
        return states.join(",");
    }
    states.push("allocated");
    // Devices are prepared for a claim that is in use.
    if len(claim, "/status/reservedFor") > 0 {
        states.push("reserved");
    }
    states.join(",")
}

/// ResourceSlices.
pub const RESOURCE_SLICE: &[Column] = &[
    NAME,
    column("Node", |o, _| text(o, "/spec/nodeName").into())
        .of("io.k8s.api.resource.v1.ResourceSliceSpec", "nodeName"),
    column("Driver", |o, _| text(o, "/spec/driver").into())
        .of("io.k8s.api.resource.v1.ResourceSliceSpec", "driver"),
    column("Pool", |o, _| text(o, "/spec/pool/name").into())
        .of("io.k8s.api.resource.v1.ResourcePool", "name"),
    AGE,
];

/// DeviceTaintRules.
pub const DEVICE_TAINT_RULE: &[Column] = &[
    NAME,
    column("Key", |o, _| text(o, "/spec/taint/key").into()).of(DEVICE_TAINT, "key"),
    column("Value", |o, _| text(o, "/spec/taint/value").into()).of(DEVICE_TAINT, "value"),
    column("Effect", |o, _| text(o, "/spec/taint/effect").into()).of(DEVICE_TAINT, "effect"),
    column("TimeAdded", |o, now| match text(o, "/spec/taint/timeAdded") {
        "" => "".into(),
        _ => since(o, "/spec/taint/timeAdded", now).into(),
    })
    .of(DEVICE_TAINT, "timeAdded"),
    AGE,
];

const DEVICE_TAINT: &str = "io.k8s.api.resource.v1.DeviceTaint";
