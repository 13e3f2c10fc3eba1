//! The retries of a call that failed, for those who want them: admission does not.
//!
//! Source: `WithExponentialBackoff` and `DefaultShouldRetry` of `k8s.io/apiserver/pkg/util/webhook`, `retryOnError` of
//! `plugin/pkg/audit/webhook`.

use std::time::Duration;

use base::Random;

use super::CallError;

/// How often one call is made.
const TRIES_MAX: u32 = 5;
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.2;

/// The failures that are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// What may go better in a moment.
    Transient,
    /// Everything.
    Always,
}

/// The tries of one call.
#[derive(Debug)]
pub struct Retries {
    retry: Retry,
    delay: Duration,
    tries_left: u32,
}

impl Retries {
    /// The first try is under way; the second one will be after `first`.
    pub fn new(retry: Retry, first: Duration) -> Self {
        Self { retry, delay: first, tries_left: TRIES_MAX - 1 }
    }

    /// The wait before the next try; `None` if there is none.
    pub fn next(&mut self, failure: &CallError, random: &Random) -> Option<Duration> {
        if self.retry == Retry::Transient && !failure.is_transient() {
            return None;
        }
        self.tries_left = self.tries_left.checked_sub(1)?;
        let delay = self.delay.mul_f64(1.0 + JITTER * random.unit());
        self.delay = self.delay.mul_f64(GROWTH);
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_end() {
        let random = Random::seeded(1);
        let failure = CallError::unreadable("nonsense");
        let mut never = Retries::new(Retry::Transient, Duration::from_secs(1));
        assert_eq!(never.next(&failure, &random), None);
        let mut always = Retries::new(Retry::Always, Duration::from_secs(1));
        let delays: Vec<Duration> = std::iter::from_fn(|| always.next(&failure, &random)).collect();
        assert_eq!(delays.len(), 4);
        for (delay, least) in delays.iter().zip([1.0, 1.5, 2.25, 3.375]) {
            assert!((least..least * 1.2).contains(&delay.as_secs_f64()), "{delays:?}");
        }
    }
}
