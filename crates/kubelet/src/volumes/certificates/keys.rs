//! Keys of the types that a Pod may ask for, and the proof that whoever asks has them: the Pod's UID, signed.
//!
//! Private keys are PKCS#8, public ones SubjectPublicKeyInfo. Whatever the curve, what is signed is a SHA-256, but for
//! Ed25519. Source: `generateKeyAndProof` of `pkg/kubelet/podcertificate`; RFC 5208, RFC 5280, RFC 8410.

use getrandom::SysRng;
use p384::elliptic_curve::Generate;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use rsa::pkcs8::{EncodePrivateKey, EncodePublicKey};
use rsa::rand_core::UnwrapErr;

use super::state::key_pem;

/// Before the 32 bytes of an Ed25519 key: RFC 8410.
const ED25519_PRIVATE: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
const ED25519_PUBLIC: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
/// Before a point of P-256: RFC 5480.
const P256_PUBLIC: &[u8] =
    b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";

/// There is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("unknown key type {0:?}")]
    UnknownType(String),
    /// Most likely there is no randomness.
    #[error("{0}")]
    Unspecified(ring::error::Unspecified),
    #[error("{0}")]
    Rejected(ring::error::KeyRejected),
    #[error(transparent)]
    NotMade(Box<dyn std::error::Error + Send + Sync>),
}

/// A new key.
pub(super) struct Made {
    /// PEM.
    pub(super) private_pem: String,
    pub(super) public: Vec<u8>,
    /// A signature of what was to be signed.
    pub(super) proof: Vec<u8>,
}

/// Makes a key and signs `message` with it. Blocking: an RSA key takes a second.
///
/// # Errors
/// There is no such type, or no randomness.
pub(super) fn make(kind: &str, message: &[u8]) -> Result<Made, KeyError> {
    match kind {
        "ED25519" => ed25519(message),
        "ECDSAP256" => p256(message),
        "ECDSAP384" => p384(message),
        "ECDSAP521" => p521(message),
        "RSA3072" => rsa(3072, message),
        "RSA4096" => rsa(4096, message),
        other => Err(KeyError::UnknownType(other.to_owned())),
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> KeyError {
    KeyError::NotMade(Box::new(error))
}

fn ed25519(message: &[u8]) -> Result<Made, KeyError> {
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).map_err(KeyError::Unspecified)?;
    let key = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(KeyError::Rejected)?;
    Ok(Made {
        private_pem: key_pem(&[ED25519_PRIVATE, &seed].concat()),
        public: [ED25519_PUBLIC, key.public_key().as_ref()].concat(),
        proof: key.sign(message).as_ref().to_vec(),
    })
}

fn p256(message: &[u8]) -> Result<Made, KeyError> {
    let random = SystemRandom::new();
    let private = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random);
    let private = private.map_err(KeyError::Unspecified)?;
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, private.as_ref(), &random);
    let key = key.map_err(KeyError::Rejected)?;
    Ok(Made {
        private_pem: key_pem(private.as_ref()),
        public: [P256_PUBLIC, key.public_key().as_ref()].concat(),
        proof: key.sign(&random, message).map_err(KeyError::Unspecified)?.as_ref().to_vec(),
    })
}

/// A key of a curve whose SHA-256 signatures ring does not make.
macro_rules! curve {
    ($curve:ident) => {
        fn $curve(message: &[u8]) -> Result<Made, KeyError> {
            use ::$curve::ecdsa::signature::hazmat::PrehashSigner;
            use ::$curve::ecdsa::{DerSignature, SigningKey};
            let secret = ::$curve::SecretKey::try_generate_from_rng(&mut SysRng).map_err(failed)?;
            let proof: DerSignature =
                SigningKey::from(&secret).sign_prehash(digest(&SHA256, message).as_ref()).map_err(failed)?;
            Ok(Made {
                private_pem: key_pem(secret.to_pkcs8_der().map_err(failed)?.as_bytes()),
                public: secret.public_key().to_public_key_der().map_err(failed)?.into_vec(),
                proof: proof.as_bytes().to_vec(),
            })
        }
    };
}
curve!(p384);
curve!(p521);

fn rsa(bits: usize, message: &[u8]) -> Result<Made, KeyError> {
    let mut random = UnwrapErr(SysRng);
    let key = rsa::RsaPrivateKey::new(&mut random, bits).map_err(failed)?;
    let scheme = rsa::Pss::<rsa::sha2::Sha256>::new();
    let proof = key.sign_with_rng(&mut random, scheme, digest(&SHA256, message).as_ref());
    Ok(Made {
        private_pem: key_pem(key.to_pkcs8_der().map_err(failed)?.as_bytes()),
        public: key.to_public_key().to_public_key_der().map_err(failed)?.into_vec(),
        proof: proof.map_err(failed)?,
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use serde_json::json;

    use super::*;

    /// What the API server says of a request with a key of that type.
    fn check(kind: &str) {
        let made = make(kind, b"pod-uid").unwrap();
        let [public, proof] = [&made.public, &made.proof].map(|bytes| BASE64_STANDARD.encode(bytes));
        let request = json!({"metadata": {"name": "r", "namespace": "d"}, "spec": {
            "signerName": "a.b/c", "podName": "p", "podUID": "pod-uid", "serviceAccountName": "s",
            "serviceAccountUID": "s", "nodeName": "n", "nodeUID": "n", "maxExpirationSeconds": 3600,
            "pkixPublicKey": public, "proofOfPossession": proof}});
        let row = resources::find("certificates.k8s.io", "v1beta1", "podcertificaterequests").unwrap();
        let errors: Vec<_> = row.validate_create(&request).iter().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{kind}: {errors:?}");
        assert!(made.private_pem.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{kind}");
    }

    #[test]
    fn keys_of_every_type_are_made_and_proven() {
        ["ED25519", "ECDSAP256", "ECDSAP384", "ECDSAP521", "RSA3072", "RSA4096"]
            .iter()
            .for_each(|kind| check(kind));
        assert!(matches!(make("RSA1024", b""), Err(KeyError::UnknownType(kind)) if kind == "RSA1024"));
    }
}
