//! `bridge`: a veth pair between the Pod and a bridge, an address of the node's range, a default route.
//!
//! Upstream's fields, and one of our own: with `routed`, the Pod's address is a host address and everything goes
//! through the bridge's own address, so that the host sees (and can translate) what Pods say to each other.
//! The veth's peer is made right inside the Pod's namespace, which is 20 times quicker than moving it there.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use sys::netlink::{Address, NewRoute, Route, VethPeer};
use sys::netns::{NetNs, set_sysctl, sysctl};

use super::host_local::{HostLocal, Range, parse_cidr};
use super::rules;
use crate::cleanup::IP_FORWARD_BEFORE;
use crate::network::{Attachment, BuiltinConfig};
use crate::types::{CniError, CniResult, Interface, IpConfig, NetworkConfigList, RouteConfig};

/// Names of the host's ends of Pods' veth pairs start with this.
pub(crate) const VETH_PREFIX: &str = "kv";

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Conf {
    #[serde(default = "cni0")]
    bridge: String,
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

/// The plugin with its configuration, its addresses and its connection to the kernel.
#[derive(Debug)]
pub(crate) struct Bridge {
    conf: Conf,
    routes: Vec<RouteConfig>,
    addresses: HostLocal,
    state_dir: PathBuf,
    rules: rules::Shared,
    route: Mutex<Route>,
}

impl Bridge {
    pub(super) fn new(
        conflist: &NetworkConfigList,
        conf: &Value,
        config: &BuiltinConfig,
    ) -> Result<Self, CniError> {
        let invalid = |reason: String| CniError::Config { path: conflist.name.clone().into(), reason };
        let conf: Conf = serde_json::from_value(conf.clone()).map_err(|error| invalid(error.to_string()))?;
        if conf.ipam.get("type").and_then(Value::as_str) != Some("host-local") {
            return Err(invalid("the built-in bridge plugin has no other ipam type than host-local".into()));
        }
        let range = Range::parse(&conf.ipam).map_err(invalid)?;
        let routes = conf.ipam.get("routes").cloned().unwrap_or_default();
        let routes: Option<Vec<RouteConfig>> =
            serde_json::from_value(routes).map_err(|error| invalid(error.to_string()))?;
        let dir = config.state_dir.join("networks").join(&conflist.name);
        Ok(Self {
            conf,
            routes: routes.unwrap_or_default(),
            addresses: HostLocal::open(range, dir)?,
            state_dir: config.state_dir.clone(),
            rules: rules::shared(config),
            route: Mutex::new(Route::open()?),
        })
    }

    /// Makes the bridge, its address and the masquerade rule, as far as they are missing.
    pub(super) fn prepare(&self) -> Result<(), CniError> {
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        self.prepare_bridge(&mut route)?;
        if self.conf.ip_masq {
            let range = self.addresses.range();
            let pods = (range.network, range.prefix);
            let inside = self.conf.cluster_cidr.as_deref().and_then(parse_cidr).unwrap_or(pods);
            self.rules.change(|rules| {
                rules.masquerade.insert((pods, inside));
            })?;
        }
        Ok(())
    }

    fn prepare_bridge(&self, route: &mut Route) -> Result<u32, CniError> {
        let name = &self.conf.bridge;
        if let Some(link) = route.link(name)? {
            if link.is_up {
                return Ok(link.index);
            }
        } else {
            route.create_bridge(name)?;
        }
        let range = self.addresses.range();
        // An address of its own: otherwise it takes that of a port, which changes as ports come and go.
        route.set_mac(name, mac_of(range.gateway))?;
        route.set_up(name)?;
        let index = route.index(name)?;
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
            let path = self.state_dir.join(IP_FORWARD_BEFORE);
            fs::write(&path, before).map_err(CniError::state(&path))?;
            set_sysctl("net/ipv4/ip_forward", "1")?;
        }
        Ok(())
    }

    pub(super) fn add(&self, attachment: &Attachment) -> Result<CniResult, CniError> {
        let ip = self.addresses.reserve(&attachment.container_id, &attachment.ifname)?;
        let namespace = NetNs::open(&attachment.netns_path)?;
        let host_name = veth_name(attachment);
        let mac = mac_of(ip);
        self.connect(&host_name, &attachment.ifname, &namespace, mac)?;
        namespace.run(|| self.set_up_inside(&attachment.ifname, ip))?;
        Ok(self.result(attachment, &host_name, ip, mac))
    }

    fn connect(
        &self,
        host_name: &str,
        ifname: &str,
        namespace: &NetNs,
        mac: [u8; 6],
    ) -> Result<(), CniError> {
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
        Ok(up(&mut route, host_name)?)
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

    fn result(&self, attachment: &Attachment, host_name: &str, ip: Ipv4Addr, mac: [u8; 6]) -> CniResult {
        let range = self.addresses.range();
        let host = |name: &str| Interface { name: name.to_owned(), ..Interface::default() };
        let inside = Interface {
            name: attachment.ifname.clone(),
            mac: mac.map(|byte| format!("{byte:02x}")).join(":"),
            mtu: None,
            sandbox: attachment.netns_path.display().to_string(),
            ..Interface::default()
        };
        CniResult {
            interfaces: vec![host(&self.conf.bridge), host(host_name), inside],
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
        self.route.lock().unwrap_or_else(PoisonError::into_inner).delete_link(&veth_name(attachment))?;
        self.addresses.release(&attachment.container_id, &attachment.ifname)
    }

    pub(super) fn check(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        let name = veth_name(attachment);
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
        let ips: BTreeSet<IpAddr> = previous.pod_ips().into_iter().collect();
        let found = NetNs::open(&attachment.netns_path)?.run(|| {
            let mut route = Route::open()?;
            let has_default = route.routes()?.iter().any(|entry| entry.destination.is_none());
            Ok((route.addresses()?, has_default))
        })?;
        if let Some(missing) = ips.iter().find(|ip| !found.0.iter().any(|address| address.ip == **ip)) {
            return Err(CniError::Check(format!(
                "address {missing} is missing in {}",
                attachment.netns_path.display()
            )));
        }
        if !self.routes.is_empty() && !found.1 {
            return Err(CniError::Check(format!(
                "default route is missing in {}",
                attachment.netns_path.display()
            )));
        }
        Ok(())
    }

    pub(super) fn retain(&self, container_ids: &BTreeSet<String>) -> Result<(), CniError> {
        let freed = self.addresses.retain(container_ids)?;
        if !freed.is_empty() {
            tracing::info!(?freed, "freed addresses of sandboxes that are gone");
        }
        Ok(())
    }
}

/// The host's end of a Pod's pair: the same for ADD and DEL, before and after a restart.
fn veth_name(attachment: &Attachment) -> String {
    let text = format!("{}/{}", attachment.container_id, attachment.ifname);
    // FNV-1a: stable across versions of the compiler.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{VETH_PREFIX}{:012x}", hash & 0xffff_ffff_ffff)
}

/// A hardware address made of the IP address: whoever gets the address again has the same, so no stale neighbour.
fn mac_of(ip: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = ip.octets();
    [0x0a, 0x58, a, b, c, d]
}
