//! The garbage collector's memory of kinds that come and go: owners that it saw go, and who waits for a kind.
//!
//! Both are short cuts. An owner that is forgotten is asked for, and who waits looks again now and then by itself.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use controller::Informers;
use parking_lot::Mutex;

/// Owners that were seen to go; the oldest are forgotten first. Source: upstream's `absentOwnerCache` keeps 500.
const GONE_MAX: usize = 10_000;
/// Keys that wait for kinds.
const WAITING_MAX: usize = 10_000;

/// Group, kind and uid.
type Identity = (String, String, String);

#[derive(Default)]
pub(super) struct Memory(Mutex<Known>);

#[derive(Default)]
struct Known {
    gone: HashSet<Identity>,
    by_age: VecDeque<Identity>,
    /// By group and kind.
    waiting: BTreeMap<(String, String), BTreeSet<String>>,
    waiting_count: usize,
}

impl Memory {
    pub(super) fn of(informers: &Informers) -> Arc<Self> {
        informers.setting_or(Self::default)
    }

    /// An object was deleted: a uid never comes again.
    pub(super) fn saw_go(&self, group: &str, kind: &str, uid: &str) {
        let identity = (group.to_owned(), kind.to_owned(), uid.to_owned());
        let mut known = self.0.lock();
        if !known.gone.insert(identity.clone()) {
            return;
        }
        known.by_age.push_back(identity);
        while known.by_age.len() > GONE_MAX {
            let Some(oldest) = known.by_age.pop_front() else { return };
            known.gone.remove(&oldest);
        }
    }

    /// Whether this object was seen to go.
    pub(super) fn has_gone(&self, group: &str, kind: &str, uid: &str) -> bool {
        let identity = (group.to_owned(), kind.to_owned(), uid.to_owned());
        self.0.lock().gone.contains(&identity)
    }

    /// `key` has an owner of a kind that nobody knows.
    pub(super) fn wait(&self, group: &str, kind: &str, key: &str) {
        let mut known = self.0.lock();
        if known.waiting_count >= WAITING_MAX {
            return;
        }
        let keys = known.waiting.entry((group.to_owned(), kind.to_owned())).or_default();
        if keys.insert(key.to_owned()) {
            known.waiting_count += 1;
        }
    }

    /// Whoever waits for a kind; they wait no more.
    pub(super) fn take_waiting(&self, group: &str, kind: &str) -> Vec<String> {
        let mut known = self.0.lock();
        let keys = known.waiting.remove(&(group.to_owned(), kind.to_owned())).unwrap_or_default();
        known.waiting_count -= keys.len();
        keys.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_is_known_by_all_of_its_identity_until_too_many_went_after_it() {
        let memory = Memory::default();
        memory.saw_go("g", "K", "u");
        memory.saw_go("g", "K", "u");
        for (group, kind, uid, expect) in
            [("g", "K", "u", true), ("h", "K", "u", false), ("g", "L", "u", false), ("g", "K", "v", false)]
        {
            assert_eq!(memory.has_gone(group, kind, uid), expect, "{group} {kind} {uid}");
        }
        for number in 1..GONE_MAX {
            memory.saw_go("g", "K", &number.to_string());
        }
        assert!(memory.has_gone("g", "K", "u"));
        memory.saw_go("g", "K", "one more");
        assert!(!memory.has_gone("g", "K", "u") && memory.has_gone("g", "K", "1"));
    }

    #[test]
    fn those_who_wait_for_a_kind_are_named_once_and_bounded() {
        let memory = Memory::default();
        for key in ["b", "a", "b"] {
            memory.wait("g", "K", key);
        }
        memory.wait("g", "L", "c");
        assert_eq!(memory.take_waiting("g", "K"), ["a", "b"]);
        assert!(memory.take_waiting("g", "K").is_empty());
        for number in 0..2 * WAITING_MAX {
            memory.wait("g", "K", &number.to_string());
        }
        // One place is taken by `c`.
        assert_eq!(memory.take_waiting("g", "K").len(), WAITING_MAX - 1);
        assert_eq!(memory.take_waiting("g", "L"), ["c"]);
    }
}
