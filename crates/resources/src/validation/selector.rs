//! `LabelSelector`s.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::{At, labels};

/// The values that the expressions of a selector may have, of objects or of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Those of labels.
    Labels,
    /// Any: what matches nothing does no harm in a preference, nor where there was such a value before.
    Any,
}

impl Values {
    /// Those of an object that had this selector. Source: `AllowInvalidLabelValueInSelector` of
    /// PodDisruptionBudgets, which any breach of the old selector allows.
    pub(super) fn after_selector(selector: &At<'_>) -> Self {
        let mut errors = FieldErrors::new();
        check(selector, &mut errors);
        if errors.is_empty() { Self::Labels } else { Self::Any }
    }
}

/// A `LabelSelector`, wherever it stands.
pub(super) fn check(selector: &At<'_>, errors: &mut FieldErrors) {
    check_with(selector, Values::Labels, errors);
}

/// A `LabelSelector` whose expressions have these values.
pub(super) fn check_with(selector: &At<'_>, allowed: Values, errors: &mut FieldErrors) {
    labels(&selector.get("matchLabels"), errors);
    for expression in selector.get("matchExpressions").items() {
        let (key, operator, values) =
            (expression.get("key"), expression.get("operator"), expression.get("values"));
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => {
                errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(
                    values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(operator.invalid("not a valid selector operator")),
        }
        errors.extend(
            names::qualified_name(key.text()).iter().map(|e| FieldError::invalid(&key.path, key.text(), e)),
        );
        for value in values.items().filter(|_| allowed == Values::Labels) {
            errors.extend(value.all(names::label_value(value.text())));
        }
    }
}

/// A selector that must be there and must not be empty.
pub(super) fn required(selector: &At<'_>, kind: &str, errors: &mut FieldErrors) {
    if !selector.is_set() {
        errors.push(selector.required(""));
        return;
    }
    check(selector, errors);
    if is_empty(selector) {
        errors.push(selector.invalid(&format!("empty selector is invalid for {kind}")));
    }
}

/// Whether it has no rule.
pub(super) fn is_empty(selector: &At<'_>) -> bool {
    selector.get("matchLabels").is_empty() && selector.get("matchExpressions").is_empty()
}
