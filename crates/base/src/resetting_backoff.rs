//! How soon something is done again that somebody else keeps undoing.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Backoff, Random};

/// A backoff that lets the first go soon, and each that follows ever later, until there has been none for a while. Source:
/// the `resetDuration` of client-go's `BackoffManager`.
#[derive(Clone, Debug)]
pub struct ResettingBackoff {
    backoff: Backoff,
    reset_after: Duration,
    last: Option<Instant>,
}

impl ResettingBackoff {
    /// The pauses are those of `backoff`; after `reset_after` without one they begin anew.
    pub fn new(backoff: Backoff, reset_after: Duration) -> Self {
        Self { backoff, reset_after, last: None }
    }

    /// The time to wait now.
    pub fn next(&mut self, now: Instant, random: &Random) -> Duration {
        if self.last.is_none_or(|last| now.duration_since(last) >= self.reset_after) {
            self.backoff.reset();
        }
        let pause = self.backoff.next(random);
        self.last = Some(now + pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_there_has_been_none_for_a_while() {
        let seconds = Duration::from_secs;
        let mut backoff = ResettingBackoff::new(Backoff::new(seconds(1), seconds(4), 0.0), seconds(60));
        let (begun, random) = (Instant::now(), Random::seeded(1));
        let mut pauses = Vec::new();
        for at in [0, 5, 10, 73, 140] {
            pauses.push(backoff.next(begun + seconds(at), &random).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 4, 1]);
    }
}
