//! The wire between the Nodes on one host: a bridge in the host's namespace, and a veth pair to that of each Node.
//!
//! The bridge has the first address of each range, which is the Nodes' default route of its family; the first Node's own
//! addresses are made neighbours on the wire, so that the Nodes are on one network, as plain routes between Pods want it. What
//! the others send elsewhere leaves with the host's address. Making what is there already changes nothing; all of it is named
//! after the cluster's folder, and taken back by [`remove`].

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::{Context, Result};
use base::{Random, Tasks};
use controller::FlushedRules;
use machinery::net::{Cidr, Cidrs, Family};
use sys::forwarding;
use sys::netlink::{Address, NewRoute, Route, VethPeer};
use sys::netns::{NetNs, NetNsFolder, set_sysctl};
use sys::nftables::{
    self, ChainKind, Compare, Expr, Flushes, Hook, Table, TableFamily, destination_in, source_in,
};

use super::local_nodes::{LocalNode, bridge_name};
use crate::components::Settings;
use crate::layout::Layout;

/// A Node's end of its pair, in its namespace.
const LINK: &str = "eth0";

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
fn mac_of(ip: IpAddr) -> [u8; 6] {
    let [a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => (ip.to_bits() as u32).to_be_bytes(),
    };
    [0x0a, 0x58, a, b, c, d]
}

fn bits_of(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// What the wire is made of.
struct Wire(Vec<Part>);

/// Its part of one family.
struct Part {
    range: Cidr,
    /// The bridge's own.
    gateway: IpAddr,
    /// The first Node's.
    first: IpAddr,
}

/// Makes the wire and the namespaces of the Nodes on it, as far as they are missing.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn connect(settings: &Settings, cluster: &Layout) -> Result<Vec<(LocalNode, NetNs)>> {
    let nodes = settings.local_nodes(cluster)?;
    let Some(cidrs) = settings.nodes_cidr.filter(|_| !nodes.is_empty()) else { return Ok(Vec::new()) };
    let wire = Wire::of(cidrs, &settings.node_ips())?;
    let mut route = Route::open()?;
    let bridge = wire.make_bridge(&mut route, &bridge_name(cluster)).context("connect the Nodes")?;
    for part in &wire.0 {
        let family = part.range.family();
        match family {
            Family::V4 => forwarding::allow_ipv4(Some(&forwarded_before(cluster, family)))?,
            Family::V6 => forwarding::allow_ipv6(Some(&forwarded_before(cluster, family)))?,
        }
        let pods = settings.args.cluster_cidr.of(family).context("find the addresses of Pods")?;
        nftables::apply(None, &table(&table_name(cluster), part.range, pods))?;
    }
    let mut connected = Vec::new();
    for node in nodes {
        let network = namespace(cluster, &node)?;
        let ips = settings.of_local_node(&node)?.node_ips();
        wire.plug(&mut route, &port_name(&node), bridge, &network, &ips)
            .with_context(|| format!("connect Node {}", node.number))?;
        connected.push((node, network));
    }
    Ok(connected)
}

/// Makes the rules of the wire again that somebody has taken from the kernel, in the first Node's process.
pub(crate) fn keep_rules(settings: &Settings, cluster: &Layout, flushed: FlushedRules, tasks: &Tasks) {
    let Some(cidrs) = settings.nodes_cidr else { return };
    let (name, all_pods, random) = (table_name(cluster), settings.args.cluster_cidr, Random::from_system());
    let mut flushes = Flushes::of_table(name.clone());
    tasks.spawn("rules of the Nodes' wire", async move {
        loop {
            flushes.next(&random).await;
            let tables =
                cidrs.iter().filter_map(|range| Some(table(&name, range, all_pods.of(range.family())?)));
            let tables: Vec<Table> = tables.collect();
            match tokio::task::spawn_blocking(move || nftables::replace_all(&tables)).await {
                Ok(Ok(())) => flushed.tell(),
                Ok(Err(error)) => tracing::error!(%error, "cannot make the rules of the Nodes' wire"),
                Err(error) => tracing::error!(%error, "cannot make the rules of the Nodes' wire"),
            }
        }
    });
}

/// Where the host's settings before are kept for [`remove`].
fn forwarded_before(cluster: &Layout, family: Family) -> PathBuf {
    cluster.nodes().join(match family {
        Family::V4 => "ip_forward.before",
        Family::V6 => "ip6_forward.before",
    })
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

/// What the Nodes themselves send elsewhere; that of their Pods each Node has given its own address.
fn table(name: &str, range: Cidr, pods: Cidr) -> Table {
    let mut table = Table { family: table_family(range.family()), ..Table::new(name) };
    table.base_chain("postrouting", ChainKind::Nat, Hook::Postrouting, 101);
    let mut rule = source_in(range.address(), range.bits(), Compare::Equal);
    rule.extend(destination_in(range.address(), range.bits(), Compare::NotEqual));
    rule.extend(destination_in(pods.address(), pods.bits(), Compare::NotEqual));
    rule.push(Expr::Masquerade);
    table.rule("postrouting", rule);
    table
}

fn table_family(family: Family) -> TableFamily {
    match family {
        Family::V4 => TableFamily::Ipv4,
        Family::V6 => TableFamily::Ipv6,
    }
}

/// Has IPv6 on a link of this thread's namespace: its addresses are nobody else's, and there is no router to listen to.
fn set_up_ipv6(link: &str) -> sys::Result<()> {
    let off = ["disable_ipv6", "accept_dad", "accept_ra"];
    off.into_iter().try_for_each(|name| set_sysctl(&format!("net/ipv6/conf/{link}/{name}"), "0"))
}

impl Wire {
    /// Of each range that the first Node has an address beside.
    fn of(cidrs: Cidrs, firsts: &[IpAddr]) -> Result<Self> {
        let part = |range: Cidr| {
            let first = firsts.iter().copied().find(|ip| Family::of(*ip) == range.family());
            let first = first.context("find the first Node's address")?;
            Ok(Part { range, gateway: range.nth(1).context("find the bridge's address")?, first })
        };
        Ok(Self(cidrs.iter().map(part).collect::<Result<_>>()?))
    }

    fn has(&self, family: Family) -> bool {
        self.0.iter().any(|part| part.range.family() == family)
    }

    /// The bridge's: otherwise it takes that of a port, which changes as ports come and go.
    fn mac(&self) -> [u8; 6] {
        self.0.first().map(|part| mac_of(part.gateway)).unwrap_or_default()
    }

    /// Returns its number.
    fn make_bridge(&self, route: &mut Route, name: &str) -> Result<u32> {
        if route.link(name)?.is_none() {
            route.create_bridge(name)?;
        }
        if self.has(Family::V6) {
            set_up_ipv6(name)?;
        }
        route.set_mac(name, self.mac())?;
        route.set_up(name)?;
        let link = route.index(name)?;
        let own = self.0.iter().map(|part| Address { link, ip: part.gateway, prefix: part.range.bits() });
        settle_addresses(route, link, &own.collect::<Vec<_>>())?;
        Ok(link)
    }

    fn plug(
        &self,
        route: &mut Route,
        port: &str,
        bridge: u32,
        network: &NetNs,
        ips: &[IpAddr],
    ) -> Result<()> {
        let mac = mac_of(*ips.first().context("find the Node's address")?);
        let is_there = network.run(|| Ok(Route::open()?.link(LINK)?.is_some()))?;
        if !is_there || route.link(port)?.is_none_or(|link| link.master != Some(bridge)) {
            route.delete_link(port)?;
            let peer = VethPeer { name: LINK, namespace: network.as_fd(), mac: Some(mac) };
            route.create_veth(port, None, Some(bridge), &peer)?;
        }
        route.set_up(port)?;
        network.run(|| {
            let mut route = Route::open()?;
            let link = route.index(LINK)?;
            route.set_mac(LINK, mac)?;
            if self.has(Family::V6) {
                set_up_ipv6(LINK)?;
            }
            let of = |part: &Part| ips.iter().copied().find(|ip| part.range.contains(*ip));
            let own = self
                .0
                .iter()
                .filter_map(|part| Some(Address { link, ip: of(part)?, prefix: part.range.bits() }));
            settle_addresses(&mut route, link, &own.collect::<Vec<_>>())?;
            route.set_up(LINK)?;
            self.0.iter().try_for_each(|part| self.lead_out(&mut route, link, part))
        })?;
        Ok(())
    }

    /// The ways from a Node's end to the first Node, and out.
    fn lead_out(&self, route: &mut Route, link: u32, part: &Part) -> sys::Result<()> {
        let to_first = Some((part.first, bits_of(part.first)));
        route.add_route(&NewRoute { destination: to_first, link: Some(link), ..NewRoute::default() })?;
        if part.first.is_ipv6() {
            // Who is asked on a link answers for the addresses of that link alone.
            route.set_neighbour(link, part.first, self.mac())?;
        }
        let gateway = Some(part.gateway);
        route.add_route(&NewRoute { gateway, link: Some(link), ..NewRoute::default() })
    }
}

/// The link's only ones, beside what IPv6 makes itself.
fn settle_addresses(route: &mut Route, link: u32, wanted: &[Address]) -> sys::Result<()> {
    let is_of_link = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    for other in route.addresses()? {
        if other.link == link && !is_of_link(other.ip) && !wanted.contains(&other) {
            route.delete_address(other)?;
        }
    }
    wanted.iter().try_for_each(|address| route.add_address(*address))
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
    for family in [Family::V4, Family::V6] {
        nftables::delete_table_of(table_family(family), &table_name(cluster))?;
        forwarding::restore(&forwarded_before(cluster, family))?;
    }
    names.leave()?;
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

    /// Of a host at this address, and the Node's address, in this order of families.
    fn plug((host, network): (&NetNs, &NetNs), cidrs: &str) {
        let firsts = [[192, 0, 2, 1].into(), "2001:db8::1".parse().unwrap()];
        let cidrs: Cidrs = cidrs.parse().unwrap();
        let wire = Wire::of(cidrs, &firsts).unwrap();
        let ips: Vec<IpAddr> = cidrs.iter().map(|cidr| cidr.nth(2).unwrap()).collect();
        host.run(|| {
            let mut route = Route::open()?;
            let bridge = wire.make_bridge(&mut route, "kb-x").unwrap();
            wire.plug(&mut route, "kl-x", bridge, network, &ips).unwrap();
            Ok(())
        })
        .unwrap();
    }

    fn seen(network: &NetNs, family: Family) -> String {
        let texts = network.run(|| {
            let mut route = Route::open()?;
            let is_ours = |ip: IpAddr| {
                let text = ip.to_string();
                Family::of(ip) == family
                    && !ip.is_loopback()
                    && !text.starts_with("fe80")
                    && !text.starts_with("ff")
            };
            let addresses = route.addresses()?.into_iter().filter(|it| is_ours(it.ip));
            let addresses: Vec<String> = addresses.map(|it| format!("{}/{}", it.ip, it.prefix)).collect();
            // The kernel makes those to the networks of addresses.
            let is_made = |it: &RouteEntry| {
                let is_of_address = it.destination.is_some_and(|(ip, bits)| {
                    addresses
                        .iter()
                        .any(|own| own.parse::<Cidr>().unwrap().network() == Cidr::new(ip, bits).unwrap())
                });
                let ip = it.destination.map(|(ip, _)| ip).or(it.gateway);
                !is_of_address && ip.is_some_and(is_ours)
            };
            let routes = route.routes()?.into_iter().filter(is_made);
            let routes = routes.map(|it| format!("{:?} via {:?}", it.destination, it.gateway));
            let mut routes: Vec<String> = routes.collect();
            routes.sort();
            Ok(addresses.into_iter().chain(routes).collect::<Vec<_>>().join("; "))
        });
        texts.unwrap()
    }

    #[test]
    fn a_node_is_plugged_in_once_and_again_with_another_address() {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let (host, network) = (NetNs::anonymous().unwrap(), NetNs::anonymous().unwrap());
        let both = (&host, &network);
        plug(both, "10.44.0.0/24");
        let first = seen(&network, Family::V4);
        assert_eq!(first, "10.44.0.2/24; None via Some(10.44.0.1); Some((192.0.2.1, 32)) via None");
        plug(both, "10.44.0.0/24");
        assert_eq!(seen(&network, Family::V4), first, "twice");
        plug(both, "10.45.0.0/24");
        assert_eq!(seen(&network, Family::V4), first.replace("10.44", "10.45"), "another range");
        assert_eq!(seen(&host, Family::V4), "10.45.0.1/24");
        assert_eq!(seen(&network, Family::V6), "");
        let v6 = "fd44::2/64; None via Some(fd44::1); Some((2001:db8::1, 128)) via None";
        for cidrs in ["10.45.0.0/24,fd44::/64", "fd44::/64"] {
            plug(both, cidrs);
            assert_eq!(seen(&network, Family::V6), v6, "{cidrs}");
            assert_eq!(seen(&host, Family::V6), "fd44::1/64", "{cidrs}");
        }
        assert_eq!(seen(&host, Family::V4), "", "it was given up");
    }

    /// The first Node's address is on another link of the host, for which nobody answers on the wire.
    #[test]
    fn a_node_reaches_the_first_by_ipv6_and_is_reached() {
        use std::net::{TcpListener, TcpStream};
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let (host, network) = (NetNs::anonymous().unwrap(), NetNs::anonymous().unwrap());
        let first = host.run(|| {
            let mut route = Route::open()?;
            route.create_bridge("uplink")?;
            let link = route.index("uplink")?;
            route.add_address(Address { link, ip: "2001:db8::1".parse().unwrap(), prefix: 64 })?;
            route.set_up("uplink")
        });
        first.unwrap();
        plug((&host, &network), "fd44::/64");
        for (at, ip, from) in [(&host, "2001:db8::1", &network), (&network, "fd44::2", &host)] {
            let listener = at.run(|| Ok(TcpListener::bind((ip, 80)).unwrap())).unwrap();
            let to = listener.local_addr().unwrap();
            let timeout = std::time::Duration::from_secs(30);
            let reached = from.run(|| Ok(TcpStream::connect_timeout(&to, timeout).is_ok())).unwrap();
            assert!(reached, "{ip}");
        }
    }

    #[test]
    fn only_what_leaves_the_cluster_gets_the_hosts_address() {
        let check = |range: &str, pods: &str| {
            let (range, pods): (Cidr, Cidr) = (range.parse().unwrap(), pods.parse().unwrap());
            let table = table("t", range, pods);
            let rules = &table.chains["postrouting"].rules;
            assert_eq!((rules.len(), table.family), (1, table_family(range.family())));
            let compared: Vec<_> = rules[0]
                .iter()
                .filter_map(|step| match step {
                    Expr::Compare(_, how, value) => Some((*how, value.clone())),
                    _ => None,
                })
                .collect();
            let octets = |cidr: Cidr| match cidr.address() {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            let row = |how, cidr| (how, octets(cidr));
            assert_eq!(
                compared,
                [row(Compare::Equal, range), row(Compare::NotEqual, range), row(Compare::NotEqual, pods)]
            );
            assert_eq!(rules[0].last(), Some(&Expr::Masquerade));
        };
        check("10.44.0.0/24", "10.42.0.0/16");
        check("fd44::/64", "fd42::/56");
    }
}
