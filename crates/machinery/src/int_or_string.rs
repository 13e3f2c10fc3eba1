//! `IntOrString` values that may be a percentage, such as `maxSurge: 25%`.
//!
//! Source: `k8s.io/apimachinery/pkg/util/intstr`.

use serde_json::Value;

/// The direction in which a share of the total is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To the next larger whole number, as `maxSurge` is.
    Up,
    /// To the next smaller whole number, as `maxUnavailable` is.
    Down,
}

/// The number that `value` stands for, given what 100 % is; `None` when it is neither number nor percentage.
pub fn scaled(value: &Value, total: i64, round: Round) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => Some(share(percent(text)?, total, round)),
        _ => None,
    }
}

/// `percent` of `total`.
pub fn share(percent: i64, total: i64, round: Round) -> i64 {
    let hundredths = percent.saturating_mul(total);
    match round {
        Round::Up => hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) != 0),
        Round::Down => hundredths.div_euclid(100),
    }
}

/// The number before the `%` of `text`.
pub fn percent(text: &str) -> Option<i64> {
    text.strip_suffix('%')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shares_are_rounded_the_way_that_is_asked_for() {
        assert_eq!(scaled(&json!("25%"), 10, Round::Up), Some(3));
        assert_eq!(scaled(&json!("25%"), 10, Round::Down), Some(2));
        assert_eq!(scaled(&json!(4), 10, Round::Up), Some(4));
        assert_eq!(scaled(&json!("4"), 10, Round::Up), None);
        assert_eq!(scaled(&json!(null), 10, Round::Up), None);
    }
}
