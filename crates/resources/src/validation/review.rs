//! Questions about access.
//!
//! Source: `pkg/apis/authorization/validation`.

use machinery::field::{FieldError, FieldErrors};
use serde_json::Value;

use super::{At, internal};

/// A SelfSubjectAccessReview.
pub(crate) fn own_access(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    attributes(&At::root(object).get("spec"), &mut errors);
    no_metadata(object, "must be empty", &[], &mut errors);
    errors
}

/// A SubjectAccessReview.
pub(crate) fn access(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    attributes(&spec, &mut errors);
    subject(&spec, &mut errors);
    no_metadata(object, "must be empty", &[], &mut errors);
    errors
}

/// A LocalSubjectAccessReview.
pub(crate) fn local_access(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let root = At::root(object);
    let spec = root.get("spec");
    attributes(&spec, &mut errors);
    subject(&spec, &mut errors);
    no_metadata(object, "must be empty except for namespace", &["namespace"], &mut errors);
    let asked = spec.get("resourceAttributes").get("namespace");
    if spec.get("resourceAttributes").is_set() && asked.text() != root.get("metadata").get("namespace").text()
    {
        let rule = "must match metadata.namespace";
        errors.push(FieldError::invalid(&asked.path, asked.text(), rule));
    }
    let urls = spec.get("nonResourceAttributes");
    if urls.is_set() {
        let detail = "disallowed on this kind of request";
        errors.push(internal::invalid(&urls, "NonResourceAttributes", detail));
    }
    errors
}

fn attributes(spec: &At<'_>, errors: &mut FieldErrors) {
    let (resource, url) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    match (resource.is_set(), url.is_set()) {
        (true, true) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(internal::invalid(&url, "NonResourceAttributes", detail));
        }
        (false, false) => errors.push(
            resource.invalid("exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        ),
        _ => {}
    }
}

fn subject(spec: &At<'_>, errors: &mut FieldErrors) {
    let user = spec.get("user");
    if user.text().is_empty() && spec.get("groups").is_empty() {
        let rule = "at least one of user or group must be specified";
        errors.push(FieldError::invalid(&user.path, user.text(), rule));
    }
}

fn no_metadata(object: &Value, rule: &str, allowed: &[&str], errors: &mut FieldErrors) {
    let metadata = At::root(object).get("metadata");
    // Of managed fields upstream takes none away, but every client may have them.
    let has_more = metadata
        .entries()
        .any(|(name, value)| value.is_set() && name != "managedFields" && !allowed.contains(&name));
    if has_more {
        errors.push(metadata.invalid(rule));
    }
}
