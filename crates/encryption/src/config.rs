//! Upstream's EncryptionConfiguration: which kinds are encrypted, by whom, with which keys.
//!
//! Nothing here prints a secret. Source: `apiserver.config.k8s.io/v1`.

pub mod validation;

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::duration::GoDuration;
use machinery::field::FieldErrors;
use serde::{Deserialize, Deserializer};

use crate::kms::health::Unhealthy;

/// The version of the file.
pub const API_VERSION: &str = "apiserver.config.k8s.io/v1";
/// The kind of the file.
pub const KIND: &str = "EncryptionConfiguration";
/// The API of a KMS plugin, if the file does not say.
const VERSION_DEFAULT: &str = "v1";
/// How long a KMS plugin gets, if the file does not say.
const TIMEOUT_DEFAULT: &str = "3s";

/// A group and a resource; either may be `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// `""` is core.
    pub group: String,
    /// The plural.
    pub resource: String,
}

impl GroupResource {
    /// Reads `secrets`, `deployments.apps`, `*.`, `*.apps` or `*.*`. Source: `schema.ParseGroupResource`.
    pub fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { group: group.to_owned(), resource: resource.to_owned() }
    }
}

impl fmt::Display for GroupResource {
    /// As the file has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.resource.as_str(), self.group.as_str()) {
            ("*", "") => f.write_str("*."),
            (resource, "") => f.write_str(resource),
            (resource, group) => write!(f, "{resource}.{group}"),
        }
    }
}

/// The reason why a configuration cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is nothing in the file.
    #[error("encryption provider configuration file is empty")]
    Empty,
    /// It is no EncryptionConfiguration.
    #[error("no kind {kind:?} is registered for version {version:?}; it must be {KIND} of {API_VERSION}")]
    Kind {
        /// What it says.
        kind: String,
        /// What it says.
        version: String,
    },
    /// It cannot be read, or has fields that are unknown.
    #[error("error decoding encryption provider configuration: {0}")]
    Decode(String),
    /// Every broken rule.
    #[error("{}", aggregate(.0))]
    Invalid(FieldErrors),
    /// Two rules about one kind, of which the second would never count.
    #[error("resource {rule:?} is masked by earlier rule {earlier:?}")]
    Masked {
        /// The later one.
        rule: String,
        /// The earlier one.
        earlier: String,
    },
    /// KMS v1 is not there.
    #[error(
        "the KMS provider {0:?} has apiVersion v1: KMSv1 is deprecated and not supported. Use KMSv2 instead: \
         apiVersion: v2"
    )]
    KmsV1(String),
    /// The plugins of a new configuration are not well; the old one stays.
    #[error("health check for new transformers failed: {0}")]
    Unhealthy(Unhealthy),
}

fn aggregate(errors: &FieldErrors) -> String {
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// A configuration that keeps every rule.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) resources: Vec<ResourceConfiguration>,
    /// Tells two files apart.
    pub(crate) text_hash: [u8; 32],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    resources: Option<Vec<ResourceConfiguration>>,
}

#[derive(Deserialize)]
struct TypeMeta {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
}

/// Some kinds, and who encrypts them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceConfiguration {
    /// `secrets`, `deployments.apps`, `*.apps`, `*.`, `*.*`.
    #[serde(deserialize_with = "or_null")]
    pub resources: Vec<String>,
    /// The first one writes.
    #[serde(deserialize_with = "or_null")]
    pub providers: Vec<ProviderConfiguration>,
}

/// One provider; exactly one field is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfiguration {
    /// AES in Galois/Counter mode.
    pub aesgcm: Option<Keys>,
    /// AES in CBC mode.
    pub aescbc: Option<Keys>,
    /// XSalsa20 and Poly1305.
    pub secretbox: Option<Keys>,
    /// No encryption.
    pub identity: Option<Identity>,
    /// A plugin that keeps the keys.
    pub kms: Option<Kms>,
}

/// The keys of a provider; the first one writes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keys {
    /// In order.
    #[serde(deserialize_with = "or_null")]
    pub keys: Vec<Key>,
}

/// A key.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Key {
    /// Stands in every value that is written with it.
    #[serde(deserialize_with = "or_null")]
    pub name: String,
    /// Base64.
    #[serde(deserialize_with = "or_null")]
    pub secret: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Key {
    /// The key's bytes; `None` unless it is base64.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        // Go's decoder skips line ends.
        let text: String = self.secret.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
        STANDARD.decode(text).ok()
    }
}

/// Nothing to set.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Identity {}

/// A plugin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kms {
    /// `v1` or `v2`; `v1` if not given.
    #[serde(rename = "apiVersion", deserialize_with = "version_or_default")]
    pub api_version: String,
    /// Stands in every value.
    #[serde(deserialize_with = "or_null")]
    pub name: String,
    /// For v1 only.
    pub cachesize: Option<i32>,
    /// `unix:///run/kms.sock`
    #[serde(deserialize_with = "or_null")]
    pub endpoint: String,
    /// The time that the plugin gets to answer.
    #[serde(deserialize_with = "timeout_or_default")]
    pub timeout: String,
}

impl Default for Kms {
    fn default() -> Self {
        Self {
            api_version: VERSION_DEFAULT.to_owned(),
            name: String::new(),
            cachesize: None,
            endpoint: String::new(),
            timeout: TIMEOUT_DEFAULT.to_owned(),
        }
    }
}

impl Kms {
    /// `None` unless it is a duration that is not negative.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.parse().ok().map(|GoDuration(timeout)| timeout)
    }

    /// The same for a configuration that keeps every rule.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.timeout().unwrap_or(Duration::from_secs(3))
    }
}

/// Null is as good as nothing, as in Go.
fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Also no text is none. Source: `SetDefaults_KMSConfiguration`.
fn version_or_default<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let given = Option::<String>::deserialize(from)?.filter(|version| !version.is_empty());
    Ok(given.unwrap_or_else(|| VERSION_DEFAULT.to_owned()))
}

fn timeout_or_default<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_else(|| TIMEOUT_DEFAULT.to_owned()))
}

impl Config {
    /// Reads a file, YAML or JSON, and checks it. `is_reloaded`: whether it will be read again while the server runs.
    ///
    /// # Errors
    /// As [`ConfigError`], with every broken rule.
    pub fn parse(text: &[u8], is_reloaded: bool) -> Result<Self, ConfigError> {
        if text.is_empty() {
            return Err(ConfigError::Empty);
        }
        let decode = |failure: String| ConfigError::Decode(failure);
        let yaml = std::str::from_utf8(text).map_err(|failure| decode(failure.to_string()))?;
        // The values of a file with keys in it must not get into messages: only where it is broken is told.
        let place = |failure: serde_saphyr::Error| decode(describe(&failure));
        let meta: TypeMeta = serde_saphyr::from_str(yaml).map_err(place)?;
        if meta.api_version != API_VERSION || meta.kind != KIND {
            return Err(ConfigError::Kind { kind: meta.kind, version: meta.api_version });
        }
        let file: File = serde_saphyr::from_str(yaml).map_err(place)?;
        let resources = file.resources.unwrap_or_default();
        let errors = validation::validate(&resources, is_reloaded);
        if !errors.is_empty() {
            return Err(ConfigError::Invalid(errors));
        }
        check_masks(&resources)?;
        for kms in
            resources.iter().flat_map(|rule| &rule.providers).filter_map(|provider| provider.kms.as_ref())
        {
            if kms.api_version == "v1" {
                return Err(ConfigError::KmsV1(kms.name.clone()));
            }
        }
        let digest = ring::digest::digest(&ring::digest::SHA256, text);
        let text_hash = digest.as_ref().try_into().unwrap_or_default();
        Ok(Self { resources, text_hash })
    }

    /// The kind of provider that writes a resource of the core group; `None` if it is stored as it is.
    pub fn writes(&self, resource: &str) -> Option<&'static str> {
        let is_meant = |text: &String| {
            let rule = GroupResource::parse(text);
            let is_any = rule.resource == "*" && matches!(rule.group.as_str(), "" | "*");
            is_any || (rule.group.is_empty() && rule.resource == resource)
        };
        let rule = self.resources.iter().find(|rule| rule.resources.iter().any(is_meant))?;
        let provider = rule.providers.first()?;
        let kinds = [
            ("aesgcm", provider.aesgcm.is_some()),
            ("aescbc", provider.aescbc.is_some()),
            ("secretbox", provider.secretbox.is_some()),
            ("kms", provider.kms.is_some()),
        ];
        kinds.into_iter().find_map(|(name, is_set)| is_set.then_some(name))
    }
}

/// The first line of an error, which says what is wrong and where; the lines after it show the file.
fn describe(failure: &serde_saphyr::Error) -> String {
    let text = failure.without_snippet().to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// A rule that would never count is a mistake. Source: `getTransformerOverridesAndKMSPluginProbes`.
fn check_masks(rules: &[ResourceConfiguration]) -> Result<(), ConfigError> {
    let mut seen: Vec<GroupResource> = Vec::new();
    for text in rules.iter().flat_map(|rule| &rule.resources) {
        let rule = GroupResource::parse(text);
        let any = |group: &str| GroupResource { group: group.to_owned(), resource: "*".to_owned() };
        for earlier in [any(&rule.group), any("*")] {
            if seen.contains(&earlier) {
                return Err(ConfigError::Masked { rule: rule.to_string(), earlier: earlier.to_string() });
            }
        }
        seen.push(rule);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
