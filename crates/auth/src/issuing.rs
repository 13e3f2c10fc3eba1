//! Certificates for what signing requests ask: the requester's key as it was sent, the subject in the one form that
//! [`crate::subject`] writes, the rest by usages.
//!
//! `rcgen` writes everything but the subject, of which it keeps one organization only, and the key, of which it knows
//! few types; these two are put in, and the whole is signed anew. What may be asked of which signer is
//! not decided here. Source: `PermissiveSigningPolicy` of `pkg/controller/certificates/authority`, RFC 5280.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::{
    CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType,
    SerialNumber, SigningKey,
};
use ring::rand::{SecureRandom, SystemRandom};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::der::{self, BIT_STRING, SEQUENCE, tagged};
use crate::keys::{self, KeyError};
use crate::signing::{Asked, RequestError};
use crate::subject::SubjectName;

/// Clocks may differ by this much. Source: `--cluster-signing-duration`'s backdating of five minutes.
const BACKDATE_SECONDS: i64 = 300;
/// No certificate lives shorter.
const SECONDS_MIN: i64 = 600;
/// The end of a certificate that lives shorter than this is not backdated.
const SHORT_SECONDS: i64 = 8 * 3600;
/// `id-ce-basicConstraints`
const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];
const SERIAL_BYTES: usize = 16;

/// The reason why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The authority's certificate or key is none.
    #[error("read the signing authority")]
    Authority(#[source] rcgen::Error),
    /// The request cannot be read.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The certificate could not be made.
    #[error("make the certificate")]
    Certificate(#[source] rcgen::Error),
    /// A usage that certificates do not have.
    #[error("unrecognized usage values: [{0:?}]")]
    Usage(String),
    /// The authority's key is in no form that is known.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No chance to be had.
    #[error("choose a serial number")]
    Serial,
}

/// The keys and certificates by signer's name; without one nothing is signed.
///
/// Source: `--cluster-signing-*-cert-file`, `--cluster-signing-*-key-file`.
#[derive(Clone, Default)]
pub struct Signers {
    /// `kubernetes.io/kube-apiserver-client`, and knarr's own for the proxies of Nodes.
    pub client: Option<Arc<Signer>>,
    /// `kubernetes.io/kube-apiserver-client-kubelet`
    pub kubelet_client: Option<Arc<Signer>>,
    /// `kubernetes.io/kubelet-serving`
    pub kubelet_serving: Option<Arc<Signer>>,
    /// `kubernetes.io/legacy-unknown`
    pub legacy_unknown: Option<Arc<Signer>>,
}

/// A signer of the certificates that requests ask for. Source: `--cluster-signing-cert-file`, `--cluster-signing-key-file`.
pub struct Signer {
    issuer: Issuer<'static, KeyPair>,
    ends_second: i64,
    random: SystemRandom,
}

impl Signer {
    /// The authority of a certificate and its key, both PEM; the key in any form of [`crate::keys`].
    ///
    /// # Errors
    /// If they are none.
    pub fn new(certificate_pem: &str, key_pem: &str) -> Result<Self, IssueError> {
        let key = keys::pkcs8(key_pem.as_bytes())?;
        let key = KeyPair::try_from(key).map_err(IssueError::Authority)?;
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, key).map_err(IssueError::Authority)?;
        let ends_second = crate::pki::ends_at(certificate_pem).unwrap_or(i64::MAX);
        Ok(Self { issuer, ends_second, random: SystemRandom::new() })
    }

    /// The certificate, PEM, for the PEM request `pem`; it lives so many `seconds`, and not longer than
    /// the authority.
    ///
    /// # Errors
    /// If the request cannot be read, or asks for a usage that does not exist.
    pub fn sign(
        &self,
        pem: &[u8],
        usages: &[String],
        seconds: i64,
        now: Timestamp,
    ) -> Result<String, IssueError> {
        let asked = Asked::of_pem(pem)?;
        let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| RequestError::NotPem)?;
        let (_, request) =
            X509CertificationRequest::from_der(&block.contents).map_err(|_| RequestError::NotARequest)?;
        let info = &request.certification_request_info;
        let mut params = self.params(&asked, usages)?;
        self.set_lifetime(&mut params, seconds, now);
        let draft = params.signed_by(self.issuer.key(), &self.issuer).map_err(IssueError::Certificate)?;
        let subject = SubjectName::of(&info.subject).map_err(RequestError::from)?.encoded();
        self.finish(draft.der(), &subject, info.subject_pki.raw)
    }

    fn params(&self, asked: &Asked, usages: &[String]) -> Result<CertificateParams, IssueError> {
        let mut params = CertificateParams::default();
        let mut serial = [0; SERIAL_BYTES];
        self.random.fill(&mut serial).map_err(|_| IssueError::Serial)?;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.subject_alt_names = alternatives(asked).map_err(IssueError::Certificate)?;
        params.use_authority_key_identifier_extension = true;
        // An empty sequence: no authority.
        let mut basic = CustomExtension::from_oid_content(BASIC_CONSTRAINTS, vec![SEQUENCE, 0]);
        basic.set_criticality(true);
        params.custom_extensions = vec![basic];
        for usage in usages {
            match (key_usage(usage), extended_usage(usage)) {
                (Some(usage), _) => params.key_usages.push(usage),
                (None, Some(usage)) => params.extended_key_usages.push(usage),
                (None, None) => return Err(IssueError::Usage(usage.clone())),
            }
        }
        Ok(params)
    }

    fn set_lifetime(&self, params: &mut CertificateParams, seconds: i64, now: Timestamp) {
        let seconds = seconds.max(SECONDS_MIN);
        // Only of a short life the backdating would be a noticeable part.
        let backdated = if seconds < SHORT_SECONDS { 0 } else { BACKDATE_SECONDS };
        let end = now.as_second().saturating_add(seconds - backdated).min(self.ends_second);
        let at = time::OffsetDateTime::from_unix_timestamp;
        if let (Ok(start), Ok(end)) = (at(now.as_second() - BACKDATE_SECONDS), at(end)) {
            params.not_before = start;
            params.not_after = end;
        }
    }

    /// Puts subject and key into a draft and signs it again.
    fn finish(&self, draft: &[u8], subject: &[u8], key: &[u8]) -> Result<String, IssueError> {
        let broken = || IssueError::Certificate(rcgen::Error::CouldNotParseCertificate);
        let (_, parsed) = X509Certificate::from_der(draft).map_err(|_| broken())?;
        let tbs = &parsed.tbs_certificate;
        let (whole, old_subject, old_key) = (tbs.as_ref(), tbs.subject.as_raw(), tbs.subject_pki.raw);
        let (_, content, _) = der::take(whole).ok_or_else(broken)?;
        // Subject and key are neighbours: RFC 5280, 4.1.
        let neighbours = [old_subject, old_key].concat();
        let at =
            content.windows(neighbours.len()).position(|window| window == neighbours).ok_or_else(broken)?;
        let (before, rest) = content.split_at(at);
        let after = rest.get(neighbours.len()..).ok_or_else(broken)?;
        let tbs = tagged(SEQUENCE, &[before, subject, key, after].concat());
        let signature = self.issuer.key().sign(&tbs).map_err(IssueError::Certificate)?;
        let (_, all, _) = der::take(draft).ok_or_else(broken)?;
        let after_tbs = all.get(whole.len()..).ok_or_else(broken)?;
        let (tag, algorithm, _) = der::take(after_tbs).ok_or_else(broken)?;
        let signature = tagged(BIT_STRING, &[&[0], signature.as_slice()].concat());
        let certificate = tagged(SEQUENCE, &[tbs, tagged(tag, algorithm), signature].concat());
        Ok(to_pem(&certificate))
    }
}

fn alternatives(asked: &Asked) -> Result<Vec<SanType>, rcgen::Error> {
    let mut names = Vec::new();
    for name in &asked.dns_names {
        names.push(SanType::DnsName(name.as_str().try_into()?));
    }
    for name in &asked.emails {
        names.push(SanType::Rfc822Name(name.as_str().try_into()?));
    }
    names.extend(asked.ips.iter().copied().map(|ip: IpAddr| SanType::IpAddress(ip)));
    for name in &asked.uris {
        names.push(SanType::URI(name.as_str().try_into()?));
    }
    Ok(names)
}

/// Source: `KeyUsage` of `certificates.k8s.io/v1`.
fn key_usage(name: &str) -> Option<KeyUsagePurpose> {
    Some(match name {
        "signing" | "digital signature" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "cert sign" => KeyUsagePurpose::KeyCertSign,
        "crl sign" => KeyUsagePurpose::CrlSign,
        "encipher only" => KeyUsagePurpose::EncipherOnly,
        "decipher only" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
}

/// Source: `KeyUsage` of `certificates.k8s.io/v1`.
fn extended_usage(name: &str) -> Option<ExtendedKeyUsagePurpose> {
    use ExtendedKeyUsagePurpose as Usage;
    let purpose = |last| Usage::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, last]);
    let microsoft = |last| Usage::Other(vec![1, 3, 6, 1, 4, 1, 311, 10, 3, last]);
    Some(match name {
        "any" => Usage::Any,
        "server auth" => Usage::ServerAuth,
        "client auth" => Usage::ClientAuth,
        "code signing" => Usage::CodeSigning,
        "email protection" | "s/mime" => Usage::EmailProtection,
        "ipsec end system" => purpose(5),
        "ipsec tunnel" => purpose(6),
        "ipsec user" => purpose(7),
        "timestamping" => Usage::TimeStamping,
        "ocsp signing" => Usage::OcspSigning,
        "microsoft sgc" => microsoft(3),
        "netscape sgc" => Usage::Other(vec![2, 16, 840, 1, 113_730, 4, 1]),
        _ => return None,
    })
}

fn to_pem(certificate: &[u8]) -> String {
    let encoded = STANDARD.encode(certificate);
    let lines: Vec<_> = encoded.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use rcgen::{DistinguishedName, DnType};
    use x509_parser::pem::parse_x509_pem;

    use super::*;
    use crate::pki::Authority;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }

    fn authority() -> (Signer, String) {
        let dir = tempfile::tempdir().expect("a folder");
        let authority = Authority::load_or_create(dir.path(), now()).expect("an authority");
        let key = std::fs::read_to_string(dir.path().join("ca.key")).expect("its key");
        let pem = authority.certificate_pem().to_owned();
        (Signer::new(&pem, &key).expect("a signer"), pem)
    }

    /// A request with two groups, which `rcgen` writes under two names of the same attribute.
    fn request() -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["n.example".to_owned()]).expect("names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "one");
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), "two");
        params.distinguished_name.push(DnType::CommonName, "anna");
        let key = KeyPair::generate().expect("a key");
        params.serialize_request(&key).and_then(|request| request.pem()).expect("a request").into_bytes()
    }

    #[test]
    fn a_certificate_has_every_group_the_key_and_the_usages_of_its_request() {
        let (signer, authority) = authority();
        let usages = ["client auth", "digital signature"].map(str::to_owned);
        let request = request();
        let pem = signer.sign(&request, &usages, 3600, now()).expect("a certificate");
        let (_, block) = parse_x509_pem(pem.as_bytes()).expect("PEM");
        let certificate = block.parse_x509().expect("a certificate");
        let (_, parent) = parse_x509_pem(authority.as_bytes()).expect("PEM");
        let parent = parent.parse_x509().expect("a certificate");
        let (_, asked) = parse_x509_pem(&request).expect("PEM");
        let user = crate::x509::user_of(&block.contents).expect("a user");
        assert_eq!((user.name.as_str(), user.groups.as_slice()), ("anna", &["one".into(), "two".into()][..]));
        assert_eq!(certificate.issuer(), parent.subject());
        assert_eq!(certificate.validity().not_after.timestamp(), now().as_second() + 3600);
        assert_eq!(certificate.validity().not_before.timestamp(), now().as_second() - 300);
        let extended = certificate.extended_key_usage().expect("readable").expect("usages").value;
        assert!(extended.client_auth && !extended.server_auth);
        assert!(!certificate.is_ca());
        let (_, request) = X509CertificationRequest::from_der(&asked.contents).expect("a request");
        assert_eq!(certificate.public_key().raw, request.certification_request_info.subject_pki.raw);
        let signature = certificate.signature_value.data.as_ref();
        let parent_key = parent.public_key().subject_public_key.data.as_ref();
        ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_ASN1, parent_key)
            .verify(certificate.tbs_certificate.as_ref(), signature)
            .expect("the authority's signature");
    }

    #[test]
    fn nobody_outlives_the_authority_and_serials_differ() {
        let (signer, authority) = authority();
        let ends = crate::pki::ends_at(&authority).expect("an end");
        let late = Timestamp::from_second(ends - 60).expect("a time");
        let request = request();
        let serial_and_end = |pem: String| {
            let (_, block) = parse_x509_pem(pem.as_bytes()).expect("PEM");
            let parsed = block.parse_x509().expect("a certificate");
            (parsed.raw_serial_as_string(), parsed.validity().not_after.timestamp())
        };
        let one = serial_and_end(signer.sign(&request, &[], 3600, late).expect("a certificate"));
        let two = serial_and_end(signer.sign(&request, &[], 3600, late).expect("a certificate"));
        assert_eq!((one.1, two.1), (ends, ends));
        assert_ne!(one.0, two.0);
        let unknown = signer.sign(&request, &["flying".to_owned()], 3600, late);
        assert_eq!(unknown.expect_err("refused").to_string(), "unrecognized usage values: [\"flying\"]");
    }

    #[test]
    fn an_authority_with_an_rsa_key_in_the_older_form_signs() {
        use crate::keys::tests::{RSA_AUTHORITY, RSA_PKCS1};
        let signer = Signer::new(RSA_AUTHORITY, RSA_PKCS1).expect("an authority");
        let pem = signer.sign(&request(), &[], 3600, now()).expect("a certificate");
        let (_, block) = parse_x509_pem(pem.as_bytes()).expect("PEM");
        let certificate = block.parse_x509().expect("a certificate");
        let (_, parent) = parse_x509_pem(RSA_AUTHORITY.as_bytes()).expect("PEM");
        let parent = parent.parse_x509().expect("a certificate");
        let parent_key = parent.public_key().subject_public_key.data.as_ref();
        let signature = certificate.signature_value.data.as_ref();
        ring::signature::UnparsedPublicKey::new(&ring::signature::RSA_PKCS1_2048_8192_SHA256, parent_key)
            .verify(certificate.tbs_certificate.as_ref(), signature)
            .expect("the authority's signature");
    }
}
