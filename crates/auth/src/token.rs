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
        (now, id): (Timestamp, String),
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
mod tests {
    use super::*;

    struct Cluster {
        pod: Option<&'static str>,
    }

    impl Lookup for Cluster {
        fn service_account_uid(&self, _: &str, name: &str) -> Option<String> {
            (name == "default").then(|| "sa-uid".to_owned())
        }
        fn pod_uid(&self, _: &str, _: &str) -> Option<String> {
            self.pod.map(str::to_owned)
        }
        fn secret_uid(&self, _: &str, _: &str) -> Option<String> {
            None
        }
        fn node_uid(&self, _: &str) -> Option<String> {
            None
        }
    }

    const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

    fn tokens() -> Tokens {
        let dir = tempfile::tempdir().expect("a folder");
        let key = crate::pki::service_account_key(dir.path()).expect("a key");
        Tokens::new(&key, ISSUER, vec![ISSUER.to_owned()]).expect("a P-256 key")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    fn issue(tokens: &Tokens, audiences: &[String]) -> String {
        let private = Private {
            namespace: "ns".into(),
            serviceaccount: Reference { name: "default".into(), uid: "sa-uid".into() },
            pod: Some(Reference { name: "web".into(), uid: "pod-uid".into() }),
            ..Private::default()
        };
        tokens.issue(private, audiences, 600, (at(0), "id-1".into())).expect("a token")
    }

    #[test]
    fn a_token_names_its_account_and_its_pod() {
        let tokens = tokens();
        let (user, _) =
            tokens.verify(&issue(&tokens, &[]), &[], at(1), &Cluster { pod: Some("pod-uid") }).expect("good");
        assert_eq!(user.name, "system:serviceaccount:ns:default");
        assert_eq!(user.groups[1], "system:serviceaccounts:ns");
        assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["web"]);
    }

    #[test]
    fn a_token_that_breaks_a_rule_is_refused() {
        let tokens = tokens();
        let good = issue(&tokens, &[]);
        let alive = Cluster { pod: Some("pod-uid") };
        let tampered = good.replacen('.', ".A", 1);
        let vault = vec!["vault".to_owned()];
        let cases = [
            ("too late", &good, at(661), &alive, TokenError::Time),
            ("too early", &good, at(-61), &alive, TokenError::Time),
            ("tampered", &tampered, at(1), &alive, TokenError::NotOurs),
            (
                "the pod is another",
                &good,
                at(1),
                &Cluster { pod: Some("other") },
                TokenError::Gone { what: "pod" },
            ),
            ("the pod is gone", &good, at(1), &Cluster { pod: None }, TokenError::Gone { what: "pod" }),
            (
                "for another audience",
                &issue(&tokens, &vault),
                at(1),
                &alive,
                TokenError::Audience { audiences: vault.clone() },
            ),
            ("of another cluster", &issue(&self::tokens(), &[]), at(1), &alive, TokenError::NotOurs),
        ];
        for (name, token, now, cluster, expected) in cases {
            assert_eq!(tokens.verify(token, &[], now, cluster).expect_err(name), expected, "{name}");
        }
        for second in [-60, 0, 600, 660] {
            assert!(tokens.verify(&good, &[], at(second), &alive).is_ok(), "{second}");
        }
    }

    #[test]
    fn a_token_may_not_come_from_the_future() {
        let tokens = tokens();
        let private = Private {
            namespace: "ns".into(),
            serviceaccount: Reference { name: "default".into(), uid: "sa-uid".into() },
            ..Private::default()
        };
        let claims = |iat: i64| Claims {
            aud: vec![ISSUER.to_owned()],
            exp: at(600).as_second(),
            iat: at(iat).as_second(),
            iss: ISSUER.to_owned(),
            jti: String::new(),
            private: private.clone(),
            nbf: at(0).as_second(),
            sub: "system:serviceaccount:ns:default".to_owned(),
        };
        for (iat, is_good) in [(0, true), (60, true), (61, false)] {
            let token = tokens.sign(&claims(iat)).expect("a token");
            assert_eq!(tokens.verify(&token, &[], at(0), &Cluster { pod: None }).is_ok(), is_good, "{iat}");
        }
    }

    #[test]
    fn keys_that_other_tools_have_made_sign_too() {
        use crate::keys::tests::{EC_SEC1, RSA_PKCS1};
        let account = Reference { name: "default".into(), uid: "sa-uid".into() };
        let own = tokens();
        let p384 =
            rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("a key").serialize_pem();
        let keys = [
            (RSA_PKCS1, "RS256", "RSA"),
            (EC_SEC1, "ES256", "EC"),
            (&p384, "ES384", "EC"),
            (crate::keys::tests::EC_P521, "ES512", "EC"),
        ];
        for (pem, algorithm, kind) in keys {
            let key = crate::keys::pkcs8(pem.as_bytes()).expect("a key");
            let tokens = Tokens::new(&key, ISSUER, Vec::new()).expect("a key");
            let token = tokens.issue_legacy("team", "secret", &account).expect("a token");
            let head = URL_SAFE_NO_PAD.decode(token.split('.').next().expect("a head")).expect("base64");
            assert!(String::from_utf8_lossy(&head).contains(algorithm));
            assert_eq!(tokens.verify_legacy(&token).map(|legacy| legacy.account), Ok("default".to_owned()));
            assert_eq!(own.verify_legacy(&token), Err(TokenError::NotOurs), "another key");
            let jwk = &tokens.jwks()["keys"][0];
            assert_eq!((&jwk["kty"], &jwk["alg"]), (&kind.into(), &algorithm.into()));
            let half = |name: &str| jwk[name].as_str().and_then(|half| URL_SAFE_NO_PAD.decode(half).ok());
            let bytes = match algorithm {
                "ES256" => Some(32),
                "ES384" => Some(48),
                "ES512" => Some(66),
                _ => None,
            };
            assert_eq!(["x", "y"].map(|name| half(name).map(|half| half.len())), [bytes; 2]);
        }
        assert_eq!(Tokens::new(b"nonsense", ISSUER, Vec::new()).err(), Some(TokenError::Key));
    }

    #[test]
    fn tokens_of_other_keys_and_issuers_are_believed_where_they_are_named() {
        use crate::keys::tests::{EC_P521, EC_SEC1, RSA_PKCS1};
        let with = |pem: &str, issuer: &str| {
            let key = crate::keys::pkcs8(pem.as_bytes()).expect("a key");
            Tokens::new(&key, issuer, vec![ISSUER.to_owned()]).expect("a key")
        };
        let keys = crate::keys::pem::public_keys([RSA_PKCS1, EC_SEC1].concat().as_bytes()).expect("keys");
        let own = with(EC_P521, ISSUER).believing(&["".to_owned(), "https://old".to_owned()], &keys);
        let alive = Cluster { pod: Some("pod-uid") };
        let cases = [
            ("of the first issuer", EC_P521, ISSUER, true),
            ("of the second, by another key", RSA_PKCS1, "https://old", true),
            ("of the first, by another key", EC_SEC1, ISSUER, true),
            ("of nobody", EC_SEC1, "https://other", false),
            ("of nobody at all", EC_SEC1, "", false),
        ];
        for (name, pem, issuer, is_good) in cases {
            let token = issue(&with(pem, issuer), &[]);
            assert_eq!(own.verify(&token, &[], at(1), &alive).is_ok(), is_good, "{name}");
        }
        assert!(own.verify(&issue(&tokens(), &[]), &[], at(1), &alive).is_err(), "of another key");
        let (issued, jwks) = (issue(&own, &[]), own.jwks());
        let claims =
            issued.split('.').nth(1).and_then(|body| URL_SAFE_NO_PAD.decode(body).ok()).expect("a body");
        assert!(String::from_utf8_lossy(&claims).contains(ISSUER), "the first signs");
        let algorithms: Vec<_> =
            jwks["keys"].as_array().expect("keys").iter().map(|key| key["alg"].clone()).collect();
        assert_eq!(algorithms, ["ES512", "RS256", "ES256"]);
        assert_eq!(own.algorithms(), ["ES256", "ES512", "RS256"].into());
    }

    #[test]
    fn the_key_that_a_token_names_counts_and_if_it_names_none_each_may_be_it() {
        use crate::keys::tests::{EC_SEC1, RSA_PKCS1};
        let account = Reference { name: "default".into(), uid: "sa-uid".into() };
        let key = crate::keys::pkcs8(EC_SEC1.as_bytes()).expect("a key");
        let tokens = Tokens::new(&key, ISSUER, Vec::new()).expect("a key");
        let other = crate::keys::pem::public_keys(RSA_PKCS1.as_bytes()).expect("keys");
        let believing = Tokens::new(&key, ISSUER, Vec::new()).expect("a key").believing(&[], &other);
        let body = |kid: &str| {
            let head = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"ES256"{kid}}}"#));
            let body = tokens.issue_legacy("team", "secret", &account).expect("a token");
            let signed = format!("{head}.{}", body.split('.').nth(1).expect("a body"));
            let signature =
                PrivateKey::of_pkcs8(&key).expect("a key").sign(signed.as_bytes()).expect("signed");
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        };
        assert!(believing.verify_legacy(&body("")).is_ok());
        assert!(believing.verify_legacy(&body(r#","kid":"as-it-was-called-once""#)).is_ok());
        let of_other = format!(r#","kid":"{}""#, other[0].id());
        assert_eq!(believing.verify_legacy(&body(&of_other)), Err(TokenError::NotOurs));
    }

    #[test]
    fn a_token_is_verified_by_the_algorithm_of_the_key_and_no_other() {
        let key = crate::keys::pkcs8(crate::keys::tests::RSA_PKCS1.as_bytes()).expect("a key");
        let tokens = Tokens::new(&key, ISSUER, Vec::new()).expect("a key");
        let account = Reference { name: "default".into(), uid: "sa-uid".into() };
        let token = tokens.issue_legacy("team", "secret", &account).expect("a token");
        let (_, rest) = token.split_once('.').expect("a head");
        for algorithm in ["none", "HS256", "ES256", "PS256"] {
            let head = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{algorithm}"}}"#));
            assert_eq!(tokens.verify_legacy(&format!("{head}.{rest}")), Err(TokenError::NotOurs));
        }
    }
}
