//! Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers, ControllerRevisions.

mod status;

use machinery::field::FieldErrors;
use machinery::names;
use serde_json::{Value, json};

use super::fields::same;
use super::{At, internal, persistent_volume_claim, pod, selector};

pub(crate) use status::{
    daemon_set_status, deployment_status, replica_set_status, replication_controller_status,
    stateful_set_status,
};

const ONLY_IN_STATEFUL_SETS: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/// A Deployment.
pub(crate) fn deployment(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    spec.get("replicas").not_negative(&mut errors);
    selected_template(&spec, "deployment", "ReplicaSet", &mut errors);
    deployment_strategy(&spec.get("strategy"), &mut errors);
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
    with_same_selector(deployment(new), new, old)
}

/// A ReplicaSet.
pub(crate) fn replica_set(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    spec.get("replicas").not_negative(&mut errors);
    spec.get("minReadySeconds").not_negative(&mut errors);
    // Upstream says so.
    selected_template(&spec, "deployment", "ReplicaSet", &mut errors);
    errors
}

/// An update of a ReplicaSet.
pub(crate) fn replica_set_update(new: &Value, old: &Value) -> FieldErrors {
    with_same_selector(replica_set(new), new, old)
}

fn with_same_selector(mut errors: FieldErrors, new: &Value, old: &Value) -> FieldErrors {
    let selector = |object| At::root(object).get("spec").get("selector");
    selector(new).unchanged(&selector(old), &mut errors);
    errors
}

/// A selector and the template of the Pods that it finds.
fn selected_template(spec: &At<'_>, name: &str, kind: &str, errors: &mut FieldErrors) {
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    selector::required(&selector, name, errors);
    pod::template_matches(&selector, &template, errors);
    pod::template(&template, errors);
    pod::runs_forever(&template, kind, errors);
}

fn deployment_strategy(strategy: &At<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "Recreate" if rolling.is_set() => {
            errors.push(rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" if !rolling.is_set() => {
            errors.push(rolling.required("this should be defaulted and never be nil"));
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            unavailable.int_or_percent(errors);
            surge.int_or_percent(errors);
            if unavailable.is_zero_share() && surge.is_zero_share() {
                errors.push(unavailable.invalid("may not be 0 when `maxSurge` is 0"));
            }
            unavailable.at_most_all(errors);
        }
        // Upstream names the strategy, not its type.
        _ => errors.push(internal::not_supported(
            strategy,
            "DeploymentStrategy",
            &["Recreate", "RollingUpdate"],
        )),
    }
}

/// A ReplicationController.
pub(crate) fn replication_controller(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    spec.get("minReadySeconds").not_negative(&mut errors);
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    if selector.is_empty() {
        errors.push(selector.required(""));
    }
    spec.get("replicas").not_negative(&mut errors);
    if !template.is_set() {
        errors.push(template.required(""));
        return errors;
    }
    pod::template_matches_map(&selector, &template, &mut errors);
    pod::template(&template, &mut errors);
    pod::runs_forever(&template, "ReplicationController", &mut errors);
    errors
}

/// An update of a ReplicationController.
pub(crate) fn replication_controller_update(new: &Value, _: &Value) -> FieldErrors {
    replication_controller(new)
}

/// A DaemonSet.
pub(crate) fn daemon_set(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    selector::check(&selector, &mut errors);
    pod::template_matches(&selector, &template, &mut errors);
    if selector.is_set() && selector::is_empty(&selector) {
        errors.push(selector.invalid("empty selector is invalid for daemonset"));
    }
    pod::template(&template, &mut errors);
    pod::runs_forever(&template, "DaemonSet", &mut errors);
    spec.get("minReadySeconds").not_negative(&mut errors);
    daemon_set_strategy(&spec.get("updateStrategy"), &mut errors);
    spec.get("revisionHistoryLimit").not_negative(&mut errors);
    errors
}

fn daemon_set_strategy(strategy: &At<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => errors.push(rolling.required("")),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            unavailable.int_or_percent(errors);
            surge.int_or_percent(errors);
            unavailable.at_most_all(errors);
            surge.at_most_all(errors);
            match (unavailable.is_zero_share(), surge.is_zero_share()) {
                (false, false) => {
                    errors.push(surge.invalid("may not be set when maxUnavailable is non-zero"));
                }
                (true, true) => errors.push(unavailable.required("cannot be 0 when maxSurge is 0")),
                _ => {}
            }
        }
        _ => errors.push(internal::not_supported(
            strategy,
            "DaemonSetUpdateStrategy",
            &["RollingUpdate", "OnDelete"],
        )),
    }
}

/// An update of a DaemonSet.
pub(crate) fn daemon_set_update(new: &Value, old: &Value) -> FieldErrors {
    with_same_selector(daemon_set(new), new, old)
}

/// The parts of a StatefulSet that are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    /// Everything: it is new.
    All,
    /// Not what cannot change.
    Changeable,
    /// Nor the Pods: those that there are break rules already.
    ChangeableButPods,
}

/// A StatefulSet. Its name is checked as what it is part of: the hostname of a Pod.
pub(crate) fn stateful_set(object: &Value) -> FieldErrors {
    stateful_set_spec(&At::root(object).get("spec"), Parts::All)
}

fn stateful_set_spec(spec: &At<'_>, parts: Parts) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let policy = spec.get("podManagementPolicy");
    match policy.text() {
        "" => errors.push(policy.required("")),
        "OrderedReady" | "Parallel" => {}
        _ => errors.push(policy.invalid("must be 'OrderedReady' or 'Parallel'")),
    }
    stateful_set_strategy(&spec.get("updateStrategy"), &mut errors);
    let retention = spec.get("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        retention.get(field).if_one_of(&["Retain", "Delete"], &mut errors);
    }
    if parts == Parts::All {
        for claim in spec.get("volumeClaimTemplates").items() {
            persistent_volume_claim::spec(&claim.get("spec"), &mut errors);
        }
        spec.get("serviceName").optional(names::dns1123_label, &mut errors);
    }
    for field in ["replicas", "minReadySeconds"] {
        spec.get(field).not_negative(&mut errors);
    }
    // Upstream writes the path like this.
    At { path: spec.path.child("ordinals.start"), ..spec.get("ordinals").get("start") }
        .not_negative(&mut errors);
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    selector::required(&selector, "statefulset", &mut errors);
    pod::template_matches(&selector, &template, &mut errors);
    match parts {
        Parts::ChangeableButPods => pod::template_metadata(&template, &mut errors),
        Parts::All | Parts::Changeable => stateful_template(spec, &template, &mut errors),
    }
    pod::runs_forever(&template, "StatefulSet", &mut errors);
    errors
}

/// The template's Pods have the volumes of the claim templates too, and names of the controller's choice.
fn stateful_template(spec: &At<'_>, template: &At<'_>, errors: &mut FieldErrors) {
    let mut whole = template.value.clone();
    let claims = spec.get("volumeClaimTemplates");
    if let Some(pod) = whole.get_mut("spec").and_then(Value::as_object_mut) {
        pod.remove("subdomain");
        pod.remove("hostname");
        let volumes = pod.entry("volumes").or_insert_with(|| json!([]));
        let names: Vec<_> = claims.items().map(|claim| claim.get("metadata").get("name").text()).collect();
        if let Some(list) = volumes.as_array_mut() {
            list.retain(|volume| !names.iter().any(|name| volume["name"] == **name));
            list.extend(
                names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})),
            );
        }
    }
    pod::template(&At { value: &whole, path: template.path.clone() }, errors);
}

fn stateful_set_strategy(strategy: &At<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "" => errors.push(strategy.required("")),
        "OnDelete" if rolling.is_set() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(internal::invalid(&rolling, "RollingUpdateStatefulSetStrategy", detail));
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            rolling.get("partition").not_negative(errors);
            let Some(unavailable) = rolling.some("maxUnavailable") else { return };
            unavailable.int_or_percent(errors);
            if unavailable.is_zero_share() {
                errors.push(unavailable.invalid("cannot be 0"));
            }
            unavailable.at_most_all(errors);
        }
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(internal::invalid(strategy, "StatefulSetUpdateStrategy", detail));
        }
    }
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
    let spec = |object| stateful_set_spec(&At::root(object).get("spec"), Parts::Changeable);
    let mut errors = match spec(old).is_empty() {
        true => spec(new),
        false => stateful_set_spec(&At::root(new).get("spec"), Parts::ChangeableButPods),
    };
    let fixed = |object: &Value| {
        let mut spec = object.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        spec.retain(|field, _| !FREE.contains(&field.as_str()));
        Value::Object(spec)
    };
    if !same(&fixed(new), &fixed(old)) {
        errors.push(At::root(new).get("spec").forbidden(ONLY_IN_STATEFUL_SETS));
    }
    errors
}

/// A ControllerRevision.
pub(crate) fn controller_revision(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let revision = At::root(object);
    revision.get("revision").not_negative(&mut errors);
    let data = revision.get("data");
    if !data.is_set() {
        errors.push(data.required("data is mandatory"));
    } else if !data.value.is_object() {
        errors.push(data.required("data must be a valid JSON object"));
    }
    errors
}

/// An update of a ControllerRevision: what it holds stays.
pub(crate) fn controller_revision_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    At::root(new).get("revision").not_negative(&mut errors);
    At::root(new).get("data").unchanged(&At::root(old).get("data"), &mut errors);
    errors
}
