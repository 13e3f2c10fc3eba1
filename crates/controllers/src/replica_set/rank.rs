//! The order in which Pods go when there are too many. Source: upstream's `ActivePodsWithRanks`.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;

use controller::metadata::{annotation, created, uid};
use controller::pod::Pod;
use jiff::Timestamp;

use crate::pod::{is_active, is_ready, node_name, phase_rank, ready_since, restarts_max, since_until};

/// What a user says losing this Pod costs, an `i32`. Source: `core/v1`.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The `count` of `pods` that are lost least. `related` are the Pods that share their nodes' spread.
pub(super) fn choose(
    mut pods: Vec<Arc<Pod>>,
    related: &[Arc<Pod>],
    count: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    if count < pods.len() {
        let mut on_node: HashMap<&str, usize> = HashMap::new();
        for pod in related.iter().filter(|pod| is_active(pod)) {
            *on_node.entry(node_name(pod)).or_default() += 1;
        }
        pods.sort_by(|a, b| order(a, b, &on_node, now));
        pods.truncate(count);
    }
    pods
}

fn order(a: &Pod, b: &Pod, on_node: &HashMap<&str, usize>, now: Timestamp) -> Ordering {
    let doubled = |pod: &Pod| Reverse(on_node.get(node_name(pod)).copied().unwrap_or(0));
    let restarts = |pod: &Pod| {
        let (ordinary, sidecar) = restarts_max(pod);
        (Reverse(ordinary), Reverse(sidecar))
    };
    let is_assigned = |pod: &Pod| !node_name(pod).is_empty();
    is_assigned(a)
        .cmp(&is_assigned(b))
        .then_with(|| phase_rank(a).cmp(&phase_rank(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| doubled(a).cmp(&doubled(b)))
        .then_with(|| match (is_ready(a), is_ready(b)) {
            (true, true) => younger_first(ready_since(a), ready_since(b), now),
            _ => Ordering::Equal,
        })
        .then_with(|| restarts(a).cmp(&restarts(b)))
        .then_with(|| younger_first(Some(created(&a.metadata)), Some(created(&b.metadata)), now))
        .then_with(|| uid(&a.metadata).cmp(uid(&b.metadata)))
}

fn deletion_cost(pod: &Pod) -> i32 {
    annotation(&pod.metadata, DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

/// Ages on a logarithmic scale, so that Pods of about the same age are chosen among at random (by uid).
fn younger_first(a: Option<Timestamp>, b: Option<Timestamp>, now: Timestamp) -> Ordering {
    let magnitude = |time: Option<Timestamp>| {
        time.map_or(0, |time| since_until(time, now).as_nanos().checked_ilog2().map_or(0, |log| log + 1))
    };
    magnitude(a).cmp(&magnitude(b))
}
