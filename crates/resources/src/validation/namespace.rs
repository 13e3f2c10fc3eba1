//! Namespaces.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::At;

/// A Namespace.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let finalizers = At::root(object).get("spec").get("finalizers");
    for finalizer in finalizers.items() {
        let text = finalizer.text();
        let rules = names::qualified_name(text);
        if rules.is_empty() && !text.contains('/') && text != "kubernetes" {
            let rule = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&finalizers.path, text, rule));
        }
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&finalizers.path, text, rule)));
    }
    errors
}

/// A write to `/status`: the phase follows from the deletion.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let namespace = At::root(new);
    let phase = namespace.get("status").get("phase");
    let is_deleted = namespace.get("metadata").get("deletionTimestamp").is_set();
    match (is_deleted, phase.text()) {
        (false, "Active") | (true, "Terminating") => Vec::new(),
        (false, _) => vec![phase.invalid("may only be 'Active' if `deletionTimestamp` is empty")],
        (true, _) => vec![phase.invalid("may only be 'Terminating' if `deletionTimestamp` is not empty")],
    }
}
