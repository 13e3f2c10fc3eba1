//! PersistentVolumeClaims.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::{At, internal, selector};

const RESIZE_STATES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(super) const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];

/// A PersistentVolumeClaim.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    spec(&At::root(object).get("spec"), &mut errors);
    errors
}

/// The API groups that the sources of a claim may name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Groups {
    /// Those that can be.
    Names,
    /// Any: the claim named some before there was a rule.
    Any,
}

/// The spec of a claim, wherever it stands.
pub(super) fn spec(spec: &At<'_>, errors: &mut FieldErrors) {
    rules(spec, Groups::Names, errors);
}

fn rules(spec: &At<'_>, groups: Groups, errors: &mut FieldErrors) {
    access_modes(&spec.get("accessModes"), "at least 1 access mode is required", errors);
    selector::check(&spec.get("selector"), errors);
    let request = spec.get("resources").get("requests").get("storage");
    // Upstream's path has no `requests`.
    let request = At { path: spec.get("resources").path.key("storage"), ..request };
    match request.text().parse::<Quantity>() {
        _ if !request.is_set() => errors.push(request.required("")),
        Err(error) => errors.push(request.invalid(&error.to_string())),
        Ok(amount) if amount.signum() <= 0 => errors.push(request.invalid("must be greater than zero")),
        Ok(_) => {}
    }
    spec.get("storageClassName").optional(names::dns1123_subdomain, errors);
    spec.get("volumeMode").if_one_of(VOLUME_MODES, errors);
    let (source, reference) = (spec.some("dataSource"), spec.some("dataSourceRef"));
    for source in [&source, &reference].into_iter().flatten() {
        data_source(source, groups, errors);
    }
    if let (Some(source), Some(reference)) = (&source, &reference) {
        let is_foreign = !reference.get("namespace").text().is_empty();
        let is_same = ["apiGroup", "kind", "name"]
            .iter()
            .all(|field| source.get(field).value == reference.get(field).value);
        let rule = match (is_foreign, is_same) {
            (true, _) => Some("may not be specified when dataSourceRef.namespace is specified"),
            (false, false) => Some("must match dataSourceRef"),
            (false, true) => None,
        };
        let shown = source.path.to_string();
        errors.extend(rule.map(|rule| FieldError::invalid(&spec.path, shown, rule)));
    }
    spec.get("volumeAttributesClassName").optional(names::dns1123_subdomain, errors);
}

fn data_source(source: &At<'_>, groups: Groups, errors: &mut FieldErrors) {
    let (name, kind, group) = (source.get("name"), source.get("kind"), source.get("apiGroup"));
    for field in [&name, &kind] {
        if field.text().is_empty() {
            errors.push(field.required(""));
        }
    }
    if group.text().is_empty() && kind.text() != "PersistentVolumeClaim" {
        errors.push(FieldError::invalid(
            &source.path,
            kind.text(),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        ));
    }
    if groups == Groups::Names {
        group.optional(names::dns1123_subdomain, errors);
    }
    source.get("namespace").optional(names::dns1123_label, errors);
}

/// An update of a claim: it can only grow, or be bound.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (root, status) = (At::root(new), At::root(old).get("status"));
    let (new_spec, old_spec) = (root.get("spec"), At::root(old).get("spec"));
    let has_group = |source: &str| old_spec.get(source).get("apiGroup").is_set();
    let is_grouped = ["dataSource", "dataSourceRef"].into_iter().any(has_group);
    rules(&new_spec, if is_grouped { Groups::Any } else { Groups::Names }, &mut errors);
    beta_class(&root, &At::root(old), &mut errors);
    let fixed = without_changeable(new, old);
    if fixed != *old_spec.value {
        const RULE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        let difference = internal::diff("PersistentVolumeClaimSpec", old_spec.value, &fixed);
        errors.push(new_spec.forbidden(&format!("{RULE}\n{difference}")));
    }
    let request = |spec: &At<'_>| {
        let at = spec.get("resources").get("requests").get("storage");
        at.text().parse::<Quantity>().ok()
    };
    let has = status.get("capacity").get("storage").text().parse::<Quantity>().unwrap_or_default();
    if let (Some(wanted), Some(before)) = (request(&new_spec), request(&old_spec))
        && wanted < before
        && wanted <= has
    {
        let at = new_spec.get("resources").get("requests").get("storage");
        errors.push(at.forbidden("field can not be less than status.capacity"));
    }
    At { path: root.get("volumeMode").path, ..new_spec.get("volumeMode") }
        .immutable(&old_spec.get("volumeMode"), &mut errors);
    let class = new_spec.get("volumeAttributesClassName");
    let is_applied = status.get("currentVolumeAttributesClassName").is_set();
    if is_applied && class.value != old_spec.get("volumeAttributesClassName").value {
        let what = match (class.is_set(), class.text()) {
            (false, _) => "nil",
            (true, "") => "empty string",
            (true, _) => return errors,
        };
        errors.push(class.forbidden(&format!(
            "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        )));
    }
    errors
}

/// The new spec with the old values of what may change.
fn without_changeable(new: &Value, old: &Value) -> Value {
    let mut spec = new.get("spec").cloned().unwrap_or_default();
    let old_spec = old.get("spec").cloned().unwrap_or_default();
    let Some(map) = spec.as_object_mut() else { return spec };
    let mut take = |name: &str| match old_spec.get(name) {
        Some(value) => map.insert(name.to_owned(), value.clone()),
        None => map.remove(name),
    };
    let is_unset = |name: &str| old_spec.get(name).and_then(Value::as_str).is_none_or(str::is_empty);
    if is_unset("volumeName") {
        take("volumeName");
    }
    // A claim without a class may be given one: the one of its annotation, if it has that.
    let annotation = old.pointer("/metadata/annotations").and_then(|a| a.get(BETA_CLASS));
    let class = new.pointer("/spec/storageClassName");
    if old_spec.get("storageClassName").is_none() && annotation.is_none_or(|a| Some(a) == class) {
        take("storageClassName");
    }
    let is_bound = new.pointer("/status/phase").and_then(Value::as_str) == Some("Bound");
    if is_bound {
        take("volumeAttributesClassName");
    }
    if is_bound
        && let Some(request) = spec.pointer_mut("/resources/requests/storage")
        && let Some(before) = old.pointer("/spec/resources/requests/storage")
    {
        *request = before.clone();
    }
    spec
}

fn beta_class(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let of = |object: &At<'_>| object.get("metadata").get("annotations").get(BETA_CLASS).text().to_owned();
    let (now, before) = (of(new), of(old));
    let had_field = old.get("spec").get("storageClassName").is_set();
    let is_moved = now.is_empty() && !had_field && new.get("spec").get("storageClassName").text() == before;
    if now != before && !is_moved {
        // Upstream writes the path like this.
        let path = new.get("metadata").get("annotations").path.child(BETA_CLASS);
        errors.push(FieldError::invalid(&path, now, "field is immutable"));
    }
}

/// A write to the status of a claim.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let status = At::root(new).get("status");
    for (_, amount) in status.get("capacity").entries() {
        whole(&amount, &mut errors);
    }
    let states = status.get("allocatedResourceStatuses");
    let path = states.path.clone();
    for (name, state) in states.entries() {
        resource_key(&At { path: path.clone(), ..states.clone() }, name, &mut errors);
        if !RESIZE_STATES.contains(&state.text()) {
            errors.push(FieldError::not_supported(&path, name, RESIZE_STATES));
        }
    }
    let allocated = status.get("allocatedResources");
    for (name, amount) in allocated.entries() {
        resource_key(&allocated, name, &mut errors);
        whole(&amount, &mut errors);
    }
    errors
}

fn whole(amount: &At<'_>, errors: &mut FieldErrors) {
    match amount.text().parse::<Quantity>() {
        Err(error) => errors.push(amount.invalid(&error.to_string())),
        Ok(quantity) if quantity.signum() < 0 => {
            let value = quantity.value();
            errors.push(FieldError::invalid(&amount.path, value, "must be a valid resource quantity"));
        }
        Ok(_) => {}
    }
}

fn resource_key(at: &At<'_>, name: &str, errors: &mut FieldErrors) {
    let rules = names::qualified_name(name);
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&at.path, name, rule)));
    let is_native = !name.contains('/') || name.starts_with("kubernetes.io/");
    if rules.is_empty() && is_native && name != "storage" {
        errors.push(FieldError::not_supported(&at.path, name, &["storage"]));
    }
}

/// Warnings about a new claim.
pub(crate) fn warnings(claim: &Value) -> Vec<String> {
    let mut warnings = class_annotation_warnings(claim);
    let request = claim.pointer("/spec/resources/requests/storage").and_then(Value::as_str);
    if let Some(text) = request
        && text.parse::<Quantity>().is_ok_and(|quantity| !quantity.is_whole())
    {
        warnings.push(format!(
            "spec.resources.requests[storage]: fractional byte value {text:?} is invalid, must be an integer"
        ));
    }
    warnings
}

/// Which ways of mounting are offered or asked for.
pub(super) fn access_modes(modes: &At<'_>, missing: &str, errors: &mut FieldErrors) {
    if modes.is_empty() {
        errors.push(modes.required(missing));
    }
    for mode in modes.items().filter(|mode| !ACCESS_MODES.contains(&mode.text())) {
        errors.push(FieldError::not_supported(&modes.path, mode.value, ACCESS_MODES));
    }
    let is_exclusive = |mode: &At<'_>| mode.text() == "ReadWriteOncePod";
    let has_other = modes.items().any(|m| !is_exclusive(&m) && ACCESS_MODES.contains(&m.text()));
    if has_other && modes.items().any(|m| is_exclusive(&m)) {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

/// A storage class named in an annotation.
pub(crate) fn class_annotation_warnings(object: &Value) -> Vec<String> {
    const BETA: &str = "volume.beta.kubernetes.io/storage-class";
    let annotations = At::root(object).get("metadata").get("annotations");
    if annotations.get(BETA).is_set() {
        return vec![format!(
            "metadata.annotations[{BETA}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        )];
    }
    Vec::new()
}
