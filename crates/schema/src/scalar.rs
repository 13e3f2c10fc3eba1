//! Values with a notation of their own: times, durations, quantities, base64.
//!
//! Texts of errors follow Go's, since users know them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

/// Reads RFC 3339.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    // The parser of jiff takes more than RFC 3339, such as `2024-01-01 00Z`.
    let bytes = text.as_bytes();
    (bytes.len() >= 20 && bytes.get(10) == Some(&b'T') && bytes.get(13) == Some(&b':'))
        .then(|| text.parse().ok())
        .flatten()
}

/// Writes a time with whole seconds, as `metav1.Time` does.
pub(crate) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes a time with microseconds, as `metav1.MicroTime` does.
pub(crate) fn format_micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Go's complaint about a time.
pub(crate) fn time_error(text: &str) -> String {
    format!(r#"parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}" as "2006""#)
}

/// The suffixes that a quantity may end with.
const SUFFIXES: &[&str] =
    &["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Checks a quantity's notation.
///
/// # Errors
/// Upstream's complaint.
pub(crate) fn check_quantity(text: &str) -> Result<(), &'static str> {
    const PATTERN: &str =
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(digits);
    if number.matches('.').count() > 1 || !number.bytes().any(|byte| byte.is_ascii_digit()) {
        return Err(PATTERN);
    }
    if SUFFIXES.contains(&suffix) {
        return Ok(());
    }
    let exponent = suffix.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
    if exponent.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())) {
        return Ok(());
    }
    let known = |c: char| "eEinumkKMGTP+-".contains(c) || c.is_ascii_digit();
    if suffix.chars().all(known) { Err("unable to parse quantity's suffix") } else { Err(PATTERN) }
}

/// Reads base64; line breaks are allowed, as Go allows them.
pub(crate) fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    let decode = |text: &str| {
        STANDARD.decode(text).map_err(|error| match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
                format!("illegal base64 data at input byte {at}")
            }
            _ => format!("illegal base64 data at input byte {}", text.len() / 4 * 4),
        })
    };
    if text.contains(['\n', '\r']) {
        return decode(&text.replace(['\n', '\r'], ""));
    }
    decode(text)
}

/// Writes base64.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Reads a duration in Go's notation, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0i64;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|at| *at > 0)?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale: i64 = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()? };
        let mut value = whole.checked_mul(scale)?;
        let mut step = scale;
        for digit in fraction.bytes() {
            step /= 10;
            value = value.checked_add(i64::from(digit.checked_sub(b'0')?) * step)?;
        }
        total = total.checked_add(value)?;
        if tail.is_empty() {
            return Some(if negative { -total } else { total });
        }
        rest = tail;
    }
}

/// Writes a duration in Go's notation.
pub(crate) fn format_duration(nanoseconds: i64) -> String {
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
