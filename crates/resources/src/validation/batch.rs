//! Jobs and CronJobs, the common rules.

use machinery::field::FieldErrors;
use serde_json::Value;

use super::{At, pod};

/// A Job.
pub(crate) fn job(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    spec(&At::root(object).get("spec"), &mut errors);
    errors
}

/// An update of a Job.
pub(crate) fn job_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = job(new);
    let (new, old) = (At::root(new).get("spec"), At::root(old).get("spec"));
    let is_elastic = new.get("completionMode").text() == "Indexed"
        && new.get("completions").value == new.get("parallelism").value;
    if !is_elastic {
        new.get("completions").immutable(&old.get("completions"), &mut errors);
    }
    for field in ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"] {
        new.get(field).immutable(&old.get(field), &mut errors);
    }
    // A suspended Job that has not started may still be directed elsewhere; its template then changes.
    if !old.get("suspend").flag() {
        new.get("template").immutable(&old.get("template"), &mut errors);
    }
    errors
}

/// A CronJob.
pub(crate) fn cron_job(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let cron = At::root(object).get("spec");
    let schedule = cron.get("schedule");
    if schedule.text().is_empty() {
        errors.push(schedule.required(""));
    } else if !schedule.text().starts_with('@') && schedule.text().split_whitespace().count() != 5 {
        let found = schedule.text().split_whitespace().count();
        errors.push(
            schedule.invalid(&format!("expected exactly 5 fields, found {found}: [{}]", schedule.text())),
        );
    }
    cron.get("concurrencyPolicy").one_of(&["Allow", "Forbid", "Replace"], &mut errors);
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        cron.get(field).not_negative(&mut errors);
    }
    spec(&cron.get("jobTemplate").get("spec"), &mut errors);
    errors
}

/// An update of a CronJob.
pub(crate) fn cron_job_update(new: &Value, _: &Value) -> FieldErrors {
    cron_job(new)
}

fn spec(spec: &At<'_>, errors: &mut FieldErrors) {
    for field in
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
    {
        spec.get(field).not_negative(errors);
    }
    spec.get("completionMode").if_one_of(&["Indexed", "NonIndexed"], errors);
    if spec.get("completionMode").text() == "Indexed" && !spec.get("completions").is_set() {
        errors.push(spec.get("completions").required("when completion mode is Indexed"));
    }
    let template = spec.get("template");
    pod::template(&template, errors);
    let policy = template.get("spec").get("restartPolicy");
    if policy.text() == "Always" {
        errors.push(machinery::field::FieldError::required(
            &policy.path,
            "valid values: \"OnFailure\", \"Never\"",
        ));
    }
    pod::template_matches(&spec.get("selector"), &template, errors);
}
