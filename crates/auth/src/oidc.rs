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

use crate::UserInfo;

/// Tokens are never longer than this.
const TOKEN_BYTES_MAX: usize = 64 << 10;
/// Clocks may differ by this much.
const LEEWAY_SECONDS: i64 = 10;

/// One issuer and what its claims mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// `iss`; its `/.well-known/openid-configuration` leads to the keys.
    pub url: String,
    /// Where the discovery document is, if not there.
    pub discovery_url: Option<String>,
    /// Who signed the issuer's TLS certificate, PEM; the host's authorities if empty.
    pub ca_pem: Vec<u8>,
    /// `aud` must name one of these.
    pub audiences: Vec<String>,
    /// The claim that names the user.
    pub username_claim: String,
    /// What user names get in front.
    pub username_prefix: String,
    /// The claim that names the groups.
    pub groups_claim: Option<String>,
    /// What groups get in front.
    pub groups_prefix: String,
    /// The claim that is the uid.
    pub uid_claim: Option<String>,
    /// Claims that must have these values.
    pub required_claims: Vec<(String, String)>,
    /// JOSE names of signatures that are accepted.
    pub algorithms: Vec<String>,
}

/// Why a token is refused; the text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    /// It has not the form of a token.
    #[error("malformed token")]
    Malformed,
    /// The issuer's known keys do not have this one.
    #[error("unknown key {0:?}")]
    UnknownKey(String),
    /// It was not signed by the key, or by another method.
    #[error("invalid signature")]
    Signature,
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
    let claims = claims(token)?;
    claims.get("iss").and_then(Value::as_str).map(str::to_owned)
}

fn claims(token: &str) -> Option<Map<String, Value>> {
    let body = token.split('.').nth(1).filter(|_| token.len() <= TOKEN_BYTES_MAX)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()
}

impl Issuer {
    /// The user that a token of this issuer stands for.
    ///
    /// # Errors
    /// [`OidcError::UnknownKey`] if newer keys may help, others if nothing will.
    pub fn verify(&self, token: &str, keys: &Keys, now: Timestamp) -> Result<UserInfo, OidcError> {
        let malformed = || OidcError::Malformed;
        let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let head = signed.split('.').next().ok_or_else(malformed)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| OidcError::Malformed);
        let header: Header = serde_json::from_slice(&decode(head)?).map_err(|_| OidcError::Malformed)?;
        if !self.algorithms.contains(&header.alg) {
            return Err(OidcError::Signature);
        }
        let claims = claims(token).ok_or_else(malformed)?;
        let signature = decode(signature)?;
        let fitting: Vec<&Key> =
            keys.keys.iter().filter(|key| header.kid.is_empty() || key.kid == header.kid).collect();
        if fitting.is_empty() {
            return Err(OidcError::UnknownKey(header.kid));
        }
        if !fitting.iter().any(|key| key.signed(&header.alg, signed.as_bytes(), &signature)) {
            return Err(OidcError::Signature);
        }
        self.check(&claims, now.as_second())?;
        self.user(&claims)
    }

    fn check(&self, claims: &Map<String, Value>, now: i64) -> Result<(), OidcError> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let refuse = |name: &str, why| Err(OidcError::Claim(name.to_owned(), why));
        if text("iss") != Some(&self.url) {
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
        if number("exp").is_none_or(|end| end + LEEWAY_SECONDS < now) {
            return refuse("exp", "it is over");
        }
        if number("nbf").is_some_and(|start| start - LEEWAY_SECONDS > now) {
            return refuse("nbf", "its time has not come");
        }
        for (name, wanted) in &self.required_claims {
            if text(name) != Some(wanted) {
                return refuse(name, "it has not the required value");
            }
        }
        Ok(())
    }

    fn user(&self, claims: &Map<String, Value>) -> Result<UserInfo, OidcError> {
        let refuse = |name: &str, why| OidcError::Claim(name.to_owned(), why);
        let name = claims.get(&self.username_claim).and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| refuse(&self.username_claim, "it is missing"))?;
        let is_unverified = self.username_claim == "email"
            && claims.get("email_verified").is_some_and(|verified| verified != &Value::Bool(true));
        if is_unverified {
            return Err(refuse("email_verified", "the address is not verified"));
        }
        let groups = match self.groups_claim.as_ref().and_then(|claim| claims.get(claim)) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            Some(_) => {
                let claim = self.groups_claim.as_deref().unwrap_or_default();
                return Err(refuse(claim, "it is no list of texts"));
            }
        };
        let uid = self.uid_claim.as_ref().and_then(|claim| claims.get(claim)).and_then(Value::as_str);
        Ok(UserInfo {
            name: format!("{}{name}", self.username_prefix),
            uid: uid.unwrap_or_default().to_owned(),
            groups: groups.into_iter().map(|group| format!("{}{group}", self.groups_prefix)).collect(),
            ..UserInfo::default()
        })
    }
}

impl Key {
    fn signed(&self, algorithm: &str, message: &[u8], signed: &[u8]) -> bool {
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        if self.kty == "EC" {
            let algorithm: &dyn signature::VerificationAlgorithm = match algorithm {
                "ES256" => &signature::ECDSA_P256_SHA256_FIXED,
                "ES384" => &signature::ECDSA_P384_SHA384_FIXED,
                _ => return false,
            };
            let point = [vec![4], decode(&self.x), decode(&self.y)].concat();
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

    fn issuer() -> Issuer {
        Issuer {
            url: "https://id.example".into(),
            discovery_url: None,
            ca_pem: Vec::new(),
            audiences: vec!["cluster".into()],
            username_claim: "email".into(),
            username_prefix: "oidc:".into(),
            groups_claim: Some("groups".into()),
            groups_prefix: "g:".into(),
            uid_claim: None,
            required_claims: vec![("hd".into(), "example".into())],
            algorithms: vec!["ES256".into()],
        }
    }

    fn check(name: &str, change: (&str, Value), expect: Result<&str, &str>) {
        let signer = signer();
        let mut claims = json!({"iss": "https://id.example", "aud": ["x", "cluster"], "exp": 2_000_000_000,
            "email": "a@example", "email_verified": true, "groups": ["dev"], "hd": "example"});
        claims[change.0] = change.1;
        let token = signer.sign(&json!({"alg": "ES256", "kid": "k"}), &claims);
        let now = Timestamp::from_second(1_900_000_000).expect("a time");
        let user = issuer().verify(&token, &signer.keys(), now);
        let shown =
            user.map(|user| format!("{} {}", user.name, user.groups.join(","))).map_err(|e| e.to_string());
        assert_eq!(shown.as_deref().map_err(String::as_str), expect, "{name}");
    }

    #[test]
    fn claims_say_who_it_is() {
        check("good", ("x", json!(1)), Ok("oidc:a@example g:dev"));
        check("one group", ("groups", json!("ops")), Ok("oidc:a@example g:ops"));
        check("issuer", ("iss", json!("https://other")), Err("claim \"iss\": it is another issuer"));
        check("audience", ("aud", json!("x")), Err("claim \"aud\": it is meant for somebody else"));
        check("over", ("exp", json!(1)), Err("claim \"exp\": it is over"));
        check("early", ("nbf", json!(1_999_999_999)), Err("claim \"nbf\": its time has not come"));
        check(
            "unverified",
            ("email_verified", json!(false)),
            Err("claim \"email_verified\": the address is not verified"),
        );
        check("required", ("hd", json!("other")), Err("claim \"hd\": it has not the required value"));
        check("nameless", ("email", Value::Null), Err("claim \"email\": it is missing"));
    }

    #[test]
    fn only_known_keys_and_methods_count() {
        let (signer, other) = (signer(), self::signer());
        let claims = json!({"iss": "https://id.example"});
        let now = Timestamp::from_second(0).expect("a time");
        let verify = |header: Value, keys: &Keys| {
            issuer().verify(&signer.sign(&header, &claims), keys, now).unwrap_err()
        };
        assert_eq!(verify(json!({"alg": "none"}), &signer.keys()), OidcError::Signature);
        assert_eq!(verify(json!({"alg": "ES256", "kid": "k"}), &other.keys()), OidcError::Signature);
        assert_eq!(
            verify(json!({"alg": "ES256", "kid": "z"}), &signer.keys()),
            OidcError::UnknownKey("z".into())
        );
        assert_eq!(issuer().verify("x", &signer.keys(), now), Err(OidcError::Malformed));
    }
}
