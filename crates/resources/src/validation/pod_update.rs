//! The fields that may change in a Pod that exists.

use machinery::field::FieldErrors;
use serde_json::{Map, Value};

use super::fields::same;
use super::{At, container, internal, pod, pod_annotations};

const ONLY: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// An update of the whole Pod.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (new_pod, old_pod) = (At::root(new), At::root(old));
    pod::spec_and_metadata(&new_pod, Some(&old_pod), &mut errors);
    pod_annotations::update(&new_pod.annotations(), &old_pod.annotations(), &mut errors);
    let (new, old) = (new_pod.get("spec"), old_pod.get("spec"));
    for list in ["containers", "initContainers"] {
        if new.get(list).len() != old.get(list).len() {
            errors.push(new.get(list).forbidden("pod updates may not add or remove containers"));
            return errors;
        }
        for container in new.get(list).items() {
            container.must_have("image", &mut errors);
            container::image_padding(&container, &mut errors);
        }
    }
    if !deadline(&new, &old, &mut errors) {
        return errors;
    }
    tolerations(&new.get("tolerations"), &old.get("tolerations"), &mut errors);
    gates(&new.get("schedulingGates"), &old.get("schedulingGates"), &mut errors);
    if same(new.value, old.value) {
        return errors;
    }
    if !old.get("schedulingGates").is_empty() {
        direction(&new, &old, &mut errors);
    }
    let fixed = munged(&new, &old);
    if !same(&fixed, old.value) {
        errors.push(new.forbidden(&format!("{ONLY}\n{}", internal::diff("PodSpec", old.value, &fixed))));
    }
    errors
}

/// A deadline may come, or become shorter. Says whether it is worth while to look further.
fn deadline(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) -> bool {
    let at = new.get("activeDeadlineSeconds");
    match (at.number(), old.get("activeDeadlineSeconds").number()) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            at.between(0, i64::from(i32::MAX), errors);
            false
        }
        (Some(new), Some(old)) if new > old => {
            errors.push(at.invalid("must be less than or equal to previous value"));
            false
        }
        (None, Some(_)) => {
            errors.push(at.invalid("must not update from a positive integer to nil value"));
            true
        }
        _ => true,
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
    if old.items().any(|t| !kept.iter().any(|kept| same(kept, &bare(t.value)))) {
        errors.push(new.forbidden("existing toleration can not be modified except its tolerationSeconds"));
        return;
    }
    super::scheduling::tolerations(new, errors);
}

/// Scheduling gates may go, not come.
fn gates(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let had: Vec<_> = old.items().map(|gate| gate.get("name").text()).collect();
    for gate in new.items() {
        let name = gate.get("name");
        if !had.contains(&name.text()) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", name.text());
            errors.push(name.forbidden(&detail));
        }
    }
}

/// As long as a gate holds the Pod back, the nodes that it can go to may become fewer.
fn direction(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let (selector, was) = (new.get("nodeSelector"), old.get("nodeSelector"));
    if was.entries().any(|(key, value)| selector.value.get(key) != Some(value.value)) {
        errors.push(
            selector.invalid("only additions to spec.nodeSelector are allowed (no mutations or deletions)"),
        );
    }
    let (terms, had) = (required_terms(new), required_terms(old));
    if had.is_empty() {
        return;
    }
    if terms.len() != had.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(internal::invalid_list(&terms, "NodeSelectorTerm", detail));
        return;
    }
    for (term, had) in terms.items().zip(had.items()) {
        if !only_adds(&term, &had) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(internal::invalid(&term, "NodeSelectorTerm", detail));
        }
    }
}

fn required_terms<'a>(spec: &At<'a>) -> At<'a> {
    spec.get("affinity").get("nodeAffinity").get(REQUIRED).get("nodeSelectorTerms")
}

fn only_adds(term: &At<'_>, had: &At<'_>) -> bool {
    const LISTS: [&str; 2] = ["matchExpressions", "matchFields"];
    // A term without rules matches nothing; one with rules would match something.
    if LISTS.iter().all(|list| had.get(list).is_empty()) {
        return LISTS.iter().all(|list| term.get(list).is_empty());
    }
    LISTS.iter().all(|list| {
        let (new, old) = (term.get(list), had.get(list));
        new.len() >= old.len() && new.items().zip(old.items()).all(|(new, old)| same(new.value, old.value))
    })
}

/// The new spec, with the old values of what may change.
fn munged(new: &At<'_>, old: &At<'_>) -> Value {
    let grace = |spec: &At<'_>| spec.get("terminationGracePeriodSeconds").number();
    let mut spec = new.value.clone();
    let Some(map) = spec.as_object_mut() else { return spec };
    for list in ["containers", "initContainers"] {
        let containers = map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, had) in containers.filter_map(Value::as_object_mut).zip(old.get(list).items()) {
            take(container, had.value, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        take(map, old.value, field);
    }
    if grace(old).is_some_and(|n| n < 0) && grace(new) == Some(1) {
        take(map, old.value, "terminationGracePeriodSeconds");
    }
    if !old.get("schedulingGates").is_empty() {
        take(map, old.value, "nodeSelector");
        let affinity = map.entry("affinity").or_insert_with(|| Map::new().into());
        if let Some(affinity) = affinity.as_object_mut() {
            take(affinity, old.get("affinity").value, "nodeAffinity");
        }
        if same(affinity, &Value::Null) {
            take(map, old.value, "affinity");
        }
    }
    spec
}

/// Gives `map` the field that `from` has, or takes it.
fn take(map: &mut Map<String, Value>, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}
