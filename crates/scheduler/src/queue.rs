//! Pods that wait for a Node: active (to be tried now), backing off, or unschedulable until something helps.
//!
//! An unschedulable Pod is found by the plugins that refused it, so that what happens costs nothing for those whom it
//! cannot help. While nothing is active the first of those that back off is tried early; not so after an error, which
//! trying again does not mend. While others are made to go for a Pod it is held: what happens meanwhile is kept in mind.
//! Nothing happens while a Pod is being tried: decisions are made between two changes, so none is missed.
//! Source: KEP-1819, KEP-4247, KEP-4832, KEP-5142 and `pkg/scheduler/backend/queue`. Pure: time comes in as an argument.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;

/// Whatever happens, an unschedulable Pod is tried again after this long. Source: `DefaultPodMaxInUnschedulablePodsDuration`.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(5 * 60);

/// Higher priority first, then who came first.
type Rank = (Reverse<i32>, u64, String);

/// The plugins that refused a Pod; none after an error.
pub type Rejectors = BTreeSet<&'static str>;

/// The time for which a Pod that was tried is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first attempt. Source: `podInitialBackoffSeconds`.
    pub first: Duration,
    /// At most. Source: `podMaxBackoffSeconds`.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), max: Duration::from_secs(10) }
    }
}

impl Backoff {
    fn after(self, attempts: u32) -> Duration {
        let factor = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.max)
    }
}

/// The three queues.
#[derive(Debug, Default)]
pub struct Queue {
    backoff: Backoff,
    active: BTreeSet<Rank>,
    /// Those that back off after a refusal, by the second in which that ends.
    backing_off: BTreeSet<(i64, Rank)>,
    waiting: HashMap<String, Waiting>,
    /// When those that are not active are due.
    timers: BTreeSet<(Timestamp, String)>,
    /// The unschedulable, by the plugins that refused them.
    refused_by: BTreeMap<&'static str, BTreeSet<String>>,
    /// How many are unschedulable.
    unschedulable: usize,
    /// How many Pods came into which queue, by what made them come.
    incoming: BTreeMap<(&'static str, &'static str), u64>,
    counter: u64,
}

#[derive(Debug)]
struct Waiting {
    rank: Rank,
    state: State,
    attempts: u32,
    /// Attempts that ended in a refusal, and errors since the last one.
    refusals: u32,
    errors: u32,
    rejectors: Rejectors,
    since: Timestamp,
    /// Whether the Pod is due to time alone.
    is_flushed: bool,
    held: Held,
}

/// Whether others are being made to go for the Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    No,
    Yes,
    /// They are, and this has happened meanwhile.
    Missed(&'static str),
}

/// The number of Pods in each queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// To be tried now.
    pub active: usize,
    /// To be tried when their backoff is over.
    pub backoff: usize,
    /// To be tried when something changes.
    pub unschedulable: usize,
}

/// The history of a Pod's attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The number of attempts.
    pub attempts: u32,
    /// Since when it waits.
    pub since: Timestamp,
    /// `true` if the last attempt was due to time alone: nothing that happened was thought to help.
    pub is_flushed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    Popped,
    /// Tried again at this time.
    Backoff(Timestamp),
    /// Tried again at `until`, or when something helps, but not while it backs off.
    Unschedulable {
        due: Timestamp,
        until: Timestamp,
    },
}

impl Queue {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, ..Self::default() }
    }

    /// Adds a Pod; one that waits already is tried again now. `event` is why, for the count.
    pub fn add(&mut self, key: &str, priority: i32, (event, now): (&'static str, Timestamp)) {
        let known = self.forget(key);
        let rank = (Reverse(priority), self.next(), key.to_owned());
        let new = Waiting {
            rank: rank.clone(),
            state: State::Active,
            attempts: 0,
            refusals: 0,
            errors: 0,
            rejectors: Rejectors::new(),
            since: now,
            is_flushed: false,
            held: Held::No,
        };
        let waiting = match known {
            Some(known) => Waiting { rank: rank.clone(), state: State::Active, is_flushed: false, ..known },
            None => new,
        };
        self.active.insert(rank);
        self.came("active", event);
        self.waiting.insert(key.to_owned(), waiting);
    }

    /// `true` if the Pod waits here.
    pub fn contains(&self, key: &str) -> bool {
        self.waiting.contains_key(key)
    }

    /// The history of the Pod's attempts.
    pub fn history(&self, key: &str) -> Option<History> {
        let waiting = self.waiting.get(key)?;
        Some(History { attempts: waiting.attempts, since: waiting.since, is_flushed: waiting.is_flushed })
    }

    /// Removes a Pod: bound, or gone.
    pub fn remove(&mut self, key: &str) {
        self.forget(key);
    }

    /// Takes the next Pod to try.
    pub fn pop(&mut self, now: Timestamp) -> Option<String> {
        self.promote_due(now);
        if self.active.is_empty()
            && let Some((_, rank)) = self.backing_off.first().cloned()
        {
            self.activate(&rank.2, "PopFromBackoffQ");
        }
        let rank = self.active.pop_first()?;
        if let Some(waiting) = self.waiting.get_mut(&rank.2) {
            waiting.state = State::Popped;
            waiting.attempts += 1;
        }
        Some(rank.2)
    }

    /// Puts a popped Pod away that these plugins have refused.
    pub fn unschedulable(&mut self, key: &str, rejectors: Rejectors, now: Timestamp) {
        self.lift(key);
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        waiting.refusals += 1;
        waiting.errors = 0;
        waiting.is_flushed = false;
        waiting.rejectors = rejectors;
        let due = now + self.backoff.after(waiting.refusals);
        self.behind(key);
        let until = now + UNSCHEDULABLE_MAX;
        self.park(key, State::Unschedulable { due, until });
        self.came("unschedulable", ATTEMPT_FAILURE);
    }

    /// Puts a popped Pod away that failed for a passing reason.
    pub fn back_off(&mut self, key: &str, now: Timestamp) {
        self.lift(key);
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        waiting.errors += 1;
        waiting.is_flushed = false;
        waiting.rejectors.clear();
        let due = now + self.backoff.after(waiting.errors);
        self.behind(key);
        self.park(key, State::Backoff(due));
        self.came("backoff", ATTEMPT_FAILURE);
    }

    /// The plugins that refused the Pod when it was last tried.
    pub fn rejectors(&self, key: &str) -> Rejectors {
        self.waiting.get(key).map(|waiting| waiting.rejectors.clone()).unwrap_or_default()
    }

    /// The unschedulable Pods, by the plugins that have refused them.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, impl Iterator<Item = &str>)> {
        self.refused_by.iter().map(|(plugin, keys)| (*plugin, keys.iter().map(String::as_str)))
    }

    /// Something has happened that helps this Pod if it is unschedulable: it is tried again, after its backoff.
    pub fn wake(&mut self, key: &str, event: &'static str, now: Timestamp) {
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        let State::Unschedulable { due, .. } = waiting.state else { return };
        if waiting.held != Held::No {
            waiting.held = Held::Missed(event);
        } else if due <= now {
            self.activate(key, event);
        } else {
            self.park(key, State::Backoff(due));
            self.came("backoff", event);
        }
    }

    /// Has a Pod tried at once, whatever it waits for, unless others are made to go for it. Source: `Activate`.
    pub fn activate_now(&mut self, key: &str) {
        const EVENT: &str = "ForceActivate";
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        match (waiting.state, waiting.held) {
            (State::Active | State::Popped, _) => {}
            (_, Held::No) => self.activate(key, EVENT),
            (_, Held::Yes | Held::Missed(_)) => waiting.held = Held::Missed(EVENT),
        }
    }

    /// Nothing wakes this Pod until it is let go, but for the longest time that a Pod is left alone.
    pub fn hold(&mut self, key: &str) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.held = Held::Yes;
        }
    }

    /// Ends [`Queue::hold`]; what has helped the Pod meanwhile counts now.
    pub fn let_go(&mut self, key: &str, now: Timestamp) {
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        if let Held::Missed(event) = std::mem::replace(&mut waiting.held, Held::No) {
            self.wake(key, event, now);
        }
    }

    /// The time at which a Pod is due next, if none is active.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The number of Pods in each queue.
    pub fn depths(&self) -> Depths {
        let backoff = self.timers.len() - self.unschedulable;
        Depths { active: self.active.len(), backoff, unschedulable: self.unschedulable }
    }

    /// The number of Pods that came into each queue, by event, since this was last asked.
    pub fn take_incoming(&mut self) -> BTreeMap<(&'static str, &'static str), u64> {
        std::mem::take(&mut self.incoming)
    }

    fn promote_due(&mut self, now: Timestamp) {
        while let Some((_, key)) = self.timers.first().filter(|(due, _)| *due <= now).cloned() {
            let Some(waiting) = self.waiting.get_mut(&key) else { return };
            let State::Unschedulable { .. } = waiting.state else {
                self.activate(&key, "BackoffComplete");
                continue;
            };
            waiting.is_flushed = true;
            waiting.held = Held::No;
            self.wake(&key, "UnschedulableTimeout", now);
        }
    }

    fn activate(&mut self, key: &str, event: &'static str) {
        self.unpark(key);
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.state = State::Active;
            self.active.insert(waiting.rank.clone());
            self.came("active", event);
        }
    }

    fn park(&mut self, key: &str, state: State) {
        self.unpark(key);
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        self.active.remove(&waiting.rank);
        waiting.state = state;
        match state {
            State::Active | State::Popped => {}
            State::Backoff(due) => {
                if !waiting.rejectors.is_empty() {
                    self.backing_off.insert((due.as_second(), waiting.rank.clone()));
                }
                self.timers.insert((due, key.to_owned()));
            }
            State::Unschedulable { until, .. } => {
                for plugin in &waiting.rejectors {
                    self.refused_by.entry(*plugin).or_default().insert(key.to_owned());
                }
                self.unschedulable += 1;
                self.timers.insert((until, key.to_owned()));
            }
        }
    }

    fn unpark(&mut self, key: &str) {
        let Some(waiting) = self.waiting.get(key) else { return };
        match waiting.state {
            State::Active | State::Popped => {}
            State::Backoff(due) => {
                self.backing_off.remove(&(due.as_second(), waiting.rank.clone()));
                self.timers.remove(&(due, key.to_owned()));
            }
            State::Unschedulable { until, .. } => {
                for plugin in &waiting.rejectors {
                    let Some(keys) = self.refused_by.get_mut(plugin) else { continue };
                    keys.remove(key);
                    if keys.is_empty() {
                        self.refused_by.remove(plugin);
                    }
                }
                self.unschedulable -= 1;
                self.timers.remove(&(until, key.to_owned()));
            }
        }
    }

    fn forget(&mut self, key: &str) -> Option<Waiting> {
        self.lift(key);
        self.waiting.remove(key)
    }

    /// Takes a Pod out of the queue that it is in.
    fn lift(&mut self, key: &str) {
        self.unpark(key);
        if let Some(waiting) = self.waiting.get_mut(key) {
            self.active.remove(&waiting.rank);
            waiting.state = State::Popped;
        }
    }

    /// Who was tried comes after those of its priority that wait already.
    fn behind(&mut self, key: &str) {
        let last = self.next();
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.rank.1 = last;
        }
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn came(&mut self, queue: &'static str, event: &'static str) {
        *self.incoming.entry((queue, event)).or_default() += 1;
    }
}

/// Source: `ScheduleAttemptFailure`.
const ATTEMPT_FAILURE: &str = "ScheduleAttemptFailure";

#[cfg(test)]
mod tests;
