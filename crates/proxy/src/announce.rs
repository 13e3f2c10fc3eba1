//! Addresses of the load balancer's pool: each is one Node's at a time, which has it on the link of Services and tells
//! its neighbours so.
//!
//! Every Node decides for itself, by what all know of Nodes, and comes to the same end: nobody has to be asked. When a
//! Node goes, its addresses alone move.
//!
//! Who asks for the holder of an IPv4 address hears of it on whatever link it is asked; of IPv6 only on the link that has it.
//! So the link of the Node's own address has IPv6 addresses of the pool, too, and gives them back with those of the link of
//! Services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use machinery::net::Family;
use sys::netlink::{Address, Route};

use crate::services::PoolAddress;
use crate::{Config, Nodes, bits};

/// The addresses that this Node has to have.
pub(crate) fn own<'a>(
    pool: impl Iterator<Item = &'a PoolAddress>,
    nodes: &Nodes,
    own: &str,
) -> BTreeSet<IpAddr> {
    pool.filter(|address| holder(address, nodes) == Some(own)).map(|address| address.ip).collect()
}

/// The Node that has an address: of those that may, the one with the highest score.
fn holder<'a>(address: &PoolAddress, nodes: &'a Nodes) -> Option<&'a str> {
    let may = |node: &&String| address.only.as_ref().is_none_or(|only| only.contains(*node));
    nodes.balancing.iter().filter(may).max_by_key(|node| score(address.ip, node)).map(String::as_str)
}

/// A number that follows from both (FNV-1a, and a last mixing: names that differ at their end only are far apart).
fn score(ip: IpAddr, node: &str) -> u64 {
    let ip = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let bytes = ip.into_iter().chain(node.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Makes the link have these addresses beside those that it always has, and tells the Node's neighbours of new ones.
pub(crate) fn apply(config: &Config, wanted: &BTreeSet<IpAddr>) -> sys::Result<()> {
    let mut route = Route::open()?;
    let link = route.index(&config.link_name())?;
    let all = route.addresses()?;
    let current = of_link(&all, link).filter(|ip| !config.local_addresses.contains(ip));
    for ip in current.filter(|ip| !wanted.contains(ip)) {
        take(&mut route, &all, link, ip)?;
    }
    let is_there = |address: &Address| all.contains(address);
    let uplinks = uplinks(config, &all, wanted, &mut route)?;
    for ip in wanted {
        let uplink = uplinks.iter().find(|uplink| uplink.family == Family::of(*ip));
        let on_uplink = uplink.filter(|_| ip.is_ipv6()).map(|uplink| alone(uplink.link, *ip));
        let missing: Vec<Address> =
            [alone(link, *ip)].into_iter().chain(on_uplink).filter(|address| !is_there(address)).collect();
        if missing.is_empty() {
            continue;
        }
        for address in missing {
            route.add_passive_address(address)?;
        }
        tracing::info!(%ip, "this node has an address of the load balancer");
        if let Some(uplink) = uplink {
            sys::neighbours::announce(uplink.link, uplink.mac, *ip)?;
        }
    }
    Ok(())
}

/// Takes what a link has from all others that have it, too.
pub(crate) fn withdraw(link: &str) -> sys::Result<()> {
    let mut route = Route::open()?;
    let Some(link) = route.link(link)? else { return Ok(()) };
    let all = route.addresses()?;
    of_link(&all, link.index).try_for_each(|ip| take(&mut route, &all, link.index, ip))
}

/// Where neighbours are.
struct Uplink {
    family: Family,
    link: u32,
    mac: [u8; 6],
}

/// The links with the Node's addresses, of families that are wanted. Without hardware there are no neighbours.
fn uplinks(
    config: &Config,
    all: &[Address],
    wanted: &BTreeSet<IpAddr>,
    route: &mut Route,
) -> sys::Result<Vec<Uplink>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let links = route.links()?;
    let uplink = |ip: &IpAddr| {
        let at = all.iter().find(|address| address.ip == *ip)?;
        let link = links.iter().find(|link| link.index == at.link)?;
        let mac = link.mac.as_slice().try_into().ok().filter(|mac| *mac != [0; 6])?;
        Some(Uplink { family: Family::of(*ip), link: link.index, mac })
    };
    Ok(config.node_ips.iter().filter_map(uplink).collect())
}

/// An address without a network behind it.
fn alone(link: u32, ip: IpAddr) -> Address {
    Address { link, ip, prefix: bits(Family::of(ip)) }
}

/// Addresses of a link that stand alone.
fn of_link(all: &[Address], link: u32) -> impl Iterator<Item = IpAddr> {
    all.iter().filter(move |address| **address == alone(link, address.ip)).map(|address| address.ip)
}

/// Takes an address from the link, and one of IPv6 from all that have it alone.
fn take(route: &mut Route, all: &[Address], link: u32, ip: IpAddr) -> sys::Result<()> {
    let is_it =
        |address: &&Address| **address == alone(address.link, ip) && (address.link == link || ip.is_ipv6());
    all.iter().filter(is_it).try_for_each(|address| route.delete_address(*address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(names: &[&str]) -> Nodes {
        Nodes { balancing: names.iter().map(|name| (*name).to_owned()).collect(), ..Nodes::default() }
    }

    fn pool() -> Vec<PoolAddress> {
        (0..60).map(|last| PoolAddress { ip: [198, 51, 100, last].into(), only: None }).collect()
    }

    #[test]
    fn each_address_is_one_nodes_and_moves_only_when_that_node_goes() {
        let (all, names) = (pool(), ["node-a", "node-b", "node-c"]);
        let of = |name: &str, nodes: &Nodes| own(all.iter(), nodes, name);
        let before: Vec<_> = names.iter().map(|name| of(name, &nodes(&names))).collect();
        assert_eq!(before.iter().map(BTreeSet::len).sum::<usize>(), all.len());
        assert!(before.iter().all(|own| own.len() > 8), "shared out: {before:?}");
        for (name, had) in names.iter().zip(&before).take(2) {
            let now = of(name, &nodes(&names[..2]));
            assert!(now.is_superset(had), "{name} keeps what it had");
        }
        assert!(of("node-c", &nodes(&names[..2])).is_empty());
        assert!(of("node-a", &nodes(&[])).is_empty());
    }

    #[test]
    fn what_stays_on_a_node_is_held_where_its_endpoints_are() {
        let only = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let address = |only| [PoolAddress { ip: [198, 51, 100, 1].into(), only }];
        let nodes = nodes(&["a", "b"]);
        for name in ["a", "b"] {
            assert_eq!(own(address(only(&[name])).iter(), &nodes, name).len(), 1, "{name}");
        }
        assert!(own(address(only(&["c"])).iter(), &nodes, "c").is_empty(), "a Node that takes no part");
        assert!(own(address(only(&[])).iter(), &nodes, "a").is_empty());
    }
}
