//! `registries.yaml`: mirrors of registries, and credentials and TLS of hosts, in the form that k3s has.
//!
//! ```yaml
//! mirrors:
//!   docker.io:
//!     endpoint: ["https://mirror.example:5000"]
//!     rewrite: {"^library/(.*)": "proxy/$1"}
//! configs:
//!   "mirror.example:5000":
//!     auth: {username: u, password: p}
//!     tls: {ca_file: /etc/ssl/mirror.crt}
//! ```
//!
//! Source: k3s' documentation of the private registry configuration. A registry's own host is asked after its mirrors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::auth::{BadAuth, Credentials};
use crate::error::Error;
use crate::reference::{DEFAULT_REGISTRY, Reference};

/// Where `docker.io` really is.
const DOCKER_HUB: &str = "registry-1.docker.io";
/// The mirror of every registry that has none of its own.
const WILDCARD: &str = "*";

/// The file's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Registries {
    /// By registry, as image names have it; `*` for all others.
    pub mirrors: BTreeMap<String, Mirror>,
    /// By host, with its port if it has one.
    pub configs: BTreeMap<String, Host>,
}

/// Another host that has a registry's images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mirror {
    /// URLs, asked in this order.
    #[serde(alias = "endpoints")]
    pub endpoint: Vec<String>,
    /// Regular expressions and what they are replaced by, in the repositories that mirrors are asked for.
    #[serde(alias = "rewrites")]
    pub rewrite: BTreeMap<String, String>,
}

/// The settings of connections to one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// The client's identity.
    pub auth: Option<Auth>,
    /// The TLS settings.
    pub tls: Option<Tls>,
}

/// Credentials.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// A name.
    #[serde(deserialize_with = "or_null")]
    pub username: String,
    /// Its password.
    #[serde(deserialize_with = "or_null")]
    pub password: String,
    /// `username:password` in base 64.
    #[serde(deserialize_with = "or_null")]
    pub auth: String,
    /// A refresh token.
    #[serde(alias = "identitytoken", deserialize_with = "or_null")]
    pub identity_token: String,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Auth(...)")
    }
}

/// Trust.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Authorities beside the host's own, PEM.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show, PEM.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    /// Takes any certificate.
    #[serde(deserialize_with = "or_null")]
    pub insecure_skip_verify: bool,
}

/// A field without a value is as good as none, as in Go.
fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// One place to ask for a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `http` or `https`.
    pub scheme: String,
    /// Host and perhaps port.
    pub authority: String,
    /// The API's root, such as `/v2`.
    pub path: String,
    /// The repository's name there.
    pub repository: String,
    /// The registry itself, and no mirror.
    pub is_origin: bool,
}

impl Endpoint {
    /// The URL of something in the repository: `manifests/latest`, `blobs/sha256:...`.
    pub fn url(&self, what: &str) -> String {
        format!("{}://{}{}/{}/{what}", self.scheme, self.authority, self.path, self.repository)
    }
}

/// What is wrong with the file.
#[derive(Debug, thiserror::Error)]
enum ConfigError {
    #[error("{}", one_line(&.0.to_string()))]
    Yaml(#[from] serde_saphyr::Error),
    #[error("mirrors[{0}].endpoint[{1}]: {2:?} must be a URL")]
    Endpoint(String, usize, String),
    #[error("mirrors[{0}].rewrite: {1:?} must be a regular expression")]
    Rewrite(String, String),
    #[error("configs[{0}].tls: cert_file and key_file must be given together")]
    HalfIdentity(String),
    #[error("configs[{0}].auth: {1}")]
    Auth(String, BadAuth),
}

impl Registries {
    /// Reads the file; none is as good as an empty one.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong; the text names the field.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Error::io(format!("read {}", path.display()))(error)),
        };
        Self::parse(&text).map_err(|error| Error::Config(format!("{}: {error}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, ConfigError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let registries: Self = serde_saphyr::from_str(text)?;
        for (name, mirror) in &registries.mirrors {
            for (n, endpoint) in mirror.endpoint.iter().enumerate() {
                let no_url = || ConfigError::Endpoint(name.clone(), n, endpoint.clone());
                parse_url(endpoint, "https").ok_or_else(no_url)?;
            }
            for pattern in mirror.rewrite.keys() {
                regex::Regex::new(pattern)
                    .map_err(|_| ConfigError::Rewrite(name.clone(), pattern.clone()))?;
            }
        }
        for (name, host) in &registries.configs {
            let tls = host.tls.clone().unwrap_or_default();
            if tls.cert_file.is_some() != tls.key_file.is_some() {
                return Err(ConfigError::HalfIdentity(name.clone()));
            }
            let auth = host.auth.clone().unwrap_or_default();
            Credentials::from_parts(&auth.username, &auth.password, &auth.auth, &auth.identity_token, "")
                .map_err(|error| ConfigError::Auth(name.clone(), error))?;
        }
        Ok(registries)
    }

    /// Files that the settings name.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let tls = self.configs.values().filter_map(|host| host.tls.as_ref());
        tls.flat_map(|tls| [&tls.ca_file, &tls.cert_file, &tls.key_file]).flatten().map(PathBuf::as_path)
    }

    /// The hosts to ask for what `reference` names, in this order: mirrors, then the registry itself.
    pub fn endpoints(&self, reference: &Reference) -> Vec<Endpoint> {
        let registry = reference.registry.as_str();
        let mirror = self.mirrors.get(registry).or_else(|| self.mirrors.get(WILDCARD));
        let origin = self.origin(reference);
        let mut endpoints = Vec::new();
        for url in mirror.iter().flat_map(|mirror| &mirror.endpoint) {
            let Some((scheme, authority, path)) = parse_url(url, "") else { continue };
            let scheme = if scheme.is_empty() { self.default_scheme(&authority) } else { scheme };
            let is_origin = authority == origin.authority && path == origin.path;
            let rewrite = mirror.filter(|_| !is_origin).map(|mirror| &mirror.rewrite);
            let repository = rewritten(&reference.repository, rewrite);
            let endpoint = Endpoint { scheme, authority, path, repository, is_origin };
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        if !endpoints.iter().any(|endpoint| endpoint.is_origin) {
            endpoints.push(origin);
        }
        endpoints
    }

    fn origin(&self, reference: &Reference) -> Endpoint {
        let authority = match reference.registry.as_str() {
            DEFAULT_REGISTRY => DOCKER_HUB.to_owned(),
            other => other.to_owned(),
        };
        Endpoint {
            scheme: self.default_scheme(&authority),
            authority,
            path: "/v2".into(),
            repository: reference.repository.clone(),
            is_origin: true,
        }
    }

    /// TLS, except for this host itself, as containerd does: unless there are settings for TLS, or it is port 443.
    fn default_scheme(&self, authority: &str) -> String {
        let has_tls = self.host(authority).is_some_and(|host| host.tls.is_some());
        let is_plain = is_this_host(authority) && !has_tls && port(authority) != Some("443");
        if is_plain { "http".into() } else { "https".into() }
    }

    /// The settings of a host.
    pub fn host(&self, authority: &str) -> Option<&Host> {
        let alias = (authority == DOCKER_HUB).then_some(DEFAULT_REGISTRY);
        self.configs.get(authority).or_else(|| self.configs.get(alias?))
    }

    /// The credentials of a host.
    ///
    /// # Errors
    /// They make no sense.
    pub fn credentials(&self, authority: &str) -> Result<Option<Credentials>, Error> {
        let Some(auth) = self.host(authority).and_then(|host| host.auth.as_ref()) else { return Ok(None) };
        Credentials::from_parts(&auth.username, &auth.password, &auth.auth, &auth.identity_token, "")
            .map_err(|error| Error::Config(format!("configs[{authority}].auth: {error}")))
    }
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_end_matches(':').to_owned()
}

fn rewritten(repository: &str, rules: Option<&BTreeMap<String, String>>) -> String {
    for (pattern, replacement) in rules.into_iter().flatten() {
        let Ok(pattern) = regex::Regex::new(pattern) else { continue };
        let changed = pattern.replace_all(repository, replacement);
        if changed != repository {
            return changed.into_owned();
        }
    }
    repository.to_owned()
}

/// Scheme, authority and path of a mirror's URL; a path of its own takes the place of `/v2`.
fn parse_url(text: &str, default_scheme: &str) -> Option<(String, String, String)> {
    let (scheme, rest) = text.split_once("://").unwrap_or((default_scheme, text));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority: http::uri::Authority = authority.parse().ok()?;
    if !matches!(scheme, "http" | "https" | "") || authority.as_str().contains('@') {
        return None;
    }
    let path = path.trim_end_matches('/');
    if path.contains(['?', '#']) || path.split('/').any(|part| part == "..") {
        return None;
    }
    let path = if path.is_empty() { "/v2" } else { path };
    Some((scheme.to_owned(), authority.as_str().to_owned(), path.to_owned()))
}

fn port(authority: &str) -> Option<&str> {
    let after_host = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest);
    after_host.rsplit_once(':').map(|(_, port)| port)
}

fn is_this_host(authority: &str) -> bool {
    let host = match port(authority) {
        Some(port) => authority.get(..authority.len() - port.len() - 1).unwrap_or_default(),
        None => authority,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
