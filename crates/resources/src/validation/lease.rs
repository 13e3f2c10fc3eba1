//! Leases, and who would like to hold them.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::At;

const OLDEST: &str = "OldestEmulationVersion";

/// A Lease.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let duration = spec.get("leaseDurationSeconds");
    if duration.number().is_some_and(|seconds| seconds <= 0) {
        errors.push(duration.invalid("must be greater than 0"));
    }
    spec.get("leaseTransitions").not_negative(&mut errors);
    if spec.get("strategy").is_set() {
        strategy(&spec.get("strategy"), &mut errors);
    }
    let preferred = spec.get("preferredHolder");
    if !preferred.text().is_empty() && spec.get("strategy").text().is_empty() {
        errors.push(preferred.forbidden("may only be specified if `strategy` is defined"));
    }
    errors
}

/// An update of a Lease.
pub(crate) fn update(new: &Value, _: &Value) -> FieldErrors {
    check(new)
}

/// One of Kubernetes' own, or a qualified name. Upstream names the field twice.
fn strategy(at: &At<'_>, errors: &mut FieldErrors) {
    let path = at.path.child("strategy");
    if !at.text().contains('/') {
        if at.text() != OLDEST {
            errors.push(FieldError::not_supported(&path, at.text(), &[OLDEST]));
        }
        return;
    }
    let rules = names::qualified_name(at.text());
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&path, at.text(), rule)));
}

/// A LeaseCandidate.
pub(crate) fn candidate(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    spec.must_have("leaseName", &mut errors);
    let (emulated, binary) = (spec.get("emulationVersion"), spec.get("binaryVersion"));
    let mut version = |at: &At<'_>| {
        let parsed = parse_version(at.text());
        if !at.text().is_empty() && parsed.is_none() {
            errors.push(at.invalid("must be a valid semantic version"));
        }
        parsed
    };
    let emulates = version(&emulated);
    let runs = version(&binary);
    if binary.text().is_empty() {
        errors.push(binary.required(""));
    }
    if let (Some(emulates), Some(runs)) = (emulates, runs)
        && runs < emulates
    {
        errors.push(binary.invalid("must be greater than or equal to `emulationVersion`"));
    }
    let at = spec.get("strategy");
    if at.text().is_empty() {
        errors.push(at.required(""));
        return errors;
    }
    if at.text() == OLDEST && emulates.is_none_or(|version| version == (0, 0, 0)) {
        errors.push(emulated.required("must be specified when `strategy` is 'OldestEmulationVersion'"));
    }
    strategy(&at, &mut errors);
    errors
}

/// The three numbers of a semantic version; what follows them does not count here.
fn parse_version(text: &str) -> Option<(u64, u64, u64)> {
    let core = text.split(['-', '+']).next()?;
    let is_number = |part: &&str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part.len() == 1 || !part.starts_with('0'))
    };
    let mut numbers = core.split('.').map(|part| Some(part).filter(is_number)?.parse().ok());
    let version = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(version)
}

/// An update of a LeaseCandidate.
pub(crate) fn candidate_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = candidate(new);
    let name = |object| At::root(object).get("spec").get("leaseName");
    name(new).unchanged(&name(old), &mut errors);
    errors
}
