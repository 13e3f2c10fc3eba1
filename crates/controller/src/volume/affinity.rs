//! Which nodes can reach a volume: node selectors over labels. Source: `core/v1.NodeSelector`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume};

/// Whether the node's labels are among those that the volume asks for; a volume that asks for none is everywhere.
pub fn reaches(volume: &PersistentVolume, labels: Option<&BTreeMap<String, String>>) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    affinity.and_then(|affinity| affinity.required.as_ref()).is_none_or(|wanted| selects(wanted, labels))
}

/// Whether one of the selector's terms holds.
pub fn selects(selector: &NodeSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    selector.node_selector_terms.iter().any(|term| holds(term, labels))
}

/// An empty term matches nothing.
fn holds(term: &NodeSelectorTerm, labels: Option<&BTreeMap<String, String>>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    !expressions.is_empty() && expressions.iter().all(|one| is_met(one, labels))
}

fn is_met(requirement: &NodeSelectorRequirement, labels: Option<&BTreeMap<String, String>>) -> bool {
    let value = labels.and_then(|labels| labels.get(&requirement.key)).map(String::as_str);
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
