//! What a cache holds: the objects of a resource, and a ring of recent events. No waiting, no locks.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use store::Revision;

use crate::at_rest::Unreadable;
use crate::cache::event::{CacheEvent, EVENTS_BYTES_MAX, EVENTS_MAX, EVENTS_MIN, EventType};
use crate::object::CachedObject;
use crate::status::{Error, Result};

/// A cache begins, serves, and ends; it never goes back.
#[derive(Debug)]
pub(super) enum Life {
    /// The store is being read; what changes meanwhile is kept.
    Loading(Pending),
    /// It holds every event up to its revision.
    Ready,
    /// Nobody serves its objects any more.
    Gone,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) life: Life,
    pub(super) objects: BTreeMap<Arc<str>, Arc<CachedObject>>,
    /// Keys whose values cannot be read, and why.
    pub(super) unreadable: BTreeMap<Arc<str>, Unreadable>,
    pub(super) ring: VecDeque<CacheEvent>,
    /// What the ring's events hold.
    pub(super) ring_bytes: usize,
    /// Every event after this revision is in the ring.
    pub(super) oldest: Revision,
    /// The newest event's revision.
    pub(super) revision: Revision,
    /// The newest event that watchers were told of.
    pub(super) announced: Revision,
}

impl State {
    pub(super) fn new(life: Life, revision: Revision) -> Self {
        Self {
            life,
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            ring: VecDeque::new(),
            ring_bytes: 0,
            oldest: revision,
            revision,
            announced: revision,
        }
    }

    /// Has nothing to tell of what was before `revision`.
    fn forget_events(&mut self, revision: Revision) {
        self.ring.clear();
        self.ring_bytes = 0;
        self.oldest = revision;
        self.revision = revision;
        self.announced = revision;
    }

    /// Is what was read from the store.
    pub(super) fn set(&mut self, loaded: Loaded) {
        self.objects = loaded.objects.into_iter().map(|object| (Arc::clone(&object.key), object)).collect();
        self.unreadable = loaded.unreadable.into_iter().collect();
        self.forget_events(loaded.revision);
    }

    /// Takes one change that is newer than all before, and answers it.
    pub(super) fn apply(&mut self, key: &str, revision: Revision, change: Change) -> Option<CacheEvent> {
        if revision <= self.revision {
            return None;
        }
        let event = match change {
            Change::Put(object) => {
                self.unreadable.remove(key);
                let previous = self.objects.insert(Arc::clone(&object.key), Arc::clone(&object));
                let event_type = if previous.is_some() { EventType::Modified } else { EventType::Added };
                CacheEvent { revision, event_type, object, previous }
            }
            Change::Delete(last) => {
                self.unreadable.remove(key);
                let previous = self.objects.remove(key);
                let held = || previous.as_ref().map(|held| Arc::new(held.at_revision(revision)));
                let object = last.or_else(held)?;
                CacheEvent { revision, event_type: EventType::Deleted, object, previous }
            }
            Change::Lose(why) => {
                self.objects.remove(key);
                self.unreadable.insert(key.into(), why);
                self.forget_events(revision);
                return None;
            }
        };
        self.revision = revision;
        self.remember(event.clone());
        Some(event)
    }

    /// Puts an event into the ring, and drops those that are too many or too large for it.
    fn remember(&mut self, event: CacheEvent) {
        self.ring_bytes += event.object.json.len();
        self.ring.push_back(event);
        let is_full = |state: &Self| {
            let is_heavy = state.ring_bytes > EVENTS_BYTES_MAX && state.ring.len() > EVENTS_MIN;
            is_heavy || state.ring.len() > EVENTS_MAX
        };
        while is_full(self) {
            let Some(dropped) = self.ring.pop_front() else { break };
            self.ring_bytes -= dropped.object.json.len();
            self.oldest = dropped.revision;
        }
    }

    pub(super) fn check(&self, prefix: &str) -> Result<()> {
        if matches!(self.life, Life::Gone) {
            return Err(Error::unknown_path());
        }
        match range(&self.unreadable, prefix).next() {
            Some((_, why)) => Err(why.clone().into()),
            None => Ok(()),
        }
    }
}

/// What the store tells of a key.
#[derive(Clone, Debug)]
pub(in crate::cache) enum Change {
    /// It has this object.
    Put(Arc<CachedObject>),
    /// It has none any more; the last one, unless the cache held it.
    Delete(Option<Arc<CachedObject>>),
    /// It has what cannot be read.
    Lose(Unreadable),
}

/// What happens while the store is read.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) changes: Vec<(String, Revision, Change)>,
    /// More has happened than is kept: the store must be read again.
    pub(super) is_cut: bool,
}

impl Pending {
    pub(super) fn keep(&mut self, key: &str, revision: Revision, change: Change) {
        if self.changes.len() >= EVENTS_MAX {
            self.changes.clear();
            self.is_cut = true;
        }
        if !self.is_cut {
            self.changes.push((key.to_owned(), revision, change));
        }
    }
}

/// What the store has of a resource at a revision.
#[derive(Debug)]
pub(in crate::cache) struct Loaded {
    pub(in crate::cache) objects: Vec<Arc<CachedObject>>,
    pub(in crate::cache) unreadable: Vec<(Arc<str>, Unreadable)>,
    pub(in crate::cache) revision: Revision,
}

/// What is under keys that begin with `prefix`.
pub(super) fn range<'a, T>(
    by_key: &'a BTreeMap<Arc<str>, T>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a Arc<str>, &'a T)> {
    by_key
        .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(prefix))
}
