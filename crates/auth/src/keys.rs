//! Private keys in the forms that other tools write: PKCS#8, PKCS#1 (`RSA PRIVATE KEY`) and SEC1 (`EC PRIVATE KEY`), PEM.
//!
//! What is in here knows the wrapping only, not whether the key is a good one: `private` and `public` do.
//! Source: RFC 5208, RFC 8017, RFC 5915.

pub mod pem;
pub mod private;
pub mod public;

use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

use crate::der::{OCTET_STRING, SEQUENCE, tagged, take};

/// `[0] parameters` of an ECPrivateKey.
const PARAMETERS: u8 = 0xa0;
/// `version` 0.
const VERSION: [u8; 3] = [0x02, 0x01, 0x00];
/// rsaEncryption, and no parameters.
const RSA: [u8; 13] = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
/// ecPublicKey; the curve follows.
const EC: [u8; 9] = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// prime256v1 and secp384r1.
const P256: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];

/// There is no private key in a PEM file, or none of these forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read a private key in the form PKCS#8, PKCS#1 or SEC1, PEM")]
pub struct KeyError;

/// The first private key of a PEM file, as PKCS#8 DER.
///
/// # Errors
/// If there is none.
pub fn pkcs8(pem: &[u8]) -> Result<Vec<u8>, KeyError> {
    match PrivateKeyDer::from_pem_slice(pem).map_err(|_| KeyError)? {
        PrivateKeyDer::Pkcs8(key) => Ok(key.secret_pkcs8_der().to_vec()),
        PrivateKeyDer::Pkcs1(key) => Ok(wrapped(&RSA, key.secret_pkcs1_der())),
        PrivateKeyDer::Sec1(key) => {
            let key = key.secret_sec1_der();
            Ok(wrapped(&of_algorithm(curve(key).ok_or(KeyError)?), key))
        }
        _ => Err(KeyError),
    }
}

/// An AlgorithmIdentifier's content: ECDSA on a curve, an object identifier in DER.
fn of_algorithm(curve: &[u8]) -> Vec<u8> {
    [&EC, curve].concat()
}

fn wrapped(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let content = [&VERSION, tagged(SEQUENCE, algorithm).as_slice(), &tagged(OCTET_STRING, key)].concat();
    tagged(SEQUENCE, &content)
}

/// The curve that an ECPrivateKey names, an object identifier in DER.
fn curve(key: &[u8]) -> Option<&[u8]> {
    let (_, fields, _) = take(key)?;
    let (_, _, rest) = take(fields)?;
    let (_, _, rest) = take(rest)?;
    let (tag, curve, _) = take(rest)?;
    (tag == PARAMETERS).then_some(curve)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As `openssl genrsa -traditional` writes it; of no cluster.
    pub(crate) const RSA_PKCS1: &str = include_str!("keys/rsa.pem");
    /// As `openssl ecparam -genkey` writes it, with the parameters before it; of no cluster.
    pub(crate) const EC_SEC1: &str = include_str!("keys/ec.pem");
    /// The same of another curve.
    pub(crate) const EC_P521: &str = include_str!("keys/p521.pem");
    /// An authority whose key is [`RSA_PKCS1`].
    pub(crate) const RSA_AUTHORITY: &str = include_str!("keys/rsa.crt");

    #[test]
    fn older_forms_are_wrapped() {
        assert!(ring::rsa::KeyPair::from_pkcs8(&pkcs8(RSA_PKCS1.as_bytes()).unwrap()).is_ok());
        let key = rcgen::KeyPair::try_from(pkcs8(EC_SEC1.as_bytes()).unwrap()).unwrap();
        // What is in the right form stays as it is.
        assert_eq!(pkcs8(key.serialize_pem().as_bytes()).unwrap(), key.serialize_der());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let cut = EC_SEC1.lines().filter(|line| !line.ends_with("==")).collect::<Vec<_>>().join("\n");
        for text in ["", "nonsense", RSA_AUTHORITY, &cut[..cut.len() / 2]] {
            assert_eq!(pkcs8(text.as_bytes()), Err(KeyError), "{text}");
        }
    }
}
