//! Private keys that tokens are signed with: RSA, and ECDSA on P-256, P-384 and P-521.

use p521::ecdsa::signature::hazmat::PrehashSigner;
use p521::pkcs8::{DecodePrivateKey, EncodePublicKey};
use ring::digest::{SHA512, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};

use super::public::PublicKey;
use super::{KeyError, P256, P384, RSA, of_algorithm};
use crate::der::{BIT_STRING, SEQUENCE, tagged};

/// A key that signs tokens.
pub struct PrivateKey {
    public: PublicKey,
    kind: Kind,
}

enum Kind {
    Ecdsa(Box<EcdsaKeyPair>),
    P521(Box<p521::ecdsa::SigningKey>),
    Rsa(Box<RsaKeyPair>),
}

impl PrivateKey {
    /// A key in PKCS#8 form, DER.
    ///
    /// # Errors
    /// If it is none of those.
    pub fn of_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        let (kind, pkix) = read(der).ok_or(KeyError)?;
        Ok(Self { public: PublicKey::of_pkix(&pkix).ok_or(KeyError)?, kind })
    }

    /// Its public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The signature of a message, as JWTs have it; nothing if there is no randomness.
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.kind {
            Kind::Ecdsa(key) => Some(key.sign(&random, message).ok()?.as_ref().to_vec()),
            Kind::P521(key) => {
                let hash = digest(&SHA512, message);
                let signature: p521::ecdsa::Signature = key.sign_prehash(hash.as_ref()).ok()?;
                Some(signature.to_bytes().to_vec())
            }
            Kind::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}

/// The key, and its public half in PKIX form.
fn read(der: &[u8]) -> Option<(Kind, Vec<u8>)> {
    let random = SystemRandom::new();
    for (curve, signing) in
        [(&P256[..], &ECDSA_P256_SHA256_FIXED_SIGNING), (&P384, &ECDSA_P384_SHA384_FIXED_SIGNING)]
    {
        if let Ok(key) = EcdsaKeyPair::from_pkcs8(signing, der, &random) {
            let public = pkix(&of_algorithm(curve), key.public_key().as_ref());
            return Some((Kind::Ecdsa(Box::new(key)), public));
        }
    }
    if let Ok(key) = p521::SecretKey::from_pkcs8_der(der) {
        let public = key.public_key().to_public_key_der().ok()?.into_vec();
        return Some((Kind::P521(Box::new(key.into())), public));
    }
    let key = RsaKeyPair::from_pkcs8(der).ok()?;
    let public = pkix(&RSA, key.public().as_ref());
    Some((Kind::Rsa(Box::new(key)), public))
}

fn pkix(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let bits = [&[0], key].concat();
    tagged(SEQUENCE, &[tagged(SEQUENCE, algorithm), tagged(BIT_STRING, &bits)].concat())
}
