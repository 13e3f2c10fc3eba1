//! What Services come to in IPVS, in sets, and in addresses of the host; and what a change of them makes different.
//!
//! Several Services may want one thing: the same address with another port, the same endpoint behind two. So the plan counts
//! who wants what, and tells of what is wanted now and was not, or the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use machinery::net::Family;
use sys::netlink::ipset::Element;
use sys::netlink::ipvs::{Service, VirtualAddress};

use super::sets::Set;
use crate::service_port::{External, Internal, Target};
use crate::services::{Difference, Part, Row};
use crate::{Config, IpvsOptions};

/// A virtual server: how it chooses, and what among.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Server {
    pub(crate) service: Service,
    pub(crate) to: BTreeSet<Target>,
}

/// Something in a set of a family.
pub(crate) type Member = (Set, Family, Element);

/// How many want what.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counts<T>(BTreeMap<T, usize>);

/// All that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    servers: BTreeMap<VirtualAddress, Counts<Server>>,
    members: Counts<Member>,
    addresses: Counts<IpAddr>,
}

/// What is different: what was and what is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) servers: Vec<(VirtualAddress, Option<Server>, Option<Server>)>,
    pub(crate) members: Sides<Member>,
    pub(crate) addresses: Sides<IpAddr>,
}

/// Of one kind of things those that are wanted no longer, and those that are now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sides<T> {
    pub(crate) gone: Vec<T>,
    pub(crate) new: Vec<T>,
}

/// What one row wants.
#[derive(Debug, Default)]
struct Wanted {
    servers: Vec<(VirtualAddress, Server)>,
    members: Vec<Member>,
    addresses: Vec<IpAddr>,
}

/// What a plan is made by, beside Services.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) config: &'a Config,
    pub(crate) options: &'a IpvsOptions,
    /// The host's addresses that have ports of Nodes.
    pub(crate) node_addresses: &'a BTreeSet<IpAddr>,
}

impl<T> Default for Counts<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Default for Sides<T> {
    fn default() -> Self {
        Self { gone: Vec::new(), new: Vec::new() }
    }
}

impl<T: Ord + Clone> Counts<T> {
    fn count(&mut self, item: &T, by: isize) {
        let now = self.0.get(item).copied().unwrap_or(0).saturating_add_signed(by);
        if now == 0 {
            self.0.remove(item);
        } else {
            self.0.insert(item.clone(), now);
        }
    }

    fn has(&self, item: &T) -> bool {
        self.0.contains_key(item)
    }
}

impl Plan {
    /// Everything that some Services want.
    pub(crate) fn of(part: &Part, scope: Scope<'_>) -> Self {
        let mut plan = Self::default();
        for row in &part.rows {
            plan.count(&wanted(row, scope), 1);
        }
        plan
    }

    /// The virtual servers.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (VirtualAddress, &Server)> {
        self.servers.iter().filter_map(|(vip, servers)| Some((*vip, servers.0.keys().next()?)))
    }

    /// What is in the sets.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.0.keys()
    }

    /// The host's addresses for Services.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.0.keys().copied()
    }

    /// Takes a change in, and tells what it makes different.
    pub(crate) fn change(&mut self, difference: &Difference, scope: Scope<'_>) -> Changes {
        let of = |part: &Part| part.rows.iter().map(|row| wanted(row, scope)).collect::<Vec<_>>();
        let (before, after) = (of(&difference.before), of(&difference.after));
        let all = || before.iter().chain(&after);
        let vips: BTreeSet<VirtualAddress> =
            all().flat_map(|one| &one.servers).map(|(vip, _)| *vip).collect();
        let members: BTreeSet<Member> = all().flat_map(|one| &one.members).copied().collect();
        let addresses: BTreeSet<IpAddr> = all().flat_map(|one| &one.addresses).copied().collect();
        let server = |plan: &Self, vip: &VirtualAddress| plan.servers.get(vip)?.0.keys().next().cloned();
        let old: Vec<_> = vips.iter().map(|vip| server(self, vip)).collect();
        let had: BTreeSet<Member> = members.iter().filter(|one| self.members.has(one)).copied().collect();
        let bound: BTreeSet<IpAddr> = addresses.iter().filter(|ip| self.addresses.has(ip)).copied().collect();
        before.iter().for_each(|one| self.count(one, -1));
        after.iter().for_each(|one| self.count(one, 1));
        let servers = vips.iter().zip(old).map(|(vip, old)| (*vip, old, server(self, vip)));
        Changes {
            servers: servers.filter(|(_, old, new)| old != new).collect(),
            members: Sides::of(&members, &had, |one| self.members.has(one)),
            addresses: Sides::of(&addresses, &bound, |ip| self.addresses.has(ip)),
        }
    }

    fn count(&mut self, wanted: &Wanted, by: isize) {
        for (vip, server) in &wanted.servers {
            let servers = self.servers.entry(*vip).or_default();
            servers.count(server, by);
            if servers.0.is_empty() {
                self.servers.remove(vip);
            }
        }
        wanted.members.iter().for_each(|one| self.members.count(one, by));
        wanted.addresses.iter().for_each(|ip| self.addresses.count(ip, by));
    }
}

impl<T: Ord + Copy> Sides<T> {
    fn of(all: &BTreeSet<T>, had: &BTreeSet<T>, has: impl Fn(&T) -> bool) -> Self {
        let pick = |was: bool| -> Vec<T> {
            all.iter().copied().filter(|one| had.contains(one) == was && has(one) != was).collect()
        };
        Self { gone: pick(true), new: pick(false) }
    }
}

fn vip(row: &Row, ip: IpAddr, port: u16) -> VirtualAddress {
    VirtualAddress { ip, protocol: row.port.protocol, port }
}

fn at(vip: VirtualAddress) -> Element {
    Element { ip: Some(vip.ip), port: Some((vip.protocol, vip.port)), other: None }
}

fn wanted(row: &Row, scope: Scope<'_>) -> Wanted {
    let mut wanted = Wanted::default();
    let family = row.port.family;
    wanted.add_inside(row, scope);
    wanted.add_outside(row, scope);
    // A Pod that reaches itself must not see its own address as the client's.
    let targets: BTreeSet<&Target> = wanted.servers.iter().flat_map(|(_, server)| &server.to).collect();
    let loops = targets.into_iter().map(|(ip, port)| Element {
        other: Some((*ip, crate::bits(family))),
        ..at(VirtualAddress { ip: *ip, protocol: row.port.protocol, port: *port })
    });
    let loops: Vec<Element> = loops.collect();
    loops.into_iter().for_each(|element| wanted.add(Set::LoopBack, family, element));
    let addresses = wanted.addresses.clone();
    for ip in addresses {
        wanted.add(Set::Addresses, family, Element { ip: Some(ip), ..Element::default() });
    }
    wanted
}

impl Wanted {
    fn add(&mut self, set: Set, family: Family, element: Element) {
        self.members.push((set, family, element));
    }

    fn add_server(&mut self, vip: VirtualAddress, row: &Row, to: &[Target], scope: Scope<'_>) {
        let scheduler = scope.options.scheduler.clone();
        let persistence_seconds =
            row.port.affinity.map(|stay| u32::try_from(stay.as_secs()).unwrap_or(u32::MAX));
        let service = Service { is_by_port: scheduler == "mh", scheduler, persistence_seconds };
        self.servers.push((vip, Server { service, to: to.iter().copied().collect() }));
    }

    /// Without endpoints there is no virtual server, and the address refuses; but what this host answers at itself is
    /// left to it.
    fn add_inside(&mut self, row: &Row, scope: Scope<'_>) {
        let targets = row.port.internal.targets();
        let is_elsewhere = matches!(row.port.internal, Internal::Local { has_others: true, .. });
        for ip in &row.leads.cluster_ips {
            if targets.is_empty() && scope.config.local_addresses.contains(ip) {
                continue;
            }
            let vip = vip(row, *ip, row.port.port);
            self.addresses.push(*ip);
            if !targets.is_empty() {
                self.add_server(vip, row, targets, scope);
                self.add(Set::ClusterIp, row.port.family, at(vip));
            } else if is_elsewhere {
                self.add(Set::NoLocalInside, row.port.family, at(vip));
            }
        }
    }

    fn add_outside(&mut self, row: &Row, scope: Scope<'_>) {
        let all = row.port.endpoints();
        let (to, is_local, is_elsewhere) = match &row.port.external {
            External::Cluster(all) => (all, false, false),
            External::Local { local, all } if local.is_empty() => (all, true, true),
            External::Local { local, .. } => (local, true, false),
        };
        let family = row.port.family;
        for (ips, set, local_set) in [
            (&row.leads.external_ips, Set::ExternalIp, Set::ExternalIpLocal),
            (&row.leads.balancer_ips, Set::LoadBalancer, Set::LoadBalancerLocal),
        ] {
            for ip in ips {
                let vip = vip(row, *ip, row.port.port);
                // An address of the pool is the host's when it is announced here, and only then.
                if !(row.port.is_of_pool && set == Set::LoadBalancer) {
                    self.addresses.push(*ip);
                }
                if all.is_empty() {
                    continue;
                }
                self.add_server(vip, row, to, scope);
                // As upstream: of load balancers' addresses one set has all, of others each has its own.
                if set == Set::LoadBalancer || !is_local {
                    self.add(set, family, at(vip));
                }
                if is_local {
                    self.add(local_set, family, at(vip));
                }
                if is_elsewhere {
                    self.add(Set::NoLocal, family, at(vip));
                }
                if set == Set::LoadBalancer {
                    self.add_ranges(row, vip, scope);
                }
            }
        }
        let Some(port) = row.leads.node_port.filter(|_| !all.is_empty()) else { return };
        let (set, local_set) = Set::of_node_ports(row.port.protocol);
        for ip in scope.node_addresses.iter().filter(|ip| Family::of(**ip) == family) {
            let vip = vip(row, *ip, port);
            self.add_server(vip, row, to, scope);
            let element = match set {
                Set::NodePortSctp => at(vip),
                _ => Element { port: Some((0, port)), ..Element::default() },
            };
            self.add(set, family, element);
            if is_local {
                self.add(local_set, family, element);
            }
            if is_elsewhere {
                self.add(Set::NoLocal, family, at(vip));
            }
        }
    }

    /// Who may reach a load balancer's address. The host does from the address itself, if its own is one of those that may.
    fn add_ranges(&mut self, row: &Row, vip: VirtualAddress, scope: Scope<'_>) {
        let Some(ranges) = &row.port.source_ranges else { return };
        let family = row.port.family;
        self.add(Set::LoadBalancerFirewall, family, at(vip));
        for range in ranges {
            let other = Some((range.network().address(), range.bits()));
            self.add(Set::SourceCidr, family, Element { other, ..at(vip) });
        }
        let own = scope.config.node_ip(family);
        if own.is_some_and(|own| ranges.iter().any(|range| range.contains(own))) {
            let other = Some((vip.ip, crate::bits(family)));
            self.add(Set::SourceIp, family, Element { other, ..at(vip) });
        }
    }
}

#[cfg(test)]
mod tests;
