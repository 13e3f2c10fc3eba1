//! What carries packets to other Nodes inside of others: the ways there are, and what they share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cli::args::{NetworkArgs, NetworkBackend};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use machinery::net::{Cidr, Cidrs, Family};
use sys::netlink::{Address, Link, Route};

use super::wireguard::Keys;
use super::{Failures, PodRoute, Way, vxlan, wireguard};
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
    /// Of the family of all Nodes outside.
    pub(super) node_ip: IpAddr,
    /// The ranges of its Pods, whose first addresses are its own on the link.
    pub(super) ranges: Cidrs,
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
        let node_ip = place.node_ip()?;
        let end = |port| End { port, node_ip, ranges: place.pod_cidrs };
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
        NetworkBackend::Vxlan => vxlan::overhead_bytes(node_ip),
        NetworkBackend::Wireguard => wireguard::overhead_bytes(node_ip),
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

/// The header of a packet of this address's family in bytes.
pub(super) fn header_bytes(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 20 } else { 40 }
}

/// The smallest packet that every link with IPv6 must let through. Source: RFC 8200, section 5.
const IPV6_MTU_MIN: u32 = 1280;

impl End {
    /// Its own addresses on the link.
    pub(super) fn own_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ranges.iter().map(Cidr::first)
    }

    /// Gives the link its MTU and its addresses, and no others, and sets it up.
    pub(super) fn set_up(&self, route: &mut Route, link: &Link, mtu: u32) -> Result<()> {
        ensure!(
            mtu >= IPV6_MTU_MIN || self.ranges.of(Family::V6).is_none(),
            "the link with {} leaves {mtu} bytes for a packet of Pods, and IPv6 needs {IPV6_MTU_MIN}",
            self.node_ip
        );
        if link.mtu != mtu {
            route.set_mtu(&link.name, mtu)?;
        }
        let bits = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        let own = self.own_addresses().map(|ip| Address { link: link.index, ip, prefix: bits(ip) });
        let own: Vec<Address> = own.collect();
        let is_of_link = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        for other in route.addresses()? {
            if other.link == link.index && !is_of_link(other.ip) && !own.contains(&other) {
                route.delete_address(other)?;
            }
        }
        own.into_iter().try_for_each(|address| route.add_address(address))?;
        if !link.is_up {
            route.set_up(&link.name)?;
        }
        Ok(())
    }

    /// Routes to all ranges over the link. What fails is told by the address of the Node.
    pub(super) fn route(&self, layout: &Layout, link: u32, wanted: &[Way]) -> Result<Failures> {
        let behind = |way: &Way| PodRoute { gateway: way.route.destination.0, ..way.route };
        let inside: Vec<PodRoute> = wanted.iter().map(behind).collect();
        let failed = super::apply(layout, &inside, Some(link))?;
        let outcome = |way: &Way| {
            let PodRoute { destination, gateway } = way.route;
            let error = failed.get(&destination.0).cloned().or_else(|| self.unreachable(gateway));
            error.map(|error| (gateway, error))
        };
        Ok(wanted.iter().filter_map(outcome).collect())
    }

    /// Why there is no way to a Node; the kernel knows without a packet.
    fn unreachable(&self, node: IpAddr) -> Option<String> {
        let any: IpAddr =
            if node.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0));
        let asked = socket.and_then(|socket| socket.connect((node, self.port)));
        asked.err().map(|error| crate::host::data_dir::plain(&error))
    }
}
