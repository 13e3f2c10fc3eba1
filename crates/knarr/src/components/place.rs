//! Where a Node stands in its cluster.

use std::net::IpAddr;

use machinery::net::Cidrs;

/// Where this Node stands in its cluster.
pub(super) struct Place {
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

impl Place {
    /// The Node's main address.
    pub(super) fn node_ip(&self) -> Option<IpAddr> {
        self.node_ips.first().copied()
    }
}
