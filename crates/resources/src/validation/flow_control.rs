//! FlowSchemas and PriorityLevelConfigurations.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::At;
use crate::flow_control::mandatory;

const PRECEDENCE_MAX: i64 = 10_000;
const QUEUES_MAX: i64 = 10_000_000;
/// A hand of queues is dealt from one 64-bit hash, of which this many bits are used.
const HASH_BITS_MAX: i64 = 60;
const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

/// A FlowSchema.
pub(crate) fn schema(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let root = At::root(object);
    let (name, spec) = (root.get("metadata").get("name"), root.get("spec"));
    let precedence = spec.get("matchingPrecedence");
    match precedence.number().unwrap_or_default() {
        number if number <= 0 => errors.push(precedence.invalid("must be a positive value")),
        number if number > PRECEDENCE_MAX => {
            errors.push(precedence.invalid(&format!("must not be greater than {PRECEDENCE_MAX}")));
        }
        1 if name.text() != "exempt" => {
            errors.push(precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"));
        }
        _ => {}
    }
    if let Some(method) = spec.some("distinguisherMethod") {
        let kind = method.get("type");
        if !matches!(kind.text(), "ByNamespace" | "ByUser") {
            errors.push(FieldError::not_supported(&kind.path, method.value, &["ByNamespace", "ByUser"]));
        }
    }
    let level = spec.get("priorityLevelConfiguration").get("name");
    if level.text().is_empty() {
        errors.push(level.required("must reference a priority level"));
    }
    level.optional(names::dns1123_subdomain, &mut errors);
    spec.get("rules").items().for_each(|item| rule(&item, &mut errors));
    if let Some(fixed) = mandatory("FlowSchema", name.text())
        && fixed.get("spec") != Some(spec.value)
    {
        errors.push(spec.invalid(&format!("spec of '{}' must equal the fixed value", name.text())));
    }
    conditions(&root, &mut errors);
    errors
}

/// An update of a FlowSchema.
pub(crate) fn schema_update(new: &Value, _: &Value) -> FieldErrors {
    schema(new)
}

/// A write to the status of either kind.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    conditions(&At::root(new), &mut errors);
    errors
}

fn conditions(root: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for kind in root.get("status").get("conditions").items().map(|condition| condition.get("type")) {
        if !seen.insert(kind.text()) {
            errors.push(kind.duplicate());
        }
        if kind.text().is_empty() {
            errors.push(kind.required("must not be empty"));
        }
    }
}

fn rule(rule: &At<'_>, errors: &mut FieldErrors) {
    let subjects = rule.get("subjects");
    if subjects.is_empty() {
        errors.push(subjects.required("subjects must contain at least one value"));
    }
    subjects.items().for_each(|item| subject(&item, errors));
    let (resources, urls) = (rule.get("resourceRules"), rule.get("nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        errors.push(rule.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    resources.items().for_each(|item| resource_rule(&item, errors));
    urls.items().for_each(|item| url_rule(&item, errors));
}

fn subject(subject: &At<'_>, errors: &mut FieldErrors) {
    const KINDS: &[(&str, &str)] =
        &[("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.get("kind");
    let Some((_, field)) = KINDS.iter().find(|(name, _)| *name == kind.text()) else {
        let supported = ["Group", "ServiceAccount", "User"];
        errors.push(FieldError::not_supported(&kind.path, kind.text(), &supported));
        return;
    };
    match subject.some(field) {
        None => {
            let rule = format!("{field} is required when subject kind is '{}'", kind.text());
            errors.push(subject.get(field).required(&rule));
        }
        Some(named) if *field == "serviceAccount" => service_account(&named, errors),
        Some(named) if named.get("name").text().is_empty() => errors.push(named.get("name").required("")),
        Some(_) => {}
    }
    for (other, field) in KINDS.iter().filter(|(name, _)| *name != kind.text()) {
        if subject.get(field).is_set() {
            let rule = format!("{field} is forbidden when subject kind is not '{other}'");
            errors.push(subject.get(field).forbidden(&rule));
        }
    }
}

fn service_account(account: &At<'_>, errors: &mut FieldErrors) {
    let (name, namespace) = (account.get("name"), account.get("namespace"));
    if name.text() != "*" {
        name.named(names::dns1123_subdomain, errors);
    }
    if namespace.text().is_empty() {
        errors.push(namespace.required("must specify namespace for service account"));
    }
    namespace.optional(names::dns1123_label, errors);
}

fn has_wildcard(list: &At<'_>) -> bool {
    list.items().any(|item| item.text() == "*")
}

/// A list that must not be empty, and whose wildcard stands alone.
fn list(list: &At<'_>, missing: &str, what: &str, errors: &mut FieldErrors) {
    if list.is_empty() {
        errors.push(list.required(missing));
    } else if list.len() > 1 && has_wildcard(list) {
        errors.push(list.invalid(&format!("if '*' is present, must not specify other {what}")));
    }
}

fn verbs(verbs: &At<'_>, errors: &mut FieldErrors) {
    list(verbs, "verbs must contain at least one value", "verbs", errors);
    let has_unknown = verbs.items().any(|verb| !VERBS.contains(&verb.text()));
    if has_unknown && !has_wildcard(verbs) {
        errors.push(FieldError::not_supported(&verbs.path, verbs.value, VERBS));
    }
}

fn resource_rule(rule: &At<'_>, errors: &mut FieldErrors) {
    verbs(&rule.get("verbs"), errors);
    let groups = rule.get("apiGroups");
    list(&groups, "resource rules must supply at least one api group", "api groups", errors);
    let resources = rule.get("resources");
    list(&resources, "resource rules must supply at least one resource", "resources", errors);
    let namespaces = rule.get("namespaces");
    if namespaces.is_empty() {
        if !rule.get("clusterScope").flag() {
            errors.push(
                namespaces.required(
                    "resource rules that are not cluster scoped must supply at least one namespace",
                ),
            );
        }
    } else if has_wildcard(&namespaces) {
        list(&namespaces, "", "namespaces", errors);
    } else {
        for namespace in namespaces.items() {
            for rule in names::dns1123_label(namespace.text()) {
                let rule = format!("each member of this list must be '*' or a DNS-1123 label; {rule}");
                errors.push(namespace.invalid(&rule));
            }
        }
    }
}

fn url_rule(rule: &At<'_>, errors: &mut FieldErrors) {
    verbs(&rule.get("verbs"), errors);
    let urls = rule.get("nonResourceURLs");
    list(&urls, "nonResourceURLs must contain at least one value", "non-resource URLs", errors);
    if has_wildcard(&urls) {
        return;
    }
    for url in urls.items() {
        errors.extend(broken_url(url.text()).map(|rule| FieldError::invalid(&url.path, url.text(), rule)));
    }
}

fn broken_url(url: &str) -> Option<&'static str> {
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ => match url.matches('*').count() {
            0 => None,
            1 if url.ends_with("/*") => None,
            _ => Some("wildcard can only do suffix matching"),
        },
    }
}

/// A PriorityLevelConfiguration.
pub(crate) fn level(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let root = At::root(object);
    let (name, spec) = (root.get("metadata").get("name"), root.get("spec"));
    let (kind, limited, exempt) = (spec.get("type"), spec.some("limited"), spec.some("exempt"));
    if (name.text() == "exempt") != (kind.text() == "Exempt") {
        let rule = "type must be 'Exempt' if and only if name is 'exempt'";
        errors.push(FieldError::invalid(&kind.path, kind.text(), rule));
    }
    match kind.text() {
        "Exempt" => {
            if let Some(limited) = limited {
                errors.push(limited.forbidden("must be nil if the type is not Limited"));
            }
            if let Some(exempt) = exempt {
                shares(&exempt, &mut errors);
                lendable(&exempt, &mut errors);
            }
        }
        "Limited" => {
            if let Some(exempt) = exempt {
                errors.push(exempt.forbidden("must be nil if the type is Limited"));
            }
            match limited {
                Some(limited) => limit(&limited, &mut errors),
                None => {
                    errors.push(spec.get("limited").required("must not be empty when type is Limited"));
                }
            }
        }
        text => errors.push(FieldError::not_supported(&kind.path, text, &["Exempt", "Limited"])),
    }
    fixed_level(name.text(), &spec, &mut errors);
    conditions(&root, &mut errors);
    errors
}

/// An update of a PriorityLevelConfiguration.
pub(crate) fn level_update(new: &Value, _: &Value) -> FieldErrors {
    level(new)
}

fn fixed_level(name: &str, spec: &At<'_>, errors: &mut FieldErrors) {
    let Some(fixed) = mandatory("PriorityLevelConfiguration", name) else { return };
    let without_exempt = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(map) = spec.as_object_mut().filter(|_| name == "exempt") {
            map.remove("exempt");
        }
        spec
    };
    if without_exempt(&fixed["spec"]) != without_exempt(spec.value) {
        let part = if name == "exempt" { " except the 'spec.exempt' field" } else { "" };
        errors.push(spec.invalid(&format!("spec of '{name}'{part} must equal the fixed value")));
    }
}

fn shares(level: &At<'_>, errors: &mut FieldErrors) {
    let shares = level.get("nominalConcurrencyShares");
    if shares.number().is_some_and(|number| number < 0) {
        errors.push(shares.invalid("must be a non-negative integer"));
    }
}

fn lendable(level: &At<'_>, errors: &mut FieldErrors) {
    let percent = level.get("lendablePercent");
    if percent.number().is_some_and(|number| !(0..=100).contains(&number)) {
        errors.push(percent.invalid("must be between 0 and 100, inclusive"));
    }
}

fn limit(limited: &At<'_>, errors: &mut FieldErrors) {
    shares(limited, errors);
    let response = limited.get("limitResponse");
    let (kind, queuing) = (response.get("type"), response.some("queuing"));
    match (kind.text(), queuing) {
        ("Reject", Some(queuing)) => {
            errors.push(queuing.forbidden("must be nil if limited.limitResponse.type is not Limited"))
        }
        ("Reject", None) => {}
        ("Queue", Some(queuing)) => queues(&queuing, errors),
        ("Queue", None) => errors.push(
            response.get("queuing").required("must not be empty if limited.limitResponse.type is Limited"),
        ),
        (text, _) => errors.push(FieldError::not_supported(&kind.path, text, &["Queue", "Reject"])),
    }
    lendable(limited, errors);
    let borrowing = limited.get("borrowingLimitPercent");
    if borrowing.number().is_some_and(|number| number < 0) {
        errors.push(borrowing.invalid("if specified, must be a non-negative integer"));
    }
}

fn queues(queuing: &At<'_>, errors: &mut FieldErrors) {
    let (length, queues, hand) =
        (queuing.get("queueLengthLimit"), queuing.get("queues"), queuing.get("handSize"));
    let number = |at: &At<'_>| at.number().unwrap_or_default();
    if number(&length) <= 0 {
        errors.push(length.invalid("must be positive"));
    }
    match number(&queues) {
        count if count <= 0 => errors.push(queues.invalid("must be positive")),
        count if count > QUEUES_MAX => {
            errors.push(queues.invalid(&format!("must not be greater than {QUEUES_MAX}")));
        }
        _ => {}
    }
    let (deck, size) = (number(&queues), number(&hand));
    if size <= 0 {
        errors.push(hand.invalid("must be positive"));
    } else if size > deck {
        errors.push(hand.invalid(&format!("should not be greater than queues ({deck})")));
    } else if entropy_bits(deck, size) > HASH_BITS_MAX {
        errors.push(hand.invalid(&format!(
            "required entropy bits of deckSize {deck} and handSize {size} should not be greater than {HASH_BITS_MAX}"
        )));
    }
}

/// How many bits it takes to deal `hand` of `deck` queues.
///
/// Source: `k8s.io/apiserver/pkg/util/shufflesharding`.
fn entropy_bits(deck: i64, hand: i64) -> i64 {
    // Above this many cards the bits are more than there are in any case.
    let dealt = hand.min(64);
    let bits: f64 =
        (0..dealt).filter_map(|i| u32::try_from(deck - i).ok()).map(|n| f64::from(n).log2()).sum();
    let bits = bits.ceil();
    (0..=i64::from(u16::MAX))
        .find(|n| u16::try_from(*n).is_ok_and(|n| f64::from(n) >= bits))
        .unwrap_or(i64::MAX)
}
