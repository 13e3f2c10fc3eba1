//! The Service proxy: Services and EndpointSlices become one nftables table.
//!
//! `services` is what is known, and what a change makes different; `render` is what any part of it comes to in the table:
//! both are pure. [`run`] applies the difference, one commit for all changes that are due: what changes during a commit is
//! in the next one. The Service addresses lead to a link of the cluster's own without ports, so that no packet for them
//! leaves the host whether there is a rule or not. Only IPv4 is programmed.

mod announce;
mod external;
mod health;
mod host;
mod kernel;
mod metrics;
mod nodes;
mod render;
mod run;
mod service_port;
mod services;
mod stale;

use std::net::{Ipv4Addr, SocketAddr};

use machinery::net::{Cidrs, Family};

pub use host::{cleanup, leftovers, prepare};
pub use kernel::{Kernel, Took, table};
pub use nodes::Nodes;
pub use run::run;
pub use services::{Changed, News};

/// What the proxy must know of its cluster and node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's short id: table and link are named after it.
    pub cluster_id: String,
    /// The node's name: endpoints on it are local.
    pub node_name: String,
    /// The node's address: the source of what the host itself sends to Services.
    pub node_ip: Ipv4Addr,
    /// The addresses of Services.
    pub service_cidrs: Cidrs,
    /// The addresses of Pods: what comes from elsewhere is masqueraded.
    pub cluster_cidrs: Cidrs,
    /// Service addresses that this host answers at itself: the cluster's DNS.
    pub local_addresses: Vec<Ipv4Addr>,
    /// Where ports of Nodes are.
    pub node_port_addresses: NodePortAddresses,
    /// Where the proxy says how it is. Source: `--healthz-bind-address`.
    pub healthz_address: Option<SocketAddr>,
    /// Where it says what it counts. Source: `--metrics-bind-address`.
    pub metrics_address: Option<SocketAddr>,
}

/// Which of the host's addresses have the ports that lead to Services. Source: `--nodeport-addresses`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// The Node's own, as upstream's has it with nftables.
    #[default]
    Primary,
    /// All in these networks: address, and length in bits.
    Networks(Vec<(Ipv4Addr, u8)>),
}

impl Config {
    /// The nftables table of the cluster's Services.
    pub fn table_name(&self) -> String {
        table_name(&self.cluster_id)
    }

    /// The IPv4 addresses of Services: rules of the other family are not made yet.
    fn services(&self) -> Option<(Ipv4Addr, u8)> {
        self.service_cidrs.of(Family::V4)?.v4()
    }

    /// The IPv4 addresses of Pods.
    fn pods(&self) -> Option<(Ipv4Addr, u8)> {
        self.cluster_cidrs.of(Family::V4)?.v4()
    }

    /// The link that the Service addresses lead to.
    pub fn link_name(&self) -> String {
        link_name(&self.cluster_id)
    }
}

fn table_name(cluster_id: &str) -> String {
    format!("knarr-{cluster_id}-services")
}

fn link_name(cluster_id: &str) -> String {
    let mut name = format!("ks-{cluster_id}");
    name.truncate(15);
    name
}
