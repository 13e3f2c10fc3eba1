//! The names of the zone: Services and their endpoints, indexed by name and by address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery::net::Cidr;

const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// A Service's namespace and name.
pub(crate) type ServiceName = (String, String);

/// A snapshot of the cluster's names. Labels are lowercase.
#[derive(Clone, Debug, Default)]
pub struct Zone {
    /// The cluster's domain, as labels.
    pub(crate) domain: Vec<String>,
    /// Rises with every change.
    pub(crate) serial: u32,
    /// By namespace and name.
    pub(crate) services: BTreeMap<(String, String), Entry>,
    /// Namespaces that have Services.
    pub(crate) namespaces: BTreeSet<String>,
    /// Names below the domain, by address.
    pub(crate) reverse: BTreeMap<IpAddr, BTreeSet<String>>,
    pub(crate) reverse_cidrs: Vec<Cidr>,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Leads elsewhere.
    External(String),
    /// Has addresses of its own, or (headless) those of its endpoints.
    Local {
        /// Empty if headless.
        cluster_ips: Vec<IpAddr>,
        ports: Vec<Port>,
        endpoints: Vec<Endpoint>,
    },
}

/// A named port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// `tcp`, `udp` or `sctp`.
    pub(crate) protocol: String,
    pub(crate) number: u16,
}

/// A ready endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    /// The Pod's hostname, or its address with dashes.
    pub(crate) hostname: String,
    pub(crate) ip: IpAddr,
    pub(crate) ports: Vec<Port>,
}

impl Zone {
    /// The names that these objects give.
    pub fn new(services: &[Arc<Service>], slices: &[Arc<EndpointSlice>], domain: &str, serial: u32) -> Self {
        let mut endpoints: BTreeMap<ServiceName, Vec<Endpoint>> = BTreeMap::new();
        for slice in slices {
            if let Some(service) = service_of(slice) {
                endpoints.entry(service).or_default().extend(ready_endpoints(slice));
            }
        }
        let domain = domain.trim_end_matches('.').split('.').map(str::to_ascii_lowercase).collect();
        let mut zone = Self { domain, serial, ..Self::default() };
        for service in services {
            let (Some(namespace), Some(name)) =
                (service.metadata.namespace.as_deref(), service.metadata.name.as_deref())
            else {
                continue;
            };
            let full_name = (namespace.to_owned(), name.to_owned());
            let mut endpoints = endpoints.remove(&full_name).unwrap_or_default();
            endpoints.sort();
            endpoints.dedup();
            if let Some(entry) = entry(service, endpoints) {
                zone.insert(namespace, name, entry);
            }
        }
        zone
    }

    /// Networks whose reverse names belong to this zone whether they exist or not.
    #[must_use]
    pub fn with_reverse_cidrs(mut self, cidrs: &[Cidr]) -> Self {
        self.reverse_cidrs = cidrs.to_vec();
        self
    }

    /// The Services whose names lead somewhere: to a ready endpoint, or out of the cluster.
    pub(crate) fn reachable(&self) -> BTreeSet<ServiceName> {
        let leads_somewhere = |entry: &Entry| match entry {
            Entry::External(_) => true,
            Entry::Local { endpoints, .. } => !endpoints.is_empty(),
        };
        self.services
            .iter()
            .filter(|(_, entry)| leads_somewhere(entry))
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn insert(&mut self, namespace: &str, name: &str, entry: Entry) {
        if let Entry::Local { cluster_ips, endpoints, .. } = &entry {
            for ip in cluster_ips {
                self.reverse.entry(*ip).or_default().insert(format!("{name}.{namespace}.svc"));
            }
            for endpoint in endpoints {
                let full = format!("{}.{name}.{namespace}.svc", endpoint.hostname);
                self.reverse.entry(endpoint.ip).or_default().insert(full);
            }
        }
        self.namespaces.insert(namespace.to_owned());
        self.services.insert((namespace.to_owned(), name.to_owned()), entry);
    }
}

/// The Service that a slice belongs to.
pub(crate) fn service_of(slice: &EndpointSlice) -> Option<ServiceName> {
    let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME_LABEL)?;
    Some((slice.metadata.namespace.clone()?, service.clone()))
}

fn entry(service: &Service, endpoints: Vec<Endpoint>) -> Option<Entry> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return spec.external_name.clone().map(Entry::External);
    }
    let ips = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    let mut cluster_ips: Vec<IpAddr> = ips.filter_map(|ip| ip.parse().ok()).collect();
    cluster_ips.sort_unstable();
    cluster_ips.dedup();
    let ports = spec
        .ports
        .iter()
        .flatten()
        .filter_map(|port| port_of(port.name.as_deref(), port.protocol.as_deref(), port.port));
    Some(Entry::Local { cluster_ips, ports: ports.collect(), endpoints })
}

fn port_of(name: Option<&str>, protocol: Option<&str>, number: i32) -> Option<Port> {
    Some(Port {
        name: name.unwrap_or_default().to_ascii_lowercase(),
        protocol: protocol.unwrap_or("TCP").to_ascii_lowercase(),
        number: u16::try_from(number).ok()?,
    })
}

fn ready_endpoints(slice: &EndpointSlice) -> impl Iterator<Item = Endpoint> {
    let ports: Vec<Port> = slice
        .ports
        .iter()
        .flatten()
        .filter_map(|port| port_of(port.name.as_deref(), port.protocol.as_deref(), port.port?))
        .collect();
    let is_ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    };
    slice.endpoints.iter().filter(is_ready).flat_map(move |endpoint| {
        let ports = ports.clone();
        let hostname = endpoint.hostname.clone();
        endpoint.addresses.iter().filter_map(move |address| {
            let ip: IpAddr = address.parse().ok()?;
            let hostname = hostname.clone().unwrap_or_else(|| dashed(ip)).to_ascii_lowercase();
            Some(Endpoint { hostname, ip, ports: ports.clone() })
        })
    })
}

/// An address as one label.
fn dashed(ip: IpAddr) -> String {
    ip.to_string().replace(['.', ':'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_reachable_when_they_lead_somewhere() {
        let service = |name: &str, spec: serde_json::Value| -> Arc<Service> {
            let object = serde_json::json!({"metadata": {"namespace": "a", "name": name}, "spec": spec});
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let slice = |service: &str, ready: bool| -> Arc<EndpointSlice> {
            let object = serde_json::json!({
                "metadata": {"namespace": "a", "name": service, "labels": {SERVICE_NAME_LABEL: service}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.42.0.5"], "conditions": {"ready": ready}}],
            });
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let services = [
            service("empty", serde_json::json!({"clusterIP": "10.43.0.1"})),
            service("waiting", serde_json::json!({"clusterIP": "10.43.0.2"})),
            service("ready", serde_json::json!({"clusterIP": "10.43.0.3"})),
            service("out", serde_json::json!({"type": "ExternalName", "externalName": "example.com"})),
        ];
        let zone = Zone::new(&services, &[slice("waiting", false), slice("ready", true)], "cluster.local", 1);
        let names: Vec<String> = zone.reachable().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["out", "ready"]);
    }
}
