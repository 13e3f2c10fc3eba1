//! A Service and its EndpointSlices joined: one row per port and family, with the endpoints that it leads to.
//!
//! A row is all that upstream's proxy of one family knows of a port: addresses, ranges and endpoints of that family alone. A
//! Service without a cluster address of a family has no rows in it, whatever else it names. What an address is is read as the
//! API always read it ([`legacy_ip`]): an IPv6 address that wraps an IPv4 one is that IPv4 address.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use controller::load_balancer;
use k8s_openapi::api::core::v1::{Service, ServicePort as Port, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use machinery::net::{Cidr, Family, legacy_ip};

use crate::Nodes;

const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;
/// The protocol whose flows have no end of their own.
pub(crate) const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Address and port of an endpoint.
pub(crate) type Target = (IpAddr, u16);
/// Endpoints in order, each once.
pub(crate) type Targets = Arc<[Target]>;

/// Where the proxy is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here<'a> {
    node: &'a str,
    zone: Option<&'a str>,
}

impl<'a> Here<'a> {
    pub(crate) fn new(node: &'a str, nodes: &'a Nodes) -> Self {
        Self { node, zone: nodes.zone.as_deref() }
    }
}

/// One port of a Service in one family: all addresses are of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePort {
    /// Of all its addresses.
    pub(crate) family: Family,
    /// `namespace/name/port name`.
    pub(crate) name: String,
    /// Number of the transport protocol.
    pub(crate) protocol: u8,
    /// The Service's port.
    pub(crate) port: u16,
    /// Where it is reached inside the cluster.
    pub(crate) cluster_ips: Vec<IpAddr>,
    /// Where it is reached from outside, by its own words (`spec.externalIPs`).
    pub(crate) external_ips: Vec<IpAddr>,
    /// Where it is reached from outside, by those of a load balancer (`status.loadBalancer`).
    pub(crate) balancer_ips: Vec<IpAddr>,
    /// Whether these are of the cluster's own pool, from which one Node at a time has each.
    pub(crate) is_of_pool: bool,
    /// From where load balancers' addresses are reached; `None` is from everywhere.
    pub(crate) source_ranges: Option<Vec<Cidr>>,
    /// The port of every node that leads to it.
    pub(crate) node_port: Option<u16>,
    /// Where load balancers ask whether there are endpoints here.
    pub(crate) health_check_port: Option<u16>,
    /// How long a client stays with an endpoint.
    pub(crate) affinity: Option<Duration>,
    /// Endpoints for traffic from inside.
    pub(crate) internal: Internal,
    /// Endpoints for traffic from outside.
    pub(crate) external: External,
    /// With which endpoints flows of UDP may stay: all that serve, whoever new ones would go to. None of other protocols.
    pub(crate) staying: Targets,
}

impl ServicePort {
    /// What no other row has.
    pub(crate) fn id(&self) -> (Family, &str, u8) {
        (self.family, &self.name, self.protocol)
    }

    /// All addresses from outside.
    pub(crate) fn outside_ips(&self) -> impl Iterator<Item = &IpAddr> {
        self.external_ips.iter().chain(&self.balancer_ips)
    }

    /// Every endpoint that traffic from outside may reach.
    pub(crate) fn endpoints(&self) -> &[Target] {
        match &self.external {
            External::Cluster(all) | External::Local { all, .. } => all,
        }
    }

    /// Every endpoint that any traffic may reach; some more than once.
    pub(crate) fn all_targets(&self) -> impl Iterator<Item = &Target> {
        let local = match &self.external {
            External::Local { local, .. } => local,
            External::Cluster(_) => [].as_slice(),
        };
        self.internal.targets().iter().chain(self.endpoints()).chain(local)
    }
}

/// Where traffic from inside goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Internal {
    /// To any endpoint of the cluster.
    Cluster(Targets),
    /// To endpoints on this node only.
    Local {
        /// On this node.
        local: Targets,
        /// Whether there are any elsewhere: then nobody is told that the Service has none.
        has_others: bool,
    },
}

impl Internal {
    /// The endpoints.
    pub(crate) fn targets(&self) -> &[Target] {
        match self {
            Self::Cluster(targets) | Self::Local { local: targets, .. } => targets,
        }
    }
}

/// Where traffic from outside goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum External {
    /// To any endpoint of the cluster, with the node's address as source.
    Cluster(Targets),
    /// To endpoints on this node only, with the client's address; Pods go to any endpoint.
    Local {
        /// On this node.
        local: Targets,
        /// In the whole cluster.
        all: Targets,
    },
}

/// Every port of a Service that is ours, in each of these families in which it has an address, in order of family and name;
/// `slices` are the Service's.
pub(crate) fn service_ports<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a EndpointSlice> + Clone,
    here: Here<'_>,
    families: &[Family],
) -> Vec<ServicePort> {
    let meta = &service.metadata;
    let (Some(namespace), Some(name)) = (meta.namespace.as_deref(), meta.name.as_deref()) else {
        return Vec::new();
    };
    let is_foreign = meta.labels.as_ref().is_some_and(|labels| labels.contains_key(PROXY_NAME_LABEL));
    let Some(spec) = service.spec.as_ref().filter(|_| !is_foreign) else { return Vec::new() };
    if spec.type_.as_deref() == Some("ExternalName") {
        return Vec::new();
    }
    let mut rows: Vec<ServicePort> = Vec::new();
    for family in families {
        let mut cluster_ips = addresses(spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip), *family);
        cluster_ips.retain(|ip| !is_special(*ip));
        if cluster_ips.is_empty() {
            continue;
        }
        let slices = slices.clone().filter(|slice| slice.address_type == family.as_str());
        let row = |port: &Port| {
            let port_name = port.name.as_deref().unwrap_or_default();
            let protocol = protocol_number(port.protocol.as_deref());
            let endpoints = Endpoints::collect(slices.clone(), port_name, protocol, here, *family);
            ServicePort {
                name: format!("{namespace}/{name}/{port_name}"),
                cluster_ips: cluster_ips.clone(),
                external_ips: addresses(spec.external_ips.iter().flatten(), *family),
                balancer_ips: balancer_ips(service, *family),
                is_of_pool: load_balancer::has_pool_address(service),
                ..row(spec, port, &endpoints, *family)
            }
        };
        rows.extend(spec.ports.iter().flatten().map(row));
    }
    rows.sort_by(|a, b| a.id().cmp(&b.id()));
    // Names are unique in what the API server has looked at.
    rows.dedup_by(|b, a| a.id() == b.id());
    rows
}

/// The key of the Service that a slice is of.
pub(crate) fn service_of(slice: &EndpointSlice) -> Option<String> {
    let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME_LABEL)?;
    Some(format!("{}/{service}", slice.metadata.namespace.as_deref()?))
}

fn row(spec: &ServiceSpec, port: &Port, endpoints: &Endpoints, family: Family) -> ServicePort {
    let is_local = |policy: &Option<String>| policy.as_deref() == Some("Local");
    let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(DEFAULT_AFFINITY_SECONDS);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1))
    });
    let (all, local): (Targets, Targets) = (endpoints.all.nearest().into(), endpoints.local.usable().into());
    let protocol = protocol_number(port.protocol.as_deref());
    let staying = if protocol == UDP { in_order(endpoints.serving.clone()) } else { Vec::new() };
    ServicePort {
        family,
        name: String::new(),
        protocol,
        port: u16::try_from(port.port).unwrap_or(0),
        cluster_ips: Vec::new(),
        external_ips: Vec::new(),
        balancer_ips: Vec::new(),
        is_of_pool: false,
        health_check_port: health_check_port(spec),
        source_ranges: source_ranges(spec, family),
        node_port: port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0),
        affinity,
        internal: if is_local(&spec.internal_traffic_policy) {
            Internal::Local { local: local.clone(), has_others: !all.is_empty() }
        } else {
            Internal::Cluster(all.clone())
        },
        external: if is_local(&spec.external_traffic_policy) {
            External::Local { local, all }
        } else {
            External::Cluster(all)
        },
        staying: staying.into(),
    }
}

/// From where load balancers' addresses are reached; `None` is from everywhere.
///
/// If all ranges are of another family, it is from nowhere: what was to be restricted is not open to all.
fn source_ranges(spec: &ServiceSpec, family: Family) -> Option<Vec<Cidr>> {
    let texts = spec.load_balancer_source_ranges.as_ref().filter(|ranges| !ranges.is_empty())?;
    // What is stored may have spaces around it, and be written as Go once read it.
    let ranges = texts.iter().filter_map(|text| Some(Cidr::legacy(text.trim())?.network()));
    let mut ranges: Vec<Cidr> = ranges.filter(|range| range.family() == family).collect();
    ranges.sort_unstable();
    ranges.dedup();
    (!ranges.iter().any(|range| range.bits() == 0)).then_some(ranges)
}

/// Number of a transport protocol by its name in the API; TCP if there is none.
fn protocol_number(name: Option<&str>) -> u8 {
    match name {
        Some("UDP") => UDP,
        Some("SCTP") => SCTP,
        _ => 6,
    }
}

fn health_check_port(spec: &ServiceSpec) -> Option<u16> {
    let is_asked = spec.type_.as_deref() == Some("LoadBalancer")
        && spec.external_traffic_policy.as_deref() == Some("Local");
    let port = spec.health_check_node_port.filter(|_| is_asked);
    port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
}

fn balancer_ips(service: &Service, family: Family) -> Vec<IpAddr> {
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = ingress.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    let ingress = ingress.filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
    addresses(ingress.filter_map(|ingress| ingress.ip.as_ref()), family)
}

fn addresses<'a>(texts: impl Iterator<Item = &'a String>, family: Family) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> =
        texts.filter_map(|text| legacy_ip(text)).filter(|ip| Family::of(*ip) == family).collect();
    ips.sort_unstable();
    ips.dedup();
    ips
}

/// Whether an address has a meaning of its own on each link or host: nothing is led to it, and it leads to no Service.
pub(crate) fn is_special(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    is_local || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast()
}

/// The endpoints of one port, everywhere and on this node.
#[derive(Debug, Default)]
struct Endpoints {
    all: Candidates,
    local: Candidates,
    /// All that serve, also those that get nothing new.
    serving: Vec<Target>,
}

/// Ready ones; and those that end but still serve, for when no other is left. Source: KEP-1669.
#[derive(Debug, Default)]
struct Candidates {
    ready: Vec<Ready>,
    serving: Vec<Target>,
}

#[derive(Debug)]
struct Ready {
    target: Target,
    by_node: Meant,
    by_zone: Meant,
}

/// For whom an endpoint is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meant {
    All,
    This,
    Others,
}

impl Meant {
    fn of<'a>(names: impl IntoIterator<Item = &'a String>, own: Option<&str>) -> Self {
        let is_own = |name: &String| Some(name.as_str()) == own;
        match names.into_iter().map(is_own).reduce(|one, other| one || other) {
            None => Self::All,
            Some(true) => Self::This,
            Some(false) => Self::Others,
        }
    }
}

impl Candidates {
    /// Those that are meant for this Node; if there are none, for its zone; if there are none, all. Hints that not all
    /// that are ready have count for nothing. Source: `pkg/proxy/topology.go`, KEP-2433, KEP-3015.
    fn nearest(&self) -> Vec<Target> {
        let meant = |by: fn(&Ready) -> Meant| {
            let is_known = self.ready.iter().all(|one| by(one) != Meant::All);
            let own = self.ready.iter().filter(|one| is_known && by(one) == Meant::This);
            own.map(|one| one.target).collect::<Vec<_>>()
        };
        let near = [meant(|one| one.by_node), meant(|one| one.by_zone)];
        near.into_iter().find(|own| !own.is_empty()).map_or_else(|| self.usable(), in_order)
    }

    fn usable(&self) -> Vec<Target> {
        let ready: Vec<Target> = self.ready.iter().map(|one| one.target).collect();
        in_order(if ready.is_empty() { self.serving.clone() } else { ready })
    }

    fn add(&mut self, endpoint: &Endpoint, target: Target, here: Here<'_>) {
        let conditions = endpoint.conditions.as_ref();
        let terminating = conditions.and_then(|conditions| conditions.terminating).unwrap_or(false);
        if is_ready(endpoint) {
            let hints = endpoint.hints.as_ref();
            let nodes = hints.and_then(|hints| hints.for_nodes.as_deref()).unwrap_or_default();
            let zones = hints.and_then(|hints| hints.for_zones.as_deref()).unwrap_or_default();
            self.ready.push(Ready {
                target,
                by_node: Meant::of(nodes.iter().map(|node| &node.name), Some(here.node)),
                by_zone: Meant::of(zones.iter().map(|zone| &zone.name), here.zone),
            });
        } else if serves(endpoint) && terminating {
            self.serving.push(target);
        }
    }
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

fn serves(endpoint: &Endpoint) -> bool {
    let serving = endpoint.conditions.as_ref().and_then(|conditions| conditions.serving);
    is_ready(endpoint) || serving.unwrap_or(false)
}

fn in_order(mut targets: Vec<Target>) -> Vec<Target> {
    targets.sort_unstable();
    targets.dedup();
    targets
}

impl Endpoints {
    /// Those at the port of a name and protocol; one that says no protocol is of any.
    fn collect<'a>(
        slices: impl Iterator<Item = &'a EndpointSlice>,
        port_name: &str,
        protocol: u8,
        here: Here<'_>,
        family: Family,
    ) -> Self {
        let mut endpoints = Self::default();
        for slice in slices {
            let is_it = |port: &&EndpointPort| {
                let of = port.protocol.as_deref();
                port.name.as_deref().unwrap_or_default() == port_name
                    && of.is_none_or(|of| protocol_number(Some(of)) == protocol)
            };
            let port = slice.ports.iter().flatten().find(is_it).and_then(|port| port.port);
            let Some(port) = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0) else {
                continue;
            };
            for endpoint in &slice.endpoints {
                let ip = endpoint.addresses.first().and_then(|ip| legacy_ip(ip));
                let Some(ip) = ip.filter(|ip| Family::of(*ip) == family && !is_special(*ip)) else {
                    continue;
                };
                endpoints.all.add(endpoint, (ip, port), here);
                endpoints.serving.extend(serves(endpoint).then_some((ip, port)));
                if endpoint.node_name.as_deref() == Some(here.node) {
                    endpoints.local.add(endpoint, (ip, port), here);
                }
            }
        }
        endpoints
    }
}

#[cfg(test)]
mod tests;
