//! Volumes of a Pod: a row per type.

pub(super) mod legacy;
mod projected;

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::mount::Volumes;
use super::{At, PULL_POLICIES, PodView, labels};

pub(super) const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const DRIVER_BYTES_MAX: usize = 63;

/// A volume type: its field, the name by which upstream reports it, and its rules.
struct Row {
    field: &'static str,
    shown: &'static str,
    check: fn(&At<'_>, &mut FieldErrors),
}

const fn row(field: &'static str, check: fn(&At<'_>, &mut FieldErrors)) -> Row {
    Row { field, shown: field, check }
}

/// In the order in which upstream looks at them.
const ROWS: &[Row] = &[
    row("emptyDir", empty_dir),
    row("hostPath", host_path),
    row("gitRepo", legacy::git_repo),
    Row { shown: "persistentDisk", ..row("gcePersistentDisk", legacy::gce_disk) },
    row("awsElasticBlockStore", legacy::aws_disk),
    row("secret", |v, e| {
        v.must_have("secretName", e);
        mode(&v.get("defaultMode"), e);
        items(&v.get("items"), e);
    }),
    row("nfs", nfs),
    row("iscsi", legacy::iscsi),
    row("glusterfs", |v, e| ["endpoints", "path"].iter().for_each(|f| v.must_have(f, e))),
    row("flocker", legacy::flocker),
    row("persistentVolumeClaim", |v, e| v.must_have("claimName", e)),
    row("rbd", legacy::rbd),
    row("cinder", legacy::cinder),
    row("cephfs", |v, e| {
        if v.get("monitors").is_empty() {
            e.push(v.get("monitors").required(""));
        }
    }),
    row("quobyte", legacy::quobyte),
    row("downwardAPI", |v, e| {
        mode(&v.get("defaultMode"), e);
        // Upstream names the volume, not the file.
        v.get("items").items().for_each(|file| downward_file(&At { path: v.path.clone(), ..file }, e));
    }),
    row("fc", legacy::fibre_channel),
    row("flexVolume", legacy::flex),
    row("configMap", |v, e| {
        v.must_have("name", e);
        mode(&v.get("defaultMode"), e);
        items(&v.get("items"), e);
    }),
    row("azureFile", |v, e| ["secretName", "shareName"].iter().for_each(|f| v.must_have(f, e))),
    row("vsphereVolume", |v, e| v.must_have("volumePath", e)),
    row("photonPersistentDisk", |v, e| v.must_have("pdID", e)),
    row("portworxVolume", |v, e| v.must_have("volumeID", e)),
    row("azureDisk", legacy::azure_disk),
    row("storageos", legacy::storage_os),
    row("projected", projected::check),
    row("scaleIO", |v, e| ["gateway", "system", "volumeName"].iter().for_each(|f| v.must_have(f, e))),
    row("csi", csi),
    row("ephemeral", ephemeral),
    row("image", |v, e| v.get("pullPolicy").one_of(PULL_POLICIES, e)),
];

/// Every volume; returns those that can be mounted.
pub(super) fn check_all<'a>(pod: &PodView<'a>, errors: &mut FieldErrors) -> Volumes<'a> {
    let volumes = pod.spec.get("volumes");
    let made: BTreeSet<String> = match pod.name {
        "" => BTreeSet::new(),
        name => {
            let ephemeral = volumes.items().filter(|v| v.get("ephemeral").is_set());
            ephemeral.map(|v| format!("{name}-{}", v.get("name").text())).collect()
        }
    };
    let mut known = Volumes::new();
    for volume in volumes.items() {
        let before = errors.len();
        check(&volume, pod, errors);
        let name = volume.get("name");
        name.named(names::dns1123_label, errors);
        if known.contains_key(name.text()) {
            errors.push(name.duplicate());
        }
        if errors.len() == before {
            known.insert(name.text(), volume.value);
        }
        let claim = volume.get("persistentVolumeClaim").get("claimName");
        if made.contains(claim.text()) {
            errors.push(claim.invalid("must not reference a PVC that gets created for an ephemeral volume"));
        }
    }
    known
}

fn check(volume: &At<'_>, pod: &PodView<'_>, errors: &mut FieldErrors) {
    let mut has_source = false;
    for row in ROWS {
        let Some(source) = volume.some(row.field) else { continue };
        if has_source {
            errors.push(source.forbidden("may not specify more than 1 volume type"));
            continue;
        }
        has_source = true;
        (row.check)(&At { path: volume.path.child(row.shown), ..source.clone() }, errors);
        if row.field == "image" && pod.is_pod() {
            source.must_have("reference", errors);
        }
    }
    let name = volume.get("name");
    let portal = volume.get("iscsi").get("targetPortal").text();
    if volume.get("iscsi").get("initiatorName").is_set() && name.len() + 1 + portal.len() > 64 {
        errors.push(name.invalid("Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."));
    }
    if volume.get("ephemeral").is_set() && !pod.name.is_empty() && !name.text().is_empty() {
        let claim = format!("{}-{}", pod.name, name.text());
        let rules = names::dns1123_subdomain(&claim);
        errors.extend(rules.iter().map(|rule| name.invalid(&format!("PVC name \"{claim}\": {rule}"))));
    }
    if !has_source {
        errors.push(volume.required("must specify a volume type"));
    }
}

fn empty_dir(volume: &At<'_>, errors: &mut FieldErrors) {
    let limit = volume.get("sizeLimit");
    if limit.is_set() && super::quantities::amount(&limit).is_none_or(|q| q.signum() < 0) {
        errors.push(limit.forbidden("SizeLimit field must be a valid resource quantity"));
    }
}

pub(super) fn host_path(volume: &At<'_>, errors: &mut FieldErrors) {
    if volume.get("path").text().is_empty() {
        errors.push(volume.get("path").required(""));
        return;
    }
    volume.get("path").no_backsteps(errors);
    volume.get("type").if_one_of(HOST_PATH_TYPES, errors);
}

pub(super) fn nfs(volume: &At<'_>, errors: &mut FieldErrors) {
    volume.must_have("server", errors);
    volume.must_have("path", errors);
    let path = volume.get("path");
    if !path.text().starts_with('/') {
        errors.push(FieldError::invalid(&path.path, path.text(), "must be an absolute path"));
    }
}

/// The name of a CSI driver.
pub(super) fn driver_name(driver: &At<'_>, errors: &mut FieldErrors) {
    let text = driver.text();
    if text.is_empty() {
        errors.push(driver.required(""));
    }
    if text.len() > DRIVER_BYTES_MAX {
        errors.push(FieldError::too_long(&driver.path, DRIVER_BYTES_MAX));
    }
    let rules = names::dns1123_subdomain(&text.to_lowercase());
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&driver.path, text, rule)));
}

fn csi(volume: &At<'_>, errors: &mut FieldErrors) {
    driver_name(&volume.get("driver"), errors);
    let Some(secret) = volume.some("nodePublishSecretRef") else { return };
    match secret.get("name").text() {
        "" => errors.push(secret.get("name").required("")),
        name => {
            let path = volume.path.child("name");
            let rules = names::dns1123_subdomain(name);
            errors.extend(rules.iter().map(|rule| FieldError::invalid(&path, name, rule)));
        }
    }
}

fn ephemeral(volume: &At<'_>, errors: &mut FieldErrors) {
    let template = volume.get("volumeClaimTemplate");
    if !template.is_set() {
        errors.push(template.required(""));
        return;
    }
    let metadata = template.get("metadata");
    super::metadata::annotations(&metadata.get("annotations"), errors);
    labels(&metadata.get("labels"), errors);
    for (field, value) in metadata.entries() {
        if !matches!(field, "annotations" | "labels") && value.is_set() {
            // Upstream makes the path of the Go field's name.
            let name = if field == "uid" { "uID" } else { field };
            errors.push(FieldError::forbidden(&metadata.path.child(name), "cannot be set"));
        }
    }
    super::persistent_volume_claim::spec(&template.get("spec"), errors);
}

/// `items` of a Secret or ConfigMap.
fn items(items: &At<'_>, errors: &mut FieldErrors) {
    for item in items.items() {
        item.must_have("key", errors);
        item.must_have("path", errors);
        item.get("path").file_path(errors);
        mode(&item.get("mode"), errors);
    }
}

/// A file that holds a field of the Pod.
fn downward_file(file: &At<'_>, errors: &mut FieldErrors) {
    use super::env::{Asker, field_ref, resource_ref};
    file.must_have("path", errors);
    file.get("path").file_path(errors);
    match (file.some("fieldRef"), file.some("resourceFieldRef")) {
        (Some(field), resource) => {
            field_ref(&field, Asker::File, errors);
            if resource.is_some() {
                errors.push(FieldError::invalid(
                    &file.path,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                ));
            }
        }
        (None, Some(resource)) => resource_ref(&resource, Asker::File, errors),
        (None, None) => errors.push(file.required("one of fieldRef and resourceFieldRef is required")),
    }
    mode(&file.get("mode"), errors);
}

fn mode(mode: &At<'_>, errors: &mut FieldErrors) {
    if mode.number().is_some_and(|bits| !(0..=0o777).contains(&bits)) {
        errors.push(mode.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
    }
}
