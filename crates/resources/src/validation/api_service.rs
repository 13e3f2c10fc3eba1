//! APIServices.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::At;

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1_000;
const STATES: &[&str] = &["True", "False", "Unknown"];

/// An APIService.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let name = At::root(object).get("metadata").get("name");
    let (group, version) = (spec.get("group"), spec.get("version"));
    let wanted = format!("{}.{}", version.text(), group.text());
    if name.text() != wanted && names::path_segment(name.text()).is_empty() {
        errors.push(name.invalid(&format!("must be `spec.version+\".\"+spec.group`: {wanted:?}")));
    }
    if group.text().is_empty() && version.text() != "v1" {
        errors.push(group.required("only v1 may have an empty group and it better be legacy kube"));
    }
    group.optional(names::dns1123_subdomain, &mut errors);
    errors.extend(
        names::dns1035_label(version.text())
            .iter()
            .map(|rule| FieldError::invalid(&version.path, version.text(), rule)),
    );
    for (field, max) in
        [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)]
    {
        let at = spec.get(field);
        let number = at.number().unwrap_or_default();
        if !(1..=max).contains(&number) {
            let rule = format!("must be positive and less than {max}");
            errors.push(FieldError::invalid(&at.path, number, &rule));
        }
    }
    backend(&spec, &mut errors);
    errors
}

fn backend(spec: &At<'_>, errors: &mut FieldErrors) {
    let (bundle, insecure) = (spec.get("caBundle"), spec.get("insecureSkipTLSVerify"));
    let Some(service) = spec.some("service") else {
        if !bundle.is_empty() {
            // Three bytes in four characters.
            let bytes = bundle.text().trim_end_matches('=').len() * 3 / 4;
            let rule = "local APIServices may not have a caBundle";
            errors.push(FieldError::invalid(&bundle.path, format!("{bytes} bytes"), rule));
        }
        if insecure.flag() {
            errors.push(insecure.invalid("local APIServices may not have insecureSkipTLSVerify"));
        }
        return;
    };
    for field in ["namespace", "name"] {
        if service.get(field).text().is_empty() {
            errors.push(service.get(field).required(""));
        }
    }
    super::webhook::service_port(&service.get("port"), errors);
    if insecure.flag() && !bundle.is_empty() {
        errors.push(insecure.invalid("may not be true if caBundle is present"));
    }
}

/// An update of an APIService.
pub(crate) fn update(new: &Value, _: &Value) -> FieldErrors {
    check(new)
}

/// A write to the status of an APIService.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for condition in At::root(new).get("status").get("conditions").items() {
        let status = condition.get("status");
        if !STATES.contains(&status.text()) {
            errors.push(FieldError::not_supported(&status.path, status.text(), STATES));
        }
    }
    errors
}
