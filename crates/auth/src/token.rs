//! Bound ServiceAccount tokens: JWTs signed by the cluster's key (ES256, or what a key of others is for) and checked by it and
//! by those that are believed besides.
//!
//! Source: KEP-1205, `pkg/serviceaccount/claims.go`. Whether the account and the object that a token is bound to
//! still exist is asked of [`Lookup`]: a token dies with them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::UserInfo;
use crate::keys::private::PrivateKey;
use crate::keys::public::PublicKey;

/// Clocks may differ by this much. Source: `DefaultLeeway` of go-jose's `jwt`.
const LEEWAY_SECONDS: i64 = 60;
/// A token is never longer than this.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// How many good signatures are remembered.
const VERIFIED_MAX: usize = 4096;
/// `iss` of tokens in Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// A token that is not good, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The key is of another kind.
    #[error(
        "the ServiceAccount key is neither an ECDSA key of P-256, P-384 or P-521 with its public half nor an RSA key of 2048 to \
         4096 bits"
    )]
    Key,
    /// It is not one of ours: another form, another issuer, another signature.
    #[error("the token is not a ServiceAccount token of this cluster")]
    NotOurs,
    /// Its time is over or has not come.
    #[error("the token has expired or is not valid yet")]
    Time,
    /// It is meant for somebody else.
    #[error("the token's audiences {audiences:?} are not accepted here")]
    Audience {
        /// Whom it is meant for.
        audiences: Vec<String>,
    },
    /// A token whose bound object is gone.
    #[error("the token's {what} does not exist any more")]
    Gone {
        /// `service account`, `pod`, `secret` or `node`.
        what: &'static str,
    },
    /// It could not be signed.
    #[error("sign a token")]
    Sign,
}

/// A reference inside a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
}

/// The `kubernetes.io` claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Private {
    /// The account's namespace.
    pub namespace: String,
    /// The account.
    pub serviceaccount: Reference,
    /// The Pod that the token dies with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// The Secret that the token dies with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// The Node that the Pod runs on, or that the token dies with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// Unix seconds: when it was to end, if it is good for longer than was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// A token's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The audiences.
    pub aud: Vec<String>,
    /// Unix seconds.
    pub exp: i64,
    /// Unix seconds.
    pub iat: i64,
    /// The issuer's URL.
    pub iss: String,
    /// A unique id; becomes the credential id. Tokens of clusters older than v1.29 have none.
    #[serde(default)]
    pub jti: String,
    /// The account that it is for and the object that it is bound to.
    #[serde(rename = "kubernetes.io")]
    pub private: Private,
    /// Unix seconds.
    pub nbf: i64,
    /// `system:serviceaccount:<namespace>:<name>`
    pub sub: String,
}

/// The content of a Secret's token. Source: `pkg/serviceaccount/legacy.go`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Legacy {
    /// Always the same.
    pub iss: String,
    /// The account's namespace.
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub namespace: String,
    /// The Secret that holds it.
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub secret: String,
    /// The account.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub account: String,
    /// The account's uid.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub uid: String,
    /// `system:serviceaccount:<namespace>:<name>`
    pub sub: String,
}

/// The questions of a token to the cluster's state.
pub trait Lookup {
    /// The uid of a ServiceAccount.
    fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String>;
    /// The uid of a Pod.
    fn pod_uid(&self, namespace: &str, name: &str) -> Option<String>;
    /// The uid of a Secret.
    fn secret_uid(&self, namespace: &str, name: &str) -> Option<String>;
    /// The uid of a Node.
    fn node_uid(&self, name: &str) -> Option<String>;
}

/// The signer and verifier of the tokens of one cluster.
pub struct Tokens {
    key: PrivateKey,
    /// By which tokens are checked, the signing key's first unless it is left out.
    believed: Vec<PublicKey>,
    /// The first signs, all are believed.
    issuers: Vec<String>,
    audiences: Vec<String>,
    /// Signatures that were good: by the token's digest. Everything else is checked each time.
    verified: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

impl Tokens {
    /// `key` is PKCS#8 DER, as [`crate::pki::service_account_key`] and [`crate::keys::pkcs8`] return it; tokens for the API
    /// server itself are meant for `audiences`, of which the first is the default.
    ///
    /// # Errors
    /// If the key is of another kind.
    pub fn new(key: &[u8], issuer: &str, audiences: Vec<String>) -> Result<Self, TokenError> {
        let key = PrivateKey::of_pkcs8(key).map_err(|_| TokenError::Key)?;
        let believed = vec![key.public().clone()];
        Ok(Self { key, believed, issuers: vec![issuer.to_owned()], audiences, verified: Mutex::default() })
    }

    /// Believes tokens of these issuers, signed by these keys, too. Source: `--service-account-issuer`,
    /// `--service-account-key-file`.
    #[must_use]
    pub fn believing(mut self, issuers: &[String], keys: &[PublicKey]) -> Self {
        for issuer in issuers.iter().filter(|issuer| !issuer.is_empty()) {
            if !self.issuers.contains(issuer) {
                self.issuers.push(issuer.clone());
            }
        }
        for key in keys {
            if !self.believed.contains(key) {
                self.believed.push(key.clone());
            }
        }
        self
    }

    /// The issuer of tokens.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }

    /// The audiences that mean the API server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Signs a token for an account.
    ///
    /// # Errors
    /// If signing fails.
    pub fn issue(
        &self,
        private: Private,
        audiences: &[String],
        lifetime_seconds: i64,
        now: Timestamp,
        id: String,
    ) -> Result<String, TokenError> {
        let now = now.as_second();
        let claims = Claims {
            aud: if audiences.is_empty() { self.audiences.clone() } else { audiences.to_vec() },
            exp: now + lifetime_seconds,
            iat: now,
            iss: self.issuer().to_owned(),
            jti: id,
            sub: format!("system:serviceaccount:{}:{}", private.namespace, private.serviceaccount.name),
            private,
            nbf: now,
        };
        self.sign(&claims)
    }

    fn sign(&self, claims: &impl Serialize) -> Result<String, TokenError> {
        let public = self.key.public();
        let header = Header { alg: public.algorithm().to_owned(), kid: public.id().to_owned() };
        let encode = |json: serde_json::Result<Vec<u8>>| {
            json.map(|json| URL_SAFE_NO_PAD.encode(json)).map_err(|_| TokenError::Sign)
        };
        let head = encode(serde_json::to_vec(&header))?;
        let body = encode(serde_json::to_vec(claims))?;
        let signed = format!("{head}.{body}");
        let signature = self.key.sign(signed.as_bytes()).ok_or(TokenError::Sign)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Verifies a token that was sent to somebody who goes by `audiences` (the API server's own, if empty).
    ///
    /// # Errors
    /// Which rule it breaks.
    pub fn verify(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
        lookup: &dyn Lookup,
    ) -> Result<(UserInfo, Claims), TokenError> {
        let claims = self.signed_claims(token)?;
        let now = now.as_second();
        let latest = now.saturating_add(LEEWAY_SECONDS);
        let is_over = claims.exp < now.saturating_sub(LEEWAY_SECONDS);
        if is_over || claims.nbf > latest || claims.iat > latest {
            return Err(TokenError::Time);
        }
        let accepted = if audiences.is_empty() { &self.audiences } else { audiences };
        if !claims.aud.iter().any(|audience| accepted.contains(audience)) {
            return Err(TokenError::Audience { audiences: claims.aud.clone() });
        }
        verify_bindings(&claims.private, lookup)?;
        Ok((user_of(&claims), Claims::clone(&claims)))
    }

    /// The claims of a token whose signature is good. An elliptic curve costs more than the rest of most requests,
    /// so that good ones are remembered.
    fn signed_claims(&self, token: &str) -> Result<Arc<Claims>, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::NotOurs);
        }
        let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
        let key: [u8; 32] = digest.as_ref().try_into().map_err(|_| TokenError::NotOurs)?;
        let known = || self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(claims) = known().get(&key) {
            return Ok(Arc::clone(claims));
        }
        let claims = Arc::new(self.verify_signature(token)?);
        let mut known = known();
        if known.len() >= VERIFIED_MAX {
            known.clear();
        }
        known.insert(key, Arc::clone(&claims));
        Ok(claims)
    }

    /// Verifies a token of a Secret, which has no end and no audience: namespace, Secret, account and its uid.
    ///
    /// # Errors
    /// If it is none of ours.
    pub fn verify_legacy(&self, token: &str) -> Result<Legacy, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::NotOurs);
        }
        let body = self.verified_body(token)?;
        let legacy: Legacy = serde_json::from_slice(&body).map_err(|_| TokenError::NotOurs)?;
        if legacy.iss == LEGACY_ISSUER { Ok(legacy) } else { Err(TokenError::NotOurs) }
    }

    /// Signs a token for a Secret of type `kubernetes.io/service-account-token`.
    ///
    /// # Errors
    /// If signing fails.
    pub fn issue_legacy(
        &self,
        namespace: &str,
        secret: &str,
        account: &Reference,
    ) -> Result<String, TokenError> {
        self.sign(&Legacy {
            iss: LEGACY_ISSUER.to_owned(),
            sub: format!("system:serviceaccount:{namespace}:{}", account.name),
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            account: account.name.clone(),
            uid: account.uid.clone(),
        })
    }

    /// The public keys as a JSON Web Key Set, for `/openid/v1/jwks`.
    pub fn jwks(&self) -> serde_json::Value {
        let keys: Vec<_> = self.believed.iter().map(PublicKey::jwk).collect();
        serde_json::json!({ "keys": keys })
    }

    /// The algorithms that tokens may be signed by, each once.
    pub fn algorithms(&self) -> BTreeSet<&'static str> {
        self.believed.iter().map(PublicKey::algorithm).collect()
    }

    fn verify_signature(&self, token: &str) -> Result<Claims, TokenError> {
        let body = self.verified_body(token)?;
        let claims: Claims = serde_json::from_slice(&body).map_err(|_| TokenError::NotOurs)?;
        if self.issuers.contains(&claims.iss) { Ok(claims) } else { Err(TokenError::NotOurs) }
    }

    /// The body of a token that a key has signed that is believed.
    fn verified_body(&self, token: &str) -> Result<Vec<u8>, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::NotOurs)?;
        let (head, body) = signed.split_once('.').ok_or(TokenError::NotOurs)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::NotOurs);
        let header: Header = serde_json::from_slice(&decode(head)?).map_err(|_| TokenError::NotOurs)?;
        let signature = decode(signature)?;
        // The key that the token names; all, if it names none, or does so as another version of this program did.
        let named = self.believed.iter().filter(|key| key.id() == header.kid);
        let asked: Vec<_> =
            if named.clone().next().is_some() { named.collect() } else { self.believed.iter().collect() };
        let mut able = asked.iter().filter(|key| key.algorithm() == header.alg);
        if !able.any(|key| key.has_signed(signed.as_bytes(), &signature)) {
            return Err(TokenError::NotOurs);
        }
        decode(body)
    }
}

fn verify_bindings(private: &Private, lookup: &dyn Lookup) -> Result<(), TokenError> {
    let namespace = &private.namespace;
    let account = &private.serviceaccount;
    let check = |what, expected: &Reference, found: Option<String>| {
        if found.as_ref() == Some(&expected.uid) { Ok(()) } else { Err(TokenError::Gone { what }) }
    };
    check("service account", account, lookup.service_account_uid(namespace, &account.name))?;
    if let Some(pod) = &private.pod {
        return check("pod", pod, lookup.pod_uid(namespace, &pod.name));
    }
    if let Some(secret) = &private.secret {
        return check("secret", secret, lookup.secret_uid(namespace, &secret.name));
    }
    // Beside a Pod the Node is information; alone it is what the token is bound to.
    private.node.as_ref().map_or(Ok(()), |node| check("node", node, lookup.node_uid(&node.name)))
}

fn user_of(claims: &Claims) -> UserInfo {
    let private = &claims.private;
    let mut user = UserInfo {
        name: claims.sub.clone(),
        uid: private.serviceaccount.uid.clone(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", private.namespace),
            "system:authenticated".to_owned(),
        ],
        ..UserInfo::default()
    };
    let mut extra = |name: &str, value: &str| {
        user.extra.insert(format!("authentication.kubernetes.io/{name}"), vec![value.to_owned()]);
    };
    if !claims.jti.is_empty() {
        extra("credential-id", &format!("JTI={}", claims.jti));
    }
    if let Some(pod) = &private.pod {
        extra("pod-name", &pod.name);
        extra("pod-uid", &pod.uid);
    }
    if let Some(node) = &private.node {
        extra("node-name", &node.name);
        extra("node-uid", &node.uid);
    }
    user
}

#[cfg(test)]
mod tests;
