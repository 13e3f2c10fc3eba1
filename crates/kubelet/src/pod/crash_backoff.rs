//! When a container that ended may be started again.
//!
//! The first restart is immediate; then 10 s, doubling to 300 s; a run of twice the maximum starts over.
//! Source: `flowcontrol.Backoff` and `kuberuntime.doBackOff` of upstream.

use std::time::Duration;

use jiff::Timestamp;

use crate::config::CRASH_LOOP_MAX;
use crate::pod::time::after;

/// The first delay.
pub const FIRST: Duration = Duration::from_secs(10);

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
        self.max.unwrap_or(CRASH_LOOP_MAX)
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
}
