//! Durations as Go writes them: `1h30m`, `1.5s`, `-10ms`, `0`. The one place that reads them, in objects, in requests
//! and on the command line.
//!
//! Source: Go's `time.ParseDuration` and `time.Duration.String`, which `metav1.Duration` is read and written with.

use std::fmt;

use crate::go::quote_ascii;

/// The largest amount, which only a negative duration may have.
const NANOSECONDS_MAX: u64 = 1 << 63;

/// A text that is no duration, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

/// Reads a duration, in nanoseconds.
///
/// # Errors
/// What Go says of a text that is none, or of one that 64 bits do not hold.
pub fn parse(text: &str) -> Result<i64, ParseError> {
    let whole = quote_ascii(text);
    let invalid = || ParseError(format!("time: invalid duration {whole}"));
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    let mut total = 0u64;
    loop {
        let (number, after) = rest.split_at(digits(rest));
        let fraction = after.strip_prefix('.').map(|after| after.split_at(digits(after)));
        let (fraction, tail) = fraction.unwrap_or(("", after));
        if number.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        if unit.is_empty() {
            return Err(ParseError(format!("time: missing unit in duration {whole}")));
        }
        let scale = scale(unit).ok_or_else(|| {
            ParseError(format!("time: unknown unit {} in duration {whole}", quote_ascii(unit)))
        })?;
        let value = amount(number, fraction, scale).and_then(|value| total.checked_add(value));
        total = value.filter(|total| *total <= NANOSECONDS_MAX).ok_or_else(invalid)?;
        if tail.is_empty() {
            break;
        }
        rest = tail;
    }
    match i64::try_from(total) {
        Ok(total) if is_negative => Ok(-total),
        Ok(total) => Ok(total),
        Err(_) if is_negative => Ok(i64::MIN),
        Err(_) => Err(invalid()),
    }
}

/// How many digits a text begins with.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Nanoseconds of a unit.
fn scale(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn amount(number: &str, fraction: &str, scale: u64) -> Option<u64> {
    let whole = if number.is_empty() { 0 } else { number.parse::<u64>().ok()? };
    whole.checked_mul(scale)?.checked_add(part(fraction, scale))
}

/// A fraction of a unit as Go reckons it, in floating-point numbers: of a third of an hour nothing is missing.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is less than an hour")]
fn part(fraction: &str, scale: u64) -> u64 {
    let (mut value, mut divisor) = (0u64, 1f64);
    for digit in fraction.bytes().map(|digit| u64::from(digit - b'0')) {
        let longer = value.checked_mul(10).and_then(|value| value.checked_add(digit));
        let Some(longer) = longer.filter(|longer| *longer <= NANOSECONDS_MAX) else { break };
        value = longer;
        divisor *= 10.0;
    }
    (value as f64 * (scale as f64 / divisor)) as u64
}

/// Writes a duration.
pub fn format(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let total = nanoseconds.unsigned_abs();
    let fraction = |value: u64, scale: u64| {
        let (whole, rest) = (value / scale, value % scale);
        if rest == 0 {
            return whole.to_string();
        }
        let width = scale.ilog10() as usize;
        format!("{whole}.{}", format!("{rest:0width$}").trim_end_matches('0'))
    };
    match total {
        0 => "0s".into(),
        1..1_000 => format!("{sign}{total}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", fraction(total, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", fraction(total, 1_000_000)),
        _ => {
            let seconds = fraction(total % 60_000_000_000, 1_000_000_000);
            let minutes = total / 60_000_000_000;
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
