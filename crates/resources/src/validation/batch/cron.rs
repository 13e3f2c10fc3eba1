//! CronJobs. Their schedules are read by `machinery::cron`.

use machinery::cron::{self, Schedule};
use machinery::field::{FieldError, FieldErrors};
use serde_json::Value;

use super::check;
use crate::validation::At;

/// A Job's name is a CronJob's and a suffix of eleven characters.
const NAME_BYTES_MAX: usize = 52;
const ZONE_PART_BYTES_MAX: usize = 14;

/// A CronJob.
pub(crate) fn cron_job(object: &Value) -> FieldErrors {
    let mut errors = spec(object, None);
    let name = At::root(object).get("metadata").get("name");
    if name.len() > NAME_BYTES_MAX {
        errors.push(name.invalid(&format!("must be no more than {NAME_BYTES_MAX} characters")));
    }
    errors
}

/// An update of a CronJob. A name that is too long came from before the rule.
pub(crate) fn cron_job_update(new: &Value, old: &Value) -> FieldErrors {
    spec(new, Some(old))
}

fn spec(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let was = old.map(|old| At::root(old).get("spec"));
    let zone = spec.get("timeZone");
    let had_zone = was.as_ref().is_some_and(|was| was.get("schedule").text().contains("TZ"));
    schedule(&spec.get("schedule"), had_zone, zone.is_set(), &mut errors);
    spec.get("startingDeadlineSeconds").not_negative(&mut errors);
    if was.is_none_or(|was| was.get("timeZone").value != zone.value) {
        time_zone(&zone, &mut errors);
    }
    spec.get("concurrencyPolicy").one_of(&["Allow", "Forbid", "Replace"], &mut errors);
    template(&spec.get("jobTemplate").get("spec"), &mut errors);
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        spec.get(field).not_negative(&mut errors);
    }
    errors
}

/// A Job that is made from a template has its selector generated.
fn template(spec: &At<'_>, errors: &mut FieldErrors) {
    check(spec, errors);
    let (selector, manual) = (spec.get("selector"), spec.get("manualSelector"));
    if selector.is_set() {
        errors.push(selector.invalid("`selector` will be auto-generated"));
    }
    if manual.flag() {
        errors.push(FieldError::not_supported(&manual.path, true, &["nil", "false"]));
    }
}

fn schedule(at: &At<'_>, had_zone: bool, has_zone_field: bool, errors: &mut FieldErrors) {
    let text = at.text();
    if text.is_empty() {
        errors.push(at.required(""));
        return;
    }
    if let Err(error) = Schedule::parse(text) {
        errors.push(at.invalid(&error.to_string()));
    }
    if !text.contains("TZ") {
        return;
    }
    if !had_zone {
        errors.push(at.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
    } else if has_zone_field {
        errors.push(at.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule"));
    }
}

fn time_zone(at: &At<'_>, errors: &mut FieldErrors) {
    if !at.is_set() {
        return;
    }
    let zone = at.text();
    if zone.is_empty() {
        errors.push(at.invalid("timeZone must be nil or non-empty string"));
        return;
    }
    let unknown = format!("unknown time zone {zone}");
    let is_part = |part: &str| {
        (1..=ZONE_PART_BYTES_MAX).contains(&part.len())
            && part != "."
            && part != ".."
            && !part.starts_with('-')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b))
    };
    if !zone.split('/').all(is_part) {
        errors.push(at.invalid(&unknown));
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        errors.push(
            at.invalid(
                "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
            ),
        );
    }
    // Go knows a zone of that name.
    if zone != "Local" && cron::time_zone(zone).is_none() {
        errors.push(at.invalid(&unknown));
    }
}
