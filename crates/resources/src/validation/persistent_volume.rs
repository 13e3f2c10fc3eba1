//! PersistentVolumes: their spec, and where the data is.
//!
//! The sources are a table: a field, and the function that checks what is in it.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::fields::same;
use super::persistent_volume_claim::{VOLUME_MODES, access_modes, class_annotation_warnings};
use super::scheduling;
use super::selector::Values;
use super::volume::{self, legacy};
use super::{At, internal};

/// Labels of topology that have newer names.
pub(super) const OLD_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

const RECLAIM_POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];
const ONE_SOURCE: &str = "may not specify more than 1 volume type";
const INLINE: &str = "may not be specified in the context of inline volumes";

type Check = fn(&At<'_>, &mut FieldErrors);

/// Every kind of source, in the order in which upstream looks for them.
pub(crate) const SOURCES: &[(&str, Check)] = &[
    ("hostPath", volume::host_path),
    ("gcePersistentDisk", legacy::gce_disk),
    ("awsElasticBlockStore", legacy::aws_disk),
    ("glusterfs", glusterfs),
    ("flocker", legacy::flocker),
    ("nfs", volume::nfs),
    ("rbd", legacy::rbd),
    ("quobyte", legacy::quobyte),
    ("cephfs", |s, e| required(s, &["monitors"], e)),
    ("iscsi", iscsi),
    ("cinder", |s, e| with_secret(s, "volumeID", e)),
    ("fc", legacy::fibre_channel),
    ("flexVolume", legacy::flex),
    ("azureFile", azure_file),
    ("vsphereVolume", |s, e| required(s, &["volumePath"], e)),
    ("photonPersistentDisk", |s, e| required(s, &["pdID"], e)),
    ("portworxVolume", |s, e| required(s, &["volumeID"], e)),
    ("azureDisk", legacy::azure_disk),
    ("scaleIO", |s, e| required(s, &["gateway", "system", "volumeName"], e)),
    ("local", local),
    ("storageos", storage_os),
    ("csi", csi),
];

/// A PersistentVolume.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    spec(&At::root(object).get("spec"), Values::Labels, &mut errors);
    errors
}

/// An update of a PersistentVolume: where the data is stays.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (root, new, old) = (At::root(new), At::root(new).get("spec"), At::root(old).get("spec"));
    spec(&new, Values::after(&old.get("nodeAffinity").get("required")), &mut errors);
    let fixed = without_new_secret(&new, &old);
    let is_same = |name: &str| same(fixed.get(name).unwrap_or(&Value::Null), old.get(name).value);
    if !SOURCES.iter().all(|(name, _)| is_same(name)) {
        let difference = internal::diff("PersistentVolumeSource", old.value, &fixed);
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
        errors.push(root.get("spec").get("persistentvolumesource").forbidden(&detail));
    }
    // Upstream names these two without `spec`.
    At { path: root.get("volumeMode").path, ..new.get("volumeMode") }
        .immutable(&old.get("volumeMode"), &mut errors);
    if old.get("nodeAffinity").is_set() && !is_same_affinity(&new, &old) {
        let at = At { path: root.get("nodeAffinity").path, ..new.get("nodeAffinity") };
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.push(internal::invalid(&at, "VolumeNodeAffinity", detail));
    }
    let class = new.get("volumeAttributesClassName");
    if old.get("volumeAttributesClassName").is_set() && !class.is_set() {
        errors.push(class.forbidden("update from non-nil value to nil is forbidden"));
    }
    errors
}

/// Whether the affinity is what it was, but for labels that have a name of their own since they are stable.
///
/// Source: `validatePvNodeAffinity`.
fn is_same_affinity(new: &At<'_>, old: &At<'_>) -> bool {
    let (new, mut old) = (new.get("nodeAffinity"), old.get("nodeAffinity").value.clone());
    let keys = |affinity: &Value| {
        let terms = affinity.pointer("/required/nodeSelectorTerms").and_then(Value::as_array);
        let rules = terms.into_iter().flatten().filter_map(|term| term.get("matchExpressions")?.as_array());
        rules.flatten().map(|rule| rule["key"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let mut wanted = keys(new.value).into_iter();
    let terms = old.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    let rules =
        terms.into_iter().flatten().filter_map(|term| term.get_mut("matchExpressions")?.as_array_mut());
    for rule in rules.flatten() {
        let Some(wanted) = wanted.next() else { break };
        let is_successor = |(beta, stable): &&(&str, &str)| rule["key"] == **beta && wanted == *stable;
        if OLD_LABELS.iter().any(|names| is_successor(&names)) {
            rule["key"] = wanted.into();
        }
    }
    *new.value == old
}

/// A CSI volume that had no secret for expansion may be given one.
fn without_new_secret(new: &At<'_>, old: &At<'_>) -> Value {
    const ADDABLE: &str = "controllerExpandSecretRef";
    let mut spec = new.value.clone();
    let had = old.get("csi");
    if had.is_set()
        && !had.get(ADDABLE).is_set()
        && let Some(csi) = spec.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove(ADDABLE);
    }
    spec
}

fn spec(spec: &At<'_>, values: Values, errors: &mut FieldErrors) {
    access_modes(&spec.get("accessModes"), "", errors);
    capacity(&spec.get("capacity"), errors);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    if !policy.text().is_empty() {
        policy.if_one_of(RECLAIM_POLICIES, errors);
    }
    if let Some(affinity) = spec.some("nodeAffinity") {
        node_affinity(&affinity, values, errors);
    }
    sources(spec, errors);
    if spec.get("local").is_set() && !spec.get("nodeAffinity").is_set() {
        errors.push(spec.get("nodeAffinity").required("Local volume requires node affinity"));
    }
    if policy.text() == "Recycle" && is_root(spec.get("hostPath").get("path").text()) {
        errors.push(policy.forbidden("may not be 'recycle' for a hostPath mount of '/'"));
    }
    spec.get("storageClassName").optional(names::dns1123_subdomain, errors);
    spec.get("volumeMode").if_one_of(VOLUME_MODES, errors);
    if let Some(class) = spec.some("volumeAttributesClassName") {
        if class.text().is_empty() {
            errors.push(class.required("an empty string is disallowed"));
        }
        class.optional(names::dns1123_subdomain, errors);
        if !spec.get("csi").is_set() {
            errors.push(spec.get("csi").required("has to be specified when using volumeAttributesClassName"));
        }
    }
}

/// A PersistentVolumeSpec inside of a VolumeAttachment: a CSI volume that has no object of its own.
pub(super) fn inline(spec: &At<'_>, errors: &mut FieldErrors) {
    for name in ["claimRef", "capacity"] {
        if spec.get(name).is_set() {
            errors.push(spec.get(name).forbidden(INLINE));
        }
    }
    if !spec.get("csi").is_set() {
        errors.push(spec.get("csi").required("has to be specified in the context of inline volumes"));
    }
    access_modes(&spec.get("accessModes"), "", errors);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    if !matches!(policy.text(), "" | "Retain") {
        errors.push(policy.forbidden("may only be Retain in the context of inline volumes"));
    }
    if spec.get("nodeAffinity").is_set() {
        errors.push(spec.get("nodeAffinity").forbidden(INLINE));
    }
    sources(spec, errors);
    if !spec.get("storageClassName").text().is_empty() {
        errors.push(spec.get("storageClassName").forbidden(INLINE));
    }
    let mode = spec.get("volumeMode");
    if mode.is_set() && mode.text() != "Filesystem" {
        errors.push(
            mode.forbidden(
                "may not specify volumeMode other than Filesystem in the context of inline volumes",
            ),
        );
    }
}

fn capacity(capacity: &At<'_>, errors: &mut FieldErrors) {
    if capacity.is_empty() {
        errors.push(capacity.required(""));
    }
    if capacity.len() != 1 || !capacity.get("storage").is_set() {
        errors.push(FieldError::not_supported(&capacity.path, capacity.value, &["storage"]));
    }
    for (_, amount) in capacity.entries() {
        positive(&amount, errors);
    }
}

/// An amount above zero.
fn positive(amount: &At<'_>, errors: &mut FieldErrors) {
    match amount.text().parse::<Quantity>() {
        Err(error) => errors.push(amount.invalid(&error.to_string())),
        Ok(quantity) => {
            if quantity.signum() < 0 {
                let value = quantity.value();
                errors.push(FieldError::invalid(&amount.path, value, "must be a valid resource quantity"));
            }
            if quantity.signum() <= 0 {
                errors.push(amount.invalid("must be greater than zero"));
            }
        }
    }
}

/// Whether a path leads to the root, with whatever steps.
fn is_root(path: &str) -> bool {
    let depth = path.split('/').fold(0_usize, |depth, step| match step {
        "" | "." => depth,
        ".." => depth.saturating_sub(1),
        _ => depth + 1,
    });
    path.starts_with('/') && depth == 0
}

fn node_affinity(affinity: &At<'_>, values: Values, errors: &mut FieldErrors) {
    match affinity.some("required") {
        Some(required) => scheduling::node_selector(&required, values, errors),
        None => errors.push(affinity.get("required").required("must specify required node constraints")),
    }
}

fn sources(spec: &At<'_>, errors: &mut FieldErrors) {
    let mut is_found = false;
    for (name, check) in SOURCES {
        let Some(source) = spec.some(name) else { continue };
        if is_found {
            errors.push(source.forbidden(ONE_SOURCE));
            continue;
        }
        is_found = true;
        // Upstream names this one otherwise than its field.
        let shown = if *name == "gcePersistentDisk" { "persistentDisk" } else { name };
        check(&At { path: spec.path.child(shown), ..source }, errors);
    }
    if !is_found {
        errors.push(spec.required("must specify a volume type"));
    }
}

fn required(source: &At<'_>, fields: &[&str], errors: &mut FieldErrors) {
    for field in fields.iter().map(|name| source.get(name)).filter(At::is_empty) {
        errors.push(field.required(""));
    }
}

fn glusterfs(source: &At<'_>, errors: &mut FieldErrors) {
    required(source, &["endpoints", "path"], errors);
    let Some(namespace) = source.some("endpointsNamespace") else { return };
    if namespace.text().is_empty() {
        errors.push(namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name"));
    }
    namespace.optional(names::dns1123_label, errors);
}

fn iscsi(source: &At<'_>, errors: &mut FieldErrors) {
    legacy::iscsi(source, errors);
    if let Some(secret) = source.some("secretRef") {
        required(&secret, &["name"], errors);
    }
}

fn azure_file(source: &At<'_>, errors: &mut FieldErrors) {
    required(source, &["secretName", "shareName"], errors);
    if let Some(namespace) = source.some("secretNamespace").filter(At::is_empty) {
        errors.push(namespace.required(""));
    }
}

fn storage_os(source: &At<'_>, errors: &mut FieldErrors) {
    legacy::storage_os(source, errors);
    if let Some(secret) = source.some("secretRef") {
        required(&secret, &["namespace"], errors);
    }
}

fn local(source: &At<'_>, errors: &mut FieldErrors) {
    required(source, &["path"], errors);
    source.get("path").no_backsteps(errors);
}

fn with_secret(source: &At<'_>, id: &str, errors: &mut FieldErrors) {
    required(source, &[id], errors);
    if let Some(secret) = source.some("secretRef") {
        required(&secret, &["name", "namespace"], errors);
    }
}

fn csi(source: &At<'_>, errors: &mut FieldErrors) {
    volume::driver_name(&source.get("driver"), errors);
    required(source, &["volumeHandle"], errors);
    for name in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        if let Some(secret) = source.some(name) {
            secret.get("name").named(names::dns1123_subdomain, errors);
            secret.get("namespace").named(names::dns1123_label, errors);
        }
    }
}

/// Warnings about what is on its way out.
pub(crate) fn warnings(object: &Value) -> Vec<String> {
    const SOURCES_GONE: &[(&str, &str)] = &[
        ("photonPersistentDisk", "spec.photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+"),
        ("scaleIO", "spec.scaleIO: deprecated in v1.16, non-functional in v1.22+"),
        ("storageos", "spec.storageOS: deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "spec.glusterfs: deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", "spec.cephfs: deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", "spec.rbd: deprecated in v1.28, non-functional in v1.31+"),
    ];
    let mut warnings = class_annotation_warnings(object);
    let spec = At::root(object).get("spec");
    if spec.get("persistentVolumeReclaimPolicy").text() == "Recycle" {
        warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    warnings.extend(
        SOURCES_GONE.iter().filter(|(name, _)| spec.get(name).is_set()).map(|(_, text)| (*text).to_owned()),
    );
    warnings
}
