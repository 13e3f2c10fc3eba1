//! The mounts of a container: volumes as directories, and as block devices.

use std::collections::{BTreeMap, BTreeSet};

use machinery::field::{FieldError, FieldErrors};
use serde_json::Value;

use super::At;

/// The volumes that can be mounted, by name.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

/// `volumeMounts` and `volumeDevices` of a container.
pub(super) fn all(container: &At<'_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let (mounts, devices) = (container.get("volumeMounts"), container.get("volumeDevices"));
    let mut seen = BTreeSet::new();
    for mount in mounts.items() {
        place(&mount, &devices, volumes, &mut seen, errors);
        sub_paths(&mount, &mounts, errors);
        propagation(&mount, &mounts, container, errors);
        recursive_read_only(&mount, &mounts, errors);
    }
    self::devices(&devices, &mounts, volumes, errors);
}

fn has(list: &At<'_>, field: &str, text: &str) -> bool {
    list.items().any(|item| item.get(field).text() == text)
}

fn place<'a>(
    mount: &At<'a>,
    devices: &At<'_>,
    volumes: &Volumes<'_>,
    seen: &mut BTreeSet<&'a str>,
    errors: &mut FieldErrors,
) {
    let (name, path) = (mount.get("name"), mount.get("mountPath"));
    if name.text().is_empty() {
        errors.push(name.required(""));
    }
    if !volumes.contains_key(name.text()) {
        errors.push(FieldError::not_found(&name.path, name.text()));
    }
    if path.text().is_empty() {
        errors.push(path.required(""));
    }
    if !seen.insert(path.text()) {
        errors.push(path.invalid("must be unique"));
    }
    if has(devices, "name", name.text()) {
        errors.push(name.invalid("must not already exist in volumeDevices"));
    }
    if has(devices, "devicePath", path.text()) {
        errors.push(path.invalid("must not already exist as a path in volumeDevices"));
    }
}

/// Upstream names these fields without their mount's index.
fn sub_paths(mount: &At<'_>, mounts: &At<'_>, errors: &mut FieldErrors) {
    let (sub, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
    let unindexed = |field: &str| At { path: mounts.path.child(field), ..mount.get(field) };
    if !sub.text().is_empty() {
        unindexed("subPath").inner_path(errors);
    }
    if !expression.text().is_empty() {
        if !sub.text().is_empty() {
            errors.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
        }
        unindexed("subPathExpr").inner_path(errors);
    }
}

fn propagation(mount: &At<'_>, mounts: &At<'_>, container: &At<'_>, errors: &mut FieldErrors) {
    let at = At { path: mounts.path.child("mountPropagation"), ..mount.get("mountPropagation") };
    at.if_one_of(&["Bidirectional", "HostToContainer", "None"], errors);
    let is_privileged = container.get("securityContext").get("privileged").flag();
    if at.text() == "Bidirectional" && !is_privileged {
        errors
            .push(at.forbidden("Bidirectional mount propagation is available only to privileged containers"));
    }
}

fn recursive_read_only(mount: &At<'_>, mounts: &At<'_>, errors: &mut FieldErrors) {
    let at = At { path: mounts.path.child("recursiveReadOnly"), ..mount.get("recursiveReadOnly") };
    if matches!(at.text(), "Enabled" | "IfPossible") {
        if !mount.get("readOnly").flag() {
            errors.push(at.forbidden("may only be specified when readOnly is true"));
        }
        if !matches!(mount.get("mountPropagation").text(), "" | "None") {
            errors.push(at.forbidden("may only be specified when mountPropagation is None or not specified"));
        }
        return;
    }
    at.if_one_of(&["Disabled", "Enabled", "IfPossible"], errors);
}

fn devices(devices: &At<'_>, mounts: &At<'_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for device in devices.items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        if name.text().is_empty() {
            errors.push(name.required(""));
        } else if !names.insert(name.text()) {
            errors.push(name.invalid("must be unique"));
        }
        match volumes.get(name.text()) {
            None => errors.push(FieldError::not_found(&name.path, name.text())),
            Some(volume) if ["persistentVolumeClaim", "ephemeral"].iter().any(|k| !volume[*k].is_null()) => {}
            Some(_) => errors.push(name.invalid(
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            )),
        }
        if path.text().is_empty() {
            errors.push(path.required(""));
        }
        if paths.contains(path.text()) {
            errors.push(path.invalid("must be unique"));
        }
        if path.text().split('/').any(|step| step == "..") {
            errors.push(path.invalid("can not contain backsteps ('..')"));
        } else {
            paths.insert(path.text());
        }
        if has(mounts, "name", name.text()) {
            errors.push(name.invalid("must not already exist in volumeMounts"));
        }
        if has(mounts, "mountPath", path.text()) {
            errors.push(path.invalid("must not already exist as a path in volumeMounts"));
        }
    }
}
