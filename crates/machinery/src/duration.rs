//! Spans of time: for people (`5s`, `3m20s`, `7d2h`), and in Go's notation, which objects, requests and flags have.
//!
//! Source: `k8s.io/apimachinery/pkg/util/duration`, `HumanDuration`; Go's `time.ParseDuration`.

use jiff::Timestamp;
pub use schema::duration::{ParseError, format, parse};

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
        ];
        for (seconds, text) in cases {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
