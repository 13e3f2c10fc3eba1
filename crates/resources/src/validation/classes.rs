//! Classes of Pods, and groups of them: PriorityClasses, RuntimeClasses, Workloads.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::{At, internal, labels, pod_spec, scheduling};

const USER_PRIORITY_MAX: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";
const SYSTEM_CLASSES: &[(&str, i64)] =
    &[("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const POD_GROUPS_MAX: usize = 8;

/// A PriorityClass.
pub(crate) fn priority_class(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let class = At::root(object);
    let (name, value) = (class.get("metadata").get("name"), class.get("value"));
    if name.text().starts_with(SYSTEM_PREFIX) {
        if let Some(error) = unlike_system_class(&class) {
            errors.push(name.forbidden(&format!(
                "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {error}"
            )));
        }
    } else if value.is_over(USER_PRIORITY_MAX) {
        errors.push(
            value.forbidden(&format!(
                "maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"
            )),
        );
    }
    if let Some(policy) = class.some("preemptionPolicy") {
        policy.one_of(&["PreemptLowerPriority", "Never"], &mut errors);
    }
    errors
}

/// What keeps a class from being one of the system's.
fn unlike_system_class(class: &At<'_>) -> Option<String> {
    let name = class.get("metadata").get("name").text();
    let Some((_, value)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if class.get("value").number() != Some(*value) {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    class.get("globalDefault").flag().then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

/// An update of a PriorityClass: what Pods took over from it stays.
pub(crate) fn priority_class_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (new, old) = (At::root(new), At::root(old));
    let value = |class: &At<'_>| class.get("value").number().unwrap_or_default();
    if value(&new) != value(&old) {
        errors.push(new.get("value").forbidden("may not be changed in an update."));
    }
    new.get("preemptionPolicy").unchanged(&old.get("preemptionPolicy"), &mut errors);
    errors
}

/// A RuntimeClass.
pub(crate) fn runtime_class(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let class = At::root(object);
    let handler = class.get("handler");
    let rules = names::dns1123_label(handler.text());
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&handler.path, handler.text(), rule)));
    let overhead = class.get("overhead");
    pod_spec::overhead(&At { path: overhead.path.clone(), ..overhead.get("podFixed") }, &mut errors);
    labels(&class.get("scheduling").get("nodeSelector"), &mut errors);
    let tolerations = class.get("scheduling").get("tolerations");
    scheduling::tolerations(&tolerations, &mut errors);
    let mut seen = BTreeSet::new();
    for toleration in tolerations.items() {
        if !seen.insert(["key", "operator", "value", "effect"].map(|field| toleration.get(field).text())) {
            errors.push(internal::duplicate(&toleration, "Toleration"));
        }
    }
    errors
}

/// An update of a RuntimeClass.
pub(crate) fn runtime_class_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    At::root(new).get("handler").unchanged(&At::root(old).get("handler"), &mut errors);
    errors
}

/// A Workload.
pub(crate) fn workload(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    controller(&spec.get("controllerRef"), &mut errors);
    let groups = spec.get("podGroups");
    pod_group_count(&groups, &mut errors);
    if groups.len() > POD_GROUPS_MAX {
        return errors;
    }
    let mut seen = BTreeSet::new();
    for group in groups.items() {
        let name = group.get("name");
        name.named(names::dns1123_label, &mut errors);
        if !seen.insert(name.text()) {
            errors.push(group.duplicate());
        }
        policy(&group.get("policy"), &mut errors);
    }
    errors
}

fn pod_group_count(groups: &At<'_>, errors: &mut FieldErrors) {
    if groups.is_empty() {
        errors.push(groups.required("must have at least one item"));
    } else if groups.len() > POD_GROUPS_MAX {
        errors.push(FieldError::too_many(&groups.path, groups.len(), POD_GROUPS_MAX));
    }
}

fn controller(reference: &At<'_>, errors: &mut FieldErrors) {
    if !reference.is_set() {
        return;
    }
    reference.get("apiGroup").optional(names::dns1123_subdomain, errors);
    for field in ["kind", "name"] {
        reference.get(field).named(names::path_segment, errors);
    }
}

fn policy(policy: &At<'_>, errors: &mut FieldErrors) {
    match (policy.some("basic"), policy.some("gang")) {
        (None, None) => {
            let detail = "must specify one of: `basic`, `gang`";
            errors.push(FieldError::invalid(&policy.path, "", detail));
        }
        (Some(_), Some(_)) => errors.push(FieldError::invalid(
            &policy.path,
            "{`basic`, `gang`}",
            "exactly one of `basic`, `gang` is required, but multiple fields are set",
        )),
        (None, Some(gang)) => match gang.get("minCount").number().unwrap_or_default() {
            0 => errors.push(gang.get("minCount").required("")),
            _ => gang.get("minCount").positive(errors),
        },
        (Some(_), None) => {}
    }
}

/// An update of a Workload.
pub(crate) fn workload_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (new, old) = (At::root(new).get("spec"), At::root(old).get("spec"));
    if old.get("controllerRef").is_set() {
        new.get("controllerRef").unchanged(&old.get("controllerRef"), &mut errors);
    } else {
        controller(&new.get("controllerRef"), &mut errors);
    }
    new.get("podGroups").unchanged(&old.get("podGroups"), &mut errors);
    pod_group_count(&new.get("podGroups"), &mut errors);
    errors
}
