//! Label selectors over typed objects.
//!
//! An empty selector selects everything; a requirement with an unknown operator selects nothing.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// `true` if `labels` satisfy every requirement of `selector`. Source: `LabelSelector`, meta/v1.
pub fn selects(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    let empty = Labels::new();
    let labels = labels.unwrap_or(&empty);
    selector.match_labels.as_ref().is_none_or(|wanted| contains(labels, wanted))
        && selector.match_expressions.iter().flatten().all(|requirement| satisfies(requirement, labels))
}

/// `true` if `selector` has no requirement at all, and so selects everything.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(Labels::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// `true` if `labels` hold every pair of `wanted`. Source: `ServiceSpec.selector`, core/v1.
pub fn contains(labels: &Labels, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn satisfies(requirement: &LabelSelectorRequirement, labels: &Labels) -> bool {
    let value = labels.get(&requirement.key);
    let listed = || value.is_some_and(|value| requirement.values.iter().flatten().any(|v| v == value));
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
