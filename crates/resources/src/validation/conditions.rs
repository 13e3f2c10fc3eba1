//! `metav1.Condition`s.
//!
//! Source: `k8s.io/apimachinery/pkg/apis/meta/v1/validation`.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::At;

const REASON_BYTES_MAX: usize = 1024;
const MESSAGE_BYTES_MAX: usize = 32 * 1024;
const NOT_A_REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// A list of conditions: each type at most once.
pub(super) fn check_all(conditions: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let kind = condition.get("type");
        if !seen.insert(kind.text()) {
            errors.push(kind.duplicate());
        }
        check(&condition, errors);
    }
}

fn check(condition: &At<'_>, errors: &mut FieldErrors) {
    let (kind, status, reason) = (condition.get("type"), condition.get("status"), condition.get("reason"));
    let of_kind = |rule: &String| FieldError::invalid(&kind.path, kind.text(), rule);
    errors.extend(names::qualified_name(kind.text()).iter().map(of_kind));
    if !["True", "False", "Unknown"].contains(&status.text()) {
        let supported = &["False", "True", "Unknown"];
        errors.push(FieldError::not_supported(&status.path, status.text(), supported));
    }
    let generation = condition.get("observedGeneration");
    if generation.number().is_some_and(|n| n < 0) {
        errors.push(generation.invalid("must be greater than or equal to zero"));
    }
    if condition.get("lastTransitionTime").text().is_empty() {
        errors.push(condition.get("lastTransitionTime").required("must be set"));
    }
    if reason.text().is_empty() {
        errors.push(reason.required("must be set"));
    } else if !is_reason(reason.text()) {
        errors.push(reason.invalid(NOT_A_REASON));
    }
    for (at, max) in [(&reason, REASON_BYTES_MAX), (&condition.get("message"), MESSAGE_BYTES_MAX)] {
        if at.len() > max {
            errors.push(FieldError::too_long(&at.path, max));
        }
    }
}

fn is_reason(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"_,:".contains(b))
}
