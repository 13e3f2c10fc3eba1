//! When a container that ended may be started again.
//!
//! The first restart is immediate; then 10 s, doubling to 300 s; a run of twice the maximum starts over.
//! Source: `flowcontrol.Backoff` and `kuberuntime.doBackOff` of upstream.

use std::time::Duration;

use jiff::Timestamp;

use crate::snapshot::after;

/// The first delay.
pub const FIRST: Duration = Duration::from_secs(10);
/// The longest delay.
pub const MAX: Duration = Duration::from_secs(300);

/// How often one container has come and gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrashBackoff {
    delay: Option<Duration>,
    updated_at: Timestamp,
    max: Option<Duration>,
}

impl CrashBackoff {
    /// One that never waits longer than `max`.
    pub fn with_max(max: Duration) -> Self {
        Self { max: Some(max), ..Self::default() }
    }

    fn max(&self) -> Duration {
        self.max.unwrap_or(MAX)
    }

    /// The delay in force and its end, if a container that ended at `finished_at` must still wait at `now`.
    pub fn waiting(&self, finished_at: Timestamp, now: Timestamp) -> Option<(Duration, Timestamp)> {
        let delay = self.delay.filter(|_| !self.is_expired(finished_at))?;
        let end = after(finished_at, delay);
        (now < end).then_some((delay, end))
    }

    /// Notes that a container that ended at `finished_at` is started again at `now`.
    pub fn restarted(&mut self, finished_at: Timestamp, now: Timestamp) {
        self.delay = Some(match self.delay.filter(|_| !self.is_expired(finished_at)) {
            Some(delay) => (delay * 2).min(self.max()),
            None => FIRST.min(self.max()),
        });
        self.updated_at = now;
    }

    fn is_expired(&self, finished_at: Timestamp) -> bool {
        finished_at > after(self.updated_at, self.max() * 2)
    }
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

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_first_restart_is_immediate_and_delays_double_to_the_maximum() {
        let mut backoff = CrashBackoff::default();
        assert_eq!(backoff.waiting(at(1000), at(1000)), None);
        let mut time = 1000;
        for expected in [10, 20, 40, 80, 160, 300, 300] {
            backoff.restarted(at(time), at(time));
            time += 1;
            let (delay, end) = backoff.waiting(at(time), at(time)).unwrap();
            assert_eq!((delay.as_secs(), end), (expected, at(time + i64::try_from(expected).unwrap())));
            time += i64::try_from(expected).unwrap();
            assert_eq!(backoff.waiting(at(time - i64::try_from(expected).unwrap()), at(time)), None);
        }
    }

    #[test]
    fn a_long_run_starts_over() {
        let mut backoff = CrashBackoff::default();
        backoff.restarted(at(0), at(0));
        assert_eq!(backoff.waiting(at(601), at(601)), None);
        backoff.restarted(at(601), at(601));
        assert_eq!(backoff.waiting(at(602), at(602)).map(|w| w.0), Some(FIRST));
    }

    #[test]
    fn durations_print_as_in_go() {
        for (seconds, text) in [(10, "10s"), (80, "1m20s"), (300, "5m0s"), (3600, "1h0m0s")] {
            assert_eq!(go_duration(Duration::from_secs(seconds)), text);
        }
    }
}
