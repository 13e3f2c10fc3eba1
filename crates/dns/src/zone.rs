//! The zone: what the Services and EndpointSlices of the cluster mean to DNS.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// All names of one cluster, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct Zone {
    /// `cluster.local`, in lower case, without a dot at the end.
    pub domain: String,
    pub(crate) namespaces: BTreeMap<String, BTreeMap<String, ServiceNames>>,
    pub(crate) reverse: HashMap<IpAddr, Vec<String>>,
}

/// What one Service's name leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceNames {
    /// Cluster addresses; none for a headless Service.
    pub(crate) addresses: Vec<IpAddr>,
    /// The target of an ExternalName Service.
    pub(crate) external_name: Option<String>,
    /// Named ports of a Service with cluster addresses.
    pub(crate) ports: Vec<NamedPort>,
    /// Endpoints of a headless Service, by host name.
    pub(crate) hosts: BTreeMap<String, Host>,
}

/// One endpoint of a headless Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) ports: Vec<NamedPort>,
}

/// A port that has SRV records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedPort {
    pub(crate) name: String,
    /// In lower case.
    pub(crate) protocol: String,
    pub(crate) port: u16,
}

impl Zone {
    /// Builds the zone.
    pub fn build(domain: &str, services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> Self {
        let mut zone = Self { domain: domain.trim_end_matches('.').to_lowercase(), ..Self::default() };
        for service in services {
            zone.add_service(service);
        }
        for slice in slices {
            zone.add_slice(slice);
        }
        zone
    }

    /// The full name of something in a namespace's Services.
    pub(crate) fn service_name(&self, namespace: &str, name: &str) -> String {
        format!("{name}.{namespace}.svc.{}", self.domain)
    }

    fn add_service(&mut self, service: &Service) {
        let (Some(namespace), Some(name)) = (&service.metadata.namespace, &service.metadata.name) else {
            return;
        };
        let Some(spec) = &service.spec else { return };
        let mut names = ServiceNames::default();
        if spec.type_.as_deref() == Some("ExternalName") {
            names.external_name = spec.external_name.clone();
        } else {
            let ips = spec.cluster_ips.clone().or_else(|| spec.cluster_ip.clone().map(|ip| vec![ip]));
            // "None" and "" are no addresses: such a Service is headless.
            names.addresses = ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect();
            names.ports = spec
                .ports
                .iter()
                .flatten()
                .filter_map(|port| {
                    named_port(port.name.as_deref(), port.protocol.as_deref(), Some(port.port))
                })
                .collect();
        }
        let full_name = self.service_name(namespace, name);
        for address in &names.addresses {
            self.reverse.entry(*address).or_default().push(full_name.clone());
        }
        self.namespaces.entry(namespace.clone()).or_default().insert(name.clone(), names);
    }

    fn add_slice(&mut self, slice: &EndpointSlice) {
        let meta = &slice.metadata;
        let service = meta.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME_LABEL));
        let (Some(namespace), Some(service)) = (&meta.namespace, service) else { return };
        let Some(names) = self.namespaces.get_mut(namespace).and_then(|names| names.get_mut(service)) else {
            return;
        };
        if !names.addresses.is_empty() || names.external_name.is_some() {
            return;
        }
        let ports: Vec<NamedPort> = slice
            .ports
            .iter()
            .flatten()
            .filter_map(|port| named_port(port.name.as_deref(), port.protocol.as_deref(), port.port))
            .collect();
        let mut found = Vec::new();
        for endpoint in &slice.endpoints {
            if endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(false)) {
                continue;
            }
            for address in endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok()) {
                let host_name = endpoint.hostname.clone().unwrap_or_else(|| dashed(address));
                let host = names.hosts.entry(host_name.clone()).or_default();
                host.addresses.insert(address);
                host.ports.clone_from(&ports);
                found.push((address, format!("{host_name}.{service}")));
            }
        }
        for (address, name) in found {
            let full_name = self.service_name(namespace, &name);
            self.reverse.entry(address).or_default().push(full_name);
        }
    }
}

fn named_port(name: Option<&str>, protocol: Option<&str>, port: Option<i32>) -> Option<NamedPort> {
    let name = name.filter(|name| !name.is_empty())?.to_owned();
    let protocol = protocol.unwrap_or("TCP").to_lowercase();
    Some(NamedPort { name, protocol, port: port?.try_into().ok()? })
}

/// `10-42-0-7`: the host name of an endpoint that has none.
pub(crate) fn dashed(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}
