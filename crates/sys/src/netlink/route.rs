//! rtnetlink: links, addresses, routes, neighbours of one network namespace.
//!
//! Setting what is set already is no error where the kernel can tell (addresses, routes); creating a link that exists is.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::libc;

use super::{ACK, CREATE, DUMP, EXCL, Encoder, Socket, attributes, find_attribute, str_of, u32_of};
use crate::{Doing, Error, Result};

const LINK_HEADER_BYTES: usize = 16;
const VETH_INFO_PEER: u16 = 1;
const BRIDGE_PORT_MODE: u16 = 4;
const LINK_INFO_PORT_KIND: u16 = 4;
const LINK_INFO_PORT_DATA: u16 = 5;
/// `IF_OPER_UNKNOWN`, `IF_OPER_UP`.
const OPERATION_UNKNOWN: u8 = 0;
const OPERATION_UP: u8 = 6;
/// `RTNH_F_ONLINK`.
const NEXT_HOP_ON_LINK: u32 = 4;
const REPLACE: u16 = libc::NLM_F_REPLACE as u16;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `bridge`, `veth`, ...; empty for hardware and `lo`.
    pub kind: String,
    /// `true` if it is administratively up.
    pub is_up: bool,
    /// `true` if it passes on what it is given: RFC 2863's `up`, or of a kind of which nobody knows.
    pub is_operational: bool,
    /// The bridge it is a port of.
    pub master: Option<u32>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Hardware address, empty if it has none.
    pub mac: Vec<u8>,
    /// The link that it stands on or that is its other end, by its number in that one's namespace.
    pub peer: Option<u32>,
    /// The description of the link, as somebody has set it.
    pub alias: String,
}

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The link's number.
    pub link: u32,
    /// The address.
    pub ip: IpAddr,
    /// Length of its prefix in bits.
    pub prefix: u8,
}

/// The end of a veth pair that is made inside a Pod.
#[derive(Debug)]
pub struct VethPeer<'a> {
    /// Its name there.
    pub name: &'a str,
    /// The namespace it is made in.
    pub namespace: BorrowedFd<'a>,
    /// Its hardware address, chosen by the kernel if `None`.
    pub mac: Option<[u8; 6]>,
}

/// The treatment of packets that take a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteKind {
    /// They go to a gateway or to a link.
    #[default]
    Unicast,
    /// The sender is told that the host is unreachable.
    Unreachable,
    /// They are dropped.
    Blackhole,
}

/// A route to add or delete, in the main table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRoute {
    /// The treatment of the packets.
    pub kind: RouteKind,
    /// Destination and prefix length; `None` is the default route (IPv4 unless the gateway says otherwise).
    pub destination: Option<(IpAddr, u8)>,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// Outgoing link.
    pub link: Option<u32>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// The gateway is on the link whatever the addresses say.
    pub on_link: bool,
    /// Metric.
    pub priority: Option<u32>,
}

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// The treatment of the packets; `None` for kinds that are not made here.
    pub kind: Option<RouteKind>,
    /// Destination and prefix length; `None` is the default route.
    pub destination: Option<(IpAddr, u8)>,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// Outgoing link.
    pub link: Option<u32>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
}

/// A connection to the routing tables of the calling thread's network namespace.
#[derive(Debug)]
pub struct Route(pub(super) Socket);

impl Route {
    /// Connects to the calling thread's namespace.
    pub fn open() -> Result<Self> {
        Socket::open(libc::NETLINK_ROUTE).map(Self)
    }

    /// Sets `lo` up.
    pub fn loopback_up(&mut self) -> Result<()> {
        self.set_up("lo")
    }

    /// All links.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let mut request = Encoder::message(libc::RTM_GETLINK, 0);
        request.raw(&link_header(libc::AF_UNSPEC, 0, 0, 0));
        let answers = self.0.request(request, DUMP, || "list links".into())?;
        Ok(answers.iter().filter_map(|answer| parse_link(answer)).collect())
    }

    /// The link with this name, if there is one.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>> {
        let mut request = Encoder::message(libc::RTM_GETLINK, 0);
        request.raw(&link_header(libc::AF_UNSPEC, 0, 0, 0)).str(libc::IFLA_IFNAME, name);
        match self.0.request(request, ACK, || format!("find link {name}")) {
            Ok(answers) => Ok(answers.first().and_then(|answer| parse_link(answer))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until these links are operational, which is a moment after both ends of a pair are up: until then they drop what
    /// they are given, without a word.
    ///
    /// # Errors
    /// `ETIMEDOUT` after so many seconds, `ENODEV` if there is no such link.
    pub fn wait_operational(&mut self, names: &[&str], seconds_max: u32) -> Result<()> {
        let doing = || format!("wait until {} pass on packets", names.join(" and "));
        let failed = |code| Error::new(doing(), std::io::Error::from_raw_os_error(code));
        let mut news = Socket::listen(libc::NETLINK_ROUTE, libc::RTMGRP_LINK as u32)?;
        news.set_receive_timeout(1).doing(doing)?;
        let end = Instant::now() + Duration::from_secs(seconds_max.into());
        for name in names {
            while !self.link(name)?.ok_or_else(|| failed(libc::ENODEV))?.is_operational {
                if Instant::now() >= end {
                    return Err(failed(libc::ETIMEDOUT));
                }
                match news.receive() {
                    Ok(_) => {}
                    // Nothing in this second, or more than was read: the link is looked at again.
                    Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) => {}
                    Err(error) => return Err(Error::new(doing(), error)),
                }
            }
        }
        Ok(())
    }

    /// The number of the link with this name.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn index(&mut self, name: &str) -> Result<u32> {
        let missing =
            || Error::new(format!("find link {name}"), std::io::Error::from_raw_os_error(libc::ENODEV));
        Ok(self.link(name)?.ok_or_else(missing)?.index)
    }

    /// Makes a bridge without ports, down.
    pub fn create_bridge(&mut self, name: &str) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_NEWLINK, CREATE | EXCL);
        request.raw(&link_header(libc::AF_UNSPEC, 0, 0, 0)).str(libc::IFLA_IFNAME, name).nest(
            libc::IFLA_LINKINFO,
            |info| {
                info.str(libc::IFLA_INFO_KIND, "bridge");
            },
        );
        self.0.call(request, || format!("create bridge {name}"))
    }

    /// Makes a veth pair: `name` here, as a port of `master` if given, and its peer right inside another namespace.
    /// Both are down: setting the peer up from here fails.
    pub fn create_veth(
        &mut self,
        name: &str,
        mtu: Option<u32>,
        master: Option<u32>,
        peer: &VethPeer<'_>,
    ) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_NEWLINK, CREATE | EXCL);
        request.raw(&link_header(libc::AF_UNSPEC, 0, 0, 0)).str(libc::IFLA_IFNAME, name);
        if let Some(mtu) = mtu {
            request.u32(libc::IFLA_MTU, mtu);
        }
        if let Some(master) = master {
            request.u32(libc::IFLA_MASTER, master);
        }
        request.nest(libc::IFLA_LINKINFO, |info| {
            info.str(libc::IFLA_INFO_KIND, "veth").nest(libc::IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |end| {
                    end.raw(&link_header(libc::AF_UNSPEC, 0, 0, 0)).str(libc::IFLA_IFNAME, peer.name);
                    end.u32(libc::IFLA_NET_NS_FD, peer.namespace.as_raw_fd() as u32);
                    if let Some(mac) = peer.mac {
                        end.bytes(libc::IFLA_ADDRESS, &mac);
                    }
                    if let Some(mtu) = mtu {
                        end.u32(libc::IFLA_MTU, mtu);
                    }
                });
            });
        });
        self.0.call(request, || format!("create veth pair {name}"))
    }

    /// Sets a link up.
    pub fn set_up(&mut self, name: &str) -> Result<()> {
        self.set_flags(name, libc::IFF_UP as u32)
    }

    /// Sets a link down.
    pub fn set_down(&mut self, name: &str) -> Result<()> {
        self.set_flags(name, 0)
    }

    fn set_flags(&mut self, name: &str, flags: u32) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_NEWLINK, 0);
        request
            .raw(&link_header(libc::AF_UNSPEC, 0, flags, libc::IFF_UP as u32))
            .str(libc::IFLA_IFNAME, name);
        self.0.call(request, || format!("set link {name} {}", if flags == 0 { "down" } else { "up" }))
    }

    /// Sets a link's hardware address; the link of a bridge then keeps it when ports come and go.
    pub fn set_mac(&mut self, name: &str, mac: [u8; 6]) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_NEWLINK, 0);
        request
            .raw(&link_header(libc::AF_UNSPEC, 0, 0, 0))
            .str(libc::IFLA_IFNAME, name)
            .bytes(libc::IFLA_ADDRESS, &mac);
        self.0.call(request, || format!("set the hardware address of {name}"))
    }

    /// Makes a link a port of a bridge.
    pub fn set_master(&mut self, name: &str, master: u32) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_NEWLINK, 0);
        request
            .raw(&link_header(libc::AF_UNSPEC, 0, 0, 0))
            .str(libc::IFLA_IFNAME, name)
            .u32(libc::IFLA_MASTER, master);
        self.0.call(request, || format!("make {name} a port of link {master}"))
    }

    /// Sets a bridge's port up and lets the bridge send a packet back out of the port it came from.
    pub fn set_up_hairpin_port(&mut self, name: &str) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_NEWLINK, 0);
        let up = libc::IFF_UP as u32;
        request.raw(&link_header(libc::AF_UNSPEC, 0, up, up)).str(libc::IFLA_IFNAME, name).nest(
            libc::IFLA_LINKINFO,
            |info| {
                info.str(LINK_INFO_PORT_KIND, "bridge").nest(LINK_INFO_PORT_DATA, |data| {
                    data.u8(BRIDGE_PORT_MODE, 1);
                });
            },
        );
        self.0.call(request, || format!("set bridge port {name} up"))
    }

    /// Deletes a link; a veth's peer goes with it. No error if there is none.
    pub fn delete_link(&mut self, name: &str) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_DELLINK, 0);
        request.raw(&link_header(libc::AF_UNSPEC, 0, 0, 0)).str(libc::IFLA_IFNAME, name);
        absent_is_fine(self.0.call(request, || format!("delete link {name}")))
    }

    /// All addresses of this namespace.
    pub fn addresses(&mut self) -> Result<Vec<Address>> {
        let mut request = Encoder::message(libc::RTM_GETADDR, 0);
        request.raw(&[0; 8]);
        let answers = self.0.request(request, DUMP, || "list addresses".into())?;
        Ok(answers.iter().filter_map(|answer| parse_address(answer)).collect())
    }

    /// Addresses that stay: of IPv6, without those for a while only (RFC 8981), those that are on their way out, and those of
    /// which it is not known yet, or known, that somebody else has them.
    pub fn lasting_addresses(&mut self) -> Result<Vec<Address>> {
        let mut request = Encoder::message(libc::RTM_GETADDR, 0);
        request.raw(&[0; 8]);
        let answers = self.0.request(request, DUMP, || "list addresses".into())?;
        let lasting = answers.iter().filter(|answer| is_lasting(answer));
        Ok(lasting.filter_map(|answer| parse_address(answer)).collect())
    }

    /// Adds an address to a link. IPv6 addresses can be used at once (no duplicate detection).
    pub fn add_address(&mut self, address: Address) -> Result<()> {
        let request = address_request(libc::RTM_NEWADDR, CREATE | REPLACE, address);
        self.0.call(request, || format!("add address {}/{}", address.ip, address.prefix))
    }

    /// Adds an address to a link that others may use, and the host itself uses as a source of nothing that does not ask for
    /// it: of IPv6, a deprecated one (RFC 6724, rule 3); of IPv4 the kernel asks the outgoing link's.
    pub fn add_passive_address(&mut self, address: Address) -> Result<()> {
        let mut request = address_request(libc::RTM_NEWADDR, CREATE | REPLACE, address);
        if address.ip.is_ipv6() {
            // Preferred for no time, valid for ever.
            let lifetimes = [0, u32::MAX, 0, 0].map(u32::to_ne_bytes).concat();
            request.bytes(libc::IFA_CACHEINFO, &lifetimes);
        }
        self.0.call(request, || format!("add address {}/{}", address.ip, address.prefix))
    }

    /// Takes an address from a link. No error if it has none such.
    pub fn delete_address(&mut self, address: Address) -> Result<()> {
        let request = address_request(libc::RTM_DELADDR, 0, address);
        absent_is_fine(self.0.call(request, || format!("delete address {}/{}", address.ip, address.prefix)))
    }

    /// Adds a route, in place of one to the same destination with the same priority.
    pub fn add_route(&mut self, route: &NewRoute) -> Result<()> {
        let request = route_request(libc::RTM_NEWROUTE, CREATE | REPLACE, route);
        self.0.call(request, || format!("add {}", describe_route(route)))
    }

    /// Deletes a route. No error if there is none such.
    pub fn delete_route(&mut self, route: &NewRoute) -> Result<()> {
        let request = route_request(libc::RTM_DELROUTE, 0, route);
        absent_is_fine(self.0.call(request, || format!("delete {}", describe_route(route))))
    }

    /// The main table's routes.
    pub fn routes(&mut self) -> Result<Vec<RouteEntry>> {
        let mut request = Encoder::message(libc::RTM_GETROUTE, 0);
        request.raw(&[0; 12]);
        let answers = self.0.request(request, DUMP, || "list routes".into())?;
        Ok(answers.iter().filter_map(|answer| parse_route(answer)).collect())
    }

    /// Sets a permanent neighbour, so that nobody has to be asked for its hardware address.
    pub fn set_neighbour(&mut self, link: u32, ip: IpAddr, mac: [u8; 6]) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_NEWNEIGH, CREATE | REPLACE);
        let mut header = [0; 12];
        header[0] = family(ip);
        header[4..8].copy_from_slice(&link.to_ne_bytes());
        header[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
        request.raw(&header).bytes(libc::NDA_DST, &octets(ip)).bytes(libc::NDA_LLADDR, &mac);
        self.0.call(request, || format!("set neighbour {ip}"))
    }

    /// Forgets a neighbour; no error if there is none.
    pub fn delete_neighbour(&mut self, link: u32, ip: IpAddr) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_DELNEIGH, 0);
        let mut header = [0; 12];
        header[0] = family(ip);
        header[4..8].copy_from_slice(&link.to_ne_bytes());
        request.raw(&header).bytes(libc::NDA_DST, &octets(ip));
        absent_is_fine(self.0.call(request, || format!("delete neighbour {ip}")))
    }
}

pub(super) fn absent_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

pub(super) fn link_header(family: i32, index: u32, flags: u32, change: u32) -> [u8; LINK_HEADER_BYTES] {
    let mut header = [0; LINK_HEADER_BYTES];
    header[0] = family as u8;
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

pub(super) fn parse_link(payload: &[u8]) -> Option<Link> {
    let mut link = Link { index: u32_of(payload.get(4..)?)?, ..Link::default() };
    link.is_up = u32_of(payload.get(8..)?)? & libc::IFF_UP as u32 != 0;
    for (kind, value) in attributes(payload.get(LINK_HEADER_BYTES..)?) {
        match kind {
            libc::IFLA_IFNAME => link.name = str_of(value),
            libc::IFLA_MTU => link.mtu = u32_of(value)?,
            libc::IFLA_MASTER => link.master = u32_of(value),
            libc::IFLA_ADDRESS => link.mac = value.to_vec(),
            libc::IFLA_LINK => link.peer = u32_of(value),
            libc::IFLA_IFALIAS => link.alias = str_of(value),
            libc::IFLA_OPERSTATE => {
                link.is_operational = matches!(value.first(), Some(&(OPERATION_UNKNOWN | OPERATION_UP)));
            }
            libc::IFLA_LINKINFO => {
                link.kind = find_attribute(value, libc::IFLA_INFO_KIND).map(str_of).unwrap_or_default();
            }
            _ => {}
        }
    }
    Some(link)
}

fn address_request(kind: u16, flags: u16, address: Address) -> Encoder {
    let mut request = Encoder::message(kind, flags);
    let mut header = [family(address.ip), address.prefix, 0, 0, 0, 0, 0, 0];
    if address.ip.is_ipv6() {
        header[2] = libc::IFA_F_NODAD as u8;
    }
    header[4..8].copy_from_slice(&address.link.to_ne_bytes());
    let bytes = octets(address.ip);
    request.raw(&header).bytes(libc::IFA_LOCAL, &bytes).bytes(libc::IFA_ADDRESS, &bytes);
    request
}

pub(super) fn is_lasting(payload: &[u8]) -> bool {
    let flags =
        payload.get(8..).and_then(|attributes| find_attribute(attributes, libc::IFA_FLAGS)).and_then(u32_of);
    let flags = flags.unwrap_or_else(|| payload.get(2).copied().unwrap_or_default().into());
    let passing =
        libc::IFA_F_TEMPORARY | libc::IFA_F_DEPRECATED | libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED;
    payload.first() != Some(&(libc::AF_INET6 as u8)) || flags & passing == 0
}

pub(super) fn parse_address(payload: &[u8]) -> Option<Address> {
    let attributes = payload.get(8..)?;
    let ip = find_attribute(attributes, libc::IFA_LOCAL)
        .or_else(|| find_attribute(attributes, libc::IFA_ADDRESS))?;
    Some(Address { link: u32_of(payload.get(4..)?)?, ip: ip_of(ip)?, prefix: *payload.get(1)? })
}

fn route_request(kind: u16, flags: u16, route: &NewRoute) -> Encoder {
    let any = route.destination.map(|(ip, _)| ip).or(route.gateway).or(route.source);
    let scope = match (route.gateway, route.kind) {
        (None, RouteKind::Unicast) => libc::RT_SCOPE_LINK,
        _ => libc::RT_SCOPE_UNIVERSE,
    };
    let mut header = [0; 12];
    header[0] = any.map_or(libc::AF_INET as u8, family);
    header[1] = route.destination.map_or(0, |(_, prefix)| prefix);
    header[4] = libc::RT_TABLE_MAIN;
    header[5] = libc::RTPROT_STATIC;
    header[6] = scope;
    header[7] = match route.kind {
        RouteKind::Unicast => libc::RTN_UNICAST,
        RouteKind::Unreachable => libc::RTN_UNREACHABLE,
        RouteKind::Blackhole => libc::RTN_BLACKHOLE,
    };
    if route.on_link {
        header[8..12].copy_from_slice(&NEXT_HOP_ON_LINK.to_ne_bytes());
    }
    let mut request = Encoder::message(kind, flags);
    request.raw(&header);
    if let Some((ip, _)) = route.destination {
        request.bytes(libc::RTA_DST, &octets(ip));
    }
    if let Some(gateway) = route.gateway {
        request.bytes(libc::RTA_GATEWAY, &octets(gateway));
    }
    if let Some(source) = route.source {
        request.bytes(libc::RTA_PREFSRC, &octets(source));
    }
    if let Some(link) = route.link {
        request.u32(libc::RTA_OIF, link);
    }
    if let Some(priority) = route.priority {
        request.u32(libc::RTA_PRIORITY, priority);
    }
    request
}

pub(super) fn parse_route(payload: &[u8]) -> Option<RouteEntry> {
    if *payload.get(4)? != libc::RT_TABLE_MAIN {
        return None;
    }
    let kind = match *payload.get(7)? {
        libc::RTN_UNICAST => Some(RouteKind::Unicast),
        libc::RTN_UNREACHABLE => Some(RouteKind::Unreachable),
        libc::RTN_BLACKHOLE => Some(RouteKind::Blackhole),
        _ => None,
    };
    let attributes = payload.get(12..)?;
    let ip = |kind| find_attribute(attributes, kind).and_then(ip_of);
    let prefix = *payload.get(1)?;
    Some(RouteEntry {
        kind,
        destination: ip(libc::RTA_DST).map(|destination| (destination, prefix)),
        gateway: ip(libc::RTA_GATEWAY),
        link: find_attribute(attributes, libc::RTA_OIF).and_then(u32_of),
        source: ip(libc::RTA_PREFSRC),
    })
}

fn describe_route(route: &NewRoute) -> String {
    match route.destination {
        Some((ip, prefix)) => format!("route to {ip}/{prefix}"),
        None => "the default route".to_owned(),
    }
}

fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

pub(super) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

pub(super) fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "route/tests.rs"]
mod tests;
