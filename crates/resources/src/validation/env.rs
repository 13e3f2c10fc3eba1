//! Environment variables and where they come from.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::quantity::Quantity;

use super::At;

const ENV_FIELDS: &[&str] = &[
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
const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Every field that can be named at all.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: &[&str] =
    &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
const TOO_MANY_SOURCES: &str = "may not have more than one field specified at a time";

/// Who asks for a field of the Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// An environment variable.
    Variable,
    /// A file in a volume.
    File,
}

/// `env` and `envFrom` of a container.
pub(super) fn all(container: &At<'_>, errors: &mut FieldErrors) {
    for variable in container.get("env").items() {
        variable.get("name").named(names::env_var_name, errors);
        if let Some(source) = variable.some("valueFrom") {
            value_from(&source, !variable.get("value").text().is_empty(), errors);
        }
    }
    let sources = container.get("envFrom");
    for source in sources.items() {
        source.get("prefix").optional(names::env_var_name, errors);
        let set: Vec<_> =
            ["configMapRef", "secretRef"].into_iter().filter_map(|kind| source.some(kind)).collect();
        for reference in &set {
            let name = reference.get("name");
            match name.text() {
                "" => errors.push(name.required("")),
                text => errors.extend(name.all(names::dns1123_subdomain(&names::masked_prefix(text)))),
            }
        }
        // Upstream names the list, not its element.
        let of = |detail: &str| FieldError::invalid(&sources.path, "", detail);
        match set.len() {
            0 => errors.push(of("must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(of(TOO_MANY_SOURCES)),
        }
    }
}

fn value_from(source: &At<'_>, has_value: bool, errors: &mut FieldErrors) {
    let kinds = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let set: Vec<_> = kinds.into_iter().filter(|kind| source.get(kind).is_set()).collect();
    for kind in &set {
        let reference = source.get(kind);
        match *kind {
            "fieldRef" => field_ref(&reference, Asker::Variable, errors),
            "resourceFieldRef" => resource_ref(&reference, Asker::Variable, errors),
            "fileKeyRef" => file_key_ref(&reference, errors),
            _ => key_ref(&reference, errors),
        }
    }
    let of = |detail: &str| FieldError::invalid(&source.path, "", detail);
    match set.len() {
        0 => errors.push(of(
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        )),
        _ if has_value => errors.push(of("may not be specified when `value` is not empty")),
        1 => {}
        _ => errors.push(of(TOO_MANY_SOURCES)),
    }
}

/// A reference to a field of the Pod.
pub(super) fn field_ref(reference: &At<'_>, asker: Asker, errors: &mut FieldErrors) {
    let (version, path) = (reference.get("apiVersion"), reference.get("fieldPath"));
    if version.text().is_empty() {
        errors.push(version.required(""));
        return;
    }
    if path.text().is_empty() {
        errors.push(path.required(""));
        return;
    }
    let text = path.text();
    let subscript = text.split_once("['").and_then(|(field, rest)| Some((field, rest.strip_suffix("']")?)));
    let of = |value: &str, detail: &str| FieldError::invalid(&reference.path, value, detail);
    if version.text() != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {}", version.text());
        errors.push(path.invalid(&detail));
        return;
    }
    match subscript {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            errors.extend(names::qualified_name(&key).iter().map(|rule| of(&key, rule)));
        }
        Some(("metadata.labels", key)) => {
            errors.extend(names::qualified_name(key).iter().map(|rule| of(key, rule)));
        }
        Some(_) => {
            let detail =
                format!("error converting fieldPath: field label does not support subscript: {text}");
            errors.push(path.invalid(&detail));
        }
        None if !KNOWN_FIELDS.contains(&text) => {
            let detail = format!("error converting fieldPath: field label not supported: {text}");
            errors.push(path.invalid(&detail));
        }
        None => {
            let supported = if asker == Asker::Variable { ENV_FIELDS } else { FILE_FIELDS };
            path.if_one_of(supported, errors);
        }
    }
}

/// A reference to a request or limit of a container.
pub(super) fn resource_ref(reference: &At<'_>, asker: Asker, errors: &mut FieldErrors) {
    let (resource, container) = (reference.get("resource"), reference.get("containerName"));
    let name = resource.text();
    let is_huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if asker == Asker::File && container.text().is_empty() {
        errors.push(container.required(""));
    } else if name.is_empty() {
        errors.push(resource.required(""));
    } else if !is_huge {
        resource.if_one_of(RESOURCES, errors);
    }
    divisor(reference, name, is_huge, errors);
}

fn divisor(reference: &At<'_>, resource: &str, is_huge: bool, errors: &mut FieldErrors) {
    let divisor = reference.get("divisor");
    let text = divisor.text();
    if text.is_empty() || text.parse::<Quantity>().is_ok_and(Quantity::is_zero) {
        return;
    }
    let noun = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") => "cpu",
        Some("memory") => "memory",
        Some("ephemeral-storage") => "local ephemeral storage",
        _ if is_huge => "hugepages",
        _ => return,
    };
    let allowed = if noun == "cpu" { &["1m", "1"] } else { BYTE_DIVISORS };
    if !allowed.contains(&text) {
        let list = if noun == "cpu" { "1m and 1".to_owned() } else { allowed.join(", ") };
        errors.push(FieldError::invalid(
            &divisor.path,
            resource,
            &format!("only divisor's values {list} are supported with the {noun} resource"),
        ));
    }
}

fn key_ref(reference: &At<'_>, errors: &mut FieldErrors) {
    let name = reference.get("name");
    let rules = names::dns1123_subdomain(name.text());
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&name.path, name.text(), rule)));
    reference.get("key").named(names::config_map_key, errors);
}

fn file_key_ref(reference: &At<'_>, errors: &mut FieldErrors) {
    reference.get("volumeName").named(names::dns1123_label, errors);
    let path = reference.get("path");
    match path.text() {
        "" => errors.push(path.required("")),
        _ => path.no_backsteps(errors),
    }
    reference.get("key").named(names::env_var_name, errors);
}
