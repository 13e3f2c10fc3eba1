//! Tokens in Secrets: what is known of their use, which a label of the Secret says by the day.
//!
//! Whoever is let in waits for nothing: what is new is written down by somebody else. Source: `pkg/serviceaccount/legacy.go`.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The label with the day on which the Secret's token was last used.
pub const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Since when the Secret's token is good for nothing.
pub(super) const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// How many Secrets are kept in mind; others are when they are used again.
const PENDING_MAX: usize = 1024;

/// A day as the labels say it.
pub fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

/// Whether a label says all that there is to say today. Servers' clocks differ, also about the day.
pub(super) fn is_current(last_used: &str, now: Timestamp) -> bool {
    last_used == day(now) || last_used == day(now + SignedDuration::from_hours(24))
}

/// Secrets whose tokens were used, until that is written down: by namespace and name.
#[derive(Debug, Default)]
pub struct Uses {
    pending: Mutex<BTreeSet<(String, String)>>,
    came: Notify,
}

impl Uses {
    pub(super) fn note(&self, namespace: &str, secret: &str) {
        let mut pending = self.pending.lock();
        if pending.len() < PENDING_MAX {
            pending.insert((namespace.to_owned(), secret.to_owned()));
        }
        drop(pending);
        self.came.notify_one();
    }

    /// Waits for some, and takes them.
    pub async fn next(&self) -> BTreeSet<(String, String)> {
        loop {
            let taken = std::mem::take(&mut *self.pending.lock());
            if !taken.is_empty() {
                return taken;
            }
            self.came.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_good_for_its_day_and_the_one_before() {
        let now: Timestamp = "2026-02-28T23:59:59Z".parse().unwrap();
        for (label, expect) in [
            ("2026-02-28", true),
            ("2026-03-01", true),
            ("2026-02-27", false),
            ("2026-03-02", false),
            ("", false),
            ("2026-02-28T00:00:00Z", false),
        ] {
            assert_eq!(is_current(label, now), expect, "{label}");
        }
    }

    #[tokio::test]
    async fn what_was_used_is_told_once_and_no_more_than_fits() {
        let uses = Uses::default();
        for secret in 0..PENDING_MAX + 5 {
            uses.note("a", &secret.to_string());
            uses.note("a", &secret.to_string());
        }
        assert_eq!(uses.next().await.len(), PENDING_MAX);
        uses.note("a", "b");
        assert_eq!(uses.next().await, BTreeSet::from([("a".to_owned(), "b".to_owned())]));
    }
}
