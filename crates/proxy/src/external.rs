//! Which addresses from outside lead to a Service: none that belongs to the cluster itself.
//!
//! Whoever may write a Service chooses its `externalIPs`, and without this takes the traffic of other Services, Pods and
//! Nodes (CVE-2020-8554). The API server refuses such addresses; what is stored nevertheless has no effect here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::Config;
use crate::service_port::ServicePort;

/// `namespace/name/` of the API's own Service.
const API_SERVICE: &str = "default/kubernetes/";

/// An address, a protocol's number and a port.
pub(crate) type Place = (Ipv4Addr, u8, u16);

/// What belongs to the cluster.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    config: &'a Config,
    nodes: &'a BTreeSet<Ipv4Addr>,
    /// Addresses of all Services, in the range or not.
    services: BTreeSet<Ipv4Addr>,
    /// Where the API server listens.
    api: BTreeSet<Place>,
}

impl<'a> Reserved<'a> {
    pub(crate) fn new(config: &'a Config, nodes: &'a BTreeSet<Ipv4Addr>, rows: &[ServicePort]) -> Self {
        let services = rows.iter().flat_map(|row| row.cluster_ips.iter().copied()).collect();
        let own = rows.iter().filter(|row| is_api(row));
        let endpoints =
            own.flat_map(|row| row.endpoints().iter().map(|(ip, port)| (*ip, row.protocol, *port)));
        Self { config, nodes, services, api: endpoints.collect() }
    }

    /// Whether no address from outside may be this one.
    fn is_reserved(&self, place: Place) -> bool {
        let (ip, ..) = place;
        let is_special = ip.is_unspecified()
            || ip.is_loopback()
            || ip.is_link_local()
            || ip.is_multicast()
            || ip.is_broadcast();
        is_special
            || self.config.service_cidrs.contains(ip.into())
            || self.config.cluster_cidrs.contains(ip.into())
            || self.services.contains(&ip)
            || self.api.contains(&place)
    }

    /// Takes what is reserved from every row, and returns it with the rows' names. A load balancer's address may be a
    /// Node's, since only whoever writes a Service's status chooses it.
    pub(crate) fn take_from(&self, rows: &mut [ServicePort]) -> BTreeSet<(String, Ipv4Addr)> {
        let mut taken = BTreeSet::new();
        for row in rows {
            let (protocol, port) = (row.protocol, row.port);
            let is_node = |ip: Ipv4Addr| ip == self.config.node_ip || self.nodes.contains(&ip);
            let is_reserved = |ip: Ipv4Addr| self.is_reserved((ip, protocol, port));
            let external = row.external_ips.extract_if(.., |ip| is_node(*ip) || is_reserved(*ip));
            let balanced = row.balancer_ips.extract_if(.., |ip| is_reserved(*ip));
            taken.extend(external.chain(balanced).map(|ip| (row.name.clone(), ip)));
        }
        taken
    }
}

/// Whose each place is where several Services name it: the API's own first, then who has it as its ClusterIP, then the
/// first by name.
#[derive(Debug, Default)]
pub(crate) struct Owners(BTreeMap<Place, usize>);

impl Owners {
    /// `rows` are in order of name.
    pub(crate) fn of(rows: &[ServicePort]) -> Self {
        let mut owners = BTreeMap::new();
        let rows = || rows.iter().enumerate();
        let mut claim = |number: usize, row: &ServicePort, ips: &mut dyn Iterator<Item = &Ipv4Addr>| {
            for ip in ips {
                owners.entry((*ip, row.protocol, row.port)).or_insert(number);
            }
        };
        rows().filter(|(_, row)| is_api(row)).for_each(|(n, row)| claim(n, row, &mut row.cluster_ips.iter()));
        rows().for_each(|(n, row)| claim(n, row, &mut row.cluster_ips.iter()));
        rows().for_each(|(n, row)| claim(n, row, &mut row.outside_ips()));
        Self(owners)
    }

    /// Whether the place is that of the row with this number.
    pub(crate) fn is(&self, number: usize, place: Place) -> bool {
        self.0.get(&place) == Some(&number)
    }
}

fn is_api(row: &ServicePort) -> bool {
    row.name.starts_with(API_SERVICE)
}

#[cfg(test)]
mod tests;
