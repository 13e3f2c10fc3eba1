//! Tolerations, affinity and spread constraints.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::taints::EFFECTS;

use super::selector::Values;
use super::{At, internal, selector};

/// In upstream's order.
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The effect of a taint.
pub(super) fn taint_effect(effect: &At<'_>, errors: &mut FieldErrors) {
    effect.one_of(&EFFECTS, errors);
}

/// `spec.tolerations`.
pub(super) fn tolerations(tolerations: &At<'_>, errors: &mut FieldErrors) {
    for toleration in tolerations.items() {
        let (key, operator, effect) =
            (toleration.get("key"), toleration.get("operator"), toleration.get("effect"));
        let of_operator = |value: &str, detail: &str| FieldError::invalid(&operator.path, value, detail);
        key.optional(names::qualified_name, errors);
        if key.text().is_empty() && operator.text() != "Exists" {
            errors.push(of_operator(
                operator.text(),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ));
        }
        if toleration.get("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(&effect.path, effect.text(), detail));
        }
        let value = toleration.get("value").text();
        match operator.text() {
            "Equal" | "" => {
                let rules = names::label_value(value);
                if !rules.is_empty() {
                    errors.push(of_operator(value, &rules.join(";")));
                }
            }
            "Exists" if !value.is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                let whole = At { path: operator.path.clone(), ..toleration.clone() };
                errors.push(internal::invalid(&whole, "Toleration", detail));
            }
            "Exists" => {}
            _ => operator.if_one_of(&["Equal", "Exists"], errors),
        }
        if !effect.text().is_empty() {
            taint_effect(&effect, errors);
        }
    }
}

/// `spec.affinity`, where rules about nodes may have these values.
pub(super) fn affinity(affinity: &At<'_>, values: Values, errors: &mut FieldErrors) {
    let node = affinity.get("nodeAffinity");
    if let Some(required) = node.some(REQUIRED) {
        node_selector(&required, values, errors);
    }
    for preference in node.get(PREFERRED).items() {
        weight(&preference.get("weight"), errors);
        node_term(&preference.get("preference"), Values::Any, errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(kind);
        for term in pods.get(REQUIRED).items() {
            pod_term(&term, errors);
        }
        for preference in pods.get(PREFERRED).items() {
            weight(&preference.get("weight"), errors);
            pod_term(&preference.get("podAffinityTerm"), errors);
        }
    }
}

fn weight(weight: &At<'_>, errors: &mut FieldErrors) {
    let number = weight.number().unwrap_or_default();
    if !(1..=100).contains(&number) {
        errors.push(FieldError::invalid(&weight.path, number, "must be in the range 1-100"));
    }
}

impl Values {
    /// Those of an object that had this `NodeSelector`.
    pub(super) fn after(selector: &At<'_>) -> Self {
        let terms = selector.get("nodeSelectorTerms");
        let mut rules = terms.items().flat_map(|term| term.get("matchExpressions").items());
        let is_bad =
            |rule: At<'_>| rule.get("values").texts().any(|value| !names::label_value(value).is_empty());
        if rules.any(is_bad) { Self::Any } else { Self::Labels }
    }

    /// Those of a Pod whose spec was this one.
    pub(super) fn after_pod(spec: &At<'_>) -> Self {
        Self::after(&spec.get("affinity").get("nodeAffinity").get(REQUIRED))
    }
}

/// A `NodeSelector`.
pub(super) fn node_selector(selector: &At<'_>, values: Values, errors: &mut FieldErrors) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(terms.required("must have at least one node selector term"));
    }
    terms.items().for_each(|term| node_term(&term, values, errors));
}

fn node_term(term: &At<'_>, values: Values, errors: &mut FieldErrors) {
    for rule in term.get("matchExpressions").items() {
        node_requirement(&rule, errors);
        let key = rule.get("key").text();
        let path = rule.path.child("key");
        errors.extend(names::qualified_name(key).iter().map(|e| FieldError::invalid(&path, key, e)));
        if values == Values::Labels {
            for value in rule.get("values").items() {
                errors.extend(value.all(names::label_value(value.text())));
            }
        }
    }
    for rule in term.get("matchFields").items() {
        node_field(&rule, errors);
    }
}

fn node_field(rule: &At<'_>, errors: &mut FieldErrors) {
    let (operator, key, values) = (rule.get("operator"), rule.get("key"), rule.get("values"));
    if !matches!(operator.text(), "In" | "NotIn") {
        let detail = "not a valid selector operator";
        errors.push(FieldError::invalid(&operator.path, operator.text(), detail));
    } else if values.len() != 1 {
        errors.push(
            values.required(
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
        );
    }
    if key.text() != "metadata.name" {
        errors.push(FieldError::invalid(&key.path, key.text(), "not a valid field selector key"));
        return;
    }
    for value in values.items() {
        errors.extend(value.all(names::dns1123_subdomain(value.text())));
    }
}

fn node_requirement(rule: &At<'_>, errors: &mut FieldErrors) {
    let (values, operator) = (rule.get("values"), rule.get("operator"));
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors
                .push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.push(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        text => errors.push(FieldError::invalid(&operator.path, text, "not a valid selector operator")),
    }
}

fn pod_term(term: &At<'_>, errors: &mut FieldErrors) {
    selector::check(&term.get("labelSelector"), errors);
    selector::check(&term.get("namespaceSelector"), errors);
    // Upstream names the list like this, and without an index.
    let path = term.path.child("namespace");
    for namespace in term.get("namespaces").texts() {
        let rules = names::dns1123_label(namespace);
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&path, namespace, rule)));
    }
    label_keys(term, errors);
    let key = term.get("topologyKey");
    if key.text().is_empty() {
        errors.push(key.required("can not be empty"));
    }
    let rules = names::qualified_name(key.text());
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&key.path, key.text(), rule)));
}

/// Labels of the Pod itself that join the selector of a term or a constraint.
fn label_keys(term: &At<'_>, errors: &mut FieldErrors) {
    let selector = term.get("labelSelector");
    let (keys, others) = (term.get("matchLabelKeys"), term.get("mismatchLabelKeys"));
    for list in [&keys, &others] {
        if list.is_empty() {
            continue;
        }
        if !selector.is_set() {
            errors.push(list.forbidden("must not be specified when labelSelector is not set"));
            continue;
        }
        for key in list.items() {
            errors.extend(key.all(names::qualified_name(key.text())));
        }
    }
    // The selector has been given a rule for each key already; a second one is the user's.
    let mut seen: Vec<&str> = selector.get("matchLabels").entries().map(|(key, _)| key).collect();
    for expression in selector.get("matchExpressions").items() {
        let key = expression.get("key").text();
        if let Some(index) = keys.texts().position(|k| k == key)
            && seen.contains(&key)
        {
            let path = term.path.index(index);
            errors.push(FieldError::invalid(&path, key, "exists in both matchLabelKeys and labelSelector"));
        }
        seen.push(key);
    }
    for key in keys.items() {
        if others.texts().any(|other| other == key.text()) {
            errors.push(key.invalid("exists in both matchLabelKeys and mismatchLabelKeys"));
        }
    }
}

/// `spec.topologySpreadConstraints`.
pub(super) fn topology_spread(constraints: &At<'_>, errors: &mut FieldErrors) {
    for (index, constraint) in constraints.items().enumerate() {
        let (skew, key) = (constraint.get("maxSkew"), constraint.get("topologyKey"));
        let number = skew.number().unwrap_or_default();
        if number <= 0 {
            errors.push(FieldError::invalid(&skew.path, number, "must be greater than zero"));
        }
        if key.text().is_empty() {
            errors.push(key.required("can not be empty"));
        }
        let action = constraint.get("whenUnsatisfiable");
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action.text()) {
            let supported = &["DoNotSchedule", "ScheduleAnyway"];
            errors.push(FieldError::not_supported(&action.path, action.text(), supported));
        }
        let is_again = |other: At<'_>| {
            other.get("topologyKey").text() == key.text()
                && other.get("whenUnsatisfiable").text() == action.text()
        };
        if constraints.items().skip(index + 1).any(is_again) {
            let path = constraint.path.child("{topologyKey, whenUnsatisfiable}");
            errors.push(FieldError::duplicate(&path, format!("{{{}, {}}}", key.text(), action.text())));
        }
        let domains = constraint.get("minDomains");
        domains.positive(errors);
        if domains.is_set() && action.text() != "DoNotSchedule" {
            errors.push(domains.invalid(&format!(
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                action.text()
            )));
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            constraint.get(policy).if_one_of(&["Honor", "Ignore"], errors);
        }
        label_keys(&constraint, errors);
        selector::check(&constraint.get("labelSelector"), errors);
    }
}
