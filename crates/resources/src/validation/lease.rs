//! Leases.

use machinery::field::FieldErrors;
use serde_json::Value;

use super::At;

/// A Lease.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let spec = At::root(object).get("spec");
    let duration = spec.get("leaseDurationSeconds");
    if duration.number().is_some_and(|seconds| seconds <= 0) {
        errors.push(duration.invalid("must be greater than 0"));
    }
    spec.get("leaseTransitions").not_negative(&mut errors);
    if spec.get("strategy").is_set() {
        spec.get("strategy").if_one_of(&["OldestEmulationVersion"], &mut errors);
    }
    errors
}

/// An update of a Lease.
pub(crate) fn update(new: &Value, _: &Value) -> FieldErrors {
    check(new)
}
