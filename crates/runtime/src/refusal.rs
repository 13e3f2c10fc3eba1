//! The reasons why a sandbox or a container cannot be made as it is asked for.

use cri::CriError;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The obstacle to what was asked for. A Pod's events show it with its causes, in the words of containerd or runc where they have some.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The request says what nobody can carry out.
    #[error("{0}")]
    Invalid(String),
    /// This runtime, or this host, does not do it.
    #[error("{0}")]
    Unsupported(String),
    /// Something that is named is not there.
    #[error("{0}")]
    Missing(String),
    /// What is mounted on the host cannot be read.
    #[error(transparent)]
    Mounts(sys::Error),
    /// A step towards it failed.
    #[error("{doing}")]
    Step {
        /// The step, with what it was about.
        doing: String,
        /// The reason.
        source: Cause,
    },
}

impl Refusal {
    /// For `map_err`.
    pub(crate) fn step<E: Into<Cause>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        |source| Self::Step { doing: doing.into(), source: source.into() }
    }
}

impl From<Refusal> for CriError {
    fn from(refusal: Refusal) -> Self {
        Self::InvalidArgument(base::error_chain(&refusal))
    }
}
