//! How soon something is done again that somebody else keeps undoing.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Backoff, Random};

/// A brake that lets the first go soon, and each that follows ever later, until there has been peace for a while.
#[derive(Clone, Debug)]
pub struct Brake {
    backoff: Backoff,
    peace: Duration,
    last: Option<Instant>,
}

impl Brake {
    /// The pauses are those of `backoff`; after `peace` without one they begin anew.
    pub fn new(backoff: Backoff, peace: Duration) -> Self {
        Self { backoff, peace, last: None }
    }

    /// The time to wait now.
    pub fn next(&mut self, now: Instant, random: &Random) -> Duration {
        if self.last.is_none_or(|last| now.duration_since(last) >= self.peace) {
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
    fn pauses_grow_while_there_is_no_peace() {
        let seconds = Duration::from_secs;
        let mut brake = Brake::new(Backoff::new(seconds(1), seconds(4), 0.0), seconds(60));
        let (begun, random) = (Instant::now(), Random::seeded(1));
        let mut pauses = Vec::new();
        for at in [0, 5, 10, 73, 140] {
            pauses.push(brake.next(begun + seconds(at), &random).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 4, 1]);
    }
}
