//! The TTL controller: an annotation of each node says for how long kubelets may keep what they have read of objects,
//! the longer the more nodes there are.
//!
//! Source: `pkg/controller/ttl/ttl_controller.go`.

use std::sync::atomic::{AtomicUsize, Ordering};

use controller::metadata::{annotation, is_deleting, name, uid};
use controller::{Action, Change, Controller, Informers, Patch, Plan, Source};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// For clusters of so many nodes. Sizes overlap, so that none goes back and forth.
struct Size {
    nodes_min: usize,
    nodes_max: usize,
    ttl_seconds: u32,
}

const SIZES: [Size; 5] = [
    Size { nodes_min: 0, nodes_max: 100, ttl_seconds: 0 },
    Size { nodes_min: 90, nodes_max: 500, ttl_seconds: 15 },
    Size { nodes_min: 450, nodes_max: 1_000, ttl_seconds: 30 },
    Size { nodes_min: 900, nodes_max: 2_000, ttl_seconds: 60 },
    Size { nodes_min: 1_800, nodes_max: usize::MAX, ttl_seconds: 300 },
];

/// Which of the sizes the cluster has, as far as this process has seen.
#[derive(Default)]
struct Current(AtomicUsize);

/// The controller's row. Keys are nodes.
pub const CONTROLLER: Controller = Controller {
    name: "ttl-controller",
    queue: "ttlcontroller",
    sources: |_| vec![Source::of::<Node>(of_node)],
    reconcile: |informers, key, _| {
        let nodes = informers.informer::<Node>();
        let current = informers.setting_or(Current::default).0.load(Ordering::Relaxed);
        match (nodes.get(key), SIZES.get(next(current, nodes.len()))) {
            (Some(node), Some(size)) => plan(&node, size.ttl_seconds),
            _ => Plan::nothing(),
        }
    },
};

/// A node wakes itself, and all others where it makes the cluster one of another size.
fn of_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    if change.old.is_some() && change.new.is_some() {
        return vec![change.key.to_string()];
    }
    let nodes = informers.informer::<Node>();
    let current = informers.setting_or(Current::default);
    let before = current.0.load(Ordering::Relaxed);
    let after = next(before, nodes.len());
    current.0.store(after, Ordering::Relaxed);
    if before == after {
        return vec![change.key.to_string()];
    }
    nodes.list().iter().map(|node| name(&node.metadata).to_owned()).collect()
}

/// The size of a cluster with `nodes` that was of the size `before`.
fn next(before: usize, nodes: usize) -> usize {
    let fits = |size: &usize| {
        SIZES.get(*size).is_some_and(|size| (size.nodes_min..=size.nodes_max).contains(&nodes))
    };
    if fits(&before) {
        return before;
    }
    // The nearest: growing clusters come from below, shrinking ones from above.
    let mut all = 0..SIZES.len();
    let is_growing = SIZES.get(before).is_some_and(|size| nodes > size.nodes_max);
    if is_growing { all.find(fits) } else { all.rev().find(fits) }.unwrap_or(before)
}

fn plan(node: &Node, ttl_seconds: u32) -> Plan {
    let mut plan = Plan::nothing();
    let meta = &node.metadata;
    let known = annotation(meta, TTL).and_then(|text| text.parse::<u32>().ok());
    if known != Some(ttl_seconds) && !is_deleting(meta) {
        let annotations = json!({TTL: ttl_seconds.to_string()});
        let patch = Patch::Strategic(json!({"metadata": {"uid": uid(meta), "annotations": annotations}}));
        plan.push(Action::patch::<Node>("", name(meta), patch));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{parse, render};

    #[test]
    fn a_cluster_has_the_size_that_it_had_while_it_fits() {
        for (before, nodes, expect) in [
            (0, 0, 0),
            (0, 100, 0),
            (0, 101, 1),
            (1, 95, 1),
            (1, 89, 0),
            (1, 501, 2),
            (2, 460, 2),
            (2, 449, 1),
            (0, 950, 2),
            (4, 950, 3),
            (0, 5_000, 4),
            (4, 1_800, 4),
            (4, 10, 0),
            (9, 10, 0),
        ] {
            assert_eq!(next(before, nodes), expect, "{before} with {nodes}");
        }
    }

    fn check(annotations: &str, expect: &str) {
        let node = format!("{{metadata: {{name: one, uid: u, annotations: {{{annotations}}}}}}}");
        assert_eq!(render(&plan(&parse(&node), 15)), expect, "{annotations}");
    }

    #[test]
    fn nodes_are_told() {
        let told = "step\n  patch nodes one {\"metadata\":{\"annotations\":{\"node.alpha.kubernetes.io/ttl\":\"15\"},\"uid\":\"u\"}}\n";
        check("", told);
        check("node.alpha.kubernetes.io/ttl: '0'", told);
        check("node.alpha.kubernetes.io/ttl: soon", told);
        check("node.alpha.kubernetes.io/ttl: '15'", "");
    }
}
