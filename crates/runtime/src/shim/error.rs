//! The failures of a shim: its own, and those of a container or an exec that it starts.

use std::error::Error as StdError;

/// Why a shim could not start or go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot {doing}")]
    System { doing: &'static str, source: Box<dyn StdError + Send + Sync> },
}

pub(super) fn system<E: Into<Box<dyn StdError + Send + Sync>>>(
    doing: &'static str,
) -> impl FnOnce(E) -> Error {
    move |source| Error::System { doing, source: source.into() }
}

/// Why a container or an exec could not be started; `Display` is for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("cannot prepare the container's {what}")]
    Prepare { what: &'static str, source: Box<dyn StdError + Send + Sync> },
    #[error("OCI runtime create failed: unable to start container process: {0}")]
    Create(String),
    #[error("OCI runtime create failed: unable to start container process: error during container init: {0}")]
    Payload(String),
    #[error("OCI runtime exec failed: exec failed: unable to start container process: {0}")]
    Exec(String),
    #[error("OCI runtime {verb} failed: {message}")]
    External { verb: &'static str, message: String },
}

pub(super) fn prepare<E: Into<Box<dyn StdError + Send + Sync>>>(
    what: &'static str,
) -> impl FnOnce(E) -> StartError {
    move |source| StartError::Prepare { what, source: source.into() }
}
