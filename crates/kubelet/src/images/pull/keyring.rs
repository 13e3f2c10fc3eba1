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
use serde::Deserialize;

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

#[derive(Deserialize)]
struct DockerConfigJson {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
struct Entry {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
}

impl Keyring {
    /// What the secrets hold; those of other types hold nothing.
    ///
    /// # Errors
    /// One of them is not what its type says.
    pub(crate) fn of(secrets: &[std::sync::Arc<Secret>]) -> Result<Self, serde_json::Error> {
        let mut keyring = Self::default();
        for secret in secrets {
            let data = |key: &str| secret.data.as_ref()?.get(key).map(|bytes| bytes.0.as_slice());
            let read = match secret.type_.as_deref() {
                Some("kubernetes.io/dockerconfigjson") => data(".dockerconfigjson").map(|bytes| {
                    serde_json::from_slice::<DockerConfigJson>(bytes).map(|config| config.auths)
                }),
                Some("kubernetes.io/dockercfg") => data(".dockercfg").map(serde_json::from_slice),
                _ => None,
            };
            for (location, entry) in read.transpose()?.into_iter().flatten() {
                keyring.add(&location, entry, secret);
            }
        }
        Ok(keyring)
    }

    fn add(&mut self, location: &str, entry: Entry, secret: &Secret) {
        let (username, password) = match (entry.auth.is_empty(), decoded(&entry.auth)) {
            (false, Some(pair)) => pair,
            (false, None) => return,
            _ => (entry.username, entry.password),
        };
        let metadata = &secret.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let source = Source {
            uid: text(&metadata.uid),
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            hash: registry::Digest::of(format!("{username}\0{password}").as_bytes()).hex().to_owned(),
        };
        let auth = v1::AuthConfig { username, password, ..v1::AuthConfig::default() };
        let credential = Credential { auth, source: Some(source) };
        self.entries.entry(key_of(location)).or_default().push(credential);
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
mod tests {
    use std::sync::Arc;

    use k8s_openapi::ByteString;

    use super::*;

    fn secret(kind: &str, key: &str, text: &str) -> Arc<Secret> {
        Arc::new(Secret {
            type_: Some(format!("kubernetes.io/{kind}")),
            data: Some([(key.to_owned(), ByteString(text.as_bytes().to_vec()))].into()),
            ..Secret::default()
        })
    }

    fn users(auths: &str, repository: &str) -> Vec<String> {
        let text = format!(r#"{{"auths": {auths}}}"#);
        let keyring = Keyring::of(&[secret("dockerconfigjson", ".dockerconfigjson", &text)]).unwrap();
        keyring.lookup(repository).into_iter().map(|it| it.auth.username).collect()
    }

    #[test]
    fn secrets_are_for_the_images_that_upstream_says() {
        for (name, keys, repository, expect) in [
            ("host", &["r.example"][..], "r.example/a/b", &["r.example"][..]),
            ("another host", &["r.example"], "s.example/a", &[]),
            ("port", &["r.example:5000"], "r.example:5000/a", &["r.example:5000"]),
            ("another port", &["r.example"], "r.example:5000/a", &[]),
            ("a label", &["*.example"], "r.example/a", &["*.example"]),
            ("a star is one label", &["*.example"], "a.r.example/a", &[]),
            ("part of a label", &["r-*.ex?mple"], "r-1.example/a", &["r-*.ex?mple"]),
            ("a star is no host", &["*"], "r.example/a", &[]),
            ("path", &["r.example/a"], "r.example/a/b", &["r.example/a"]),
            ("another path", &["r.example/b"], "r.example/a", &[]),
            ("longer first", &["r.example", "r.example/a"], "r.example/a", &["r.example/a", "r.example"]),
            ("scheme and version", &["https://r.example/v2/"], "r.example/a", &["https://r.example/v2/"]),
            (
                "the hub",
                &["https://index.docker.io/v1/"],
                "docker.io/library/a",
                &["https://index.docker.io/v1/"],
            ),
            ("the hub by its other name", &["docker.io"], "docker.io/library/a", &["docker.io"]),
            ("not the hub", &["https://index.docker.io/v1/"], "r.example/a", &[]),
        ] {
            let auths: Vec<String> = keys
                .iter()
                .map(|key| format!(r#""{key}": {{"username": "{key}", "password": "p"}}"#))
                .collect();
            assert_eq!(users(&format!("{{{}}}", auths.join(",")), repository), expect, "{name}");
        }
    }

    /// Source: `TestDecodeDockerConfigFieldAuth` of upstream's `pkg/credentialprovider`.
    #[test]
    fn a_pair_is_read_with_and_without_padding() {
        for (auth, expect) in [
            ("Zm9vOmJhcg==", Some(("foo", "bar"))),
            ("Zm9vOmJhcg", Some(("foo", "bar"))),
            ("Zm9vOm\nJhcg==\n", Some(("foo", "bar"))),
            ("Zm9vOm\r\nJhcg\n", Some(("foo", "bar"))),
            ("cGFudHM=", None),
            ("Zm9vOmJhcg== ", None),
            ("Zm9vOmJhcg=", None),
            ("pants", None),
            ("", None),
        ] {
            let expect = expect.map(|(user, password)| (user.to_owned(), password.to_owned()));
            assert_eq!(decoded(auth), expect, "{auth:?}");
        }
    }

    /// Source: `TestURLsMatch` and `TestIsDefaultRegistryMatch` of upstream's `pkg/credentialprovider`.
    #[test]
    fn keys_match_label_by_label() {
        for (key, repository, expect) in [
            ("*.k8s.io", "a.k8s.io", true),
            ("a.*.io", "a.k8s.io", true),
            ("a.k8s.*", "a.k8s.io", true),
            ("*-good.k8s.io", "a-good.k8s.io", true),
            ("*.k8s.io/blah", "a.k8s.io/blah", true),
            ("a.*.io/foo", "a.k8s.io/foo/bar", true),
            ("*.k8s.io:1111/blah", "a.k8s.io:1111/blah", true),
            ("a.*.io:1111/foo", "a.k8s.io:1111/foo/bar", true),
            ("*k8s.io", "k8s.io", true),
            ("*.*.*.k8s.io", "a.b.c.k8s.io", true),
            ("*.k8s.io", "k8s.io", false),
            ("*.*.k8s.io", "a.k8s.io", false),
            ("*.*.k8s.io", "k8s.io", false),
            ("*k8s.io", "a.k8s.io", false),
            ("k8s.io", "k8s.com", false),
            ("k*.io", "quay.io", false),
            ("*.k8s.io:1234/blah", "a.k8s.io:1111/blah", false),
            ("a.*.io/foo", "a.k8s.io:1111/foo/bar", false),
        ] {
            assert_eq!(matches(key, repository), expect, "{key} {repository}");
        }
        for (repository, expect) in [
            ("foo", true),
            ("foo/bar", true),
            ("docker.io/foo/bar", true),
            ("index.docker.io/foo/bar", true),
            ("", false),
            ("/foo", false),
            ("registry.tld/foo/bar", false),
            ("registry:5000/foo/bar", false),
            ("myhostdocker.io/foo/bar", false),
        ] {
            assert_eq!(is_default_registry(repository), expect, "{repository:?}");
        }
    }

    #[test]
    fn both_types_of_secrets_are_read() {
        let text = r#"{"r.example": {"auth": "dTpwOnE="}}"#;
        let keyring = Keyring::of(&[secret("dockercfg", ".dockercfg", text)]).unwrap();
        let found = keyring.lookup("r.example/a").remove(0);
        assert_eq!((found.auth.username.as_str(), found.auth.password.as_str()), ("u", "p:q"));
        assert_eq!(users(r#"{"r.example": {"auth": "%"}}"#, "r.example/a"), [""; 0]);
        assert!(Keyring::of(&[secret("dockercfg", ".dockercfg", "{")]).is_err());
        assert!(Keyring::of(&[secret("Opaque", ".dockercfg", "{")]).is_ok());
    }
}
