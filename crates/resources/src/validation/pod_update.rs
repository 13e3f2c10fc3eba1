//! What may change in a Pod that exists.

use machinery::field::FieldErrors;
use serde_json::{Map, Value};

use super::{At, names, pod_spec};

const ONLY: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// An update of the whole Pod.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let (new_spec, old_spec) = (At::root(new).get("spec"), At::root(old).get("spec"));
    pod_spec::check(&new_spec, &mut errors);
    for list in ["containers", "initContainers"] {
        if new_spec.get(list).len() != old_spec.get(list).len() {
            errors.push(new_spec.get(list).forbidden("pod updates may not add or remove containers"));
            return errors;
        }
    }
    for container in ["containers", "initContainers"].iter().flat_map(|list| new_spec.get(list).items()) {
        let image = container.get("image");
        if image.text().is_empty() || image.text().trim() != image.text() {
            errors.push(image.required(""));
        }
    }
    deadline(&new_spec, &old_spec, &mut errors);
    tolerations(&new_spec.get("tolerations"), &old_spec.get("tolerations"), &mut errors);
    gates(&new_spec, &old_spec, &mut errors);
    let changed = changed_fields(&new_spec, &old_spec);
    if !changed.is_empty() {
        errors.push(new_spec.forbidden(&format!("{ONLY}\n{}", changed.join("\n"))));
    }
    errors
}

/// A deadline may come, or become shorter.
fn deadline(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let at = new.get("activeDeadlineSeconds");
    match (at.number(), old.get("activeDeadlineSeconds").number()) {
        (Some(new), Some(old)) if new > old => {
            errors.push(at.invalid("must be less than or equal to previous value"));
        }
        (None, Some(_)) => errors.push(at.invalid("must not update from a positive integer to nil value")),
        _ => {}
    }
}

/// Tolerations may be added; of those that are there only the seconds may change.
fn tolerations(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let bare = |toleration: &Value| {
        let mut copy = toleration.clone();
        copy.as_object_mut().map(|map| map.remove("tolerationSeconds"));
        copy
    };
    let kept: Vec<_> = new.items().map(|t| bare(t.value)).collect();
    if old.items().any(|t| !kept.contains(&bare(t.value))) {
        errors.push(new.forbidden("existing toleration can not be modified except its tolerationSeconds"));
    }
}

/// Scheduling gates may go, not come.
fn gates(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let old_gates: Vec<_> = old.get("schedulingGates").items().map(|g| g.get("name").text()).collect();
    for gate in new.get("schedulingGates").items() {
        let name = gate.get("name").text();
        if !old_gates.contains(&name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(gate.forbidden(&detail));
        }
    }
}

/// The fields that changed and must not have, with both values.
fn changed_fields(new: &At<'_>, old: &At<'_>) -> Vec<String> {
    let (new, old) = (fixed_part(new, old), fixed_part(old, old));
    let fields: std::collections::BTreeSet<_> = new.keys().chain(old.keys()).collect();
    let shown = |value: Option<&Value>| value.map_or_else(|| "<unset>".to_owned(), Value::to_string);
    fields
        .into_iter()
        .filter(|field| new.get(*field) != old.get(*field))
        .map(|field| format!("  {field}: {} -> {}", shown(old.get(field)), shown(new.get(field))))
        .collect()
}

/// The spec without what may change.
fn fixed_part(spec: &At<'_>, old: &At<'_>) -> Map<String, Value> {
    let mut map = spec.value.as_object().cloned().unwrap_or_default();
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        map.remove(field);
    }
    for list in ["containers", "initContainers"] {
        for container in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container.as_object_mut().map(|c| c.remove("image"));
        }
    }
    let may_become_one = old.get("terminationGracePeriodSeconds").number().is_some_and(|n| n < 0);
    if may_become_one {
        map.remove("terminationGracePeriodSeconds");
    }
    // As long as a gate holds the Pod back, it can still be directed to other nodes.
    if !old.get("schedulingGates").is_empty() {
        map.remove("nodeSelector");
        map.remove("affinity");
    }
    map
}

/// A write to `/status`.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let nominated = At::root(new).get("status").get("nominatedNodeName");
    nominated.optional(names::dns1123_subdomain, &mut errors);
    errors
}
