//! Which of a Pod's pull secrets are for an image.
//!
//! A secret's keys are hosts, perhaps with a port, with `*` in their labels, and perhaps with a path; the longer name
//! goes first. Source: `pkg/credentialprovider` of upstream; secret types `kubernetes.io/dockerconfigjson` and
//! `kubernetes.io/dockercfg`.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use cri::v1;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};

/// The key of credentials for images that name no registry.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Where credentials come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Of the credentials themselves.
    pub(crate) hash: String,
}

/// Credentials for one pull.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Credential {
    pub(crate) auth: v1::AuthConfig,
    pub(crate) source: Option<Source>,
}

/// The credentials of several secrets.
#[derive(Default)]
pub(crate) struct Keyring {
    /// By host and path, as the secrets have them.
    entries: BTreeMap<String, Vec<Credential>>,
}

/// A secret is not what its type says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    /// It is no such JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Its user and password are not to be had.
    #[error("unable to parse auth field, must be formatted as base64(username:password)")]
    Auth,
}

type Entries = BTreeMap<String, Option<Entry>>;

#[derive(Default, Deserialize)]
struct DockerConfigJson {
    #[serde(default)]
    auths: Option<Entries>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
struct Entry {
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    auth: Option<String>,
}

/// What stands for credentials in their hash. Source: `AuthConfig` of upstream's `pkg/credentialprovider`.
#[derive(Serialize)]
struct Hashed<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    password: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    email: &'a str,
}

impl Keyring {
    /// What the secrets hold; those of other types hold nothing, nor do empty ones.
    ///
    /// # Errors
    /// One of them is not what its type says.
    pub(crate) fn of(secrets: &[std::sync::Arc<Secret>]) -> Result<Self, SecretError> {
        let mut keyring = Self::default();
        for secret in secrets {
            for (location, entry) in entries(secret)? {
                keyring.add(&location, entry.unwrap_or_default(), secret)?;
            }
        }
        Ok(keyring)
    }

    fn add(&mut self, location: &str, entry: Entry, secret: &Secret) -> Result<(), SecretError> {
        let pair = entry.auth.filter(|auth| !auth.is_empty());
        let (username, password) = match pair {
            Some(auth) => decoded(&auth).ok_or(SecretError::Auth)?,
            None => (entry.username.unwrap_or_default(), entry.password.unwrap_or_default()),
        };
        let metadata = &secret.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let source = Source {
            uid: text(&metadata.uid),
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            hash: hash(&username, &password, &text(&entry.email))?,
        };
        let auth = v1::AuthConfig { username, password, ..v1::AuthConfig::default() };
        let credential = Credential { auth, source: Some(source) };
        self.entries.entry(key_of(location)).or_default().push(credential);
        Ok(())
    }

    /// The credentials for a repository, such as `docker.io/library/busybox`, in the order to try them.
    pub(crate) fn lookup(&self, repository: &str) -> Vec<Credential> {
        let fitting = self.entries.iter().rev().filter(|(key, _)| matches(key, repository));
        let mut found: Vec<Credential> = fitting.flat_map(|(_, all)| all.iter().cloned()).collect();
        if found.is_empty() && is_default_registry(repository) {
            found = self.entries.get(DEFAULT_REGISTRY).cloned().unwrap_or_default();
        }
        found
    }
}

/// The credentials of one secret by location. Source: `MakeDockerKeyring` of upstream's `pkg/credentialprovider/secrets`.
fn entries(secret: &Secret) -> Result<Entries, SecretError> {
    let data = |key: &str| secret.data.as_ref()?.get(key).map(|bytes| bytes.0.as_slice());
    let (key, is_old) = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => (".dockerconfigjson", false),
        Some("kubernetes.io/dockercfg") => (".dockercfg", true),
        _ => return Ok(Entries::new()),
    };
    let Some(text) = data(key).filter(|text| !text.is_empty()) else { return Ok(Entries::new()) };
    if is_old {
        return Ok(serde_json::from_slice::<Option<Entries>>(text)?.unwrap_or_default());
    }
    let config: Option<DockerConfigJson> = serde_json::from_slice(text)?;
    Ok(config.unwrap_or_default().auths.unwrap_or_default())
}

/// By this a Pod proves that it may use an image that was pulled with the same credentials: upstream's kubelet must find
/// the same. Source: `hashAuthConfig` of upstream's `pkg/credentialprovider`, and Go's `json.Marshal`.
fn hash(username: &str, password: &str, email: &str) -> Result<String, SecretError> {
    let mut text = serde_json::to_string(&Hashed { username, password, email })?;
    for (plain, escaped) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        text = text.replace(plain, escaped);
    }
    Ok(registry::Digest::of(text.as_bytes()).hex().to_owned())
}

/// With or without padding, perhaps in several lines. Source: `decodeDockerConfigFieldAuth`.
fn decoded(auth: &str) -> Option<(String, String)> {
    let auth: String = auth.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let bytes = if auth.ends_with('=') { STANDARD.decode(auth) } else { STANDARD_NO_PAD.decode(auth) };
    let text = String::from_utf8(bytes.ok()?).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}

/// Without scheme, user, query and fragment, and without what stands for the API's version.
fn key_of(location: &str) -> String {
    let rest =
        location.strip_prefix("https://").or_else(|| location.strip_prefix("http://")).unwrap_or(location);
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let path = match path.get(..4) {
        Some("/v1/" | "/v2/") => path.get(3..).unwrap_or_default(),
        _ => path,
    };
    if path.len() > 1 { format!("{host}{path}") } else { host.to_owned() }
}

fn is_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some(("docker.io" | DEFAULT_REGISTRY, _)) => true,
        Some((first, _)) => !first.is_empty() && !first.contains(['.', ':']),
    }
}

/// Whether `key`, with its `*`, is about `repository`.
fn matches(key: &str, repository: &str) -> bool {
    let split = |text: &str| -> (Vec<String>, String, String) {
        let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let (host, port) = host.split_once(':').unwrap_or((host, ""));
        (host.split('.').map(str::to_owned).collect(), port.to_owned(), path.to_owned())
    };
    let (glob, glob_port, glob_path) = split(key);
    let (host, port, path) = split(repository);
    glob_port == port
        && glob.len() == host.len()
        && path.starts_with(&glob_path)
        && glob.iter().zip(&host).all(|(glob, label)| glob_matches(glob.as_bytes(), label.as_bytes()))
}

/// `*` is any text. Source: Go's `filepath.Match`, without what no host is made of.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    match (glob, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            (0..=text.len()).any(|at| glob_matches(rest, text.get(at..).unwrap_or_default()))
        }
        ([one, rest @ ..], [other, more @ ..]) => one == other && glob_matches(rest, more),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
