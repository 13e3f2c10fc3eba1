//! PodDisruptionBudgets.

use machinery::field::FieldErrors;
use serde_json::Value;

use super::selector::{self, Values};
use super::{At, conditions, internal};

/// A PodDisruptionBudget.
pub(crate) fn check(object: &Value) -> FieldErrors {
    checked(object, Values::Labels)
}

/// An update of a PodDisruptionBudget.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    checked(new, Values::after_selector(&At::root(old).get("spec").get("selector")))
}

fn checked(object: &Value, values: Values) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let (least, most) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if least.is_set() && most.is_set() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(internal::invalid(&spec, "PodDisruptionBudgetSpec", detail));
    }
    for share in [least, most].iter().filter(|share| share.is_set()) {
        share.int_or_percent(&mut errors);
        share.at_most_all(&mut errors);
    }
    selector::check_with(&spec.get("selector"), values, &mut errors);
    spec.get("unhealthyPodEvictionPolicy").if_one_of(&["AlwaysAllow", "IfHealthyBudget"], &mut errors);
    errors
}

/// A write to `/status`.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let status = At::root(new).get("status");
    conditions::check_all(&status.get("conditions"), &mut errors);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        status.get(field).not_negative(&mut errors);
    }
    errors
}
