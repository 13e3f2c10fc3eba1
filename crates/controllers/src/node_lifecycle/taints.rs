//! The taints that follow from a node's conditions. Source: `TaintNodesByCondition`, `TaintBasedEvictions`.

use controller::metadata::time;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Conditions that keep new Pods away while they are true.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

/// Whether Pods may be driven off a node that is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// They may.
    Allowed,
    /// They may where it has begun.
    NotBegun,
    /// They may not.
    Withheld,
}

/// Whether Pods would be driven off `node` from now on, if they may.
pub(super) fn begins_eviction(node: &Node, conditions: &[NodeCondition]) -> bool {
    wanted(node, conditions, Eviction::Allowed).iter().any(|(_, effect)| *effect == "NoExecute")
        && !is_evicted(node)
}

fn is_evicted(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.effect == "NoExecute" && is_managed(taint))
}

/// The taints that `node` shall have, if they are not what it has. Taints of others stay.
pub(super) fn changed(
    node: &Node,
    conditions: &[NodeCondition],
    eviction: Eviction,
    now: Timestamp,
) -> Option<Vec<Taint>> {
    let has: Vec<Taint> = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let wanted = wanted(node, conditions, eviction);
    let mut taints: Vec<Taint> = has
        .iter()
        .filter(|taint| !is_managed(taint) || wanted.contains(&(taint.key.as_str(), taint.effect.as_str())))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            taints.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                time_added: Some(time(now)),
                value: None,
            });
        }
    }
    (taints != has).then_some(taints)
}

fn wanted(
    node: &Node,
    conditions: &[NodeCondition],
    eviction: Eviction,
) -> Vec<(&'static str, &'static str)> {
    let status = |type_: &str| {
        conditions
            .iter()
            .find(|condition| condition.type_ == type_)
            .map(|condition| condition.status.as_str())
    };
    let mut wanted = Vec::new();
    let unready = match status("Ready") {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    if let Some(key) = unready {
        wanted.push((key, "NoSchedule"));
        let may_evict = match eviction {
            Eviction::Allowed => true,
            Eviction::NotBegun => is_evicted(node),
            Eviction::Withheld => false,
        };
        // A node that never reported has no Pods to drive off.
        if may_evict && status("Ready").is_some() {
            wanted.push((key, "NoExecute"));
        }
    }
    wanted.extend(
        PRESSURES
            .iter()
            .filter(|(type_, _)| status(type_) == Some("True"))
            .map(|(_, key)| (*key, "NoSchedule")),
    );
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    wanted
}

fn is_managed(taint: &Taint) -> bool {
    let key = taint.key.as_str();
    match taint.effect.as_str() {
        "NoSchedule" => {
            [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&key)
                || PRESSURES.iter().any(|(_, own)| *own == key)
        }
        "NoExecute" => [NOT_READY, UNREACHABLE].contains(&key),
        _ => false,
    }
}
