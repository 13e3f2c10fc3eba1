//! The changes that a write to a Job's `/status` may make: only what can follow from what it said before.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use serde_json::Value;

use super::indexes::parse_indexes;
use super::is_indexed;
use super::policies::without_value;
use crate::validation::fields::same;
use crate::validation::{At, internal};

/// A status with its conditions at hand.
struct JobStatus<'a> {
    spec: At<'a>,
    status: At<'a>,
}

impl<'a> JobStatus<'a> {
    fn of(job: &'a Value) -> Self {
        let job = At::root(job);
        Self { spec: job.get("spec"), status: job.get("status") }
    }

    fn is(&self, kind: &str) -> bool {
        let mut conditions = self.status.get("conditions").items();
        conditions.any(|c| c.get("type").text() == kind && c.get("status").text() == "True")
    }

    fn is_not(&self, kind: &str) -> bool {
        let mut conditions = self.status.get("conditions").items();
        conditions.any(|c| c.get("type").text() == kind && c.get("status").text() == "False")
    }

    fn is_finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn count(&self, field: &str) -> i64 {
        self.status.get(field).number().unwrap_or_default()
    }
}

/// What a write changes. Most rules look at what changes only: what a new spec has made wrong must not be in the way of
/// whoever puts it right. Source: `getStatusValidationOptions`, `pkg/registry/batch/job`.
struct Changes<'a> {
    job: &'a JobStatus<'a>,
    was: &'a JobStatus<'a>,
}

impl Changes<'_> {
    fn any(&self, fields: &[&str]) -> bool {
        fields.iter().any(|field| !same(self.job.status.get(field).value, self.was.status.get(field).value))
    }

    fn any_condition(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| self.job.is(kind) != self.was.is(kind))
    }

    fn finishes(&self) -> bool {
        self.job.is_finished() != self.was.is_finished()
    }

    fn resumes(&self) -> bool {
        self.was.is("Suspended") && self.job.is_not("Suspended")
    }
}

/// A write to `/status`.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (job, was) = (JobStatus::of(new), JobStatus::of(old));
    let changes = Changes { job: &job, was: &was };
    numbers(&changes, &mut errors);
    conditions(&changes, &mut errors);
    times(&changes, &mut errors);
    finished(&changes, &mut errors);
    indexes(&changes, &mut errors);
    taken_back(&changes, &mut errors);
    errors
}

fn numbers(changes: &Changes<'_>, errors: &mut FieldErrors) {
    let job = changes.job;
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        job.status.get(field).not_negative(errors);
    }
    let uncounted = job.status.get("uncountedTerminatedPods");
    let mut seen = BTreeSet::new();
    for uid in ["succeeded", "failed"].iter().flat_map(|list| uncounted.get(list).items()) {
        if uid.text().is_empty() {
            errors.push(uid.invalid("must not be empty"));
        } else if !seen.insert(uid.text()) {
            errors.push(uid.duplicate());
        }
    }
    let ready = job.status.get("ready");
    if changes.any(&["ready", "active"]) && ready.is_over(job.count("active")) {
        errors.push(ready.invalid("cannot set more ready pods than active"));
    }
}

fn conditions(changes: &Changes<'_>, errors: &mut FieldErrors) {
    let job = changes.job;
    let has_policy = job.spec.get("successPolicy").is_set();
    let news = |kinds: &[&str]| changes.any_condition(kinds);
    let rules = [
        (
            news(&["Complete", "Failed"]) && job.is("Complete") && job.is("Failed"),
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            news(&["Complete", "FailureTarget"]) && job.is("Complete") && job.is("FailureTarget"),
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            (news(&["Failed"]) || changes.any(&["failedIndexes"]))
                && job.is("Failed")
                && !job.is("FailureTarget"),
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            news(&["Complete", "SuccessCriteriaMet"]) && job.is("Complete") && !job.is("SuccessCriteriaMet"),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            job.is("SuccessCriteriaMet") && job.is("Failed"),
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        (
            job.is("SuccessCriteriaMet") && job.is("FailureTarget"),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            has_policy && !job.is("SuccessCriteriaMet") && job.is("Complete"),
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
    ];
    let at = job.status.get("conditions");
    errors.extend(rules.iter().filter(|(broken, _)| *broken).map(|(_, rule)| without_value(&at, rule)));
}

fn times(changes: &Changes<'_>, errors: &mut FieldErrors) {
    let (job, was) = (changes.job, changes.was);
    let (start, end) = (job.status.get("startTime"), job.status.get("completionTime"));
    let is_completing = changes.any_condition(&["Complete"]) || changes.any(&["completionTime"]);
    if is_completing && end.is_set() && !job.is("Complete") {
        errors.push(end.invalid("cannot set completionTime when there is no Complete=True condition"));
    }
    if is_completing && !end.is_set() && job.is("Complete") {
        errors.push(end.required("completionTime is required for Complete jobs"));
    }
    let time = |at: &At<'_>| at.text().parse::<jiff::Timestamp>().ok();
    if changes.any(&["startTime", "completionTime"])
        && let (Some(start), Some(finish)) = (time(&start), time(&end))
        && finish < start
    {
        errors.push(end.invalid("must be equal to or after `startTime`"));
    }
    let had_end = was.status.get("completionTime");
    if end.is_set() && had_end.is_set() && end.value != had_end.value {
        errors.push(end.invalid("field is immutable"));
    }
    let had_start = was.status.get("startTime");
    let is_suspended = job.spec.get("suspend").flag();
    if had_start.is_set() && had_start.value != start.value && !is_suspended && !changes.resumes() {
        errors.push(start.required("startTime cannot be removed for unsuspended job"));
    }
}

fn finished(changes: &Changes<'_>, errors: &mut FieldErrors) {
    let (job, status) = (changes.job, &changes.job.status);
    if !job.is_finished() {
        return;
    }
    let news = |field: &str| changes.finishes() || changes.any(&[field]);
    if news("active") && job.count("active") > 0 {
        errors.push(status.get("active").invalid("active>0 is invalid for finished job"));
    }
    let never_began = job.spec.get("suspend").flag() && job.spec.get("completions").number() == Some(0);
    if news("startTime") && !status.get("startTime").is_set() && !never_began {
        errors.push(status.get("startTime").required("startTime is required for finished job"));
    }
    let uncounted = status.get("uncountedTerminatedPods");
    let has_uncounted = !uncounted.get("failed").is_empty() || !uncounted.get("succeeded").is_empty();
    if news("uncountedTerminatedPods") && has_uncounted {
        let detail = "must be empty for finished job";
        errors.push(internal::invalid(&uncounted, "UncountedTerminatedPods", detail));
    }
    if news("terminating") && job.count("terminating") > 0 {
        errors.push(status.get("terminating").invalid("terminating>0 is invalid for finished job"));
    }
}

fn indexes(changes: &Changes<'_>, errors: &mut FieldErrors) {
    let job = changes.job;
    let (completed, failed) = (job.status.get("completedIndexes"), job.status.get("failedIndexes"));
    let (is_done_new, is_lost_new) = (changes.any(&["completedIndexes"]), changes.any(&["failedIndexes"]));
    if is_done_new && !completed.text().is_empty() && !is_indexed(&job.spec) {
        errors.push(
            completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode"),
        );
    }
    let has_limit = job.spec.get("backoffLimitPerIndex").is_set();
    if is_lost_new && failed.is_set() && !has_limit {
        errors.push(failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null"));
    }
    let Some(completions) = job.spec.get("completions").number() else { return };
    let mut read = |at: &At<'_>, noun: &str, is_new: bool| match parse_indexes(at.text(), completions) {
        Ok(intervals) => intervals,
        Err(error) => {
            if is_new {
                errors.push(at.invalid(&format!("error parsing {noun}: {error}")));
            }
            Vec::new()
        }
    };
    let done = read(&completed, "completedIndexes", is_done_new);
    let lost = if has_limit { read(&failed, "failedIndexes", is_lost_new) } else { Vec::new() };
    if !is_done_new && !is_lost_new {
        return;
    }
    let overlap = done
        .iter()
        .flat_map(|a| lost.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))))
        .find(|(first, last)| first <= last);
    if let Some((index, _)) = overlap {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.push(failed.invalid(&detail));
    }
}

/// What was reached is not taken back, but for indexes that are none any more.
fn taken_back(changes: &Changes<'_>, errors: &mut FieldErrors) {
    let (job, was) = (changes.job, changes.was);
    let conditions = job.status.get("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if was.is(kind) && !job.is(kind) {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            errors.push(without_value(&conditions, &detail));
        }
    }
    let is_scalable =
        is_indexed(&job.spec) && same(job.spec.get("completions").value, job.spec.get("parallelism").value);
    for (field, may_fall) in [("failed", false), ("succeeded", is_scalable)] {
        if !may_fall && job.count(field) < was.count(field) {
            let detail = format!("cannot decrease the {field} counter");
            errors.push(FieldError::invalid(&job.status.get(field).path, job.count(field), &detail));
        }
    }
    if was.is("SuccessCriteriaMet") && !job.is("SuccessCriteriaMet") {
        errors.push(without_value(&conditions, "cannot disable the SuccessCriteriaMet=True condition"));
    }
    if was.is("Complete") && !was.is("SuccessCriteriaMet") && job.is("SuccessCriteriaMet") {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(without_value(&conditions, detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &str, old: &str, new: &str, expect: &[&str]) {
        let job = |status: &str| {
            serde_saphyr::from_str::<Value>(&format!("{{spec: {{{spec}}}, status: {{{status}}}}}")).unwrap()
        };
        let errors: Vec<String> =
            update(&job(new), &job(old)).iter().map(|error| error.path.to_string()).collect();
        assert_eq!(errors, expect, "{spec}: {old} to {new}");
    }

    #[test]
    fn what_a_spec_has_made_wrong_is_in_nobodys_way() {
        let suspended = |status: &str| format!("conditions: [{{type: Suspended, status: '{status}'}}]");
        let (began, later) = ("startTime: '2026-01-01T12:00:00Z'", "startTime: '2026-01-01T13:00:00Z'");
        check("", began, later, &["status.startTime"]);
        check(
            "",
            &format!("{began}, {}", suspended("True")),
            &format!("{later}, {}", suspended("False")),
            &[],
        );
        check(
            "",
            &format!("{began}, {}", suspended("True")),
            &format!("{later}, {}", suspended("True")),
            &["status.startTime"],
        );
        let indexed = "completionMode: Indexed, completions: 2, parallelism: 2";
        let large = "completedIndexes: 0-4, succeeded: 5";
        check(indexed, large, &format!("{large}, active: 1"), &[]);
        check(indexed, large, "completedIndexes: '0,1', succeeded: 2", &[]);
        check(indexed, "", large, &["status.completedIndexes"]);
        check(
            "completionMode: Indexed, completions: 2, parallelism: 1",
            large,
            "completedIndexes: '0,1', succeeded: 2",
            &["status.succeeded"],
        );
        let done =
            "conditions: [{type: SuccessCriteriaMet, status: 'True'}, {type: Complete, status: 'True'}]";
        check(
            "suspend: true, completions: 0",
            "",
            &format!("{done}, completionTime: '2026-01-01T12:00:00Z'"),
            &[],
        );
        check(
            "completions: 0",
            "",
            &format!("{done}, completionTime: '2026-01-01T12:00:00Z'"),
            &["status.startTime"],
        );
        check("", &format!("{done}, active: 1"), &format!("{done}, active: 1, failed: 1"), &[]);
        check("", &format!("{done}, active: 1"), &format!("{done}, active: 2"), &["status.active"]);
    }
}
