//! Values with a notation of their own: quantities, base64.
//!
//! Texts of errors follow Go's, since users know them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

/// The suffixes that a quantity may end with.
const SUFFIXES: &[&str] =
    &["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// What is said of a text that has not the shape of a quantity.
pub(crate) const QUANTITY_PATTERN: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Checks a quantity's notation, as the scanner does that comes before the expression: it needs no digit, and `.` is 0.
///
/// # Errors
/// Upstream's complaint.
pub(crate) fn check_quantity(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err(QUANTITY_PATTERN);
    }
    let digits = |text: &'_ str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let rest = unsigned.get(digits(unsigned)..).unwrap_or_default();
    let suffix = rest.strip_prefix('.').map_or(rest, |rest| rest.get(digits(rest)..).unwrap_or_default());
    if SUFFIXES.contains(&suffix) {
        return Ok(());
    }
    let exponent = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits(exponent) < exponent.len() {
        return Err(QUANTITY_PATTERN);
    }
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse::<i64>().ok());
    exponent.map(drop).ok_or("unable to parse quantity's suffix")
}

/// A text that is not base64, from this byte on. Source: Go's `base64.CorruptInputError`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub(crate) struct CorruptBase64(usize);

/// Takes the bits that the last byte has no use for, whatever they are.
const FORGIVING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Reads base64 as Go does: line breaks may be anywhere.
pub(crate) fn from_base64(text: &str) -> Result<Vec<u8>, CorruptBase64> {
    let is_broken = text.contains(['\n', '\r']);
    let joined = if is_broken { text.replace(['\n', '\r'], "").into() } else { Cow::from(text) };
    FORGIVING.decode(&*joined).map_err(|_| CorruptBase64(corrupt_at(text.as_bytes())))
}

/// The base64 that Go writes after reading this.
pub(crate) fn canonical_base64(text: &str) -> Result<Cow<'_, str>, CorruptBase64> {
    match STANDARD.decode(text) {
        Ok(_) => Ok(text.into()),
        Err(_) => from_base64(text).map(|bytes| to_base64(&bytes).into()),
    }
}

/// The byte at which Go stops. Source: `decodeQuantum` of `encoding/base64`.
fn corrupt_at(text: &[u8]) -> usize {
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let breaks = |from: usize| text.iter().skip(from).take_while(|byte| is_break(byte)).count();
    let mut in_group = 0;
    for (at, byte) in text.iter().enumerate().filter(|(_, byte)| !is_break(byte)) {
        match byte {
            b'=' if in_group == 3 => return at + 1 + breaks(at + 1),
            b'=' if in_group == 2 => {
                let next = at + 1 + breaks(at + 1);
                return match text.get(next) {
                    None => text.len(),
                    Some(b'=') => next + 1 + breaks(next + 1),
                    Some(_) => next - 1,
                };
            }
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => in_group = (in_group + 1) % 4,
            _ => return at,
        }
    }
    text.len() - in_group
}

/// Writes base64.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests;
