//! HorizontalPodAutoscalers of both versions; what is wrong is named in the terms of `v2`, as upstream does.

use machinery::features::Feature;
use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::quantities::amount;
use super::{At, NOT_NEGATIVE};
use crate::conversion;

const WINDOW_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;
const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

type Check = fn(&At<'_>, ApiVersion, &mut FieldErrors);

/// Type, field and rules of a metric source, in the order in which upstream looks at them.
const SOURCES: &[(&str, &str, Check)] = &[
    ("Object", "object", object),
    ("External", "external", |source, _, errors| external(source, errors)),
    ("Pods", "pods", |source, _, errors| pods(source, errors)),
    ("Resource", "resource", |source, _, errors| resource(source, errors)),
    ("ContainerResource", "containerResource", |source, _, errors| container_resource(source, errors)),
];

/// A HorizontalPodAutoscaler.
pub(crate) fn check(object: &Value) -> FieldErrors {
    checked(object, None)
}

/// An update of a HorizontalPodAutoscaler.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    checked(new, Some(old))
}

/// What `apiVersion` of a reference must say. Source: `CrossVersionObjectReferenceValidationOptions`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ApiVersion {
    /// Anything: it was there before.
    Any,
    /// A version, with a group or without.
    Readable,
    /// A group and a version.
    Grouped,
}

fn checked(object: &Value, old: Option<&Value>) -> FieldErrors {
    let (object, old) = (as_v2(object), old.map(as_v2));
    let mut errors = FieldErrors::new();
    let spec = At::root(&object).get("spec");
    let was = old.as_ref().map(|old| At::root(old).get("spec"));
    let (min, max) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    let most = max.number().unwrap_or_default();
    // What was made with the gate stays without it.
    let had_zero = was.as_ref().is_some_and(|was| was.get("minReplicas").number() == Some(0));
    let least = if had_zero || Feature::HpaScaleToZero.is_on() { 0 } else { 1 };
    if min.number().is_some_and(|n| n < least) {
        errors.push(min.invalid(&format!("must be greater than or equal to {least}")));
    }
    if most < 1 {
        errors.push(FieldError::invalid(&max.path, most, "must be greater than 0"));
    }
    if min.number().is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(&max.path, most, detail));
    }
    let target = spec.get("scaleTargetRef");
    reference(&target, of_target(&target, was.as_ref()), &mut errors);
    let of_objects = of_objects(was.as_ref());
    let metrics = spec.get("metrics");
    metrics.items().for_each(|m| metric(&m, of_objects, &mut errors));
    // Without Pods nothing else can be measured.
    let is_from_outside = metrics.items().any(|m| matches!(m.get("type").text(), "Object" | "External"));
    if min.number() == Some(0) && !is_from_outside {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden(&metrics.path, detail));
    }
    for rules in ["scaleUp", "scaleDown"] {
        scaling_rules(&spec.get("behavior").get(rules), &mut errors);
    }
    errors
}

fn as_v2(object: &Value) -> Value {
    let mut object = object.clone();
    if object.get("apiVersion").and_then(Value::as_str) == Some("autoscaling/v1")
        && let Some(map) = object.as_object_mut()
    {
        (conversion::HORIZONTAL_POD_AUTOSCALER.to_storage)(map);
    }
    object
}

/// One kind that can be scaled has no group; a target that was named before is not looked at again.
fn of_target(target: &At<'_>, was: Option<&At<'_>>) -> ApiVersion {
    let is_same = |was: &At<'_>| {
        let had = was.get("scaleTargetRef");
        ["apiVersion", "kind"].iter().all(|field| had.get(field).text() == target.get(field).text())
    };
    match target.get("kind").text() {
        _ if was.is_some_and(is_same) => ApiVersion::Any,
        "ReplicationController" => ApiVersion::Readable,
        _ => ApiVersion::Grouped,
    }
}

fn of_objects(was: Option<&At<'_>>) -> ApiVersion {
    let mut metrics = was.into_iter().flat_map(|was| was.get("metrics").items().collect::<Vec<_>>());
    let is_broken = |metric: At<'_>| {
        let described = metric.get("object").get("describedObject");
        metric.get("type").text() == "Object"
            && broken_api_version(described.get("apiVersion").text(), ApiVersion::Readable).is_some()
    };
    if metrics.any(is_broken) { ApiVersion::Any } else { ApiVersion::Readable }
}

fn broken_api_version(text: &str, wanted: ApiVersion) -> Option<String> {
    match text.matches('/').count() {
        _ if wanted == ApiVersion::Any => None,
        2.. => Some(format!("unexpected GroupVersion string: {text}")),
        count => {
            let has_group = count == 1 && !text.starts_with('/');
            (wanted == ApiVersion::Grouped && !has_group)
                .then(|| "apiVersion must specify API group".to_owned())
        }
    }
}

/// A write to `/status`.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let status = At::root(new).get("status");
    for field in ["currentReplicas", "desiredReplicas"] {
        status.get(field).not_negative(&mut errors);
    }
    errors
}

fn reference(target: &At<'_>, api_version: ApiVersion, errors: &mut FieldErrors) {
    for field in ["kind", "name"] {
        target.get(field).named(names::path_segment, errors);
    }
    let at = target.get("apiVersion");
    if let Some(rule) = broken_api_version(at.text(), api_version) {
        errors.push(FieldError::invalid(&at.path, at.text(), &rule));
    }
}

fn metric(metric: &At<'_>, of_objects: ApiVersion, errors: &mut FieldErrors) {
    let kind = metric.get("type");
    if kind.text().is_empty() {
        errors.push(kind.required("must specify a metric source type"));
    }
    if !TYPES.contains(&kind.text()) {
        errors.push(FieldError::not_supported(&kind.path, kind.text(), TYPES));
    }
    let present: Vec<_> = SOURCES.iter().filter(|(_, field, _)| metric.get(field).is_set()).collect();
    if let Some((_, field, check)) = present.first() {
        check(&metric.get(field), of_objects, errors);
    }
    let expected = SOURCES.iter().find(|(name, ..)| *name == kind.text()).map(|(_, field, _)| *field);
    if let Some(field) = expected
        && !metric.get(field).is_set()
    {
        errors.push(metric.get(field).required("must populate information for the given metric source"));
    }
    if present.len() != 1 {
        for (_, field, _) in present.iter().filter(|(_, field, _)| Some(*field) != expected) {
            errors.push(metric.get(field).forbidden("must populate the given metric source only"));
        }
    }
}

fn object(source: &At<'_>, api_version: ApiVersion, errors: &mut FieldErrors) {
    reference(&source.get("describedObject"), api_version, errors);
    identifier(&source.get("metric"), errors);
    let goal = target(source, errors);
    if !goal.get("value").is_set() && !goal.get("averageValue").is_set() {
        errors.push(goal.get("averageValue").required("must set either a target value or averageValue"));
    }
}

fn external(source: &At<'_>, errors: &mut FieldErrors) {
    identifier(&source.get("metric"), errors);
    let goal = target(source, errors);
    match (goal.some("value"), goal.some("averageValue")) {
        (None, None) => errors.push(
            goal.get("averageValue")
                .required("must set either a target value for metric or a per-pod target"),
        ),
        (Some(value), Some(_)) => {
            errors.push(value.forbidden("may not set both a target value for metric and a per-pod target"))
        }
        _ => {}
    }
}

fn pods(source: &At<'_>, errors: &mut FieldErrors) {
    identifier(&source.get("metric"), errors);
    let goal = target(source, errors);
    if !goal.get("averageValue").is_set() {
        errors.push(goal.get("averageValue").required("must specify a positive target averageValue"));
    }
}

fn resource(source: &At<'_>, errors: &mut FieldErrors) {
    if source.get("name").text().is_empty() {
        errors.push(source.get("name").required("must specify a resource name"));
    }
    let goal = target(source, errors);
    match (goal.some("averageUtilization"), goal.some("averageValue")) {
        (None, None) => errors.push(
            goal.get("averageUtilization")
                .required("must set either a target raw value or a target utilization"),
        ),
        (Some(_), Some(value)) => {
            errors.push(value.forbidden("may not set both a target raw value and a target utilization"))
        }
        _ => {}
    }
}

fn container_resource(source: &At<'_>, errors: &mut FieldErrors) {
    if source.get("container").text().is_empty() {
        errors.push(source.get("container").required("must specify a container"));
    }
    resource(source, errors);
}

fn identifier(metric: &At<'_>, errors: &mut FieldErrors) {
    let name = metric.get("name");
    match name.text() {
        "" => errors.push(name.required("must specify a metric name")),
        text => errors.extend(name.all(names::path_segment(text))),
    }
}

/// The `target` of a source; answers it.
fn target<'a>(source: &At<'a>, errors: &mut FieldErrors) -> At<'a> {
    let target = source.get("target");
    let kind = target.get("type");
    if kind.text().is_empty() {
        errors.push(kind.required("must specify a metric target type"));
    }
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(&kind.path, kind.text(), detail));
    }
    for field in ["value", "averageValue"] {
        if let Some(value) = target.some(field)
            && amount(&value).is_none_or(|amount| amount.signum() != 1)
        {
            errors.push(value.invalid("must be positive"));
        }
    }
    let utilization = target.get("averageUtilization");
    if utilization.number().is_some_and(|percent| percent < 1) {
        errors.push(utilization.invalid("must be greater than 0"));
    }
    target
}

fn scaling_rules(rules: &At<'_>, errors: &mut FieldErrors) {
    if !rules.is_set() {
        return;
    }
    let window = rules.get("stabilizationWindowSeconds");
    if window.number().is_some_and(|n| n < 0) {
        errors.push(window.invalid("must be greater than or equal to zero"));
    }
    if window.is_over(WINDOW_SECONDS_MAX) {
        errors.push(window.invalid(&format!("must be less than or equal to {WINDOW_SECONDS_MAX}")));
    }
    rules.get("selectPolicy").if_one_of(&["Disabled", "Max", "Min"], errors);
    let policies = rules.get("policies");
    if policies.is_empty() {
        errors.push(policies.required("must specify at least one Policy"));
    }
    policies.items().for_each(|p| policy(&p, errors));
    if let Some(tolerance) = rules.some("tolerance")
        && amount(&tolerance).is_none_or(|amount| amount.signum() < 0)
    {
        errors.push(tolerance.invalid(NOT_NEGATIVE));
    }
}

fn policy(policy: &At<'_>, errors: &mut FieldErrors) {
    let kind = policy.get("type");
    if !matches!(kind.text(), "Pods" | "Percent") {
        errors.push(FieldError::not_supported(&kind.path, kind.text(), &["Percent", "Pods"]));
    }
    for field in ["value", "periodSeconds"] {
        let number = policy.get(field).number().unwrap_or_default();
        if number <= 0 {
            errors.push(FieldError::invalid(&policy.get(field).path, number, "must be greater than zero"));
        }
    }
    let period = policy.get("periodSeconds");
    if period.is_over(PERIOD_SECONDS_MAX) {
        errors.push(period.invalid(&format!("must be less than or equal to {PERIOD_SECONDS_MAX}")));
    }
}
