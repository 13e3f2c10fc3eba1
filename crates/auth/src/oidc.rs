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
mod tests;
