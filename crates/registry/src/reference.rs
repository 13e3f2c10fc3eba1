//! Image references: `[registry/]repository[:tag][@digest]`.
//!
//! Short names are Docker's: `busybox` is `docker.io/library/busybox:latest`.
//! Source: the grammar and the error texts of the distribution project's `reference` package.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;

/// The registry of names that name none.
pub const DEFAULT_REGISTRY: &str = "docker.io";
/// The tag of references that have neither tag nor digest.
pub const DEFAULT_TAG: &str = "latest";
/// Longest repository. Source: `RepositoryNameTotalLengthMax`.
const NAME_MAX: usize = 255;
/// Longest tag.
const TAG_MAX: usize = 128;

/// A reference in its full form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Host and perhaps port.
    pub registry: String,
    /// Path in the registry.
    pub repository: String,
    /// The tag if it was given.
    pub tag: Option<String>,
    /// The digest if it was given; it wins over the tag.
    pub digest: Option<Digest>,
}

/// The reason why a text is no reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// It does not follow the grammar.
    #[error("invalid reference format")]
    Format,
    /// Only tags and registries may have capital letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// It begins with capital letters that no host's name has.
    #[error("repository name must be lowercase")]
    UppercasePath,
    /// It would be mistaken for an image's id.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Id(String),
    /// The repository is too long.
    #[error("repository name must not be more than {NAME_MAX} characters")]
    TooLong,
    /// The digest's algorithm is not known.
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
    /// The digest has not as many digits as its algorithm makes.
    #[error("invalid checksum digest length")]
    DigestLength,
    /// The digest has capital digits.
    #[error("invalid checksum digest format")]
    DigestFormat,
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Err(ReferenceError::Id(text.to_owned()));
        }
        let (registry, rest) = split_registry(text);
        let remote = rest.split(':').next().unwrap_or_default();
        if remote.to_lowercase() != remote {
            return Err(ReferenceError::Uppercase(remote.to_owned()));
        }
        let (path, digest) = match rest.split_once('@') {
            Some((path, digest)) => (path, Some(digest)),
            None => (rest.as_str(), None),
        };
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        if !is_repository(repository) || !tag.is_none_or(is_tag) || !digest.is_none_or(has_digest_form) {
            return Err(ReferenceError::Format);
        }
        let path_len = match (is_registry(&registry), is_component(&registry)) {
            (true, _) => repository.len(),
            // Such as `a_b.example`: no host's name by the grammar, but the first part of a path, and asked as a host.
            (false, true) => registry.len() + 1 + repository.len(),
            (false, false) if is_component(&registry.to_lowercase()) => {
                return Err(ReferenceError::UppercasePath);
            }
            (false, false) => return Err(ReferenceError::Format),
        };
        if path_len > NAME_MAX {
            return Err(ReferenceError::TooLong);
        }
        let digest = digest.map(|digest| digest.parse().map_err(|_| no_digest(digest))).transpose()?;
        Ok(Self { registry, repository: repository.to_owned(), tag: tag.map(str::to_owned), digest })
    }
}

impl Reference {
    /// Registry and repository, without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The name to ask the registry for: the digest, else the tag.
    pub fn target(&self) -> String {
        match &self.digest {
            Some(digest) => digest.to_string(),
            None => self.tag().to_owned(),
        }
    }

    /// The tag, `latest` if none was given.
    pub fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or(DEFAULT_TAG)
    }

    /// The same repository at a digest.
    pub fn at(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.name())
    }
}

/// Full, with either digest or tag: what an image is known by.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.digest {
            Some(digest) => write!(f, "{}@{digest}", self.name()),
            None => write!(f, "{}:{}", self.name(), self.tag()),
        }
    }
}

/// Source: `DigestRegexp`.
fn has_digest_form(text: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let is_hex = |digits: &str| digits.len() >= 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = text.split_once(':');
    parts.is_some_and(|(algorithm, hex)| is_hex(hex) && algorithm.split(['-', '_', '+', '.']).all(is_part))
}

/// Why a text of that form is no digest. Source: `Validate` of `opencontainers/go-digest`.
fn no_digest(text: &str) -> ReferenceError {
    let (algorithm, digits) = text.split_once(':').unwrap_or_default();
    match (algorithm, digits.len()) {
        ("sha256", 64) | ("sha384", 96) | ("sha512", 128) => ReferenceError::DigestFormat,
        ("sha256" | "sha384" | "sha512", _) => ReferenceError::DigestLength,
        _ => ReferenceError::DigestAlgorithm,
    }
}

fn split_registry(text: &str) -> (String, String) {
    let (registry, rest) = match text.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':']) || first == "localhost" || first.to_lowercase() != first =>
        {
            (first, rest)
        }
        _ => (DEFAULT_REGISTRY, text),
    };
    let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
    let rest = match registry == DEFAULT_REGISTRY && !rest.contains('/') && !rest.is_empty() {
        true => format!("library/{rest}"),
        false => rest.to_owned(),
    };
    (registry.to_owned(), rest)
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            // Any digits and colons: an address with a zone, or one of IPv4 inside, is none.
            Some((address, port)) if is_ipv6_like(address) => ("v6", port),
            _ => return false,
        },
        None => match text.find(':') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        },
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let is_port = |port: &str| {
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        port.is_empty() || port.strip_prefix(':').is_some_and(is_number)
    };
    host.split('.').all(is_label) && is_port(port)
}

fn is_ipv6_like(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
}

fn is_repository(text: &str) -> bool {
    !text.is_empty() && text.split('/').all(is_component)
}

/// Lower case letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_component(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = text.split(is_word).filter(|part| !part.is_empty());
    text.starts_with(is_word)
        && text.ends_with(is_word)
        && separators.into_iter().all(|s| matches!(s, "." | "_" | "__") || s.chars().all(|c| c == '-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= TAG_MAX
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
}

#[cfg(test)]
mod tests;
