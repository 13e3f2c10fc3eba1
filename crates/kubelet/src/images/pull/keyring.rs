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
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The key of credentials for images that name no registry.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Where credentials come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Of the credentials themselves, as upstream's `hashAuthConfig` makes it: records outlive a change of kubelets.
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

/// A JSON object. Structures are read from one and from nothing else: serde would take a list for the fields in order.
type Fields = serde_json::Map<String, Value>;

/// As a secret has it, and as it is hashed.
#[derive(Default, Deserialize, Serialize)]
struct Entry {
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "String::is_empty")]
    password: String,
    #[serde(default, deserialize_with = "or_null", skip_serializing)]
    auth: String,
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "String::is_empty")]
    email: String,
}

/// Null is as good as nothing, as in Go.
fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Keyring {
    /// What the secrets hold; those of other types hold nothing.
    ///
    /// # Errors
    /// One of them is not what its type says.
    pub(crate) fn of(secrets: &[std::sync::Arc<Secret>]) -> Result<Self, serde_json::Error> {
        let mut keyring = Self::default();
        for secret in secrets {
            let data = |key: &str| {
                let bytes = secret.data.as_ref()?.get(key)?;
                Some(bytes.0.as_slice()).filter(|bytes| !bytes.is_empty())
            };
            let read = match secret.type_.as_deref() {
                Some("kubernetes.io/dockerconfigjson") => data(".dockerconfigjson").map(|bytes| {
                    let mut config: Fields = serde_json::from_slice(bytes)?;
                    or_null(config.remove("auths").unwrap_or_default())
                }),
                Some("kubernetes.io/dockercfg") => data(".dockercfg").map(serde_json::from_slice::<Fields>),
                _ => None,
            };
            for (location, entry) in read.transpose()?.into_iter().flatten() {
                let fields: Fields = or_null(entry)?;
                keyring.add(&location, serde_json::from_value(fields.into())?, secret)?;
            }
        }
        Ok(keyring)
    }

    fn add(&mut self, location: &str, mut entry: Entry, secret: &Secret) -> Result<(), serde_json::Error> {
        if !entry.auth.is_empty() {
            (entry.username, entry.password) = decoded(&entry.auth).ok_or_else(|| {
                let why = "unable to parse auth field, must be formatted as base64(username:password)";
                <serde_json::Error as serde::de::Error>::custom(why)
            })?;
        }
        let metadata = &secret.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let source = Source {
            uid: text(&metadata.uid),
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            hash: hash_of(&entry)?,
        };
        let Entry { username, password, .. } = entry;
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

    /// Every secret, and what it holds.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Source> {
        self.entries.values().flatten().filter_map(|credential| credential.source.as_ref())
    }
}

/// Of the JSON that Go makes, in which what HTML knows is spelled out. Source: `hashAuthConfig`.
fn hash_of(entry: &Entry) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    for c in serde_json::to_string(entry)?.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
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

/// Without scheme, and without what stands for the API's version.
fn key_of(location: &str) -> String {
    let rest =
        location.strip_prefix("https://").or_else(|| location.strip_prefix("http://")).unwrap_or(location);
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
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

/// `*` is any text, `?` any character. Source: Go's `filepath.Match`, without its classes of characters.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    match (glob, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            (0..=text.len()).any(|at| glob_matches(rest, text.get(at..).unwrap_or_default()))
        }
        ([b'?', rest @ ..], [_, more @ ..]) => glob_matches(rest, more),
        ([one, rest @ ..], [other, more @ ..]) => one == other && glob_matches(rest, more),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
