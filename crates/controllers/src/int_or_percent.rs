//! Shares of a number of Pods: `25%` of what there are to be.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What becomes of a part of a Pod.
#[derive(Clone, Copy)]
pub(crate) enum Rounding {
    /// It counts as one.
    Up,
    /// It does not count.
    Down,
}

/// A number of Pods out of a number or a share of `total`; a malformed share is 0.
pub(crate) fn resolve(value: &IntOrString, total: i32, rounding: Rounding) -> i32 {
    let percent = match value {
        IntOrString::Int(number) => return *number,
        IntOrString::String(text) => text.strip_suffix('%').and_then(|digits| digits.parse::<i64>().ok()),
    };
    let hundredths = percent.unwrap_or(0).saturating_mul(i64::from(total));
    let pods = match rounding {
        Rounding::Up => hundredths.saturating_add(99) / 100,
        Rounding::Down => hundredths / 100,
    };
    i32::try_from(pods).unwrap_or(i32::MAX)
}
