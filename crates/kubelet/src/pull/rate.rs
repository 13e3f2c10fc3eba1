//! How many pulls begin in a while: what is too many is refused, not held up. Pure.
//!
//! Source: `throttleImagePulling` in `pkg/kubelet/images/helpers.go` of upstream, and its token bucket.

use jiff::Timestamp;

use crate::config::PullRate;

/// A bucket of as many tokens as there may be pulls at once, filled at a steady rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Nanoseconds that a token takes to come.
    interval: i128,
    /// How far ahead of time the tokens that were taken may reach, in nanoseconds.
    reach: i128,
    /// When all tokens will have come back, in nanoseconds since the epoch.
    full_at: i128,
}

impl Bucket {
    pub(super) fn new(rate: PullRate) -> Self {
        let interval = 1_000_000_000 / i128::from(rate.per_second.max(1));
        Self { interval, reach: interval * i128::from(rate.burst), full_at: i128::MIN }
    }

    /// Takes a token; false if there is none at `now`.
    pub(super) fn take(&mut self, now: Timestamp) -> bool {
        let now = now.as_nanosecond();
        let full_at = self.full_at.max(now) + self.interval;
        let there_is = full_at - now <= self.reach;
        if there_is {
            self.full_at = full_at;
        }
        there_is
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_then_as_they_come_back() {
        let mut bucket = Bucket::new(PullRate { per_second: 2, burst: 3 });
        let mut taken = |milliseconds: i64| bucket.take(Timestamp::from_millisecond(milliseconds).unwrap());
        let results: Vec<bool> =
            [0, 0, 0, 0, 499, 500, 500, 10_000, 10_000, 10_000, 10_000].map(&mut taken).into();
        let expect = [true, true, true, false, false, true, false, true, true, true, false];
        assert_eq!(results, expect);
        let mut closed = Bucket::new(PullRate { per_second: 2, burst: 0 });
        assert!(!closed.take(Timestamp::UNIX_EPOCH));
    }
}
