//! The other end of a TLS connection, and what its certificate proves.
//!
//! Any certificate is taken during the handshake and judged afterwards, as upstream does: a client may have one that
//! means nothing here, and a token that does.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use auth::UserInfo;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};

/// The other end. Only the listener makes one.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Whom the client certificate names, if our authority signed it.
    pub user: Option<UserInfo>,
    /// Whom it names, if the front proxies' authority signed it.
    pub proxy: Option<String>,
    /// Whether it sent one that proves nothing.
    pub is_refused: bool,
    /// Where it comes from.
    pub address: Option<SocketAddr>,
}

impl Peer {
    /// Where whoever is meant is: nobody knows if a proxy speaks for them.
    pub fn origin(&self) -> Option<IpAddr> {
        let address = self.address.filter(|_| self.proxy.is_none())?;
        Some(address.ip().to_canonical())
    }

    /// Whether it sent a certificate, whatever that proves.
    pub fn has_certificate(&self) -> bool {
        self.is_refused || self.user.is_some() || self.proxy.is_some()
    }
}

/// Takes any client certificate; says afterwards what it proves.
#[derive(Debug)]
pub struct Certificates {
    clients: Arc<dyn ClientCertVerifier>,
    proxies: Option<Arc<dyn ClientCertVerifier>>,
}

fn verifier(ca_pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let text = |failure: &dyn fmt::Display| failure.to_string();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem) {
        roots.add(certificate.map_err(|f| text(&f))?).map_err(|f| text(&f))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.allow_unauthenticated().build().map_err(|f| text(&f))
}

impl Certificates {
    /// Judges by the authority of clients and, if there is one, of front proxies; both PEM.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn new(client_ca_pem: &[u8], proxy_ca_pem: Option<&[u8]>) -> Result<Self, String> {
        let proxies = proxy_ca_pem.map(verifier).transpose()?;
        Ok(Self { clients: verifier(client_ca_pem)?, proxies })
    }

    /// What a chain proves; `now` in Unix time.
    pub fn peer(
        &self,
        chain: Option<&[CertificateDer<'_>]>,
        address: SocketAddr,
        now: std::time::Duration,
    ) -> Peer {
        let nobody = Peer { address: Some(address), ..Peer::default() };
        let Some([leaf, rest @ ..]) = chain else { return nobody };
        let now = UnixTime::since_unix_epoch(now);
        let proves =
            |verifier: &Arc<dyn ClientCertVerifier>| verifier.verify_client_cert(leaf, rest, now).is_ok();
        let user = if proves(&self.clients) { auth::x509::user_of(leaf) } else { None };
        let is_proxy = self.proxies.as_ref().is_some_and(proves);
        let proxy = if is_proxy { auth::x509::user_of(leaf).map(|user| user.name) } else { None };
        Peer { is_refused: user.is_none() && proxy.is_none(), user, proxy, ..nobody }
    }
}

impl ClientCertVerifier for Certificates {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.clients.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // Judged by `peer`, after the handshake has shown that the client has the key.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.clients.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.clients.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.clients.supported_verify_schemes()
    }
}
