//! StorageVersionMigrations and StorageVersions.

use machinery::field::FieldErrors;
use machinery::names;
use serde_json::Value;

use super::At;

/// A StorageVersionMigration.
pub(crate) fn migration(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let target = At::root(object).get("spec").get("resource");
    let (resource, group) = (target.get("resource"), target.get("group"));
    if resource.text().is_empty() {
        errors.push(resource.required("resource is required to be set"));
    } else {
        let rules = names::dns1035_label(resource.text());
        if !rules.is_empty() {
            errors.push(resource.invalid(&rules.join(",")));
        }
    }
    let rules = names::dns1123_subdomain(group.text());
    if !group.text().is_empty() && !rules.is_empty() {
        errors.push(group.invalid(&rules.join(",")));
    }
    errors
}

/// An update of a StorageVersionMigration: what is migrated stays.
pub(crate) fn migration_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = migration(new);
    At::root(new).get("spec").immutable(&At::root(old).get("spec"), &mut errors);
    errors
}

/// A write to the status of a StorageVersionMigration.
pub(crate) fn migration_status(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (new, old) = (At::root(new).get("status"), At::root(old).get("status"));
    let (version, before) = (new.get("resourceVersion"), old.get("resourceVersion"));
    if !before.text().is_empty() {
        version.immutable(&before, &mut errors);
    }
    let is = |status: &At<'_>, kind: &str| {
        let mut conditions = status.get("conditions").items();
        conditions.any(|c| c.get("type").text() == kind && c.get("status").text() == "True")
    };
    let conditions = new.get("conditions");
    let (done, failed, running) = (is(&new, "Succeeded"), is(&new, "Failed"), is(&new, "Running"));
    for (is_broken, rule) in [
        (done && failed, "Both success and failed conditions cannot be true at the same time"),
        (done && running, "Running condition cannot be true when success condition is true"),
        (failed && running, "Running condition cannot be true when failed condition is true"),
        (is(&old, "Succeeded") && !done, "Success condition cannot be set to false once it is true"),
        (is(&old, "Failed") && !failed, "Failed condition cannot be set to false once it is true"),
    ] {
        if is_broken {
            errors.push(conditions.invalid(rule));
        }
    }
    errors
}
