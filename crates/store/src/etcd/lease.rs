//! Leases for what expires, shared: a lease costs etcd more than the key that it is for.
//!
//! Source: upstream's `etcd3/lease_manager.go`, which shares a lease among 1,000 objects within a minute or 5 % of
//! their time to live.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Keys that share a lease.
const KEYS_MAX: u32 = 1000;
/// The longest time in which a lease is shared.
const REUSE_SECONDS_MAX: u32 = 60;

/// A lease that is still shared.
#[derive(Clone, Copy, Debug)]
struct Shared {
    id: i64,
    until: Instant,
    keys: u32,
}

/// The newest lease of every time to live that is in use.
#[derive(Default)]
pub(super) struct Leases {
    shared: Mutex<HashMap<u32, Shared>>,
}

impl Leases {
    /// The lease for one more key with this time to live, if there is one that can be shared.
    pub(super) fn shared(&self, ttl_seconds: u32, now: Instant) -> Option<i64> {
        let mut leases = self.shared.lock();
        let lease = leases.get_mut(&ttl_seconds)?;
        if now >= lease.until || lease.keys >= KEYS_MAX {
            return None;
        }
        lease.keys += 1;
        Some(lease.id)
    }

    /// What to ask etcd for, so that the last key that shares the lease lives as long as it should.
    pub(super) fn granted_seconds(ttl_seconds: u32) -> u32 {
        ttl_seconds.saturating_add(reuse_seconds(ttl_seconds))
    }

    /// Takes a lease that etcd has granted for a key just now.
    pub(super) fn add(&self, ttl_seconds: u32, id: i64, now: Instant) {
        let until = now + Duration::from_secs(u64::from(reuse_seconds(ttl_seconds)));
        self.shared.lock().insert(ttl_seconds, Shared { id, until, keys: 1 });
    }

    /// Forgets a lease that etcd does not know any more.
    pub(super) fn forget(&self, id: i64) {
        self.shared.lock().retain(|_, lease| lease.id != id);
    }
}

fn reuse_seconds(ttl_seconds: u32) -> u32 {
    (ttl_seconds / 20).min(REUSE_SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_shared_within_its_time_and_number() {
        let (leases, now) = (Leases::default(), Instant::now());
        assert_eq!(leases.shared(3600, now), None);
        leases.add(3600, 7, now);
        let later = now + Duration::from_secs(59);
        assert_eq!(leases.shared(3600, later), Some(7));
        assert_eq!(leases.shared(600, later), None, "another time to live");
        assert_eq!(leases.shared(3600, now + Duration::from_secs(60)), None, "too late");
        for _ in 0..KEYS_MAX - 2 {
            assert_eq!(leases.shared(3600, now), Some(7));
        }
        assert_eq!(leases.shared(3600, now), None, "too many");
        leases.add(3600, 8, now);
        leases.forget(8);
        assert_eq!(leases.shared(3600, now), None, "forgotten");
    }

    #[test]
    fn short_leases_are_not_shared_and_long_ones_last_long_enough_for_all() {
        assert_eq!([1, 19, 600, 3600].map(Leases::granted_seconds), [1, 19, 630, 3660]);
        assert_eq!(Leases::granted_seconds(u32::MAX), u32::MAX);
    }

    /// Source: `TestGetReuseDurationSeconds` of upstream's `etcd3`.
    #[test]
    fn a_lease_is_shared_for_as_long_as_upstream_shares_it() {
        for (ttl_seconds, expect) in [(3600, 60), (1000, 50), (1200, 60), (1199, 59), (20, 1), (0, 0)] {
            assert_eq!(reuse_seconds(ttl_seconds), expect, "{ttl_seconds}");
        }
    }

    #[test]
    fn each_time_to_live_has_a_lease_of_its_own_and_the_newest_counts() {
        let (leases, now) = (Leases::default(), Instant::now());
        leases.add(3600, 1, now);
        leases.add(1000, 2, now);
        leases.add(3600, 3, now);
        assert_eq!((leases.shared(3600, now), leases.shared(1000, now)), (Some(3), Some(2)));
        leases.forget(1);
        assert_eq!(leases.shared(3600, now), Some(3), "an older one is forgotten already");
        leases.forget(3);
        assert_eq!((leases.shared(3600, now), leases.shared(1000, now)), (None, Some(2)));
        // Those that are too short are never shared.
        leases.add(19, 4, now);
        assert_eq!(leases.shared(19, now), None);
    }
}
