//! The node IPAM controller: every Node gets a range of its own out of the cluster's, for its Pods; one of each family
//! that the cluster has.
//!
//! Ranges are given in order, so that a cluster of one Node has the first. One key stands for all Nodes: two of them
//! never decide at once, and a decision is made after the last one's writes were seen. Without the setting [`Ranges`]
//! nothing is given. Source: `pkg/controller/nodeipam`, `--allocate-node-cidrs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use controller::{Action, Controller, EventType, Patch, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use machinery::net::{Cidr, Cidrs, Family};
use serde_json::json;

use crate::object::{is_deleting, name, uid};

/// What Nodes' ranges are taken from. Source: `--cluster-cidr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges(pub Cidrs);

/// The ranges of Nodes in a network, in order. Source: `--node-cidr-mask-size-ipv4`, `--node-cidr-mask-size-ipv6`.
fn of_nodes(cluster: Cidr) -> impl Iterator<Item = String> {
    let bits = match cluster.family() {
        Family::V4 => 24,
        Family::V6 => 64,
    };
    cluster.subnets(cluster.bits().max(bits)).map(|range| range.to_string())
}

/// The controller's row. There is one key.
pub const CONTROLLER: Controller = Controller {
    name: "node-ipam-controller",
    queue: "node_ipam",
    sources: |_| {
        vec![Source::of::<Node>(|change, _| {
            let cidr = |node: &Option<Arc<Node>>| Some(node.as_ref()?.spec.as_ref()?.pod_cidr.clone());
            let is_news = change.old.is_none() || cidr(&change.old) != cidr(&change.new);
            if is_news { vec![String::new()] } else { Vec::new() }
        })]
    },
    reconcile: |informers, _, now| match informers.setting::<Ranges>() {
        Some(ranges) => plan(*ranges, &informers.informer::<Node>().list(), now),
        None => Plan::nothing(),
    },
};

/// Decides which Nodes get which ranges.
pub fn plan(ranges: Ranges, nodes: &[Arc<Node>], _: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let taken: BTreeSet<&str> = nodes.iter().flat_map(|node| pod_cidrs(node)).collect();
    let is_free = |range: &String| !taken.contains(range.as_str());
    let mut free: Vec<_> = ranges.0.iter().map(|cluster| of_nodes(cluster).filter(is_free)).collect();
    let waiting =
        nodes.iter().filter(|node| pod_cidrs(node).next().is_none() && !is_deleting(&node.metadata));
    for node in waiting {
        let Some(given) = free.iter_mut().map(Iterator::next).collect::<Option<Vec<String>>>() else {
            let message = format!("Node {} status is now: CIDRNotAvailable", name(&node.metadata));
            plan.push(Action::event(&**node, EventType::Normal, "CIDRNotAvailable", &message));
            continue;
        };
        let patch = json!({
            "metadata": {"uid": uid(&node.metadata)},
            "spec": {"podCIDR": given.first(), "podCIDRs": given},
        });
        plan.push(Action::patch::<Node>("", name(&node.metadata), Patch::Merge(patch)));
    }
    plan
}

/// A Node that was made by hand may have the first alone.
fn pod_cidrs(node: &Node) -> impl Iterator<Item = &str> {
    let spec = node.spec.as_ref();
    let first = spec.and_then(|spec| spec.pod_cidr.as_ref());
    let all = spec.and_then(|spec| spec.pod_cidrs.as_ref()).into_iter().flatten();
    all.chain(first).map(String::as_str).filter(|cidr| !cidr.is_empty())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{list, noon, render};

    fn check(ranges: &str, nodes: &str, expect: &Expect) {
        let ranges = Ranges(ranges.parse().unwrap());
        expect.assert_eq(&render(&plan(ranges, &list(nodes), noon())));
    }

    #[test]
    fn nodes_get_the_first_ranges_that_nobody_has() {
        check(
            "10.42.0.0/16",
            "[{metadata: {name: a, uid: '1'}}, {metadata: {name: b}, spec: {podCIDR: 10.42.0.0/24}}, \
              {metadata: {name: c, uid: '3'}}, {metadata: {name: d, deletionTimestamp: '2026-01-01T11:00:00Z'}}]",
            &expect![[r#"
                step
                  patch nodes a {"metadata":{"uid":"1"},"spec":{"podCIDR":"10.42.1.0/24","podCIDRs":["10.42.1.0/24"]}}
                step
                  patch nodes c {"metadata":{"uid":"3"},"spec":{"podCIDR":"10.42.2.0/24","podCIDRs":["10.42.2.0/24"]}}
            "#]],
        );
    }

    #[test]
    fn a_cluster_of_two_families_gives_both_or_none() {
        check(
            "10.42.0.0/23,fd42::/62",
            "[{metadata: {name: a}, spec: {podCIDR: 10.42.0.0/24, podCIDRs: [10.42.0.0/24, 'fd42::/64']}}, \
              {metadata: {name: b, uid: '2'}}, {metadata: {name: c, uid: '3'}}]",
            &expect![[r#"
                step
                  patch nodes b {"metadata":{"uid":"2"},"spec":{"podCIDR":"10.42.1.0/24","podCIDRs":["10.42.1.0/24","fd42:0:0:1::/64"]}}
                step
                  Normal CIDRNotAvailable: Node c status is now: CIDRNotAvailable
            "#]],
        );
    }

    #[test]
    fn who_comes_too_late_is_told() {
        check(
            "10.42.0.0/24",
            "[{metadata: {name: a}, spec: {podCIDR: 10.42.0.0/24}}, {metadata: {name: b}}]",
            &expect![[r"
                step
                  Normal CIDRNotAvailable: Node b status is now: CIDRNotAvailable
            "]],
        );
    }
}
