//! On which Nodes a Pod may be: node selectors, required node affinity, tolerated taints.
//!
//! What the scheduler, the DaemonSet controller and taint-based eviction all go by.

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::selector::Labels;

/// The properties of a Node that can be asked for.
#[derive(Clone, Copy, Default)]
pub struct Target<'a> {
    /// Its labels.
    pub labels: Option<&'a Labels>,
    /// `metadata.name`, the only field.
    pub name: Option<&'a str>,
}

impl<'a> From<&'a ObjectMeta> for Target<'a> {
    fn from(node: &'a ObjectMeta) -> Self {
        Self { labels: node.labels.as_ref(), name: node.name.as_deref() }
    }
}

/// `true` if a Pod's selector and required affinity allow a Node.
pub fn allows<'a>(
    selector: Option<impl IntoIterator<Item = (&'a String, &'a String)>>,
    affinity: Option<&Affinity>,
    node: &ObjectMeta,
) -> bool {
    let node = Target::from(node);
    let label = |key: &String| node.labels.and_then(|labels| labels.get(key));
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selector.into_iter().flatten().all(|(key, value)| label(key) == Some(value))
        && required.is_none_or(|selector| selects(selector, node))
}

/// `true` if one of `selector`'s terms matches `node`. Source: `NodeSelector`, core/v1.
pub fn selects(selector: &NodeSelector, node: Target<'_>) -> bool {
    selector.node_selector_terms.iter().any(|term| matches_term(term, node))
}

/// `true` if every requirement of `term` holds for `node`; an empty term matches nothing.
pub fn matches_term(term: &NodeSelectorTerm, node: Target<'_>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |key: &str| node.labels?.get(key).map(String::as_str);
    expressions.iter().all(|requirement| satisfies(requirement, label(&requirement.key)))
        && fields.iter().all(|requirement| is_named(requirement, node.name))
}

/// Of fields only the name can be asked for, and only whether it is this one. Source: `nodeSelectorRequirementsAsFieldSelector`.
fn is_named(requirement: &NodeSelectorRequirement, name: Option<&str>) -> bool {
    let [wanted] = requirement.values.as_deref().unwrap_or_default() else { return false };
    match (requirement.key.as_str(), requirement.operator.as_str()) {
        ("metadata.name", "In") => name == Some(wanted),
        ("metadata.name", "NotIn") => name != Some(wanted),
        _ => false,
    }
}

fn satisfies(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = |value: &str| values.iter().any(|listed| listed == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = values.first().and_then(|text| number(text));
    match (requirement.operator.as_str(), value) {
        ("In", Some(value)) => is_listed(value),
        ("NotIn", value) => !values.is_empty() && value.is_none_or(|value| !is_listed(value)),
        ("Exists", value) => value.is_some(),
        ("DoesNotExist", value) => value.is_none(),
        ("Gt", Some(value)) => number(value).zip(bound).is_some_and(|(value, bound)| value > bound),
        ("Lt", Some(value)) => number(value).zip(bound).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// `true` if `toleration` covers `taint`. Source: `Toleration`, core/v1.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_for =
        |mine: &Option<String>, theirs: &str| mine.as_deref().is_none_or(|m| m.is_empty() || m == theirs);
    if !is_for(&toleration.effect, &taint.effect) || !is_for(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests;
