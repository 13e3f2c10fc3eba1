//! Pods and Pod templates.

use machinery::field::FieldErrors;
use machinery::labels::Selector;
use serde_json::Value;

use super::{At, labels, metadata, pod_spec};

/// A new Pod.
pub(crate) fn create(pod: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let pod = At::root(pod);
    let spec = pod.get("spec");
    pod_spec::check(&spec, &mut errors);
    if !spec.get("ephemeralContainers").is_empty() {
        errors.push(spec.get("ephemeralContainers").forbidden("cannot be set on create"));
    }
    if !spec.get("nodeName").text().is_empty() && !spec.get("schedulingGates").is_empty() {
        errors.push(
            spec.get("nodeName").forbidden("cannot be set until all schedulingGates have been cleared"),
        );
    }
    errors
}

/// A `PodTemplateSpec` of a workload that keeps its Pods running.
pub(super) fn template(template: &At<'_>, errors: &mut FieldErrors) {
    labels(&template.get("metadata").get("labels"), errors);
    metadata::annotations(&template.get("metadata").get("annotations"), errors);
    pod_spec::check(&template.get("spec"), errors);
    if !template.get("spec").get("ephemeralContainers").is_empty() {
        let at = template.get("spec").get("ephemeralContainers");
        errors.push(at.forbidden("ephemeral containers not allowed in pod template"));
    }
}

/// The labels of `template` must be such that `selector` finds the Pods made from it.
pub(super) fn template_matches(selector: &At<'_>, template: &At<'_>, errors: &mut FieldErrors) {
    let labels = template.get("metadata").get("labels");
    let Ok(parsed) = Selector::from_label_selector(Some(selector.value)) else { return };
    if !parsed.is_everything() && selector.is_set() && !parsed.matches(labels.value.as_object()) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
}

/// Pods of workloads that run forever are always restarted and have no deadline.
pub(super) fn runs_forever(template: &At<'_>, kind: &str, errors: &mut FieldErrors) {
    let spec = template.get("spec");
    let policy = spec.get("restartPolicy");
    if policy.text() != "Always" && !policy.text().is_empty() {
        policy.if_one_of(&["Always"], errors);
    }
    if spec.get("activeDeadlineSeconds").is_set() {
        let at = spec.get("activeDeadlineSeconds");
        errors.push(at.forbidden(&format!("activeDeadlineSeconds in {kind} is not Supported")));
    }
}
