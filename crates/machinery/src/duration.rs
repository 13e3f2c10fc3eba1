//! Spans of time: for people (`5s`, `3m20s`, `7d2h`), and in Go's notation, which objects, requests and flags have.
//!
//! Source: `k8s.io/apimachinery/pkg/util/duration`, `HumanDuration`; Go's `time.ParseDuration`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
pub use schema::duration::{ParseError, format, parse};
use serde::{Deserialize, Serialize};

/// The age of something made at `since`; `<unknown>` without a time.
pub fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(|| "<unknown>".to_owned(), |since| human(now.as_second() - since.as_second()))
}

/// `seconds` in at most two units, coarser the longer it is.
pub fn human(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

fn two(first: i64, first_unit: &str, second: i64, second_unit: &str) -> String {
    if second == 0 {
        return format!("{first}{first_unit}");
    }
    format!("{first}{first_unit}{second}{second_unit}")
}

/// A duration of flags and options, as Go writes it; never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GoDuration(pub Duration);

/// The reason why a text is no such duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoDurationError {
    /// Go could not read it.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// It is before now.
    #[error("it must not be negative")]
    Negative,
}

impl FromStr for GoDuration {
    type Err = GoDurationError;

    fn from_str(text: &str) -> Result<Self, GoDurationError> {
        let nanoseconds = u64::try_from(parse(text)?).map_err(|_| GoDurationError::Negative)?;
        Ok(Self(Duration::from_nanos(nanoseconds)))
    }
}

impl TryFrom<String> for GoDuration {
    type Error = GoDurationError;

    fn try_from(text: String) -> Result<Self, GoDurationError> {
        text.parse()
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = i64::try_from(self.0.as_nanos()).unwrap_or(i64::MAX);
        f.write_str(&format(nanoseconds))
    }
}

impl From<GoDuration> for String {
    fn from(duration: GoDuration) -> Self {
        duration.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_get_coarser_as_they_grow() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3600 * 2, "120m"),
            (3600 * 3, "3h"),
            (3600 * 3 + 60, "3h1m"),
            (3600 * 8, "8h"),
            (3600 * 48, "2d"),
            (3600 * 49, "2d1h"),
            (86400 * 8, "8d"),
            (86400 * 730, "2y"),
            (86400 * 731, "2y1d"),
            (86400 * 365 * 8, "8y"),
            // Source: upstream's `duration_test.go`.
            (0, "0s"),
            (70, "70s"),
            (121, "2m1s"),
            (190, "3m10s"),
            (599, "9m59s"),
            (601, "10m"),
            (70 * 60, "70m"),
            (3 * 3600 - 1, "179m"),
            (8 * 3600 - 1, "7h59m"),
            (8 * 3600 + 59 * 60, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600 - 1, "47h"),
            (8 * 86400 - 1, "7d23h"),
            (8 * 86400 + 23 * 3600, "8d"),
            (367 * 86400, "367d"),
            (730 * 86400 - 1, "729d"),
            (731 * 86400 - 1, "2y"),
            (3 * 365 * 86400, "3y"),
            (8 * 365 * 86400 - 1, "7y364d"),
            (8 * 365 * 86400 + 364 * 86400, "8y"),
            (9 * 365 * 86400, "9y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn durations_are_gos() {
        let check = |text: &str, expect: Result<&str, &str>| {
            let read = text.parse::<GoDuration>().map(|duration| duration.to_string());
            let read = read.map_err(|error| error.to_string());
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
