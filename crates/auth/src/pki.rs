//! The cluster's keys: its authorities, and the certificates they sign, made when absent and renewed when they end.
//!
//! A certificate is two files, `<name>.crt` and `<name>.key` (0600), in PEM. Nothing secret is readable by
//! others, and a half-written file is never seen: each is written aside and renamed.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};

/// The authority lives this long; the same as kubeadm's.
const AUTHORITY_DAYS: i64 = 3650;
/// Every other certificate lives this long; the same as kubeadm's.
const LEAF_DAYS: i64 = 365;
/// A certificate that ends sooner than this is made anew.
const RENEW_BEFORE_DAYS: i64 = 90;
/// Clocks may differ by this much.
const BACKDATE_SECONDS: i64 = 300;
const DAY_SECONDS: i64 = 24 * 3600;

/// The reason why a key or a certificate could not be had.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("access {path}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A certificate could not be made or understood.
    #[error("make the certificate {name}")]
    Certificate {
        /// Which one.
        name: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// Somebody else's file holds something else.
    #[error("it must hold PEM certificates and nothing else")]
    NoCertificates,
    /// A file does not hold what its name says.
    #[error("{path} is not a PEM certificate")]
    NotPem {
        /// Which file.
        path: PathBuf,
    },
}

/// The subject and purpose of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The file name, without `.crt`.
    pub name: String,
    /// The user, for a client.
    pub common_name: String,
    /// The group, for a client: `rcgen` writes at most one organization.
    pub organization: Option<String>,
    /// DNS names of a server.
    pub dns_names: Vec<String>,
    /// Addresses of a server.
    pub ips: Vec<IpAddr>,
    /// For which side of a connection.
    pub usage: Usage,
}

/// `true` if a Node may not be called so: the names that servers' certificates are for, and those of Services.
pub fn is_reserved_node_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_server = matches!(name.as_str(), "localhost" | "kubernetes" | "kubernetes.default");
    is_server || name.ends_with(".localhost") || name.ends_with(".svc") || name.contains(".svc.")
}

/// The side of a TLS connection that a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Proves who the client is.
    Client,
    /// Proves who the server is.
    Server,
}

impl Subject {
    /// A client's certificate.
    pub fn client(name: &str, user: &str, group: &str) -> Self {
        Self {
            name: name.to_owned(),
            common_name: user.to_owned(),
            organization: Some(group.to_owned()),
            dns_names: Vec::new(),
            ips: Vec::new(),
            usage: Usage::Client,
        }
    }

    /// A client's certificate without a group.
    pub fn user(name: &str, user: &str) -> Self {
        Self { organization: None, ..Self::client(name, user, "") }
    }

    /// A server's certificate.
    pub fn server(name: &str, common_name: &str, dns_names: Vec<String>, ips: Vec<IpAddr>) -> Self {
        Self {
            name: name.to_owned(),
            common_name: common_name.to_owned(),
            organization: None,
            dns_names,
            ips,
            usage: Usage::Server,
        }
    }

    /// The API server's certificate: every name that clients inside and outside use for it.
    pub fn api_server(cluster_domain: &str, ips: Vec<IpAddr>) -> Self {
        let mut dns_names: Vec<String> =
            ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
                .map(str::to_owned)
                .to_vec();
        dns_names.push(format!("kubernetes.default.svc.{cluster_domain}"));
        Self::server("apiserver", "kube-apiserver", dns_names, ips)
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    /// `-----BEGIN CERTIFICATE-----`
    pub certificate_pem: String,
    /// `-----BEGIN PRIVATE KEY-----` (PKCS#8, ECDSA P-256)
    pub key_pem: String,
}

/// An authority of one cluster.
pub struct Authority {
    identity: Identity,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads `ca.crt` and `ca.key` in `dir`, or makes them.
    ///
    /// # Errors
    /// If the files cannot be read, understood or written.
    pub fn load_or_create(dir: &Path, now: Timestamp) -> Result<Self, PkiError> {
        Self::named(dir, "ca", now)
    }

    /// The same for `<name>.crt` and `<name>.key`.
    ///
    /// # Errors
    /// If the files cannot be read, understood or written.
    pub fn named(dir: &Path, name: &str, now: Timestamp) -> Result<Self, PkiError> {
        let identity = match read_identity(dir, name)? {
            Some(identity) => identity,
            None => {
                let identity = new_authority(name, now).map_err(named(name))?;
                write_identity(dir, name, &identity)?;
                identity
            }
        };
        let key = KeyPair::from_pem(&identity.key_pem).map_err(named(name))?;
        let issuer = Issuer::from_ca_cert_pem(&identity.certificate_pem, key).map_err(named(name))?;
        Ok(Self { identity, issuer })
    }

    /// The certificate that clients trust.
    pub fn certificate_pem(&self) -> &str {
        &self.identity.certificate_pem
    }

    /// The key, PEM.
    pub fn key_pem(&self) -> &str {
        &self.identity.key_pem
    }

    /// The certificate of `subject` in `dir`; made anew if it is absent, ends soon, was signed by another
    /// authority or is for other names.
    ///
    /// # Errors
    /// If the files cannot be read or written.
    pub fn issue(&self, dir: &Path, subject: &Subject, now: Timestamp) -> Result<Identity, PkiError> {
        if let Some(identity) = usable(dir, subject, self.certificate_pem(), now)? {
            return Ok(identity);
        }
        let identity = self.sign(subject, now).map_err(named(&subject.name))?;
        keep(dir, subject, self.certificate_pem(), &identity)?;
        Ok(identity)
    }

    fn sign(&self, subject: &Subject, now: Timestamp) -> Result<Identity, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = named_params(subject)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = match subject.usage {
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        };
        set_lifetime(&mut params, now, LEAF_DAYS);
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

/// A certificate of `subject` that nobody has signed but itself, in no file.
///
/// # Errors
/// If it cannot be made.
pub fn self_signed(subject: &Subject, now: Timestamp) -> Result<Identity, PkiError> {
    let make = || {
        let key = KeyPair::generate()?;
        let mut params = named_params(subject)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        set_lifetime(&mut params, now, LEAF_DAYS);
        let certificate = params.self_signed(&key)?;
        Ok(Identity { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    };
    make().map_err(named(&subject.name))
}

/// The certificate of `subject` in `dir`, if it was signed by this authority for just that and does not end soon.
///
/// # Errors
/// If the files cannot be read.
pub fn usable(
    dir: &Path,
    subject: &Subject,
    authority_pem: &str,
    now: Timestamp,
) -> Result<Option<Identity>, PkiError> {
    let Some(identity) = read_identity(dir, &subject.name)? else { return Ok(None) };
    let is_same =
        read_optional(&about(dir, subject))?.is_some_and(|known| known == wanted(subject, authority_pem));
    let is_good = is_same && ends_at(&identity.certificate_pem).is_some_and(|end| is_fresh(end, now));
    Ok(is_good.then_some(identity))
}

/// Keeps a certificate of `subject` in `dir` for [`usable`].
///
/// # Errors
/// If the files cannot be written.
pub fn keep(dir: &Path, subject: &Subject, authority_pem: &str, identity: &Identity) -> Result<(), PkiError> {
    write_identity(dir, &subject.name, identity)?;
    write_file(&about(dir, subject), wanted(subject, authority_pem).as_bytes(), 0o600)
}

/// Says what a certificate is for.
fn about(dir: &Path, subject: &Subject) -> PathBuf {
    dir.join(format!("{}.subject", subject.name))
}

fn wanted(subject: &Subject, authority_pem: &str) -> String {
    format!("{subject:?}\n{authority_pem}")
}

/// A request for a certificate of `subject`, to be signed elsewhere, and the new key that it is for; both in PEM.
///
/// # Errors
/// If a name is none.
pub fn request(subject: &Subject) -> Result<(String, String), PkiError> {
    let make = || {
        let key = KeyPair::generate()?;
        let request = named_params(subject)?.serialize_request(&key)?;
        Ok((request.pem()?, key.serialize_pem()))
    };
    make().map_err(named(&subject.name))
}

/// Names and addresses.
fn named_params(subject: &Subject) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(subject.dns_names.clone())?;
    params.subject_alt_names.extend(subject.ips.iter().copied().map(SanType::IpAddress));
    params.distinguished_name = distinguished_name(&subject.common_name, subject.organization.as_deref());
    Ok(params)
}

/// The key that signs ServiceAccount tokens, `service-account.key` in `dir`: PKCS#8, ECDSA P-256.
///
/// # Errors
/// If it cannot be read, made or written.
pub fn service_account_key(dir: &Path) -> Result<Vec<u8>, PkiError> {
    let path = dir.join("service-account.key");
    let key = match read_optional(&path)? {
        Some(pem) => KeyPair::from_pem(&pem).map_err(named("service-account"))?,
        None => {
            let key = KeyPair::generate().map_err(named("service-account"))?;
            write_file(&path, key.serialize_pem().as_bytes(), 0o600)?;
            key
        }
    };
    Ok(key.serialize_der())
}

/// A kubeconfig with everything in it.
pub fn kubeconfig(server: &str, authority_pem: &str, user: &str, identity: &Identity) -> String {
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: knarr\n  cluster:\n    server: {server}\n    \
         certificate-authority-data: {}\nusers:\n- name: {user}\n  user:\n    client-certificate-data: {}\n    \
         client-key-data: {}\ncontexts:\n- name: knarr\n  context:\n    cluster: knarr\n    user: {user}\n\
         current-context: knarr\n",
        encode(authority_pem),
        encode(&identity.certificate_pem),
        encode(&identity.key_pem),
    )
}

/// Writes a file that appears whole or not at all.
///
/// # Errors
/// If it cannot be written.
pub fn write_file(path: &Path, content: &[u8], mode: u32) -> Result<(), PkiError> {
    let new = path.with_added_extension("new");
    let write = || {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        if new.exists() {
            fs::remove_file(&new)?;
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|source| PkiError::File { path: path.to_owned(), source })
}

/// Each authority that there ever was has a name of its own, so that a verifier that knows several finds the right one.
/// Source: k3s' authorities.
fn new_authority(name: &str, now: Timestamp) -> Result<Identity, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(&format!("knarr-{name}@{}", now.as_second()), None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    set_lifetime(&mut params, now, AUTHORITY_DAYS);
    let certificate = params.self_signed(&key)?;
    Ok(Identity { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
}

fn distinguished_name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

fn set_lifetime(params: &mut CertificateParams, now: Timestamp, days: i64) {
    let at = |seconds| time::OffsetDateTime::from_unix_timestamp(seconds);
    if let (Ok(start), Ok(end)) =
        (at(now.as_second() - BACKDATE_SECONDS), at(now.as_second() + days * DAY_SECONDS))
    {
        params.not_before = start;
        params.not_after = end;
    }
}

fn is_fresh(end_second: i64, now: Timestamp) -> bool {
    end_second - now.as_second() > RENEW_BEFORE_DAYS * DAY_SECONDS
}

/// The end of the first certificate of a PEM, in Unix seconds; `None` if it is none.
pub fn ends_at(certificate_pem: &str) -> Option<i64> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate_pem.as_bytes()).ok()?;
    Some(pem.parse_x509().ok()?.validity().not_after.timestamp())
}

/// The beginning of the first certificate of a PEM, in Unix seconds; `None` if it is none.
pub fn begins_at(certificate_pem: &str) -> Option<i64> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate_pem.as_bytes()).ok()?;
    Some(pem.parse_x509().ok()?.validity().not_before.timestamp())
}

/// `true` if the first certificate of a PEM names the first of another as its issuer. Signatures are not looked at:
/// this tells whether a certificate is to be renewed, not whether it is to be believed.
pub fn is_issued_by(certificate_pem: &str, authority_pem: &str) -> bool {
    use x509_parser::pem::parse_x509_pem;
    let blocks = (parse_x509_pem(certificate_pem.as_bytes()), parse_x509_pem(authority_pem.as_bytes()));
    let (Ok((_, leaf)), Ok((_, authority))) = blocks else { return false };
    let (Ok(leaf), Ok(authority)) = (leaf.parse_x509(), authority.parse_x509()) else { return false };
    leaf.issuer().as_raw() == authority.subject().as_raw()
}

/// The public keys of all certificates of a PEM, DER.
///
/// # Errors
/// If something in it is no certificate, or nothing is in it.
pub fn public_keys(certificates_pem: &[u8]) -> Result<Vec<Vec<u8>>, PkiError> {
    let mut keys = Vec::new();
    for block in x509_parser::pem::Pem::iter_from_buffer(certificates_pem) {
        let block = block.map_err(|_| PkiError::NoCertificates)?;
        keys.push(block.parse_x509().map_err(|_| PkiError::NoCertificates)?.public_key().raw.to_vec());
    }
    if keys.is_empty() { Err(PkiError::NoCertificates) } else { Ok(keys) }
}

fn read_identity(dir: &Path, name: &str) -> Result<Option<Identity>, PkiError> {
    let path = dir.join(format!("{name}.crt"));
    let certificate = read_optional(&path)?;
    let key = read_optional(&dir.join(format!("{name}.key")))?;
    let (Some(certificate_pem), Some(key_pem)) = (certificate, key) else { return Ok(None) };
    if ends_at(&certificate_pem).is_none() {
        return Err(PkiError::NotPem { path });
    }
    Ok(Some(Identity { certificate_pem, key_pem }))
}

fn write_identity(dir: &Path, name: &str, identity: &Identity) -> Result<(), PkiError> {
    write_file(&dir.join(format!("{name}.key")), identity.key_pem.as_bytes(), 0o600)?;
    write_file(&dir.join(format!("{name}.crt")), identity.certificate_pem.as_bytes(), 0o644)
}

fn read_optional(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::File { path: path.to_owned(), source }),
    }
}

fn named(name: &str) -> impl Fn(rcgen::Error) -> PkiError {
    let name = name.to_owned();
    move |source| PkiError::Certificate { name: name.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * DAY_SECONDS).expect("a time")
    }

    #[test]
    fn certificates_are_kept_until_they_end_soon_or_change() {
        let dir = tempfile::tempdir().expect("a folder");
        let authority = Authority::load_or_create(dir.path(), at(0)).expect("an authority");
        let again = Authority::load_or_create(dir.path(), at(1)).expect("the same authority");
        assert_eq!(authority.certificate_pem(), again.certificate_pem());
        let subject = Subject::client("admin", "admin", "system:masters");
        let issue = |subject: &Subject, day| {
            authority.issue(dir.path(), subject, at(day)).expect("a certificate").certificate_pem
        };
        let first = issue(&subject, 0);
        assert_eq!(issue(&subject, 200), first, "still good");
        assert_ne!(issue(&subject, 300), first, "ends in 65 days");
        let other = Subject { organization: Some("other".into()), ..subject };
        assert_ne!(issue(&other, 301), issue(&Subject::client("admin", "admin", "system:masters"), 301));
    }

    #[test]
    fn a_certificate_names_its_authority_and_authorities_are_told_apart() {
        let dir = tempfile::tempdir().expect("a folder");
        let [one, two] = [("client-ca", 0), ("front-proxy-ca", 0)]
            .map(|(name, day)| Authority::named(dir.path(), name, at(day)).expect("an authority"));
        let leaf = one.issue(dir.path(), &Subject::client("a", "a", "g"), at(0)).expect("a certificate");
        let check = |authority: &Authority| is_issued_by(&leaf.certificate_pem, authority.certificate_pem());
        assert!(check(&one) && !check(&two));
        fs::remove_file(dir.path().join("client-ca.crt")).expect("removed");
        let again = Authority::named(dir.path(), "client-ca", at(1)).expect("another authority");
        assert!(!check(&again), "a new one is another one");
        let both = format!("{}{}", one.certificate_pem(), two.certificate_pem());
        let keys = public_keys(both.as_bytes()).expect("two keys");
        assert_eq!(keys.get(1), public_keys(two.certificate_pem().as_bytes()).expect("a key").first());
        assert!(public_keys(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_err());
    }

    #[test]
    fn a_node_is_not_called_as_servers_are() {
        for (name, expected) in [
            ("kubernetes", true),
            ("Kubernetes", true),
            ("kubernetes.", true),
            ("localhost", true),
            ("kubernetes.default", true),
            ("kubernetes.default.svc", true),
            ("kubernetes.default.svc.cluster.local", true),
            ("web.shop.svc", true),
            ("node-1", false),
            ("kubernetes-1", false),
            ("a.example", false),
        ] {
            assert_eq!(is_reserved_node_name(name), expected, "{name}");
        }
    }

    #[test]
    fn keys_are_readable_by_their_owner_only() {
        let dir = tempfile::tempdir().expect("a folder");
        Authority::load_or_create(dir.path(), at(0)).expect("an authority");
        service_account_key(dir.path()).expect("a key");
        for name in ["ca.key", "service-account.key"] {
            let mode = fs::metadata(dir.path().join(name)).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
