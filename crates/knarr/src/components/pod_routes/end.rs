//! What the overlays share: this Node's end of them, and what was made of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use machinery::net::{Cidr, Cidrs, Family};
use sys::netlink::{Address, Link, Route};

use super::{Failures, PodRoute, Way};
use crate::layout::Layout;

/// The smallest packet that every link with IPv6 must let through. Source: RFC 8200, section 5.
const IPV6_MTU_MIN: u32 = 1280;

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
