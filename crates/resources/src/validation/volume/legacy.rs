//! Volume types of storage systems that CSI drivers took over; their fields are still checked.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use crate::validation::At;

const NOT_A_NUMBER: &str = "must be between 1 and 255, inclusive";
const ISCSI_NAME: &str = "must be valid format starting with iqn, eui, or naa";
const HOST_PORTS: &str = "must be a host:port pair or multiple pairs separated by commas";

pub(super) fn git_repo(volume: &At<'_>, errors: &mut FieldErrors) {
    volume.must_have("repository", errors);
    volume.get("directory").inner_path(errors);
}

pub(super) fn gce_disk(volume: &At<'_>, errors: &mut FieldErrors) {
    volume.must_have("pdName", errors);
    partition(&volume.get("partition"), errors);
}

pub(super) fn aws_disk(volume: &At<'_>, errors: &mut FieldErrors) {
    volume.must_have("volumeID", errors);
    partition(&volume.get("partition"), errors);
}

fn partition(partition: &At<'_>, errors: &mut FieldErrors) {
    if partition.number().is_some_and(|n| !(0..=255).contains(&n)) {
        errors.push(partition.invalid(NOT_A_NUMBER));
    }
}

pub(super) fn iscsi(volume: &At<'_>, errors: &mut FieldErrors) {
    volume.must_have("targetPortal", errors);
    match volume.get("iqn").text() {
        "" => errors.push(volume.get("iqn").required("")),
        _ => iscsi_name(&volume.get("iqn"), errors),
    }
    volume.get("lun").between(0, 255, errors);
    let has_auth = volume.get("chapAuthDiscovery").flag() || volume.get("chapAuthSession").flag();
    if has_auth && !volume.get("secretRef").is_set() {
        errors.push(volume.get("secretRef").required(""));
    }
    if let Some(initiator) = volume.some("initiatorName") {
        iscsi_name(&At { path: volume.path.child("initiatorname"), ..initiator }, errors);
    }
}

fn iscsi_name(name: &At<'_>, errors: &mut FieldErrors) {
    let text = name.text();
    let is_good = match text.get(..3) {
        Some("iqn") => is_iqn(text),
        Some("eui") => is_fixed(text, 16),
        Some("naa") => is_fixed(text, 32),
        _ => {
            errors.push(name.invalid(ISCSI_NAME));
            return;
        }
    };
    if !is_good {
        errors.push(name.invalid("must be valid format"));
    }
}

/// `iqn.yyyy-mm.domain:name`.
fn is_iqn(text: &str) -> bool {
    let Some((head, name)) = text.split_once(':') else { return false };
    let Some(rest) = head.strip_prefix("iqn.") else { return false };
    let Some((date, domain)) = rest.split_once('.') else { return false };
    let is_digits = |text: &str, len: usize| text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
    let is_date = date.split_once('-').is_some_and(|(year, month)| is_digits(year, 4) && is_digits(month, 2));
    is_date
        && !domain.is_empty()
        && domain.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        && !name.is_empty()
        && !name.contains([',', ';', '*', '&', '$', '|'])
        && !name.contains(char::is_whitespace)
}

/// A prefix, a dot and `len` letters and digits.
fn is_fixed(text: &str, len: usize) -> bool {
    text.get(4..).is_some_and(|id| id.len() == len && id.bytes().all(|b| b.is_ascii_alphanumeric()))
}

pub(super) fn flocker(volume: &At<'_>, errors: &mut FieldErrors) {
    let (name, uuid) = (volume.get("datasetName"), volume.get("datasetUUID"));
    if name.text().is_empty() && uuid.text().is_empty() {
        errors.push(volume.required("one of datasetName and datasetUUID is required"));
    }
    if !name.text().is_empty() && !uuid.text().is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.push(FieldError::invalid(&volume.path, "resource", detail));
    }
    if name.text().contains('/') {
        errors.push(name.invalid("must not contain '/'"));
    }
}

pub(super) fn rbd(volume: &At<'_>, errors: &mut FieldErrors) {
    if volume.get("monitors").is_empty() {
        errors.push(volume.get("monitors").required(""));
    }
    volume.must_have("image", errors);
}

pub(super) fn cinder(volume: &At<'_>, errors: &mut FieldErrors) {
    volume.must_have("volumeID", errors);
    secret_ref(volume, errors);
}

fn secret_ref(volume: &At<'_>, errors: &mut FieldErrors) {
    if let Some(secret) = volume.some("secretRef") {
        secret.must_have("name", errors);
    }
}

pub(super) fn quobyte(volume: &At<'_>, errors: &mut FieldErrors) {
    let (registry, tenant) = (volume.get("registry"), volume.get("tenant"));
    if registry.text().is_empty() {
        errors.push(registry.required(HOST_PORTS));
    } else if tenant.len() >= 65 {
        errors.push(tenant.required("must be a UUID and may not exceed a length of 64 characters"));
    } else {
        for _ in registry.text().split(',').filter(|pair| !pair.contains(':')) {
            errors.push(registry.invalid(HOST_PORTS));
        }
    }
    volume.must_have("volume", errors);
}

pub(super) fn fibre_channel(volume: &At<'_>, errors: &mut FieldErrors) {
    let (targets, ids, lun) = (volume.get("targetWWNs"), volume.get("wwids"), volume.get("lun"));
    if targets.is_empty() && ids.is_empty() {
        errors.push(targets.required("must specify either targetWWNs or wwids, but not both"));
    }
    if targets.is_empty() {
        return;
    }
    if !ids.is_empty() {
        errors.push(targets.invalid("targetWWNs and wwids can not be specified simultaneously"));
    }
    if lun.is_set() {
        lun.between(0, 255, errors);
    } else {
        errors.push(lun.required("lun is required if targetWWNs is specified"));
    }
}

pub(super) fn flex(volume: &At<'_>, errors: &mut FieldErrors) {
    volume.must_have("driver", errors);
    for (key, option) in volume.get("options").entries() {
        let domain = format!(".{}", key.split('/').next().unwrap_or(key).to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(FieldError::invalid(&option.path, key, detail));
        }
    }
}

pub(super) fn azure_disk(volume: &At<'_>, errors: &mut FieldErrors) {
    volume.must_have("diskName", errors);
    volume.must_have("diskURI", errors);
    volume.get("cachingMode").if_one_of(&["None", "ReadOnly", "ReadWrite"], errors);
    let (kind, uri) = (volume.get("kind"), volume.get("diskURI"));
    kind.if_one_of(&["Dedicated", "Managed", "Shared"], errors);
    if !kind.is_set() {
        return;
    }
    let (start, shape) = match kind.text() {
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
    };
    if !uri.text().starts_with(start) {
        errors.push(FieldError::not_supported(&uri.path, uri.text(), &[shape]));
    }
}

pub(super) fn storage_os(volume: &At<'_>, errors: &mut FieldErrors) {
    volume.get("volumeName").named(names::dns1123_label, errors);
    volume.get("volumeNamespace").optional(names::dns1123_label, errors);
    secret_ref(volume, errors);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iscsi_names_have_three_forms() {
        assert!(is_iqn("iqn.2015-02.example.com:storage.kube"));
        assert!(!is_iqn("iqn.2015-02.example.com") && !is_iqn("iqn.15-02.a:b"));
        assert!(is_fixed("eui.0123456789ABCDEF", 16) && !is_fixed("naa.1", 32));
    }
}
