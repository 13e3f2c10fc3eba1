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

/// How an `int` compares to a double; nothing compares to what is no number. As upstream, which makes a
/// double of the `int`: the largest are equal to their neighbours.
#[expect(clippy::cast_precision_loss, reason = "that is how upstream compares them")]
pub(crate) fn int_to_double(one: i64, other: f64) -> Option<Ordering> {
    (one as f64).partial_cmp(&other)
}

/// How a `uint` compares to a double.
#[expect(clippy::cast_precision_loss, reason = "that is how upstream compares them")]
pub(crate) fn uint_to_double(one: u64, other: f64) -> Option<Ordering> {
    (one as f64).partial_cmp(&other)
}
