//! Durations in configuration files, in Go's notation.

use std::time::Duration;

/// What is wrong with a duration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DurationError {
    #[error(transparent)]
    Notation(#[from] schema::duration::ParseError),
    #[error("{0:?} must not be negative")]
    Negative(String),
}

/// A duration in Go's notation, not negative.
///
/// # Errors
/// It is none.
pub(crate) fn duration(text: &str) -> Result<Duration, DurationError> {
    let nanos = schema::duration::parse(text)?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| DurationError::Negative(text.to_owned()))
}
