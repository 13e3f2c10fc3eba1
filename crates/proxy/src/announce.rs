//! Addresses of the load balancer's pool: each is one Node's at a time, which has it on the link of Services and tells
//! its neighbours so.
//!
//! Every Node decides for itself, by what all know of Nodes, and comes to the same end: nobody has to be asked. When a
//! Node goes, its addresses alone move.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use sys::netlink::{Address, Route};

use crate::services::PoolAddress;
use crate::{Config, Nodes};

/// The addresses that this Node has to have.
pub(crate) fn own<'a>(
    pool: impl Iterator<Item = &'a PoolAddress>,
    nodes: &Nodes,
    own: &str,
) -> BTreeSet<Ipv4Addr> {
    pool.filter(|address| holder(address, nodes) == Some(own)).map(|address| address.ip).collect()
}

/// The Node that has an address: of those that may, the one with the highest score.
fn holder<'a>(address: &PoolAddress, nodes: &'a Nodes) -> Option<&'a str> {
    let may = |node: &&String| address.only.as_ref().is_none_or(|only| only.contains(*node));
    nodes.balancing.iter().filter(may).max_by_key(|node| score(address.ip, node)).map(String::as_str)
}

/// A number that follows from both (FNV-1a, and a last mixing: names that differ at their end only are far apart).
fn score(ip: Ipv4Addr, node: &str) -> u64 {
    let bytes = ip.octets().into_iter().chain(node.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Makes the link have these addresses beside those that it always has, and tells the Node's neighbours of new ones.
pub(crate) fn apply(config: &Config, wanted: &BTreeSet<Ipv4Addr>) -> sys::Result<()> {
    let mut route = Route::open()?;
    let link = route.index(&config.link_name())?;
    let all = route.addresses()?;
    let of_link = all.iter().filter(|address| address.link == link && address.prefix == 32);
    let current: BTreeSet<Ipv4Addr> = of_link
        .filter_map(|address| match address.ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        })
        .filter(|ip| !config.local_addresses.contains(ip))
        .collect();
    for ip in current.difference(wanted) {
        route.delete_address(Address { link, ip: (*ip).into(), prefix: 32 })?;
    }
    let uplink = all.iter().find(|address| address.ip == config.node_ip).map(|address| address.link);
    let links = if wanted.is_subset(&current) { Vec::new() } else { route.links()? };
    let uplink = links.iter().find(|link| Some(link.index) == uplink);
    for ip in wanted.difference(&current) {
        route.add_address(Address { link, ip: (*ip).into(), prefix: 32 })?;
        tracing::info!(%ip, "this node has an address of the load balancer");
        // Without hardware there are no neighbours.
        if let Some((uplink, mac)) =
            uplink.and_then(|link| Some((link.index, link.mac.as_slice().try_into().ok()?)))
        {
            sys::arp::announce(uplink, mac, *ip)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(names: &[&str]) -> Nodes {
        Nodes { balancing: names.iter().map(|name| (*name).to_owned()).collect(), ..Nodes::default() }
    }

    fn pool() -> Vec<PoolAddress> {
        (0..60).map(|last| PoolAddress { ip: Ipv4Addr::new(198, 51, 100, last), only: None }).collect()
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
        let address = |only| [PoolAddress { ip: Ipv4Addr::new(198, 51, 100, 1), only }];
        let nodes = nodes(&["a", "b"]);
        for name in ["a", "b"] {
            assert_eq!(own(address(only(&[name])).iter(), &nodes, name).len(), 1, "{name}");
        }
        assert!(own(address(only(&["c"])).iter(), &nodes, "c").is_empty(), "a Node that takes no part");
        assert!(own(address(only(&[])).iter(), &nodes, "a").is_empty());
    }
}
