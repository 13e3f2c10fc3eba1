//! Spans of time and numbers as texts.

use machinery::duration;

/// Words for units that durations of objects may have, beside Go's, in nanoseconds.
/// Source: `k8s.io/kube-openapi/pkg/validation/strfmt`, duration.
const UNITS: &[(&[&str], f64)] = &[
    (&["ns", "nano", "nanosecond"], 1.0),
    (&["us", "µs", "μs", "micro", "microsecond"], 1e3),
    (&["ms", "milli", "millisecond"], 1e6),
    (&["s", "sec", "second"], 1e9),
    (&["m", "min", "minute"], 60e9),
    (&["h", "hr", "hour"], 3600e9),
    (&["d", "day"], 86400e9),
    (&["w", "wk", "week"], 604_800e9),
];

/// A duration as objects may have it: Go's, or `2 days`.
pub(crate) fn loose_duration(text: &str) -> Option<i64> {
    if let Ok(nanos) = duration::parse(text) {
        return Some(nanos);
    }
    let (mut rest, mut total) = (text.trim(), 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|part: char| !part.is_ascii_digit() && part != '.')?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let tail = tail.trim_start();
        let letters = tail.find(|part: char| !part.is_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(letters)?;
        let unit = unit.to_lowercase();
        let matches = |name: &&str| *name == unit || (name.len() > 2 && unit.strip_suffix('s') == Some(name));
        let (_, nanos) = UNITS.iter().find(|(names, _)| names.iter().any(&matches))?;
        total += number.parse::<f64>().ok()? * nanos;
        rest = tail.trim_start();
    }
    super::number::truncated(total).filter(|_| !text.trim().is_empty())
}

/// A duration in seconds, as `string()` gives it.
pub(crate) fn duration_text(nanos: i64) -> String {
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if fraction == 0 {
        return format!("{sign}{seconds}s");
    }
    format!("{sign}{seconds}.{}s", format!("{fraction:09}").trim_end_matches('0'))
}

/// A double as Go's `strconv` gives it with the fewest digits: an exponent below 1e-4 and from 1e21 on.
///
/// `exponent_from` is the exponent from which it is written as one.
pub(crate) fn double_text(number: f64, exponent_from: i32) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && (exponent < -4 || exponent >= exponent_from) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{number}")
}
