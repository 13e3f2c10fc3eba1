//! What carries packets to other Nodes inside of others: the ways there are, and what they share.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Result;
use cli::args::{NetworkArgs, NetworkBackend};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use machinery::net::Family;
use sys::netlink::Route;

use super::end::{End, Made, below};
use super::wireguard::Keys;
use super::{Way, vxlan, wireguard};
use crate::components::node_network::NodeNetwork;
use crate::layout::Layout;

/// A way to other Nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Overlay {
    /// Plain, of this identifier.
    Vxlan(End, u32),
    /// Encrypted, by keys that live so many days; for ever with 0.
    Wireguard(End, u32),
}

impl Overlay {
    /// `None` for a network of plain routes.
    pub(crate) fn of(args: &NetworkArgs, node_network: &NodeNetwork) -> Option<Self> {
        let node_ip = node_network.node_ip()?;
        let end = |port| End { port, node_ip, ranges: node_network.pod_cidrs };
        match args.network_backend {
            NetworkBackend::HostGw => None,
            NetworkBackend::Vxlan => Some(Self::Vxlan(end(args.vxlan_port), args.vxlan_vni)),
            NetworkBackend::Wireguard => {
                Some(Self::Wireguard(end(args.wireguard_port), args.wireguard_key_days))
            }
        }
    }

    fn end(&self) -> &End {
        match self {
            Self::Vxlan(end, _) | Self::Wireguard(end, _) => end,
        }
    }

    /// The family of the packets that others are in.
    pub(super) fn family(&self) -> Family {
        Family::of(self.end().node_ip)
    }

    /// What the Nodes say beside where they are.
    pub(super) fn keys(&self, own_name: &str, nodes: &[Arc<Node>]) -> Keys {
        match self {
            Self::Vxlan(..) => Keys::default(),
            Self::Wireguard(..) => Keys::of(own_name, self.family(), nodes),
        }
    }

    /// Makes the link if need be, and brings what it is told and the routes over it up to date. The link of another way
    /// is taken back.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn apply(&self, layout: &Layout, wanted: &[Way], keys: &Keys, now: Timestamp) -> Result<Made> {
        match self {
            Self::Vxlan(end, vni) => {
                wireguard::remove(layout)?;
                let failures = vxlan::apply(layout, end, *vni, wanted)?;
                Ok(Made { failures, ..Made::default() })
            }
            Self::Wireguard(end, days) => {
                vxlan::remove(layout)?;
                wireguard::apply(layout, end, *days, wanted, keys, now)
            }
        }
    }
}

/// Takes back the links of all ways.
///
/// # Errors
/// The kernel refuses.
pub(super) fn remove(layout: &Layout) -> Result<()> {
    vxlan::remove(layout)?;
    wireguard::remove(layout)
}

/// How large the packets of Pods may be, in bytes; `None` where that is for the kernel to say.
///
/// # Errors
/// The Node's address is on no link.
pub(crate) fn pod_mtu(args: &NetworkArgs, node_ip: IpAddr) -> Result<Option<u32>> {
    let overhead = match args.network_backend {
        NetworkBackend::HostGw => return Ok(None),
        NetworkBackend::Vxlan => vxlan::overhead_bytes(node_ip),
        NetworkBackend::Wireguard => wireguard::overhead_bytes(node_ip),
    };
    Ok(Some(below(&mut Route::open()?, node_ip)?.mtu.saturating_sub(overhead)))
}
