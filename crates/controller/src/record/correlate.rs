//! The Events that are written, and the form: as new ones, as one more of those that were, or not at all. Pure.
//!
//! Source: `EventCorrelator` in `k8s.io/client-go/tools/record/events_cache.go`. What it remembers are hashes, so
//! that thousands of events of Pods that are long gone weigh little.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use base::{Bucket, Random};
use jiff::{SignedDuration, Timestamp};

use crate::event::EventAction;

/// What a shard remembers of each kind: events, groups of similar ones, sources. All shards together do so of 4,096, as upstream.
const REMEMBERED_MAX: usize = 512;
/// So many messages of one reason about one object within [`SIMILAR_WITHIN`] are told apart.
const SIMILAR_MAX: usize = 10;
const SIMILAR_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// Before the message of an event that stands for more of them.
const COMBINED: &str = "(combined from similar events): ";
/// Events of one source, object and type: so many at once, and one more whenever the interval has passed. So warnings are
/// heard beside much that is normal.
const SPAM_BURST: u32 = 25;
const SPAM_INTERVAL: SignedDuration = SignedDuration::from_mins(5);

/// An event as it is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    /// Of its name, after the object's.
    pub(super) suffix: u64,
    /// How often it was seen, this time included: 1 is a new one.
    pub(super) count: u64,
    /// When it was seen first.
    pub(super) first: Timestamp,
    /// Whether its message is that of the last of several.
    pub(super) combined: bool,
}

impl Observed {
    pub(super) fn message(&self, event: &EventAction) -> String {
        format!("{}{}", if self.combined { COMBINED } else { "" }, event.message)
    }
}

/// The events of late.
#[derive(Default)]
pub(super) struct Correlator {
    hasher: RandomState,
    seen: Recent<Observed>,
    similar: Recent<Similar>,
    sources: Recent<Bucket>,
}

/// The values of the keys that were asked for of late: between half of [`REMEMBERED_MAX`] and all of it.
struct Recent<V> {
    young: HashMap<u64, V>,
    old: HashMap<u64, V>,
}

/// Events that differ in their messages alone.
#[derive(Default)]
struct Similar {
    messages: Vec<u64>,
    last: Timestamp,
}

impl Correlator {
    /// What becomes of an event that comes `now`; `None` if its source has said too much about its object.
    pub(super) fn observe(
        &mut self,
        event: &EventAction,
        now: Timestamp,
        random: &Random,
    ) -> Option<Observed> {
        let EventAction { component, regarding: of, event_type, reason, message, annotations: _ } = event;
        let object = (&of.kind, &of.namespace, &of.name, &of.uid, &of.api_version);
        let source = self.hasher.hash_one((component, object, event_type.as_str()));
        let group = self.hasher.hash_one((source, reason));
        let combined =
            self.similar.of(group, Similar::default).is_one_more(self.hasher.hash_one(message), now);
        let key = if combined { group } else { self.hasher.hash_one((group, &of.field_path, message)) };

        let new = || Observed { suffix: random.below(u64::MAX), count: 0, first: now, combined };
        let seen = self.seen.of(key, new);
        seen.count += 1;
        let bucket = self.sources.of(source, || Bucket::new(SPAM_INTERVAL, SPAM_BURST));
        bucket.take(now).then_some(*seen)
    }
}

impl<V> Recent<V> {
    fn of(&mut self, key: u64, new: impl FnOnce() -> V) -> &mut V {
        let value = self.young.remove(&key).or_else(|| self.old.remove(&key)).unwrap_or_else(new);
        if self.young.len() >= REMEMBERED_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.entry(key).or_insert(value)
    }
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl Similar {
    /// Whether there are too many for this one to be told apart.
    fn is_one_more(&mut self, message: u64, now: Timestamp) -> bool {
        if now.duration_since(self.last) > SIMILAR_WITHIN {
            self.messages.clear();
        }
        self.last = now;
        let is_new = !self.messages.contains(&message);
        let is_too_many = self.messages.len() + usize::from(is_new) >= SIMILAR_MAX;
        if is_new && !is_too_many {
            self.messages.push(message);
        }
        is_too_many
    }
}

#[cfg(test)]
mod tests;
