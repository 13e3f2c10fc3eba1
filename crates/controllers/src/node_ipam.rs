//! The node IPAM controller: every Node gets a range of its own out of the cluster's, for its Pods.
//!
//! Ranges are given in order, so that a cluster of one Node has the first. One key stands for all Nodes: two of them
//! never decide at once, and a decision is made after the last one's writes were seen. Without the setting [`Ranges`]
//! nothing is given. Source: `pkg/controller/nodeipam`, `--allocate-node-cidrs`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use controller::{Action, Controller, EventType, Patch, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::object::{is_deleting, name, uid};

/// How long a Node's range is. Source: `--node-cidr-mask-size`.
const NODE_BITS: u8 = 24;

/// What Nodes' ranges are taken from. Source: `--cluster-cidr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// The network's address.
    pub first: Ipv4Addr,
    /// How many bits of it are fixed.
    pub bits: u8,
}

impl Ranges {
    /// All ranges, in order.
    fn all(self) -> impl Iterator<Item = String> {
        let bits = self.bits.max(NODE_BITS);
        let count = 1_u32 << (bits - self.bits.clamp(8, bits));
        (0..count).map(move |n| {
            format!("{}/{bits}", Ipv4Addr::from(u32::from(self.first) + (n << (32 - u32::from(bits)))))
        })
    }
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
    let taken: BTreeSet<&str> = nodes.iter().filter_map(|node| pod_cidr(node)).collect();
    let mut free = ranges.all().filter(|range| !taken.contains(range.as_str()));
    let waiting = nodes.iter().filter(|node| pod_cidr(node).is_none() && !is_deleting(&node.metadata));
    for node in waiting {
        let Some(range) = free.next() else {
            let message = format!("Node {} status is now: CIDRNotAvailable", name(&node.metadata));
            plan.push(Action::event(&**node, EventType::Normal, "CIDRNotAvailable", &message));
            continue;
        };
        let patch = json!({
            "metadata": {"uid": uid(&node.metadata)},
            "spec": {"podCIDR": range, "podCIDRs": [range]},
        });
        plan.push(Action::patch::<Node>("", name(&node.metadata), Patch::Merge(patch)));
    }
    plan
}

fn pod_cidr(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.pod_cidr.as_deref().filter(|cidr| !cidr.is_empty())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{list, noon, render};

    fn check(bits: u8, nodes: &str, expect: &Expect) {
        let ranges = Ranges { first: Ipv4Addr::new(10, 42, 0, 0), bits };
        expect.assert_eq(&render(&plan(ranges, &list(nodes), noon())));
    }

    #[test]
    fn nodes_get_the_first_ranges_that_nobody_has() {
        check(
            16,
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
    fn who_comes_too_late_is_told() {
        check(
            24,
            "[{metadata: {name: a}, spec: {podCIDR: 10.42.0.0/24}}, {metadata: {name: b}}]",
            &expect![[r"
                step
                  Normal CIDRNotAvailable: Node b status is now: CIDRNotAvailable
            "]],
        );
    }
}
