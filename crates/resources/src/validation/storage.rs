//! StorageClasses, VolumeAttributesClasses and VolumeAttachments.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::persistent_volume::{OLD_LABELS, inline};
use super::volume::driver_name;
use super::{At, internal};

const PARAMETERS_MAX: usize = 512;
const PARAMETERS_BYTES_MAX: usize = 256 * 1024;
const ERROR_MESSAGE_BYTES_MAX: usize = 1024;
const ATTACHMENT_METADATA_BYTES_MAX: usize = 256 * 1024;
const BINDING_MODES: &[&str] = &["Immediate", "WaitForFirstConsumer"];

/// A StorageClass.
pub(crate) fn class(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let class = At::root(object);
    provisioner(&class.get("provisioner"), &mut errors);
    parameters(&class.get("parameters"), &mut errors);
    let policy = class.get("reclaimPolicy");
    if !policy.text().is_empty() {
        policy.if_one_of(&["Delete", "Retain"], &mut errors);
    }
    class.get("volumeBindingMode").one_of(BINDING_MODES, &mut errors);
    topologies(&class.get("allowedTopologies"), &mut errors);
    errors
}

/// An update of a StorageClass: nothing that volumes were made with may change.
pub(crate) fn class_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = class(new);
    let (new, old) = (At::root(new), At::root(old));
    stays(&new, &old, &["parameters", "provisioner", "reclaimPolicy"], &mut errors);
    new.get("volumeBindingMode").immutable(&old.get("volumeBindingMode"), &mut errors);
    errors
}

/// A VolumeAttributesClass.
pub(crate) fn attributes_class(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let class = At::root(object);
    provisioner(&class.get("driverName"), &mut errors);
    let values = class.get("parameters");
    parameters(&values, &mut errors);
    if values.is_empty() {
        errors.push(values.required("must contain at least one key/value pair"));
    }
    errors
}

/// An update of a VolumeAttributesClass: nothing but metadata may change.
pub(crate) fn attributes_class_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    stays(&At::root(new), &At::root(old), &["driverName", "parameters"], &mut errors);
    errors.extend(attributes_class(new));
    errors
}

fn stays(new: &At<'_>, old: &At<'_>, fields: &[&str], errors: &mut FieldErrors) {
    let is_empty = |at: &At<'_>| at.is_empty();
    for name in fields {
        let (new, old) = (new.get(name), old.get(name));
        if new.value != old.value && !(is_empty(&new) && is_empty(&old)) {
            errors.push(new.forbidden(&format!("updates to {name} are forbidden.")));
        }
    }
}

fn provisioner(name: &At<'_>, errors: &mut FieldErrors) {
    if name.text().is_empty() {
        errors.push(name.required(""));
        return;
    }
    let lower = name.text().to_lowercase();
    let rules = names::qualified_name(&lower);
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&name.path, lower.as_str(), rule)));
}

fn parameters(parameters: &At<'_>, errors: &mut FieldErrors) {
    if parameters.len() > PARAMETERS_MAX {
        errors.push(FieldError::too_long(&parameters.path, PARAMETERS_MAX));
        return;
    }
    let mut bytes = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            errors.push(FieldError::invalid(&parameters.path, key, "field can not be empty."));
        }
        bytes += key.len() + value.len();
    }
    if bytes > PARAMETERS_BYTES_MAX {
        errors.push(FieldError::too_long(&parameters.path, PARAMETERS_BYTES_MAX));
    }
}

fn topologies(topologies: &At<'_>, errors: &mut FieldErrors) {
    let mut seen: Vec<&Value> = Vec::new();
    for term in topologies.items() {
        let expressions = term.get("matchLabelExpressions");
        let mut keys = BTreeSet::new();
        for expression in expressions.items() {
            let (key, values) = (expression.get("key"), expression.get("values"));
            if values.is_empty() {
                errors.push(values.required(""));
            }
            let mut texts = BTreeSet::new();
            errors.extend(
                values.items().filter(|value| !texts.insert(value.text())).map(|value| value.duplicate()),
            );
            errors.extend(key.all(names::qualified_name(key.text())));
            if !keys.insert(key.text()) {
                errors.push(key.duplicate());
            }
        }
        if !expressions.is_empty() && seen.contains(&expressions.value) {
            errors.push(FieldError::duplicate(&expressions.path, ""));
        }
        seen.push(expressions.value);
    }
}

/// A VolumeAttachment.
pub(crate) fn attachment(object: &Value) -> FieldErrors {
    let mut errors = attachment_spec(object);
    errors.extend(attachment_status(object));
    let spec = At::root(object).get("spec");
    driver_name(&spec.get("attacher"), &mut errors);
    let volume = spec.get("source").get("persistentVolumeName");
    if volume.is_set() {
        errors.extend(volume.all(names::dns1123_subdomain(volume.text())));
    }
    errors
}

fn attachment_spec(object: &Value) -> FieldErrors {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    if spec.get("attacher").text().is_empty() {
        errors.push(spec.get("attacher").required(""));
    }
    let source = spec.get("source");
    match (source.some("inlineVolumeSpec"), source.some("persistentVolumeName")) {
        (None, None) => errors.push(source.required(ONE)),
        (Some(_), Some(_)) => errors.push(source.forbidden(ONE)),
        (None, Some(name)) if name.text().is_empty() => {
            errors.push(name.required("must specify non empty persistentVolumeName"));
        }
        (None, Some(_)) => {}
        (Some(volume), None) => inline(&volume, &mut errors),
    }
    let node = spec.get("nodeName");
    errors.extend(node.all(names::dns1123_subdomain(node.text())));
    errors
}

fn attachment_status(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let status = At::root(object).get("status");
    let metadata = status.get("attachmentMetadata");
    let bytes: usize = metadata.entries().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > ATTACHMENT_METADATA_BYTES_MAX {
        errors.push(FieldError::too_long(&metadata.path, ATTACHMENT_METADATA_BYTES_MAX));
    }
    for name in ["attachError", "detachError"] {
        let error = status.get(name);
        if error.get("message").len() > ERROR_MESSAGE_BYTES_MAX {
            // Upstream names the other limit.
            errors.push(FieldError::too_long(&error.get("message").path, ATTACHMENT_METADATA_BYTES_MAX));
        }
        let code = error.get("errorCode");
        if code.number().is_some_and(|code| code < 0) {
            errors.push(code.invalid("must be between 0 and 2147483647, inclusive"));
        }
    }
    errors
}

/// An update of a VolumeAttachment: the spec stays.
pub(crate) fn attachment_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = attachment_spec(new);
    errors.extend(attachment_status(new));
    let (spec, was) = (At::root(new).get("spec"), At::root(old).get("spec"));
    if spec.value != was.value {
        errors.push(internal::invalid(&spec, "VolumeAttachmentSpec", "field is immutable"));
    }
    errors
}

/// Warnings about a new StorageClass.
pub(crate) fn class_warnings(class: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for term in At::root(class).get("allowedTopologies").items() {
        for key in term.get("matchLabelExpressions").items().map(|expression| expression.get("key")) {
            if let Some((old, new)) = OLD_LABELS.iter().find(|(old, _)| *old == key.text()) {
                warnings.push(format!("{}: {old} is deprecated since v1.17; use {new:?} instead", key.path));
            }
        }
    }
    warnings
}
