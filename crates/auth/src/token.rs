//! ServiceAccount tokens: signed, bound to an audience, a time and an object; checked on every use.
//!
//! ES256 only: the header's algorithm is not a choice of the bearer. What a token is bound to must still be
//! there; the caller says so through [`Lookup`]. Source: `serviceaccount.Claims`, KEP-1205.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};

use crate::UserInfo;

/// The `extra` key that names the credential.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// How long after its deletion began a bound object's token still works. Source: upstream's validator.
const DELETION_GRACE_SECONDS: i64 = 60;
/// The longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// The ASN.1 before an uncompressed P-256 point in a SubjectPublicKeyInfo.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token of this cluster at all: others may know it.
    #[error("the token is not one of this cluster")]
    NotOurs,
    /// The signature does not fit.
    #[error("the token's signature is wrong")]
    Signature,
    /// The text inside is not what we write.
    #[error("the token's claims cannot be read")]
    Claims,
    /// Its time is over.
    #[error("service account token has expired")]
    Expired,
    /// Its time has not come.
    #[error("service account token is not valid yet")]
    NotYet,
    /// It is for somebody else.
    #[error("token audiences {found:?} is invalid for the target audiences {wanted:?}")]
    Audience {
        /// In the token.
        found: Vec<String>,
        /// Accepted here.
        wanted: Vec<String>,
    },
    /// What it is bound to is gone or another one.
    #[error("service account token has been invalidated: the {kind} {name:?} is gone")]
    Invalidated {
        /// `serviceaccount`, `pod`, `secret` or `node`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The key is unusable, or the system has no randomness.
    #[error("the signing key cannot be used")]
    Key,
}

/// An object as a claim names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The claim `kubernetes.io`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubernetes {
    /// Of the ServiceAccount, Pod and Secret.
    pub namespace: String,
    /// Where the Pod runs, or what the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// What the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// What the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// Whose token it is.
    pub serviceaccount: Reference,
    /// When a client should have renewed it, in seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// All claims, in the order in which they are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Who it is for.
    #[serde(deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    /// Seconds since the epoch.
    pub exp: i64,
    /// Seconds since the epoch.
    pub iat: i64,
    /// The issuer's URL.
    pub iss: String,
    /// Unique.
    #[serde(default)]
    pub jti: String,
    /// What it is bound to.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: Kubernetes,
    /// Seconds since the epoch.
    pub nbf: i64,
    /// The user name.
    pub sub: String,
}

/// What is asked for in a TokenRequest, with the objects looked up.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Empty for the API server's own.
    pub audiences: Vec<String>,
    /// How long it lives, in seconds.
    pub expiration_seconds: i64,
    /// Namespace, account and binding.
    pub bound: Kubernetes,
}

/// A new token.
#[derive(Clone)]
pub struct Issued {
    /// The JWT. Secret.
    pub token: String,
    /// `status.expirationTimestamp`
    pub expires: Timestamp,
    /// `JTI=...`, for the audit log.
    pub credential_id: String,
}

/// An object that a token may be bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.deletionTimestamp`
    pub deletion: Option<Timestamp>,
    /// A Pod's node.
    pub node_name: Option<String>,
}

/// What is there now.
pub trait Lookup {
    /// A ServiceAccount.
    fn service_account(&self, namespace: &str, name: &str) -> Option<Found>;
    /// A Pod.
    fn pod(&self, namespace: &str, name: &str) -> Option<Found>;
    /// A Secret.
    fn secret(&self, namespace: &str, name: &str) -> Option<Found>;
    /// A Node.
    fn node(&self, name: &str) -> Option<Found>;
}

/// A token that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Who bears it.
    pub user: UserInfo,
    /// Those of its audiences that were asked about.
    pub audiences: Vec<String>,
    /// All that it says.
    pub claims: Claims,
}

/// The key pair.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    id: String,
}

impl SigningKey {
    /// Reads a P-256 key in PKCS #8, DER.
    ///
    /// # Errors
    /// If it is another kind of key.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, TokenError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random)
            .map_err(|_| TokenError::Key)?;
        let mut spki = SPKI_PREFIX.to_vec();
        spki.extend_from_slice(pair.public_key().as_ref());
        let id = URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, &spki));
        Ok(Self { pair, id })
    }
}

/// Issues and verifies the tokens of one issuer.
pub struct Tokens {
    key: SigningKey,
    issuer: String,
    audiences: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    kid: String,
}

impl Tokens {
    /// `issuer` is a URL; `audiences` are the API server's own (empty: the issuer).
    pub fn new(key: SigningKey, issuer: &str, audiences: &[&str]) -> Self {
        let mut audiences: Vec<String> = audiences.iter().map(|audience| (*audience).to_owned()).collect();
        if audiences.is_empty() {
            audiences.push(issuer.to_owned());
        }
        Self { key, issuer: issuer.to_owned(), audiences }
    }

    /// The API server's own audiences.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Signs a token.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn issue(&self, request: &Request, now: Timestamp) -> Result<Issued, TokenError> {
        let bound = request.bound.clone();
        let lifetime = SignedDuration::from_secs(request.expiration_seconds);
        let expires = now.checked_add(lifetime).unwrap_or(Timestamp::MAX).as_second();
        let aud = match request.audiences.is_empty() {
            true => self.audiences.clone(),
            false => request.audiences.clone(),
        };
        let claims = Claims {
            aud,
            exp: expires,
            iat: now.as_second(),
            iss: self.issuer.clone(),
            jti: uuid()?,
            nbf: now.as_second(),
            sub: format!(
                "{}{}:{}",
                crate::SERVICE_ACCOUNT_PREFIX,
                bound.namespace,
                bound.serviceaccount.name
            ),
            kubernetes: bound,
        };
        let header = Header { alg: "ES256".to_owned(), kid: self.key.id.clone() };
        let signed = format!("{}.{}", part(&header)?, part(&claims)?);
        let signature =
            self.key.pair.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|_| TokenError::Key)?;
        Ok(Issued {
            token: format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)),
            expires: Timestamp::from_second(expires).unwrap_or(Timestamp::MAX),
            credential_id: format!("JTI={}", claims.jti),
        })
    }

    /// Checks a token for `audiences` (empty: the API server's own).
    ///
    /// # Errors
    /// [`TokenError::NotOurs`] if another authenticator may try it, else what is wrong with it.
    pub fn verify(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
        lookup: &dyn Lookup,
    ) -> Result<Verified, TokenError> {
        let claims = self.open(token)?;
        let wanted = if audiences.is_empty() { &self.audiences } else { audiences };
        let meant: Vec<String> = wanted.iter().filter(|one| claims.aud.contains(one)).cloned().collect();
        if meant.is_empty() {
            return Err(TokenError::Audience { found: claims.aud, wanted: wanted.to_vec() });
        }
        if now.as_second() >= claims.exp {
            return Err(TokenError::Expired);
        }
        if now.as_second() < claims.nbf {
            return Err(TokenError::NotYet);
        }
        let node_name = check_bound(&claims.kubernetes, now, lookup)?;
        let user = user(&claims, node_name);
        if user.name != claims.sub {
            return Err(TokenError::Claims);
        }
        Ok(Verified { user, audiences: meant, claims })
    }

    fn open(&self, token: &str) -> Result<Claims, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::NotOurs);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::NotOurs)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::NotOurs)?;
        let header: Header = read(header).ok_or(TokenError::NotOurs)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| TokenError::NotOurs)?;
        let issuer: serde_json::Value = serde_json::from_slice(&claims).map_err(|_| TokenError::NotOurs)?;
        if issuer.get("iss").and_then(serde_json::Value::as_str) != Some(&self.issuer) {
            return Err(TokenError::NotOurs);
        }
        if header.alg != "ES256" || header.kid != self.key.id {
            return Err(TokenError::Signature);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Signature)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.pair.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| TokenError::Signature)?;
        serde_json::from_slice(&claims).map_err(|_| TokenError::Claims)
    }

    /// The document at `/.well-known/openid-configuration`.
    pub fn openid_configuration(&self, jwks_uri: &str) -> serde_json::Value {
        serde_json::json!({
            "issuer": self.issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// The document at `/openid/v1/jwks`.
    pub fn key_set(&self) -> serde_json::Value {
        let point = self.key.pair.public_key().as_ref();
        let coordinates = point.get(1..).unwrap_or_default();
        let (x, y) = coordinates.split_at_checked(32).unwrap_or_default();
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let key = serde_json::json!({
            "use": "sig", "kty": "EC", "kid": self.key.id, "crv": "P-256", "alg": "ES256", "x": x, "y": y,
        });
        serde_json::json!({"keys": [key]})
    }
}

/// Checks that everything the token is bound to is still there; tells the Pod's node.
fn check_bound(
    bound: &Kubernetes,
    now: Timestamp,
    lookup: &dyn Lookup,
) -> Result<Option<String>, TokenError> {
    let namespace = &bound.namespace;
    let check = |kind: &'static str, wanted: &Reference, found: Option<Found>| {
        let is_going = |deletion: Timestamp| now.as_second() > deletion.as_second() + DELETION_GRACE_SECONDS;
        found
            .filter(|found| found.uid == wanted.uid && !found.deletion.is_some_and(is_going))
            .ok_or_else(|| TokenError::Invalidated { kind, name: wanted.name.clone() })
    };
    let account = &bound.serviceaccount;
    check("serviceaccount", account, lookup.service_account(namespace, &account.name))?;
    if let Some(secret) = &bound.secret {
        check("secret", secret, lookup.secret(namespace, &secret.name))?;
    }
    if let Some(pod) = &bound.pod {
        return Ok(check("pod", pod, lookup.pod(namespace, &pod.name))?.node_name);
    }
    // With a Pod, the node only says where that Pod was; alone, it is what the token is bound to.
    if let Some(node) = &bound.node {
        check("node", node, lookup.node(&node.name))?;
    }
    Ok(None)
}

fn user(claims: &Claims, pod_node: Option<String>) -> UserInfo {
    let bound = &claims.kubernetes;
    let mut user =
        UserInfo::service_account(&bound.namespace, &bound.serviceaccount.name, &bound.serviceaccount.uid);
    let mut extra = BTreeMap::new();
    let mut set = |key: &str, value: &str| {
        if !value.is_empty() {
            extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
        }
    };
    if let Some(pod) = &bound.pod {
        set("pod-name", &pod.name);
        set("pod-uid", &pod.uid);
    }
    match &bound.node {
        Some(node) => {
            set("node-name", &node.name);
            set("node-uid", &node.uid);
        }
        None => set("node-name", &pod_node.unwrap_or_default()),
    }
    if !claims.jti.is_empty() {
        set("credential-id", &format!("JTI={}", claims.jti));
    }
    user.extra = extra;
    user
}

fn part(value: &impl Serialize) -> Result<String, TokenError> {
    serde_json::to_vec(value).map(|bytes| URL_SAFE_NO_PAD.encode(bytes)).map_err(|_| TokenError::Claims)
}

fn read<T: serde::de::DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// A random version 4 UUID from the operating system.
fn uuid() -> Result<String, TokenError> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::Key)?;
    let bits = u128::from_be_bytes(bytes);
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

#[cfg(test)]
#[path = "token/tests.rs"]
mod tests;
