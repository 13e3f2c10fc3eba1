//! One resource's objects, its ring of recent events, and the cursors of its watchers.

mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use store::Revision;
use tokio::sync::watch;

use super::event::CacheEvent;
use super::watcher_index::{IndexKey, WatcherIndex};
use crate::object::{CachedObject, Keys};
use crate::status::{Error, Result};
pub(super) use state::{Change, Loaded};
use state::{Life, Pending, State, range};

/// How many events a watcher takes at once.
const BATCH_EVENTS_MAX: usize = 256;

/// A picture of part of a resource.
#[derive(Clone, Debug)]
pub struct Listing {
    /// In key order.
    pub objects: Vec<Arc<CachedObject>>,
    /// The revision of the picture.
    pub revision: Revision,
}

/// The cache of one resource.
#[derive(Debug)]
pub struct ResourceCache {
    keys: Keys,
    state: RwLock<State>,
    /// How often the state has changed, for those who only want to know whether it has.
    changes: AtomicU64,
    watchers: WatcherIndex,
}

impl ResourceCache {
    /// An empty cache which is complete at `revision`.
    pub fn new(keys: Keys, revision: Revision) -> Self {
        Self::of(keys, Life::Ready, revision)
    }

    /// A cache whose objects are yet to be read.
    pub(super) fn loading(keys: Keys, revision: Revision) -> Self {
        Self::of(keys, Life::Loading(Pending::default()), revision)
    }

    fn of(keys: Keys, life: Life, revision: Revision) -> Self {
        let state = RwLock::new(State::new(life, revision));
        Self { keys, state, changes: AtomicU64::new(0), watchers: WatcherIndex::new(revision) }
    }

    /// The keys of the objects that it has.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The revision of its newest event.
    pub fn newest(&self) -> Revision {
        self.state.read().revision
    }

    /// Counts up whenever an object has changed, before anybody is told of the revision.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether its objects are yet to be read.
    pub(super) fn is_loading(&self) -> bool {
        matches!(self.state.read().life, Life::Loading(_))
    }

    /// `true` if nobody serves its objects any more.
    pub fn is_gone(&self) -> bool {
        matches!(self.state.read().life, Life::Gone)
    }

    /// Begins to serve what was read from the store and what has happened since; `false` if too much has, and it must be
    /// read again.
    pub(super) fn join(&self, loaded: Loaded) -> bool {
        let mut state = self.state.write();
        let Life::Loading(pending) = &mut state.life else { return true };
        let pending = std::mem::take(pending);
        if pending.is_cut {
            return false;
        }
        state.life = Life::Ready;
        state.set(loaded);
        for (key, revision, change) in pending.changes {
            state.apply(&key, revision, change);
        }
        drop(state);
        self.changed();
        true
    }

    /// Ends: what is left of its events can be read, and nothing else.
    pub(super) fn end(&self) {
        let revision = {
            let mut state = self.state.write();
            state.life = Life::Gone;
            state.objects.clear();
            state.unreadable.clear();
            state.revision
        };
        self.changed();
        self.watchers.wake_all(revision);
    }

    /// The object under `key` now.
    pub fn get(&self, key: &str) -> Option<Arc<CachedObject>> {
        self.state.read().objects.get(key).cloned()
    }

    /// The same for a client.
    ///
    /// # Errors
    /// 500 if something is stored there that cannot be read, 404 if nobody serves such objects any more.
    pub fn read(&self, key: &str) -> Result<Option<Arc<CachedObject>>> {
        let state = self.state.read();
        match (&state.life, state.unreadable.get(key)) {
            (Life::Gone, _) => Err(Error::unknown_path()),
            (_, Some(why)) => Err(why.clone().into()),
            (_, None) => Ok(state.objects.get(key).cloned()),
        }
    }

    /// The check that clients may be told of everything whose key begins with `prefix`.
    ///
    /// # Errors
    /// 500 if something there cannot be read: a list without it would say that it is gone. 404 if nobody serves such
    /// objects any more.
    pub fn check_readable(&self, prefix: &str) -> Result<()> {
        self.state.read().check(prefix)
    }

    /// `true` if anything cannot be read.
    pub fn is_unreadable(&self) -> bool {
        !self.state.read().unreadable.is_empty()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// `true` if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `true` if there is no object whose key begins with `prefix`.
    pub fn is_empty_under(&self, prefix: &str) -> bool {
        let state = self.state.read();
        range(&state.objects, prefix).next().is_none() && range(&state.unreadable, prefix).next().is_none()
    }

    /// The objects whose keys begin with `prefix`, now. `complete` is a revision which the cache is known to have
    /// reached before this call.
    pub fn list(&self, prefix: &str, complete: Revision) -> Listing {
        listing(&self.state.read(), prefix, complete)
    }

    /// The same for a client.
    ///
    /// # Errors
    /// As [`ResourceCache::check_readable`].
    pub fn read_list(&self, prefix: &str, complete: Revision) -> Result<Listing> {
        let state = self.state.read();
        state.check(prefix)?;
        Ok(listing(&state, prefix, complete))
    }

    /// The objects whose keys begin with `prefix` as they were at `revision`: today's state, with later events
    /// taken back.
    ///
    /// # Errors
    /// 410 if the ring does not reach back that far; else as [`ResourceCache::check_readable`].
    pub fn list_at(&self, prefix: &str, revision: Revision) -> Result<Listing> {
        let state = self.state.read();
        state.check(prefix)?;
        if revision < state.oldest {
            return Err(Error::too_old(revision, state.oldest));
        }
        let mut objects: BTreeMap<Arc<str>, Arc<CachedObject>> =
            range(&state.objects, prefix).map(|(k, v)| (Arc::clone(k), Arc::clone(v))).collect();
        let later = state.ring.iter().rev().take_while(|event| event.revision > revision);
        for event in later.filter(|event| event.object.key.starts_with(prefix)) {
            let key = &event.object.key;
            match &event.previous {
                Some(previous) => objects.insert(Arc::clone(key), Arc::clone(previous)),
                None => objects.remove(key),
            };
        }
        Ok(Listing { objects: objects.into_values().collect(), revision })
    }

    /// A watcher of the events after `revision`: certainly of those with that index key, perhaps of others.
    pub fn watch(self: &Arc<Self>, revision: Revision, index_key: IndexKey) -> Watcher {
        let changed = self.watchers.join(&index_key);
        Watcher { cache: Arc::clone(self), cursor: revision, changed, index_key }
    }

    /// Starts over with what was read from the store: watchers behind it are cut.
    pub(super) fn reset(&self, loaded: Loaded) {
        let revision = loaded.revision;
        {
            let mut state = self.state.write();
            if matches!(state.life, Life::Gone) {
                return;
            }
            state.life = Life::Ready;
            state.set(loaded);
        }
        self.changed();
        self.watchers.wake_all(revision);
    }

    /// Takes one change and answers it. What cannot be read cuts watchers: they will be told why when they list again.
    pub(super) fn apply(&self, key: &str, revision: Revision, change: Change) -> Option<CacheEvent> {
        let is_lost = matches!(change, Change::Lose(_));
        let event = {
            let mut state = self.state.write();
            match &mut state.life {
                Life::Loading(pending) => {
                    pending.keep(key, revision, change);
                    return None;
                }
                Life::Gone => return None,
                Life::Ready => state.apply(key, revision, change),
            }
        };
        self.changed();
        if is_lost {
            self.watchers.wake_all(revision);
        }
        event
    }

    /// Wakes the watchers whom what happened since the last call may concern.
    pub(super) fn announce(&self, revision: Revision) {
        let events: Vec<CacheEvent> = {
            let mut state = self.state.write();
            let announced = std::mem::replace(&mut state.announced, revision);
            state.ring.iter().rev().take_while(|event| event.revision > announced).cloned().collect()
        };
        self.watchers.wake(&events, revision);
    }
}

fn listing(state: &State, prefix: &str, complete: Revision) -> Listing {
    let objects = range(&state.objects, prefix).map(|(_, object)| Arc::clone(object)).collect();
    Listing { objects, revision: state.revision.max(complete) }
}

/// A place in a resource's events.
#[derive(Debug)]
pub struct Watcher {
    cache: Arc<ResourceCache>,
    cursor: Revision,
    changed: watch::Receiver<Revision>,
    index_key: IndexKey,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.cache.watchers.leave(&self.index_key);
    }
}

impl Watcher {
    /// `true` if nobody serves such objects any more.
    pub fn is_over(&self) -> bool {
        self.cache.is_gone()
    }

    /// The revision up to which everything was delivered.
    pub fn cursor(&self) -> Revision {
        self.cursor
    }

    /// The next events; waits until there are some.
    ///
    /// # Errors
    /// 410 if what comes next was forgotten, 404 if nothing comes any more.
    pub async fn next(&mut self) -> Result<Vec<CacheEvent>> {
        loop {
            self.changed.borrow_and_update();
            let events = self.take()?;
            if !events.is_empty() {
                return Ok(events);
            }
            if self.changed.changed().await.is_err() {
                return Err(Error::expired("the watch cache ended"));
            }
        }
    }

    /// The events that are there already, at most one batch; then everything up to the cursor was delivered.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub fn take(&mut self) -> Result<Vec<CacheEvent>> {
        let state = self.cache.state.read();
        if self.cursor < state.oldest {
            return Err(Error::too_old(self.cursor, state.oldest));
        }
        let start = state.ring.partition_point(|event| event.revision <= self.cursor);
        let events: Vec<_> = state.ring.range(start..).take(BATCH_EVENTS_MAX).cloned().collect();
        match (events.last(), &state.life) {
            (Some(last), _) => self.cursor = last.revision,
            (None, Life::Gone) => return Err(Error::unknown_path()),
            (None, _) => {}
        }
        Ok(events)
    }

    /// Says that every event up to `revision` is known to have been delivered, for a bookmark.
    pub fn skip_to(&mut self, revision: Revision) {
        self.cursor = self.cursor.max(revision);
    }
}

#[cfg(test)]
mod tests;
