//! Exponential backoff with seeded jitter.

use std::time::Duration;

use crate::Random;

/// A delay that grows from `first` by doubling up to `max`; `reset` after success.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    jitter: f64,
    next: Duration,
}

impl Backoff {
    /// `jitter` is the largest share that is added on top, `0.0` for none.
    pub fn new(first: Duration, max: Duration, jitter: f64) -> Self {
        Self { first, max, jitter, next: first }
    }

    /// The delay before the next try.
    pub fn next(&mut self, random: &Random) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.max);
        delay.mul_f64(1.0 + self.jitter * random.unit())
    }

    /// Starts over from the first delay.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests;
