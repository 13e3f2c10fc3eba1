//! Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers.

use machinery::field::FieldErrors;
use machinery::int_or_string;
use serde_json::Value;

use super::{At, pod, selector};

/// A Deployment.
pub(crate) fn deployment(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let spec = At::root(object).get("spec");
    spec.get("replicas").not_negative(&mut errors);
    workload(&spec, "deployment", "Deployment", &mut errors);
    strategy(&spec.get("strategy"), &mut errors);
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        spec.get(field).not_negative(&mut errors);
    }
    let (deadline, ready) = (spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds"));
    if deadline.number().is_some_and(|seconds| seconds <= ready.number().unwrap_or_default()) {
        errors.push(deadline.invalid("must be greater than minReadySeconds"));
    }
    errors
}

/// An update of a Deployment.
pub(crate) fn deployment_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = deployment(new);
    same_selector(new, old, &mut errors);
    errors
}

/// A ReplicaSet.
pub(crate) fn replica_set(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let spec = At::root(object).get("spec");
    spec.get("replicas").not_negative(&mut errors);
    spec.get("minReadySeconds").not_negative(&mut errors);
    workload(&spec, "deployment", "ReplicaSet", &mut errors);
    errors
}

/// An update of a ReplicaSet.
pub(crate) fn replica_set_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = replica_set(new);
    same_selector(new, old, &mut errors);
    errors
}

/// A ReplicationController.
pub(crate) fn replication_controller(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let spec = At::root(object).get("spec");
    spec.get("replicas").not_negative(&mut errors);
    spec.get("minReadySeconds").not_negative(&mut errors);
    if spec.get("selector").is_empty() {
        errors.push(spec.get("selector").required(""));
    }
    let template = spec.get("template");
    if !template.is_set() {
        errors.push(template.required(""));
        return errors;
    }
    pod::template(&template, &mut errors);
    let labels = template.get("metadata").get("labels");
    let is_matched = spec.get("selector").entries().all(|(key, value)| labels.get(key).value == value.value);
    if !is_matched {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
    pod::runs_forever(&template, "ReplicationController", &mut errors);
    errors
}

/// An update of a ReplicationController.
pub(crate) fn replication_controller_update(new: &Value, _: &Value) -> FieldErrors {
    replication_controller(new)
}

/// A DaemonSet.
pub(crate) fn daemon_set(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let spec = At::root(object).get("spec");
    workload(&spec, "daemonset", "DaemonSet", &mut errors);
    let strategy = spec.get("updateStrategy");
    strategy.get("type").if_one_of(&["OnDelete", "RollingUpdate"], &mut errors);
    for field in ["minReadySeconds", "revisionHistoryLimit"] {
        spec.get(field).not_negative(&mut errors);
    }
    errors
}

/// An update of a DaemonSet.
pub(crate) fn daemon_set_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = daemon_set(new);
    same_selector(new, old, &mut errors);
    errors
}

/// A StatefulSet.
pub(crate) fn stateful_set(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let spec = At::root(object).get("spec");
    spec.get("podManagementPolicy").if_one_of(&["OrderedReady", "Parallel"], &mut errors);
    spec.get("updateStrategy").get("type").if_one_of(&["OnDelete", "RollingUpdate"], &mut errors);
    for field in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
        spec.get(field).not_negative(&mut errors);
    }
    workload(&spec, "statefulset", "StatefulSet", &mut errors);
    errors
}

/// An update of a StatefulSet: only a few fields may change.
pub(crate) fn stateful_set_update(new: &Value, old: &Value) -> FieldErrors {
    const FREE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let mut errors = stateful_set(new);
    let fixed = |object: &Value| {
        let mut spec = object.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        spec.retain(|field, _| !FREE.contains(&field.as_str()));
        spec
    };
    if fixed(new) != fixed(old) {
        errors.push(At::root(new).get("spec").forbidden("updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"));
    }
    errors
}

fn workload(spec: &At<'_>, name: &str, kind: &str, errors: &mut FieldErrors) {
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    selector::required(&selector, name, errors);
    if !template.is_set() {
        errors.push(template.required(""));
        return;
    }
    pod::template_matches(&selector, &template, errors);
    pod::template(&template, errors);
    pod::runs_forever(&template, kind, errors);
}

fn same_selector(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let selector = |object| At::root(object).get("spec").get("selector");
    selector(new).immutable(&selector(old), errors);
}

fn strategy(strategy: &At<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "Recreate" if rolling.is_set() => {
            errors.push(rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" if !rolling.is_set() => {
            errors.push(rolling.required("this should be defaulted and never be nil"));
        }
        "RollingUpdate" => rolling_update(&rolling, errors),
        _ => strategy.get("type").if_one_of(&["Recreate", "RollingUpdate"], errors),
    }
}

fn rolling_update(rolling: &At<'_>, errors: &mut FieldErrors) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    unavailable.int_or_percent(errors);
    surge.int_or_percent(errors);
    let is_zero =
        |at: &At<'_>| at.number() == Some(0) || int_or_string::percent(at.text()) == Some(0) || !at.is_set();
    if is_zero(&unavailable) && is_zero(&surge) {
        errors.push(unavailable.invalid("may not be 0 when `maxSurge` is 0"));
    }
    if int_or_string::percent(unavailable.text()).is_some_and(|percent| percent > 100) {
        errors.push(unavailable.invalid("must not be greater than 100%"));
    }
}
