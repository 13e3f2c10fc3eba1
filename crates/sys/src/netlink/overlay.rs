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
    /// The address that it sends from.
    pub local: Ipv4Addr,
    /// The link below, by its number.
    pub below: u32,
}

/// What a hardware address or an address leads to on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// For an entry of the link's own table the host that frames are sent to; otherwise whose hardware address it is.
    pub ip: Ipv4Addr,
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

    /// What the VXLAN link of this name is like; `None` if there is none.
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

    /// Where a link sends frames to, in order.
    pub fn forwardings(&mut self, link: u32) -> Result<Vec<Neighbour>> {
        self.neighbours_of(BRIDGE, link)
    }

    /// A link's permanent neighbours of IPv4, in order.
    pub fn neighbours(&mut self, link: u32) -> Result<Vec<Neighbour>> {
        self.neighbours_of(libc::AF_INET as u8, link)
    }

    fn neighbours_of(&mut self, family: u8, link: u32) -> Result<Vec<Neighbour>> {
        let mut request = Encoder::message(libc::RTM_GETNEIGH, 0);
        let mut header = [0; NEIGHBOUR_HEADER_BYTES];
        header[0] = family;
        request.raw(&header).u32(libc::NDA_IFINDEX, link);
        let answers = self.0.request(request, DUMP, || format!("list neighbours on link {link}"))?;
        let mut found: Vec<_> =
            answers.iter().filter_map(|answer| parse_neighbour(answer, (family, link))).collect();
        found.sort_unstable();
        Ok(found)
    }
}

fn create_vxlan(name: &str, vxlan: &Vxlan, mac: [u8; 6], mtu: u32) -> Encoder {
    let mut request = new_link(name, mtu, "vxlan", |info| {
        info.nest(libc::IFLA_INFO_DATA, |data| {
            data.u32(VXLAN_ID, vxlan.id)
                .u32(VXLAN_LINK, vxlan.below)
                .bytes(VXLAN_LOCAL, &vxlan.local.octets())
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

fn parse_vxlan(payload: &[u8]) -> Option<Vxlan> {
    let info = find_attribute(payload.get(link_header(0, 0, 0, 0).len()..)?, libc::IFLA_LINKINFO)?;
    let data = find_attribute(info, libc::IFLA_INFO_DATA)?;
    let local = find_attribute(data, VXLAN_LOCAL).and_then(ip_of);
    let port = find_attribute(data, VXLAN_PORT)?;
    Some(Vxlan {
        id: find_attribute(data, VXLAN_ID).and_then(u32_of)?,
        port: u16::from_be_bytes(*port.first_chunk()?),
        local: match local {
            Some(IpAddr::V4(local)) => local,
            _ => Ipv4Addr::UNSPECIFIED,
        },
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
    request.raw(&header).bytes(libc::NDA_LLADDR, &to.mac).bytes(libc::NDA_DST, &octets(to.ip.into()));
    request
}

/// Older kernels list those of all links.
fn parse_neighbour(payload: &[u8], (family, link): (u8, u32)) -> Option<Neighbour> {
    let state = u16::from_ne_bytes(*payload.get(8..)?.first_chunk()?);
    if *payload.first()? != family || u32_of(payload.get(4..)?)? != link || state & libc::NUD_PERMANENT == 0 {
        return None;
    }
    let found =
        |kind| attributes(payload.get(NEIGHBOUR_HEADER_BYTES..)?).find(|it| it.0 == kind).map(|it| it.1);
    let Some(IpAddr::V4(ip)) = found(libc::NDA_DST).and_then(ip_of) else { return None };
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

    fn far(host: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 51, 100 + host, 2)
    }

    fn near(host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, host, 0)
    }

    /// Two hosts, each in a network of its own, and a router that knows nothing of what is inside of their packets.
    fn hosts() -> (NetNs, [NetNs; 2]) {
        let router = NetNs::anonymous().unwrap();
        let hosts = [0, 1].map(|_| NetNs::anonymous().unwrap());
        for (number, host) in (0..).zip(&hosts) {
            let link = |route: &mut Route, name: &str, ip: Ipv4Addr| {
                let link = route.index(name)?;
                route.add_address(Address { link, ip: ip.into(), prefix: 24 })?;
                route.set_up(name)
            };
            let gateway = Ipv4Addr::new(198, 51, 100 + number, 1);
            router
                .run(|| {
                    crate::netns::set_sysctl("net/ipv4/ip_forward", "1")?;
                    let mut route = Route::open()?;
                    let peer = VethPeer { name: "eth0", namespace: host.as_fd(), mac: None };
                    route.create_veth(&format!("r{number}"), None, None, &peer)?;
                    link(&mut route, &format!("r{number}"), gateway)
                })
                .unwrap();
            host.run(|| {
                let mut route = Route::open()?;
                link(&mut route, "eth0", far(number))?;
                route.add_route(&NewRoute { gateway: Some(gateway.into()), ..NewRoute::default() })
            })
            .unwrap();
        }
        (router, hosts)
    }

    #[test]
    fn packets_cross_a_router_inside_of_others() {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let (_router, hosts) = hosts();
        for (own, host) in (0..).zip(&hosts) {
            let other = 1 - own;
            host.run(|| {
                let mut route = Route::open()?;
                let below = route.index("eth0")?;
                let vxlan = Vxlan { id: 7, port: 8472, local: far(own), below };
                let mac = MACS[usize::from(own)];
                route.create_vxlan("vx0", &vxlan, mac, 1450)?;
                assert!(route.create_vxlan("vx0", &vxlan, mac, 1450).unwrap_err().is_exists());
                assert_eq!(route.vxlan("vx0")?, Some(vxlan));
                assert_eq!(route.vxlan("eth0")?, None);
                assert_eq!(route.vxlan("none")?, None);
                let seen = route.link("vx0")?.unwrap();
                assert_eq!((seen.kind.as_str(), seen.mtu, seen.mac.as_slice()), ("vxlan", 1450, &mac[..]));
                route.set_mtu("vx0", 1400)?;
                assert_eq!(route.link("vx0")?.unwrap().mtu, 1400);
                route.add_address(Address { link: seen.index, ip: near(own).into(), prefix: 32 })?;
                route.set_up("vx0")?;
                let to = Neighbour { ip: far(other), mac: MACS[usize::from(other)] };
                let wrong = Neighbour { ip: [198, 51, 100, 99].into(), ..to };
                route.set_forwarding(seen.index, wrong)?;
                route.set_forwarding(seen.index, to)?;
                assert_eq!(route.forwardings(seen.index)?, [to], "replaced");
                route.set_neighbour(seen.index, near(other).into(), to.mac)?;
                assert_eq!(route.neighbours(seen.index)?, [Neighbour { ip: near(other), mac: to.mac }]);
                route.add_route(&NewRoute {
                    destination: Some((near(other).into(), 24)),
                    gateway: Some(near(other).into()),
                    link: Some(seen.index),
                    on_link: true,
                    ..NewRoute::default()
                })
            })
            .unwrap();
        }
        let socket = |number: u8| {
            let bound = hosts[usize::from(number)].run(|| Ok(UdpSocket::bind((near(number), 5000)).unwrap()));
            let socket = bound.unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        };
        let (one, other) = (socket(0), socket(1));
        one.send_to(b"inside", (near(1), 5000)).unwrap();
        let mut buffer = [0; 16];
        let (length, from) = other.recv_from(&mut buffer).unwrap();
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
}
