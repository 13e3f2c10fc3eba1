//! Types, texts and choices.

use serde_json::{Number, Value};

use super::report::Report;
use crate::go::quote;
use crate::rules::Checks;
use crate::rules::format::Format;
use crate::rules::violation::{Problem, Violation};
use crate::walk::path::{Path, Style};

/// Beyond this, whole floating-point numbers are not exact.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;
/// By how much of itself a whole number may be off.
const WHOLE_TOLERANCE: f64 = 1e-9;

/// The JSON type of a value, and the format that Go holds it in.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

/// The type of a value, and the format if it is looked at.
pub(super) fn types(
    checks: &Checks,
    format: Option<&Format>,
    value: &Value,
    path: Path<'_>,
    report: &mut Report,
) {
    let types = checks.types;
    if types.is_empty() && format.is_none() {
        return;
    }
    report.matched(2);
    let (found, found_format) = type_of(value);
    let is_of_type = match value {
        Value::Null => types.is_empty() || checks.nullable,
        Value::Number(number) => {
            let is_whole = number.is_i64() || is_whole(number);
            types.contains(&"number") || is_whole && types.contains(&"integer")
        }
        _ => types.contains(&found),
    };
    if is_of_type {
        return;
    }
    let is_numeric = types.contains(&"number") || types.contains(&"integer");
    match format {
        // Only texts are looked at for their format, and lists pass for them.
        Some(_) if !is_numeric && matches!(value, Value::String(_) | Value::Array(_)) => {}
        Some(format) if !matches!(value, Value::Null | Value::String(_) | Value::Array(_)) => {
            report.push(|| wrong_type(path, &format.name, found_format));
        }
        _ => report.push(|| wrong_type(path, &types.join(","), found)),
    }
}

fn wrong_type(path: Path<'_>, wanted: &str, found: &str) -> Violation {
    let path = path.to_text(Style::Dotted);
    let detail = format!("{path} in body must be of type {wanted}: {}", quote(found));
    Violation::new(path, Problem::TypeInvalid, found.into(), detail)
}

fn is_whole(number: &Number) -> bool {
    let Some(number) = number.as_f64().filter(|number| number.abs() <= WHOLE_MAX) else { return false };
    let off = (number - number.trunc()).abs();
    off == 0.0 || off / (number.abs() + number.trunc().abs()) < WHOLE_TOLERANCE
}

/// The length, the pattern and the format of a text; of the former two, the first that is broken.
pub(super) fn text(checks: &Checks, value: &Value, path: Path<'_>, report: &mut Report) {
    let Value::String(text) = value else { return };
    report.matched(1);
    let at = || path.to_text(Style::Dotted);
    if let Some(rules) = checks.text.as_deref() {
        let is_counted = rules.length_min.is_some() || rules.length_max.is_some();
        let length = if is_counted { i64::try_from(text.chars().count()).unwrap_or(i64::MAX) } else { 0 };
        let invalid = |detail: String| Violation::new(at(), Problem::Invalid, value.clone(), detail);
        if let Some(max) = rules.length_max.filter(|max| length > *max) {
            report.push(|| Violation { max, ..Violation::plain(at(), Problem::TooLong, "") });
        } else if let Some(min) = rules.length_min.filter(|min| length < *min) {
            report.push(|| invalid(format!("{} in body should be at least {min} chars long", at())));
        } else if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            report.push(|| invalid(format!("{} in body should match '{}'", at(), pattern.as_str())));
        }
    }
    if let Some(format) = checks.format.as_ref().filter(|format| !format.is_of_numbers()) {
        report.matched(1);
        if !format.is_met_by(text) {
            report.push(|| wrong_type(path, &format.name, text));
        }
    }
}

/// Whether the value is one of those that are allowed.
pub(super) fn allowed(checks: &Checks, value: &Value, path: Path<'_>, report: &mut Report) {
    report.matched(1);
    if let Some(allowed) = checks.allowed.as_deref()
        && !allowed.contains(value)
    {
        report.push(|| {
            let supported = allowed
                .values
                .iter()
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            let violation =
                Violation::new(path.to_text(Style::Dotted), Problem::NotSupported, value.clone(), "");
            Violation { supported: supported.collect(), ..violation }
        });
    }
}
