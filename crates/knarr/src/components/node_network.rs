//! The network settings of a Node.

use std::net::IpAddr;

use machinery::net::Cidrs;

/// The network settings of a Node: its name and addresses, and the ranges and the DNS of its cluster.
pub(super) struct NodeNetwork {
    pub(super) node_name: String,
    /// The Node's addresses, the main one first.
    pub(super) node_ips: Vec<IpAddr>,
    /// Those of them that an operator has given.
    pub(super) provided_node_ips: Vec<IpAddr>,
    pub(super) pod_cidrs: Cidrs,
    /// The largest packet of its Pods in bytes, if it is not that of any link.
    pub(super) pod_mtu: Option<u32>,
    pub(super) cluster_cidrs: Cidrs,
    pub(super) cluster_dns: Vec<IpAddr>,
    pub(super) cluster_domain: String,
}

impl NodeNetwork {
    /// The Node's main address.
    pub(super) fn node_ip(&self) -> Option<IpAddr> {
        self.node_ips.first().copied()
    }
}
