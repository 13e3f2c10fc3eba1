//! Node selector and node affinity. Source: `core/v1.NodeSelectorTerm`.

use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, Pod};

use super::{Candidate, Refusal};
use crate::node_info::NodeInfo;

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    if allows(candidate.pod, node) {
        return None;
    }
    Some(Refusal::lasting("node(s) didn't match Pod's node affinity/selector"))
}

/// Whether the Pod's selector and required affinity allow the Node.
pub(super) fn allows(pod: &Pod, node: &NodeInfo) -> bool {
    matches_selector(pod, node) && matches_required(pod, node)
}

/// The weights of the preferred terms that the Node matches.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let preferred = affinity(candidate.pod)
        .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_deref());
    let matching = preferred.unwrap_or_default().iter().filter(|term| matches_term(&term.preference, node));
    matching.map(|term| i64::from(term.weight)).sum()
}

fn affinity(pod: &Pod) -> Option<&NodeAffinity> {
    pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()
}

fn matches_selector(pod: &Pod, node: &NodeInfo) -> bool {
    let wanted = pod.spec.iter().flat_map(|spec| spec.node_selector.iter().flatten());
    wanted.into_iter().all(|(key, value)| node.label(key) == Some(value))
}

fn matches_required(pod: &Pod, node: &NodeInfo) -> bool {
    let required = affinity(pod)
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| matches_term(term, node)))
}

/// An empty term matches nothing.
fn matches_term(term: &NodeSelectorTerm, node: &NodeInfo) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|requirement| matches_requirement(requirement, node.label(&requirement.key)))
        && fields.iter().all(|requirement| {
            matches_requirement(requirement, (requirement.key == "metadata.name").then_some(node.name()))
        })
}

fn matches_requirement(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = |value: &str| values.iter().any(|listed| listed == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = values.first().and_then(|text| number(text));
    match (requirement.operator.as_str(), value) {
        ("In", Some(value)) => is_listed(value),
        ("NotIn", value) => value.is_none_or(|value| !is_listed(value)),
        ("Exists", value) => value.is_some(),
        ("DoesNotExist", value) => value.is_none(),
        ("Gt", Some(value)) => number(value).zip(bound).is_some_and(|(value, bound)| value > bound),
        ("Lt", Some(value)) => number(value).zip(bound).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}
