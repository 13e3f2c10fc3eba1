//! The policies by which a Job fails, succeeds, and gets new Pods.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors, Reason};
use machinery::names;

use super::indexes::parse_indexes;
use super::is_indexed;
use crate::validation::{At, internal};

const FAILURE_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const CONDITIONS_MAX: usize = 20;
const SUCCESS_RULES_MAX: usize = 20;
const INDEXES_BYTES_MAX: usize = 64 * 1024;
const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];

/// The policies of a Job.
pub(super) fn check(spec: &At<'_>, errors: &mut FieldErrors) {
    let (failure, success) = (spec.get("podFailurePolicy"), spec.get("successPolicy"));
    if failure.is_set() {
        failure_policy(spec, &failure, errors);
    }
    if success.is_set() {
        if is_indexed(spec) {
            success_policy(spec, &success.get("rules"), errors);
        } else {
            errors.push(internal::invalid(&success, "SuccessPolicy", "requires indexed completion mode"));
        }
    }
    let replacement = spec.get("podReplacementPolicy");
    let supported: &[&str] = if failure.is_set() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    replacement.if_one_of(supported, errors);
}

fn valid_values(supported: &[&str]) -> String {
    let quoted: Vec<_> = supported.iter().map(|value| format!("{value:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

/// Required, with the values that there are.
fn choice(at: &At<'_>, supported: &[&str], errors: &mut FieldErrors) {
    if at.text().is_empty() {
        errors.push(at.required(&valid_values(supported)));
    } else {
        at.if_one_of(supported, errors);
    }
}

/// An error about a whole object, whose value is left out.
pub(super) fn without_value(at: &At<'_>, detail: &str) -> FieldError {
    FieldError { path: at.path.clone(), reason: Reason::Invalid, message: format!("Invalid value: {detail}") }
}

fn failure_policy(spec: &At<'_>, policy: &At<'_>, errors: &mut FieldErrors) {
    let rules = policy.get("rules");
    if rules.len() > FAILURE_RULES_MAX {
        errors.push(FieldError::too_many(&rules.path, rules.len(), FAILURE_RULES_MAX));
    }
    let pod = spec.get("template").get("spec");
    let containers: BTreeSet<_> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod.get(list).items())
        .map(|container| container.get("name").text())
        .collect();
    for rule in rules.items() {
        let (action, codes, conditions) =
            (rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions"));
        if action.text() == "FailIndex" && !spec.get("backoffLimitPerIndex").is_set() {
            errors.push(action.invalid("requires the backoffLimitPerIndex to be set"));
        }
        choice(&action, ACTIONS, errors);
        if codes.is_set() {
            exit_codes(&codes, &containers, errors);
        }
        pod_conditions(&conditions, errors);
        let detail = match (codes.is_set(), !conditions.is_empty()) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(without_value(&rule, detail));
    }
}

fn exit_codes(codes: &At<'_>, containers: &BTreeSet<&str>, errors: &mut FieldErrors) {
    let (operator, container, values) =
        (codes.get("operator"), codes.get("containerName"), codes.get("values"));
    choice(&operator, OPERATORS, errors);
    if container.is_set() && !containers.contains(container.text()) {
        errors.push(
            container.invalid("must be one of the container or initContainer names in the pod template"),
        );
    }
    if values.is_empty() {
        let shown = Some(values.value).filter(|values| !values.is_null());
        errors.push(FieldError::invalid(&values.path, shown, "at least one value is required"));
    } else if values.len() > EXIT_CODES_MAX {
        errors.push(FieldError::too_many(&values.path, values.len(), EXIT_CODES_MAX));
    }
    let mut seen = BTreeSet::new();
    let mut is_ordered = true;
    let mut last = i64::MIN;
    for value in values.items() {
        let number = value.number().unwrap_or_default();
        if operator.text() == "In" && number == 0 {
            errors.push(value.invalid("must not be 0 for the In operator"));
        }
        if !seen.insert(number) {
            errors.push(value.duplicate());
        }
        is_ordered &= last <= number;
        last = number;
    }
    if !is_ordered {
        errors.push(values.invalid("must be ordered"));
    }
}

fn pod_conditions(conditions: &At<'_>, errors: &mut FieldErrors) {
    if conditions.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(&conditions.path, conditions.len(), CONDITIONS_MAX));
    }
    for pattern in conditions.items() {
        let kind = pattern.get("type").text();
        let path = pattern.path.child("type");
        errors.extend(names::qualified_name(kind).iter().map(|e| FieldError::invalid(&path, kind, e)));
        choice(&pattern.get("status"), STATUSES, errors);
    }
}

fn success_policy(spec: &At<'_>, rules: &At<'_>, errors: &mut FieldErrors) {
    if rules.is_empty() {
        errors
            .push(rules.required("at least one rules must be specified when the successPolicy is specified"));
    }
    if rules.len() > SUCCESS_RULES_MAX {
        errors.push(FieldError::too_many(&rules.path, rules.len(), SUCCESS_RULES_MAX));
    }
    let completions = spec.get("completions").number().unwrap_or_default();
    for rule in rules.items() {
        let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            errors
                .push(rule.required("at least one of succeededCount or succeededIndexes must be specified"));
        }
        let mut total = 0;
        if indexes.is_set() {
            if indexes.len() > INDEXES_BYTES_MAX {
                errors.push(FieldError::too_long(&indexes.path, INDEXES_BYTES_MAX));
            }
            match parse_indexes(indexes.text(), completions) {
                Ok(intervals) => total = intervals.iter().map(|(first, last)| last - first + 1).sum(),
                Err(error) => {
                    errors.push(indexes.invalid(&format!("error parsing succeededIndexes: {error}")));
                }
            }
        }
        count.not_negative(errors);
        if count.is_over(completions) {
            errors.push(count.invalid(&format!(
                "must be less than or equal to {completions} (the number of specified completions)"
            )));
        }
        if indexes.is_set() && count.is_over(total) {
            errors.push(count.invalid(&format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            )));
        }
    }
}
