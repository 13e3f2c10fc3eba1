//! Volumes of a Pod.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::{At, container, env};

pub(super) const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Every volume; returns the names that can be mounted.
pub(super) fn check_all<'a>(volumes: &At<'a>, errors: &mut FieldErrors) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for volume in volumes.items() {
        let name = volume.get("name");
        name.named(names::dns1123_label, errors);
        if !name.text().is_empty() && !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
        let mut sources = 0;
        for (kind, _) in volume.entries() {
            let source = volume.get(kind);
            if kind == "name" || !source.is_set() {
                continue;
            }
            sources += 1;
            if sources > 1 {
                errors.push(source.forbidden("may not specify more than 1 volume type"));
                continue;
            }
            check(kind, &source, errors);
        }
        if sources == 0 {
            errors.push(volume.required("must specify a volume type"));
        }
    }
    seen
}

fn check(kind: &str, source: &At<'_>, errors: &mut FieldErrors) {
    let must_have = |field: &str, errors: &mut FieldErrors| {
        if source.get(field).text().is_empty() {
            errors.push(source.get(field).required(""));
        }
    };
    match kind {
        "emptyDir" if source.get("sizeLimit").is_set() => {
            container::quantity(&source.get("sizeLimit"), "storage", errors);
        }
        "hostPath" => {
            must_have("path", errors);
            if source.get("path").text().split('/').any(|step| step == "..") {
                errors.push(source.get("path").invalid("must not contain '..'"));
            }
            source.get("type").if_one_of(HOST_PATH_TYPES, errors);
        }
        "secret" => {
            must_have("secretName", errors);
            mode(&source.get("defaultMode"), errors);
            items(&source.get("items"), errors);
        }
        "configMap" => {
            must_have("name", errors);
            mode(&source.get("defaultMode"), errors);
            items(&source.get("items"), errors);
        }
        "downwardAPI" => {
            mode(&source.get("defaultMode"), errors);
            downward_items(&source.get("items"), errors);
        }
        "projected" => projected(source, errors),
        "persistentVolumeClaim" => must_have("claimName", errors),
        "nfs" => {
            must_have("server", errors);
            must_have("path", errors);
            if !source.get("path").text().is_empty() && !source.get("path").text().starts_with('/') {
                errors.push(source.get("path").invalid("must be an absolute path"));
            }
        }
        "csi" => must_have("driver", errors),
        "image" => {
            must_have("reference", errors);
            source.get("pullPolicy").if_one_of(&["Always", "IfNotPresent", "Never"], errors);
        }
        _ => {}
    }
}

fn projected(source: &At<'_>, errors: &mut FieldErrors) {
    mode(&source.get("defaultMode"), errors);
    let mut paths = BTreeSet::new();
    for projection in source.get("sources").items() {
        let mut kinds = 0;
        for (kind, _) in projection.entries() {
            let inner = projection.get(kind);
            if !inner.is_set() {
                continue;
            }
            kinds += 1;
            if kinds > 1 {
                errors.push(inner.forbidden("may not specify more than 1 volume type"));
                continue;
            }
            projection_source(kind, &inner, errors);
            for item in inner.get("items").items() {
                let path = item.get("path");
                if !path.text().is_empty() && !paths.insert(path.text()) {
                    errors.push(FieldError::invalid(&inner.path, path.text(), "conflicting duplicate paths"));
                }
            }
        }
        if kinds == 0 {
            errors.push(projection.required("must specify a volume type"));
        }
    }
}

fn projection_source(kind: &str, source: &At<'_>, errors: &mut FieldErrors) {
    match kind {
        "secret" | "configMap" => {
            if source.get("name").text().is_empty() {
                errors.push(source.get("name").required(""));
            }
            items(&source.get("items"), errors);
        }
        "downwardAPI" => downward_items(&source.get("items"), errors),
        "serviceAccountToken" => {
            let (seconds, path) = (source.get("expirationSeconds"), source.get("path"));
            if seconds.number().is_some_and(|n| n < 600) {
                errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
            }
            if seconds.number().is_some_and(|n| n > 1 << 32) {
                errors.push(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
            }
            if path.text().is_empty() {
                errors.push(path.required(""));
            }
            container::inner_path(&path, errors);
        }
        _ => {}
    }
}

fn items(items: &At<'_>, errors: &mut FieldErrors) {
    for item in items.items() {
        if item.get("key").text().is_empty() {
            errors.push(item.get("key").required(""));
        }
        file(&item, errors);
    }
}

fn downward_items(items: &At<'_>, errors: &mut FieldErrors) {
    for item in items.items() {
        file(&item, errors);
        match (item.some("fieldRef"), item.some("resourceFieldRef")) {
            (Some(_), Some(_)) => {
                errors
                    .push(item.invalid("fieldRef and resourceFieldRef can not be specified simultaneously"));
            }
            (Some(field), None) => env::field_ref(&field, false, errors),
            (None, Some(resource)) => {
                if resource.get("containerName").text().is_empty() {
                    errors.push(resource.get("containerName").required(""));
                }
                env::resource_ref(&resource, errors);
            }
            (None, None) => errors.push(item.required("one of fieldRef and resourceFieldRef is required")),
        }
    }
}

fn file(item: &At<'_>, errors: &mut FieldErrors) {
    let path = item.get("path");
    if path.text().is_empty() {
        errors.push(path.required(""));
    }
    container::inner_path(&path, errors);
    mode(&item.get("mode"), errors);
}

fn mode(mode: &At<'_>, errors: &mut FieldErrors) {
    if mode.number().is_some_and(|bits| !(0..=0o777).contains(&bits)) {
        errors.push(mode.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
    }
}
