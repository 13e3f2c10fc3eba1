//! Environment variables and where they come from.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::At;

const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// `env` and `envFrom` of a container.
pub(super) fn all(container: &At<'_>, errors: &mut FieldErrors) {
    for variable in container.get("env").items() {
        variable.get("name").named(names::env_var_name, errors);
        if let Some(source) = variable.some("valueFrom") {
            value_from(&source, !variable.get("value").text().is_empty(), errors);
        }
    }
    for source in container.get("envFrom").items() {
        source.get("prefix").optional(names::env_var_name, errors);
        let set: Vec<_> =
            ["configMapRef", "secretRef"].into_iter().filter_map(|kind| source.some(kind)).collect();
        match set.as_slice() {
            [] => errors.push(FieldError::invalid(
                &source.path,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            )),
            [one] => one.get("name").named(names::dns1123_subdomain, errors),
            _ => errors.push(FieldError::invalid(
                &source.path,
                "",
                "may not have more than one field specified at a time",
            )),
        }
    }
}

fn value_from(source: &At<'_>, has_value: bool, errors: &mut FieldErrors) {
    let kinds = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let set: Vec<_> = kinds.into_iter().filter(|kind| source.get(kind).is_set()).collect();
    for kind in &set {
        let reference = source.get(kind);
        match *kind {
            "fieldRef" => field_ref(&reference, true, errors),
            "resourceFieldRef" => resource_ref(&reference, errors),
            "configMapKeyRef" | "secretKeyRef" => key_ref(&reference, errors),
            _ => {}
        }
    }
    let of = |detail: &str| FieldError::invalid(&source.path, "", detail);
    match set.len() {
        0 => errors.push(of(
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        )),
        1 if has_value => errors.push(of("may not be specified when `value` is not empty")),
        1 => {}
        _ => errors.push(of("may not have more than one field specified at a time")),
    }
}

/// A reference to a field of the Pod; as an environment variable or as a file.
pub(super) fn field_ref(reference: &At<'_>, is_env: bool, errors: &mut FieldErrors) {
    if reference.get("apiVersion").text().is_empty() {
        errors.push(reference.get("apiVersion").required(""));
    }
    let path = reference.get("fieldPath");
    if path.text().is_empty() {
        errors.push(path.required(""));
        return;
    }
    let subscript = path.text().split_once("['").and_then(|(f, rest)| Some((f, rest.strip_suffix("']")?)));
    match (path.text(), subscript) {
        (_, Some(("metadata.labels" | "metadata.annotations", key))) => {
            errors.extend(path.all(names::qualified_name(&key.to_lowercase())));
        }
        ("metadata.labels" | "metadata.annotations", _) if !is_env => {}
        (text, _) if FIELDS.contains(&text) => {}
        _ => errors.push(FieldError::not_supported(&path.path, path.text(), FIELDS)),
    }
}

/// A reference to a request or limit of a container.
pub(super) fn resource_ref(reference: &At<'_>, errors: &mut FieldErrors) {
    let resource = reference.get("resource");
    if resource.text().is_empty() {
        errors.push(resource.required(""));
        return;
    }
    let is_huge = resource.text().contains(".hugepages-");
    if !is_huge && !RESOURCES.contains(&resource.text()) {
        errors.push(FieldError::not_supported(&resource.path, resource.text(), RESOURCES));
    }
}

fn key_ref(reference: &At<'_>, errors: &mut FieldErrors) {
    reference.get("name").optional(names::dns1123_subdomain, errors);
    if reference.get("name").text().is_empty() {
        errors.push(reference.get("name").required(""));
    }
    reference.get("key").named(names::config_map_key, errors);
}
