//! Node selector and node affinity: the Pod's own, and what the profile adds. Source: `core/v1.NodeSelectorTerm`,
//! `NodeAffinityArgs.addedAffinity`.

use std::collections::BTreeSet;

use controller::placement::{self, Target};
use controller::pod::Pod;
use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredSchedulingTerm};

use super::{Candidate, Refusal};
use crate::allowed::Verdicts;
use crate::node_info::NodeInfo;

/// Whether the Pod may not be on every Node.
pub(super) fn restricts(candidate: &Candidate<'_>) -> bool {
    enforced(candidate).is_some() || is_restricted(candidate.pod)
}

/// Whether the Pod itself says that it may not be on every Node.
pub(super) fn is_restricted(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let required = affinity(pod).map(|own| &own.required_during_scheduling_ignored_during_execution);
    spec.node_selector.as_ref().is_some_and(|wanted| !wanted.is_empty())
        || required.is_some_and(Option::is_some)
}

/// The reason why a Pod goes nowhere whose terms each name Nodes, and none of them together.
pub(super) const CONFLICT: &str = "pod affinity terms conflict";
/// The reason why a Pod that names its Nodes does not go to another, whatever that is like.
pub(super) const NOT_NAMED: &str = "node(s) didn't satisfy plugin(s) [NodeAffinity]";

/// The Nodes that the Pod names, if each term of its affinity does: no filter is asked about others, as of a DaemonSet's
/// Pods. Source: `PreFilterResult`.
pub(super) fn named<'a>(pod: &'a Pod) -> Option<BTreeSet<&'a str>> {
    let of_term = |term: &'a NodeSelectorTerm| -> Option<BTreeSet<&'a str>> {
        let fields = term.match_fields.iter().flatten();
        let by_name = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
        let names = by_name.map(|field| field.values.iter().flatten().map(String::as_str).collect());
        names.reduce(|one: BTreeSet<_>, other| &one & &other)
    };
    let required = affinity(pod)?.required_during_scheduling_ignored_during_execution.as_ref()?;
    let terms: Option<Vec<_>> = required.node_selector_terms.iter().map(of_term).collect();
    terms.filter(|terms| !terms.is_empty()).map(|terms| terms.into_iter().flatten().collect())
}

/// Whether the Pod would rather be on some Nodes.
pub(super) fn prefers(candidate: &Candidate<'_>) -> bool {
    preferred(candidate).next().is_some()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let target = Target::from(&node.node.metadata);
    if enforced(candidate).is_some_and(|selector| !placement::selects(selector, target)) {
        return Some(Refusal::lasting("node(s) didn't match scheduler-enforced node affinity"));
    }
    if allows_known(candidate.pod, node, &candidate.allowed) {
        return None;
    }
    Some(Refusal::lasting("node(s) didn't match Pod's node affinity/selector"))
}

/// Whether the Pod's selector and required affinity allow the Node, where it is known which Nodes they do.
pub(super) fn allows_known(pod: &Pod, node: &NodeInfo, known: &Verdicts) -> bool {
    known.of(node.position, || allows(pod, node))
}

fn allows(pod: &Pod, node: &NodeInfo) -> bool {
    pod.spec.as_ref().is_none_or(|spec| {
        placement::allows(spec.node_selector.as_ref(), spec.affinity.as_deref(), &node.node.metadata)
    })
}

/// The weights of the preferred terms that the Node matches.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let matching = preferred(candidate)
        .filter(|term| placement::matches_term(&term.preference, Target::from(&node.node.metadata)));
    matching.map(|term| i64::from(term.weight)).sum()
}

/// What the Pod and the profile prefer.
fn preferred<'a>(candidate: &Candidate<'a>) -> impl Iterator<Item = &'a PreferredSchedulingTerm> {
    let both = affinity(candidate.pod).into_iter().chain(&candidate.profile.arguments.added_affinity);
    both.flat_map(|one| one.preferred_during_scheduling_ignored_during_execution.iter().flatten())
}

/// What the profile requires of every Node.
fn enforced<'a>(candidate: &Candidate<'a>) -> Option<&'a NodeSelector> {
    let added = candidate.profile.arguments.added_affinity.as_ref()?;
    added.required_during_scheduling_ignored_during_execution.as_ref()
}

fn affinity(pod: &Pod) -> Option<&NodeAffinity> {
    pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()
}

#[cfg(test)]
mod upstream;

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;
    use crate::node_info::Snapshot;
    use crate::transform::parse;

    /// The Nodes that the wish allows, as they are in the snapshot.
    fn allowed(snapshot: &Snapshot, wish: &str) -> String {
        let pod = parse(&format!("{{metadata: {{name: p}}, spec: {{containers: [], {wish}}}}}"));
        let verdicts = snapshot.allowed.of(&pod, snapshot.len());
        // Those that are known are told as they were found.
        let look = || snapshot.nodes().filter(|node| allows_known(&pod, node, &verdicts));
        let names: String = look().map(|node| node.name()).collect();
        assert_eq!(look().map(|node| node.name()).collect::<String>(), names);
        names
    }

    #[test]
    fn what_is_known_goes_with_the_nodes() {
        let mut snapshot = Snapshot::default();
        let node = |name: &str, disk: &str| {
            let node = format!("{{metadata: {{name: {name}, labels: {{disk: {disk}}}}}}}");
            std::sync::Arc::new(parse::<Node>(&node))
        };
        let (fast, slow) = ("nodeSelector: {disk: fast}", "nodeSelector: {disk: slow}");
        let named = |name: &str| {
            format!(
                "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: \
                 [{{matchFields: [{{key: metadata.name, operator: In, values: [{name}]}}]}}]}}}}}}"
            )
        };
        for (name, disk) in [("a", "fast"), ("b", "slow"), ("c", "fast")] {
            snapshot.set_node(node(name, disk));
        }
        let check = |snapshot: &Snapshot, expect: [&str; 4]| {
            let found = [fast, slow, &named("c"), "priority: 3"].map(|wish| allowed(snapshot, wish));
            assert_eq!(found, expect);
        };
        check(&snapshot, ["ac", "b", "c", "abc"]);
        // Another takes its position.
        snapshot.remove_node("a");
        check(&snapshot, ["c", "b", "c", "bc"]);
        snapshot.set_node(node("b", "fast"));
        check(&snapshot, ["bc", "", "c", "bc"]);
        snapshot.set_node(node("a", "slow"));
        check(&snapshot, ["bc", "a", "c", "abc"]);
        check(&snapshot.clone(), ["bc", "a", "c", "abc"]);
        for number in 0..100 {
            assert_eq!(allowed(&snapshot, &format!("nodeSelector: {{disk: d{number}}}")), "");
        }
        check(&snapshot, ["bc", "a", "c", "abc"]);
    }
}
