//! Mode `ipvs`: virtual servers of the kernel's balancer, at addresses that the host has for them, and beside them sets and
//! iptables for what IPVS cannot do.
//!
//! The link `kube-ipvs0` has the addresses. Rules never change: they look up sets. A real server that is wanted no longer gets
//! nothing new, and goes once its connections have ended, or some time later. A set of the cluster's own, with nothing in it,
//! says whose all of this is.

pub(super) mod frame;
mod plan;
mod servers;
mod sets;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use machinery::net::Family;
use sys::netlink::ipset::{Element, Ipset, Kind, NAME_BYTES_MAX};
use sys::netlink::ipvs::Ipvs;
use sys::netlink::{Address, Route};
use sys::netns::{set_sysctl, sysctl};
use sys::nftables::Flushes;

use super::iptables::render::{CANARY, Scope as RuleScope};
use super::iptables::rules::{Rules, whole as whole_rules};
use super::iptables::tool::Iptables;
use super::iptables::{cleanup_other_families, has_canaries, warn_of_others};
use super::{Backend, Tended, known};
use crate::services::{Difference, Part};
use crate::{Config, IpvsOptions, bits};
use plan::{Plan, Scope};
use servers::Servers;
use sets::Set;

/// As upstream's, which is of the kind `dummy`: not every kernel has that, and a bridge without ports is no different.
const LINK: &str = "kube-ipvs0";
/// How often canaries, addresses and real servers that go are looked at.
const PERIOD: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(super) struct Mode {
    config: Arc<Config>,
    options: IpvsOptions,
    iptables: Vec<(Family, Iptables)>,
    node_addresses: BTreeSet<IpAddr>,
    plan: Plan,
    servers: Servers,
}

impl Mode {
    pub(super) fn new(config: Arc<Config>, options: IpvsOptions) -> Self {
        let (plan, servers) = (Plan::default(), Servers::default());
        Self { config, options, iptables: Vec::new(), node_addresses: BTreeSet::new(), plan, servers }
    }

    fn scope(&self) -> Scope<'_> {
        Scope { config: &self.config, options: &self.options, node_addresses: &self.node_addresses }
    }

    fn write_rules(&self) -> sys::Result<()> {
        for (family, iptables) in &self.iptables {
            let saved = iptables.save()?;
            warn_of_others(&saved, &self.config.cluster_id);
            let frame = frame::frame(RuleScope { config: &self.config, family: *family });
            iptables.restore(&whole_rules(&frame, &Rules::default(), &saved, &known()))?;
        }
        cleanup_other_families(&self.config)
    }
}

impl Backend for Mode {
    fn replace(&mut self, whole: &Part) -> sys::Result<()> {
        let families = self.config.families();
        let found = families.iter().map(|family| Ok((*family, Iptables::find(*family)?)));
        self.iptables = found.collect::<sys::Result<_>>()?;
        let (mut ipvs, mut route) = (Ipvs::open()?, Route::open()?);
        set_sysctls(&self.options)?;
        if route.link(LINK)?.is_none() {
            route.create_bridge(LINK)?;
        }
        route.set_up(LINK)?;
        self.node_addresses = node_addresses(&mut route, &self.config)?;
        self.plan = Plan::of(whole, self.scope());
        fill_sets(&self.plan, &families, &self.config.cluster_id)?;
        self.write_rules()?;
        let excluded = |ip: IpAddr| {
            !families.contains(&Family::of(ip))
                || self.options.exclude_cidrs.iter().any(|net| net.contains(ip))
        };
        self.servers.replace(&mut ipvs, &self.plan.servers().collect(), excluded)?;
        let link = route.index(LINK)?;
        let wanted: BTreeSet<IpAddr> = self.plan.addresses().collect();
        let bound = bound(&mut route, link)?;
        bind(&mut route, link, wanted.difference(&bound))?;
        unbind(&mut route, link, bound.difference(&wanted))
    }

    fn change(&mut self, difference: &Difference) -> sys::Result<Instant> {
        let mut route = Route::open()?;
        if node_addresses(&mut route, &self.config)? != self.node_addresses {
            return Err(sys::Error::new(
                "change virtual servers",
                std::io::Error::other("the host has other addresses now"),
            ));
        }
        let mut plan = std::mem::take(&mut self.plan);
        let changes = plan.change(difference, self.scope());
        self.plan = plan;
        let decided = Instant::now();
        let (mut ipvs, mut sets) = (Ipvs::open()?, Ipset::open()?);
        for (set, family, element) in &changes.members.new {
            sets.add(&set.name(*family), element)?;
        }
        for (vip, old, new) in changes.servers.iter().filter(|(.., new)| new.is_some()) {
            self.servers.change(&mut ipvs, *vip, old.as_ref(), new.as_ref())?;
        }
        let link = route.index(LINK)?;
        bind(&mut route, link, &changes.addresses.new)?;
        unbind(&mut route, link, &changes.addresses.gone)?;
        for (vip, old, new) in changes.servers.iter().filter(|(.., new)| new.is_none()) {
            self.servers.change(&mut ipvs, *vip, old.as_ref(), new.as_ref())?;
        }
        for (set, family, element) in &changes.members.gone {
            sets.remove(&set.name(*family), element)?;
        }
        Ok(decided)
    }

    fn due(&self) -> Option<Duration> {
        Some(PERIOD)
    }

    fn tend(&mut self) -> sys::Result<Tended> {
        let has_rules =
            self.iptables.iter().all(|(_, iptables)| has_canaries(iptables, &self.config.cluster_id));
        if !has_rules {
            return Ok(Tended::Lost);
        }
        if node_addresses(&mut Route::open()?, &self.config)? != self.node_addresses {
            return Ok(Tended::Moved);
        }
        self.servers.drain(&mut Ipvs::open()?, Instant::now())?;
        Ok(Tended::Fine)
    }

    fn flushes(&self) -> Flushes {
        Flushes::of_chain(CANARY)
    }

    fn after_flush(&mut self) -> sys::Result<Tended> {
        self.tend()
    }
}

/// Tries what the kernel must have.
///
/// # Errors
/// It has it not.
pub(super) fn try_kernel() -> sys::Result<()> {
    Ipvs::open()?;
    let (mut ipset, name) = (Ipset::open()?, format!("knarr-check-{}", std::process::id()));
    ipset.create(&name, Kind::IpPort, false)?;
    ipset.destroy(&name)
}

/// Source: `NewProxier` of `pkg/proxy/ipvs/proxier.go`.
fn set_sysctls(options: &IpvsOptions) -> sys::Result<()> {
    let always = [
        // Replies and masquerading need connections to be tracked.
        ("net/ipv4/vs/conntrack", "1"),
        ("net/ipv4/vs/expire_nodest_conn", "1"),
        ("net/ipv4/vs/expire_quiescent_template", "1"),
        ("net/ipv4/ip_forward", "1"),
    ];
    let strict = [("net/ipv4/conf/all/arp_ignore", "1"), ("net/ipv4/conf/all/arp_announce", "2")];
    let strict = strict.into_iter().filter(|_| options.strict_arp);
    for (key, value) in always.into_iter().chain(strict) {
        if sysctl(key)?.trim() != value {
            set_sysctl(key, value)?;
        }
    }
    Ok(())
}

/// The host's addresses at which ports of Nodes are; never those that it has for Services, nor loopback's.
fn node_addresses(route: &mut Route, config: &Config) -> sys::Result<BTreeSet<IpAddr>> {
    let networks: Vec<_> =
        config.families().into_iter().flat_map(|family| config.node_ports(family)).collect();
    let links = route.links()?;
    let ours = [LINK.to_owned(), config.link_name()];
    let is_ours = |index: u32| links.iter().any(|link| link.index == index && ours.contains(&link.name));
    let all =
        route.addresses()?.into_iter().filter(|address| !is_ours(address.link)).map(|address| address.ip);
    Ok(all.filter(|ip| !ip.is_loopback() && networks.iter().any(|network| network.contains(*ip))).collect())
}

/// The addresses that the link has for Services.
fn bound(route: &mut Route, link: u32) -> sys::Result<BTreeSet<IpAddr>> {
    let of_link = route.addresses()?.into_iter().filter(|address| address.link == link);
    Ok(of_link
        .filter(|address| address.prefix == bits(Family::of(address.ip)))
        .map(|address| address.ip)
        .collect())
}

fn bind<'a>(route: &mut Route, link: u32, ips: impl IntoIterator<Item = &'a IpAddr>) -> sys::Result<()> {
    ips.into_iter().try_for_each(|ip| {
        route.add_passive_address(Address { link, ip: *ip, prefix: bits(Family::of(*ip)) })
    })
}

fn unbind<'a>(route: &mut Route, link: u32, ips: impl IntoIterator<Item = &'a IpAddr>) -> sys::Result<()> {
    ips.into_iter()
        .try_for_each(|ip| route.delete_address(Address { link, ip: *ip, prefix: bits(Family::of(*ip)) }))
}

/// Makes the sets have what is planned, and nothing else.
fn fill_sets(plan: &Plan, families: &[Family], cluster_id: &str) -> sys::Result<()> {
    let mut ipset = Ipset::open()?;
    let names = ipset.names()?;
    let has = |name: &str| names.iter().any(|known| known == name);
    let marker = marker(cluster_id);
    if !has(&marker) {
        ipset.create(&marker, Kind::Ip, false)?;
    }
    for (family, set) in families.iter().flat_map(|family| Set::ALL.map(|set| (*family, set))) {
        let name = set.name(family);
        let members = plan.members().filter(|(of, in_family, _)| (*of, *in_family) == (set, family));
        let wanted: BTreeSet<Element> = members.map(|(.., element)| *element).collect();
        let mut present = BTreeSet::new();
        if has(&name) {
            present.extend(ipset.elements(&name)?);
        } else {
            ipset.create(&name, set.kind(), family == Family::V6)?;
        }
        wanted.difference(&present).try_for_each(|element| ipset.add(&name, element))?;
        present.difference(&wanted).try_for_each(|element| ipset.remove(&name, element))?;
    }
    Ok(())
}

/// The set that says whose the others are.
fn marker(cluster_id: &str) -> String {
    let mut name = format!("knarr-{cluster_id}");
    name.truncate(NAME_BYTES_MAX);
    name
}

fn is_ours(cluster_id: &str) -> sys::Result<bool> {
    Ok(Ipset::open()?.names()?.contains(&marker(cluster_id)))
}

/// What a cluster has beside rules of iptables.
pub(super) fn leftovers(cluster_id: &str) -> sys::Result<Vec<String>> {
    if !is_ours(cluster_id)? {
        return Ok(Vec::new());
    }
    let mut found = vec!["sets KUBE-* of ipset".to_owned()];
    if Route::open()?.link(LINK)?.is_some() {
        found.push(format!("link {LINK}"));
    }
    Ok(found)
}

/// Removes virtual servers, addresses and sets of a cluster. The rules are gone already.
///
/// # Errors
/// The kernel refuses.
pub(super) fn cleanup(cluster_id: &str) -> sys::Result<()> {
    if !is_ours(cluster_id)? {
        return Ok(());
    }
    let (mut ipset, mut route) = (Ipset::open()?, Route::open()?);
    let mut ports = BTreeSet::new();
    let names = ipset.names()?;
    let sets = [Family::V4, Family::V6].into_iter().flat_map(|family| Set::ALL.map(|set| set.name(family)));
    let sets: Vec<String> = sets.filter(|name| names.contains(name)).collect();
    for name in sets.iter().filter(|name| name.contains("NODE-PORT")) {
        ports.extend(ipset.elements(name)?.into_iter().filter_map(|element| Some(element.port?.1)));
    }
    let link = route.link(LINK)?;
    let addresses = route.addresses()?;
    if let Ok(mut ipvs) = Ipvs::open() {
        let of_link: BTreeSet<IpAddr> = addresses
            .iter()
            .filter(|address| link.as_ref().is_some_and(|link| link.index == address.link))
            .map(|address| address.ip)
            .collect();
        let is_host = |ip: IpAddr| addresses.iter().any(|address| address.ip == ip);
        for (vip, _) in ipvs.services()? {
            if of_link.contains(&vip.ip) || (is_host(vip.ip) && ports.contains(&vip.port)) {
                ipvs.delete_service(vip)?;
            }
        }
    }
    route.delete_link(LINK)?;
    for name in sets.iter().chain([&marker(cluster_id)]) {
        if let Err(error) = ipset.destroy(name) {
            tracing::warn!(set = name, %error, "a rule that is not ours uses a set of services, which stays");
        }
    }
    Ok(())
}
