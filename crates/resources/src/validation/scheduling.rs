//! Tolerations, affinity and spread constraints.

use machinery::field::FieldErrors;
use machinery::names;

use super::{At, selector};

const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "PreferNoSchedule"];

/// `spec.tolerations`.
pub(super) fn tolerations(tolerations: &At<'_>, errors: &mut FieldErrors) {
    for toleration in tolerations.items() {
        let (key, operator, effect) =
            (toleration.get("key"), toleration.get("operator"), toleration.get("effect"));
        key.optional(names::qualified_name, errors);
        if key.text().is_empty() && operator.text() != "Exists" {
            errors.push(operator.invalid(
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ));
        }
        if toleration.get("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            errors.push(effect.invalid("effect must be 'NoExecute' when `tolerationSeconds` is set"));
        }
        let value = toleration.get("value");
        match operator.text() {
            "Equal" | "" => value.optional(names::label_value, errors),
            "Exists" if !value.text().is_empty() => {
                errors.push(operator.invalid("value must be empty when `operator` is 'Exists'"));
            }
            "Exists" => {}
            _ => operator.if_one_of(&["Equal", "Exists"], errors),
        }
        if !effect.text().is_empty() {
            effect.if_one_of(EFFECTS, errors);
        }
    }
}

/// `spec.affinity`.
pub(super) fn affinity(affinity: &At<'_>, errors: &mut FieldErrors) {
    let node = affinity.get("nodeAffinity");
    if let Some(required) = node.some("requiredDuringSchedulingIgnoredDuringExecution") {
        let terms = required.get("nodeSelectorTerms");
        if terms.is_empty() {
            errors.push(terms.required("must have at least one node selector term"));
        }
        terms.items().for_each(|term| node_term(&term, errors));
    }
    for preference in node.get("preferredDuringSchedulingIgnoredDuringExecution").items() {
        weight(&preference.get("weight"), errors);
        node_term(&preference.get("preference"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(kind);
        for term in pods.get("requiredDuringSchedulingIgnoredDuringExecution").items() {
            pod_term(&term, errors);
        }
        for preference in pods.get("preferredDuringSchedulingIgnoredDuringExecution").items() {
            weight(&preference.get("weight"), errors);
            pod_term(&preference.get("podAffinityTerm"), errors);
        }
    }
}

fn weight(weight: &At<'_>, errors: &mut FieldErrors) {
    if !(1..=100).contains(&weight.number().unwrap_or_default()) {
        errors.push(weight.invalid("must be in the range 1-100"));
    }
}

pub(super) fn node_term(term: &At<'_>, errors: &mut FieldErrors) {
    for rule in term.get("matchExpressions").items() {
        node_requirement(&rule, errors);
        let key = rule.get("key");
        errors.extend(key.all(names::qualified_name(key.text())));
    }
    for rule in term.get("matchFields").items() {
        rule.get("operator").if_one_of(&["In", "NotIn"], errors);
        if rule.get("key").text() != "metadata.name" {
            errors.push(rule.get("key").invalid("not a valid field selector key"));
        }
    }
}

fn node_requirement(rule: &At<'_>, errors: &mut FieldErrors) {
    let values = rule.get("values");
    match rule.get("operator").text() {
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
        _ => errors.push(rule.get("operator").invalid("not a valid selector operator")),
    }
}

fn pod_term(term: &At<'_>, errors: &mut FieldErrors) {
    selector::check(&term.get("labelSelector"), errors);
    selector::check(&term.get("namespaceSelector"), errors);
    for namespace in term.get("namespaces").items() {
        errors.extend(namespace.all(names::dns1123_label(namespace.text())));
    }
    let key = term.get("topologyKey");
    if key.text().is_empty() {
        errors.push(key.required("can not be empty"));
    }
    errors.extend(key.all(names::qualified_name(key.text())));
}

/// `spec.topologySpreadConstraints`.
pub(super) fn topology_spread(constraints: &At<'_>, errors: &mut FieldErrors) {
    for constraint in constraints.items() {
        let (skew, key) = (constraint.get("maxSkew"), constraint.get("topologyKey"));
        if skew.number().unwrap_or_default() <= 0 {
            errors.push(skew.invalid("must be greater than zero"));
        }
        if key.text().is_empty() {
            errors.push(key.required("can not be empty"));
        } else {
            errors.extend(key.all(names::qualified_name(key.text())));
        }
        constraint.get("whenUnsatisfiable").if_one_of(&["DoNotSchedule", "ScheduleAnyway"], errors);
        let domains = constraint.get("minDomains");
        if domains.number().is_some_and(|n| n <= 0) {
            errors.push(domains.invalid("must be greater than zero"));
        }
        selector::check(&constraint.get("labelSelector"), errors);
    }
}
