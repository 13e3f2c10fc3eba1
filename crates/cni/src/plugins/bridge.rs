//! `bridge`: a veth pair between the Pod and a bridge, an address of each of the node's ranges, a default route for each
//! family.
//!
//! Upstream's fields, and two of our own: with `routed`, the Pod's address is a host address and everything goes
//! through the bridge's own address, so that the host sees (and can translate) what Pods say to each other; what goes to
//! `clusterCIDR` keeps its source address under `ipMasq`. What is not built in is refused by name.
//! With `routed`, too, a port sends with its Pod's addresses only, ARP and neighbour discovery included ([`guard`]).
//! Nothing waits for duplicate addresses to be detected: nobody else gives any, and the guard lets nobody claim another's.
//! The veth's peer is made right inside the Pod's namespace, which is 20 times quicker than moving it there.

mod guard;

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use machinery::net::{Cidr, Cidrs, Family};
use serde::Deserialize;
use serde_json::Value;
use sys::netlink::{Address, NewRoute, Route, RouteEntry, VethPeer};
use sys::netns::{NetNs, set_sysctl, sysctl};

use super::host_local::HostLocal;
use super::rules::{owner_network, owner_of};
use super::{Attached, Kind, Site, mac_text};
use crate::attachment::Attachment;
use crate::types::{CniError, CniResult, Interface, RouteConfig};

const DEFAULT_ROUTES: [(Family, &str); 2] = [(Family::V4, "0.0.0.0/0"), (Family::V6, "::/0")];
/// How long a port may take until it passes on packets, which it does at once unless the kernel is very busy.
const OPERATIONAL_SECONDS_MAX: u32 = 10;
/// Names of the host's ends of Pods' veth pairs start with this.
pub(crate) const VETH_PREFIX: &str = "kv";

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Conf {
    #[serde(default = "cni0")]
    bridge: String,
    #[serde(default)]
    is_gateway: bool,
    #[serde(default)]
    is_default_gateway: bool,
    #[serde(default)]
    ip_masq: bool,
    #[serde(default)]
    hairpin_mode: bool,
    #[serde(default)]
    routed: bool,
    #[serde(default, rename = "clusterCIDR")]
    cluster_cidr: Option<Cidrs>,
    #[serde(default)]
    mtu: u32,
    ipam: Value,
}

fn cni0() -> String {
    "cni0".to_owned()
}

/// Upstream's fields that mean something else than what is built in.
const UNSUPPORTED: [&str; 8] = [
    "vlan",
    "vlanTrunk",
    "promiscMode",
    "macspoofchk",
    "enabledad",
    "portIsolation",
    "disableContainerInterface",
    "forceAddress",
];

/// The plugin with its configuration, its addresses and its connection to the kernel.
#[derive(Debug)]
pub(crate) struct Bridge {
    network: String,
    conf: Conf,
    /// What the configuration says itself.
    dns: Option<Value>,
    routes: Vec<RouteConfig>,
    addresses: HostLocal,
    site: Site,
    route: Mutex<Route>,
}

impl Bridge {
    pub(super) fn new(network: &str, conf: &Value, site: &Site) -> Result<Self, CniError> {
        let invalid = |reason: String| CniError::Config { path: network.into(), reason };
        let is_set = |field: &str| conf.get(field).is_some_and(|value| !super::is_empty(value));
        if let Some(field) = UNSUPPORTED.into_iter().find(|field| is_set(field)) {
            return Err(CniError::Unsupported { network: network.to_owned(), field });
        }
        super::check_backend(conf, network, "ipMasqBackend")?;
        let dns = conf.get("dns").filter(|dns| !super::is_empty(dns)).cloned();
        let conf: Conf = serde_json::from_value(conf.clone()).map_err(|error| invalid(error.to_string()))?;
        if conf.ipam.get("type").and_then(Value::as_str).and_then(Kind::of) != Some(Kind::HostLocal) {
            return Err(invalid("the built-in bridge plugin has no other ipam type than host-local".into()));
        }
        let (addresses, mut routes) = HostLocal::configured(network, &conf.ipam, site)?;
        check_routes(network, &routes, &addresses)?;
        for (_, dst) in DEFAULT_ROUTES.into_iter().filter(|(family, _)| addresses.gives(*family)) {
            if conf.is_default_gateway && !routes.iter().any(|route| route.dst == dst) {
                routes.push(RouteConfig { dst: dst.into(), ..RouteConfig::default() });
            }
        }
        let (network, site) = (network.to_owned(), site.clone());
        Ok(Self { network, conf, dns, routes, addresses, site, route: Mutex::new(Route::open()?) })
    }

    /// Makes the bridge, its address and the masquerade rule, as far as they are missing.
    pub(super) fn prepare(&self) -> Result<(), CniError> {
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        self.prepare_bridge(&mut route)?;
        self.masquerade(owner_network(&self.network))
    }

    /// Makes the rules again, since somebody has taken some of them: those of ports first, without which a Pod can say that
    /// it is another.
    pub(super) fn rules_again<'a>(
        &self,
        kept: impl Iterator<Item = (&'a Attachment, &'a CniResult)>,
    ) -> Result<(), CniError> {
        let guarded = self.guard_again(kept);
        self.site.rules.again().and(guarded)
    }

    fn masquerade(&self, owner: String) -> Result<(), CniError> {
        if !self.conf.ip_masq {
            return Ok(());
        }
        let pair = |pods: Cidr| {
            let cluster = self.conf.cluster_cidr.and_then(|all| all.of(pods.family()));
            (pods, cluster.unwrap_or(pods))
        };
        let pairs: Vec<(Cidr, Cidr)> = self.addresses.ranges().map(|range| pair(range.subnet)).collect();
        self.site.rules.change(move |rules| {
            rules.masquerade.insert(owner, pairs);
        })
    }

    fn prepare_bridge(&self, route: &mut Route) -> Result<u32, CniError> {
        let name = &self.conf.bridge;
        let found = route.link(name)?;
        if found.as_ref().is_some_and(|link| link.kind != "bridge") {
            let reason = format!("there is a link {name} already that is no bridge");
            return Err(CniError::Config { path: self.network.clone().into(), reason });
        }
        if found.is_none() {
            route.create_bridge(name)?;
        }
        if self.addresses.gives(Family::V6) {
            // Pods are no routers, and what the bridge is it is told here.
            set_up_ipv6(name, &["accept_ra", "accept_dad", "accept_redirects"])?;
        }
        let index = match found {
            Some(link) if link.is_up => link.index,
            _ => {
                // An address of its own: otherwise it takes that of a port, which changes as ports come and go.
                let gateways = self.addresses.ranges().map(|range| range.gateway);
                route.set_mac(name, mac_of(&gateways.collect::<Vec<_>>()))?;
                route.set_up(name)?;
                route.index(name)?
            }
        };
        if !(self.conf.is_gateway || self.conf.is_default_gateway || self.conf.routed) {
            return Ok(index);
        }
        for range in self.addresses.ranges() {
            route.add_address(Address { link: index, ip: range.gateway, prefix: range.subnet.bits() })?;
        }
        self.forward_packets()?;
        Ok(index)
    }

    /// The host's settings before are kept, so that cleanup can take this back.
    fn forward_packets(&self) -> Result<(), CniError> {
        type Allow = fn(Option<&std::path::Path>) -> sys::Result<()>;
        let families: [(Family, Allow, &str); 2] = [
            (Family::V4, sys::forwarding::allow_ipv4, "net/bridge/bridge-nf-call-iptables"),
            (Family::V6, sys::forwarding::allow_ipv6, "net/bridge/bridge-nf-call-ip6tables"),
        ];
        for (family, allow, by_bridges) in families {
            if !self.addresses.gives(family) {
                continue;
            }
            allow(self.site.before(family).as_deref())?;
            if !self.conf.routed && sysctl(by_bridges).is_ok() {
                set_sysctl(by_bridges, "1")?;
            }
        }
        Ok(())
    }

    pub(super) fn add(&self, attachment: &Attachment) -> Result<CniResult, CniError> {
        let namespace = NetNs::open(&attachment.netns_path)?;
        // Our own runtime repeats what was cut off; others must not call twice without DEL between, and make a mistake.
        if self.site.rules.is_in_file()
            && namespace.run(|| Route::open()?.link(&attachment.ifname))?.is_some()
        {
            let (ifname, netns) = (attachment.ifname.clone(), attachment.netns_path.clone());
            return Err(CniError::InterfaceExists { ifname, netns });
        }
        let ips = self.addresses.reserve_for(attachment)?;
        let host_name = veth_name(&attachment.container_id, &attachment.ifname);
        let mac = attachment.wanted_mac()?.unwrap_or_else(|| mac_of(&ips));
        let on_host = self.connect(&host_name, &attachment.ifname, &namespace, mac)?;
        self.guard(&host_name, mac, &ips)?;
        namespace.run(|| self.set_up_inside(&attachment.ifname, &ips))?;
        // Nobody sends again what got lost in a port that is not ready. Source: upstream's plugin, which asks some times.
        Route::open()?.wait_operational(&[&self.conf.bridge, &host_name], OPERATIONAL_SECONDS_MAX)?;
        if self.site.rules.is_in_file() {
            self.masquerade(owner_of(attachment))?;
        }
        let dns = self.dns.clone().map_or_else(|| self.addresses.dns(), Ok)?;
        Ok(CniResult { dns, ..self.result(attachment, on_host, &ips, mac) })
    }

    /// Returns the bridge and its new port.
    fn connect(
        &self,
        host_name: &str,
        ifname: &str,
        namespace: &NetNs,
        mac: [u8; 6],
    ) -> Result<Vec<Interface>, CniError> {
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        let bridge = self.prepare_bridge(&mut route)?;
        let mtu = (self.conf.mtu != 0).then_some(self.conf.mtu);
        let peer = VethPeer { name: ifname, namespace: namespace.as_fd(), mac: Some(mac) };
        match route.create_veth(host_name, mtu, Some(bridge), &peer) {
            // Left by an attempt that was cut off.
            Err(error) if error.is_exists() => {
                route.delete_link(host_name)?;
                route.create_veth(host_name, mtu, Some(bridge), &peer)?;
            }
            made => made?,
        }
        // Also when routed: with `br_netfilter`, a Pod's packet to itself is translated and sent back by the bridge.
        let up = if self.conf.hairpin_mode { Route::set_up_hairpin_port } else { Route::set_up };
        up(&mut route, host_name)?;
        let mut made = Vec::new();
        for name in [self.conf.bridge.as_str(), host_name] {
            let mac = route.link(name)?.map(|link| mac_text(&link.mac)).unwrap_or_default();
            made.push(Interface { name: name.to_owned(), mac, ..Interface::default() });
        }
        Ok(made)
    }

    fn set_up_inside(&self, ifname: &str, ips: &[IpAddr]) -> sys::Result<()> {
        let mut route = Route::open()?;
        let link = route.index(ifname)?;
        if ips.iter().any(IpAddr::is_ipv6) {
            // As upstream: what the runtime has turned off is on where the network has it.
            set_up_ipv6("lo", &[])?;
            // The host would tell Pods to talk directly: they must not. Nor is there any other router.
            let off = ["accept_dad", "accept_ra", "accept_redirects"];
            set_up_ipv6(ifname, off.get(..if self.conf.routed { 3 } else { 1 }).unwrap_or_default())?;
        }
        for ip in ips {
            let prefix = match (self.conf.routed, ip, self.addresses.range_of(*ip)) {
                (false, _, Some(range)) => range.subnet.bits(),
                (_, IpAddr::V4(_), _) => 32,
                (_, IpAddr::V6(_), _) => 128,
            };
            route.add_address(Address { link, ip: *ip, prefix })?;
        }
        if self.conf.routed && ips.iter().any(IpAddr::is_ipv4) {
            set_sysctl("net/ipv4/conf/all/accept_redirects", "0")?;
            set_sysctl(&format!("net/ipv4/conf/{ifname}/accept_redirects"), "0")?;
        }
        route.set_up(ifname)?;
        for config in &self.routes {
            let Ok(destination) = config.dst.parse::<Cidr>() else { continue };
            let gateway = config.gw.or_else(|| self.gateway_of(ips, destination.family()));
            if gateway.is_none() {
                continue;
            }
            let to = (destination.bits() > 0).then(|| (destination.address(), destination.bits()));
            route.add_route(&NewRoute {
                destination: to,
                gateway,
                link: Some(link),
                on_link: self.conf.routed,
                ..NewRoute::default()
            })?;
        }
        Ok(())
    }

    /// The gateway of the first of these addresses that is of the family.
    fn gateway_of(&self, ips: &[IpAddr], family: Family) -> Option<IpAddr> {
        let first = ips.iter().find(|ip| Family::of(**ip) == family)?;
        Some(self.addresses.range_of(*first)?.gateway)
    }

    fn result(
        &self,
        attachment: &Attachment,
        mut interfaces: Vec<Interface>,
        ips: &[IpAddr],
        mac: [u8; 6],
    ) -> CniResult {
        let inside = Interface {
            name: attachment.ifname.clone(),
            mac: mac_text(&mac),
            mtu: None,
            sandbox: attachment.netns_path.display().to_string(),
            ..Interface::default()
        };
        interfaces.push(inside);
        CniResult {
            interfaces,
            ips: self.addresses.configs(ips, Some(2)),
            routes: self.routes.clone(),
            ..CniResult::default()
        }
    }

    /// The interface goes before the address is free for another Pod.
    pub(super) fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        let name = veth_name(&attachment.container_id, &attachment.ifname);
        self.route.lock().unwrap_or_else(PoisonError::into_inner).delete_link(&name)?;
        if self.site.rules.is_in_file() {
            self.site.rules.forget(owner_of(attachment))?;
        }
        let freed = self.addresses.release(&attachment.container_id, &attachment.ifname)?;
        self.unguard(&name, &freed)
    }

    pub(super) fn check(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        self.addresses.check(attachment)?;
        let name = veth_name(&attachment.container_id, &attachment.ifname);
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        let bridge = route.index(&self.conf.bridge)?;
        match route.link(&name)? {
            Some(link) if link.is_up && link.master == Some(bridge) => {}
            Some(_) => {
                return Err(CniError::Check(format!(
                    "link {name} is not an up port of {}",
                    self.conf.bridge
                )));
            }
            None => return Err(CniError::Check(format!("link {name} is missing"))),
        }
        drop(route);
        self.check_guard(attachment, previous)?;
        NetNs::open(&attachment.netns_path)?.run(|| Ok(self.check_inside(attachment, previous)))?.map_err(
            |problem| match problem {
                CniError::Check(what) => {
                    CniError::Check(format!("{what} in {}", attachment.netns_path.display()))
                }
                other => other,
            },
        )
    }

    /// The interface, its hardware address, addresses and routes.
    fn check_inside(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        let name = &attachment.ifname;
        let missing = |what: String| Err(CniError::Check(format!("{what} is missing")));
        let mut route = Route::open()?;
        let Some(link) = route.link(name)? else { return missing(format!("link {name}")) };
        let made = previous.interfaces.iter().find(|it| it.name == *name && !it.sandbox.is_empty());
        let mac = mac_text(&link.mac);
        // What runs in a Pod may change it, and is no worse connected: for that our own runtime ends no Pod.
        let minds = self.site.rules.is_in_file();
        if let Some(made) = made.filter(|made| minds && !made.mac.is_empty() && made.mac != mac) {
            return Err(CniError::Check(format!("hardware address of {name} is {mac}, not {}", made.mac)));
        }
        let addresses = route.addresses()?;
        let has = |ip: &IpAddr| addresses.iter().any(|it| it.link == link.index && it.ip == *ip);
        if let Some(ip) = previous.pod_ips(name).iter().find(|ip| !has(ip)) {
            return missing(format!("address {ip}"));
        }
        let there = route.routes()?;
        for config in &self.routes {
            let Ok(to) = config.dst.parse::<Cidr>() else { continue };
            let wanted = (to.bits() > 0).then(|| (to.address(), to.bits()));
            // A default route is of the family of its gateway.
            let is_it = |route: &RouteEntry| {
                route.destination == wanted
                    && route.link == Some(link.index)
                    && (wanted.is_some() || route.gateway.is_some_and(|ip| Family::of(ip) == to.family()))
            };
            if !there.iter().any(is_it) {
                let what =
                    if wanted.is_none() { "default route" } else { &format!("route to {}", config.dst) };
                return missing(what.to_owned());
            }
        }
        if link.is_up { Ok(()) } else { Err(CniError::Check(format!("link {name} is down"))) }
    }

    /// Takes away what belongs to nothing that is attached.
    pub(super) fn retain(&self, attached: &Attached) -> Result<(), CniError> {
        let stale = self.addresses.owners_beside(attached);
        for (container_id, ifname) in &stale {
            let (container_id, ifname) = (container_id.clone(), ifname.clone());
            self.del(&Attachment { container_id, ifname, ..Attachment::default() })?;
        }
        if !stale.is_empty() {
            tracing::info!(sandboxes = ?stale, "freed addresses of sandboxes that are gone");
        }
        if self.site.rules.is_in_file() {
            let attached = attached.clone();
            self.site.rules.change(move |rules| rules.masquerade.retain(|owner, _| attached.owns(owner)))?;
        }
        Ok(())
    }
}

/// Refuses routes that would not be made as they are meant. Source: CNI specification 1.1.0, "routes".
fn check_routes(network: &str, routes: &[RouteConfig], addresses: &HostLocal) -> Result<(), CniError> {
    const MORE: [&str; 5] = ["mtu", "advmss", "priority", "table", "scope"];
    for route in routes {
        let refused = |why: &str| {
            let reason = format!("route to {}: {why}", route.dst);
            Err(CniError::Config { path: network.into(), reason })
        };
        let Ok(to) = route.dst.parse::<Cidr>() else { return refused("it must be a network") };
        if !addresses.gives(to.family()) {
            return refused(&format!("no range has {} addresses", to.family().as_str()));
        }
        if route.gw.is_some_and(|gateway| Family::of(gateway) != to.family()) {
            return refused("its gateway is of the other family");
        }
        let says = |field: &&str| route.other.get(*field).is_some_and(|value| !super::is_empty(value));
        if let Some(field) = MORE.into_iter().find(says) {
            return Err(CniError::Unsupported { network: network.to_owned(), field });
        }
    }
    Ok(())
}

/// The host's end of a Pod's pair: the same for ADD and DEL, before and after a restart.
fn veth_name(container_id: &str, ifname: &str) -> String {
    let hash = super::hash_of(&format!("{container_id}/{ifname}"));
    format!("{VETH_PREFIX}{:012x}", hash & 0xffff_ffff_ffff)
}

/// Turns IPv6 on for a link of this thread's namespace, and these of its settings off.
fn set_up_ipv6(link: &str, off: &[&str]) -> sys::Result<()> {
    ["disable_ipv6"]
        .iter()
        .chain(off)
        .try_for_each(|name| set_sysctl(&format!("net/ipv6/conf/{link}/{name}"), "0"))
}

/// A hardware address made of the IP addresses: whoever gets them again has the same, so no stale neighbour. One of IPv4
/// says it all; of IPv6, the last four bytes do where the others are the same for all.
fn mac_of(ips: &[IpAddr]) -> [u8; 6] {
    let v4 = ips.iter().find_map(|ip| if let IpAddr::V4(ip) = ip { Some(ip.octets()) } else { None });
    let v6 = || {
        let ip = ips.iter().find_map(|ip| if let IpAddr::V6(ip) = ip { Some(ip.to_bits()) } else { None })?;
        let network = super::hash_of(&format!("{:x}", ip >> 32)) as u32;
        Some((ip as u32 ^ network).to_be_bytes())
    };
    let [a, b, c, d] = v4.or_else(v6).unwrap_or_default();
    [0x0a, 0x58, a, b, c, d]
}
