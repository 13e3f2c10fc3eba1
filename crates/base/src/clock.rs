//! The wall clock as a value that is handed down.
//!
//! Monotonic waiting is tokio's timer, which tests can pause; this is only for time that users see
//! (`creationTimestamp`, leases, certificates).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// A source of wall-clock time. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<AtomicI64>),
    /// Microseconds since the epoch when tokio's timer stood at the instant.
    Simulated(tokio::time::Instant, Arc<AtomicI64>),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still until [`Clock::set`] moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicI64::new(start.as_microsecond()))))
    }

    /// A clock that goes with tokio's timer, and so stands still or leaps with a paused one, until [`Clock::set`] moves
    /// it: time in a simulation.
    pub fn simulated(start: Timestamp) -> Self {
        let us = Arc::new(AtomicI64::new(start.as_microsecond()));
        Self(Source::Simulated(tokio::time::Instant::now(), us))
    }

    /// The time now, to the microsecond.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::now(),
            Source::Manual(us) => timestamp(us.load(Ordering::SeqCst)),
            Source::Simulated(begun, us) => {
                timestamp(us.load(Ordering::SeqCst).saturating_add(microseconds(*begun)))
            }
        }
    }

    /// Moves a manual or simulated clock; the machine's clock is left alone.
    pub fn set(&self, now: Timestamp) {
        match &self.0 {
            Source::System => {}
            Source::Manual(us) => us.store(now.as_microsecond(), Ordering::SeqCst),
            Source::Simulated(begun, us) => {
                us.store(now.as_microsecond().saturating_sub(microseconds(*begun)), Ordering::SeqCst);
            }
        }
    }
}

fn timestamp(us: i64) -> Timestamp {
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Of tokio's timer since `begun`.
fn microseconds(begun: tokio::time::Instant) -> i64 {
    i64::try_from(begun.elapsed().as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_goes_with_the_timer_and_can_be_set() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::simulated(start);
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T00:01:30Z");
        clock.set(start);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T00:00:05Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_manual_clock_stands_still_until_whoever_shares_it_moves_it() {
        let start: Timestamp = "2026-01-01T00:00:00.123456789Z".parse().unwrap();
        let clock = Clock::manual(start);
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T00:00:00.123456Z", "to the microsecond");
        clock.clone().set("1969-12-31T23:59:59Z".parse().unwrap());
        assert_eq!(clock.now().to_string(), "1969-12-31T23:59:59Z");
        let system = Clock::system();
        system.set(start);
        assert!(system.now() != start, "the machine's is nobody's to move");
    }
}
