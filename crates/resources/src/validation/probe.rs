//! Probes and lifecycle handlers.

use machinery::field::FieldErrors;
use machinery::names;

use super::{At, NOT_NEGATIVE};

const HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc"];

/// The three probes of a container.
pub(super) fn all(container: &At<'_>, errors: &mut FieldErrors) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.some(kind) else { continue };
        check(&probe, errors);
        let threshold = probe.get("successThreshold");
        if kind != "readinessProbe" && threshold.number() != Some(1) {
            errors.push(threshold.invalid("must be 1"));
        }
        let grace = probe.get("terminationGracePeriodSeconds");
        if kind == "readinessProbe" && grace.is_set() {
            errors.push(grace.invalid("must not be set for readinessProbes"));
        }
    }
}

fn check(probe: &At<'_>, errors: &mut FieldErrors) {
    handler(probe, HANDLERS, errors);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        if probe.get(field).number().is_some_and(|n| n < 0) {
            errors.push(probe.get(field).invalid(NOT_NEGATIVE));
        }
    }
    let grace = probe.get("terminationGracePeriodSeconds");
    if grace.number().is_some_and(|n| n <= 0) {
        errors.push(grace.invalid("must be greater than 0"));
    }
}

/// Exactly one of `kinds`.
pub(super) fn handler(at: &At<'_>, kinds: &[&str], errors: &mut FieldErrors) {
    let mut count = 0;
    for kind in kinds {
        let Some(action) = at.some(kind) else { continue };
        count += 1;
        if count > 1 {
            errors.push(action.forbidden("may not specify more than 1 handler type"));
            continue;
        }
        match *kind {
            "exec" if action.get("command").is_empty() => errors.push(action.get("command").required("")),
            "httpGet" => http(&action, errors),
            "tcpSocket" => action.get("port").port(errors),
            "grpc" => {
                let port = action.get("port");
                errors.extend(port.all(names::port_number(port.number().unwrap_or_default())));
            }
            "sleep" if action.get("seconds").number().is_none_or(|n| n < 0) => {
                errors.push(
                    action
                        .get("seconds")
                        .invalid("must be a non-negative integer less than terminationGracePeriodSeconds"),
                );
            }
            _ => {}
        }
    }
    if count == 0 {
        errors.push(at.required("must specify a handler type"));
    }
}

fn http(action: &At<'_>, errors: &mut FieldErrors) {
    if action.get("path").text().is_empty() {
        errors.push(action.get("path").required(""));
    }
    action.get("port").port(errors);
    action.get("scheme").if_one_of(&["HTTP", "HTTPS"], errors);
    for header in action.get("httpHeaders").items() {
        let name = header.get("name");
        let is_good =
            !name.text().is_empty() && name.text().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !is_good {
            errors.push(name.invalid("a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"));
        }
    }
}
