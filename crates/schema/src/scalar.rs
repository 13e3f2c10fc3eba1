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

/// A text that is not base64, from this byte on. Source: Go's `base64.CorruptInputError`.
#[derive(Debug, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub(crate) struct CorruptBase64(usize);

/// Reads base64; line breaks are allowed, as Go allows them.
pub(crate) fn from_base64(text: &str) -> Result<Vec<u8>, CorruptBase64> {
    let decode = |text: &str| {
        STANDARD.decode(text).map_err(|error| match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
                CorruptBase64(at)
            }
            _ => CorruptBase64(text.len() / 4 * 4),
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
