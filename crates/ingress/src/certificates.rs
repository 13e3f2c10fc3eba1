//! The choice of certificate: by where a client comes in, and the name that it asks for.
//!
//! As requests are, names are their most specific listener's, and no other's.
//! What is wrong with one Secret keeps no other certificate from being shown; the default one is shown in its place.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use parking_lot::{Mutex, RwLock};
use rustls::client::verify_server_name;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::host::Host;
use crate::hosts::Hosts;
use crate::table::{Entrance, Listener};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// What certificates and keys are at most, in bytes; the API server takes no larger Secret.
const PEM_BYTES_MAX: usize = 1 << 20;

/// The reason why there is no certificate in a Secret. Nothing of the key is told.
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

fn version_of(secret: &Secret) -> Version {
    (secret.metadata.uid.clone(), secret.metadata.resource_version.clone())
}

/// Secrets that are remembered.
const CHECKED_MAX: usize = 4096;

/// The Secrets that were looked at, and the results. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Checked(Arc<Mutex<HashMap<Version, Result<(), BadCertificate>>>>);

impl Checked {
    /// The check that a Secret has a certificate.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(&self, secret: &Secret) -> Result<(), BadCertificate> {
        let version = version_of(secret);
        if let Some(known) = self.0.lock().get(&version) {
            return *known;
        }
        let checked = of_secret(secret).map(drop);
        let mut known = self.0.lock();
        if known.len() == CHECKED_MAX {
            known.clear();
        }
        known.insert(version, checked);
        checked
    }
}

/// Secrets whose certificates are shown: by listener, and by the name that is asked for there. Of several for one name that
/// one is shown that is for the name, or the first.
pub type Shown = BTreeMap<(Listener, Host), Vec<Arc<Secret>>>;

/// Certificates by place and host.
#[derive(Debug, Default)]
struct Known {
    entrances: HashMap<Entrance, Hosts<Hosts<Vec<Arc<CertifiedKey>>>>>,
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
    pub fn replace(&self, shown: &Shown) {
        let mut next = Known::default();
        for ((listener, host), secrets) in shown {
            for secret in secrets {
                let version = version_of(secret);
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
                let listeners = next.entrances.entry(listener.entrance).or_default();
                let hosts = listeners.get_or_insert_with(&listener.host, Hosts::default);
                hosts.get_or_insert_with(host, Vec::new).push(certificate);
            }
        }
        *self.known.write() = next;
    }

    /// The one for this name.
    pub fn of(&self, entrance: Entrance, name: Option<&str>) -> Arc<CertifiedKey> {
        let name = name.map(str::to_ascii_lowercase).unwrap_or_default();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let known = self.known.read();
        let hosts = known.entrances.get(&entrance).and_then(|listeners| listeners.matching(name).next());
        let all = hosts.and_then(|hosts| hosts.matching(name).next()).map(Vec::as_slice).unwrap_or_default();
        let fitting = match all {
            [_, _, ..] => all.iter().find(|certificate| is_for(certificate, name)),
            _ => None,
        };
        Arc::clone(fitting.or(all.first()).unwrap_or(&self.default))
    }
}

/// Whether a certificate is for a name.
fn is_for(certificate: &CertifiedKey, name: &str) -> bool {
    let parsed = certificate.cert.first().and_then(|first| ParsedCertificate::try_from(first).ok());
    let name = ServerName::try_from(name).ok();
    parsed.zip(name).is_some_and(|(parsed, name)| verify_server_name(&parsed, &name).is_ok())
}

/// The certificates of one place.
#[derive(Debug)]
pub struct At {
    /// All.
    pub certificates: Arc<Certificates>,
    /// The place.
    pub entrance: Entrance,
}

impl ResolvesServerCert for At {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certificates.of(self.entrance, hello.server_name()))
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

    fn at(entrance: Entrance, listener: &str, host: &str) -> (Listener, Host) {
        (Listener { entrance, host: Host::of_gateway(listener) }, Host::of_rule(host))
    }

    fn of_ingress(host: &str, secret: Arc<Secret>) -> ((Listener, Host), Vec<Arc<Secret>>) {
        (at(Entrance::Https, "", host), vec![secret])
    }

    fn shown(certificates: &Certificates, name: Option<&str>) -> Vec<u8> {
        certificates.of(Entrance::Https, name).cert[0].to_vec()
    }

    #[test]
    fn the_certificate_is_the_one_of_the_name_that_is_asked_for() {
        let (exact, wild, default) = (pair("a.example"), pair("*.example"), pair("default"));
        let certificates = Certificates::new(certified(default.0.as_bytes(), default.1.as_bytes()).unwrap());
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
        let broken = secret("3", &exact.0, &wild.1);
        certificates.replace(
            &[
                of_ingress("a.example", secret("1", &exact.0, &exact.1)),
                of_ingress("*.example", secret("2", &wild.0, &wild.1)),
                of_ingress("broken.test", broken),
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
        let before = certificates.of(Entrance::Https, Some("a.example"));
        certificates.replace(&[of_ingress("a.example", secret("1", &exact.0, &exact.1))].into());
        let after = certificates.of(Entrance::Https, Some("a.example"));
        assert!(Arc::ptr_eq(&before, &after), "nothing is made twice");
        assert_eq!(
            shown(&certificates, Some("b.example")),
            der(&default.0),
            "what is not there is not shown"
        );
    }

    #[test]
    fn a_listeners_certificates_are_shown_for_its_names_and_no_others() {
        let (one, two, ingress, default) =
            (pair("a.example"), pair("b.example"), pair("c.example"), pair("default"));
        let certificates = Certificates::new(certified(default.0.as_bytes(), default.1.as_bytes()).unwrap());
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
        let both = vec![secret("1", &one.0, &one.1), secret("2", &two.0, &two.1)];
        let shown = [
            (at(Entrance::Https, "*.example", ""), both),
            (at(Entrance::Https, "", "c.example"), vec![secret("3", &ingress.0, &ingress.1)]),
            (at(Entrance::Https, "", "c.test"), vec![secret("3", &ingress.0, &ingress.1)]),
            (at(Entrance::Port(8443), "", ""), vec![secret("2", &two.0, &two.1)]),
        ];
        certificates.replace(&shown.into());
        let port = Entrance::Port(8443);
        for (entrance, name, expected) in [
            (Entrance::Https, Some("a.example"), &one.0),
            (Entrance::Https, Some("b.example"), &two.0),
            // The wildcard has all names below it, whatever an Ingress says.
            (Entrance::Https, Some("c.example"), &one.0),
            (Entrance::Https, Some("c.test"), &ingress.0),
            (Entrance::Https, Some("d.test"), &default.0),
            (Entrance::Https, None, &default.0),
            (port, Some("d.test"), &two.0),
            (port, None, &two.0),
            (Entrance::Port(9443), Some("a.example"), &default.0),
        ] {
            let found = certificates.of(entrance, name).cert[0].to_vec();
            assert_eq!(found, der(expected), "{entrance} {name:?}");
        }
    }

    #[test]
    fn a_secret_is_looked_at_once_for_each_of_its_versions() {
        let one = pair("a");
        let checked = Checked::default();
        assert_eq!(checked.of(&secret("1", &one.0, "")), Err(BadCertificate::Key));
        assert_eq!(checked.of(&secret("1", &one.0, &one.1)), Err(BadCertificate::Key), "the same version");
        assert_eq!(checked.of(&secret("2", &one.0, &one.1)), Ok(()));
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
