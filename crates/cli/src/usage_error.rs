//! What a wrong command line ends with.

/// Flags that are wrong: what the command line ends with, exit code 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);
