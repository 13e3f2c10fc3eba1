//! Durations on the command line, as Go's flags have them: `1m30s`, `1500ms`. None is negative.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A duration that is written as Go writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GoDuration(pub Duration);

impl FromStr for GoDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let nanoseconds = machinery::duration::parse(text).map_err(|error| error.to_string())?;
        let nanoseconds = u64::try_from(nanoseconds).map_err(|_| "it must not be negative".to_owned())?;
        Ok(Self(Duration::from_nanos(nanoseconds)))
    }
}

impl TryFrom<String> for GoDuration {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = i64::try_from(self.0.as_nanos()).unwrap_or(i64::MAX);
        f.write_str(&machinery::duration::format(nanoseconds))
    }
}

impl From<GoDuration> for String {
    fn from(duration: GoDuration) -> Self {
        duration.to_string()
    }
}

/// For flags whose value nobody writes again.
///
/// # Errors
/// Why it is none.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    text.parse().map(|GoDuration(duration)| duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        let check = |text: &str, expect: Result<&str, &str>| {
            let read = text.parse::<GoDuration>().map(|duration| duration.to_string());
            assert_eq!(read.as_deref().map_err(String::as_str), expect, "{text}");
        };
        check("15s", Ok("15s"));
        check("1m30s", Ok("1m30s"));
        check("0.5s", Ok("500ms"));
        check("15", Err("time: missing unit in duration \"15\""));
        check("-2s", Err("it must not be negative"));
        check("soon", Err("time: invalid duration \"soon\""));
    }
}
