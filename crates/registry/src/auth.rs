//! The client's identity at a registry: credentials, challenges, and tokens.
//!
//! A registry that answers 401 says how to prove who one is. For `Basic` that is the password itself; for `Bearer`, a
//! token of a token service, which takes the password (or a refresh token) and is asked for this repository only.
//! A token service without TLS gets no password from a registry that has it.
//!
//! Source: RFC 9110, section 11; Docker Registry v2 authentication via central service; RFC 6749, section 6.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::error::Error;

/// Largest answer of a token service.
pub(crate) const TOKEN_BYTES_MAX: u64 = 1 << 20;
/// Who asks, in OAuth's terms.
const CLIENT_ID: &str = "knarr";

/// A proof of the client's identity. Never shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credentials {
    /// A name and a password.
    Password {
        /// The name.
        username: String,
        /// The password.
        password: String,
    },
    /// A refresh token, for the token service.
    IdentityToken(String),
    /// A token for the registry itself.
    RegistryToken(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(...)")
    }
}

/// The text of credentials is not what it should be. It is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("auth must be username:password in base 64")]
pub struct BadAuth;

impl Credentials {
    /// From the parts that CRI's `AuthConfig`, Docker's configuration and `registries.yaml` have; `None` if all are
    /// empty. The order is containerd's.
    ///
    /// # Errors
    /// `auth` is not what it should be.
    pub fn from_parts(
        username: &str,
        password: &str,
        auth: &str,
        identity_token: &str,
        registry_token: &str,
    ) -> Result<Option<Self>, BadAuth> {
        if !username.is_empty() {
            return Ok(Some(Self::password(username, password)));
        }
        if !identity_token.is_empty() {
            return Ok(Some(Self::IdentityToken(identity_token.to_owned())));
        }
        if !auth.is_empty() {
            let bytes = STANDARD.decode(auth.trim_end_matches('\0')).map_err(|_| BadAuth)?;
            let text = String::from_utf8(bytes).map_err(|_| BadAuth)?;
            let (username, password) = text.split_once(':').ok_or(BadAuth)?;
            return Ok(Some(Self::password(username, password.trim_end_matches('\0'))));
        }
        Ok(Some(registry_token).filter(|it| !it.is_empty()).map(|it| Self::RegistryToken(it.to_owned())))
    }

    fn password(username: &str, password: &str) -> Self {
        Self::Password { username: username.to_owned(), password: password.to_owned() }
    }
}

/// The value of `Authorization: Basic`.
pub(crate) fn basic(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

/// How a registry wants to be told who one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A password with each request.
    Basic,
    /// A token of the service at `realm`.
    Bearer {
        /// The token service's URL.
        realm: String,
        /// The registry's name there.
        service: Option<String>,
        /// For what the token must be good.
        scope: Option<String>,
    },
}

impl Challenge {
    /// What the `WWW-Authenticate` headers ask for; a token is preferred.
    pub(crate) fn parse<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut found = None;
        for (scheme, mut parameters) in headers.into_iter().flat_map(challenges) {
            if scheme == "bearer" {
                let realm = parameters.remove("realm")?;
                let (service, scope) = (parameters.remove("service"), parameters.remove("scope"));
                return Some(Self::Bearer { realm, service, scope });
            }
            if scheme == "basic" {
                found = Some(Self::Basic);
            }
        }
        found
    }
}

/// The challenges of one header: a scheme, then `name=value` with commas between them, values perhaps in quotes.
fn challenges(header: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let mut found: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    let mut rest = header.trim();
    while !rest.is_empty() {
        let end = rest.find([' ', '=', ',']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if let Some(value) = after.strip_prefix('=') {
            let (value, after) = value_of(value);
            if let Some((_, parameters)) = found.last_mut() {
                parameters.insert(word.to_ascii_lowercase(), value);
            }
            rest = after;
        } else {
            if !word.is_empty() {
                found.push((word.to_ascii_lowercase(), BTreeMap::new()));
            }
            rest = after;
        }
        rest = rest.trim_start_matches([' ', ',', '\t']);
    }
    found
}

fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

/// A request to a token service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenRequest {
    pub(crate) url: String,
    /// `Authorization`, of a GET.
    pub(crate) authorization: Option<String>,
    /// A form, of a POST.
    pub(crate) form: Option<String>,
}

impl TokenRequest {
    /// What to send to the token service at `realm`. `scope` is what is needed at least.
    ///
    /// # Errors
    /// The realm is no URL, or secrets would go there in the clear although the registry (`scheme`) has TLS.
    pub(crate) fn new(
        (realm, service, scope): (&str, Option<&str>, &str),
        credentials: Option<&Credentials>,
        scheme: &str,
    ) -> Result<Self, Error> {
        let uri: http::Uri = realm
            .parse()
            .map_err(|_| Error::Unexpected(format!("the registry's realm {realm:?} is no URL")))?;
        let realm_scheme = uri.scheme_str().unwrap_or_default();
        if !matches!(realm_scheme, "http" | "https") || uri.authority().is_none() {
            return Err(Error::Unexpected(format!("the registry's realm {realm:?} is no URL")));
        }
        if credentials.is_some() && scheme == "https" && realm_scheme == "http" {
            return Err(Error::Denied(format!("credentials are not sent to {realm} without TLS")));
        }
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(service) = service {
            query.append_pair("service", service);
        }
        query.append_pair("scope", scope);
        if let Some(Credentials::IdentityToken(token)) = credentials {
            query.append_pair("client_id", CLIENT_ID);
            query.append_pair("grant_type", "refresh_token").append_pair("refresh_token", token);
            let form = Some(query.finish());
            return Ok(Self { url: realm.to_owned(), authorization: None, form });
        }
        let authorization = match credentials {
            Some(Credentials::Password { username, password }) => {
                query.append_pair("account", username);
                Some(basic(username, password))
            }
            _ => None,
        };
        let separator = if uri.query().is_some() { '&' } else { '?' };
        Ok(Self { url: format!("{realm}{separator}{}", query.finish()), authorization, form: None })
    }
}

/// A token service's answer.
#[derive(Deserialize)]
pub(crate) struct TokenAnswer {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

impl TokenAnswer {
    /// The value of `Authorization: Bearer`.
    pub(crate) fn authorization(self) -> Option<String> {
        let token = if self.token.is_empty() { self.access_token } else { self.token };
        let is_sane = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        is_sane.then(|| format!("Bearer {token}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_the_rfc_has_them() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            Some(Challenge::Bearer { realm: realm.into(), service: owned(service), scope: owned(scope) })
        };
        for (headers, expect) in [
            (&["Basic realm=\"x\""][..], Some(Challenge::Basic)),
            (&["Negotiate", "basic"], Some(Challenge::Basic)),
            (
                &["Bearer realm=\"https://a/t\",service=\"r\",scope=\"repository:a/b:pull,push\""],
                bearer("https://a/t", Some("r"), Some("repository:a/b:pull,push")),
            ),
            (&["Basic realm=x, bEARER Realm=https://a/t"], bearer("https://a/t", None, None)),
            (&["Bearer realm=\"a\\\"b\""], bearer("a\"b", None, None)),
            (&["Bearer realm=\"open"], bearer("open", None, None)),
            (&["Bearer"], None),
            // Source: the tables of containerd's `core/remotes/docker/auth/parse_test.go` and of distribution's
            // `registry/client/auth/challenge/authchallenge_test.go`.
            (
                &[
                    "Bearer realm=\"https://auth.example.io/token\",empty=\"\",service=\"registry.example.io\",scope=\"repository:library/hello-world:pull,push\"",
                ],
                bearer(
                    "https://auth.example.io/token",
                    Some("registry.example.io"),
                    Some("repository:library/hello-world:pull,push"),
                ),
            ),
            (
                &[
                    "Bearer realm=\"https://auth.example.com/token\",service=\"registry.example.com\",other=fun,slashed=\"he\\\"\\l\\lo\"",
                ],
                bearer("https://auth.example.com/token", Some("registry.example.com"), None),
            ),
            (
                &["Bearer service=\"he\\\"\\l\\lo\", realm=\"https://a/t\""],
                bearer("https://a/t", Some("he\"llo"), None),
            ),
            (&["Bearer service=\"r\""], None),
            (&["Bearer realm=\"\""], bearer("", None, None)),
            (&["Basic realm=\"x\"", "Bearer realm=https://a/t"], bearer("https://a/t", None, None)),
            (&["Bearer   realm = \"https://a/t\""], None),
            (&["Bearer realm=\"https://a/t\"garbage=x"], bearer("https://a/t", None, None)),
            (&["Bearer realm=\"a\", realm=\"b\""], bearer("b", None, None)),
            (&["NTLM, Basic"], Some(Challenge::Basic)),
            (&["Bearer realm=\"a\\"], bearer("a", None, None)),
            (&["\u{e9}\u{20ac} x=y"], None),
            (&["Digest realm=x", "", "=,= ,"], None),
        ] {
            assert_eq!(Challenge::parse(headers.iter().copied()), expect, "{headers:?}");
        }
    }

    #[test]
    fn credentials_come_in_several_forms() {
        let check = |parts: [&str; 5], expect: Result<Option<Credentials>, ()>| {
            let [username, password, auth, identity, registry] = parts;
            let made = Credentials::from_parts(username, password, auth, identity, registry);
            assert!(made.map_err(drop) == expect, "{parts:?}");
        };
        let password = |name: &str, word: &str| Ok(Some(Credentials::password(name, word)));
        check(["", "", "", "", ""], Ok(None));
        check(["u", "p", "x", "i", "r"], password("u", "p"));
        check(["", "", "dTpwOnE=", "", ""], password("u", "p:q"));
        check(["", "", "", "i", "r"], Ok(Some(Credentials::IdentityToken("i".into()))));
        check(["", "", "", "", "r"], Ok(Some(Credentials::RegistryToken("r".into()))));
        check(["", "", "dQ==", "", ""], Err(()));
        check(["", "", "!", "", ""], Err(()));
        check(["", "", "OnA=", "", ""], password("", "p"));
        check(["", "", "dTo=", "", ""], password("u", ""));
        check(["", "", "dTpwAAA=", "", ""], password("u", "p"));
        check(["", "", "//86cA==", "", ""], Err(()));
        check(["u", "", "", "", ""], password("u", ""));
        check(["", "p", "", "", ""], Ok(None));
    }

    #[test]
    fn tokens_are_only_what_a_header_can_carry() {
        let check = |answer: &str, expect: Option<&str>| {
            let parsed: Result<TokenAnswer, _> = serde_json::from_str(answer);
            let made = parsed.ok().and_then(TokenAnswer::authorization);
            assert_eq!(made.as_deref(), expect, "{answer}");
        };
        check(r#"{"token": "t"}"#, Some("Bearer t"));
        check(r#"{"access_token": "a"}"#, Some("Bearer a"));
        check(r#"{"token": "t", "access_token": "a"}"#, Some("Bearer t"));
        check(r#"{"token": "", "access_token": "a", "expires_in": 60}"#, Some("Bearer a"));
        check("{}", None);
        check(r#"{"token": "a b"}"#, None);
        check(r#"{"token": "a\r\nX-Evil: b"}"#, None);
        check(r#"{"token": "\u0000"}"#, None);
        check(r#"{"token": 5}"#, None);
        check("[]", None);
    }

    #[test]
    fn token_services_get_what_they_need_and_no_more() {
        let password = Credentials::password("u", "p");
        let ask = |realm: &str, credentials: Option<&Credentials>, scheme: &str| {
            TokenRequest::new((realm, Some("s"), "repository:a:pull"), credentials, scheme)
        };
        let anonymous = ask("https://t/?a=b", None, "https").unwrap();
        assert_eq!(anonymous.url, "https://t/?a=b&service=s&scope=repository%3Aa%3Apull");
        assert_eq!(anonymous.authorization, None);
        let named = ask("https://t", Some(&password), "https").unwrap();
        assert_eq!(named.url, "https://t?service=s&scope=repository%3Aa%3Apull&account=u");
        assert_eq!(named.authorization.as_deref(), Some("Basic dTpw"));
        let identity = Credentials::IdentityToken("i".into());
        let refreshed = ask("https://t", Some(&identity), "https").unwrap();
        assert_eq!((refreshed.url.as_str(), refreshed.authorization), ("https://t", None));
        assert!(refreshed.form.unwrap().ends_with("grant_type=refresh_token&refresh_token=i"));
        assert!(ask("http://t", Some(&password), "https").is_err(), "in the clear");
        assert!(ask("http://t", Some(&password), "http").is_ok());
        assert!(ask("file:///etc/passwd", None, "https").is_err());
        assert!(!format!("{password:?}").contains('p'.to_string().repeat(2).as_str()));
    }
}
