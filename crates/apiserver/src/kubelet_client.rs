//! The TLS side of connections to kubelets: their certificates are checked, and they see the API server's.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
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
        let connector = tls(config).map_err(|failure| warn!(failure, "no streams to kubelets")).ok();
        Self { connector }
    }
}

fn tls(config: &Config) -> std::result::Result<TlsConnector, String> {
    let text = |failure: &dyn std::fmt::Display| failure.to_string();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&config.kubelet_ca_pem) {
        let certificate = certificate.map_err(|failure| text(&failure))?;
        roots.add(certificate).map_err(|failure| text(&failure))?;
    }
    let chain = CertificateDer::pem_slice_iter(&config.kubelet_client_certificate_pem)
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|failure| text(&failure))?;
    let key =
        PrivateKeyDer::from_pem_slice(&config.kubelet_client_key_pem).map_err(|failure| text(&failure))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|failure| text(&failure))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|failure| text(&failure))?;
    Ok(TlsConnector::from(Arc::new(client)))
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
