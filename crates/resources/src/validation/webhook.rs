//! The addresses of webhooks, and webhook configurations.
//!
//! Source: `k8s.io/apiserver/pkg/util/webhook/validation.go`, `pkg/apis/admissionregistration/validation`.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::admission_rules::{self, FAILURE_POLICIES, MATCH_POLICIES};
use super::{At, selector};
use crate::match_conditions;

const SIDE_EFFECTS_ANY: &[&str] = &["None", "NoneOnDryRun", "Some", "Unknown"];
const SIDE_EFFECTS_NONE: &[&str] = &["None", "NoneOnDryRun"];
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

/// What an update may keep that a create may not have, because the old object has it already.
struct Kept {
    side_effects: bool,
    versions: bool,
    names: bool,
}

/// A new webhook configuration of either kind.
pub(crate) fn create(object: &Value) -> FieldErrors {
    check(object, &Kept { side_effects: false, versions: false, names: false })
}

/// An update of a webhook configuration of either kind.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let hooks = || At::root(old).get("webhooks").items();
    let mut names = BTreeSet::new();
    let kept = Kept {
        side_effects: hooks().any(|hook| !SIDE_EFFECTS_NONE.contains(&hook.get("sideEffects").text())),
        versions: hooks().any(|hook| {
            let versions = hook.get("admissionReviewVersions");
            !versions.is_empty() && !versions.items().any(|v| REVIEW_VERSIONS.contains(&v.text()))
        }),
        names: hooks().any(|hook| !names.insert(hook.get("name").text().to_owned())),
    };
    check(new, &kept)
}

fn check(object: &Value, kept: &Kept) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut seen = BTreeSet::new();
    for hook in At::root(object).get("webhooks").items() {
        one(&hook, kept, &mut errors);
        review_versions(
            &hook.get("admissionReviewVersions"),
            "must specify one of v1, v1beta1",
            !kept.versions,
            &mut errors,
        );
        let name = hook.get("name");
        if !kept.names && !name.text().is_empty() && !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
    }
    errors
}

fn one(hook: &At<'_>, kept: &Kept, errors: &mut FieldErrors) {
    fully_qualified(&hook.get("name"), errors);
    hook.get("rules").items().for_each(|rule| admission_rules::with_operations(&rule, errors));
    hook.get("failurePolicy").if_one_of(FAILURE_POLICIES, errors);
    hook.get("matchPolicy").if_one_of(MATCH_POLICIES, errors);
    let (effects, allowed) =
        (hook.get("sideEffects"), if kept.side_effects { SIDE_EFFECTS_ANY } else { SIDE_EFFECTS_NONE });
    if !effects.is_set() {
        errors.push(effects.required(&format!("must specify one of {}", allowed.join(", "))));
    }
    effects.if_one_of(allowed, errors);
    let timeout = hook.get("timeoutSeconds");
    if timeout.number().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        errors.push(timeout.invalid("the timeout value must be between 1 and 30 seconds"));
    }
    selector::check(&hook.get("namespaceSelector"), errors);
    selector::check(&hook.get("objectSelector"), errors);
    hook.get("reinvocationPolicy").if_one_of(&["IfNeeded", "Never"], errors);
    client(&hook.get("clientConfig"), errors);
    let compile = |expression: &str| match_conditions::compile(expression).map(drop);
    admission_rules::match_conditions(&hook.get("matchConditions"), compile, errors);
}

/// A name of at least three segments.
fn fully_qualified(name: &At<'_>, errors: &mut FieldErrors) {
    if name.text().is_empty() {
        errors.push(name.required(""));
        return;
    }
    let rules = names::dns1123_subdomain(name.text());
    if !rules.is_empty() {
        errors.push(name.invalid(&rules.join(",")));
    } else if name.text().split('.').count() < 3 {
        errors.push(name.invalid("should be a domain with at least three segments separated by dots"));
    }
}

/// The versions of reviews that a webhook understands.
pub(super) fn review_versions(versions: &At<'_>, missing: &str, needs_known: bool, errors: &mut FieldErrors) {
    if versions.is_empty() {
        errors.push(versions.required(missing));
        return;
    }
    let mut seen = BTreeSet::new();
    for version in versions.items() {
        if seen.insert(version.text()) {
            errors.extend(version.all(names::dns1035_label(version.text())));
        } else {
            errors.push(version.invalid("duplicate version"));
        }
    }
    if needs_known && !seen.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        errors.push(versions.invalid("must include at least one of v1, v1beta1"));
    }
}

/// A `WebhookClientConfig`: a URL or a Service.
pub(super) fn client(config: &At<'_>, errors: &mut FieldErrors) {
    match (config.some("url"), config.some("service")) {
        (Some(address), None) => url(&address, errors),
        (None, Some(reference)) => service(&reference, errors),
        _ => errors.push(config.required("exactly one of url or service is required")),
    }
}

fn url(url: &At<'_>, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let text = url.text();
    let told = |shown: &str, rule: &str| FieldError::invalid(&url.path, shown, rule);
    let (scheme, rest) = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("", text));
    if text.chars().any(|c| c.is_control() || c == ' ') {
        let why = format!("url must be a valid URL: parse {text:?}: invalid character in URL{FORM}");
        errors.push(url.required(&why));
        return;
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or_default());
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !scheme.eq_ignore_ascii_case("https") {
        errors.push(told(scheme, &format!("'https' is the only allowed URL scheme{FORM}")));
    }
    if host.is_empty() {
        errors.push(told(host, &format!("host must be specified{FORM}")));
    }
    for (part, rule) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            errors.push(told(part, rule));
        }
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

fn service(reference: &At<'_>, errors: &mut FieldErrors) {
    // Upstream passes namespace and name the other way round, so that each missing one is reported as the other.
    for (field, shown) in [("namespace", "name"), ("name", "namespace")] {
        if reference.get(field).text().is_empty() {
            errors.push(reference.get(shown).required(""));
        }
    }
    service_port(&reference.get("port"), errors);
    path(&reference.get("path"), errors);
}

/// The port of a Service that the API server calls.
pub(super) fn service_port(port: &At<'_>, errors: &mut FieldErrors) {
    let number = port.number().unwrap_or_default();
    let rules = names::port_number(number);
    if !rules.is_empty() {
        let rule = format!("port is not valid: {}", rules.join(", "));
        errors.push(FieldError::invalid(&port.path, number, &rule));
    }
}

fn path(path: &At<'_>, errors: &mut FieldErrors) {
    let text = path.text();
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        errors.push(path.invalid("segment[0] may not be empty"));
        return;
    }
    if !text.starts_with('/') {
        errors.push(path.invalid("must start with a '/'"));
    }
    let mut rest = text.chars();
    rest.next();
    let rest = rest.as_str();
    for (i, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            errors.push(path.invalid(&format!("segment[{i}] may not be empty")));
            continue;
        }
        for rule in names::dns1123_subdomain(step) {
            errors.push(path.invalid(&format!("segment[{i}]: {rule}")));
        }
    }
}
