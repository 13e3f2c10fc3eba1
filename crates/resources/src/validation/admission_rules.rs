//! The requests that a webhook or a policy is about: rules, match conditions, match resources.
//!
//! CEL expressions must be there; whether they compile depends on what they see, which callers know.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::{At, selector};
use crate::match_conditions::ExpressionError;

pub(super) const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
pub(super) const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
const CONDITIONS_MAX: usize = 64;

/// A `RuleWithOperations`.
pub(super) fn with_operations(rule: &At<'_>, errors: &mut FieldErrors) {
    let operations = rule.get("operations");
    if operations.is_empty() {
        errors.push(operations.required(""));
    }
    alone(&operations, "operations", errors);
    operations.items().for_each(|operation| operation.if_one_of(OPERATIONS, errors));
    let (groups, versions) = (rule.get("apiGroups"), rule.get("apiVersions"));
    for (list, what) in [(&groups, "API groups"), (&versions, "API versions")] {
        if list.is_empty() {
            errors.push(list.required(""));
        }
        alone(list, what, errors);
    }
    for version in versions.items().filter(|version| version.text().is_empty()) {
        errors.push(version.required(""));
    }
    resources(&rule.get("resources"), errors);
    rule.get("scope").if_one_of(SCOPES, errors);
}

/// A wildcard stands alone.
fn alone(list: &At<'_>, what: &str, errors: &mut FieldErrors) {
    if list.len() > 1 && list.items().any(|item| item.text() == "*") {
        errors.push(list.invalid(&format!("if '*' is present, must not specify other {what}")));
    }
}

fn resources(resources: &At<'_>, errors: &mut FieldErrors) {
    if resources.is_empty() {
        errors.push(resources.required(""));
    }
    let (mut all_below, mut everywhere) = (BTreeSet::new(), BTreeSet::new());
    let (mut has_all, mut has_star, mut has_plain) = (false, false, false);
    for item in resources.items() {
        let text = item.text();
        if text.is_empty() {
            errors.push(item.required(""));
        }
        has_all |= text == "*/*";
        has_star |= text == "*";
        let Some((resource, below)) = text.split_once('/') else {
            has_plain = text != "*";
            continue;
        };
        if all_below.contains(resource) {
            errors.push(item.invalid(&format!("if '{resource}/*' is present, must not specify {text}")));
        }
        if everywhere.contains(below) {
            errors.push(item.invalid(&format!("if '*/{below}' is present, must not specify {text}")));
        }
        if below == "*" {
            all_below.insert(resource);
        }
        if resource == "*" {
            everywhere.insert(below);
        }
    }
    if resources.len() > 1 && has_all {
        errors.push(resources.invalid("if '*/*' is present, must not specify other resources"));
    }
    if has_star && has_plain {
        errors.push(
            resources.invalid("if '*' is present, must not specify other resources without subresources"),
        );
    }
}

/// A `MatchResources`.
pub(super) fn match_resources(resources: &At<'_>, errors: &mut FieldErrors) {
    resources.get("matchPolicy").one_of(MATCH_POLICIES, errors);
    for name in ["namespaceSelector", "objectSelector"] {
        match resources.some(name) {
            Some(item) => selector::check(&item, errors),
            None => errors.push(resources.get(name).required("")),
        }
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in resources.get(list).items() {
            let mut seen = BTreeSet::new();
            for name in rule.get("resourceNames").items() {
                errors.extend(name.all(names::path_segment(name.text())));
                if !seen.insert(name.text()) {
                    errors.push(name.duplicate());
                }
            }
            with_operations(&rule, errors);
        }
    }
}

/// `matchConditions`. `compile` says what is wrong with an expression.
pub(super) fn match_conditions(
    conditions: &At<'_>,
    compile: impl Fn(&str) -> Result<(), ExpressionError>,
    errors: &mut FieldErrors,
) {
    if conditions.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(&conditions.path, conditions.len(), CONDITIONS_MAX));
    }
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let (name, expression) = (condition.get("name"), condition.get("expression"));
        if expression.text().trim().is_empty() {
            errors.push(expression.required(""));
        } else if let Err(why) = compile(expression.text()) {
            errors.push(expression.invalid(&why.to_string()));
        }
        name.named(names::qualified_name, errors);
        if !name.text().is_empty() && !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
    }
}
