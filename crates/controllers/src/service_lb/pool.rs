//! Addresses of the pool for Services: each has one of its own.

use std::collections::BTreeMap;
use std::net::IpAddr;

use controller::load_balancer::POOL_ADDRESS;
use controller::metadata::{key, name};
use k8s_openapi::api::core::v1::Service;
use machinery::address_range::AddressRange;
use machinery::net::Family;

use super::{Given, Refusal, Snapshot, families, ingress, spec_of};

/// Which addresses are given away, with to whom.
pub(super) struct Taken(BTreeMap<IpAddr, String>);

impl Taken {
    /// What nobody gets: addresses that Nodes have, and that Services have by their own words.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut taken = BTreeMap::new();
        for node in &snapshot.nodes {
            let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
            let addresses = addresses.into_iter().flatten().filter_map(|one| one.address.parse().ok());
            taken.extend(addresses.map(|ip: IpAddr| (ip, format!("Node {}", name(&node.metadata)))));
        }
        for service in &snapshot.services {
            let external = spec_of(service).and_then(|spec| spec.external_ips.as_ref()).into_iter().flatten();
            for ip in external.filter_map(|ip| ip.parse::<IpAddr>().ok()) {
                taken
                    .entry(ip)
                    .or_insert_with(|| format!("Service {} (spec.externalIPs)", key(&service.metadata)));
            }
        }
        Self(taken)
    }

    /// Gives what the Service asks for, or has, or the first that is free.
    pub(super) fn give(&mut self, service: &Service, pool: &[AddressRange]) -> Result<Given, Refusal> {
        let asked = spec_of(service).and_then(|spec| spec.load_balancer_ip.as_deref());
        let given = match asked.filter(|ip| !ip.is_empty()) {
            Some(asked) => vec![self.asked(asked, service, pool)?],
            None => self.any(service, pool)?,
        };
        for ip in &given {
            self.0.insert(*ip, format!("Service {}", key(&service.metadata)));
        }
        let message = "reached at an address of the pool".to_owned();
        Ok(Given { reason: POOL_ADDRESS, addresses: given, message })
    }

    fn asked(&self, text: &str, service: &Service, pool: &[AddressRange]) -> Result<IpAddr, Refusal> {
        let fail = |why: &str| Err(Refusal::Failed(format!("spec.loadBalancerIP {text} {why}")));
        let Ok(ip) = text.parse::<IpAddr>() else { return fail("must be an IP address") };
        if !families(service).contains(&Family::of(ip)) {
            return fail("must be of the Service's family");
        }
        if !pool.iter().any(|range| range.contains(ip)) {
            return fail("must be an address of the pool");
        }
        match self.0.get(&ip) {
            Some(holder) => fail(&format!("is that of {holder}")),
            None => Ok(ip),
        }
    }

    /// One address per family that Service and pool have.
    fn any(&self, service: &Service, pool: &[AddressRange]) -> Result<Vec<IpAddr>, Refusal> {
        let current = ingress(service);
        let is_free = |ip: &IpAddr| !self.0.contains_key(ip);
        let (mut given, mut has_range) = (Vec::new(), false);
        for family in families(service) {
            let ranges = || pool.iter().filter(|range| range.family() == family);
            has_range |= ranges().next().is_some();
            let kept =
                current.iter().copied().find(|ip| ranges().any(|range| range.contains(*ip)) && is_free(ip));
            given.extend(kept.or_else(|| ranges().flat_map(|range| range.addresses()).find(is_free)));
        }
        match (given.is_empty(), has_range) {
            (false, _) => Ok(given),
            (true, true) => Err(Refusal::Failed("every address of the pool is taken".to_owned())),
            (true, false) => {
                Err(Refusal::Failed("the pool has no addresses of the Service's families".to_owned()))
            }
        }
    }
}
