//! The cluster's certificates: one authority, leaves made when absent and renewed before they expire.
//!
//! A file is replaced as a whole (written beside, flushed, renamed); keys have mode 0600. Keys are ECDSA P-256.
//! Nothing here waits for a time: `now` comes in, and [`Pair::renew_at`] says when to call again.

use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::token::SigningKey;

/// How long the authority lives. Source: kubeadm's `CACertificateValidityPeriod`.
const AUTHORITY_DAYS: i64 = 3650;
/// How long a leaf lives. Source: kubeadm's `CertificateValidityPeriod`.
const LEAF_DAYS: i64 = 365;
/// A leaf with less than this left is renewed.
const RENEW_BEFORE_DAYS: i64 = 120;
/// Certificates begin this long ago, for clocks that lag.
const BACKDATE_SECONDS: i64 = 3600;

/// Why the certificates cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A certificate cannot be made.
    #[error("cannot make the certificate of {name}")]
    Make {
        /// Whose.
        name: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// The authority's files do not fit together or cannot be read.
    #[error("the certificate authority in {} is broken: {why}", dir.display())]
    Authority {
        /// Where.
        dir: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Shown by a server.
    Server,
    /// Shown by a client.
    Client,
}

/// What a leaf certificate is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The user name of a client.
    pub common_name: String,
    /// The groups of a client.
    pub organizations: Vec<String>,
    /// Names under which a server is reached.
    pub dns_names: Vec<String>,
    /// Addresses under which a server is reached.
    pub addresses: Vec<IpAddr>,
    /// What for.
    pub usage: Usage,
}

impl Leaf {
    /// A client: user and groups.
    pub fn client(user: &str, groups: &[&str]) -> Self {
        Self {
            common_name: user.to_owned(),
            organizations: groups.iter().map(|group| (*group).to_owned()).collect(),
            dns_names: Vec::new(),
            addresses: Vec::new(),
            usage: Usage::Client,
        }
    }

    /// A cluster administrator, in `system:masters`.
    pub fn admin() -> Self {
        Self::client("kubernetes-admin", &[crate::MASTERS])
    }

    /// The kubelet of `node` as a client.
    pub fn kubelet_client(node: &str) -> Self {
        Self::client(&format!("{}{node}", crate::NODE_USER_PREFIX), &[crate::NODES])
    }

    /// The kubelet of `node` as a server.
    pub fn kubelet_server(node: &str, addresses: &[IpAddr]) -> Self {
        let mut leaf = Self::kubelet_client(node);
        leaf.usage = Usage::Server;
        leaf.dns_names = vec![node.to_owned(), "localhost".to_owned()];
        leaf.addresses = addresses.to_vec();
        leaf
    }

    /// The API server: its names in the cluster, its Service address, its own addresses, and loopback.
    pub fn api_server(domain: &str, service_ip: IpAddr, names: &[&str], addresses: &[IpAddr]) -> Self {
        let in_cluster =
            ["kubernetes", "kubernetes.default", "kubernetes.default.svc"].into_iter().map(str::to_owned);
        let mut dns_names: Vec<String> = in_cluster.collect();
        dns_names.push(format!("kubernetes.default.svc.{domain}"));
        dns_names.push("localhost".to_owned());
        dns_names.extend(names.iter().map(|name| (*name).to_owned()));
        let mut all = vec![service_ip, IpAddr::from([127, 0, 0, 1]), std::net::Ipv6Addr::LOCALHOST.into()];
        all.extend(addresses);
        dns_names.dedup();
        all.dedup();
        let common_name = "kube-apiserver".to_owned();
        Self { common_name, organizations: Vec::new(), dns_names, addresses: all, usage: Usage::Server }
    }
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Pair {
    /// The chain: leaf first.
    pub certificate_pem: String,
    /// PKCS #8.
    pub key_pem: String,
    /// When [`Authority::ensure`] would make a new one.
    pub renew_at: Timestamp,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("renew_at", &self.renew_at).finish_non_exhaustive()
    }
}

/// The certificate authority.
pub struct Authority {
    certificate_pem: String,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Loads `<name>.crt` and `<name>.key` from `dir`, or makes them. An expired certificate is made anew with
    /// the same key, so that what it signed stays valid.
    ///
    /// # Errors
    /// If a file cannot be used, or only one of the two can be read.
    pub fn ensure(dir: &Path, name: &str, now: Timestamp) -> Result<Self, PkiError> {
        make_dir(dir)?;
        let (crt, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        let broken = |why: String| PkiError::Authority { dir: dir.to_owned(), why };
        let key_pair = match read(&key)? {
            Some(pem) => KeyPair::from_pem(&pem).map_err(|error| broken(error.to_string()))?,
            None if read(&crt)?.is_some() => return Err(broken(format!("{name}.key is missing"))),
            None => {
                let made = KeyPair::generate().map_err(make_error(name))?;
                write(&key, made.serialize_pem().as_bytes(), 0o600)?;
                made
            }
        };
        if let Some(pem) = read(&crt)? {
            let der =
                CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| broken(error.to_string()))?;
            let facts = Facts::read(&der).ok_or_else(|| broken(format!("{name}.crt is no certificate")))?;
            if facts.public_key != key_pair.public_key_raw() {
                return Err(broken(format!("{name}.crt and {name}.key do not fit together")));
            }
            if facts.not_after > now {
                return Self::from_parts(pem, der, key_pair, name);
            }
        }
        let made = authority_params(name, now).self_signed(&key_pair).map_err(make_error(name))?;
        write(&crt, made.pem().as_bytes(), 0o644)?;
        Self::from_parts(made.pem(), made.der().clone(), key_pair, name)
    }

    fn from_parts(
        pem: String,
        der: CertificateDer<'static>,
        key: KeyPair,
        name: &str,
    ) -> Result<Self, PkiError> {
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(make_error(name))?;
        Ok(Self { certificate_pem: pem, certificate: der, issuer })
    }

    /// What others trust.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// What others trust.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Loads `<name>.crt` and `<name>.key` from `dir`; makes new ones if they are absent, broken, not this
    /// authority's, near their end, or do not say what `leaf` says.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn ensure_leaf(&self, dir: &Path, name: &str, leaf: &Leaf, now: Timestamp) -> Result<Pair, PkiError> {
        make_dir(dir)?;
        let (crt, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        if let (Some(certificate_pem), Some(key_pem)) = (read(&crt)?, read(&key)?)
            && let Some(renew_at) = self.renew_at(&certificate_pem, &key_pem, leaf)
            && renew_at > now
        {
            return Ok(Pair { certificate_pem, key_pem, renew_at });
        }
        let pair = self.issue(leaf, now)?;
        write(&key, pair.key_pem.as_bytes(), 0o600)?;
        write(&crt, pair.certificate_pem.as_bytes(), 0o644)?;
        Ok(pair)
    }

    /// Makes a certificate that is kept nowhere.
    ///
    /// # Errors
    /// If a name is not a valid DNS name, or the system has no randomness.
    pub fn issue(&self, leaf: &Leaf, now: Timestamp) -> Result<Pair, PkiError> {
        let failed = make_error(&leaf.common_name);
        let key = KeyPair::generate().map_err(&failed)?;
        let params = leaf_params(leaf, now).map_err(&failed)?;
        let made = params.signed_by(&key, &self.issuer).map_err(&failed)?;
        let renew_at = days(now, LEAF_DAYS - RENEW_BEFORE_DAYS);
        Ok(Pair { certificate_pem: made.pem(), key_pem: key.serialize_pem(), renew_at })
    }

    /// When these must be renewed; `None`: at once.
    fn renew_at(&self, certificate_pem: &str, key_pem: &str, leaf: &Leaf) -> Option<Timestamp> {
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok()?;
        let facts = Facts::read(&der)?;
        let key = KeyPair::from_pem(key_pem).ok()?;
        let (_, parsed) = X509Certificate::from_der(&der).ok()?;
        let (_, authority) = X509Certificate::from_der(&self.certificate).ok()?;
        let is_ours = parsed.issuer() == authority.subject()
            && is_signed_by(&parsed, self.issuer.key().public_key_raw());
        let says_it = facts.common_name == leaf.common_name
            && facts.organizations == leaf.organizations
            && leaf.dns_names.iter().all(|name| facts.dns_names.contains(name))
            && leaf.addresses.iter().all(|address| facts.addresses.contains(address));
        let is_good = is_ours && says_it && facts.public_key == key.public_key_raw();
        is_good.then(|| days(facts.not_after, -RENEW_BEFORE_DAYS))
    }
}

/// Loads the key that signs ServiceAccount tokens from `sa.key` in `dir`, or makes it.
///
/// # Errors
/// If the file cannot be used or holds no such key.
pub fn ensure_service_account_key(dir: &Path) -> Result<SigningKey, PkiError> {
    make_dir(dir)?;
    let path = dir.join("sa.key");
    let broken = |why: String| PkiError::Authority { dir: dir.to_owned(), why };
    let key = match read(&path)? {
        Some(pem) => KeyPair::from_pem(&pem).map_err(|error| broken(format!("sa.key: {error}")))?,
        None => {
            let made = KeyPair::generate().map_err(make_error("sa.key"))?;
            write(&path, made.serialize_pem().as_bytes(), 0o600)?;
            made
        }
    };
    SigningKey::from_pkcs8(key.serialized_der()).map_err(|error| broken(format!("sa.key: {error}")))
}

/// A kubeconfig with everything in it.
///
/// `server` is a URL; `user` only names the entry.
pub fn kubeconfig(cluster: &str, server: &str, ca_pem: &str, user: &str, pair: &Pair) -> String {
    let (ca, crt, key) =
        (STANDARD.encode(ca_pem), STANDARD.encode(&pair.certificate_pem), STANDARD.encode(&pair.key_pem));
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: {cluster}\n  cluster:\n    server: {server}\n    \
         certificate-authority-data: {ca}\nusers:\n- name: {user}\n  user:\n    client-certificate-data: {crt}\n    \
         client-key-data: {key}\ncontexts:\n- name: {cluster}\n  context:\n    cluster: {cluster}\n    \
         user: {user}\ncurrent-context: {cluster}\npreferences: {{}}\n"
    )
}

/// Writes a file that only its owner may read, as a whole.
///
/// # Errors
/// If the file system refuses.
pub fn write_private(path: &Path, content: &str) -> Result<(), PkiError> {
    write(path, content.as_bytes(), 0o600)
}

/// What is read back out of a certificate.
struct Facts {
    common_name: String,
    organizations: Vec<String>,
    dns_names: Vec<String>,
    addresses: Vec<IpAddr>,
    public_key: Vec<u8>,
    not_after: Timestamp,
}

impl Facts {
    fn read(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let (mut dns_names, mut addresses) = (Vec::new(), Vec::new());
        if let Ok(Some(san)) = parsed.subject_alternative_name() {
            for name in &san.value.general_names {
                match name {
                    GeneralName::DNSName(name) => dns_names.push((*name).to_owned()),
                    GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                    _ => {}
                }
            }
        }
        let subject = crate::x509::Subject::of(&parsed);
        Some(Self {
            common_name: subject.common_name,
            organizations: subject.organizations,
            dns_names,
            addresses,
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
            not_after: Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()?,
        })
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// Whether the P-256 key `public_key` signed this certificate.
fn is_signed_by(certificate: &X509Certificate<'_>, public_key: &[u8]) -> bool {
    let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_ASN1, public_key);
    key.verify(certificate.tbs_certificate.as_ref(), &certificate.signature_value.data).is_ok()
}

fn authority_params(name: &str, now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, format!("knarr-{name}"));
    params.distinguished_name = subject;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    set_validity(&mut params, now, AUTHORITY_DAYS);
    params
}

fn leaf_params(leaf: &Leaf, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    for organization in &leaf.organizations {
        subject.push(DnType::OrganizationName, organization.as_str());
    }
    subject.push(DnType::CommonName, leaf.common_name.as_str());
    params.distinguished_name = subject;
    for name in &leaf.dns_names {
        params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
    }
    params.subject_alt_names.extend(leaf.addresses.iter().copied().map(SanType::IpAddress));
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![match leaf.usage {
        Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    set_validity(&mut params, now, LEAF_DAYS);
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, lifetime_days: i64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |seconds: i64| epoch + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    params.not_before = at(now.as_second() - BACKDATE_SECONDS);
    params.not_after = at(days(now, lifetime_days).as_second());
}

fn days(from: Timestamp, days: i64) -> Timestamp {
    from.checked_add(SignedDuration::from_hours(24 * days)).unwrap_or(Timestamp::MAX)
}

fn make_error(name: &str) -> impl Fn(rcgen::Error) -> PkiError {
    let name = name.to_owned();
    move |source| PkiError::Make { name: name.clone(), source }
}

fn file_error(path: &Path) -> impl Fn(std::io::Error) -> PkiError {
    let path = path.to_owned();
    move |source| PkiError::File { path: path.clone(), source }
}

fn make_dir(dir: &Path) -> Result<(), PkiError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(file_error(dir))
}

fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path)(error)),
    }
}

/// Beside, flushed, renamed: a reader sees the old or the new file, whole.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), PkiError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let failed = file_error(path);
    match std::fs::remove_file(&beside) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside).map_err(&failed)?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(&failed)?;
    std::fs::rename(&beside, path).map_err(&failed)?;
    match path.parent() {
        Some(dir) => std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(&failed),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "pki/tests.rs"]
mod tests;
