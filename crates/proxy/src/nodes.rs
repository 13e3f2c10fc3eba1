//! What the proxy goes by of Nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use controller::load_balancer;
use k8s_openapi::api::core::v1::Node;
use machinery::net::legacy_ip;

const ZONE: &str = "topology.kubernetes.io/zone";

/// All Nodes, and this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// All addresses of all Nodes.
    pub addresses: BTreeSet<IpAddr>,
    /// The zone that this one is in, if it says so.
    pub zone: Option<String>,
    /// `true` if this one is there and not about to go. Source: `ProxyHealthServer.NodeEligible`.
    pub is_own_eligible: bool,
    /// The names of those that may have addresses of a load balancer.
    pub balancing: BTreeSet<String>,
}

impl Nodes {
    /// What these say; `own` is the name of this one.
    pub(crate) fn of(nodes: &[Arc<Node>], own: &str) -> Self {
        let statuses = nodes.iter().filter_map(|node| node.status.as_ref());
        let addresses = statuses.flat_map(|status| status.addresses.iter().flatten());
        let this = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(own));
        let is_going = |node: &&Arc<Node>| load_balancer::is_going(node);
        let may_balance =
            |node: &&Arc<Node>| load_balancer::is_candidate(node) && load_balancer::is_ready(node);
        let balancing = nodes.iter().filter(may_balance);
        let zone = this.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE));
        Self {
            addresses: addresses.filter_map(|address| legacy_ip(&address.address)).collect(),
            zone: zone.filter(|zone| !zone.is_empty()).cloned(),
            is_own_eligible: this.filter(|node| !is_going(node)).is_some(),
            balancing: balancing.filter_map(|node| node.metadata.name.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_about_to_go_is_not_eligible_and_balances_nothing() {
        let node = |more: &str| -> Arc<Node> {
            let yaml = format!(
                "{{metadata: {{name: a{more}}}, status: {{conditions: [{{type: Ready, status: 'True'}}]}}}}"
            );
            let value: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let tainted = "}, spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]";
        let excluded = ", labels: {node.kubernetes.io/exclude-from-external-load-balancers: ''}";
        for (what, more, is_eligible, is_balancing) in [
            ("one that stays", "", true, true),
            ("one that is deleted", ", deletionTimestamp: '2026-01-01T00:00:00Z'", false, false),
            ("one that the autoscaler takes", tainted, false, false),
            ("one behind no balancers", excluded, true, false),
        ] {
            let found = Nodes::of(&[node(more)], "a");
            assert_eq!(
                (found.is_own_eligible, !found.balancing.is_empty()),
                (is_eligible, is_balancing),
                "{what}"
            );
        }
        assert!(!Nodes::of(&[], "a").is_own_eligible, "one that is not there");
    }

    #[test]
    fn the_zone_is_this_nodes_and_the_addresses_are_everybodys() {
        let yaml = "
- {metadata: {name: a, labels: {topology.kubernetes.io/zone: east}}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}
- {metadata: {name: b, labels: {topology.kubernetes.io/zone: ''}}, status: {addresses: [{type: Hostname, address: b}]}}
- {metadata: {name: c}, status: {addresses: [{type: InternalIP, address: 192.0.2.3}]}}";
        let nodes: Vec<Arc<Node>> = serde_saphyr::from_str::<Vec<serde_json::Value>>(yaml)
            .unwrap()
            .into_iter()
            .map(|node| Arc::new(serde_json::from_value(node).unwrap()))
            .collect();
        for (own, zone) in [("a", Some("east")), ("b", None), ("c", None), ("d", None)] {
            let found = Nodes::of(&nodes, own);
            assert_eq!(found.zone.as_deref(), zone, "{own}");
            assert_eq!(found.addresses.len(), 2, "{own}");
        }
    }
}
