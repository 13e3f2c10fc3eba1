//! Rules that fields of many kinds share: paths, ranges, numbers or percentages; and when two values are the same.

use machinery::field::{FieldError, FieldErrors};
use machinery::int_or_string;
use machinery::names;
use serde_json::Value;

use super::{At, NOT_NEGATIVE};

const NOT_A_PERCENTAGE: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/// Whether the API treats `a` and `b` as the same: what is absent, null or empty does not differ.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(&Value::Null)))
                && b.iter().all(|(key, value)| a.contains_key(key) || is_nothing(value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (a, b) => a == b || (is_nothing(a) && is_nothing(b)),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_nothing),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

impl<'a> At<'a> {
    /// `metadata.annotations`.
    pub(super) fn annotations(&self) -> Self {
        self.get("metadata").get("annotations")
    }

    /// A text that must be there.
    pub(super) fn must_have(&self, name: &str, errors: &mut FieldErrors) {
        let at = self.get(name);
        if at.text().is_empty() {
            errors.push(at.required(""));
        }
    }

    /// The text of every element.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.items().map(|item| item.text())
    }

    /// Whether it is a number other than `number`.
    pub(super) fn is_over(&self, number: i64) -> bool {
        self.number().is_some_and(|n| n > number)
    }

    /// A number that, if it is there, must be within these bounds.
    pub(super) fn between(&self, min: i64, max: i64, errors: &mut FieldErrors) {
        if self.number().is_some_and(|n| !(min..=max).contains(&n)) {
            errors.push(self.invalid(&format!("must be between {min} and {max}, inclusive")));
        }
    }

    /// A port number; an absent one is 0.
    pub(super) fn port_number(&self, errors: &mut FieldErrors) {
        let number = self.number().unwrap_or_default();
        let rules = names::port_number(number);
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&self.path, number, rule)));
    }

    /// A number that, if it is there, must be positive.
    pub(super) fn positive(&self, errors: &mut FieldErrors) {
        if self.number().is_some_and(|n| n <= 0) {
            errors.push(self.invalid("must be greater than zero"));
        }
    }

    /// A path without a step back.
    pub(super) fn no_backsteps(&self, errors: &mut FieldErrors) {
        if self.text().split('/').any(|step| step == "..") {
            errors.push(self.invalid("must not contain '..'"));
        }
    }

    /// A path below another one: relative, and without a step back.
    pub(super) fn inner_path(&self, errors: &mut FieldErrors) {
        if self.text().starts_with('/') {
            errors.push(self.invalid("must be a relative path"));
        }
        self.no_backsteps(errors);
    }

    /// A path below another one whose name cannot be mistaken for one that the kubelet makes.
    pub(super) fn file_path(&self, errors: &mut FieldErrors) {
        self.inner_path(errors);
        let text = self.text();
        // A step back was reported already.
        if text.starts_with("..") && text != ".." && !text.starts_with("../") {
            errors.push(self.invalid("must not start with '..'"));
        }
    }

    /// A number that is not negative, or a percentage.
    pub(super) fn int_or_percent(&self, errors: &mut FieldErrors) {
        match self.value {
            Value::String(text) if int_or_string_percent(text).is_none() => {
                errors.push(FieldError::invalid(&self.path, text, NOT_A_PERCENTAGE));
            }
            Value::Number(_) if self.number().is_none_or(|n| n < 0) => {
                errors.push(self.invalid(NOT_NEGATIVE));
            }
            _ => {}
        }
    }

    /// A percentage of at most 100, if it is one.
    pub(super) fn at_most_all(&self, errors: &mut FieldErrors) {
        if int_or_string_percent(self.text()).is_some_and(|percent| percent > 100) {
            errors.push(self.invalid("must not be greater than 100%"));
        }
    }

    /// Whether a number or percentage is 0; so is an absent one.
    pub(super) fn is_zero_share(&self) -> bool {
        match self.value {
            Value::String(text) => int_or_string_percent(text).is_none_or(|percent| percent == 0),
            _ => self.number().unwrap_or_default() == 0,
        }
    }

    /// The same as in `old`, empty and absent being the same.
    pub(super) fn unchanged(&self, old: &At<'_>, errors: &mut FieldErrors) {
        if !same(self.value, old.value) {
            errors.push(self.invalid("field is immutable"));
        }
    }
}

fn int_or_string_percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| int_or_string::percent(text).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_and_absent_are_the_same() {
        assert!(same(&json!({"a": [], "b": {}, "c": null}), &json!({"d": ""})));
        assert!(same(&json!({"a": {"b": []}}), &json!({})));
        assert!(!same(&json!({"a": false}), &json!({})));
        assert!(!same(&json!([{}]), &json!([])));
        assert!(!same(&json!({"a": 1}), &json!({"a": 2})));
    }
}
