//! The wire between the Nodes on one host: a bridge in the host's namespace, and a veth pair to that of each Node.
//!
//! The bridge has the first address of the range, which is the Nodes' default route; the first Node's own address is made
//! a neighbour on the wire, so that the Nodes are on one network, as plain routes between Pods want it. What the others
//! send elsewhere leaves with the host's address. Making what is there already changes nothing; all of it is named
//! after the cluster's folder, and taken back by [`remove`].

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use machinery::net::Cidr;
use sys::netlink::{Address, NewRoute, Route, VethPeer};
use sys::netns::{NetNs, NetNsFolder, set_sysctl, sysctl};
use sys::nftables::{self, ChainKind, Compare, Expr, Hook, Table, destination_in, source_in};

use super::LocalNode;
use crate::components::Settings;
use crate::layout::Layout;

/// A Node's end of its pair, in its namespace.
const LINK: &str = "eth0";
const IP_FORWARD: &str = "net/ipv4/ip_forward";

/// The bridge of a cluster's Nodes.
pub(super) fn bridge_name(cluster: &Layout) -> String {
    format!("kb-{}", cluster.cluster_id())
}

fn port_name(node: &LocalNode) -> String {
    format!("kl-{}", node.layout.cluster_id())
}

fn table_name(cluster: &Layout) -> String {
    format!("knarr-{}-nodes", cluster.cluster_id())
}

fn names(cluster: &Layout) -> NetNsFolder {
    NetNsFolder::of_host(format!("knarr-{}-", cluster.cluster_id()))
}

fn name(cluster: &Layout, node: &LocalNode) -> String {
    format!("knarr-{}-{}", cluster.cluster_id(), node.number)
}

/// Like those of Pods: told by the address, so that a neighbour that is made anew is the same.
fn mac_of(ip: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = ip.octets();
    [0x0a, 0x58, a, b, c, d]
}

/// What the wire is made of.
struct Wire {
    range: (Ipv4Addr, u8),
    /// The bridge's own.
    gateway: Ipv4Addr,
    /// The first Node's.
    first: IpAddr,
}

/// Makes the wire and the namespaces of the Nodes on it, as far as they are missing.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn connect(settings: &Settings, cluster: &Layout) -> Result<Vec<(LocalNode, NetNs)>> {
    let nodes = settings.local_nodes(cluster)?;
    let Some(cidr) = settings.nodes_cidr.filter(|_| !nodes.is_empty()) else { return Ok(Vec::new()) };
    let wire = Wire::of(cidr, settings.node_ip)?;
    let mut route = Route::open()?;
    let bridge = wire.make_bridge(&mut route, &bridge_name(cluster)).context("connect the Nodes")?;
    forward_packets(cluster)?;
    let pods = settings.args.cluster_cidr.main().v4().context("--cluster-cidr must be an IPv4 network")?;
    nftables::apply(None, &table(&table_name(cluster), wire.range, pods))?;
    let mut connected = Vec::new();
    for node in nodes {
        let network = namespace(cluster, &node)?;
        let ip = cidr.nth(node.number.into()).and_then(v4).context("find the Node's address")?;
        wire.plug(&mut route, (&port_name(&node), bridge), &network, ip)
            .with_context(|| format!("connect Node {}", node.number))?;
        connected.push((node, network));
    }
    Ok(connected)
}

fn v4(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

/// The one that is kept, or a new one after the machine was started.
fn namespace(cluster: &Layout, node: &LocalNode) -> Result<NetNs> {
    let network = match node.network()? {
        Some(network) => network,
        None => {
            sys::netns::delete(&node.kept())?;
            // The name may still be that of one that is gone.
            names(cluster).hide(&name(cluster, node))?;
            NetNs::create(&node.kept())?
        }
    };
    if let Err(error) = names(cluster).show(&node.kept(), &name(cluster, node)) {
        tracing::warn!(%error, "the Node's network has no name in /run/netns");
    }
    Ok(network)
}

/// The host's setting before is kept for [`remove`].
fn forward_packets(cluster: &Layout) -> Result<()> {
    let before = sysctl(IP_FORWARD)?;
    if before != "1" {
        let file = cluster.nodes().join("ip_forward.before");
        std::fs::write(&file, before).with_context(|| format!("write {}", file.display()))?;
        set_sysctl(IP_FORWARD, "1")?;
    }
    Ok(())
}

/// What the Nodes themselves send elsewhere; that of their Pods each Node has given its own address.
fn table(name: &str, (range, bits): (Ipv4Addr, u8), (pods, pods_bits): (Ipv4Addr, u8)) -> Table {
    let mut table = Table::new(name);
    table.base_chain("postrouting", ChainKind::Nat, Hook::Postrouting, 101);
    let mut rule = source_in(range, bits, Compare::Equal);
    rule.extend(destination_in(range, bits, Compare::NotEqual));
    rule.extend(destination_in(pods, pods_bits, Compare::NotEqual));
    rule.push(Expr::Masquerade);
    table.rule("postrouting", rule);
    table
}

impl Wire {
    fn of(cidr: Cidr, first: IpAddr) -> Result<Self> {
        let gateway = cidr.nth(1).and_then(v4).context("find the bridge's address")?;
        Ok(Self { range: cidr.v4().context("--nodes-cidr must be an IPv4 network")?, gateway, first })
    }

    /// Returns its number.
    fn make_bridge(&self, route: &mut Route, name: &str) -> Result<u32> {
        if route.link(name)?.is_none() {
            route.create_bridge(name)?;
        }
        // An address of its own: otherwise it takes that of a port, which changes as ports come and go.
        route.set_mac(name, mac_of(self.gateway))?;
        route.set_up(name)?;
        let link = route.index(name)?;
        settle_address(route, Address { link, ip: self.gateway.into(), prefix: self.range.1 })?;
        Ok(link)
    }

    fn plug(
        &self,
        route: &mut Route,
        (port, bridge): (&str, u32),
        network: &NetNs,
        ip: Ipv4Addr,
    ) -> Result<()> {
        let is_there = network.run(|| Ok(Route::open()?.link(LINK)?.is_some()))?;
        if !is_there || route.link(port)?.is_none_or(|link| link.master != Some(bridge)) {
            route.delete_link(port)?;
            let peer = VethPeer { name: LINK, namespace: network.as_fd(), mac: Some(mac_of(ip)) };
            route.create_veth(port, None, Some(bridge), &peer)?;
        }
        route.set_up(port)?;
        network.run(|| {
            let mut route = Route::open()?;
            let link = route.index(LINK)?;
            route.set_mac(LINK, mac_of(ip))?;
            settle_address(&mut route, Address { link, ip: ip.into(), prefix: self.range.1 })?;
            route.set_up(LINK)?;
            let to_first = Some((self.first, 32));
            route.add_route(&NewRoute { destination: to_first, link: Some(link), ..NewRoute::default() })?;
            let gateway = Some(self.gateway.into());
            route.add_route(&NewRoute { gateway, link: Some(link), ..NewRoute::default() })
        })?;
        Ok(())
    }
}

/// The link's only one of IPv4.
fn settle_address(route: &mut Route, wanted: Address) -> sys::Result<()> {
    for other in route.addresses()? {
        if other.link == wanted.link && other.ip.is_ipv4() && other != wanted {
            route.delete_address(other)?;
        }
    }
    route.add_address(wanted)
}

/// Takes back the wire, with the namespaces of those Nodes that `nodes` are; of all of them, the host's part too.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn remove(cluster: &Layout, nodes: &[LocalNode], is_left: IsLeft) -> Result<()> {
    let (mut route, names) = (Route::open()?, names(cluster));
    for node in nodes {
        route.delete_link(&port_name(node))?;
        names.hide(&name(cluster, node))?;
        sys::netns::delete(&node.kept())?;
    }
    if is_left == IsLeft::Cluster {
        return Ok(());
    }
    route.delete_link(&bridge_name(cluster))?;
    nftables::delete_table(&table_name(cluster))?;
    names.leave()?;
    let before = cluster.nodes().join("ip_forward.before");
    if let Ok(value) = std::fs::read_to_string(&before) {
        set_sysctl(IP_FORWARD, value.trim())?;
        std::fs::remove_file(&before).with_context(|| format!("remove {}", before.display()))?;
    }
    Ok(())
}

/// What stays when Nodes are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IsLeft {
    /// Nothing.
    Nothing,
    /// The cluster and its other Nodes.
    Cluster,
}

#[cfg(test)]
mod tests {
    use sys::netlink::RouteEntry;

    use super::*;

    #[test]
    fn a_node_is_plugged_in_once_and_again_with_another_address() {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let (host, network) = (NetNs::anonymous().unwrap(), NetNs::anonymous().unwrap());
        let plug = |cidr: &str| {
            let wire = Wire::of(cidr.parse().unwrap(), [192, 0, 2, 1].into()).unwrap();
            let ip = v4(cidr.parse::<Cidr>().unwrap().nth(2).unwrap()).unwrap();
            host.run(|| {
                let mut route = Route::open()?;
                let bridge = wire.make_bridge(&mut route, "kb-x").unwrap();
                wire.plug(&mut route, ("kl-x", bridge), &network, ip).unwrap();
                Ok(())
            })
            .unwrap();
        };
        let seen = |network: &NetNs| {
            let texts = network.run(|| {
                let mut route = Route::open()?;
                let addresses =
                    route.addresses()?.into_iter().filter(|it| it.ip.is_ipv4() && !it.ip.is_loopback());
                let addresses = addresses.map(|it| format!("{}/{}", it.ip, it.prefix)).collect::<Vec<_>>();
                let is_ours = |it: &RouteEntry| {
                    it.source.is_none() && it.destination.is_none_or(|(ip, _)| ip.is_ipv4())
                };
                let routes = route.routes()?.into_iter().filter(is_ours);
                let routes = routes.map(|it| format!("{:?} via {:?}", it.destination, it.gateway));
                Ok(addresses.into_iter().chain(routes).collect::<Vec<_>>().join("; "))
            });
            texts.unwrap()
        };
        plug("10.44.0.0/24");
        let first = seen(&network);
        assert_eq!(first, "10.44.0.2/24; None via Some(10.44.0.1); Some((192.0.2.1, 32)) via None");
        plug("10.44.0.0/24");
        assert_eq!(seen(&network), first, "twice");
        plug("10.45.0.0/24");
        assert_eq!(seen(&network), first.replace("10.44", "10.45"), "another range");
        assert_eq!(seen(&host), "10.45.0.1/24");
    }

    #[test]
    fn only_what_leaves_the_cluster_gets_the_hosts_address() {
        let table = table("t", ([10, 44, 0, 0].into(), 24), ([10, 42, 0, 0].into(), 16));
        let rules = &table.chains["postrouting"].rules;
        assert_eq!(rules.len(), 1);
        let compared: Vec<_> = rules[0]
            .iter()
            .filter_map(|step| match step {
                Expr::Compare(_, how, value) => Some((*how, value.clone())),
                _ => None,
            })
            .collect();
        let row = |how, value: [u8; 4]| (how, value.to_vec());
        assert_eq!(
            compared,
            [
                row(Compare::Equal, [10, 44, 0, 0]),
                row(Compare::NotEqual, [10, 44, 0, 0]),
                row(Compare::NotEqual, [10, 42, 0, 0])
            ]
        );
        assert_eq!(rules[0].last(), Some(&Expr::Masquerade));
    }
}
