//! Arithmetic on the times that Pods carry. Pure.

use std::time::Duration;

use jiff::Timestamp;

/// `time` plus `delay`; stays at `time` if that leaves the calendar.
pub fn after(time: Timestamp, delay: Duration) -> Timestamp {
    time.checked_add(delay).unwrap_or(time)
}

/// CRI's nanoseconds since the epoch.
pub fn nanos(value: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(value)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// API times have no fraction.
pub(crate) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A duration as Go prints it: `10s`, `1m20s`, `5m0s`.
pub fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_as_in_go() {
        for (seconds, text) in [(10, "10s"), (80, "1m20s"), (300, "5m0s"), (3600, "1h0m0s")] {
            assert_eq!(go_duration(Duration::from_secs(seconds)), text);
        }
    }
}
