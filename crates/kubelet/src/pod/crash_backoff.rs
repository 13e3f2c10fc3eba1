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

    /// What is waited at each look, and whether a container that is over by then is started: `-` if it is.
    fn waits(max: u64, looks: &[i64]) -> String {
        let mut backoff = CrashBackoff::with_max(Duration::from_secs(max));
        let mut ended = at(looks[0]);
        let waits = looks.iter().map(|look| match backoff.waiting(ended, at(*look)) {
            Some((delay, end)) => format!("{}<{}", delay.as_secs(), end.as_second()),
            None => {
                backoff.restarted(ended, at(*look));
                ended = at(*look);
                "-".to_owned()
            }
        });
        waits.collect::<Vec<_>>().join(" ")
    }

    /// Source: `backoff_test.go` of upstream's `k8s.io/client-go/util/flowcontrol`; KEP-4603 for the short ones.
    #[test]
    fn delays_grow_to_their_maximum_and_stay_there() {
        for (name, max, looks, expect) in [
            ("a look at the very end is no wait", 300, vec![0, 9, 10, 29, 30], "- 10<10 - 20<30 -"),
            ("the last delay stays", 40, vec![0, 10, 30, 70, 71, 110, 111], "- - - - 40<110 - 40<150"),
            ("no longer than the first", 10, vec![0, 1, 10, 11, 20, 21], "- 10<10 - 10<20 - 10<30"),
            ("shorter than the first", 1, vec![0, 0, 1, 1, 2], "- 1<1 - 1<2 -"),
            ("between two steps", 15, vec![0, 5, 10, 11, 25, 26], "- 10<10 - 15<25 - 15<40"),
        ] {
            assert_eq!(waits(max, &looks), expect, "{name}");
        }
    }

    #[test]
    fn only_a_run_of_more_than_twice_the_maximum_is_forgiven() {
        for (name, max, run, expect) in [
            ("none", 300, 0, Some(10)),
            ("as long as the maximum", 300, 300, Some(10)),
            ("twice", 300, 600, Some(10)),
            ("more than twice", 300, 601, None),
            ("twice of a short one", 20, 40, Some(10)),
            ("more than that", 20, 41, None),
            ("that ended before it was started, by a wrong clock", 300, -5, Some(10)),
        ] {
            let mut backoff = CrashBackoff::with_max(Duration::from_secs(max));
            backoff.restarted(at(1000), at(1000));
            let ended = at(1000 + run);
            let delay = backoff.waiting(ended, ended).map(|(delay, _)| delay.as_secs());
            assert_eq!(delay, expect, "{name}");
        }
    }
}
