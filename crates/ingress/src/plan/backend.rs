//! A Service's port as the endpoints behind it.
//!
//! Source: `EndpointConditions`, `ServicePort.appProtocol`, KEP-3726; which endpoints count is as kube-proxy has it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::api::networking::v1::IngressBackend;

use super::finding::Finding;
use super::snapshot::Snapshot;
use crate::table::{Backend, Protocol, Target};

/// Of a Service: the Secret by whose `ca.crt` the certificates of its endpoints are verified.
const BACKEND_AUTHORITY: &str = "ingress.knarr.io/backend-ca-secret";
/// Where an authority is in a Secret, as those have it that make certificates.
const AUTHORITY_FIELD: &str = "ca.crt";

/// What backends are found in.
pub(super) struct Backends<'a>(&'a Snapshot);

/// A port of a Service that somebody asks for.
pub(super) struct Asked<'a> {
    pub(super) namespace: &'a str,
    pub(super) service: &'a str,
    /// Its name, unless it is asked for by its number.
    pub(super) port_name: Option<&'a str>,
    pub(super) port_number: Option<i64>,
    /// What it speaks, if the Service does not say.
    pub(super) usual: Protocol,
}

impl<'a> Backends<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        Self(snapshot)
    }

    /// Who answers for a backend of the Ingress `key`; nobody, where something is wrong.
    pub(super) fn resolve(&self, key: &str, backend: &IngressBackend) -> (Backend, Vec<Finding>) {
        let namespace = key.split('/').next().unwrap_or_default();
        let absent = StatusCode::SERVICE_UNAVAILABLE;
        let Some(service) = &backend.service else {
            let resource = backend.resource.as_ref();
            let what = resource.map_or_else(
                || "nothing".to_owned(),
                |resource| format!("{} {}", resource.kind, resource.name),
            );
            let backend = Backend { service: what.clone(), targets: Vec::new(), absent };
            return (backend, vec![Finding::ResourceBackend { what }]);
        };
        let port = service.port.as_ref();
        let asked = Asked {
            namespace,
            service: &service.name,
            port_name: port.and_then(|port| port.name.as_deref()).filter(|name| !name.is_empty()),
            port_number: port.and_then(|port| port.number).map(i64::from),
            usual: Protocol::Http1,
        };
        let found = self.targets(&asked);
        let (targets, findings) =
            found.map_or_else(|finding| (Vec::new(), vec![finding]), |all| (all, Vec::new()));
        (Backend { service: asked.to_string(), targets, absent }, findings)
    }

    /// The endpoints behind a port of a Service.
    pub(super) fn targets(&self, asked: &Asked<'_>) -> Result<Vec<Target>, Finding> {
        let (name, key) = (asked.service.to_owned(), format!("{}/{}", asked.namespace, asked.service));
        let Some(service) = self.0.services.get(&key) else { return Err(Finding::ServiceMissing { name }) };
        let spec = service.spec.as_ref();
        if spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName") {
            return Err(Finding::ServiceExternal { name });
        }
        let mut ports = spec.into_iter().flat_map(|spec| spec.ports.iter().flatten());
        let missing = || Finding::PortMissing { service: name, port: asked.port() };
        let port = ports.find(|port| asked.is_for(port)).ok_or_else(missing)?;
        let protocol = self.protocol(service, port, &asked.usual)?;
        let slices = self.0.slices.get(&key).map(Vec::as_slice).unwrap_or_default();
        let port_name = port.name.as_deref().unwrap_or_default();
        let targets = addresses(slices, port_name).into_iter();
        Ok(targets.map(|address| Target { address, protocol: protocol.clone() }).collect())
    }

    fn protocol(&self, service: &Service, port: &ServicePort, usual: &Protocol) -> Result<Protocol, Finding> {
        match port.app_protocol.as_deref() {
            Some("kubernetes.io/h2c") => Ok(Protocol::H2c),
            Some("https" | "HTTPS" | "kubernetes.io/wss") => self.tls(service),
            _ => Ok(usual.clone()),
        }
    }

    /// Without an authority the endpoints are believed whatever they show: no more is known of them than without TLS.
    fn tls(&self, service: &Service) -> Result<Protocol, Finding> {
        let metadata = &service.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let service = metadata.name.clone().unwrap_or_default();
        let name = format!("{service}.{namespace}.svc");
        let Some(secret) = metadata.annotations.as_ref().and_then(|all| all.get(BACKEND_AUTHORITY)) else {
            return Ok(Protocol::Tls { name, authority: None });
        };
        let found = self.0.secrets.get(&format!("{namespace}/{secret}"));
        let authority = found.and_then(|found| found.data.as_ref()?.get(AUTHORITY_FIELD));
        match authority.filter(|authority| !authority.0.is_empty()) {
            Some(authority) => Ok(Protocol::Tls { name, authority: Some(Arc::from(authority.0.as_slice())) }),
            None => Err(Finding::AuthorityMissing { service, secret: secret.clone() }),
        }
    }
}

impl Asked<'_> {
    /// The port's name or number.
    fn port(&self) -> String {
        let number = || self.port_number.unwrap_or_default().to_string();
        self.port_name.map_or_else(number, str::to_owned)
    }

    fn is_for(&self, port: &ServicePort) -> bool {
        let is_tcp = port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
        let is_it = match self.port_name {
            Some(name) => port.name.as_deref() == Some(name),
            None => self.port_number == Some(i64::from(port.port)),
        };
        is_tcp && is_it
    }
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.service, self.port())
    }
}

/// Ready endpoints; those that still serve while they end, if there is no other.
fn addresses(slices: &[Arc<EndpointSlice>], port_name: &str) -> Vec<SocketAddr> {
    let (mut ready, mut ending) = (Vec::new(), Vec::new());
    for slice in slices {
        let ports = slice.ports.iter().flatten();
        let port = ports.filter(|port| port.name.as_deref().unwrap_or_default() == port_name);
        let number = port.filter_map(|port| u16::try_from(port.port?).ok()).find(|number| *number > 0);
        let Some(number) = number.filter(|_| slice.address_type != "FQDN") else { continue };
        for endpoint in &slice.endpoints {
            // An endpoint's addresses are one and the same; the first counts, as for kube-proxy.
            let address = endpoint.addresses.first().and_then(|address| address.parse().ok());
            let Some(address) = address.filter(is_dialled) else { continue };
            match standing(endpoint) {
                Standing::Ready => ready.push(SocketAddr::new(address, number)),
                Standing::Ending => ending.push(SocketAddr::new(address, number)),
                Standing::Away => {}
            }
        }
    }
    let mut chosen = if ready.is_empty() { ending } else { ready };
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

enum Standing {
    Ready,
    Ending,
    Away,
}

fn standing(endpoint: &Endpoint) -> Standing {
    let conditions = endpoint.conditions.as_ref();
    let is_ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
    let is_serving = conditions.and_then(|conditions| conditions.serving).unwrap_or(is_ready);
    let is_ending = conditions.and_then(|conditions| conditions.terminating).unwrap_or(false);
    match (is_ready, is_serving && is_ending) {
        (true, _) => Standing::Ready,
        (false, true) => Standing::Ending,
        (false, false) => Standing::Away,
    }
}

/// Whether an address is one that others can have: never this host's own loopback, or what only this link knows. The
/// API server refuses such endpoints, too; whoever writes them nevertheless reaches nothing.
fn is_dialled(address: &IpAddr) -> bool {
    let address = address.to_canonical();
    let is_local = match address {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_local && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}
