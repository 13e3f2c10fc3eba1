//! Whose each address is: of several Services that name one with one port, one has it, and none from outside takes what
//! belongs to the cluster itself.
//!
//! Whoever may write a Service chooses its `externalIPs`, and without this takes the traffic of other Services, Pods and
//! Nodes (CVE-2020-8554). The API server refuses such addresses; what is stored nevertheless has no effect here. What a
//! change of one Service means for others is told by the same maps: no other Service is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::service_port::{ServicePort, is_special};
use crate::{Config, Nodes, unspecified};

/// `namespace/name/` of the API's own Service.
const API_SERVICE: &str = "default/kubernetes/";

/// An address, a protocol's number and a port; a port of all Nodes has the unspecified address of the family.
pub(crate) type AddressPort = (IpAddr, u8, u16);

/// The right by which a Service has an address and port: the first of them wins, then the first by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Right {
    /// It is the API's own.
    Api,
    /// `spec.clusterIP`.
    ClusterIp,
    /// `status.loadBalancer`, and ports of Nodes: not everybody may say so.
    Given,
    /// `spec.externalIPs`.
    OwnWords,
}

/// A row's claim, by the row's name.
type Claim = (Right, String);

/// Everything that Services name.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    by_address_port: BTreeMap<AddressPort, BTreeSet<Claim>>,
    /// Addresses of all Services, in the range or not, by how many rows have them.
    cluster_ips: BTreeMap<IpAddr, usize>,
    /// Who names which addresses from outside: keys of Services, by how many rows do.
    outside: BTreeMap<IpAddr, BTreeMap<String, usize>>,
    /// Where the API server listens.
    api: BTreeMap<AddressPort, usize>,
}

/// What leads to a row of all that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leads {
    pub(crate) cluster_ips: Vec<IpAddr>,
    pub(crate) external_ips: Vec<IpAddr>,
    pub(crate) balancer_ips: Vec<IpAddr>,
    pub(crate) node_port: Option<u16>,
    /// What leads nowhere, since it belongs to the cluster.
    pub(crate) refused: Vec<IpAddr>,
}

impl Leads {
    /// All addresses from outside.
    pub(crate) fn outside_ips(&self) -> impl Iterator<Item = &IpAddr> {
        self.external_ips.iter().chain(&self.balancer_ips)
    }
}

fn is_api(row: &ServicePort) -> bool {
    row.name.starts_with(API_SERVICE)
}

fn claims_of(row: &ServicePort) -> impl Iterator<Item = (AddressPort, Right)> {
    let own = if is_api(row) { Right::Api } else { Right::ClusterIp };
    let address_port = |ip: &IpAddr| (*ip, row.protocol, row.port);
    let cluster = row.cluster_ips.iter().map(move |ip| (address_port(ip), own));
    let given = row.balancer_ips.iter().map(move |ip| (address_port(ip), Right::Given));
    let words = row.external_ips.iter().map(move |ip| (address_port(ip), Right::OwnWords));
    let port = row.node_port.map(move |port| (on_nodes(row, port), Right::Given));
    cluster.chain(given).chain(words).chain(port)
}

/// A port of all Nodes.
fn on_nodes(row: &ServicePort, port: u16) -> AddressPort {
    (unspecified(row.family), row.protocol, port)
}

/// The key of the Service that a row is of.
fn service_of(row: &str) -> &str {
    row.rsplit_once('/').map_or(row, |(service, _)| service)
}

/// Counts one more, or one less; whether there are some now and were none, or the other way round.
fn count<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K, by: isize) -> bool {
    let now = counts.get(key).copied().unwrap_or(0).saturating_add_signed(by);
    if now == 0 {
        counts.remove(key);
    } else {
        counts.insert(key.clone(), now);
    }
    now == 0 || (now == 1 && by > 0)
}

impl Claims {
    /// Takes in what a row names; `touched` are the Services for which something may be different then.
    pub(crate) fn add(&mut self, row: &ServicePort, touched: &mut BTreeSet<String>) {
        self.change(row, 1, touched);
    }

    /// Forgets what a row names.
    pub(crate) fn remove(&mut self, row: &ServicePort, touched: &mut BTreeSet<String>) {
        self.change(row, -1, touched);
    }

    fn change(&mut self, row: &ServicePort, by: isize, touched: &mut BTreeSet<String>) {
        for (address_port, right) in claims_of(row) {
            let claims = self.by_address_port.entry(address_port).or_default();
            let claim = (right, row.name.clone());
            if by > 0 {
                claims.insert(claim);
            } else {
                claims.remove(&claim);
            }
            touched.extend(claims.iter().map(|(_, name)| service_of(name).to_owned()));
            if claims.is_empty() {
                self.by_address_port.remove(&address_port);
            }
        }
        for ip in &row.cluster_ips {
            if count(&mut self.cluster_ips, ip, by) {
                self.touch(*ip, touched);
            }
        }
        if is_api(row) {
            for (ip, port) in row.endpoints() {
                if count(&mut self.api, &(*ip, row.protocol, *port), by) {
                    self.touch(*ip, touched);
                }
            }
        }
        for ip in row.outside_ips() {
            let services = self.outside.entry(*ip).or_default();
            count(services, &service_of(&row.name).to_owned(), by);
            if services.is_empty() {
                self.outside.remove(ip);
            }
        }
    }

    /// Those who name an address from outside.
    pub(crate) fn touch(&self, ip: IpAddr, touched: &mut BTreeSet<String>) {
        touched.extend(self.outside.get(&ip).into_iter().flat_map(BTreeMap::keys).cloned());
    }

    fn is(&self, address_port: AddressPort, right: Right, row: &ServicePort) -> bool {
        let owner = self.by_address_port.get(&address_port).and_then(BTreeSet::first);
        owner.is_some_and(|(of, name)| *of == right && *name == row.name)
    }

    /// Whether no address from outside may be this one.
    fn is_reserved(&self, address_port: AddressPort, config: &Config) -> bool {
        let (ip, ..) = address_port;
        is_special(ip)
            || config.service_cidrs.contains(ip)
            || config.cluster_cidrs.contains(ip)
            || self.cluster_ips.contains_key(&ip)
            || self.api.contains_key(&address_port)
    }

    /// Whether the pool of a load balancer can have an address.
    pub(crate) fn may_be_of_pool(&self, ip: IpAddr, config: &Config, nodes: &Nodes) -> bool {
        let is_node = config.node_ips.contains(&ip) || nodes.addresses.contains(&ip);
        !is_node && !self.is_reserved((ip, 0, 0), config)
    }

    /// What leads to a row. A load balancer's address may be a Node's, since only whoever writes a Service's status
    /// chooses it; but not with a port at which this host itself answers.
    pub(crate) fn leads(&self, row: &ServicePort, config: &Config, nodes: &Nodes) -> Leads {
        let at = |ip: IpAddr| (ip, row.protocol, row.port);
        let is_node = |ip: IpAddr| config.node_ips.contains(&ip) || nodes.addresses.contains(&ip);
        let is_free = |ip: IpAddr| !self.is_reserved(at(ip), config);
        let owned = |ips: &[IpAddr], right: Right, is_allowed: &dyn Fn(IpAddr) -> bool| -> Vec<IpAddr> {
            ips.iter().copied().filter(|ip| is_allowed(*ip) && self.is(at(*ip), right, row)).collect()
        };
        let own = if is_api(row) { Right::Api } else { Right::ClusterIp };
        let external = row.external_ips.iter().filter(|ip| is_node(**ip) || !is_free(**ip));
        let mut refused: Vec<IpAddr> = external.copied().collect();
        refused.extend(row.balancer_ips.iter().filter(|ip| !is_free(**ip)));
        let node_port = row.node_port.filter(|port| self.is(on_nodes(row, *port), Right::Given, row));
        Leads {
            cluster_ips: owned(&row.cluster_ips, own, &|_| true),
            external_ips: owned(&row.external_ips, Right::OwnWords, &|ip| !is_node(ip) && is_free(ip)),
            balancer_ips: owned(&row.balancer_ips, Right::Given, &is_free),
            node_port,
            refused,
        }
    }
}

#[cfg(test)]
mod tests;
