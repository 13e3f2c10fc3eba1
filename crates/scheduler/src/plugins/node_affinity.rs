//! Node selector and node affinity. Source: `core/v1.NodeSelectorTerm`.

use controller::placement::{self, Target};
use k8s_openapi::api::core::v1::Pod;

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
    pod.spec.as_ref().is_none_or(|spec| placement::allows(spec, &node.node.metadata))
}

/// The weights of the preferred terms that the Node matches.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let affinity =
        candidate.pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let preferred = affinity
        .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_deref());
    let matching = preferred
        .unwrap_or_default()
        .iter()
        .filter(|term| placement::matches_term(&term.preference, Target::from(&node.node.metadata)));
    matching.map(|term| i64::from(term.weight)).sum()
}
