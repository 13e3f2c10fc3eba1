//! The overlay by VXLAN: packets for another Node's Pods travel inside of UDP packets to that Node, whatever lies between.
//!
//! Every Node has one link, whose hardware address is told by the first of the Node's ranges, so that nobody has to say, and
//! nobody can lie, whose it is. Each of its ranges lies behind the range's first address on that link (a route), which is a
//! neighbour with that hardware address, for which frames are sent to the Node's own address. Nothing is learnt and nobody is asked: what is
//! on the link is what the Nodes' objects say. The link is the cluster's, and all that is on it goes with it.
//!
//! Source: RFC 7348; flannel's `vxlan`, whose identifier and port are the defaults.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, Result};
use sys::netlink::{Neighbour, Route, Vxlan};

use super::end::{End, below, header_bytes};
use super::{Failures, Way};
use crate::layout::Layout;

/// What a packet's journey from an address adds: the outer headers of IP, UDP and VXLAN, and the inner one of Ethernet.
pub(super) fn overhead_bytes(node_ip: IpAddr) -> u32 {
    header_bytes(node_ip) + 8 + 8 + 14
}

fn link_name(layout: &Layout) -> String {
    format!("kx-{}", layout.cluster_id())
}

/// The hardware address of the Node with a range, in which all other bits are the same for all. Of IPv6 it has the last bits
/// of the prefix, in which the ranges of a cluster differ.
fn mac_of((range, bits): (IpAddr, u8)) -> [u8; 6] {
    let [a, b, c, d] = match range {
        IpAddr::V4(range) => range.octets(),
        IpAddr::V6(range) => {
            let number = range.to_bits().checked_shr(128_u32.saturating_sub(bits.into())).unwrap_or_default();
            (number as u32).to_be_bytes()
        }
    };
    [0x0e, 0x58, a, b, c, d]
}

/// What a link is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tables {
    /// Whose hardware address it is, by address on the link.
    neighbours: BTreeSet<Neighbour>,
    /// Where frames go, by hardware address.
    forwardings: BTreeSet<Neighbour>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    SetForwarding(Neighbour),
    SetNeighbour(Neighbour),
    DeleteNeighbour(Neighbour),
    DeleteForwarding(Neighbour),
}

/// What to change so that every range is behind its Node. Frames have somewhere to go before a packet is sent.
fn plan(wanted: &[Way], present: &Tables) -> Vec<Change> {
    let all = Tables::of_ways(wanted);
    let missing = |wanted: &BTreeSet<Neighbour>, has: &BTreeSet<Neighbour>| -> Vec<Neighbour> {
        wanted.difference(has).copied().collect()
    };
    let set = missing(&all.forwardings, &present.forwardings).into_iter().map(Change::SetForwarding);
    let set = set.chain(missing(&all.neighbours, &present.neighbours).into_iter().map(Change::SetNeighbour));
    // What was set took the place of what had the same key.
    let is_ip = |known: &Neighbour| all.neighbours.iter().any(|wanted| wanted.ip == known.ip);
    let is_mac = |known: &Neighbour| all.forwardings.iter().any(|wanted| wanted.mac == known.mac);
    let neighbours = present.neighbours.iter().filter(|known| !is_ip(known)).copied();
    let forwardings = present.forwardings.iter().filter(|known| !is_mac(known)).copied();
    let deleted = neighbours.map(Change::DeleteNeighbour).chain(forwardings.map(Change::DeleteForwarding));
    set.chain(deleted).collect()
}

impl Tables {
    fn of_ways(wanted: &[Way]) -> Self {
        let neighbour = |way: &Way| Neighbour { ip: way.route.destination.0, mac: mac_of(way.node) };
        let forwarding = |way: &Way| Neighbour { ip: way.route.gateway, mac: mac_of(way.node) };
        Self {
            neighbours: wanted.iter().map(neighbour).collect(),
            forwardings: wanted.iter().map(forwarding).collect(),
        }
    }

    fn of_link(route: &mut Route, link: u32) -> sys::Result<Self> {
        let neighbours = route.neighbours(link)?.into_iter().collect();
        Ok(Self { neighbours, forwardings: route.forwardings(link)?.into_iter().collect() })
    }
}

/// Makes the link if need be, and brings what it is told and the routes over it up to date.
///
/// # Errors
/// The kernel refuses.
pub(super) fn apply(layout: &Layout, end: &End, vni: u32, wanted: &[Way]) -> Result<Failures> {
    let mut route = Route::open()?;
    let link = make_link(&mut route, &link_name(layout), end, vni).context("make the overlay's link")?;
    for change in plan(wanted, &Tables::of_link(&mut route, link)?) {
        match change {
            Change::SetForwarding(to) => route.set_forwarding(link, to)?,
            Change::SetNeighbour(it) => route.set_neighbour(link, it.ip, it.mac)?,
            Change::DeleteNeighbour(it) => route.delete_neighbour(link, it.ip)?,
            Change::DeleteForwarding(to) => route.delete_forwarding(link, to)?,
        }
    }
    end.route(layout, link, wanted)
}

/// Returns its number. One that is another network's by now is made anew.
fn make_link(route: &mut Route, name: &str, end: &End, vni: u32) -> Result<u32> {
    let below = below(route, end.node_ip)?;
    let wanted = Vxlan { id: vni, port: end.port, local: end.node_ip, below: below.index };
    let main = end.ranges.main();
    let mac = mac_of((main.first(), main.bits()));
    let mtu = below.mtu.saturating_sub(overhead_bytes(end.node_ip));
    if route.vxlan(name)? != Some(wanted) {
        route.delete_link(name)?;
        route.create_vxlan(name, &wanted, mac, mtu)?;
    }
    let link = route.link(name)?.context("find the link that was made")?;
    if link.mac != mac {
        route.set_mac(name, mac)?;
    }
    end.set_up(route, &link, mtu)?;
    Ok(link.index)
}

/// Takes back the link, and with it all that is on it. No error if there is none.
///
/// # Errors
/// The kernel refuses.
pub(super) fn remove(layout: &Layout) -> Result<()> {
    Ok(Route::open()?.delete_link(&link_name(layout))?)
}

#[cfg(test)]
mod tests {
    use sys::netlink::Address;

    use super::*;

    use super::super::PodRoute;

    fn way(destination: (IpAddr, u8), node: u8, first: (IpAddr, u8)) -> Way {
        Way { route: PodRoute { destination, gateway: [192, 0, 2, node].into() }, node: first }
    }

    fn route(range: u8, node: u8) -> Way {
        let range = ([10, 42, range, 0].into(), 24);
        way(range, node, range)
    }

    fn neighbour(ip: [u8; 4], range: u8) -> Neighbour {
        Neighbour { ip: ip.into(), mac: [0x0e, 0x58, 10, 42, range, 0] }
    }

    fn tables(ways: &[Way]) -> Tables {
        Tables::of_ways(ways)
    }

    #[test]
    fn a_link_is_told_what_it_does_not_know_and_forgets_the_rest() {
        let (b, c) = (route(1, 12), route(2, 13));
        let (inside_b, inside_c) = (neighbour([10, 42, 1, 0], 1), neighbour([10, 42, 2, 0], 2));
        let (node_b, node_c) = (neighbour([192, 0, 2, 12], 1), neighbour([192, 0, 2, 13], 2));
        let moved = neighbour([192, 0, 2, 99], 1);
        let strange = Neighbour { ip: [10, 42, 1, 0].into(), mac: [2, 0, 0, 0, 0, 1] };
        let strangers_way = Neighbour { ip: [192, 0, 2, 66].into(), mac: [2, 0, 0, 0, 0, 1] };
        let mut changed = tables(&[b]);
        changed.neighbours = [strange].into();
        changed.forwardings.insert(strangers_way);
        use Change::{DeleteForwarding, DeleteNeighbour, SetForwarding, SetNeighbour};
        let rows: [(&str, &[Way], Tables, &[Change]); 7] = [
            ("alone", &[], Tables::default(), &[]),
            ("a Node comes", &[b], Tables::default(), &[SetForwarding(node_b), SetNeighbour(inside_b)]),
            ("another one", &[b, c], tables(&[b]), &[SetForwarding(node_c), SetNeighbour(inside_c)]),
            ("nothing is new", &[b, c], tables(&[b, c]), &[]),
            ("one goes", &[c], tables(&[b, c]), &[DeleteNeighbour(inside_b), DeleteForwarding(node_b)]),
            ("one has another address", &[route(1, 99)], tables(&[b]), &[SetForwarding(moved)]),
            (
                "somebody has changed it",
                &[b],
                changed,
                &[SetNeighbour(inside_b), DeleteForwarding(strangers_way)],
            ),
        ];
        for (case, wanted, present, expected) in rows {
            assert_eq!(plan(wanted, &present), expected, "{case}");
        }
    }

    #[test]
    fn two_nodes_of_one_address_are_two_ways_to_one_host() {
        let found = plan(&[route(1, 12), route(2, 12)], &Tables::default());
        let ways: Vec<_> = found.iter().filter(|change| matches!(change, Change::SetForwarding(_))).collect();
        assert_eq!(ways.len(), 2, "{found:?}");
    }

    #[test]
    fn ranges_of_both_families_are_behind_one_hardware_address() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let (v4, v6) = ((ip("10.42.1.0"), 24), (ip("fd42:0:0:1::"), 64));
        let mac = [0x0e, 0x58, 10, 42, 1, 0];
        use Change::{SetForwarding, SetNeighbour};
        assert_eq!(
            plan(&[way(v4, 12, v4), way(v6, 12, v4)], &Tables::default()),
            [
                SetForwarding(Neighbour { ip: ip("192.0.2.12"), mac }),
                SetNeighbour(Neighbour { ip: v4.0, mac }),
                SetNeighbour(Neighbour { ip: v6.0, mac }),
            ]
        );
        let of = |text: &str, bits| mac_of((ip(text), bits));
        assert_eq!(of("fd42:0:0:1::", 64), [0x0e, 0x58, 0, 0, 0, 1]);
        assert_eq!(of("fd42::ff:7:0:0", 96), [0x0e, 0x58, 0, 0xff, 0, 7]);
        assert_eq!(of("::", 0), [0x0e, 0x58, 0, 0, 0, 0]);
    }

    #[test]
    fn the_link_follows_the_nodes_address_and_ranges() {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let host = sys::netns::NetNs::anonymous().unwrap();
        let at = |ip: &str, ranges: &str, vni: u32| {
            (End { port: 8472, node_ip: ip.parse().unwrap(), ranges: ranges.parse().unwrap() }, vni)
        };
        let seen = |(end, vni): &(End, u32)| {
            let told = host.run(|| {
                let mut route = Route::open()?;
                let index = make_link(&mut route, "kx-x", end, *vni).unwrap();
                let link = route.link("kx-x")?.unwrap();
                let like = route.vxlan("kx-x")?.unwrap();
                let is_global = |ip: IpAddr| !ip.to_string().starts_with("fe80");
                let ips = route.addresses()?.into_iter().filter(|it| it.link == index && is_global(it.ip));
                let ips = ips.map(|it| format!("{}/{}", it.ip, it.prefix)).collect::<Vec<_>>().join(" ");
                Ok((index, format!("{} {} {:x?} {} {ips}", like.id, like.local, link.mac, link.mtu)))
            });
            told.unwrap()
        };
        host.run(|| {
            let mut route = Route::open()?;
            route.create_bridge("host0")?;
            let link = route.index("host0")?;
            for (ip, prefix) in [("192.0.2.1", 24), ("192.0.2.2", 24), ("2001:db8::1", 64)] {
                route.add_address(Address { link, ip: ip.parse().unwrap(), prefix })?;
            }
            route.set_up("host0")
        })
        .unwrap();
        let (first, told) = seen(&at("192.0.2.1", "10.42.0.0/24", 1));
        assert_eq!(told, "1 192.0.2.1 [e, 58, a, 2a, 0, 0] 1450 10.42.0.0/32");
        assert_eq!(seen(&at("192.0.2.1", "10.42.0.0/24", 1)), (first, told), "twice");
        let (again, told) = seen(&at("192.0.2.1", "10.42.7.0/24,fd42:0:0:7::/64", 1));
        let both = "1 192.0.2.1 [e, 58, a, 2a, 7, 0] 1450 10.42.7.0/32 fd42:0:0:7::/128";
        assert_eq!((again, told.as_str()), (first, both));
        let (other, told) = seen(&at("192.0.2.2", "10.42.7.0/24", 9));
        assert!(other != first && told == "9 192.0.2.2 [e, 58, a, 2a, 7, 0] 1450 10.42.7.0/32", "{told}");
        let (_, told) = seen(&at("2001:db8::1", "fd42:0:0:7::/64", 9));
        assert_eq!(told, "9 2001:db8::1 [e, 58, 0, 0, 0, 7] 1430 fd42:0:0:7::/128");
        let refused = |(end, vni): &(End, u32)| {
            let made = host.run(|| Ok(make_link(&mut Route::open()?, "kx-x", end, *vni).map(drop)));
            made.unwrap().unwrap_err().to_string()
        };
        let nowhere = refused(&at("198.51.100.1", "10.42.7.0/24", 9));
        assert_eq!(nowhere, "find the link with the Node's address 198.51.100.1");
        host.run(|| Route::open()?.set_mtu("host0", 1300)).unwrap();
        let small = refused(&at("2001:db8::1", "fd42:0:0:7::/64", 9));
        assert_eq!(
            small,
            "the link with 2001:db8::1 leaves 1230 bytes for a packet of Pods, and IPv6 needs 1280"
        );
        seen(&at("192.0.2.1", "10.42.7.0/24", 9));
    }
}
