//! Hints of the plugins that look at where other Pods are.

use controller::pod::Pod;
use controller::selector;
use k8s_openapi::api::core::v1::{Node, PodAffinityTerm, TopologySpreadConstraint};

use super::nodes::{allows, is_more_tolerant};
use crate::events::{Event, Turn};
use crate::node_info::Snapshot;
use crate::plugins::inter_pod_affinity::{far_of, matches, matches_all, near_of, required};
use crate::pod::uid;

/// Company has come, or whoever was in the way has gone.
pub(super) fn inter_pod_affinity(event: &Event, pod: &Pod, all: &Snapshot) -> bool {
    let (near, far) = (required(pod, near_of), required(pod, far_of));
    match event {
        Event::Wish(turn) => relabels(turn, pod),
        Event::Pod(turn) => {
            let (old, new) = (turn.old.as_deref(), turn.now());
            let is_company =
                |other: Option<&Pod>| other.is_some_and(|other| matches_all(&near, pod, other, all));
            // With nobody left of its group the Pod may be the first of it.
            let may_begin = matches_all(&near, pod, pod, all);
            let is_gone = |owner: &Pod, terms: &[&PodAffinityTerm], before: &Pod, after: Option<&Pod>| {
                is_hated(terms, owner, before, all)
                    && !after.is_some_and(|after| is_hated(terms, owner, after, all))
            };
            let hated_it = |old: &Pod| is_hated(&required(old, far_of), old, pod, all);
            (is_company(new) && !is_company(old) || is_company(old) && !is_company(new) && may_begin)
                || old.is_some_and(|old| is_gone(pod, &far, old, new) || new.is_none() && hated_it(old))
        }
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

/// Whether a Node is in another topology domain than before: others may have something against this Pod in domains of theirs.
fn moves(near: &[&PodAffinityTerm], far: &[&PodAffinityTerm], old: Option<&Node>, new: &Node) -> bool {
    let Some(old) = old else {
        let labels = new.metadata.labels.as_ref();
        let has =
            |term: &&PodAffinityTerm| labels.is_some_and(|labels| labels.contains_key(&term.topology_key));
        return near.is_empty() || !far.is_empty() || near.iter().any(has);
    };
    old.metadata.labels != new.metadata.labels
}

/// Topology domains have become more even, or there are others.
pub(super) fn topology_spread(event: &Event, pod: &Pod, _: &Snapshot) -> bool {
    let constraints = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    // Others keep it from no Node.
    let constraints: Vec<_> = constraints.filter(|one| one.when_unsatisfiable == "DoNotSchedule").collect();
    match event {
        // Constraints that the scheduler was set up with refused it.
        Event::Pod(_) | Event::Node(_) if constraints.is_empty() => true,
        Event::Wish(turn) => {
            let honours =
                |one: &&TopologySpreadConstraint| one.node_taints_policy.as_deref() == Some("Honor");
            relabels(turn, pod) || constraints.iter().any(honours) && is_more_tolerant(turn, pod)
        }
        Event::Pod(turn) => is_of_kind(&constraints, turn, pod),
        Event::Node(turn) => is_other_domain(&constraints, turn, pod),
        _ => false,
    }
}

fn is_of_kind(constraints: &[&TopologySpreadConstraint], turn: &Turn<Pod>, pod: &Pod) -> bool {
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

fn is_other_domain(constraints: &[&TopologySpreadConstraint], turn: &Turn<Node>, pod: &Pod) -> bool {
    let label =
        |node: &Node, key: &String| node.metadata.labels.as_ref().and_then(|all| all.get(key)).cloned();
    // A Node that the Pod cannot go to is a domain for who ignores that.
    let counts_all = constraints.iter().any(|one| one.node_affinity_policy.as_deref() == Some("Ignore"));
    let is_place = |node: &Node| {
        constraints.iter().all(|constraint| label(node, &constraint.topology_key).is_some())
            && (counts_all || allows(pod, node))
    };
    match (turn.old.as_deref(), turn.now()) {
        (Some(old), Some(new)) => {
            let moved = |one: &&TopologySpreadConstraint| {
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
