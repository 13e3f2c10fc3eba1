//! The Service proxy: Services and EndpointSlices become the kernel's rules, in one of kube-proxy's modes.
//!
//! `services` is what is known, and what a change makes different: it is pure, and knows of no mode. A `backend` has the
//! kernel do it; what that of nftables comes to is in `render`. [`run`] applies the difference, one commit for all changes that
//! are due: what changes during a commit is in the next one. The Service addresses lead to a link of the cluster's own without
//! ports, so that no packet for them leaves the host whether there is a rule or not. Each family has rules of its own, as
//! upstream's proxy of each has, and of a family that the cluster does not have nothing is made.

mod announce;
mod backend;
mod external;
#[cfg(test)]
mod families;
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

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use machinery::net::{Cidr, Cidrs, Family};
use sys::nftables::TableFamily;

pub use backend::{Missing, try_mode};
pub use host::{cleanup, leftovers, prepare};
pub use kernel::{Kernel, Took, tables};
pub use nodes::Nodes;
pub use run::run;
pub use services::{Changed, News};

/// The facts about cluster and Node that the proxy needs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's short id: tables and link are named after it.
    pub cluster_id: String,
    /// The node's name: endpoints on it are local.
    pub node_name: String,
    /// The node's addresses, no more than one of a family: the source of what the host itself sends to Services.
    pub node_ips: Vec<IpAddr>,
    /// The addresses of Services.
    pub service_cidrs: Cidrs,
    /// The addresses of Pods: what comes from elsewhere is masqueraded.
    pub cluster_cidrs: Cidrs,
    /// Service addresses that this host answers at itself: the cluster's DNS.
    pub local_addresses: Vec<IpAddr>,
    /// The mode in which the kernel leads packets to Services.
    pub mode: Mode,
    /// The addresses that node ports are at.
    pub node_port_addresses: NodePortAddresses,
    /// The address of the health check. Source: `--healthz-bind-address`.
    pub healthz_address: Option<SocketAddr>,
    /// The address of the metrics. Source: `--metrics-bind-address`.
    pub metrics_address: Option<SocketAddr>,
}

/// The mode in which the kernel leads packets to Services. Source: `--proxy-mode`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// An nftables table of the cluster's own.
    #[default]
    Nftables,
    /// The host's iptables.
    Iptables,
    /// IPVS, and the host's iptables.
    Ipvs(IpvsOptions),
}

impl Mode {
    /// Its name in `--proxy-mode`.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
            Self::Ipvs(_) => "ipvs",
        }
    }
}

/// The options of IPVS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpvsOptions {
    /// The scheduling algorithm that chooses an endpoint. Source: `--ipvs-scheduler`.
    pub scheduler: String,
    /// The addresses of virtual servers that are somebody else's, and stay. Source: `--ipvs-exclude-cidrs`.
    pub exclude_cidrs: Vec<Cidr>,
    /// `true` if neighbours are told of no addresses but those of the link that they ask on. Source: `--ipvs-strict-arp`.
    pub strict_arp: bool,
}

/// The host's addresses that have the ports that lead to Services. Source: `--nodeport-addresses`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// The Node's own of each family, as upstream's has it with nftables.
    #[default]
    Primary,
    /// All in these networks. As upstream's: those of one family say nothing about the other, which has them everywhere then.
    Networks(Vec<Cidr>),
}

impl Config {
    /// The nftables table of the cluster's Services, of each family.
    pub fn table_name(&self) -> String {
        table_name(&self.cluster_id)
    }

    /// Those that Services or Pods have addresses of: what is of another has no rules.
    pub fn families(&self) -> Vec<Family> {
        let has = |family: &Family| self.services(*family).or_else(|| self.pods(*family)).is_some();
        [Family::V4, Family::V6].into_iter().filter(has).collect()
    }

    /// The addresses of Services of a family.
    fn services(&self, family: Family) -> Option<Cidr> {
        self.service_cidrs.of(family).map(Cidr::network)
    }

    /// The addresses of Pods of a family.
    fn pods(&self, family: Family) -> Option<Cidr> {
        self.cluster_cidrs.of(family).map(Cidr::network)
    }

    /// The node's address of a family.
    fn node_ip(&self, family: Family) -> Option<IpAddr> {
        self.node_ips.iter().copied().find(|ip| Family::of(*ip) == family)
    }

    /// Where ports of Nodes are in a family.
    fn node_ports(&self, family: Family) -> Vec<Cidr> {
        let NodePortAddresses::Networks(networks) = &self.node_port_addresses else {
            let own = self.node_ip(family).and_then(|ip| Cidr::new(ip, bits(family)));
            return own.into_iter().collect();
        };
        let own = networks.iter().filter(|network| network.family() == family);
        let own: Vec<Cidr> = own.map(|network| network.network()).collect();
        if own.is_empty() { Cidr::new(unspecified(family), 0).into_iter().collect() } else { own }
    }

    /// Where health checks of Services are answered, of each family.
    fn check_addresses(&self) -> BTreeMap<Family, IpAddr> {
        let address = |family: Family| match &self.node_port_addresses {
            NodePortAddresses::Primary => self.node_ip(family),
            NodePortAddresses::Networks(_) => Some(unspecified(family)),
        };
        self.families().into_iter().filter_map(|family| Some((family, address(family)?))).collect()
    }

    /// The link that the Service addresses lead to.
    pub fn link_name(&self) -> String {
        link_name(&self.cluster_id)
    }
}

/// The kernel's name of a family.
fn table_family(family: Family) -> TableFamily {
    match family {
        Family::V4 => TableFamily::Ipv4,
        Family::V6 => TableFamily::Ipv6,
    }
}

/// How many bits an address has.
fn bits(family: Family) -> u8 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}

/// The address that stands for all.
fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
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

#[cfg(test)]
mod tests;
