//! rtnetlink: what an overlay over other hosts is made of: VXLAN links (RFC 7348), and where frames for a hardware address
//! are sent to.
//!
//! Source: `include/uapi/linux/if_link.h` (`IFLA_VXLAN_*`), `neighbour.h`.

use std::net::{IpAddr, Ipv4Addr};

use nix::libc;

use super::route::{Route, absent_is_fine, ip_of, link_header, octets};
use super::{CREATE, DUMP, EXCL, Encoder, attributes, find_attribute, u32_of};
use crate::Result;

const VXLAN_ID: u16 = 1;
const VXLAN_LINK: u16 = 3;
const VXLAN_LOCAL: u16 = 4;
const VXLAN_LEARNING: u16 = 7;
const VXLAN_PORT: u16 = 15;
const VXLAN_LOCAL6: u16 = 17;
const REPLACE: u16 = libc::NLM_F_REPLACE as u16;
const NEIGHBOUR_HEADER_BYTES: usize = 12;
/// `NTF_SELF`: of the link itself, not of the bridge that it is a port of.
const OF_LINK: u8 = 2;
const BRIDGE: u8 = libc::AF_BRIDGE as u8;

/// A VXLAN link that learns nothing from what it is sent: who is where is only what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// Its network identifier, of 24 bits.
    pub id: u32,
    /// UDP port of all its ends.
    pub port: u16,
    /// The address that it sends from, of the family of all its ends.
    pub local: IpAddr,
    /// The link below, by its number.
    pub below: u32,
}

/// The destination of a hardware address or an address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// For an entry of the link's own table the host that frames are sent to; otherwise whose hardware address it is.
    pub ip: IpAddr,
    /// The hardware address.
    pub mac: [u8; 6],
}

impl Route {
    /// Makes a VXLAN link with this hardware address and MTU, down.
    ///
    /// # Errors
    /// `EEXIST` if there is a link of this name, or one with the same identifier and port.
    pub fn create_vxlan(&mut self, name: &str, vxlan: &Vxlan, mac: [u8; 6], mtu: u32) -> Result<()> {
        let request = create_vxlan(name, vxlan, mac, mtu);
        self.0.call(request, || format!("create VXLAN link {name}"))
    }

    /// The settings of the VXLAN link of this name; `None` if there is none.
    pub fn vxlan(&mut self, name: &str) -> Result<Option<Vxlan>> {
        let mut request = Encoder::message(libc::RTM_GETLINK, 0);
        request.raw(&link_header(libc::AF_UNSPEC, 0, 0, 0)).str(libc::IFLA_IFNAME, name);
        match self.0.request(request, super::ACK, || format!("look at VXLAN link {name}")) {
            Ok(answers) => Ok(answers.first().and_then(|answer| parse_vxlan(answer))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets a link's MTU in bytes.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_NEWLINK, 0);
        request.raw(&link_header(libc::AF_UNSPEC, 0, 0, 0)).str(libc::IFLA_IFNAME, name);
        request.u32(libc::IFLA_MTU, mtu);
        self.0.call(request, || format!("set the MTU of {name}"))
    }

    /// Has frames for a hardware address sent to a host, in place of where they were sent before.
    pub fn set_forwarding(&mut self, link: u32, to: Neighbour) -> Result<()> {
        let request = forwarding(libc::RTM_NEWNEIGH, CREATE | REPLACE, link, to);
        self.0.call(request, || format!("send frames of link {link} to {}", to.ip))
    }

    /// Takes that back. No error if it is not so.
    pub fn delete_forwarding(&mut self, link: u32, to: Neighbour) -> Result<()> {
        let request = forwarding(libc::RTM_DELNEIGH, 0, link, to);
        absent_is_fine(self.0.call(request, || format!("send no frames of link {link} to {}", to.ip)))
    }

    /// The destinations of a link's frames, in order.
    pub fn forwardings(&mut self, link: u32) -> Result<Vec<Neighbour>> {
        self.neighbours_of(BRIDGE, link)
    }

    /// A link's permanent neighbours, in order.
    pub fn neighbours(&mut self, link: u32) -> Result<Vec<Neighbour>> {
        let v4 = self.neighbours_of(libc::AF_INET as u8, link)?;
        Ok([v4, self.neighbours_of(libc::AF_INET6 as u8, link)?].concat())
    }

    fn neighbours_of(&mut self, family: u8, link: u32) -> Result<Vec<Neighbour>> {
        let mut request = Encoder::message(libc::RTM_GETNEIGH, 0);
        let mut header = [0; NEIGHBOUR_HEADER_BYTES];
        header[0] = family;
        request.raw(&header).u32(libc::NDA_IFINDEX, link);
        let answers = self.0.request(request, DUMP, || format!("list neighbours on link {link}"))?;
        let mut found: Vec<_> =
            answers.iter().filter_map(|answer| parse_neighbour(answer, family, link)).collect();
        found.sort_unstable();
        Ok(found)
    }
}

fn create_vxlan(name: &str, vxlan: &Vxlan, mac: [u8; 6], mtu: u32) -> Encoder {
    let local = if vxlan.local.is_ipv4() { VXLAN_LOCAL } else { VXLAN_LOCAL6 };
    let mut request = new_link(name, mtu, "vxlan", |info| {
        info.nest(libc::IFLA_INFO_DATA, |data| {
            data.u32(VXLAN_ID, vxlan.id)
                .u32(VXLAN_LINK, vxlan.below)
                .bytes(local, &octets(vxlan.local))
                .u8(VXLAN_LEARNING, 0)
                .bytes(VXLAN_PORT, &vxlan.port.to_be_bytes());
        });
    });
    request.bytes(libc::IFLA_ADDRESS, &mac);
    request
}

/// A link of a kind, of which `more` says more.
pub(super) fn new_link(name: &str, mtu: u32, kind: &str, more: impl FnOnce(&mut Encoder)) -> Encoder {
    let mut request = Encoder::message(libc::RTM_NEWLINK, CREATE | EXCL);
    request.raw(&link_header(libc::AF_UNSPEC, 0, 0, 0)).str(libc::IFLA_IFNAME, name);
    request.u32(libc::IFLA_MTU, mtu).nest(libc::IFLA_LINKINFO, |info| {
        info.str(libc::IFLA_INFO_KIND, kind);
        more(info);
    });
    request
}

pub(super) fn parse_vxlan(payload: &[u8]) -> Option<Vxlan> {
    let info = find_attribute(payload.get(link_header(0, 0, 0, 0).len()..)?, libc::IFLA_LINKINFO)?;
    let data = find_attribute(info, libc::IFLA_INFO_DATA)?;
    let local = [VXLAN_LOCAL, VXLAN_LOCAL6].into_iter().find_map(|kind| find_attribute(data, kind));
    let port = find_attribute(data, VXLAN_PORT)?;
    Some(Vxlan {
        id: find_attribute(data, VXLAN_ID).and_then(u32_of)?,
        port: u16::from_be_bytes(*port.first_chunk()?),
        local: local.and_then(ip_of).unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
        below: find_attribute(data, VXLAN_LINK).and_then(u32_of).unwrap_or_default(),
    })
}

fn forwarding(kind: u16, flags: u16, link: u32, to: Neighbour) -> Encoder {
    let mut request = Encoder::message(kind, flags);
    let mut header = [0; NEIGHBOUR_HEADER_BYTES];
    header[0] = BRIDGE;
    header[4..8].copy_from_slice(&link.to_ne_bytes());
    header[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
    header[10] = OF_LINK;
    request.raw(&header).bytes(libc::NDA_LLADDR, &to.mac).bytes(libc::NDA_DST, &octets(to.ip));
    request
}

/// Older kernels list those of all links.
pub(super) fn parse_neighbour(payload: &[u8], family: u8, link: u32) -> Option<Neighbour> {
    let state = u16::from_ne_bytes(*payload.get(8..)?.first_chunk()?);
    if *payload.first()? != family || u32_of(payload.get(4..)?)? != link || state & libc::NUD_PERMANENT == 0 {
        return None;
    }
    let found =
        |kind| attributes(payload.get(NEIGHBOUR_HEADER_BYTES..)?).find(|it| it.0 == kind).map(|it| it.1);
    let ip = found(libc::NDA_DST).and_then(ip_of)?;
    Some(Neighbour { ip, mac: found(libc::NDA_LLADDR)?.try_into().ok()? })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::netlink::{Address, NewRoute, VethPeer};
    use crate::netns::NetNs;

    const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 1]];

    /// The last part of an address of a host, or of what is inside, by the family of the packets.
    #[derive(Clone, Copy)]
    struct Addresses {
        outer: fn(u8, u8) -> IpAddr,
        inner: fn(u8) -> IpAddr,
        /// The prefixes of both, and of one address.
        bits: [u8; 3],
    }

    const V4: Addresses = Addresses {
        outer: |host, last| [198, 51, 100 + host, last].into(),
        inner: |host| [10, 9, host, 0].into(),
        bits: [24, 24, 32],
    };
    const V6: Addresses = Addresses {
        outer: |host, last| [0x2001, 0xdb8, host.into(), 0, 0, 0, 0, last.into()].into(),
        inner: |host| [0xfd09, 0, 0, host.into(), 0, 0, 0, 0].into(),
        bits: [64, 64, 128],
    };

    /// Two hosts, each in a network of its own, and a router that knows nothing of what is inside of their packets.
    fn hosts(of: Addresses) -> (NetNs, [NetNs; 2]) {
        let router = NetNs::anonymous().unwrap();
        let hosts = [0, 1].map(|_| NetNs::anonymous().unwrap());
        // Nobody waits for a link-local address.
        let ready = || crate::netns::set_sysctl("net/ipv6/conf/default/accept_dad", "0");
        [&router, &hosts[0], &hosts[1]].iter().for_each(|namespace| namespace.run(ready).unwrap());
        for (number, host) in (0..).zip(&hosts) {
            let link = |route: &mut Route, name: &str, ip: IpAddr| {
                let link = route.index(name)?;
                route.add_address(Address { link, ip, prefix: of.bits[0] })?;
                route.set_up(name)
            };
            let gateway = (of.outer)(number, 1);
            router
                .run(|| {
                    crate::forwarding::allow_ipv4(None)?;
                    crate::forwarding::allow_ipv6(None)?;
                    let mut route = Route::open()?;
                    let peer = VethPeer { name: "eth0", namespace: host.as_fd(), mac: None };
                    route.create_veth(&format!("r{number}"), None, None, &peer)?;
                    link(&mut route, &format!("r{number}"), gateway)
                })
                .unwrap();
            host.run(|| {
                let mut route = Route::open()?;
                link(&mut route, "eth0", (of.outer)(number, 2))?;
                route.add_route(&NewRoute { gateway: Some(gateway), ..NewRoute::default() })
            })
            .unwrap();
        }
        (router, hosts)
    }

    fn check(outer: Addresses, inner: Addresses) {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let (_router, hosts) = hosts(outer);
        let (far, near) = (|host| (outer.outer)(host, 2), inner.inner);
        for (own, host) in (0..).zip(&hosts) {
            let other = 1 - own;
            host.run(|| {
                let mut route = Route::open()?;
                let below = route.index("eth0")?;
                let vxlan = Vxlan { id: 7, port: 8472, local: far(own), below };
                let mac = MACS[usize::from(own)];
                route.create_vxlan("vx0", &vxlan, mac, 1430)?;
                assert!(route.create_vxlan("vx0", &vxlan, mac, 1430).unwrap_err().is_exists());
                assert_eq!(route.vxlan("vx0")?, Some(vxlan));
                assert_eq!(route.vxlan("eth0")?, None);
                assert_eq!(route.vxlan("none")?, None);
                let seen = route.link("vx0")?.unwrap();
                assert_eq!((seen.kind.as_str(), seen.mtu, seen.mac.as_slice()), ("vxlan", 1430, &mac[..]));
                route.set_mtu("vx0", 1400)?;
                assert_eq!(route.link("vx0")?.unwrap().mtu, 1400);
                route.add_address(Address { link: seen.index, ip: near(own), prefix: inner.bits[2] })?;
                route.set_up("vx0")?;
                let to = Neighbour { ip: far(other), mac: MACS[usize::from(other)] };
                let wrong = Neighbour { ip: (outer.outer)(1, 99), ..to };
                route.set_forwarding(seen.index, wrong)?;
                route.set_forwarding(seen.index, to)?;
                assert_eq!(route.forwardings(seen.index)?, [to], "replaced");
                route.set_neighbour(seen.index, near(other), to.mac)?;
                assert_eq!(route.neighbours(seen.index)?, [Neighbour { ip: near(other), mac: to.mac }]);
                let behind = NewRoute {
                    destination: Some((near(other), inner.bits[1])),
                    gateway: Some(near(other)),
                    link: Some(seen.index),
                    on_link: true,
                    ..NewRoute::default()
                };
                route.add_route(&behind)?;
                route.add_route(&behind)
            })
            .unwrap();
        }
        let socket = |number: u8| {
            let bound = hosts[usize::from(number)].run(|| Ok(UdpSocket::bind((near(number), 5000)).unwrap()));
            let socket = bound.unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            socket
        };
        let (one, other) = (socket(0), socket(1));
        let mut buffer = [0; 16];
        // A link that has just been set up may lose the first packets.
        let mut arrived = (0..20).filter_map(|_| {
            one.send_to(b"inside", (near(1), 5000)).unwrap();
            other.recv_from(&mut buffer).ok()
        });
        let (length, from) = arrived.next().expect("the packet on the other side");
        assert_eq!((&buffer[..length], from), (&b"inside"[..], (near(0), 5000).into()));
        hosts[0]
            .run(|| {
                let mut route = Route::open()?;
                let link = route.index("vx0")?;
                let to = Neighbour { ip: far(1), mac: MACS[1] };
                for _ in 0..2 {
                    route.delete_forwarding(link, to)?;
                }
                assert_eq!(route.forwardings(link)?, []);
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn packets_cross_a_router_inside_of_others() {
        check(V4, V4);
    }

    #[test]
    fn packets_of_each_family_cross_a_router_inside_of_those_of_each() {
        [(V4, V6), (V6, V4), (V6, V6)].into_iter().for_each(|(outer, inner)| check(outer, inner));
    }
}
