//! Services and EndpointSlices joined: one row per port of a Service, with the endpoints that it leads to.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Service, ServicePort as Port, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

/// Address and port of an endpoint.
pub(crate) type Target = (Ipv4Addr, u16);

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePort {
    /// `namespace/name/port name`.
    pub(crate) name: String,
    /// Number of the transport protocol.
    pub(crate) protocol: u8,
    /// The Service's port.
    pub(crate) port: u16,
    /// Where it is reached inside the cluster.
    pub(crate) cluster_ips: Vec<Ipv4Addr>,
    /// Where it is reached from outside, by its own words (`spec.externalIPs`).
    pub(crate) external_ips: Vec<Ipv4Addr>,
    /// Where it is reached from outside, by those of a load balancer (`status.loadBalancer`).
    pub(crate) balancer_ips: Vec<Ipv4Addr>,
    /// The port of every node that leads to it.
    pub(crate) node_port: Option<u16>,
    /// How long a client stays with an endpoint.
    pub(crate) affinity: Option<Duration>,
    /// Endpoints for traffic from inside.
    pub(crate) internal: Vec<Target>,
    /// Endpoints for traffic from outside.
    pub(crate) external: External,
}

impl ServicePort {
    /// All addresses from outside.
    pub(crate) fn outside_ips(&self) -> impl Iterator<Item = &Ipv4Addr> {
        self.external_ips.iter().chain(&self.balancer_ips)
    }

    /// Every endpoint that traffic from outside may reach.
    pub(crate) fn endpoints(&self) -> &[Target] {
        match &self.external {
            External::Cluster(all) | External::Local { all, .. } => all,
        }
    }
}

/// Where traffic from outside goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum External {
    /// To any endpoint of the cluster, with the node's address as source.
    Cluster(Vec<Target>),
    /// To endpoints on this node only, with the client's address; Pods go to any endpoint.
    Local {
        /// On this node.
        local: Vec<Target>,
        /// In the whole cluster.
        all: Vec<Target>,
    },
}

/// Every port of every Service that has an address, in order of name.
pub(crate) fn service_ports(
    services: &[Arc<Service>],
    slices: &[Arc<EndpointSlice>],
    node: &str,
) -> Vec<ServicePort> {
    let mut by_service: BTreeMap<(&str, &str), Vec<&EndpointSlice>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.address_type == "IPv4") {
        let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME_LABEL));
        if let (Some(namespace), Some(service)) = (slice.metadata.namespace.as_deref(), service) {
            by_service.entry((namespace, service)).or_default().push(slice);
        }
    }
    let mut rows = Vec::new();
    for service in services {
        let (Some(namespace), Some(name)) =
            (service.metadata.namespace.as_deref(), service.metadata.name.as_deref())
        else {
            continue;
        };
        let is_foreign =
            service.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(PROXY_NAME_LABEL));
        let Some(spec) = service.spec.as_ref().filter(|_| !is_foreign) else { continue };
        let cluster_ips = cluster_ips(spec);
        if cluster_ips.is_empty() || spec.type_.as_deref() == Some("ExternalName") {
            continue;
        }
        let slices = by_service.get(&(namespace, name)).map(Vec::as_slice).unwrap_or_default();
        for port in spec.ports.iter().flatten() {
            let port_name = port.name.as_deref().unwrap_or_default();
            rows.push(ServicePort {
                name: format!("{namespace}/{name}/{port_name}"),
                external_ips: addresses(spec.external_ips.iter().flatten()),
                balancer_ips: balancer_ips(service),
                cluster_ips: cluster_ips.clone(),
                ..row(spec, port, &Endpoints::collect(slices, port_name, node))
            });
        }
    }
    rows.sort_by(|a, b| (&a.name, a.protocol).cmp(&(&b.name, b.protocol)));
    rows
}

fn row(spec: &ServiceSpec, port: &Port, endpoints: &Endpoints) -> ServicePort {
    let is_local = |policy: &Option<String>| policy.as_deref() == Some("Local");
    let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(DEFAULT_AFFINITY_SECONDS);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1))
    });
    let (all, local) = (endpoints.all.usable(), endpoints.local.usable());
    ServicePort {
        name: String::new(),
        protocol: protocol_number(port.protocol.as_deref()),
        port: u16::try_from(port.port).unwrap_or(0),
        cluster_ips: Vec::new(),
        external_ips: Vec::new(),
        balancer_ips: Vec::new(),
        node_port: port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0),
        affinity,
        internal: if is_local(&spec.internal_traffic_policy) { local.clone() } else { all.clone() },
        external: if is_local(&spec.external_traffic_policy) {
            External::Local { local, all }
        } else {
            External::Cluster(all)
        },
    }
}

/// Number of a transport protocol by its name in the API; TCP if there is none.
fn protocol_number(name: Option<&str>) -> u8 {
    match name {
        Some("UDP") => 17,
        Some("SCTP") => 132,
        _ => 6,
    }
}

fn cluster_ips(spec: &ServiceSpec) -> Vec<Ipv4Addr> {
    addresses(spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip))
}

fn balancer_ips(service: &Service) -> Vec<Ipv4Addr> {
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = ingress.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    let ingress = ingress.filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
    addresses(ingress.filter_map(|ingress| ingress.ip.as_ref()))
}

fn addresses<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<Ipv4Addr> {
    let mut ips: Vec<Ipv4Addr> = texts.filter_map(|ip| ip.parse().ok()).collect();
    ips.sort_unstable();
    ips.dedup();
    ips
}

/// The endpoints of one port, everywhere and on this node.
#[derive(Debug, Default)]
struct Endpoints {
    all: Candidates,
    local: Candidates,
}

/// Ready ones; and those that end but still serve, for when no other is left. Source: KEP-1669.
#[derive(Debug, Default)]
struct Candidates {
    ready: Vec<Target>,
    serving: Vec<Target>,
}

impl Candidates {
    fn usable(&self) -> Vec<Target> {
        let mut targets = if self.ready.is_empty() { self.serving.clone() } else { self.ready.clone() };
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    fn add(&mut self, endpoint: &Endpoint, target: Target) {
        let conditions = endpoint.conditions.as_ref();
        let ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
        let serving = conditions.and_then(|conditions| conditions.serving).unwrap_or(ready);
        let terminating = conditions.and_then(|conditions| conditions.terminating).unwrap_or(false);
        if ready {
            self.ready.push(target);
        } else if serving && terminating {
            self.serving.push(target);
        }
    }
}

impl Endpoints {
    fn collect(slices: &[&EndpointSlice], port_name: &str, node: &str) -> Self {
        let mut endpoints = Self::default();
        for slice in slices {
            let ports = slice.ports.iter().flatten();
            let mut named = ports.filter(|port| port.name.as_deref().unwrap_or_default() == port_name);
            let Some(port) =
                named.next().and_then(|port| port.port).and_then(|port| u16::try_from(port).ok())
            else {
                continue;
            };
            for endpoint in &slice.endpoints {
                let Some(ip) = endpoint.addresses.first().and_then(|ip| ip.parse().ok()) else { continue };
                endpoints.all.add(endpoint, (ip, port));
                if endpoint.node_name.as_deref() == Some(node) {
                    endpoints.local.add(endpoint, (ip, port));
                }
            }
        }
        endpoints
    }
}
