//! Namespaces.

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;
use serde_json::Value;

use super::At;

/// A Namespace.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let finalizers = At::root(object).get("spec").get("finalizers");
    for finalizer in finalizers.texts() {
        finalizer_name(&finalizers.path, finalizer, &mut errors);
    }
    errors
}

/// A write to `/finalize`.
pub(crate) fn finalize(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for finalizer in At::root(new).get("spec").get("finalizers").items() {
        finalizer_name(&finalizer.path, finalizer.text(), &mut errors);
    }
    errors
}

fn finalizer_name(path: &Path, name: &str, errors: &mut FieldErrors) {
    let of = |rule: &str| FieldError::invalid(path, name, rule);
    errors.extend(names::qualified_name(name).iter().map(|rule| of(rule)));
    if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        errors.push(of("name is neither a standard finalizer name nor is it fully qualified"));
    }
}

/// A write to `/status`: the phase follows from the deletion.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let namespace = At::root(new);
    let is_deleted = namespace.get("metadata").get("deletionTimestamp").is_set();
    // Upstream names the field like this.
    let phase = namespace.get("status").get("phase");
    let path = namespace.get("status").path.child("Phase");
    let of = |rule: &str| FieldErrors::from(FieldError::invalid(&path, phase.text(), rule));
    match (is_deleted, phase.text()) {
        (false, "Active") | (true, "Terminating") => FieldErrors::new(),
        (false, _) => of("may only be 'Active' if `deletionTimestamp` is empty"),
        (true, _) => of("may only be 'Terminating' if `deletionTimestamp` is not empty"),
    }
}
