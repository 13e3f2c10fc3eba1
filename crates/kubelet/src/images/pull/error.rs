//! Why a Pod does not have an image; in upstream's words, for its status.

use std::fmt;

use cri::CriError;

use super::keyring::SecretError;
use crate::pod::failure_reason::FailureReason;
use crate::volumes::objects::NotSynced;

/// What stood in the way; [`PullError::reason`] is what the container waits for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    /// The name is none.
    #[error("Failed to apply default image tag \"{image}\": couldn't parse image name \"{image}\": {source}")]
    Name { image: String, source: registry::reference::ReferenceError },
    /// The runtime does not say whether it is there.
    #[error("Failed to inspect image \"{image}\": {source}")]
    Inspect { image: String, source: CriError },
    /// It is not there, or the Pod has no right to it, and nobody may ask for it.
    #[error("Container image \"{0}\" is not present with pull policy of Never")]
    Never(String),
    /// The Pod's pull secrets are not known.
    #[error(transparent)]
    Secrets(#[from] NotSynced),
    /// One of them is not what its type says.
    #[error(transparent)]
    Credentials(#[from] SecretError),
    /// The runtime has said which of the cases it is that have a reason of their own.
    #[error("image pull failed for {image} because {}{rest}", special.meaning)]
    Special { image: String, special: &'static Special, rest: String },
    /// The runtime has not pulled it.
    #[error(transparent)]
    Pull(#[from] Attempts),
}

impl PullError {
    /// What a failed pull stands for.
    pub(super) fn of(image: &str, attempts: Attempts) -> Self {
        let said = attempts.to_string();
        let special =
            |special: &'static Special| Some((special, said.strip_prefix(special.reason.as_str())?));
        match SPECIAL.iter().find_map(special) {
            Some((special, rest)) => {
                Self::Special { image: image.to_owned(), special, rest: rest.to_owned() }
            }
            None => Self::Pull(attempts),
        }
    }

    /// The reason in the container's status.
    pub(crate) fn reason(&self) -> FailureReason {
        match self {
            Self::Name { .. } => FailureReason::InvalidImageName,
            Self::Inspect { .. } => FailureReason::ImageInspectError,
            Self::Never(_) => FailureReason::ErrImageNeverPull,
            Self::Special { special, .. } => special.reason,
            Self::Secrets(_) | Self::Credentials(_) | Self::Pull(_) => FailureReason::ErrImagePull,
        }
    }
}

/// A case that a runtime's error begins with. Over CRI that is all that tells it from others. Source:
/// `k8s.io/cri-api/pkg/errors`.
#[derive(Debug)]
pub(crate) struct Special {
    reason: FailureReason,
    meaning: &'static str,
}

static SPECIAL: [Special; 2] = [
    Special { reason: FailureReason::RegistryUnavailable, meaning: "the registry is unavailable" },
    Special { reason: FailureReason::SignatureValidationFailed, meaning: "the signature validation failed" },
];

/// What became of each try, with one credential after the other.
#[derive(Debug)]
pub(crate) struct Attempts(pub(super) Vec<AttemptError>);

/// What became of one try.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    /// Others were pulled a moment ago.
    #[error("pull QPS exceeded")]
    RateExceeded,
    /// The runtime refuses.
    #[error(transparent)]
    Runtime(#[from] CriError),
}

impl fmt::Display for Attempts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        all.dedup();
        match all.as_slice() {
            [one] => out.write_str(one),
            several => write!(out, "[{}]", several.join(", ")),
        }
    }
}

impl std::error::Error for Attempts {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtimes_errors_have_upstreams_reasons() {
        for (error, reason, message) in [
            ("x: not found", "ErrImagePull", "x: not found"),
            (
                "RegistryUnavailable: no route",
                "RegistryUnavailable",
                "image pull failed for i because the registry is unavailable: no route",
            ),
            (
                "SignatureValidationFailed",
                "SignatureValidationFailed",
                "image pull failed for i because the signature validation failed",
            ),
        ] {
            let attempts = Attempts(vec![CriError::Internal(error.to_owned()).into()]);
            let found = PullError::of("i", attempts);
            assert_eq!((found.reason().as_str(), found.to_string().as_str()), (reason, message));
        }
    }

    #[test]
    fn equal_tries_are_told_once() {
        let refused = || AttemptError::from(CriError::Internal("no".to_owned()));
        assert_eq!(Attempts(vec![refused(), refused()]).to_string(), "no");
        assert_eq!(
            Attempts(vec![refused(), AttemptError::RateExceeded]).to_string(),
            "[no, pull QPS exceeded]"
        );
    }
}
