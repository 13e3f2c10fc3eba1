//! Jobs and CronJobs.

mod cron;
mod indexes;
mod job_status;
mod policies;

use std::collections::BTreeMap;

use machinery::features::Feature;
use machinery::field::{FieldError, FieldErrors};
use machinery::labels::Selector;
use machinery::names;
use serde_json::{Map, Value};

use super::fields::same;
use super::{At, internal, pod, selector};

pub(crate) use cron::{cron_job, cron_job_update};
pub(crate) use job_status::update as job_status_update;

const INDEXED_PARALLELISM_MAX: i64 = 100_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const MANY_COMPLETIONS_PARALLELISM_MAX: i64 = 10_000;
const MANAGED_BY_BYTES_MAX: usize = 63;
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// A Job.
pub(crate) fn job(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    whole(&At::root(object), Labels::Prefixed, &mut errors);
    errors
}

/// Which labels a template without a selector of the caller's has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labels {
    /// Those with Kubernetes' prefix, and those without.
    Prefixed,
    /// Those without, as Jobs of old have them.
    Plain,
}

fn whole(job: &At<'_>, labels: Labels, errors: &mut FieldErrors) {
    let spec = job.get("spec");
    generated_selector(job, labels, errors);
    whole_spec(&spec, errors);
    let completions = spec.get("completions").number().unwrap_or_default();
    if is_indexed(&spec) && completions > 0 {
        let name = job.get("metadata").get("name");
        let longest = format!("{}-{}", name.text(), completions - 1);
        if !names::dns1123_label(&longest).is_empty() {
            errors.push(
                name.invalid(&format!("will not able to create pod with invalid DNS label: {longest}")),
            );
        }
    }
}

fn is_indexed(spec: &At<'_>) -> bool {
    spec.get("completionMode").text() == "Indexed"
}

/// A selector that was not the caller's choice is the generated one, and its labels are on the template.
fn generated_selector(job: &At<'_>, kept: Labels, errors: &mut FieldErrors) {
    let spec = job.get("spec");
    if spec.get("manualSelector").flag() || !spec.get("selector").is_set() {
        return;
    }
    let (uid, name) = (job.get("metadata").get("uid"), job.get("metadata").get("name"));
    if uid.text().is_empty() {
        errors.push(uid.required(""));
    }
    let mut expected = vec![("controller-uid", uid.text()), ("job-name", name.text())];
    if kept == Labels::Prefixed {
        expected.extend([(CONTROLLER_UID, uid.text()), (JOB_NAME, name.text())]);
    }
    let labels = spec.get("template").get("metadata").get("labels");
    for &(key, value) in &expected {
        let path = labels.path.key(key);
        let detail = format!("must be '{value}'");
        match labels.value.get(key).and_then(Value::as_str) {
            None => errors.push(FieldError::required(&path, &detail)),
            Some(found) if found != value => {
                errors.push(FieldError::invalid(&path, labels.value, &detail));
            }
            Some(_) => {}
        }
    }
    let expected: BTreeMap<_, _> = expected.into_iter().collect();
    if let Ok(selector) = Selector::from_label_selector(Some(spec.get("selector").value))
        && !selector.matches_with(|key| expected.get(key).copied())
    {
        errors.push(spec.get("selector").invalid("`selector` not auto-generated"));
    }
}

fn whole_spec(spec: &At<'_>, errors: &mut FieldErrors) {
    check(spec, errors);
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    if selector.is_set() {
        selector::check(&selector, errors);
    } else {
        errors.push(selector.required(""));
    }
    pod::template_matches(&selector, &template, errors);
}

/// What holds for a Job's spec, its selector apart.
fn check(spec: &At<'_>, errors: &mut FieldErrors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        spec.get(field).not_negative(errors);
    }
    let per_index = spec.get("backoffLimitPerIndex");
    if spec.get("maxFailedIndexes").is_set() && !per_index.is_set() {
        errors.push(per_index.required("when maxFailedIndexes is specified"));
    }
    managed_by(&spec.get("managedBy"), errors);
    spec.get("completionMode").if_one_of(&["NonIndexed", "Indexed"], errors);
    if is_indexed(spec) {
        indexed(spec, errors);
    }
    if matches!(spec.get("completionMode").text(), "" | "NonIndexed") {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(at) = spec.some(field) {
                errors.push(at.invalid("requires indexed completion mode"));
            }
        }
    }
    policies::check(spec, errors);
    pod::template(&spec.get("template"), errors);
    restart_policy(spec, errors);
}

fn indexed(spec: &At<'_>, errors: &mut FieldErrors) {
    let (completions, parallelism, failed) =
        (spec.get("completions"), spec.get("parallelism"), spec.get("maxFailedIndexes"));
    if !completions.is_set() {
        errors.push(completions.required("when completion mode is Indexed"));
    }
    let at_most = |at: &At<'_>, max: i64, when: &str, errors: &mut FieldErrors| {
        if at.is_over(max) {
            errors.push(at.invalid(&format!("must be less than or equal to {max}{when}")));
        }
    };
    at_most(&parallelism, INDEXED_PARALLELISM_MAX, " when completion mode is Indexed", errors);
    if let (Some(failed_max), Some(count)) = (failed.number(), completions.number())
        && failed_max > count
    {
        errors.push(failed.invalid("must be less than or equal to completions"));
    }
    at_most(&failed, FAILED_INDEXES_MAX, "", errors);
    if !completions.is_over(MANY_COMPLETIONS) || !spec.get("backoffLimitPerIndex").is_set() {
        return;
    }
    if !failed.is_set() {
        let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        errors.push(failed.required(&detail));
    }
    let when =
        format!(" when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
    at_most(&parallelism, MANY_COMPLETIONS_PARALLELISM_MAX, &when, errors);
    at_most(&failed, MANY_COMPLETIONS_PARALLELISM_MAX, &when, errors);
}

/// The name of another controller: a domain and a path.
fn managed_by(at: &At<'_>, errors: &mut FieldErrors) {
    if !at.is_set() {
        return;
    }
    let text = at.text();
    errors.extend(names::domain_prefixed_path(&at.path, text));
    if text.len() > MANAGED_BY_BYTES_MAX {
        errors.push(FieldError::too_long(&at.path, MANAGED_BY_BYTES_MAX));
    }
}

fn restart_policy(spec: &At<'_>, errors: &mut FieldErrors) {
    let policy = spec.get("template").get("spec").get("restartPolicy");
    match policy.text() {
        "" | "Always" => errors.push(policy.required("valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if spec.get("podFailurePolicy").is_set() => {
            errors.push(policy.invalid("only \"Never\" is supported when podFailurePolicy is specified"));
        }
        "OnFailure" | "Never" => {}
        _ => policy.if_one_of(&["OnFailure", "Never"], errors),
    }
}

/// An update of a Job.
pub(crate) fn job_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (new_job, old_job) = (At::root(new), At::root(old));
    let (new, old) = (new_job.get("spec"), old_job.get("spec"));
    let had = |label: &str| old.get("template").get("metadata").get("labels").value.get(label).is_some();
    let kept = if had(JOB_NAME) && had(CONTROLLER_UID) { Labels::Prefixed } else { Labels::Plain };
    whole(&new_job, kept, &mut errors);
    whole_spec(&new, &mut errors);
    completions(&new, &old, &mut errors);
    new.get("selector").unchanged(&old.get("selector"), &mut errors);
    template(&new, &old, &old_job.get("status"), &mut errors);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        let (at, was) = (new.get(field), old.get(field));
        if !same(at.value, was.value) {
            errors.push(match field {
                "podFailurePolicy" => internal::invalid(&at, "PodFailurePolicy", "field is immutable"),
                "successPolicy" => internal::invalid(&at, "SuccessPolicy", "field is immutable"),
                _ => at.invalid("field is immutable"),
            });
        }
    }
    errors
}

/// An indexed Job may be scaled.
fn completions(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let (at, was) = (new.get("completions"), old.get("completions"));
    if !is_indexed(new) {
        at.unchanged(&was, errors);
    } else if at.is_set() && at.value != was.value && at.value != new.get("parallelism").value {
        errors.push(
            at.invalid(&format!("can only be modified in tandem with {}", new.get("parallelism").path)),
        );
    }
}

/// What of the template may still change. Source: `validationOptionsForJob` of `pkg/registry/batch/job`, with the gates as
/// 1.36 has them: a Job that was never looked at counts as one that nobody works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Open {
    /// Where its Pods go.
    directives: bool,
    /// What their containers ask for.
    resources: bool,
}

impl Open {
    fn of(old: &At<'_>, status: &At<'_>) -> Self {
        let is_suspended = old.get("suspend").flag();
        let is_new = !status.get("startTime").is_set();
        let mut conditions = status.get("conditions").items();
        let says_so =
            conditions.any(|c| c.get("type").text() == "Suspended" && c.get("status").text() == "True");
        let is_idle = is_suspended && (is_new || says_so) && !status.get("active").is_over(0);
        let gated = Feature::MutableSchedulingDirectivesForSuspendedJobs.is_on();
        Self {
            directives: if gated { is_idle } else { is_suspended && is_new },
            resources: is_idle && Feature::MutablePodResourcesForSuspendedJobs.is_on(),
        }
    }
}

fn template(new: &At<'_>, old: &At<'_>, status: &At<'_>, errors: &mut FieldErrors) {
    let (template, was) = (new.get("template"), old.get("template"));
    let open = Open::of(old, status);
    let (mut to, mut from) = (template.value.clone(), was.value.clone());
    if open.directives {
        undirect(&mut to);
        undirect(&mut from);
    }
    if !open.resources {
        if !same(&to, &from) {
            errors.push(internal::invalid(&template, "PodTemplateSpec", "field is immutable"));
        }
        return;
    }
    let (to, from) = (unasking(&to), unasking(&from));
    if !same(&to, &from) {
        errors.push(internal::invalid(&template.get("spec"), "PodSpec", "field is immutable"));
    }
}

/// Takes away what says where the Pods of a template go.
fn undirect(template: &mut Value) {
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        drop_all(metadata, &["annotations", "labels"]);
    }
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        drop_all(spec, &["nodeSelector", "tolerations", "schedulingGates"]);
        if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
            affinity.remove("nodeAffinity");
        }
    }
}

/// The spec of a template without what its containers ask for.
fn unasking(template: &Value) -> Value {
    let mut spec = template.get("spec").cloned().unwrap_or_default();
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.remove("resources");
        }
    }
    spec
}

fn drop_all(map: &mut Map<String, Value>, fields: &[&str]) {
    fields.iter().for_each(|field| drop(map.remove(*field)));
}
