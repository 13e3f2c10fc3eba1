//! Node selector and node affinity. Source: `core/v1.NodeSelectorTerm`.

use controller::placement::{self, Target};
use k8s_openapi::api::core::v1::{NodeAffinity, Pod, PreferredSchedulingTerm};

use super::{Candidate, Refusal};
use crate::node_info::NodeInfo;

/// Whether the Pod may not be on every Node.
pub(super) fn restricts(candidate: &Candidate<'_>) -> bool {
    is_restricted(candidate.pod)
}

/// The same of any Pod.
pub(super) fn is_restricted(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let required = affinity(pod).map(|own| &own.required_during_scheduling_ignored_during_execution);
    spec.node_selector.as_ref().is_some_and(|wanted| !wanted.is_empty())
        || required.is_some_and(Option::is_some)
}

/// Whether the Pod would rather be on some Nodes.
pub(super) fn prefers(candidate: &Candidate<'_>) -> bool {
    !preferred(candidate.pod).is_empty()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    if allows(candidate.pod, node) {
        return None;
    }
    Some(Refusal::lasting("node(s) didn't match Pod's node affinity/selector"))
}

/// Whether the Pod's selector and required affinity allow the Node.
pub(super) fn allows(pod: &Pod, node: &NodeInfo) -> bool {
    pod.spec.as_ref().is_none_or(|spec| placement::allows(spec, &node.node.metadata))
}

/// The weights of the preferred terms that the Node matches.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let matching = preferred(candidate.pod)
        .iter()
        .filter(|term| placement::matches_term(&term.preference, Target::from(&node.node.metadata)));
    matching.map(|term| i64::from(term.weight)).sum()
}

fn preferred(pod: &Pod) -> &[PreferredSchedulingTerm] {
    let preferred = affinity(pod)
        .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_deref());
    preferred.unwrap_or_default()
}

fn affinity(pod: &Pod) -> Option<&NodeAffinity> {
    pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()
}
