//! Hints of the plugins that look at where other Pods are.

use controller::selector;
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, TopologySpreadConstraint};

use super::nodes::{allows, is_more_tolerant};
use super::uid;
use crate::events::{Event, Turn};
use crate::node_info::Snapshot;
use crate::plugins::inter_pod_affinity::{far_of, matches, matches_all, near_of, required};

/// Company has come, or whoever was in the way has gone.
pub(super) fn inter_pod_affinity(event: &Event, pod: &Pod, all: &Snapshot) -> bool {
    let (near, far) = (required(pod, near_of), required(pod, far_of));
    match event {
        Event::Wish(turn) => relabels(turn, pod),
        Event::Pod(turn) => match (turn.old.as_deref(), turn.now()) {
            (None, Some(new)) => matches_all(&near, pod, new, all),
            (Some(old), None) => {
                is_hated(&far, pod, old, all) || is_hated(&required(old, far_of), old, pod, all)
            }
            (Some(old), Some(new)) => {
                let comes = !matches_all(&near, pod, old, all) && matches_all(&near, pod, new, all);
                // What others ask for stays as it is.
                comes || is_hated(&far, pod, old, all) && !is_hated(&far, pod, new, all)
            }
            (None, None) => false,
        },
        Event::Node(turn) => turn.now().is_some_and(|new| moves(&near, &far, turn.old.as_deref(), new)),
        Event::Namespace(turn) => {
            let has_selector =
                |terms: &[&PodAffinityTerm]| terms.iter().any(|term| term.namespace_selector.is_some());
            let is_news = turn.both().is_none_or(|(old, new)| old.metadata.labels != new.metadata.labels);
            // Others may ask about this Pod's namespace.
            let is_own = turn.object().is_some_and(|one| one.metadata.name == pod.metadata.namespace);
            is_news && (is_own || has_selector(&near) || has_selector(&far))
        }
        _ => false,
    }
}

fn is_hated(terms: &[&PodAffinityTerm], owner: &Pod, other: &Pod, all: &Snapshot) -> bool {
    terms.iter().any(|term| matches(term, owner, other, all))
}

/// Whether a Node is in another place than before, as far as the terms say.
fn moves(near: &[&PodAffinityTerm], far: &[&PodAffinityTerm], old: Option<&Node>, new: &Node) -> bool {
    let label = |node: &Node, term: &PodAffinityTerm| {
        node.metadata.labels.as_ref().and_then(|labels| labels.get(&term.topology_key)).cloned()
    };
    let Some(old) = old else {
        return (near.is_empty() && far.is_empty())
            || !far.is_empty()
            || near.iter().any(|term| label(new, term).is_some());
    };
    if near.is_empty() && far.is_empty() {
        // Others do not want this Pod, in places that are theirs.
        return old.metadata.labels != new.metadata.labels;
    }
    near.iter().any(|term| label(new, term).is_some() && label(old, term) != label(new, term))
        || far.iter().any(|term| label(old, term).is_some() && label(old, term) != label(new, term))
}

/// Places have become more even, or there are others.
pub(super) fn topology_spread(event: &Event, pod: &Pod, _: &Snapshot) -> bool {
    let constraints = pod.spec.as_ref().and_then(|spec| spec.topology_spread_constraints.as_deref());
    let constraints = constraints.unwrap_or_default();
    match event {
        // Constraints that the scheduler was set up with refused it.
        Event::Pod(_) | Event::Node(_) if constraints.is_empty() => true,
        Event::Wish(turn) => {
            let honours = |one: &TopologySpreadConstraint| one.node_taints_policy.as_deref() == Some("Honor");
            relabels(turn, pod) || constraints.iter().any(honours) && is_more_tolerant(turn, pod)
        }
        Event::Pod(turn) => is_of_kind(constraints, turn, pod),
        Event::Node(turn) => is_other_place(constraints, turn, pod),
        _ => false,
    }
}

fn is_of_kind(constraints: &[TopologySpreadConstraint], turn: &Turn<Pod>, pod: &Pod) -> bool {
    let is_near = |other: &&Pod| other.metadata.namespace == pod.metadata.namespace;
    let counts = |constraint: &TopologySpreadConstraint, other: Option<&Pod>| {
        let selected = |other: &Pod| {
            constraint
                .label_selector
                .as_ref()
                .is_some_and(|wanted| selector::selects(wanted, other.metadata.labels.as_ref()))
        };
        // Who is on its way out is not counted any more.
        other
            .filter(is_near)
            .is_some_and(|other| other.metadata.deletion_timestamp.is_none() && selected(other))
    };
    let (old, new) = (turn.old.as_deref(), turn.now());
    constraints.iter().any(|constraint| counts(constraint, old) != counts(constraint, new))
}

fn is_other_place(constraints: &[TopologySpreadConstraint], turn: &Turn<Node>, pod: &Pod) -> bool {
    let label =
        |node: &Node, key: &String| node.metadata.labels.as_ref().and_then(|all| all.get(key)).cloned();
    let is_place = |node: &Node| {
        constraints.iter().all(|constraint| label(node, &constraint.topology_key).is_some())
            && allows(pod, node)
    };
    match (turn.old.as_deref(), turn.now()) {
        (Some(old), Some(new)) => {
            let moved = |one: &TopologySpreadConstraint| {
                label(old, &one.topology_key) != label(new, &one.topology_key)
            };
            is_place(old) != is_place(new)
                || is_place(new)
                    && (constraints.iter().any(moved)
                        || old.spec.as_ref().and_then(|spec| spec.taints.as_ref())
                            != new.spec.as_ref().and_then(|spec| spec.taints.as_ref()))
        }
        (old, new) => new.or(old).is_some_and(is_place),
    }
}

/// Whether the Pod itself has other labels now.
fn relabels(turn: &Turn<Pod>, pod: &Pod) -> bool {
    turn.both().is_some_and(|(old, new)| uid(new) == uid(pod) && old.metadata.labels != new.metadata.labels)
}
