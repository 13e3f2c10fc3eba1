//! OpenID Connect: tokens of an outside issuer.
//!
//! Pure: keys are handed in; who fetches them is not known here.
//! Source: `plugin/pkg/auth/authenticator/token/oidc`, RFC 7515 to 7519, `apiserver.config.k8s.io/v1`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::keys::public::has_signed_by_p521;

/// Tokens are never longer than this.
const TOKEN_BYTES_MAX: usize = 64 << 10;
/// How much earlier than its time a token may come: clocks differ. Source: `IDTokenVerifier.Verify` of coreos/go-oidc.
const LEEWAY_SECONDS: i64 = 60;

/// An issuer: what makes a token one of its own, meant for this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// `iss`; its `/.well-known/openid-configuration` leads to the keys.
    pub url: String,
    /// The URL of the discovery document, if not there.
    pub discovery_url: Option<String>,
    /// The authorities for the issuer's TLS certificate, PEM; the host's authorities if empty.
    pub ca_pem: Vec<u8>,
    /// `aud` must name one of these.
    pub audiences: Vec<String>,
    /// JOSE names of signatures that are accepted.
    pub algorithms: Vec<String>,
}

/// The claims of a token.
pub type Claims = Map<String, Value>;

/// A refused token, with the reason; the text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    /// It has not the form of a token.
    #[error("malformed token")]
    Malformed,
    /// It is signed by a method that is not accepted.
    #[error("signatures by {0:?} are not accepted")]
    Algorithm(String),
    /// None of the issuer's known keys has signed it.
    #[error("no known key has signed it, the key's name is {0:?}")]
    UnknownKey(String),
    /// A claim is missing or has another value.
    #[error("claim {0:?}: {1}")]
    Claim(String, &'static str),
}

/// A JSON Web Key Set.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Keys {
    #[serde(default)]
    keys: Vec<Key>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Key {
    #[serde(default)]
    kid: String,
    #[serde(default)]
    kty: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

/// `iss` of a token, unverified: which issuer to ask.
pub fn issuer_of(token: &str) -> Option<String> {
    issuer(&claims(token)?).map(str::to_owned)
}

/// `iss`; one issuer has two names. Source: OpenID Connect Core 1.0, section 15.6.2.
fn issuer(claims: &Claims) -> Option<&str> {
    match claims.get("iss").and_then(Value::as_str) {
        Some("accounts.google.com") => Some("https://accounts.google.com"),
        named => named,
    }
}

fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.split('.').skip(1);
    let body = parts.next().filter(|_| token.len() <= TOKEN_BYTES_MAX && parts.count() == 1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()
}

impl Issuer {
    /// The claims of a token of this issuer.
    ///
    /// # Errors
    /// [`OidcError::UnknownKey`] if newer keys may help, others if nothing will.
    pub fn verify(&self, token: &str, keys: &Keys, now: Timestamp) -> Result<Claims, OidcError> {
        let malformed = || OidcError::Malformed;
        let claims = claims(token).ok_or_else(malformed)?;
        let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let head = signed.split('.').next().ok_or_else(malformed)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| OidcError::Malformed);
        let header: Header = serde_json::from_slice(&decode(head)?).map_err(|_| OidcError::Malformed)?;
        if !self.algorithms.contains(&header.alg) {
            return Err(OidcError::Algorithm(header.alg));
        }
        // What is not for us or is over needs no keys.
        self.check(&claims, now.as_second())?;
        let signature = decode(signature)?;
        let mut fitting = keys.keys.iter().filter(|key| header.kid.is_empty() || key.kid == header.kid);
        match fitting.any(|key| key.signed(&header.alg, signed.as_bytes(), &signature)) {
            true => Ok(claims),
            false => Err(OidcError::UnknownKey(header.kid)),
        }
    }

    fn check(&self, claims: &Claims, now: i64) -> Result<(), OidcError> {
        let refuse = |name: &str, why| Err(OidcError::Claim(name.to_owned(), why));
        if issuer(claims) != Some(&self.url) {
            return refuse("iss", "it is another issuer");
        }
        let is_ours = |audience: &str| self.audiences.iter().any(|own| own == audience);
        let is_meant = match claims.get("aud") {
            Some(Value::String(one)) => is_ours(one),
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).any(is_ours),
            _ => false,
        };
        if !is_meant {
            return refuse("aud", "it is meant for somebody else");
        }
        let number = |name: &str| claims.get(name).and_then(Value::as_f64).map(|seconds| seconds as i64);
        if number("exp").is_none_or(|end| end < now) {
            return refuse("exp", "it is over");
        }
        if number("nbf").is_some_and(|start| start.saturating_sub(LEEWAY_SECONDS) > now) {
            return refuse("nbf", "its time has not come");
        }
        Ok(())
    }
}

impl Key {
    fn signed(&self, algorithm: &str, message: &[u8], signed: &[u8]) -> bool {
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        if self.kty == "EC" {
            let point = [vec![4], decode(&self.x), decode(&self.y)].concat();
            let algorithm: &dyn signature::VerificationAlgorithm = match algorithm {
                "ES256" => &signature::ECDSA_P256_SHA256_FIXED,
                "ES384" => &signature::ECDSA_P384_SHA384_FIXED,
                "ES512" => return has_signed_by_p521(&point, message, signed),
                _ => return false,
            };
            return UnparsedPublicKey::new(algorithm, point).verify(message, signed).is_ok();
        }
        let parameters = match algorithm {
            "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
            "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
            "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
            "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
            "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
            "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
            _ => return false,
        };
        let key = RsaPublicKeyComponents { n: decode(&self.n), e: decode(&self.e) };
        self.kty == "RSA" && key.verify(parameters, message, signed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    struct Signer {
        key: EcdsaKeyPair,
        random: SystemRandom,
    }

    fn signer() -> Signer {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key");
        Signer { key, random }
    }

    impl Signer {
        fn keys(&self) -> Keys {
            let point = self.key.public_key().as_ref();
            let half = |from: usize| URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
            serde_json::from_value(json!({"keys": [{"kid": "k", "kty": "EC", "x": half(1), "y": half(33)}]}))
                .expect("keys")
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let signed = format!("{}.{}", part(header), part(claims));
            let signature = self.key.sign(&self.random, signed.as_bytes()).expect("signed");
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
        }
    }

    fn trusted() -> Issuer {
        Issuer {
            url: "https://id.example".into(),
            discovery_url: None,
            ca_pem: Vec::new(),
            audiences: vec!["cluster".into()],
            algorithms: vec!["ES256".into()],
        }
    }

    fn claims_with(change: (&str, Value)) -> Value {
        let mut claims =
            json!({"iss": "https://id.example", "aud": ["x", "cluster"], "exp": 2_000_000_000, "sub": "a"});
        claims[change.0] = change.1;
        claims
    }

    fn check(name: &str, change: (&str, Value), expect: Result<(), &str>) {
        let signer = signer();
        let token = signer.sign(&json!({"alg": "ES256", "kid": "k"}), &claims_with(change));
        let now = Timestamp::from_second(1_900_000_000).expect("a time");
        let found = trusted().verify(&token, &signer.keys(), now);
        let shown = found.map(|claims| assert_eq!(claims["sub"], "a")).map_err(|why| why.to_string());
        assert_eq!(shown.as_ref().map_err(String::as_str), expect.as_ref().map_err(|why| *why), "{name}");
    }

    #[test]
    fn tokens_are_taken_from_their_issuer_in_their_time() {
        check("good", ("x", json!(1)), Ok(()));
        check("one audience", ("aud", json!("cluster")), Ok(()));
        check("just so", ("exp", json!(1_900_000_000)), Ok(()));
        check("just over", ("exp", json!(1_899_999_999)), Err("claim \"exp\": it is over"));
        check("clocks differ", ("nbf", json!(1_900_000_060)), Ok(()));
        check("too much", ("nbf", json!(1_900_000_061)), Err("claim \"nbf\": its time has not come"));
        check("issuer", ("iss", json!("https://other")), Err("claim \"iss\": it is another issuer"));
        check(
            "no issuer",
            ("iss", json!(["https://id.example"])),
            Err("claim \"iss\": it is another issuer"),
        );
        check("audience", ("aud", json!("x")), Err("claim \"aud\": it is meant for somebody else"));
        check(
            "no audience",
            ("aud", json!({"cluster": 1})),
            Err("claim \"aud\": it is meant for somebody else"),
        );
        check("over", ("exp", json!(1)), Err("claim \"exp\": it is over"));
        check("no end", ("exp", json!("2100-01-01")), Err("claim \"exp\": it is over"));
        check("far future", ("exp", json!(1e300)), Ok(()));
        check("long ago", ("exp", json!(-1e300)), Err("claim \"exp\": it is over"));
        check("early", ("nbf", json!(1_999_999_999)), Err("claim \"nbf\": its time has not come"));
    }

    #[test]
    fn only_known_keys_and_methods_count() {
        let (signer, other) = (signer(), self::signer());
        let now = Timestamp::from_second(0).expect("a time");
        let claims = claims_with(("x", json!(1)));
        let verify = |header: Value, keys: &Keys| {
            trusted().verify(&signer.sign(&header, &claims), keys, now).map(drop)
        };
        let good = json!({"alg": "ES256", "kid": "k"});
        assert_eq!(verify(good.clone(), &signer.keys()), Ok(()));
        assert_eq!(verify(json!({"alg": "ES256"}), &signer.keys()), Ok(()));
        assert_eq!(verify(json!({"alg": "none"}), &signer.keys()), Err(OidcError::Algorithm("none".into())));
        assert_eq!(
            verify(json!({"alg": "RS256", "kid": "k"}), &signer.keys()),
            Err(OidcError::Algorithm("RS256".into()))
        );
        assert_eq!(verify(good, &other.keys()), Err(OidcError::UnknownKey("k".into())));
        assert_eq!(
            verify(json!({"alg": "ES256"}), &Keys::default()),
            Err(OidcError::UnknownKey(String::new()))
        );
        assert_eq!(
            verify(json!({"alg": "ES256", "kid": "z"}), &signer.keys()),
            Err(OidcError::UnknownKey("z".into()))
        );
        let token = signer.sign(&json!({"alg": "ES256", "kid": "k"}), &claims);
        let deep = format!("e30.{}.", URL_SAFE_NO_PAD.encode("[".repeat(100_000)));
        let long = format!("{token}{}", "A".repeat(TOKEN_BYTES_MAX));
        for malformed in ["x", "a.b", "..", &format!("{token}.x"), &deep, &long] {
            let found = trusted().verify(malformed, &signer.keys(), now);
            assert_eq!(found, Err(OidcError::Malformed), "{}", malformed.get(..20).unwrap_or(malformed));
        }
    }

    #[test]
    fn every_curve_signs() {
        use crate::keys::private::PrivateKey;
        use crate::keys::tests::{EC_P521, EC_SEC1};
        let p384 =
            rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("a key").serialize_pem();
        let now = Timestamp::from_second(0).expect("a time");
        for (algorithm, pem) in [("ES256", EC_SEC1), ("ES384", &p384), ("ES512", EC_P521)] {
            let key = crate::keys::pkcs8(pem.as_bytes()).expect("a key");
            let key = PrivateKey::of_pkcs8(&key).expect("a key");
            let keys: Keys = serde_json::from_value(json!({"keys": [key.public().jwk()]})).expect("keys");
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let signed =
                format!("{}.{}", part(&json!({"alg": algorithm})), part(&claims_with(("x", json!(1)))));
            let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).expect("signed"));
            let issuer = Issuer { algorithms: vec![algorithm.to_owned()], ..trusted() };
            let verify =
                |signature: &str| issuer.verify(&format!("{signed}.{signature}"), &keys, now).is_ok();
            let other = format!("{}{}", if signature.starts_with('A') { 'B' } else { 'A' }, &signature[1..]);
            assert!(verify(&signature) && !verify(&other) && !verify(""), "{algorithm}");
        }
    }

    #[test]
    fn an_issuer_may_have_two_names() {
        let token = signer().sign(&json!({"alg": "ES256"}), &json!({"iss": "accounts.google.com"}));
        assert_eq!(issuer_of(&token).as_deref(), Some("https://accounts.google.com"));
    }
}
