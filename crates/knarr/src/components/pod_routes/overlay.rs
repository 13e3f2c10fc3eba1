//! What carries packets to other Nodes inside of others: the ways there are, and what they share.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use cli::args::{NetworkArgs, NetworkBackend};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use machinery::net::Cidr;
use sys::netlink::{Address, Link, Route};

use super::wireguard::Keys;
use super::{Failures, PodRoute, vxlan, wireguard};
use crate::components::node::Place;
use crate::layout::Layout;

/// A way to other Nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Overlay {
    /// Plain, of this identifier.
    Vxlan(End, u32),
    /// Encrypted, by keys that live so many days; for ever with 0.
    Wireguard(End, u32),
}

/// This Node's end of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// UDP, of all ends.
    pub(super) port: u16,
    pub(super) node_ip: Ipv4Addr,
    /// The range of its Pods, whose first address is its own on the link.
    pub(super) range: Cidr,
}

/// What was made.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) failures: Failures,
    /// What other Nodes have to know of this one.
    pub(super) public_key: Option<String>,
    /// When there is something to do without news.
    pub(super) again_in: Option<Duration>,
}

impl Overlay {
    /// `None` for a network of plain routes.
    pub(crate) fn of(args: &NetworkArgs, place: &Place) -> Option<Self> {
        let end = |port| End { port, node_ip: place.node_ip, range: place.pod_cidr };
        match args.network_backend {
            NetworkBackend::HostGw => None,
            NetworkBackend::Vxlan => Some(Self::Vxlan(end(args.vxlan_port), args.vxlan_vni)),
            NetworkBackend::Wireguard => {
                Some(Self::Wireguard(end(args.wireguard_port), args.wireguard_key_days))
            }
        }
    }

    /// What the Nodes say beside where they are.
    pub(super) fn keys(&self, own_name: &str, nodes: &[Arc<Node>]) -> Keys {
        match self {
            Self::Vxlan(..) => Keys::default(),
            Self::Wireguard(..) => Keys::of(own_name, nodes),
        }
    }

    /// Makes the link if need be, and brings what it is told and the routes over it up to date. The link of another way
    /// is taken back.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn apply(
        &self,
        layout: &Layout,
        wanted: &[PodRoute],
        keys: &Keys,
        now: Timestamp,
    ) -> Result<Made> {
        match self {
            Self::Vxlan(end, vni) => {
                wireguard::remove(layout)?;
                let failures = vxlan::apply(layout, (end, *vni), wanted)?;
                Ok(Made { failures, ..Made::default() })
            }
            Self::Wireguard(end, days) => {
                vxlan::remove(layout)?;
                wireguard::apply(layout, (end, *days), wanted, keys, now)
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
        NetworkBackend::Vxlan => vxlan::OVERHEAD_BYTES,
        NetworkBackend::Wireguard => wireguard::OVERHEAD_BYTES,
    };
    Ok(Some(below(&mut Route::open()?, node_ip)?.mtu.saturating_sub(overhead)))
}

/// The link with the Node's address.
pub(super) fn below(route: &mut Route, node_ip: IpAddr) -> Result<Link> {
    let address = route.addresses()?.into_iter().find(|address| address.ip == node_ip);
    let index = address.map(|address| address.link);
    let link = route.links()?.into_iter().find(|link| Some(link.index) == index);
    link.with_context(|| format!("find the link with the Node's address {node_ip}"))
}

impl End {
    pub(super) fn own_address(&self) -> Result<Ipv4Addr> {
        self.range.network().v4().map(|(ip, _)| ip).context("an overlay needs a range of IPv4 addresses")
    }

    /// Gives the link its MTU and its only address, and sets it up.
    pub(super) fn set_up(&self, route: &mut Route, link: &Link, mtu: u32) -> Result<()> {
        if link.mtu != mtu {
            route.set_mtu(&link.name, mtu)?;
        }
        let address = Address { link: link.index, ip: self.own_address()?.into(), prefix: 32 };
        for other in route.addresses()? {
            if other.link == link.index && other.ip.is_ipv4() && other != address {
                route.delete_address(other)?;
            }
        }
        route.add_address(address)?;
        if !link.is_up {
            route.set_up(&link.name)?;
        }
        Ok(())
    }

    /// Routes to all ranges over the link. What fails is told by the address of the Node.
    pub(super) fn route(&self, layout: &Layout, link: u32, wanted: &[PodRoute]) -> Result<Failures> {
        let behind = |it: &PodRoute| PodRoute { destination: it.destination, gateway: it.destination.0 };
        let inside: Vec<PodRoute> = wanted.iter().map(behind).collect();
        let failed = super::apply(layout, &inside, Some(link))?;
        let outcome = |it: &PodRoute| {
            let error = failed.get(&it.destination.0).cloned().or_else(|| self.unreachable(it.gateway));
            error.map(|error| (it.gateway, error))
        };
        Ok(wanted.iter().filter_map(outcome).collect())
    }

    /// Why there is no way to a Node; the kernel knows without a packet.
    fn unreachable(&self, node: Ipv4Addr) -> Option<String> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        let asked = socket.and_then(|socket| socket.connect((node, self.port)));
        asked.err().map(|error| crate::host::data_dir::plain(&error))
    }
}
