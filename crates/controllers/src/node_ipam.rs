//! The node IPAM controller: every Node gets a range of its own out of the cluster's, for its Pods; one of each family
//! that the cluster has.
//!
//! Ranges are given in order, so that a cluster of one Node has the first. One key stands for all Nodes: two of them
//! never decide at once, and a decision is made after the last one's writes were seen. Without the setting [`Ranges`]
//! nothing is given. Source: `pkg/controller/nodeipam`, `--allocate-node-cidrs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controller::metadata::{is_deleting, name, uid};
use controller::{Action, Controller, EventType, Patch, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use machinery::net::{Cidr, Cidrs, Family};
use serde_json::json;

use crate::options::Options;

/// The networks that Nodes' ranges are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// The addresses of Pods. Source: `--cluster-cidr`.
    pub pods: Cidrs,
    /// Those of Services, which no Node gets. Source: `--service-cluster-ip-range`.
    pub services: Option<Cidrs>,
}

/// Ranges that Nodes have: mostly as long as those that are given now, by which they are found.
struct Taken {
    all: BTreeSet<Cidr>,
    others: Vec<Cidr>,
}

impl Taken {
    fn has(&self, range: Cidr) -> bool {
        self.all.contains(&range) || self.others.iter().any(|other| other.overlaps(range))
    }
}

/// The ranges of Nodes in a network, in order. Source: `--node-cidr-mask-size-ipv4`, `--node-cidr-mask-size-ipv6`.
fn of_nodes(cluster: Cidr, options: &Options) -> impl Iterator<Item = Cidr> + use<> {
    cluster.subnets(cluster.bits().max(bits_of_node(cluster.family(), options)))
}

fn bits_of_node(family: Family, options: &Options) -> u8 {
    match family {
        Family::V4 => options.node_cidr_mask_size_ipv4,
        Family::V6 => options.node_cidr_mask_size_ipv6,
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
        Some(ranges) => plan(*ranges, &informers.informer::<Node>().list(), &Options::of(informers), now),
        None => Plan::nothing(),
    },
};

/// Decides which Nodes get which ranges.
pub fn plan(ranges: Ranges, nodes: &[Arc<Node>], options: &Options, _: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    tell_of_doubles(&mut plan, nodes);
    let all: BTreeSet<Cidr> =
        nodes.iter().flat_map(|node| pod_cidrs(node)).filter_map(|cidr| cidr.parse().ok()).collect();
    let is_other = |range: &Cidr| range.bits() != bits_of_node(range.family(), options);
    let taken = Taken { others: all.iter().copied().filter(is_other).collect(), all };
    let is_service =
        |range: Cidr| ranges.services.is_some_and(|all| all.iter().any(|one| one.overlaps(range)));
    let is_free = |range: &Cidr| !taken.has(*range) && !is_service(*range);
    let mut free: Vec<_> =
        ranges.pods.iter().map(|cluster| of_nodes(cluster, options).filter(is_free)).collect();
    let waiting =
        nodes.iter().filter(|node| pod_cidrs(node).next().is_none() && !is_deleting(&node.metadata));
    for node in waiting {
        let Some(given) = free.iter_mut().map(Iterator::next).collect::<Option<Vec<Cidr>>>() else {
            let message = format!("Node {} status is now: CIDRNotAvailable", name(&node.metadata));
            plan.push(Action::event(&**node, EventType::Normal, "CIDRNotAvailable", &message));
            continue;
        };
        let given: Vec<String> = given.iter().map(Cidr::to_string).collect();
        let patch = json!({
            "metadata": {"uid": uid(&node.metadata)},
            "spec": {"podCIDR": given.first(), "podCIDRs": given},
        });
        plan.push(Action::patch::<Node>("", name(&node.metadata), Patch::Merge(patch)));
    }
    plan
}

/// Ranges are never given twice here; but whoever makes a Node says what it has. Packets for a range go to the first Node by
/// name.
fn tell_of_doubles(plan: &mut Plan, nodes: &[Arc<Node>]) {
    let mut owners: BTreeMap<Cidr, &str> = BTreeMap::new();
    let mut sorted: Vec<&Arc<Node>> = nodes.iter().collect();
    sorted.sort_by_key(|node| name(&node.metadata));
    for node in sorted {
        let ranges: BTreeSet<Cidr> = pod_cidrs(node).filter_map(|cidr| cidr.parse().ok()).collect();
        let own = name(&node.metadata);
        for range in ranges {
            let owner = *owners.entry(range).or_insert(own);
            if owner != own {
                let message = format!(
                    "Node {own} has the range {range} of Node {owner}, to which packets for it go: delete Node {own}, so \
                     that it is made again with another"
                );
                plan.push(Action::event(&**node, EventType::Warning, "CIDRConflict", &message));
            }
        }
    }
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
        check_with(ranges, &Options::default(), nodes, expect);
    }

    fn check_with(pods: &str, options: &Options, nodes: &str, expect: &Expect) {
        let ranges = Ranges { pods: pods.parse().unwrap(), services: Some("10.42.8.0/23".parse().unwrap()) };
        expect.assert_eq(&render(&plan(ranges, &list(nodes), options, noon())));
    }

    #[test]
    fn of_two_nodes_with_one_range_the_second_is_told() {
        check(
            "10.42.0.0/16",
            "[{metadata: {name: c}, spec: {podCIDR: 10.42.0.0/24, podCIDRs: [10.42.0.0/24]}}, \
              {metadata: {name: b}, spec: {podCIDR: 10.42.0.0/24}}, {metadata: {name: a}, spec: {podCIDR: 10.42.1.0/24}}]",
            &expect![[r#"
                step
                  Warning CIDRConflict: Node c has the range 10.42.0.0/24 of Node b, to which packets for it go: delete Node c, so that it is made again with another
            "#]],
        );
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
    fn ranges_of_another_length_do_not_overlap_those_that_were_given() {
        check_with(
            "10.42.0.0/23",
            &Options { node_cidr_mask_size_ipv4: 25, ..Options::default() },
            "[{metadata: {name: a}, spec: {podCIDR: 10.42.0.0/24}}, {metadata: {name: b, uid: '2'}}, \
              {metadata: {name: c}, spec: {podCIDR: nonsense}}]",
            &expect![[r#"
                step
                  patch nodes b {"metadata":{"uid":"2"},"spec":{"podCIDR":"10.42.1.0/25","podCIDRs":["10.42.1.0/25"]}}
            "#]],
        );
    }

    #[test]
    fn the_addresses_of_services_are_nobodys() {
        check(
            "10.42.8.0/22",
            "[{metadata: {name: b, uid: '2'}}]",
            &expect![[r#"
                step
                  patch nodes b {"metadata":{"uid":"2"},"spec":{"podCIDR":"10.42.10.0/24","podCIDRs":["10.42.10.0/24"]}}
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
