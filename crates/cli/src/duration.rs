//! Durations on the command line, as Go's flags have them: `1m30s`, `1500ms`. None is negative.

use std::time::Duration;

pub use machinery::duration::{GoDuration, GoDurationError};

/// For flags whose value nobody writes again.
///
/// # Errors
/// Why it is none.
pub(crate) fn duration(text: &str) -> Result<Duration, GoDurationError> {
    text.parse().map(|GoDuration(duration)| duration)
}
