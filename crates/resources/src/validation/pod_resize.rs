//! `pods/resize`: CPU and memory of a running Pod, and nothing else.

use machinery::field::{FieldError, FieldErrors, Path};
use serde_json::{Value, json};

use super::fields::same;
use super::pod_view::MIRROR;
use super::{At, pod};
use crate::pod_resources::qos_class;

/// A write to `/resize`; only `resources` and `resizePolicy` of containers can differ.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (new_pod, old_pod) = (At::root(new), At::root(old));
    pod::spec_and_metadata(&new_pod, Some(&old_pod), &mut errors);
    let refused = |text: &str| FieldErrors::from(FieldError::forbidden(&Path::default(), text));
    let (spec, was) = (new_pod.get("spec"), old_pod.get("spec"));
    if has_pod_level(&spec) || has_pod_level(&was) {
        return refused("pods with pod-level resources cannot be resized");
    }
    if old_pod.annotations().get(MIRROR).is_set() {
        return refused("static pods cannot be resized");
    }
    if was.get("os").get("name").text() == "windows" {
        return refused("windows pods cannot be resized");
    }
    let class = |pod: &Value| pod.pointer("/status/qosClass").and_then(Value::as_str).map(str::to_owned);
    if class(old).unwrap_or_else(|| qos_class(old).to_owned()) != qos_class(new) {
        errors.push(FieldError::invalid(
            &spec.path,
            class(new).unwrap_or_default(),
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
    if !can_be_resized(&old_pod) {
        errors.push(spec.forbidden("Pod running on node without support for resize"));
    }
    let before = errors.len();
    for list in ["containers", "initContainers"] {
        same_containers(&spec.get(list), &was.get(list), list, &mut errors);
    }
    if errors.len() > before {
        return errors;
    }
    for list in ["initContainers", "containers"] {
        for (container, was) in spec.get(list).items().zip(was.get(list).items()) {
            if list == "containers" || is_sidecar(&was) {
                resized(&container, &was, &mut errors);
            }
        }
    }
    only_cpu_and_memory(&spec, &was, &mut errors);
    errors
}

/// What follows compares containers by their place.
fn same_containers(new: &At<'_>, old: &At<'_>, noun: &str, errors: &mut FieldErrors) {
    if new.len() != old.len() {
        errors.push(new.forbidden(&format!("{noun} may not be added or removed on resize")));
        return;
    }
    for (new, old) in new.items().zip(old.items()) {
        let name = new.get("name");
        if name.value != old.get("name").value {
            errors.push(name.forbidden(&format!("{noun} may not be renamed or reordered on resize")));
        }
    }
}

fn has_pod_level(spec: &At<'_>) -> bool {
    let resources = spec.get("resources");
    !resources.get("requests").is_empty() || !resources.get("limits").is_empty()
}

fn is_sidecar(container: &At<'_>) -> bool {
    container.get("restartPolicy").text() == "Always"
}

/// A kubelet that can resize says what running containers have. Where nothing runs there is nothing to tell by.
fn can_be_resized(pod: &At<'_>) -> bool {
    let mut statuses = pod.get("status").get("containerStatuses").items();
    let running = statuses.find(|status| status.get("state").get("running").is_set());
    running.is_none_or(|status| status.get("resources").is_set())
}

fn resized(container: &At<'_>, was: &At<'_>, errors: &mut FieldErrors) {
    let (resources, had) = (container.get("resources"), was.get("resources"));
    for (list, noun) in [("requests", "resource requests"), ("limits", "resource limits")] {
        let (new, old) = (resources.get(list), had.get(list));
        if old.entries().any(|(name, _)| new.value.get(name).is_none()) {
            errors.push(new.forbidden(&format!("{noun} cannot be removed")));
        }
    }
}

fn only_cpu_and_memory(spec: &At<'_>, was: &At<'_>, errors: &mut FieldErrors) {
    let before = errors.len();
    let mut rest = spec.value.clone();
    for (list, detail) in [
        ("containers", "only cpu and memory resources are mutable"),
        ("initContainers", "only cpu and memory resources for sidecar containers are mutable"),
    ] {
        for (index, (container, was)) in spec.get(list).items().zip(was.get(list).items()).enumerate() {
            let mut bare = container.value.clone();
            let is_mutable = list == "containers" || is_sidecar(&was);
            if is_mutable {
                put_back(&mut bare, was.value);
            }
            if !same(&bare, was.value) {
                let detail = if is_mutable {
                    detail
                } else {
                    "resources for non-sidecar init containers are immutable"
                };
                errors.push(spec.forbidden(detail));
            }
            if let Some(slot) = rest.get_mut(list).and_then(|list| list.get_mut(index)) {
                *slot = bare;
            }
        }
    }
    if errors.len() == before && !same(&rest, was.value) {
        errors.push(spec.forbidden("only cpu and memory resources are mutable"));
    }
}

/// CPU and memory of `container` become those of `was`.
fn put_back(container: &mut Value, was: &Value) {
    let Some(map) = container.as_object_mut() else { return };
    let resources = map.entry("resources").or_insert_with(|| json!({}));
    for list in ["limits", "requests"] {
        let Some(resources) = resources.as_object_mut() else { return };
        let amounts = resources.entry(list).or_insert_with(|| json!({}));
        let Some(amounts) = amounts.as_object_mut() else { return };
        for name in ["cpu", "memory"] {
            match was.pointer(&format!("/resources/{list}/{name}")) {
                Some(amount) => amounts.insert(name.to_owned(), amount.clone()),
                None => amounts.remove(name),
            };
        }
    }
}
