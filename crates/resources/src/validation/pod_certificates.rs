//! PodCertificateRequests: what kubelets ask for, and what signers answer.
//!
//! Source: `pkg/apis/certificates/validation` at v1.35, KEP-4317.

mod issued;
mod proof;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::{At, conditions, metadata, signer};

const UID_BYTES_MAX: usize = 128;
const KEY_BYTES_MAX: usize = 10 * 1024;
const PROOF_BYTES_MAX: usize = 10 * 1024;
/// The bounds of a lifetime, in seconds.
pub(super) const SECONDS_MIN: i64 = 3600;
const SECONDS_MAX: i64 = 91 * 24 * 3600;
/// Of what Kubernetes' own signers issue.
const KUBERNETES_SECONDS_MAX: i64 = 24 * 3600;
/// How a request ends: with one of these, for good.
const ENDS: &[&str] = &["Issued", "Denied", "Failed"];

/// A new PodCertificateRequest.
pub(crate) fn request(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    signer::name(&spec.get("signerName"), &mut errors);
    user_annotations(&spec.get("unverifiedUserAnnotations"), &mut errors);
    for (name, uid) in
        [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
    {
        let (name, uid) = (spec.get(name), spec.get(uid));
        let of_name = |rule: &String| FieldError::invalid(&name.path, name.text(), rule);
        errors.extend(names::dns1123_subdomain(name.text()).iter().map(of_name));
        if uid.text().is_empty() {
            errors.push(FieldError::invalid(&uid.path, "", "must not be empty"));
        }
        if uid.len() > UID_BYTES_MAX {
            errors.push(FieldError::too_long(&uid.path, UID_BYTES_MAX));
        }
    }
    let seconds = spec.get("maxExpirationSeconds");
    let Some(asked) = seconds.number() else {
        errors.push(seconds.required("must be set"));
        return errors;
    };
    let max = seconds_max(spec.get("signerName").text());
    if !(SECONDS_MIN..=max).contains(&asked) {
        errors.push(seconds.invalid(&format!("must be in the range [{SECONDS_MIN}, {max}]")));
    }
    let (key, proof) = (proof::bytes(&spec, "pkixPublicKey"), proof::bytes(&spec, "proofOfPossession"));
    for (field, bytes, max) in
        [("pkixPublicKey", &key, KEY_BYTES_MAX), ("proofOfPossession", &proof, PROOF_BYTES_MAX)]
    {
        if bytes.len() > max {
            errors.push(FieldError::too_long(&spec.get(field).path, max));
            return errors;
        }
    }
    proof::check(&spec, &key, &proof, &mut errors);
    errors
}

/// The longest lifetime that a signer's certificates may have, in seconds.
pub(super) fn seconds_max(signer: &str) -> i64 {
    let domain = signer.split('/').next().unwrap_or_default();
    let is_own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    if is_own { KUBERNETES_SECONDS_MAX } else { SECONDS_MAX }
}

/// What a Pod's author tells a signer: keys have a domain before them.
/// Source: `ValidateUserAnnotations` of `pkg/apis/core/validation`.
pub(super) fn user_annotations(at: &At<'_>, errors: &mut FieldErrors) {
    for (key, _) in at.entries() {
        let key = key.to_lowercase();
        if key.is_empty() {
            errors.push(at.required(""));
            continue;
        }
        let mut rules = names::qualified_name(&key);
        if rules.is_empty() && !key.contains('/') {
            rules.push("must be a domain-prefixed key (such as \"acme.io/foo\")".to_owned());
        }
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&at.path, key.as_str(), rule)));
    }
    metadata::annotations_size(at, errors);
}

/// An update of a PodCertificateRequest: what is asked for stays.
pub(crate) fn request_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    At::root(new).get("spec").immutable(&At::root(old).get("spec"), &mut errors);
    errors
}

/// A write to the status: the request ends, once. That `notBefore` is about now is looked at by who has a clock.
pub(crate) fn request_status(new: &Value, old: &Value) -> FieldErrors {
    let status = At::root(new).get("status");
    let mut errors = end_conditions(&status.get("conditions"));
    if !errors.is_empty() {
        return errors;
    }
    let fixed = |detail: &str| FieldErrors::from(FieldError::invalid_unshown(&status.path, detail));
    let is_same = content(new) == content(old);
    if end(old).is_some() {
        let why = "immutable after PodCertificateRequest is issued, denied, or failed";
        return if is_same { errors } else { fixed(why) };
    }
    match end(new) {
        Some("Issued") => issued::check(&At::root(new), &mut errors),
        Some(_) => {
            if content(new).iter().any(|(field, _)| *field != "conditions") {
                return fixed(
                    "non-condition status fields must be empty when denying or failing the PodCertificateRequest",
                );
            }
        }
        None if is_same => {}
        None => {
            return fixed(
                "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"",
            );
        }
    }
    errors
}

/// What the status says; an empty field says nothing.
fn content(request: &Value) -> Vec<(&String, &Value)> {
    let status = request.get("status").and_then(Value::as_object).into_iter().flatten();
    let says = |value: &Value| {
        !value.is_null() && value != "" && value.as_array().is_none_or(|list| !list.is_empty())
    };
    status.filter(|(_, value)| says(value)).collect()
}

/// How the request has ended, if it has.
fn end(request: &Value) -> Option<&str> {
    let conditions = request.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let mut kinds = conditions.filter(|c| c["status"] == "True").filter_map(|c| c["type"].as_str());
    kinds.find(|kind| ENDS.contains(kind))
}

fn end_conditions(all: &At<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut ends = 0;
    for condition in all.items() {
        let (kind, status) = (condition.get("type"), condition.get("status"));
        if !ENDS.contains(&kind.text()) {
            errors.push(FieldError::not_supported(&kind.path, kind.text(), ENDS));
            continue;
        }
        ends += 1;
        if ends > 1 {
            let rule = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.push(kind.invalid(rule));
        }
        if status.text() != "True" {
            errors.push(FieldError::not_supported(&status.path, status.text(), &["True"]));
        }
    }
    conditions::check_all(all, &mut errors);
    errors
}

#[cfg(test)]
mod tests;
