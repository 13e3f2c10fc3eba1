//! The reasons why something did not come from a registry.

use std::io;

use crate::digest::DigestError;
use crate::reference::ReferenceError;

/// The reason why something did not come from a registry.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image's name cannot be parsed.
    #[error("cannot parse {name:?}")]
    Reference {
        /// What was given.
        name: String,
        /// What is wrong with it.
        #[source]
        source: ReferenceError,
    },
    /// The registry's settings are wrong.
    #[error("{0}")]
    Config(String),
    /// The registry has no such thing.
    #[error("{0}: not found")]
    NotFound(String),
    /// The registry, or its token service, does not let us.
    #[error("{0}")]
    Denied(String),
    /// Nobody answers, or only errors that may pass: another try may help.
    #[error("{0}")]
    Unavailable(String),
    /// An answer that the specification does not foresee.
    #[error("{0}")]
    Unexpected(String),
    /// Content that its digest does not fit.
    #[error("{what} is damaged: it is {actual}, not {expected}")]
    Digest {
        /// Of which thing.
        what: String,
        /// By its name.
        expected: String,
        /// By its content.
        actual: String,
    },
    /// A document that is none, or of a kind that is not supported.
    #[error("invalid {what}: {why}")]
    Invalid {
        /// Which document.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Larger than it said, or than is accepted.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// What.
        what: String,
        /// The bound.
        limit: u64,
    },
    /// The disk failed.
    #[error("cannot {doing}")]
    Io {
        /// What was attempted.
        doing: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    pub(crate) fn invalid(what: impl Into<String>, why: impl ToString) -> Self {
        Self::Invalid { what: what.into(), why: why.to_string() }
    }

    /// The same, said of a larger undertaking.
    #[must_use]
    pub fn within(self, doing: &str) -> Self {
        let wrap = |text: String| format!("{doing}: {text}");
        match self {
            Self::Config(text) => Self::Config(wrap(text)),
            Self::NotFound(text) => Self::NotFound(wrap(text)),
            Self::Denied(text) => Self::Denied(wrap(text)),
            Self::Unavailable(text) => Self::Unavailable(wrap(text)),
            Self::Unexpected(text) => Self::Unexpected(wrap(text)),
            other => other,
        }
    }

    /// `true` if trying again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl From<DigestError> for Error {
    fn from(error: DigestError) -> Self {
        Self::invalid("digest", error)
    }
}
