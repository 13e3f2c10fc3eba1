//! How images are pulled, and who may use those that are here, under the names of upstream's `KubeletConfiguration`.

use registry::Reference;
use registry::reference::ReferenceError;

/// What bounds pulls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePulls {
    /// Most pulls at the same time; `None` for any number. Source: `serializeImagePulls`, which is 1 and upstream's
    /// default, and `maxParallelImagePulls`.
    pub at_once: Option<u32>,
    /// Most pulls in a while; `None` for any number. Source: `registryPullQPS`, `registryBurst`.
    pub rate: Option<PullRate>,
    /// Source: `imagePullCredentialsVerificationPolicy`.
    pub verification: Verification,
}

/// So many pulls a second, and so many at once before that counts. Source: `registryPullQPS`, `registryBurst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullRate {
    /// At least 1.
    pub per_second: u32,
    /// 0 lets nothing through.
    pub burst: u32,
}

/// For which images on the node a Pod has to prove that a registry would give them to it (KEP-2535).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// For none.
    NeverVerify,
    /// For those that this kubelet has pulled.
    NeverVerifyPreloadedImages,
    /// For all but these.
    NeverVerifyAllowlistedImages(Vec<Allowed>),
    /// For all.
    AlwaysVerify,
}

/// An entry of `preloadedImagesVerificationAllowlist`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// An image's name, without tag and digest.
    Name(String),
    /// What a name begins with; ends in `/`.
    Prefix(String),
}

impl Default for ImagePulls {
    fn default() -> Self {
        Self {
            at_once: Some(1),
            rate: Some(PullRate { per_second: 5, burst: 10 }),
            verification: Verification::NeverVerifyPreloadedImages,
        }
    }
}

impl Verification {
    /// Whether a Pod that wants `name`, which has neither tag nor digest, must prove that it may have it.
    pub(crate) fn is_needed(&self, name: &str, was_pulled: bool) -> bool {
        match self {
            Self::NeverVerify => false,
            Self::NeverVerifyPreloadedImages => was_pulled,
            Self::NeverVerifyAllowlistedImages(allowed) => !allowed.iter().any(|it| it.matches(name)),
            Self::AlwaysVerify => true,
        }
    }

    /// As the configuration has it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::NeverVerify => "NeverVerify",
            Self::NeverVerifyPreloadedImages => "NeverVerifyPreloadedImages",
            Self::NeverVerifyAllowlistedImages(_) => "NeverVerifyAllowlistedImages",
            Self::AlwaysVerify => "AlwaysVerify",
        }
    }
}

impl Allowed {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(allowed) => name == allowed,
            Self::Prefix(prefix) => name.starts_with(prefix),
        }
    }
}

/// The reason why a text names no images.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// It has spaces around it.
    #[error("leading/trailing spaces are not allowed: {0}")]
    Spaces(String),
    /// It names nothing.
    #[error("the supplied pattern is too short: {0}")]
    TooShort(String),
    /// A star stands somewhere else than at the end.
    #[error("not a valid wildcard pattern, only patterns ending with '/*' are allowed: {0}")]
    Wildcard(String),
    /// It is a star alone.
    #[error("at least registry hostname is required")]
    NoHost,
    /// It is no name.
    #[error("failed to parse as an image name: {0}")]
    NoName(#[from] ReferenceError),
    /// It is more than a name.
    #[error("neither tag nor digest is accepted in an image reference: {0}")]
    TagOrDigest(String),
}

impl std::str::FromStr for Allowed {
    type Err = PatternError;

    fn from_str(pattern: &str) -> Result<Self, PatternError> {
        if pattern != pattern.trim() {
            return Err(PatternError::Spaces(pattern.to_owned()));
        }
        let (name, is_prefix) = match pattern.strip_suffix("/*") {
            Some(_) => (pattern.trim_end_matches('*'), true),
            None => (pattern, false),
        };
        if name.is_empty() {
            return Err(PatternError::TooShort(pattern.to_owned()));
        }
        if name.contains('*') {
            return Err(PatternError::Wildcard(pattern.to_owned()));
        }
        if is_prefix {
            let is_host = name.len() > 1;
            return is_host.then(|| Self::Prefix(name.to_owned())).ok_or(PatternError::NoHost);
        }
        let reference: Reference = name.parse()?;
        if reference.name() != name {
            return Err(PatternError::TagOrDigest(pattern.to_owned()));
        }
        Ok(Self::Name(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowlist_has_whole_names_and_whole_folders() {
        for (pattern, expect) in [
            ("r.example/a", Ok(())),
            ("r.example/*", Ok(())),
            (" r.example/a", Err("leading/trailing spaces are not allowed:  r.example/a")),
            ("", Err("the supplied pattern is too short: ")),
            (
                "r.example/*/a",
                Err(
                    "not a valid wildcard pattern, only patterns ending with '/*' are allowed: r.example/*/a",
                ),
            ),
            ("/*", Err("at least registry hostname is required")),
            ("r.example/a:1", Err("neither tag nor digest is accepted in an image reference: r.example/a:1")),
        ] {
            let parsed = pattern.parse::<Allowed>().map(drop).map_err(|error| error.to_string());
            assert_eq!(parsed, expect.map_err(str::to_owned), "{pattern}");
        }
    }

    #[test]
    fn each_policy_asks_for_proof_as_upstreams() {
        let allowed = ["r.example/a", "r.example/team/*"].map(|it| it.parse().unwrap());
        let listed = Verification::NeverVerifyAllowlistedImages(allowed.to_vec());
        for (policy, name, was_pulled, expect) in [
            (&Verification::NeverVerify, "r.example/b", true, false),
            (&Verification::NeverVerifyPreloadedImages, "r.example/b", true, true),
            (&Verification::NeverVerifyPreloadedImages, "r.example/b", false, false),
            (&Verification::AlwaysVerify, "r.example/a", false, true),
            (&listed, "r.example/a", true, false),
            (&listed, "r.example/ab", false, true),
            (&listed, "r.example/team/x/y", true, false),
            (&listed, "r.example/teams", false, true),
        ] {
            assert_eq!(policy.is_needed(name, was_pulled), expect, "{} {name}", policy.name());
        }
    }
}
