//! Pods and Pod templates.

use machinery::field::{FieldError, FieldErrors};
use machinery::labels::Selector;
use serde_json::Value;

use super::{At, PodView, container, labels, metadata, pod_annotations, pod_spec};

/// A new Pod.
pub(crate) fn create(pod: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let pod = At::root(pod);
    let spec = pod.get("spec");
    spec_and_metadata(&pod, None, &mut errors);
    if !spec.get("ephemeralContainers").is_empty() {
        errors.push(spec.get("ephemeralContainers").forbidden("cannot be set on create"));
    }
    if !spec.get("nodeName").text().is_empty() && !spec.get("schedulingGates").is_empty() {
        errors.push(
            spec.get("nodeName").forbidden("cannot be set until all schedulingGates have been cleared"),
        );
    }
    pod_annotations::match_fields(&pod.annotations(), &spec, &mut errors);
    errors
}

/// What holds for every Pod, new or not; general metadata apart. What `old` had may stay.
pub(super) fn spec_and_metadata(pod: &At<'_>, old: Option<&At<'_>>, errors: &mut FieldErrors) {
    let spec = pod.get("spec");
    pod_annotations::check(&pod.annotations(), &spec, errors);
    pod_spec::check(&PodView::of_pod(pod, old), errors);
    if spec.get("serviceAccountName").text().is_empty() {
        for source in spec.get("volumes").items().flat_map(|v| v.get("projected").get("sources").items()) {
            if let Some(token) = source.some("serviceAccountToken") {
                errors.push(token.forbidden("must not be specified when serviceAccountName is not set"));
            }
        }
    }
    for list in ["containers", "initContainers"] {
        spec.get(list).items().for_each(|c| container::image_padding(&c, errors));
    }
}

/// Labels and annotations of a template. Upstream leaves `metadata` out of the path.
pub(super) fn template_metadata(template: &At<'_>, errors: &mut FieldErrors) {
    let metadata = template.get("metadata");
    let unnested = |field: &str| At { path: template.path.child(field), ..metadata.get(field) };
    labels(&unnested("labels"), errors);
    metadata::annotations(&unnested("annotations"), errors);
    pod_annotations::check(&unnested("annotations"), &template.get("spec"), errors);
}

/// A `PodTemplateSpec`.
pub(super) fn template(template: &At<'_>, errors: &mut FieldErrors) {
    let spec = template.get("spec");
    template_metadata(template, errors);
    pod_spec::check(&PodView::of_template(template), errors);
    pod_annotations::match_fields(&template.annotations(), &spec, errors);
    if !spec.get("ephemeralContainers").is_empty() {
        let at = spec.get("ephemeralContainers");
        errors.push(at.forbidden("ephemeral containers not allowed in pod template"));
    }
}

/// The labels of `template` must be such that `selector` finds the Pods made from it; without one it finds none.
pub(super) fn template_matches(selector: &At<'_>, template: &At<'_>, errors: &mut FieldErrors) {
    if let Ok(selector) = Selector::from_label_selector(Some(selector.value)) {
        mismatch(&selector, template, errors);
    }
}

/// The same for a ReplicationController's plain map.
pub(super) fn template_matches_map(selector: &At<'_>, template: &At<'_>, errors: &mut FieldErrors) {
    if let Some(map) = selector.value.as_object().filter(|map| !map.is_empty()) {
        mismatch(&Selector::from_labels(map), template, errors);
    }
}

fn mismatch(selector: &Selector, template: &At<'_>, errors: &mut FieldErrors) {
    let labels = template.get("metadata").get("labels");
    if !selector.matches(labels.value.as_object()) {
        let shown = Some(labels.value).filter(|labels| !labels.is_null());
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(&labels.path, shown, detail));
    }
}

/// The Pods of a workload that keeps them running restart, and have no deadline.
pub(super) fn runs_forever(template: &At<'_>, kind: &str, errors: &mut FieldErrors) {
    let spec = template.get("spec");
    let (policy, deadline) = (spec.get("restartPolicy"), spec.get("activeDeadlineSeconds"));
    if policy.text() != "Always" {
        errors.push(FieldError::not_supported(&policy.path, policy.text(), &["Always"]));
    }
    if deadline.is_set() {
        errors.push(deadline.forbidden(&format!("activeDeadlineSeconds in {kind} is not Supported")));
    }
}

/// A `PodTemplate`.
pub(crate) fn pod_template(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    template(&At::root(object).get("template"), &mut errors);
    errors
}

/// An update of a `PodTemplate`.
pub(crate) fn pod_template_update(new: &Value, _: &Value) -> FieldErrors {
    pod_template(new)
}

/// A `Binding`.
pub(crate) fn binding(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let target = At::root(object).get("target");
    let kind = target.get("kind").text();
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported(&target.path.child("kind"), kind, &["Node", "<empty>"]));
    }
    target.must_have("name", &mut errors);
    errors
}
