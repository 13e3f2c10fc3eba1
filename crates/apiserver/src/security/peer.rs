//! The other end of a TLS connection, and what its certificate proves.
//!
//! Any certificate is taken during the handshake and judged afterwards, as upstream does: a client may have one that
//! means nothing here, and a token that does. It is judged for each request: a connection outlives no certificate.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use auth::UserInfo;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::configuration_error::ConfigurationError;

/// The other end. Only the listener makes one.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The user that the client certificate names, if the clients' authority signed it.
    pub user: Option<UserInfo>,
    /// The name in it, if the front proxies' authority signed it.
    pub proxy: Option<String>,
    /// `true` if it sent one that proves nothing.
    pub is_refused: bool,
    /// The address that it comes from.
    pub address: Option<SocketAddr>,
    /// The second from which on its certificate may prove something else.
    pub holds_until: Option<i64>,
}

impl Peer {
    /// The address of whoever is meant: unknown if a proxy speaks for them.
    pub fn origin(&self) -> Option<IpAddr> {
        let address = self.address.filter(|_| self.proxy.is_none())?;
        Some(address.ip().to_canonical())
    }

    /// `true` if it sent a certificate, whatever that proves.
    pub fn has_certificate(&self) -> bool {
        self.is_refused || self.user.is_some() || self.proxy.is_some()
    }
}

/// A verifier that takes any client certificate, and says afterwards what it proves.
#[derive(Debug)]
pub struct Certificates {
    /// Of all clients' authorities together: names them to clients, and looks at handshakes.
    clients: Arc<dyn ClientCertVerifier>,
    of_clients: Vec<Authority>,
    of_proxies: Vec<Authority>,
}

/// Whose certificates are believed, while its own is good: rustls does not look at that, Go does.
#[derive(Debug)]
struct Authority {
    verifier: Arc<dyn ClientCertVerifier>,
    good: RangeInclusive<i64>,
}

fn verifier(
    authorities: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, ConfigurationError> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        roots.add(certificate.clone()).map_err(ConfigurationError::unusable)?;
    }
    let provider = tls::provider();
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.allow_unauthenticated().build().map_err(ConfigurationError::unusable)
}

impl Authority {
    fn each(roots: &[CertificateDer<'static>]) -> Result<Vec<Self>, ConfigurationError> {
        let one = |root: &CertificateDer<'static>| {
            let good = auth::x509::validity_of(root)
                .ok_or_else(|| ConfigurationError::unusable("an authority's certificate cannot be read"))?;
            Ok(Self { verifier: verifier(std::slice::from_ref(root))?, good })
        };
        roots.iter().map(one).collect()
    }

    /// Whether it, or one that it has signed, has signed the first of a chain, and all of them are good.
    fn proves(&self, leaf: &CertificateDer<'_>, rest: &[CertificateDer<'_>], now: i64) -> bool {
        let seconds = u64::try_from(now).unwrap_or_default();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.good.contains(&now) && self.verifier.verify_client_cert(leaf, rest, at).is_ok()
    }
}

impl Certificates {
    /// Judges by the authority of clients and, if there is one, of front proxies; both PEM.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn new(client_ca_pem: &[u8], proxy_ca_pem: Option<&[u8]>) -> Result<Self, ConfigurationError> {
        let roots = |pem| tls::certificates(pem).map_err(ConfigurationError::unusable);
        let (clients, proxies) = (roots(client_ca_pem)?, roots(proxy_ca_pem.unwrap_or_default())?);
        let of_proxies = Authority::each(&proxies)?;
        Ok(Self { clients: verifier(&clients)?, of_clients: Authority::each(&clients)?, of_proxies })
    }

    /// What a chain proves at a time.
    fn judge(&self, chain: &[CertificateDer<'_>], address: SocketAddr, now: Timestamp) -> Peer {
        let nobody = Peer { address: Some(address), ..Peer::default() };
        let [leaf, rest @ ..] = chain else { return nobody };
        let proved = |authorities: &[Authority]| {
            let is_proved = authorities.iter().any(|one| one.proves(leaf, rest, now.as_second()));
            if is_proved { auth::x509::user_of(leaf) } else { None }
        };
        let (user, proxy) = (proved(&self.of_clients), proved(&self.of_proxies).map(|user| user.name));
        Peer { is_refused: user.is_none() && proxy.is_none(), user, proxy, ..nobody }
    }
}

/// The other end of one connection, as it was at the handshake.
#[derive(Debug)]
pub struct Presented {
    certificates: Arc<Certificates>,
    chain: Vec<CertificateDer<'static>>,
    address: SocketAddr,
    /// What was found last, and the seconds for which that holds.
    judged: Mutex<(Range<i64>, Arc<Peer>)>,
}

impl Presented {
    /// The other end that has sent a chain, and has shown that it has the key.
    pub fn new(
        certificates: Arc<Certificates>,
        chain: Option<&[CertificateDer<'_>]>,
        address: SocketAddr,
    ) -> Self {
        let chain = chain.unwrap_or_default().iter().map(|one| one.clone().into_owned()).collect();
        Self { certificates, chain, address, judged: Mutex::new((0..0, Arc::default())) }
    }

    /// The identity that is proved now. Signatures are looked at only when one of the certificates has begun or ended
    /// since they were last.
    pub fn peer(&self, now: Timestamp) -> Arc<Peer> {
        let mut judged = self.judged.lock();
        if !judged.0.contains(&now.as_second()) {
            let holds = self.unchanging(now.as_second());
            let peer = self.certificates.judge(&self.chain, self.address, now);
            let peer = Peer { holds_until: Some(holds.end), ..peer };
            *judged = (holds, Arc::new(peer));
        }
        Arc::clone(&judged.1)
    }

    /// The seconds around `now` in which neither a certificate of the chain nor an authority begins or ends; none if one
    /// cannot be read.
    fn unchanging(&self, now: i64) -> Range<i64> {
        let chain: Option<Vec<_>> = self.chain.iter().map(|one| auth::x509::validity_of(one)).collect();
        let Some(chain) = chain else { return now..now };
        let authorities = self.certificates.of_clients.iter().chain(&self.certificates.of_proxies);
        let mut holds = i64::MIN..i64::MAX;
        for good in chain.iter().chain(authorities.map(|authority| &authority.good)) {
            for change in [*good.start(), good.end().saturating_add(1)] {
                if change <= now {
                    holds.start = holds.start.max(change);
                } else {
                    holds.end = holds.end.min(change);
                }
            }
        }
        holds
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
        // Judged by `Presented::peer`, after the handshake has shown that the client has the key.
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
