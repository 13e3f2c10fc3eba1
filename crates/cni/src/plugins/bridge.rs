//! `bridge`: a veth pair between the Pod and a bridge, an address of the node's range, a default route.
//!
//! Upstream's fields, and two of our own: with `routed`, the Pod's address is a host address and everything goes
//! through the bridge's own address, so that the host sees (and can translate) what Pods say to each other; what goes to
//! `clusterCIDR` keeps its source address under `ipMasq`. What is not built in is refused by name.
//! With `routed`, too, a port sends with its Pod's addresses only, ARP included.
//! The veth's peer is made right inside the Pod's namespace, which is 20 times quicker than moving it there.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::{Mutex, Once, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use sys::netlink::{Address, NewRoute, Route, VethPeer};
use sys::netns::{NetNs, set_sysctl, sysctl};
use sys::nftables;

use super::host_local::{HostLocal, parse_cidr};
use super::rules::{owner_network, owner_of};
use super::{Attached, Kind, Site, mac_text};
use crate::network::Attachment;
use crate::types::{CniError, CniResult, Interface, IpConfig, RouteConfig};

const DEFAULT_ROUTE: &str = "0.0.0.0/0";
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
    cluster_cidr: Option<String>,
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
        super::check_backend(conf, "ipMasqBackend").map_err(invalid)?;
        let dns = conf.get("dns").filter(|dns| !super::is_empty(dns)).cloned();
        let conf: Conf = serde_json::from_value(conf.clone()).map_err(|error| invalid(error.to_string()))?;
        if conf.ipam.get("type").and_then(Value::as_str).and_then(Kind::of) != Some(Kind::HostLocal) {
            return Err(invalid("the built-in bridge plugin has no other ipam type than host-local".into()));
        }
        let (addresses, mut routes) = HostLocal::configured(network, &conf.ipam, site)?;
        check_routes(network, &routes)?;
        if conf.is_default_gateway && !routes.iter().any(|route| route.dst == DEFAULT_ROUTE) {
            routes.push(RouteConfig { dst: DEFAULT_ROUTE.into(), ..RouteConfig::default() });
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

    fn masquerade(&self, owner: String) -> Result<(), CniError> {
        if !self.conf.ip_masq {
            return Ok(());
        }
        let range = self.addresses.range();
        let pods = (range.network, range.prefix);
        let inside = self.conf.cluster_cidr.as_deref().and_then(parse_cidr).unwrap_or(pods);
        self.site.rules.change(move |rules| {
            rules.masquerade.insert(owner, (pods, inside));
        })
    }

    fn prepare_bridge(&self, route: &mut Route) -> Result<u32, CniError> {
        let name = &self.conf.bridge;
        let range = self.addresses.range();
        let found = route.link(name)?;
        if found.as_ref().is_some_and(|link| link.kind != "bridge") {
            let reason = format!("there is a link {name} already that is no bridge");
            return Err(CniError::Config { path: self.network.clone().into(), reason });
        }
        let index = match found {
            Some(link) if link.is_up => link.index,
            found => {
                if found.is_none() {
                    route.create_bridge(name)?;
                }
                // An address of its own: otherwise it takes that of a port, which changes as ports come and go.
                route.set_mac(name, mac_of(range.gateway))?;
                route.set_up(name)?;
                route.index(name)?
            }
        };
        if !(self.conf.is_gateway || self.conf.is_default_gateway || self.conf.routed) {
            return Ok(index);
        }
        let gateway = Address { link: index, ip: range.gateway.into(), prefix: range.prefix };
        route.add_address(gateway)?;
        self.forward_packets()?;
        if !self.conf.routed && sysctl("net/bridge/bridge-nf-call-iptables").is_ok() {
            set_sysctl("net/bridge/bridge-nf-call-iptables", "1")?;
        }
        Ok(index)
    }

    /// The host's setting before is kept, so that cleanup can take this back.
    fn forward_packets(&self) -> Result<(), CniError> {
        let before = sysctl("net/ipv4/ip_forward")?;
        if before != "1" {
            if let Some(path) = &self.site.before {
                fs::write(path, before).map_err(CniError::state(path))?;
            }
            set_sysctl("net/ipv4/ip_forward", "1")?;
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
        let ip = self.addresses.reserve_for(attachment)?;
        let host_name = veth_name(&attachment.container_id, &attachment.ifname);
        let mac = attachment.wanted_mac()?.unwrap_or_else(|| mac_of(ip));
        let on_host = self.connect(&host_name, &attachment.ifname, &namespace, mac)?;
        self.guard(&host_name, mac, ip)?;
        namespace.run(|| self.set_up_inside(&attachment.ifname, ip))?;
        // Nobody sends again what got lost in a port that is not ready. Source: upstream's plugin, which asks some times.
        Route::open()?.wait_operational(&[&self.conf.bridge, &host_name], OPERATIONAL_SECONDS_MAX)?;
        if self.site.rules.is_in_file() {
            self.masquerade(owner_of(attachment))?;
        }
        let dns = self.dns.clone().map_or_else(|| self.addresses.dns(), Ok)?;
        Ok(CniResult { dns, ..self.result(attachment, on_host, ip, mac) })
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

    /// Lets a port send with its Pod's addresses only, and the host keep to those whatever it is told: no Pod gets what is
    /// another's. Only where the host routes between Pods: there, nobody else gives the interface more addresses.
    fn guard(&self, port: &str, mac: [u8; 6], ip: Ipv4Addr) -> Result<(), CniError> {
        if !self.conf.routed {
            return Ok(());
        }
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        let bridge = route.index(&self.conf.bridge)?;
        route.set_neighbour(bridge, ip.into(), mac)?;
        let found = route.link(&self.conf.bridge)?.and_then(|link| link.mac.try_into().ok());
        drop(route);
        let gateway = found.unwrap_or_else(|| mac_of(self.addresses.range().gateway));
        match nftables::port::guard(self.site.rules.table(), port, nftables::port::Owner { mac, ip, gateway })
        {
            Err(error) if nftables::port::is_unsupported(&error) => {
                static TOLD: Once = Once::new();
                TOLD.call_once(|| {
                    tracing::warn!(%error, "the kernel does not check what Pods send (nftables, family netdev)");
                });
                Ok(())
            }
            done => Ok(done?),
        }
    }

    /// Takes the rules of a port back, and what the host knows of its Pod.
    fn unguard(&self, port: &str, freed: &[Ipv4Addr]) -> Result<(), CniError> {
        if !self.conf.routed {
            return Ok(());
        }
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bridge) = route.link(&self.conf.bridge)? {
            freed.iter().try_for_each(|ip| route.delete_neighbour(bridge.index, (*ip).into()))?;
        }
        drop(route);
        Ok(nftables::port::release(self.site.rules.table(), port)?)
    }

    /// Looks for the rules of a port. In the node's process they are made where an earlier one did not.
    fn check_guard(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        let (table, port) =
            (self.site.rules.table(), veth_name(&attachment.container_id, &attachment.ifname));
        if !self.conf.routed || nftables::port::is_guarded(table, &port)? {
            return Ok(());
        }
        if self.site.rules.is_in_file() {
            // A kernel that has none has no table either.
            let has_any = nftables::port::tables()?.iter().any(|known| known == table);
            let missing = || CniError::Check(format!("rules of link {port} are missing"));
            return if has_any { Err(missing()) } else { Ok(()) };
        }
        let interface = previous.interfaces.iter().find(|it| it.name == attachment.ifname);
        let mac = interface.and_then(|interface| super::parse_mac(&interface.mac));
        let ip = previous.pod_ips(&attachment.ifname).into_iter().find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        });
        mac.zip(ip).map_or(Ok(()), |(mac, ip)| self.guard(&port, mac, ip))
    }

    fn set_up_inside(&self, ifname: &str, ip: Ipv4Addr) -> sys::Result<()> {
        let mut route = Route::open()?;
        let range = self.addresses.range();
        let link = route.index(ifname)?;
        let prefix = if self.conf.routed { 32 } else { range.prefix };
        route.add_address(Address { link, ip: ip.into(), prefix })?;
        if self.conf.routed {
            // The host would tell Pods to talk directly: they must not.
            set_sysctl("net/ipv4/conf/all/accept_redirects", "0")?;
            set_sysctl(&format!("net/ipv4/conf/{ifname}/accept_redirects"), "0")?;
        }
        route.set_up(ifname)?;
        for config in &self.routes {
            let Some((network, prefix)) = parse_cidr(&config.dst) else { continue };
            route.add_route(&NewRoute {
                destination: (prefix > 0).then_some((network.into(), prefix)),
                gateway: Some(config.gw.unwrap_or(range.gateway.into())),
                link: Some(link),
                on_link: self.conf.routed,
                ..NewRoute::default()
            })?;
        }
        Ok(())
    }

    fn result(
        &self,
        attachment: &Attachment,
        mut interfaces: Vec<Interface>,
        ip: Ipv4Addr,
        mac: [u8; 6],
    ) -> CniResult {
        let range = self.addresses.range();
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
            ips: vec![IpConfig {
                address: format!("{ip}/{}", range.prefix),
                gateway: Some(range.gateway.into()),
                interface: Some(2),
                ..IpConfig::default()
            }],
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
            let wanted = parse_cidr(&config.dst).filter(|(_, prefix)| *prefix > 0);
            let wanted = wanted.map(|(network, prefix)| (IpAddr::from(network), prefix));
            if !there.iter().any(|route| route.destination == wanted && route.link == Some(link.index)) {
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
fn check_routes(network: &str, routes: &[RouteConfig]) -> Result<(), CniError> {
    const MORE: [&str; 5] = ["mtu", "advmss", "priority", "table", "scope"];
    for route in routes {
        if parse_cidr(&route.dst).is_none() || route.gw.is_some_and(|gateway| gateway.is_ipv6()) {
            let reason = format!("route to {}: only IPv4 is built in", route.dst);
            return Err(CniError::Config { path: network.into(), reason });
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

/// A hardware address made of the IP address: whoever gets the address again has the same, so no stale neighbour.
fn mac_of(ip: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = ip.octets();
    [0x0a, 0x58, a, b, c, d]
}
