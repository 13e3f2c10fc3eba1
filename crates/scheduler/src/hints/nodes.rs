//! Hints of the plugins that look at a Node alone.

use controller::placement;
use controller::pod::Pod;
use k8s_openapi::api::core::v1::{Node, Taint};

use crate::events::{Event, Turn, gains_toleration, is_scaled_down};
use crate::node_info::{PodNeed, Snapshot};
use crate::plugins::node_ports::conflicts;
use crate::pod::uid;
use crate::resource::Resources;

/// A Node has come.
pub(super) fn any_new(event: &Event, _: &Pod, _: &Snapshot) -> bool {
    matches!(event, Event::Node(turn) if turn.is_new())
}

/// Whether the Pod itself tolerates more than before.
pub(super) fn is_more_tolerant(turn: &Turn<Pod>, pod: &Pod) -> bool {
    turn.both().is_some_and(|(old, new)| uid(new) == uid(pod) && gains_toleration(old, new))
}

/// A Node takes Pods that did not.
pub(super) fn unschedulable(event: &Event, pod: &Pod, _: &Snapshot) -> bool {
    let is_closed = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    match event {
        Event::Node(turn) => {
            turn.now().is_some_and(|new| !is_closed(new)) && turn.old.as_deref().is_none_or(is_closed)
        }
        Event::Wish(turn) => is_more_tolerant(turn, pod),
        _ => false,
    }
}

/// A Node has no taint any more that keeps the Pod away.
pub(super) fn taint_toleration(event: &Event, pod: &Pod, _: &Snapshot) -> bool {
    match event {
        Event::Node(turn) => {
            turn.now().is_some_and(|new| tolerates(pod, new))
                && turn.old.as_deref().is_none_or(|old| !tolerates(pod, old))
        }
        Event::Wish(turn) => is_more_tolerant(turn, pod),
        _ => false,
    }
}

fn tolerates(pod: &Pod, node: &Node) -> bool {
    let is_hard = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).filter(is_hard);
    let own = || pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    taints.all(|taint| own().any(|toleration| placement::tolerates(toleration, taint)))
}

/// A Node matches now that did not.
pub(super) fn affinity(event: &Event, pod: &Pod, all: &Snapshot) -> bool {
    let Event::Node(turn) = event else { return false };
    if all.profiles.of(pod).arguments.added_affinity.is_some() {
        return turn.both().map_or(turn.is_new(), |(old, new)| old.metadata.labels != new.metadata.labels);
    }
    turn.now().is_some_and(|new| allows(pod, new)) && turn.old.as_deref().is_none_or(|old| !allows(pod, old))
}

/// Whether the Pod's selector and required affinity allow the Node.
pub(super) fn allows(pod: &Pod, node: &Node) -> bool {
    pod.spec.as_ref().is_none_or(|spec| {
        placement::allows(spec.node_selector.as_ref(), spec.affinity.as_deref(), &node.metadata)
    })
}

/// A Pod has gone that had a port which this one wants.
pub(super) fn ports(event: &Event, pod: &Pod, snapshot: &Snapshot) -> bool {
    let Event::Pod(Turn { old: Some(gone), new: None }) = event else {
        return any_new(event, pod, snapshot);
    };
    let had = PodNeed::of(gone).ports;
    !had.is_empty()
        && PodNeed::of(pod).ports.iter().any(|wanted| had.iter().any(|used| conflicts(wanted, used)))
}

/// Resources became free: a Pod has gone or asks for less, or a Node has more.
pub(super) fn resources_fit(event: &Event, pod: &Pod, _: &Snapshot) -> bool {
    match event {
        Event::Pod(Turn { old: Some(_), new: None }) => true,
        Event::Pod(turn) => turn.both().is_some_and(|(old, new)| frees_resources(pod, old, new)),
        Event::Wish(turn) => {
            turn.both().is_some_and(|(old, new)| uid(new) == uid(pod) && is_scaled_down(old, new))
        }
        Event::Node(turn) => turn.now().is_some_and(|new| has_more(pod, turn.old.as_deref(), new)),
        _ => false,
    }
}

fn frees_resources(pod: &Pod, old: &Pod, new: &Pod) -> bool {
    if !is_scaled_down(old, new) {
        return false;
    }
    let need = |pod: &Pod| PodNeed::of(pod).requests;
    let (wanted, before, after) = (need(pod), need(old), need(new));
    wants(&wanted, |of| amount(&before, of) > amount(&after, of))
}

/// Whether the Node would have room for the Pod if it were empty, and not so before, or less.
fn has_more(pod: &Pod, old: Option<&Node>, new: &Node) -> bool {
    let allocatable = |node: &Node| {
        Resources::from_list(node.status.as_ref().and_then(|status| status.allocatable.as_ref()))
    };
    let (wanted, now) = (PodNeed::of(pod).requests, allocatable(new));
    let fits = now.pods > 0 && !wants(&wanted, |of| amount(&wanted, of) > amount(&now, of));
    let Some(before) = old.map(allocatable) else { return fits };
    fits && (now.pods > before.pods || wants(&wanted, |of| amount(&now, of) > amount(&before, of)))
}

/// Whether `is` holds for a resource of which something is wanted.
fn wants(wanted: &Resources, is: impl Fn(&str) -> bool) -> bool {
    let named =
        ["cpu", "memory", "ephemeral-storage"].into_iter().chain(wanted.scalar.keys().map(String::as_str));
    named.filter(|of| amount(wanted, of) > 0).any(is)
}

fn amount(all: &Resources, of: &str) -> i64 {
    match of {
        "cpu" => all.milli_cpu,
        "memory" => all.memory,
        "ephemeral-storage" => all.ephemeral_storage,
        other => all.scalar.get(other).copied().unwrap_or(0),
    }
}
