//! The credentials that this server shows to webhooks: users of a kubeconfig, by the names of those who see them.
//!
//! A user is named after host and port of a webhook (`hook.ns.svc:8443`), a pattern of it (`*.ns.svc:8443`), the same
//! without port 443, or `*`; what is left gets the user of the current context. Source: `authentication.go` of
//! `k8s.io/apiserver/pkg/util/webhook`.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use serde::Deserialize;
use serde_json::Value;
use tls::Identity;

use crate::configuration_error::{self, ConfigurationError, ReadFile};

/// The users of a kubeconfig.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    users: BTreeMap<String, Credential>,
    current: Option<Credential>,
}

/// The proof of one user. None, if all is empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential {
    token: String,
    user: String,
    password: String,
    certificate_pem: Vec<u8>,
    key_pem: Vec<u8>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct File {
    current_context: String,
    contexts: Vec<Named>,
    users: Vec<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    context: Value,
    user: Value,
}

impl Credentials {
    /// Reads a kubeconfig; `read` reads the files that it names.
    ///
    /// # Errors
    /// What is wrong with it, or what it asks for and is not done here.
    pub fn parse(text: &str, read: impl ReadFile) -> Result<Self, ConfigurationError> {
        let file: File = configuration_error::read(text)?;
        let mut users = BTreeMap::new();
        for Named { name, user, .. } in &file.users {
            let credential = credential(user, &read);
            let credential = credential.map_err(ConfigurationError::of(format!("users: {name:?}")))?;
            users.insert(name.clone(), credential);
        }
        let context = file.contexts.iter().find(|one| one.name == file.current_context);
        let current = context.and_then(|one| users.get(one.context.get("user")?.as_str()?)).cloned();
        Ok(Self { users, current })
    }

    /// The credential that is shown to a host and port.
    pub fn of(&self, target: &str) -> Credential {
        let bare = target.strip_suffix(":443");
        let found = self.named(target).or_else(|| bare.and_then(|bare| self.named(bare)));
        found.or_else(|| self.users.get("*")).or(self.current.as_ref()).cloned().unwrap_or_default()
    }

    /// By the name itself, or by what is left of it behind each dot.
    fn named(&self, target: &str) -> Option<&Credential> {
        let behind = target.match_indices('.').filter_map(|(at, _)| target.get(at..));
        self.users.get(target).or_else(|| {
            let mut patterns = behind.map(|rest| format!("*{rest}"));
            patterns.find_map(|pattern| self.users.get(&pattern))
        })
    }
}

pub(super) fn credential(user: &Value, read: &impl ReadFile) -> Result<Credential, ConfigurationError> {
    let text = |name: &str| user.get(name).and_then(Value::as_str).unwrap_or_default();
    for name in ["exec", "auth-provider", "as", "as-uid", "as-groups", "as-user-extra"] {
        if user.get(name).is_some_and(|value| !value.is_null()) {
            return Err(ConfigurationError::rule(format!("{name} is not supported for webhooks")));
        }
    }
    let bytes = |name: &str| -> Result<Vec<u8>, ConfigurationError> {
        let data = text(&format!("{name}-data")).to_owned();
        if !data.is_empty() {
            return STANDARD.decode(data.trim()).map_err(ConfigurationError::of(format!("{name}-data")));
        }
        match text(name) {
            "" => Ok(Vec::new()),
            path => Ok(read(path)?.into_bytes()),
        }
    };
    let token = match (text("token"), text("tokenFile")) {
        ("", "") => String::new(),
        ("", path) => read(path)?.trim().to_owned(),
        (token, _) => token.to_owned(),
    };
    let credential = Credential {
        token,
        user: text("username").to_owned(),
        password: text("password").to_owned(),
        certificate_pem: bytes("client-certificate")?,
        key_pem: bytes("client-key")?,
    };
    credential.identity()?;
    credential.authorization()?;
    Ok(credential)
}

impl Credential {
    /// The header that proves it.
    ///
    /// # Errors
    /// That a token cannot be sent.
    pub fn authorization(&self) -> Result<Option<HeaderValue>, ConfigurationError> {
        let text = if !self.token.is_empty() {
            format!("Bearer {}", self.token)
        } else if !self.user.is_empty() || !self.password.is_empty() {
            format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
        } else {
            return Ok(None);
        };
        let value = HeaderValue::from_str(&text);
        let mut value = value.map_err(|_| ConfigurationError::rule("the token cannot be sent"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// The certificate and key that prove it.
    ///
    /// # Errors
    /// That they cannot be read.
    pub fn identity(&self) -> Result<Option<Identity>, ConfigurationError> {
        if self.certificate_pem.is_empty() {
            return Ok(None);
        }
        let identity = Identity::from_pem(&self.certificate_pem, &self.key_pem);
        identity.map(Some).map_err(|why| match why {
            tls::Error::Key(_) => ConfigurationError::of("client-key")(why),
            _ => ConfigurationError::of("client-certificate")(why),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration_error::Cause;

    const FILE: &str = "
apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {user: rest, cluster: none}}
users:
- {name: 'hook.ns.svc:8443', user: {token: exact}}
- {name: '*.ns.svc:8443', user: {token: pattern}}
- {name: 'bare.other.svc', user: {tokenFile: /token}}
- {name: '*.deep.example.com', user: {username: u, password: p}}
- {name: rest, user: {token: rest}}
";

    fn read(path: &str) -> Result<String, Cause> {
        if path == "/token" { Ok("from a file\n".to_owned()) } else { Err(format!("{path} is gone").into()) }
    }

    #[test]
    fn the_closest_name_wins() {
        let credentials = Credentials::parse(FILE, read).unwrap();
        for (target, expect) in [
            ("hook.ns.svc:8443", "Bearer exact"),
            ("other.ns.svc:8443", "Bearer pattern"),
            ("other.ns.svc:443", "Bearer rest"),
            ("bare.other.svc:443", "Bearer from a file"),
            ("bare.other.svc:444", "Bearer rest"),
            ("a.b.deep.example.com:443", "Basic dTpw"),
            ("deep.example.com:443", "Bearer rest"),
        ] {
            let found = credentials.of(target).authorization().unwrap().unwrap();
            assert_eq!(found.to_str().unwrap(), expect, "{target}");
        }
    }

    #[test]
    fn who_has_no_file_shows_nothing() {
        let none = Credentials::default().of("hook.ns.svc:443");
        assert!(none.authorization().unwrap().is_none() && none.identity().unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_used_is_said_at_the_start() {
        for (user, expect) in [
            ("{exec: {command: x}}", "users: \"a\": exec is not supported for webhooks"),
            ("{tokenFile: /gone}", "users: \"a\": /gone is gone"),
            ("{client-certificate-data: '%'}", "users: \"a\": client-certificate-data: "),
            ("{client-certificate-data: aGVsbG8=}", "users: \"a\": client-key: "),
            ("{token: \"a\\nb\"}", "users: \"a\": the token cannot be sent"),
        ] {
            let failure = Credentials::parse(&format!("{{users: [{{name: a, user: {user}}}]}}"), read);
            let failure = base::error_chain(&failure.unwrap_err());
            assert!(failure.starts_with(expect), "{user}: {failure}");
        }
    }
}
