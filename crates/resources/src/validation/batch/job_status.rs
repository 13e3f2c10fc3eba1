//! What a write to a Job's `/status` may say: only what can follow from what it said before.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use serde_json::Value;

use super::is_indexed;
use super::policies::without_value;
use crate::validation::{At, internal};

/// Inclusive.
type Interval = (i64, i64);

/// Reads `1,3-5`: intervals in rising order, below `completions`.
pub(super) fn parse_indexes(text: &str, completions: i64) -> Result<Vec<Interval>, String> {
    let mut intervals: Vec<Interval> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = parse_interval(part, completions)?;
        if let Some((_, previous)) = intervals.last().filter(|(_, previous)| *previous >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        intervals.push((first, last));
    }
    Ok(intervals)
}

fn parse_interval(text: &str, completions: i64) -> Result<Interval, String> {
    let limits: Vec<_> = text.split('-').collect();
    let parse = |text: &str| {
        let number: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    match limits[..] {
        [only] => parse(only).map(|index| (index, index)),
        [first, last] => {
            let (first, last) = (parse(first)?, parse(last)?);
            if first >= last {
                return Err(format!("non-increasing order, previous: {first}, current: {last}"));
            }
            Ok((first, last))
        }
        _ => Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        )),
    }
}

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

    fn is_finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn count(&self, field: &str) -> i64 {
        self.status.get(field).number().unwrap_or_default()
    }
}

/// A write to `/status`.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (job, was) = (JobStatus::of(new), JobStatus::of(old));
    numbers(&job, &mut errors);
    conditions(&job, &mut errors);
    times(&job, &was, &mut errors);
    finished(&job, &mut errors);
    indexes(&job, &mut errors);
    changes(&job, &was, &mut errors);
    errors
}

fn numbers(job: &JobStatus<'_>, errors: &mut FieldErrors) {
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
    if ready.is_over(job.count("active")) {
        errors.push(ready.invalid("cannot set more ready pods than active"));
    }
}

fn conditions(job: &JobStatus<'_>, errors: &mut FieldErrors) {
    let has_policy = job.spec.get("successPolicy").is_set();
    let rules = [
        (job.is("Complete") && job.is("Failed"), "cannot set Complete=True and Failed=true conditions"),
        (
            job.is("Complete") && job.is("FailureTarget"),
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            job.is("Failed") && !job.is("FailureTarget"),
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            job.is("Complete") && !job.is("SuccessCriteriaMet"),
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

fn times(job: &JobStatus<'_>, was: &JobStatus<'_>, errors: &mut FieldErrors) {
    let (start, end) = (job.status.get("startTime"), job.status.get("completionTime"));
    if end.is_set() && !job.is("Complete") {
        errors.push(end.invalid("cannot set completionTime when there is no Complete=True condition"));
    }
    if !end.is_set() && job.is("Complete") {
        errors.push(end.required("completionTime is required for Complete jobs"));
    }
    let time = |at: &At<'_>| at.text().parse::<jiff::Timestamp>().ok();
    if let (Some(start), Some(finish)) = (time(&start), time(&end))
        && finish < start
    {
        errors.push(end.invalid("completionTime cannot be set before startTime"));
    }
    let had_end = was.status.get("completionTime");
    if end.is_set() && had_end.is_set() && end.value != had_end.value {
        errors.push(end.invalid("completionTime cannot be mutated"));
    }
    let had_start = was.status.get("startTime");
    let is_suspended = job.spec.get("suspend").flag();
    if had_start.is_set() && had_start.value != start.value && !is_suspended {
        errors.push(start.required("startTime cannot be removed for unsuspended job"));
    }
}

fn finished(job: &JobStatus<'_>, errors: &mut FieldErrors) {
    if !job.is_finished() {
        return;
    }
    let status = &job.status;
    if job.count("active") > 0 {
        errors.push(status.get("active").invalid("active>0 is invalid for finished job"));
    }
    if !status.get("startTime").is_set() {
        errors.push(status.get("startTime").required("startTime is required for finished job"));
    }
    let uncounted = status.get("uncountedTerminatedPods");
    if !uncounted.get("failed").is_empty() || !uncounted.get("succeeded").is_empty() {
        let detail = "uncountedTerminatedPods needs to be empty for finished job";
        errors.push(internal::invalid(&uncounted, "UncountedTerminatedPods", detail));
    }
    if job.count("terminating") > 0 {
        errors.push(status.get("terminating").invalid("terminating>0 is invalid for finished job"));
    }
}

fn indexes(job: &JobStatus<'_>, errors: &mut FieldErrors) {
    let (completed, failed) = (job.status.get("completedIndexes"), job.status.get("failedIndexes"));
    if !completed.text().is_empty() && !is_indexed(&job.spec) {
        errors.push(
            completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode"),
        );
    }
    let has_limit = job.spec.get("backoffLimitPerIndex").is_set();
    if failed.is_set() && !has_limit {
        errors.push(failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null"));
    }
    let Some(completions) = job.spec.get("completions").number() else { return };
    let mut read = |at: &At<'_>, noun: &str| match parse_indexes(at.text(), completions) {
        Ok(intervals) => intervals,
        Err(error) => {
            errors.push(at.invalid(&format!("error parsing {noun}: {error}")));
            Vec::new()
        }
    };
    let done = read(&completed, "completedIndexes");
    let lost = if has_limit { read(&failed, "failedIndexes") } else { Vec::new() };
    let overlap = done
        .iter()
        .flat_map(|a| lost.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))))
        .find(|(first, last)| first <= last);
    if let Some((index, _)) = overlap {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.push(failed.invalid(&detail));
    }
}

/// What was reached is not taken back.
fn changes(job: &JobStatus<'_>, was: &JobStatus<'_>, errors: &mut FieldErrors) {
    let conditions = job.status.get("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if was.is(kind) && !job.is(kind) {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            errors.push(without_value(&conditions, &detail));
        }
    }
    for field in ["failed", "succeeded"] {
        if job.count(field) < was.count(field) {
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

    #[test]
    fn indexes_rise_and_stay_below_the_completions() {
        assert_eq!(parse_indexes("0,2-4", 5), Ok(vec![(0, 0), (2, 4)]));
        assert_eq!(parse_indexes("", 5), Ok(vec![]));
        for (text, error) in [
            ("5", "too large index: \"5\""),
            ("2,1", "non-increasing order, previous: 2, current: 1"),
            ("3-2", "non-increasing order, previous: 3, current: 2"),
            ("x", "cannot convert string to integer for index: \"x\""),
        ] {
            assert_eq!(parse_indexes(text, 5), Err(error.to_owned()), "{text}");
        }
    }
}
