//! `storage` and `resource` (dynamic resource allocation).

use machinery::features::Feature;

use crate::columns as c;
use crate::fields;
use crate::resource::{Resource, STATUS, Scope};
use crate::strategies as s;

const STORAGE: (&str, &str) = ("storage.k8s.io", "v1");

const fn cluster(plural: &'static str, singular: &'static str, kind: &'static str) -> Resource {
    Resource::new(STORAGE, plural, singular, kind, Scope::Cluster)
}

const fn attributes_class(version: &'static str) -> Resource {
    Resource::new(
        ("storage.k8s.io", version),
        "volumeattributesclasses",
        "volumeattributesclass",
        "VolumeAttributesClass",
        Scope::Cluster,
    )
    .short(&["vac"])
    .stored_as("storage.k8s.io/v1", None)
    .strategy(&s::VOLUME_ATTRIBUTES_CLASS)
    .columns(c::VOLUME_ATTRIBUTES_CLASS)
}

const fn dra(
    version: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    scope: Scope,
) -> Resource {
    Resource::new(("resource.k8s.io", version), plural, singular, kind, scope)
}

const fn device_class(version: &'static str) -> Resource {
    dra(version, "deviceclasses", "deviceclass", "DeviceClass", Scope::Cluster).strategy(&s::DEVICE_CLASS)
}

const fn claim(version: &'static str) -> Resource {
    dra(version, "resourceclaims", "resourceclaim", "ResourceClaim", Scope::Namespaced)
        .sub(&[STATUS])
        .strategy(&s::RESOURCE_CLAIM)
        .columns(c::RESOURCE_CLAIM)
}

const fn claim_template(version: &'static str) -> Resource {
    dra(
        version,
        "resourceclaimtemplates",
        "resourceclaimtemplate",
        "ResourceClaimTemplate",
        Scope::Namespaced,
    )
    .strategy(&s::RESOURCE_CLAIM_TEMPLATE)
}

const fn slice(version: &'static str) -> Resource {
    dra(version, "resourceslices", "resourceslice", "ResourceSlice", Scope::Cluster)
        .fields(fields::RESOURCE_SLICE)
        .strategy(&s::RESOURCE_SLICE)
        .columns(c::RESOURCE_SLICE)
}

/// The rows of this file.
pub(super) const ROWS: &[Resource] = &[
    cluster("csidrivers", "csidriver", "CSIDriver").strategy(&s::CSI_DRIVER).columns(c::CSI_DRIVER),
    cluster("csinodes", "csinode", "CSINode").strategy(&s::CSI_NODE).columns(c::CSI_NODE),
    Resource::new(
        STORAGE,
        "csistoragecapacities",
        "csistoragecapacity",
        "CSIStorageCapacity",
        Scope::Namespaced,
    )
    .strategy(&s::CSI_STORAGE_CAPACITY)
    .columns(c::CSI_STORAGE_CAPACITY),
    cluster("storageclasses", "storageclass", "StorageClass")
        .short(&["sc"])
        .strategy(&s::STORAGE_CLASS)
        .columns(c::STORAGE_CLASS),
    cluster("volumeattachments", "volumeattachment", "VolumeAttachment")
        .sub(&[STATUS])
        .strategy(&s::VOLUME_ATTACHMENT)
        .columns(c::VOLUME_ATTACHMENT),
    attributes_class("v1"),
    attributes_class("v1beta1").off(),
    device_class("v1"),
    claim("v1"),
    claim_template("v1"),
    slice("v1"),
    // The older versions name some fields otherwise; they are off, and each is kept as it was written.
    device_class("v1beta2").off(),
    claim("v1beta2").off(),
    claim_template("v1beta2").off(),
    slice("v1beta2").off(),
    device_class("v1beta1").off(),
    claim("v1beta1").off(),
    claim_template("v1beta1").off(),
    slice("v1beta1").off(),
    dra("v1alpha3", "devicetaintrules", "devicetaintrule", "DeviceTaintRule", Scope::Cluster)
        .sub(&[STATUS])
        .strategy(&s::DEVICE_TAINT_RULE)
        .columns(c::DEVICE_TAINT_RULE)
        .gated(Feature::DraDeviceTaintRules),
];
