//! Which certificate is shown to whom: by the name that a client asks for.
//!
//! What is wrong with one Secret keeps no other certificate from being shown; the default one is shown in its place.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use parking_lot::RwLock;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::host::{Host, below_wildcard};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// What certificates and keys are at most, in bytes; the API server takes no larger Secret.
const PEM_BYTES_MAX: usize = 1 << 20;

/// Why there is no certificate in a Secret. Nothing of the key is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    /// A field is absent or larger than a Secret can be.
    #[error("it must have tls.crt and tls.key")]
    Absent,
    /// The certificates cannot be read.
    #[error("tls.crt must be certificates in PEM")]
    Certificate,
    /// The key cannot be read, or is of a kind that nobody signs with.
    #[error("tls.key must be a private key in PEM, of RSA, ECDSA or Ed25519")]
    Key,
    /// The two do not belong together.
    #[error("tls.key must be the key of the first certificate in tls.crt")]
    Pair,
}

/// A certificate with its key.
///
/// # Errors
/// What is wrong with it.
pub fn certified(chain_pem: &[u8], key_pem: &[u8]) -> Result<CertifiedKey, BadCertificate> {
    if chain_pem.len().max(key_pem.len()) > PEM_BYTES_MAX {
        return Err(BadCertificate::Absent);
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain_pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(BadCertificate::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| BadCertificate::Key)?;
    CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => BadCertificate::Pair,
        rustls::Error::InvalidCertificate(_) => BadCertificate::Certificate,
        _ => BadCertificate::Key,
    })
}

/// The certificate of a Secret.
///
/// # Errors
/// What is wrong with it.
pub fn of_secret(secret: &Secret) -> Result<CertifiedKey, BadCertificate> {
    let field =
        |name: &str| secret.data.as_ref().and_then(|data| data.get(name)).map(|bytes| bytes.0.as_slice());
    let (chain, key) = field(CERTIFICATE).zip(field(KEY)).ok_or(BadCertificate::Absent)?;
    certified(chain, key)
}

/// A Secret as it was: its uid and version.
type Version = (Option<String>, Option<String>);

/// Certificates by host.
#[derive(Debug, Default)]
struct Known {
    exact: HashMap<String, Arc<CertifiedKey>>,
    wildcard: HashMap<String, Arc<CertifiedKey>>,
    /// What was made of which Secret, so that nothing is made of it again.
    made: HashMap<Version, Option<Arc<CertifiedKey>>>,
}

/// The certificates that are shown. Connections that have begun keep theirs.
pub struct Certificates {
    default: Arc<CertifiedKey>,
    known: RwLock<Known>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Certificates {
    /// None but the default one.
    pub fn new(default: CertifiedKey) -> Self {
        Self { default: Arc::new(default), known: RwLock::default() }
    }

    /// Shows these from now on; those that cannot be used are left out.
    pub fn replace(&self, secrets: &BTreeMap<Host, Arc<Secret>>) {
        let mut next = Known::default();
        for (host, secret) in secrets {
            let version = (secret.metadata.uid.clone(), secret.metadata.resource_version.clone());
            let known = || self.known.read().made.get(&version).cloned();
            let made = match next.made.get(&version) {
                Some(made) => made.clone(),
                None => {
                    let made = known().unwrap_or_else(|| of_secret(secret).ok().map(Arc::new));
                    next.made.insert(version, made.clone());
                    made
                }
            };
            let Some(certificate) = made else { continue };
            match host {
                Host::Exact(host) => next.exact.insert(host.clone(), certificate),
                Host::Wildcard(rest) => next.wildcard.insert(rest.clone(), certificate),
                Host::Any => None,
            };
        }
        *self.known.write() = next;
    }

    /// The one for this name.
    pub fn of(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let name = name.map(str::to_ascii_lowercase).unwrap_or_default();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let known = self.known.read();
        let wildcard = || below_wildcard(name).and_then(|rest| known.wildcard.get(rest));
        Arc::clone(known.exact.get(name).or_else(wildcard).unwrap_or(&self.default))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.of(hello.server_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn pair(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn secret(version: &str, chain: &str, key: &str) -> Arc<Secret> {
        let data = [(CERTIFICATE, chain), (KEY, key)];
        let mut secret = Secret::default();
        secret.metadata.resource_version = Some(version.to_owned());
        let field = |(name, text): (&str, &str)| (name.to_owned(), ByteString(text.as_bytes().to_vec()));
        secret.data = Some(data.map(field).into());
        Arc::new(secret)
    }

    fn shown(certificates: &Certificates, name: Option<&str>) -> Vec<u8> {
        certificates.of(name).cert[0].to_vec()
    }

    #[test]
    fn the_certificate_is_the_one_of_the_name_that_is_asked_for() {
        let (exact, wild, default) = (pair("a.example"), pair("*.example"), pair("default"));
        let certificates = Certificates::new(certified(default.0.as_bytes(), default.1.as_bytes()).unwrap());
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
        let broken = secret("3", &exact.0, &wild.1);
        certificates.replace(
            &[
                (Host::of_rule("a.example"), secret("1", &exact.0, &exact.1)),
                (Host::of_rule("*.example"), secret("2", &wild.0, &wild.1)),
                (Host::of_rule("broken.test"), broken),
            ]
            .into(),
        );
        let rows = [
            (Some("a.example"), &exact.0),
            (Some("A.EXAMPLE"), &exact.0),
            (Some("b.example"), &wild.0),
            (Some("b.a.example"), &default.0),
            (Some("example"), &default.0),
            (Some("broken.test"), &default.0),
            (Some("other.test"), &default.0),
            (None, &default.0),
        ];
        for (name, expected) in rows {
            assert_eq!(shown(&certificates, name), der(expected), "{name:?}");
        }
        let before = certificates.of(Some("a.example"));
        certificates.replace(&[(Host::of_rule("a.example"), secret("1", &exact.0, &exact.1))].into());
        assert!(Arc::ptr_eq(&before, &certificates.of(Some("a.example"))), "nothing is made twice");
        assert_eq!(
            shown(&certificates, Some("b.example")),
            der(&default.0),
            "what is not there is not shown"
        );
    }

    #[test]
    fn what_is_no_certificate_with_its_key_says_why() {
        let (one, other) = (pair("a"), pair("b"));
        let rows = [
            ("", "", Some(BadCertificate::Certificate)),
            ("no certificate", one.1.as_str(), Some(BadCertificate::Certificate)),
            (&one.0, "", Some(BadCertificate::Key)),
            (&one.0, &one.0, Some(BadCertificate::Key)),
            (&one.0, &other.1, Some(BadCertificate::Pair)),
            (&one.0, &one.1, None),
        ];
        for (chain, key, expected) in rows {
            assert_eq!(of_secret(&secret("1", chain, key)).err(), expected);
        }
        assert_eq!(of_secret(&Secret::default()).err(), Some(BadCertificate::Absent));
    }
}
