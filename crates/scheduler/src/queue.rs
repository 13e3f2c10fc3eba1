//! Pods that wait for a Node: active (to be tried now), backing off, or unschedulable until something changes.
//!
//! Source: KEP-1819 and `pkg/scheduler/backend/queue`. Pure: time comes in as an argument.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;

const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Whatever happens, an unschedulable Pod is tried again after this long.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(5 * 60);

/// Higher priority first, then who came first.
type Rank = (Reverse<i32>, u64, String);

/// The three queues.
#[derive(Debug, Default)]
pub struct Queue {
    active: BTreeSet<Rank>,
    waiting: HashMap<String, Waiting>,
    timers: BTreeMap<(Timestamp, String), ()>,
    /// How many of the timers are of Pods that back off.
    backing_off: usize,
    counter: u64,
}

#[derive(Debug)]
struct Waiting {
    rank: Rank,
    state: State,
    attempts: u32,
    since: Timestamp,
}

/// How many Pods wait in each queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// To be tried now.
    pub active: usize,
    /// To be tried when their backoff is over.
    pub backoff: usize,
    /// To be tried when something changes.
    pub unschedulable: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    Popped,
    /// Tried again at this time.
    Backoff(Timestamp),
    /// Tried again at this time, or when something changes, but not while it backs off.
    Unschedulable {
        tried_at: Timestamp,
        until: Timestamp,
    },
}

impl Queue {
    /// Adds a Pod; one that waits already is tried again now.
    pub fn add(&mut self, key: &str, priority: i32, now: Timestamp) {
        let (attempts, since) = self.forget(key).unwrap_or((0, now));
        self.counter += 1;
        let rank = (Reverse(priority), self.counter, key.to_owned());
        self.active.insert(rank.clone());
        self.waiting.insert(key.to_owned(), Waiting { rank, state: State::Active, attempts, since });
    }

    /// Whether the Pod waits here.
    pub fn contains(&self, key: &str) -> bool {
        self.waiting.contains_key(key)
    }

    /// How often the Pod was tried, and since when it waits.
    pub fn history(&self, key: &str) -> Option<(u32, Timestamp)> {
        self.waiting.get(key).map(|waiting| (waiting.attempts, waiting.since))
    }

    /// Removes a Pod: bound, or gone.
    pub fn remove(&mut self, key: &str) {
        self.forget(key);
    }

    /// Takes the next Pod to try.
    pub fn pop(&mut self, now: Timestamp) -> Option<String> {
        self.promote_due(now);
        let rank = self.active.pop_first()?;
        if let Some(waiting) = self.waiting.get_mut(&rank.2) {
            waiting.state = State::Popped;
            waiting.attempts += 1;
        }
        Some(rank.2)
    }

    /// Puts a popped Pod away that no Node can take.
    pub fn unschedulable(&mut self, key: &str, now: Timestamp) {
        let until = now + UNSCHEDULABLE_MAX;
        self.park(key, State::Unschedulable { tried_at: now, until }, until);
    }

    /// Puts a popped Pod away that failed for a passing reason.
    pub fn back_off(&mut self, key: &str, now: Timestamp) {
        let Some(waiting) = self.waiting.get(key) else { return };
        let due = now + backoff(waiting.attempts);
        self.park(key, State::Backoff(due), due);
    }

    /// Something changed in the cluster: unschedulable Pods are tried again, after their backoff.
    pub fn cluster_changed(&mut self, now: Timestamp) {
        let mut moved: Vec<(Rank, Timestamp)> = Vec::new();
        for waiting in self.waiting.values() {
            if let State::Unschedulable { tried_at, .. } = waiting.state {
                moved.push((waiting.rank.clone(), tried_at + backoff(waiting.attempts)));
            }
        }
        for (rank, due) in moved {
            if due <= now {
                self.activate(&rank.2);
            } else {
                self.park(&rank.2, State::Backoff(due), due);
            }
        }
    }

    /// When a Pod is due next, if none is active.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timers.first_key_value().map(|((due, _), ())| *due)
    }

    /// How many Pods wait where.
    pub fn depths(&self) -> Depths {
        let unschedulable = self.timers.len() - self.backing_off;
        Depths { active: self.active.len(), backoff: self.backing_off, unschedulable }
    }

    fn promote_due(&mut self, now: Timestamp) {
        while let Some(((due, key), ())) = self.timers.first_key_value() {
            if *due > now {
                return;
            }
            let key = key.clone();
            self.activate(&key);
        }
    }

    fn activate(&mut self, key: &str) {
        self.unpark(key);
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.state = State::Active;
            self.active.insert(waiting.rank.clone());
        }
    }

    fn park(&mut self, key: &str, state: State, due: Timestamp) {
        self.unpark(key);
        if let Some(waiting) = self.waiting.get_mut(key) {
            self.active.remove(&waiting.rank);
            waiting.state = state;
            self.backing_off += usize::from(matches!(state, State::Backoff(_)));
            self.timers.insert((due, key.to_owned()), ());
        }
    }

    fn unpark(&mut self, key: &str) {
        let due = match self.waiting.get(key).map(|waiting| waiting.state) {
            Some(State::Backoff(due)) => {
                self.backing_off -= 1;
                due
            }
            Some(State::Unschedulable { until, .. }) => until,
            _ => return,
        };
        self.timers.remove(&(due, key.to_owned()));
    }

    fn forget(&mut self, key: &str) -> Option<(u32, Timestamp)> {
        self.unpark(key);
        let waiting = self.waiting.remove(key)?;
        self.active.remove(&waiting.rank);
        Some((waiting.attempts, waiting.since))
    }
}

fn backoff(attempts: u32) -> Duration {
    BACKOFF_FIRST
        .saturating_mul(1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX))
        .min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000 + seconds).expect("a time")
    }

    #[test]
    fn higher_priority_goes_first_then_who_came_first() {
        let mut queue = Queue::default();
        for (key, priority) in [("low", 0), ("high", 9), ("later", 0)] {
            queue.add(key, priority, at(0));
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(at(0))).collect();
        assert_eq!(order, ["high", "low", "later"]);
    }

    #[test]
    fn an_unschedulable_pod_waits_for_a_change_and_for_its_backoff() {
        let mut queue = Queue::default();
        queue.add("a", 0, at(0));
        assert_eq!(queue.pop(at(0)).as_deref(), Some("a"));
        queue.unschedulable("a", at(0));
        assert_eq!(queue.pop(at(5)), None);
        queue.cluster_changed(at(5));
        assert_eq!(queue.pop(at(5)).as_deref(), Some("a"), "its backoff of 1 s is over");
        queue.unschedulable("a", at(5));
        queue.cluster_changed(at(6));
        assert_eq!(queue.pop(at(6)), None, "the second backoff is 2 s");
        assert_eq!(queue.next_due(), Some(at(7)));
        assert_eq!(queue.pop(at(7)).as_deref(), Some("a"));
    }

    #[test]
    fn nothing_waits_for_ever() {
        let mut queue = Queue::default();
        queue.add("a", 0, at(0));
        queue.pop(at(0));
        queue.unschedulable("a", at(0));
        assert_eq!(queue.depths(), Depths { unschedulable: 1, ..Depths::default() });
        assert_eq!(queue.history("a"), Some((1, at(0))));
        assert_eq!(queue.pop(at(300)).as_deref(), Some("a"));
    }

    #[test]
    fn a_removed_pod_leaves_nothing_behind() {
        let mut queue = Queue::default();
        queue.add("a", 0, at(0));
        queue.pop(at(0));
        queue.back_off("a", at(0));
        queue.remove("a");
        assert_eq!((queue.pop(at(60)), queue.next_due(), queue.depths()), (None, None, Depths::default()));
    }
}
