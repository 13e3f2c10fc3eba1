//! What the proxy knows of all Services, and what a change makes different: only the Services that it concerns are
//! looked at, however many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use controller::load_balancer;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery::net::Family;

use crate::external::{Claims, Leads};
use crate::health::{Check, CheckKey};
use crate::metrics::WithoutLocal;
use crate::service_port::{External, Here, Internal, ServicePort, service_of, service_ports};
use crate::{Config, Nodes};

/// A port of a Service in one family, with what leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) port: ServicePort,
    /// Its own among all rows as long as it is there.
    pub(crate) number: u32,
    pub(crate) leads: Leads,
}

/// Some rows, and the endpoints that may reach themselves through a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) rows: Vec<Arc<Row>>,
    pub(crate) loops: BTreeSet<IpAddr>,
}

/// What was and what is, of all that is different.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub(crate) before: Part,
    pub(crate) after: Part,
}

/// A change of an object: its key, what it was, what it is.
pub type News<K> = (String, Option<Arc<K>>, Option<Arc<K>>);

/// The objects that are different.
#[derive(Debug, Default)]
pub struct Changed {
    /// By `namespace/name`.
    pub services: Vec<News<Service>>,
    /// By `namespace/name`.
    pub slices: Vec<News<EndpointSlice>>,
    /// All of them, if they are others.
    pub nodes: Option<Nodes>,
}

/// An address of the load balancer's pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolAddress {
    pub(crate) ip: IpAddr,
    /// The Nodes that may have it; all, if not said.
    pub(crate) only: Option<BTreeSet<String>>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Services {
    config: Arc<Config>,
    families: Vec<Family>,
    nodes: Nodes,
    services: BTreeMap<String, Arc<Service>>,
    /// By the key of their Service, then by their own.
    slices: BTreeMap<String, BTreeMap<String, Arc<EndpointSlice>>>,
    rows: BTreeMap<String, Vec<Arc<Row>>>,
    claims: Claims,
    /// How many rows lead to each endpoint.
    loops: BTreeMap<IpAddr, usize>,
    numbers: Numbers,
    checks: BTreeMap<CheckKey, Check>,
    pool: BTreeMap<String, Vec<PoolAddress>>,
    without_local: BTreeMap<Family, WithoutLocal>,
}

/// Numbers that nobody has.
#[derive(Debug, Default)]
struct Numbers {
    free: BTreeSet<u32>,
    next: u32,
}

impl Numbers {
    fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            let number = self.next;
            self.next = self.next.wrapping_add(1);
            number
        })
    }
}

impl Services {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self {
            families: config.families(),
            config,
            nodes: Nodes::default(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            rows: BTreeMap::new(),
            claims: Claims::default(),
            loops: BTreeMap::new(),
            numbers: Numbers::default(),
            checks: BTreeMap::new(),
            pool: BTreeMap::new(),
            without_local: BTreeMap::new(),
        }
    }

    /// Everything there is.
    pub(crate) fn whole(&self) -> Part {
        Part {
            rows: self.rows.values().flatten().cloned().collect(),
            loops: self.loops.keys().copied().collect(),
        }
    }

    /// The ports that tell load balancers whether there are endpoints here, by Service and family.
    pub(crate) fn checks(&self) -> &BTreeMap<CheckKey, Check> {
        &self.checks
    }

    /// See [`WithoutLocal`].
    pub(crate) fn without_local(&self, family: Family) -> WithoutLocal {
        self.without_local.get(&family).copied().unwrap_or_default()
    }

    /// What is known of Nodes.
    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Addresses of the load balancer's pool that are nobody else's.
    pub(crate) fn pool(&self) -> impl Iterator<Item = &PoolAddress> {
        let is_free = |one: &&PoolAddress| self.claims.may_be_of_pool(one.ip, &self.config, &self.nodes);
        self.pool.values().flatten().filter(is_free)
    }

    /// Takes changes in, and tells what they make different.
    pub(crate) fn update(&mut self, changed: Changed) -> Difference {
        let mut dirty = BTreeSet::new();
        let mut touched = BTreeSet::new();
        for (key, _, new) in changed.services {
            match new {
                Some(service) => self.services.insert(key.clone(), service),
                None => self.services.remove(&key),
            };
            dirty.insert(key);
        }
        for news in changed.slices {
            self.take_slice(news, &mut dirty);
        }
        if let Some(nodes) = changed.nodes {
            let of = &self.nodes.addresses;
            for ip in of.symmetric_difference(&nodes.addresses) {
                self.claims.touch(*ip, &mut touched);
            }
            if self.nodes.zone != nodes.zone {
                dirty.extend(self.services.keys().cloned());
            }
            self.nodes = nodes;
        }
        let mut before: BTreeMap<String, Vec<Arc<Row>>> = BTreeMap::new();
        for key in &dirty {
            if let Some(old) = self.refresh(key, &mut touched) {
                before.insert(key.clone(), old);
            }
        }
        self.compare(before, &touched)
    }

    fn take_slice(&mut self, (key, old, new): News<EndpointSlice>, dirty: &mut BTreeSet<String>) {
        if let Some(service) = old.as_deref().and_then(service_of) {
            if let Some(slices) = self.slices.get_mut(&service) {
                slices.remove(&key);
                if slices.is_empty() {
                    self.slices.remove(&service);
                }
            }
            dirty.insert(service);
        }
        if let Some((slice, service)) = new.and_then(|slice| service_of(&slice).map(|key| (slice, key))) {
            self.slices.entry(service.clone()).or_default().insert(key, slice);
            dirty.insert(service);
        }
    }

    /// Makes a Service's rows anew. Those that were, if they are others.
    fn refresh(&mut self, key: &str, touched: &mut BTreeSet<String>) -> Option<Vec<Arc<Row>>> {
        let slices = self.slices.get(key);
        let slices = || slices.into_iter().flat_map(BTreeMap::values);
        let service = self.services.get(key).cloned();
        let here = Here::new(&self.config.node_name, &self.nodes);
        let slices = || slices().map(|slice| &**slice);
        let ports = service.as_deref();
        let ports = ports.map(|service| service_ports(service, slices(), here, &self.families));
        let ports = ports.unwrap_or_default();
        for family in &self.families {
            let ours = service.as_deref().filter(|_| ports.iter().any(|port| port.family == *family));
            let check =
                ours.and_then(|service| Check::of(service, slices(), &self.config.node_name, *family));
            set(&mut self.checks, (key.to_owned(), *family), check);
        }
        let has_ports = !ports.is_empty();
        let ours = service.as_deref().filter(|_| has_ports);
        let pool = ours.filter(|service| load_balancer::has_pool_address(service));
        let pool = pool.map(|service| pool_addresses(service, slices(), &ports));
        set(&mut self.pool, key.to_owned(), pool);
        let old = self.rows.get(key).map(Vec::as_slice).unwrap_or_default();
        if old.iter().map(|row| &row.port).eq(ports.iter()) {
            return None;
        }
        let old = self.rows.remove(key).unwrap_or_default();
        let id = |port: &ServicePort| (port.family, port.name.clone(), port.protocol);
        let mut numbers: BTreeMap<(Family, String, u8), u32> =
            old.iter().map(|row| (id(&row.port), row.number)).collect();
        for row in &old {
            self.claims.remove(&row.port, touched);
            count(&mut self.without_local, &row.port, -1);
        }
        let mut rows = Vec::with_capacity(ports.len());
        for port in ports {
            self.claims.add(&port, touched);
            count(&mut self.without_local, &port, 1);
            let number = numbers.remove(&id(&port));
            let number = number.unwrap_or_else(|| self.numbers.take());
            rows.push(Arc::new(Row { port, number, leads: Leads::default() }));
        }
        self.numbers.free.extend(numbers.into_values());
        touched.insert(key.to_owned());
        if has_ports {
            self.rows.insert(key.to_owned(), rows);
        }
        Some(old)
    }

    /// Looks at what leads to the Services that were touched; `before` are the rows of those that were made anew.
    fn compare(
        &mut self,
        mut before: BTreeMap<String, Vec<Arc<Row>>>,
        touched: &BTreeSet<String>,
    ) -> Difference {
        let mut difference = Difference::default();
        let mut loops: BTreeMap<IpAddr, isize> = BTreeMap::new();
        for key in touched {
            let is_new = before.contains_key(key);
            let rows = self.rows.get(key).cloned().unwrap_or_default();
            let leads: Vec<Leads> =
                rows.iter().map(|row| self.claims.leads(&row.port, &self.config, &self.nodes)).collect();
            if !is_new && rows.iter().map(|row| &row.leads).eq(leads.iter()) {
                continue;
            }
            let after: Vec<Arc<Row>> = rows
                .iter()
                .zip(leads)
                .map(|(row, leads)| Arc::new(Row { port: row.port.clone(), number: row.number, leads }))
                .collect();
            let old = before.remove(key).unwrap_or(rows);
            for (rows, by) in [(&old, -1), (&after, 1)] {
                let targets = rows.iter().flat_map(|row| row.port.all_targets());
                targets.for_each(|(ip, _)| *loops.entry(*ip).or_default() += by);
            }
            if !after.is_empty() {
                self.rows.insert(key.clone(), after.clone());
            }
            difference.before.rows.extend(old);
            difference.after.rows.extend(after);
        }
        for (ip, by) in loops {
            let old = self.loops.get(&ip).copied().unwrap_or(0);
            let new = old.saturating_add_signed(by);
            match (old, new) {
                (0, 0) => {}
                (0, _) => {
                    difference.after.loops.insert(ip);
                }
                (_, 0) => {
                    difference.before.loops.insert(ip);
                }
                _ => {}
            }
            if new == 0 {
                self.loops.remove(&ip);
            } else {
                self.loops.insert(ip, new);
            }
        }
        difference
    }
}

/// Counts a row that has no endpoint here although traffic must stay here.
fn count(without: &mut BTreeMap<Family, WithoutLocal>, row: &ServicePort, by: isize) {
    let without = without.entry(row.family).or_default();
    if matches!(&row.internal, Internal::Local { local, has_others: true } if local.is_empty()) {
        without.internal = without.internal.saturating_add_signed(by);
    }
    if matches!(&row.external, External::Local { local, all } if local.is_empty() && !all.is_empty()) {
        without.external = without.external.saturating_add_signed(by);
    }
}

fn set<K: Ord, T>(map: &mut BTreeMap<K, T>, key: K, value: Option<T>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

/// A Service's addresses of the pool, and the Nodes that may have them: those with endpoints of the address's family, if
/// traffic must stay where it comes to.
fn pool_addresses<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a EndpointSlice> + Clone,
    ports: &[ServicePort],
) -> Vec<PoolAddress> {
    let policy = service.spec.as_ref().and_then(|spec| spec.external_traffic_policy.as_deref());
    let is_ready = |conditions: Option<bool>| conditions.unwrap_or(true);
    let only = |family: Family| {
        let slices = slices.clone().filter(move |slice| slice.address_type == family.as_str());
        let endpoints = slices.flat_map(|slice| &slice.endpoints);
        endpoints
            .filter(|one| is_ready(one.conditions.as_ref().and_then(|conditions| conditions.ready)))
            .filter_map(|one| one.node_name.clone())
            .collect()
    };
    // All rows of one family name the same addresses.
    let of_families = ports.chunk_by(|one, other| one.family == other.family);
    of_families
        .filter_map(|of_family| of_family.first())
        .flat_map(|port| {
            let only = (policy == Some("Local")).then(|| only(port.family));
            port.balancer_ips.iter().map(move |ip| PoolAddress { ip: *ip, only: only.clone() })
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests;
