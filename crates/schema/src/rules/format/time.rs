//! Dates, times and durations.

use std::sync::LazyLock;

use jiff::civil::Date;
use regex::Regex;

use super::constant;

static TIME: LazyLock<Regex> =
    LazyLock::new(|| constant(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static AMOUNT: LazyLock<Regex> = LazyLock::new(|| constant(r"([0-9]+)[\t\n\x0C\r ]*([A-Za-zµ]+)"));

/// What a unit may be called, and what a longer name of it begins with.
const UNITS: &[(&[&str], &str)] = &[
    (&["ns"], "nano"),
    (&["us", "µs"], "micro"),
    (&["ms"], "milli"),
    (&["s"], "sec"),
    (&["m"], "min"),
    (&["h", "hr"], "hour"),
    (&["d"], "day"),
    (&["w", "wk"], "week"),
];

/// `2006-01-02`.
pub(super) fn is_date(text: &str) -> bool {
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = text.split('-');
    let lengths = [4, 2, 2];
    let is_form = lengths
        .iter()
        .all(|length| parts.next().is_some_and(|part| part.len() == *length && is_digits(part)));
    is_form && parts.next().is_none() && text.parse::<Date>().is_ok()
}

/// `2006-01-02T15:04:05.000Z`.
pub(super) fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(found) = TIME.captures(time) else { return false };
    is_date(date) && [(1, "23"), (2, "59"), (3, "59")].iter().all(|(group, max)| &found[*group] <= *max)
}

/// Go's notation, or amounts with units anywhere in the text.
pub(super) fn is_duration(text: &str) -> bool {
    if crate::duration::parse(text).is_ok() {
        return true;
    }
    let mut is_some = false;
    for amount in AMOUNT.captures_iter(text) {
        if amount[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = amount[2].to_lowercase();
        is_some |= UNITS.iter().any(|(names, long)| names.contains(&unit.as_str()) || unit.starts_with(long));
    }
    is_some
}
