//! The TLS side of connections to kubelets: their certificates are checked, and they see the API server's.

use tls::Identity;
use tokio_rustls::TlsConnector;
use tracing::warn;

use crate::config::Config;
use crate::status::{Error, Result};

/// The TLS side of connections to kubelets.
pub struct KubeletClient {
    connector: Option<TlsConnector>,
}

impl KubeletClient {
    /// A client with the configured certificate; without one, streams answer 503.
    pub fn new(config: &Config) -> Self {
        let connector = connector(config).map_err(|failure| warn!(%failure, "no streams to kubelets")).ok();
        Self { connector }
    }
}

fn connector(config: &Config) -> std::result::Result<TlsConnector, tls::Error> {
    let Config { kubelet_client_certificate_pem: chain, kubelet_client_key_pem: key, .. } = config;
    let authorities = tls::authorities(&config.kubelet_ca_pem)?;
    tls::connector(tls::Trust::Authorities(authorities), Some(Identity::from_pem(chain, key)?), &[])
}

impl KubeletClient {
    /// The TLS to kubelets.
    ///
    /// # Errors
    /// 503 without a usable certificate.
    pub fn tls(&self) -> Result<TlsConnector> {
        self.connector.clone().ok_or_else(|| Error::unavailable("no streams to kubelets"))
    }
}
