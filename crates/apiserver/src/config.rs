//! The configuration of an API server.

use std::fmt;
use std::net::SocketAddr;

use machinery::net::Cidrs;

/// The configuration of an API server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on; `None` for in-process only. Port 0 takes any.
    pub bind: Option<SocketAddr>,
    /// The serving certificate's chain, PEM.
    pub certificate_pem: Vec<u8>,
    /// Its key, PEM.
    pub key_pem: Vec<u8>,
    /// The authorities for client certificates, PEM.
    pub client_ca_pem: Vec<u8>,
    /// The authorities for the serving certificate, PEM: what Pods get as `kube-root-ca.crt`.
    pub root_ca_pem: Vec<u8>,
    /// Signs and checks service account tokens: PKCS#8, ECDSA P-256 (`auth::pki::service_account_key`).
    pub service_account_key: Vec<u8>,
    /// `iss` of service account tokens.
    pub service_account_issuer: String,
    /// The audiences that mean this server; the first is the default of new tokens.
    pub service_account_audiences: Vec<String>,
    /// The client certificate for kubelets, PEM.
    pub kubelet_client_certificate_pem: Vec<u8>,
    /// Its key, PEM.
    pub kubelet_client_key_pem: Vec<u8>,
    /// The authorities for kubelets' serving certificates, PEM.
    pub kubelet_ca_pem: Vec<u8>,
    /// The address at which other nodes and Pods reach this server; the endpoint of the `kubernetes` Service.
    pub advertise_address: SocketAddr,
    /// Cluster IPs come from here, at first. The main family is what Services are of that do not say.
    pub service_cidrs: Cidrs,
    /// Node ports come from here.
    pub node_ports: PortRange,
    /// The number of requests, watches apart, that may be under way.
    pub requests_in_flight_max: usize,
    /// The options of operators.
    pub options: crate::Options,
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl PortRange {
    /// `true` if a port is inside.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}
