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

    /// The time now, to the microsecond.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::now(),
            Source::Manual(us) => {
                Timestamp::from_microsecond(us.load(Ordering::SeqCst)).unwrap_or(Timestamp::UNIX_EPOCH)
            }
        }
    }

    /// Moves a manual clock; the machine's clock is left alone.
    pub fn set(&self, now: Timestamp) {
        if let Source::Manual(us) = &self.0 {
            us.store(now.as_microsecond(), Ordering::SeqCst);
        }
    }
}
