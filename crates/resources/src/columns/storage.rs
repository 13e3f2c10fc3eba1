//! Volumes and `storage`; also `resource`.

use serde_json::Value;

use super::{AGE, Column, NAME, boolean, column, flag, integer, joined, len, list, text, text_or, wide};

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
    column("Capacity", |o, _| text(o, "/spec/capacity/storage").into()),
    column("Access Modes", |o, _| access_modes(o, "/spec/accessModes").into()),
    column("Reclaim Policy", |o, _| text(o, "/spec/persistentVolumeReclaimPolicy").into()),
    column("Status", |o, _| phase(o).into()),
    column("Claim", |o, _| match text(o, "/spec/claimRef/name") {
        "" => "".into(),
        name => format!("{}/{name}", text(o, "/spec/claimRef/namespace")).into(),
    }),
    column("StorageClass", |o, _| class_of(o).into()),
    column("VolumeAttributesClass", |o, _| text_or(o, "/spec/volumeAttributesClassName", "<unset>").into()),
    column("Reason", |o, _| text(o, "/status/reason").into()),
    AGE,
    wide("VolumeMode", |o, _| text_or(o, "/spec/volumeMode", "<unset>").into()),
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
    column("Status", |o, _| phase(o).into()),
    column("Volume", |o, _| text(o, "/spec/volumeName").into()),
    column("Capacity", |o, _| match text(o, "/spec/volumeName") {
        "" => "".into(),
        _ => text(o, "/status/capacity/storage").into(),
    }),
    column("Access Modes", |o, _| match text(o, "/spec/volumeName") {
        "" => "".into(),
        _ => access_modes(o, "/status/accessModes").into(),
    }),
    column("StorageClass", |o, _| class_of(o).into()),
    column("VolumeAttributesClass", |o, _| text_or(o, "/spec/volumeAttributesClassName", "<unset>").into()),
    AGE,
    wide("VolumeMode", |o, _| text_or(o, "/spec/volumeMode", "<unset>").into()),
];

/// StorageClasses.
pub const STORAGE_CLASS: &[Column] = &[
    column("Name", |o, _| class_name(o).into()).of("string", "name"),
    column("Provisioner", |o, _| text(o, "/provisioner").into()),
    column("ReclaimPolicy", |o, _| text_or(o, "/reclaimPolicy", "Delete").into()),
    column("VolumeBindingMode", |o, _| text_or(o, "/volumeBindingMode", "Immediate").into()),
    column("AllowVolumeExpansion", |o, _| flag(o, "/allowVolumeExpansion").into()),
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
pub const VOLUME_ATTRIBUTES_CLASS: &[Column] =
    &[NAME, column("DriverName", |o, _| text(o, "/driverName").into()), AGE];

/// VolumeAttachments.
pub const VOLUME_ATTACHMENT: &[Column] = &[
    NAME,
    column("Attacher", |o, _| text(o, "/spec/attacher").into()).of("string", "name"),
    column("PV", |o, _| text(o, "/spec/source/persistentVolumeName").into()),
    column("Node", |o, _| text(o, "/spec/nodeName").into()),
    boolean("Attached", |o, _| flag(o, "/status/attached").into()),
    AGE,
];

/// CSIDrivers.
pub const CSI_DRIVER: &[Column] = &[
    NAME,
    boolean("AttachRequired", |o, _| flag(o, "/spec/attachRequired").into()),
    boolean("PodInfoOnMount", |o, _| flag(o, "/spec/podInfoOnMount").into()),
    boolean("StorageCapacity", |o, _| flag(o, "/spec/storageCapacity").into()),
    column("TokenRequests", |o, _| {
        joined(list(o, "/spec/tokenRequests").iter().map(|t| text(t, "/audience")), "<unset>").into()
    }),
    boolean("RequiresRepublish", |o, _| flag(o, "/spec/requiresRepublish").into()),
    column("Modes", |o, _| {
        joined(list(o, "/spec/volumeLifecycleModes").iter().filter_map(Value::as_str), "<none>").into()
    }),
    AGE,
];

/// CSINodes.
pub const CSI_NODE: &[Column] = &[NAME, integer("Drivers", |o, _| len(o, "/spec/drivers").into()), AGE];

/// CSIStorageCapacities.
pub const CSI_STORAGE_CAPACITY: &[Column] = &[
    NAME,
    column("StorageClassName", |o, _| text(o, "/storageClassName").into()),
    column("Capacity", |o, _| text_or(o, "/capacity", "<unset>").into()),
];

/// ResourceClaims.
pub const RESOURCE_CLAIM: &[Column] = &[NAME, column("State", |o, _| claim_state(o).into()), AGE];

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
    column("Node", |o, _| text(o, "/spec/nodeName").into()),
    column("Driver", |o, _| text(o, "/spec/driver").into()),
    column("Pool", |o, _| text(o, "/spec/pool/name").into()),
    AGE,
];
