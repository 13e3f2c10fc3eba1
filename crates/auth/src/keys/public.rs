//! A public key that tokens are checked by: RSA, and ECDSA on P-256, P-384 and P-521.
//!
//! Source: RFC 7518.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p521::ecdsa::signature::hazmat::PrehashVerifier;
use ring::digest::{SHA256, SHA512, digest};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey,
};
use serde_json::{Value, json};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::SubjectPublicKeyInfo;

const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// What a point begins with of which both coordinates are told.
const UNCOMPRESSED: u8 = 0x04;
const RSA_ID: &str = "1.2.840.113549.1.1.1";
const ELLIPTIC_ID: &str = "1.2.840.10045.2.1";

/// A key that checks signatures by one algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    id: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Curve(&'static Curve, Vec<u8>),
    P521(Vec<u8>),
    Rsa { key: Vec<u8>, modulus: Vec<u8>, exponent: Vec<u8> },
}

/// An elliptic curve and what a JWT calls it. Source: RFC 7518, 3.4, 6.2.1.
#[derive(Debug)]
pub(super) struct Curve {
    id: &'static str,
    name: &'static str,
    pub(super) algorithm: &'static str,
    verifying: &'static EcdsaVerificationAlgorithm,
}

impl PartialEq for Curve {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Curve {}

static CURVES: [Curve; 2] = [
    Curve {
        id: "1.2.840.10045.3.1.7",
        name: "P-256",
        algorithm: "ES256",
        verifying: &ECDSA_P256_SHA256_FIXED,
    },
    Curve { id: "1.3.132.0.34", name: "P-384", algorithm: "ES384", verifying: &ECDSA_P384_SHA384_FIXED },
];
const P521_ID: &str = "1.3.132.0.35";

/// A key that nobody here can check by.
#[derive(Debug)]
pub(super) struct Unusable;

impl PublicKey {
    /// The key of a PKIX form; nothing if it is none that is RSA or ECDSA.
    pub(super) fn of_info(info: &SubjectPublicKeyInfo<'_>) -> Result<Option<Self>, Unusable> {
        let bytes = info.subject_public_key.data.to_vec();
        let is_point = bytes.first() == Some(&UNCOMPRESSED);
        let kind = match info.algorithm.algorithm.to_id_string().as_str() {
            RSA_ID => {
                let Ok(Parsed::RSA(key)) = info.parsed() else { return Err(Unusable) };
                let modulus = key.modulus.iter().skip_while(|byte| **byte == 0).copied().collect::<Vec<u8>>();
                let bits =
                    modulus.len() * 8 - modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
                if !RSA_BITS.contains(&bits) {
                    return Err(Unusable);
                }
                let exponent = key.exponent.iter().skip_while(|byte| **byte == 0).copied().collect();
                Kind::Rsa { key: bytes, modulus, exponent }
            }
            ELLIPTIC_ID => {
                let parameters = info.algorithm.parameters.as_ref();
                let id = parameters.and_then(|one| one.as_oid().ok()).map(|id| id.to_id_string());
                let id = id.unwrap_or_default();
                match CURVES.iter().find(|curve| curve.id == id) {
                    Some(curve) if is_point => Kind::Curve(curve, bytes),
                    None if id == P521_ID && is_point => {
                        p521::ecdsa::VerifyingKey::from_sec1_bytes(&bytes).map_err(|_| Unusable)?;
                        Kind::P521(bytes)
                    }
                    _ => return Err(Unusable),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { id: URL_SAFE_NO_PAD.encode(digest(&SHA256, info.raw)), kind }))
    }

    /// A key in PKIX form, DER; nothing if it is none that is known here.
    pub(super) fn of_pkix(der: &[u8]) -> Option<Self> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
        Self::of_info(&info).ok()?
    }

    /// `kid`: what tokens call it. Source: `keyIDFromPublicKey` of `pkg/serviceaccount`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `alg` of the tokens that it checks.
    pub fn algorithm(&self) -> &'static str {
        match &self.kind {
            Kind::Curve(curve, _) => curve.algorithm,
            Kind::P521(_) => "ES512",
            Kind::Rsa { .. } => "RS256",
        }
    }

    /// `true` if the key's owner has signed the message, as JWTs are signed.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.kind {
            Kind::Curve(curve, point) => {
                UnparsedPublicKey::new(curve.verifying, point).verify(message, signature).is_ok()
            }
            Kind::P521(point) => has_signed_by_p521(point, message, signature),
            Kind::Rsa { key, .. } => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key).verify(message, signature).is_ok()
            }
        }
    }

    /// The key as a JSON Web Key.
    pub fn jwk(&self) -> Value {
        let (id, algorithm) = (&self.id, self.algorithm());
        let of_point = |name: &str, point: &[u8]| {
            // An uncompressed point: 0x04, then x and y.
            let (x, y) =
                point.get(1..).and_then(|both| both.split_at_checked(both.len() / 2)).unwrap_or_default();
            let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
            json!({"use": "sig", "kty": "EC", "kid": id, "alg": algorithm, "crv": name, "x": x, "y": y})
        };
        match &self.kind {
            Kind::Curve(curve, point) => of_point(curve.name, point),
            Kind::P521(point) => of_point("P-521", point),
            Kind::Rsa { modulus, exponent, .. } => json!({
                "use": "sig", "kty": "RSA", "kid": id, "alg": algorithm,
                "n": URL_SAFE_NO_PAD.encode(modulus), "e": URL_SAFE_NO_PAD.encode(exponent),
            }),
        }
    }
}

/// `true` if the owner of the point on P-521 has signed the message, as JWTs are signed by ES512.
pub(crate) fn has_signed_by_p521(point: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(point);
    let signature = p521::ecdsa::Signature::from_slice(signature);
    let (Ok(key), Ok(signature)) = (key, signature) else { return false };
    key.verify_prehash(digest(&SHA512, message).as_ref(), &signature).is_ok()
}
