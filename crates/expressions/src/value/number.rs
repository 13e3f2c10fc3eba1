//! Numbers of different types: which is larger, what fits.

use std::cmp::Ordering;

/// 2^63, the first that `int` does not hold.
const INT_END: f64 = 9_223_372_036_854_775_808.0;
/// 2^64, the first that `uint` does not hold.
const UINT_END: f64 = 18_446_744_073_709_551_616.0;

/// The whole number that a double is.
pub(crate) fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0).then(|| truncated(number)).flatten()
}

/// A double without its fraction, if `int` holds it.
#[expect(clippy::cast_possible_truncation, reason = "the range has been looked at")]
pub(crate) fn truncated(number: f64) -> Option<i64> {
    // As upstream, which asks for what is strictly between the ends.
    (number > -INT_END && number < INT_END).then_some(number as i64)
}

/// A double without its fraction, if `uint` holds it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range has been looked at")]
pub(crate) fn truncated_unsigned(number: f64) -> Option<u64> {
    (0.0..UINT_END).contains(&number).then_some(number as u64)
}

/// How an `int` compares to a double; nothing compares to what is no number.
pub(crate) fn int_to_double(one: i64, other: f64) -> Option<Ordering> {
    if other.is_nan() {
        return None;
    }
    if other >= INT_END {
        return Some(Ordering::Less);
    }
    if other < -INT_END {
        return Some(Ordering::Greater);
    }
    let floor = other.floor();
    let order = one.cmp(&truncated(floor).unwrap_or(i64::MIN));
    Some(if order == Ordering::Equal && other > floor { Ordering::Less } else { order })
}

/// How a `uint` compares to a double.
pub(crate) fn uint_to_double(one: u64, other: f64) -> Option<Ordering> {
    if other.is_nan() {
        return None;
    }
    if other >= UINT_END {
        return Some(Ordering::Less);
    }
    if other < 0.0 {
        return Some(Ordering::Greater);
    }
    let floor = other.floor();
    let order = one.cmp(&truncated_unsigned(floor).unwrap_or(u64::MAX));
    Some(if order == Ordering::Equal && other > floor { Ordering::Less } else { order })
}
