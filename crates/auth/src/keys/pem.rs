//! The public keys of a PEM file, in every form that upstream reads: PKIX, certificates, and private keys, of which the
//! public half counts; several in one file, whatever their labels say.
//!
//! What is no RSA or ECDSA key is passed over, as upstream does. One that is, but that nobody here can check by, is an error:
//! passing it over would refuse the tokens of whoever has it. Source: `ParsePublicKeysPEM` of `k8s.io/client-go/util/keyutil`.

use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::private::PrivateKey;
use super::public::{PublicKey, Unusable};
use super::{EC, RSA, curve, of_algorithm, wrapped};
use crate::der::{INTEGER, OCTET_STRING, SEQUENCE, take};

/// The number of keys that a file may hold.
pub const KEYS_MAX: usize = 64;

/// A file of no use, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeysError {
    /// There is no key in it. Source: upstream's text.
    #[error("data does not contain any valid RSA or ECDSA public keys")]
    None,
    /// One of its keys cannot be used.
    #[error(
        "block {0} holds a key that is neither an RSA key of 2048 to 8192 bits nor an ECDSA key of P-256, P-384 or P-521"
    )]
    Unusable(usize),
    /// It holds more than anybody has.
    #[error("more than {KEYS_MAX} keys")]
    TooMany,
}

/// All keys of a PEM file, each once.
///
/// # Errors
/// Why the file is of no use.
pub fn public_keys(pem: &[u8]) -> Result<Vec<PublicKey>, PublicKeysError> {
    let mut keys: Vec<PublicKey> = Vec::new();
    for (number, block) in (1..).zip(Pem::iter_from_buffer(pem)) {
        // After a broken block nothing is found any more.
        let Ok(block) = block else { break };
        let found = of_block(&block.contents).map_err(|Unusable| PublicKeysError::Unusable(number))?;
        keys.extend(found.filter(|key| !keys.contains(key)));
        if keys.len() > KEYS_MAX {
            return Err(PublicKeysError::TooMany);
        }
    }
    if keys.is_empty() { Err(PublicKeysError::None) } else { Ok(keys) }
}

/// The key in a block; nothing if it holds none that is RSA or ECDSA.
fn of_block(der: &[u8]) -> Result<Option<PublicKey>, Unusable> {
    if let Ok((&[], info)) = SubjectPublicKeyInfo::from_der(der) {
        return PublicKey::of_info(&info);
    }
    if let Ok((&[], certificate)) = X509Certificate::from_der(der) {
        return PublicKey::of_info(&certificate.tbs_certificate.subject_pki);
    }
    let Some(key) = as_pkcs8(der) else { return Ok(None) };
    PrivateKey::of_pkcs8(&key).map(|key| Some(key.public().clone())).map_err(|_| Unusable)
}

/// A private key of RSA or ECDSA, whichever way it is wrapped.
fn as_pkcs8(der: &[u8]) -> Option<Vec<u8>> {
    let (SEQUENCE, fields, []) = take(der)? else { return None };
    let (INTEGER, _, rest) = take(fields)? else { return None };
    match take(rest)? {
        // PKCS#8: what sort of key it is comes first.
        (SEQUENCE, algorithm, _) => {
            let is_known = algorithm.starts_with(&RSA) || algorithm.starts_with(&EC);
            is_known.then(|| der.to_vec())
        }
        // PKCS#1: the modulus.
        (INTEGER, ..) => Some(wrapped(&RSA, der)),
        // SEC1: the key, then the curve.
        (OCTET_STRING, ..) => Some(wrapped(&of_algorithm(curve(der)?), der)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
