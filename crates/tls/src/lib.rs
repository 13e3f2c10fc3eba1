//! TLS of connections that this host opens: whom they trust, what they show of themselves, and what is spoken on them.
//!
//! One provider of algorithms and one set of protocol versions for all of them. A certificate that nobody vouches for may
//! be taken, where that is asked for by name; whoever shows it must have its key all the same.

mod judge;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

pub use judge::{Judge, Shown};

/// HTTP/1.1 alone, for ALPN.
pub const HTTP1: &[&[u8]] = &[b"http/1.1"];
/// HTTP/2 where the server has it, else HTTP/1.1, for ALPN.
pub const HTTP2: &[&[u8]] = &[b"h2", b"http/1.1"];

/// The authorities that this host trusts, read when they are first needed. None, if it has none.
pub static OF_HOST: LazyLock<Vec<CertificateDer<'static>>> =
    LazyLock::new(|| rustls_native_certs::load_native_certs().certs);

/// The reason why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Certificates that cannot be read: text that is not PEM.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// A key that cannot be read: text that is not PEM, or has none.
    #[error(transparent)]
    Key(pem::Error),
    /// A certificate or a key that cannot be used.
    #[error(transparent)]
    Unusable(#[from] rustls::Error),
}

/// The servers that a connection is made to.
#[derive(Debug)]
pub enum Trust {
    /// Those that one of these authorities vouches for, by the name that is asked for.
    Authorities(RootCertStore),
    /// Anybody who has the key of the certificate that they show.
    Anybody,
    /// Those that a rule of the caller's takes.
    Judged(Arc<dyn Judge>),
}

/// The identity that a client shows: a chain of certificates, its own first, and the key of that one.
#[derive(Debug)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads a chain and a key.
    ///
    /// # Errors
    /// [`Error::Pem`] or [`Error::Key`].
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        let chain = certificates(chain)?;
        Ok(Self { chain, key: PrivateKeyDer::from_pem_slice(key).map_err(Error::Key)? })
    }
}

/// The certificates of a PEM text; keys and comments among them are passed over.
///
/// # Errors
/// [`Error::Pem`], if a part of it cannot be read.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    Ok(CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?)
}

/// The authorities of a PEM text, each of which must be one.
///
/// # Errors
/// [`Error::Pem`], or [`Error::Unusable`].
pub fn authorities(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// Those of a PEM text that are authorities; the rest is passed over, as Go does it.
pub fn usable_authorities(pem: &[u8]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    roots
}

/// The authorities of [`OF_HOST`].
pub fn authorities_of_host() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(OF_HOST.iter().cloned());
    roots
}

/// The algorithms of all TLS.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    PROVIDER.clone()
}

/// The configuration of a client that speaks the first of `protocols` that its server has; none offers none.
///
/// # Errors
/// [`Error::Unusable`]: a key that does not belong to its certificate.
pub fn client(trust: Trust, identity: Option<Identity>, protocols: &[&[u8]]) -> Result<ClientConfig, Error> {
    let builder =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?.dangerous();
    let builder = match trust {
        Trust::Authorities(authorities) => builder.cfg.with_root_certificates(authorities),
        Trust::Anybody => builder.with_custom_certificate_verifier(judge::verifier(Arc::new(judge::Anybody))),
        Trust::Judged(judge) => builder.with_custom_certificate_verifier(judge::verifier(judge)),
    };
    let mut config = match identity {
        Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// The same as [`client`], for connections that exist already.
///
/// # Errors
/// As [`client`].
pub fn connector(
    trust: Trust,
    identity: Option<Identity>,
    protocols: &[&[u8]],
) -> Result<TlsConnector, Error> {
    Ok(TlsConnector::from(Arc::new(client(trust, identity, protocols)?)))
}

#[cfg(test)]
mod tests;
