//! Events; what is wrong is named in the terms of the core group, as upstream does.

use std::borrow::Cow;

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;
use serde_json::Value;

use super::At;
use crate::conversion;

const TEXT_BYTES_MAX: usize = 128;
const MESSAGE_BYTES_MAX: usize = 1024;

/// An Event of the core group.
pub(crate) fn core(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    common(&At::root(object), &mut errors);
    errors
}

/// An update of an Event of the core group.
pub(crate) fn core_update(new: &Value, _: &Value) -> FieldErrors {
    core(new)
}

/// The form of the core group.
fn in_core(event: &Value) -> Cow<'_, Value> {
    let mut event = event.clone();
    if let Some(map) = event.as_object_mut() {
        (conversion::EVENT.to_storage)(map);
    }
    Cow::Owned(event)
}

/// An Event of `events.k8s.io`.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let object = in_core(object);
    let event = At::root(&object);
    common(&event, &mut errors);
    series(&event, &mut errors);
    if event.get("eventTime").text().is_empty() {
        errors.push(event.get("eventTime").required(""));
    }
    let kind = event.get("type").text();
    if !matches!(kind, "Normal" | "Warning") {
        let detail = format!("has invalid value: {kind}");
        errors.push(FieldError::invalid(&event.get("type").path, "", &detail));
    }
    let source = event.get("source");
    let is_set = |at: &At<'_>| !at.text().is_empty() || at.number().is_some_and(|n| n != 0);
    for field in ["firstTimestamp", "lastTimestamp", "count"] {
        if is_set(&event.get(field)) {
            errors.push(FieldError::invalid(&event.get(field).path, "", "needs to be unset"));
        }
    }
    if is_set(&source.get("component")) || is_set(&source.get("host")) {
        errors.push(FieldError::invalid(&source.path, "", "needs to be unset"));
    }
    errors
}

/// An update of an Event of `events.k8s.io`: only the series goes on.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    const FIXED: [&str; 13] = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ];
    let mut errors = FieldErrors::new();
    let (new, old) = (in_core(new), in_core(old));
    let (new, old) = (At::root(&new), At::root(&old));
    common(&new, &mut errors);
    if new.get("series").value != old.get("series").value {
        series(&new, &mut errors);
    }
    for field in FIXED {
        let shown = if field == "reportingComponent" { "reportingController" } else { field };
        let at = At { path: Path::new(shown), ..new.get(field) };
        at.unchanged(&old.get(field), &mut errors);
    }
    errors
}

fn series(event: &At<'_>, errors: &mut FieldErrors) {
    let Some(series) = event.some("series") else { return };
    if series.get("count").number().unwrap_or_default() < 2 {
        errors.push(FieldError::invalid(&series.get("count").path, "", "should be at least 2"));
    }
    series.must_have("lastObservedTime", errors);
}

/// What holds for Events of every age.
fn common(event: &At<'_>, errors: &mut FieldErrors) {
    let namespace = event.get("metadata").get("namespace").text();
    let about = event.get("involvedObject").get("namespace");
    let is_new = !event.get("eventTime").text().is_empty();
    let agrees = match (about.text(), is_new) {
        ("", false) => matches!(namespace, "" | "default"),
        ("", true) => matches!(namespace, "default" | "kube-system"),
        (about, false) => about == namespace,
        (_, true) => true,
    };
    if !agrees {
        errors.push(FieldError::invalid(&about.path, about.text(), "does not match event.namespace"));
    }
    if is_new {
        reporter(event, errors);
    }
    let path = Path::new("namespace");
    let rules = names::dns1123_subdomain(namespace);
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&path, namespace, rule)));
}

fn reporter(event: &At<'_>, errors: &mut FieldErrors) {
    let controller = At { path: Path::new("reportingController"), ..event.get("reportingComponent") };
    if controller.text().is_empty() {
        errors.push(controller.required(""));
    }
    let rules = names::qualified_name(controller.text());
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&controller.path, controller.text(), rule)));
    for field in ["reportingInstance", "action", "reason"] {
        let at = event.get(field);
        if at.text().is_empty() {
            errors.push(at.required(""));
        }
        at_most(&at, TEXT_BYTES_MAX, errors);
    }
    at_most(&event.get("message"), MESSAGE_BYTES_MAX, errors);
}

fn at_most(at: &At<'_>, max: usize, errors: &mut FieldErrors) {
    if at.text().len() > max {
        let detail = format!("can have at most {max} characters");
        errors.push(FieldError::invalid(&at.path, "", &detail));
    }
}
