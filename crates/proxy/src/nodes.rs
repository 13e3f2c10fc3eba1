//! What the proxy goes by of Nodes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

const ZONE: &str = "topology.kubernetes.io/zone";

/// All Nodes, and this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// All addresses of all Nodes.
    pub addresses: BTreeSet<Ipv4Addr>,
    /// The zone that this one is in, if it says so.
    pub zone: Option<String>,
}

impl Nodes {
    /// What these say; `own` is the name of this one.
    pub(crate) fn of(nodes: &[Arc<Node>], own: &str) -> Self {
        let statuses = nodes.iter().filter_map(|node| node.status.as_ref());
        let addresses = statuses.flat_map(|status| status.addresses.iter().flatten());
        let this = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(own));
        let zone = this.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE));
        Self {
            addresses: addresses.filter_map(|address| address.address.parse().ok()).collect(),
            zone: zone.filter(|zone| !zone.is_empty()).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
