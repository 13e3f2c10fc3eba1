//! Durations as Go writes them: `1h30m`, `1.5s`, `-10ms`, `0`. The one place that reads them, in objects, in requests
//! and on the command line.
//!
//! Source: Go's `time.ParseDuration` and `time.Duration.String`, which `metav1.Duration` is read and written with.

use std::fmt;

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
    let invalid = || ParseError(format!("time: invalid duration {text:?}"));
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    let mut total = 0i64;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        if !number.contains(|c: char| c.is_ascii_digit()) || number.matches('.').count() > 1 {
            return Err(invalid());
        }
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        if unit.is_empty() {
            return Err(ParseError(format!("time: missing unit in duration {text:?}")));
        }
        let scale = scale(unit)
            .ok_or_else(|| ParseError(format!("time: unknown unit {unit:?} in duration {text:?}")))?;
        let value = amount(number, scale).and_then(|value| total.checked_add(value));
        total = value.ok_or_else(invalid)?;
        if tail.is_empty() {
            return Ok(if negative { -total } else { total });
        }
        rest = tail;
    }
}

/// Nanoseconds of a unit.
fn scale(unit: &str) -> Option<i64> {
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

fn amount(number: &str, scale: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()? };
    let mut value = whole.checked_mul(scale)?;
    let mut step = scale;
    for digit in fraction.bytes() {
        step /= 10;
        value = value.checked_add(i64::from(digit.checked_sub(b'0')?) * step)?;
    }
    Some(value)
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
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<&str, &str>) {
        let read = parse(text).map(format).map_err(|error| error.to_string());
        assert_eq!(read.as_deref().map_err(String::as_str), expect, "{text}");
    }

    #[test]
    fn durations_are_gos() {
        check("15s", Ok("15s"));
        check("1m30s", Ok("1m30s"));
        check("90s", Ok("1m30s"));
        check("1500ms", Ok("1.5s"));
        check(".5s", Ok("500ms"));
        check("1.s", Ok("1s"));
        check("4h", Ok("4h0m0s"));
        check("-2s", Ok("-2s"));
        check("+0", Ok("0s"));
        check("3\u{3bc}s", Ok("3µs"));
    }

    #[test]
    fn what_is_none_is_refused_in_gos_words() {
        check("", Err("time: invalid duration \"\""));
        check("soon", Err("time: invalid duration \"soon\""));
        check(".s", Err("time: invalid duration \".s\""));
        check("1.2.3s", Err("time: invalid duration \"1.2.3s\""));
        check("-", Err("time: invalid duration \"-\""));
        check("15", Err("time: missing unit in duration \"15\""));
        check("3 s", Err("time: unknown unit \" s\" in duration \"3 s\""));
        check("1d", Err("time: unknown unit \"d\" in duration \"1d\""));
        check("9999999h", Err("time: invalid duration \"9999999h\""));
    }
}
