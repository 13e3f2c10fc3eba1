//! That whoever asks for a certificate has the key that it is for: the Pod's UID, signed with it.
//!
//! Source: `ValidatePodCertificateRequestCreate`; RFC 5280 (SubjectPublicKeyInfo), RFC 8017 (PSS), RFC 8410.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::field::{FieldError, FieldErrors};
use p521::ecdsa::signature::hazmat::PrehashVerifier;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use rsa::pkcs8::DecodePublicKey;
use rsa::traits::PublicKeyParts;
use sha2::{Digest, Sha256};
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::At;

const ED25519: &str = "1.3.101.112";
const ELLIPTIC: &str = "1.2.840.10045.2.1";
const RSA: &str = "1.2.840.113549.1.1.1";
/// Kinds of keys that are known, and not for this: X25519, DSA.
const OTHERS: [&str; 2] = ["1.3.101.110", "1.2.840.10040.4.1"];
const P224: &str = "1.3.132.0.33";
const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";
const P521: &str = "1.3.132.0.35";
const RSA_BITS: [usize; 2] = [3072, 4096];

/// A field of bytes; what is no base64 is no key and no signature either.
pub(super) fn bytes(spec: &At<'_>, field: &str) -> Vec<u8> {
    STANDARD.decode(spec.get(field).text()).unwrap_or_default()
}

/// Checks the key, and the proof with it.
pub(super) fn check(spec: &At<'_>, key: &[u8], proof: &[u8], errors: &mut FieldErrors) {
    let at = spec.get("pkixPublicKey");
    let uid = spec.get("podUID").text().as_bytes();
    match verify(key, uid, proof) {
        Ok(true) => {}
        Ok(false) => {
            let why = "could not verify proof-of-possession signature";
            errors.push(FieldError::invalid_unshown(&spec.get("proofOfPossession").path, why));
        }
        Err(Bad { shown: Some(shown), rule }) => errors.push(FieldError::invalid(&at.path, shown, rule)),
        Err(Bad { shown: None, rule }) => errors.push(FieldError::invalid(&at.path, at.text(), rule)),
    }
}

/// What is wrong with a key, and what is shown of it, if that is not the key itself.
struct Bad {
    shown: Option<String>,
    rule: &'static str,
}

fn bad(rule: &'static str) -> Bad {
    Bad { shown: None, rule }
}

/// Whether `proof` is `message` signed with the key.
fn verify(key: &[u8], message: &[u8], proof: &[u8]) -> Result<bool, Bad> {
    const NO_KEY: &str = "must be a valid PKIX-serialized public key";
    const UNKNOWN: &str = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
    let Ok((rest, info)) = SubjectPublicKeyInfo::from_der(key) else { return Err(bad(NO_KEY)) };
    if !rest.is_empty() {
        return Err(bad(NO_KEY));
    }
    let point = info.subject_public_key.data.as_ref();
    let with = |algorithm: &'static dyn VerificationAlgorithm| {
        UnparsedPublicKey::new(algorithm, point).verify(message, proof).is_ok()
    };
    let curve =
        || info.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok()).map(|id| id.to_id_string());
    match info.algorithm.algorithm.to_id_string().as_str() {
        ED25519 => Ok(with(&signature::ED25519)),
        ELLIPTIC => match curve().unwrap_or_default().as_str() {
            P256 => Ok(with(&signature::ECDSA_P256_SHA256_ASN1)),
            P384 => Ok(with(&signature::ECDSA_P384_SHA256_ASN1)),
            P521 => p521::ecdsa::VerifyingKey::from_sec1_bytes(point)
                .map(|key| verify_p521(&key, message, proof))
                .map_err(|_| bad(NO_KEY)),
            P224 => {
                let rule = "elliptic public keys must use curve P256 or P384";
                Err(Bad { shown: Some("curve P-224".to_owned()), rule })
            }
            _ => Err(bad(NO_KEY)),
        },
        RSA => {
            let Ok(key) = rsa::RsaPublicKey::from_public_key_der(key) else { return Err(bad(NO_KEY)) };
            let bits = key.size() * 8;
            if !RSA_BITS.contains(&bits) {
                let rule = "RSA keys must have modulus size 3072 or 4096";
                return Err(Bad { shown: Some(format!("{bits}-bit modulus")), rule });
            }
            // Go's signers use the longest salt that fits, others that of the hash: any will do.
            let scheme =
                rsa::Pss::<rsa::sha2::Sha256> { salt_len: None, ..rsa::Pss::<rsa::sha2::Sha256>::new() };
            Ok(key.verify(scheme, &Sha256::digest(message), proof).is_ok())
        }
        id if OTHERS.contains(&id) => Err(bad(UNKNOWN)),
        _ => Err(bad(NO_KEY)),
    }
}

fn verify_p521(key: &p521::ecdsa::VerifyingKey, message: &[u8], proof: &[u8]) -> bool {
    let Ok(proof) = p521::ecdsa::DerSignature::try_from(proof) else { return false };
    key.verify_prehash(&Sha256::digest(message), &proof).is_ok()
}
