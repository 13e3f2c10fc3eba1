//! A limit on how often something begins: a token bucket. Pure.

use jiff::{SignedDuration, Timestamp};

/// A bucket of as many tokens as there may be at once, filled at a steady rate.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Nanoseconds that a token takes to come.
    interval: i128,
    /// How far ahead of time the tokens that were taken may reach, in nanoseconds.
    reach: i128,
    /// When all tokens will have come back, in nanoseconds since the epoch.
    full_at: i128,
}

impl Bucket {
    /// A full bucket of `burst` tokens, into which one comes every `interval`.
    #[must_use]
    pub fn new(interval: SignedDuration, burst: u32) -> Self {
        let interval = interval.as_nanos();
        Self { interval, reach: interval * i128::from(burst), full_at: i128::MIN }
    }

    /// Takes a token; false if there is none at `now`.
    pub fn take(&mut self, now: Timestamp) -> bool {
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
mod tests;
