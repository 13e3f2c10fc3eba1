//! One resource's objects, its ring of recent events, and the cursors of its watchers.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use store::Revision;
use tokio::sync::watch;

use super::event::{CacheEvent, EVENTS_BYTES_MAX, EVENTS_MAX, EVENTS_MIN, EventType};
use super::watcher_index::{IndexKey, WatcherIndex};
use crate::at_rest::Unreadable;
use crate::object::{CachedObject, Keys};
use crate::status::{Error, Result};

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

/// A cache begins, serves, and ends; it never goes back.
#[derive(Debug)]
enum Life {
    /// The store is being read; what changes meanwhile is kept.
    Loading(Pending),
    /// It holds every event up to its revision.
    Ready,
    /// Nobody serves its objects any more.
    Gone,
}

#[derive(Debug)]
struct State {
    life: Life,
    objects: BTreeMap<Arc<str>, Arc<CachedObject>>,
    /// Keys whose values cannot be read, and why.
    unreadable: BTreeMap<Arc<str>, Unreadable>,
    ring: VecDeque<CacheEvent>,
    /// What the ring's events hold.
    ring_bytes: usize,
    /// Every event after this revision is in the ring.
    oldest: Revision,
    /// The newest event's revision.
    revision: Revision,
    /// The newest event that watchers were told of.
    announced: Revision,
}

impl State {
    fn new(life: Life, revision: Revision) -> Self {
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
    fn set(&mut self, loaded: Loaded) {
        self.objects = loaded.objects.into_iter().map(|object| (Arc::clone(&object.key), object)).collect();
        self.unreadable = loaded.unreadable.into_iter().collect();
        self.forget_events(loaded.revision);
    }

    /// Takes one change that is newer than all before, and answers it.
    fn apply(&mut self, key: &str, revision: Revision, change: Change) -> Option<CacheEvent> {
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

    fn check(&self, prefix: &str) -> Result<()> {
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
pub(super) enum Change {
    /// It has this object.
    Put(Arc<CachedObject>),
    /// It has none any more; the last one, unless the cache held it.
    Delete(Option<Arc<CachedObject>>),
    /// It has what cannot be read.
    Lose(Unreadable),
}

/// What happens while the store is read.
#[derive(Debug, Default)]
struct Pending {
    changes: Vec<(String, Revision, Change)>,
    /// More has happened than is kept: the store must be read again.
    is_cut: bool,
}

impl Pending {
    fn keep(&mut self, key: &str, revision: Revision, change: Change) {
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
pub(super) struct Loaded {
    pub(super) objects: Vec<Arc<CachedObject>>,
    pub(super) unreadable: Vec<(Arc<str>, Unreadable)>,
    pub(super) revision: Revision,
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

fn range<'a, T>(
    by_key: &'a BTreeMap<Arc<str>, T>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a Arc<str>, &'a T)> {
    by_key
        .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(prefix))
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
mod tests {
    use super::*;

    fn object(name: &str, revision: Revision) -> Arc<CachedObject> {
        let key = format!("/registry/pods/a/{name}");
        let stored = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        Arc::new(CachedObject::from_stored(key.as_str().into(), stored.as_bytes(), revision).unwrap())
    }

    fn put(cache: &ResourceCache, name: &str, revision: Revision) {
        let object = object(name, revision);
        cache.apply(&object.key.clone(), revision, Change::Put(object));
    }

    fn names(listing: &Listing) -> Vec<String> {
        listing.objects.iter().map(|o| format!("{}@{}", o.name(), o.revision)).collect()
    }

    #[test]
    fn the_past_is_rebuilt_from_the_ring() {
        let cache = ResourceCache::new(Keys::below("/registry/pods/"), 0);
        put(&cache, "x", 1);
        put(&cache, "y", 2);
        put(&cache, "x", 3);
        cache.apply("/registry/pods/a/y", 4, Change::Delete(Some(object("y", 4))));
        assert_eq!(names(&cache.list("/registry/pods/", 0)), ["x@3"]);
        assert_eq!(names(&cache.list_at("/registry/pods/", 2).unwrap()), ["x@1", "y@2"]);
        assert_eq!(names(&cache.list_at("/registry/pods/", 3).unwrap()), ["x@3", "y@2"]);
        assert_eq!(names(&cache.list_at("/registry/pods/", 0).unwrap()), Vec::<String>::new());
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_an_error_until_it_can() {
        let cache = Arc::new(ResourceCache::new(Keys::below("/registry/pods/"), 0));
        put(&cache, "x", 1);
        put(&cache, "y", 2);
        let mut watcher = cache.watch(2, IndexKey::Everything);
        let key = "/registry/pods/a/y";
        cache.apply(key, 3, Change::Lose(Unreadable("no key".into())));
        assert_eq!(watcher.next().await.unwrap_err().reason, "Expired");
        assert_eq!(cache.read(key).unwrap_err().message, "Internal error occurred: no key");
        assert!(cache.check_readable("/registry/pods/a/").is_err());
        assert!(cache.check_readable("/registry/pods/b/").is_ok());
        assert!(cache.read("/registry/pods/a/x").unwrap().is_some());
        put(&cache, "y", 4);
        assert!(cache.read(key).unwrap().is_some() && !cache.is_unreadable());
        cache.apply(key, 5, Change::Lose(Unreadable("no key".into())));
        cache.apply(key, 6, Change::Delete(None));
        assert!(cache.read(key).unwrap().is_none() && !cache.is_unreadable());
    }

    #[test]
    fn large_objects_are_not_remembered_as_often() {
        let cache = ResourceCache::new(Keys::below("/registry/pods/"), 0);
        let key = "/registry/pods/a/x";
        let put = |revision, bytes: usize| {
            let stored = format!(r#"{{"metadata":{{"name":"x"}},"data":"{}"}}"#, "x".repeat(bytes));
            let object = CachedObject::from_stored(key.into(), stored.as_bytes(), revision).unwrap();
            cache.apply(key, revision, Change::Put(Arc::new(object)));
            let state = cache.state.read();
            assert_eq!(
                state.ring_bytes,
                state.ring.iter().map(|event| event.object.json.len()).sum::<usize>()
            );
            (state.ring.len(), state.ring_bytes)
        };
        let large = EVENTS_BYTES_MAX / (4 * EVENTS_MIN);
        let last = (1..=1000).fold((0, 0), |_, revision| put(revision, large));
        assert!(last.0 < 4 * EVENTS_MIN && last.1 <= EVENTS_BYTES_MAX, "{last:?}");
        assert!(last.0 > 3 * EVENTS_MIN, "{last:?}");
        let oldest = 1000 - last.0 as u64;
        assert!(cache.list_at(key, oldest).is_ok());
        assert_eq!(cache.list_at(key, oldest - 1).unwrap_err().reason, "Expired");
        // So many are kept, however large they are.
        assert_eq!((1001..=1300).fold((0, 0), |_, revision| put(revision, large * 5)).0, EVENTS_MIN);
    }

    #[tokio::test]
    async fn a_slow_watcher_holds_nobody_up_and_keeps_nothing() {
        let cache = Arc::new(ResourceCache::new(Keys::below("/registry/pods/"), 0));
        let mut slow = cache.watch(0, IndexKey::Everything);
        let mut fast = cache.watch(0, IndexKey::Everything);
        let all = EVENTS_MAX as u64 + 100;
        let mut seen = 0;
        for revision in 1..=all {
            put(&cache, "x", revision);
            seen += fast.next().await.unwrap().len() as u64;
        }
        assert_eq!(seen, all);
        assert_eq!(cache.state.read().ring.len(), EVENTS_MAX, "what is kept does not depend on watchers");
        assert_eq!(slow.next().await.unwrap_err().reason, "Expired");
        let mut late = cache.watch(all - 300, IndexKey::Everything);
        assert_eq!(late.next().await.unwrap().len(), BATCH_EVENTS_MAX, "a little at a time");
        assert_eq!(late.next().await.unwrap().len(), 300 - BATCH_EVENTS_MAX);
    }

    #[tokio::test]
    async fn a_watcher_sees_every_event_once_or_is_cut() {
        let cache = Arc::new(ResourceCache::new(Keys::below("/registry/pods/"), 0));
        let mut watcher = cache.watch(0, IndexKey::Everything);
        put(&cache, "x", 1);
        put(&cache, "x", 2);
        let seen: Vec<_> = watcher.next().await.unwrap().iter().map(|e| e.revision).collect();
        assert_eq!(seen, [1, 2]);
        assert!(watcher.take().unwrap().is_empty());
        for revision in 3..(EVENTS_MAX as u64 + 5) {
            put(&cache, "x", revision);
        }
        assert_eq!(watcher.take().unwrap_err().reason, "Expired");
    }

    fn loaded(objects: &[(&str, Revision)], revision: Revision) -> Loaded {
        let objects = objects.iter().map(|(name, revision)| object(name, *revision)).collect();
        Loaded { objects, unreadable: Vec::new(), revision }
    }

    #[test]
    fn a_cache_that_is_loaded_has_what_was_read_and_what_has_happened_since() {
        let cache = ResourceCache::loading(Keys::below("/registry/pods/"), 0);
        for (name, revision) in [("x", 3), ("y", 5), ("z", 7)] {
            put(&cache, name, revision);
        }
        cache.apply("/registry/pods/a/x", 8, Change::Delete(Some(object("x", 8))));
        assert!(cache.is_loading() && cache.is_empty());
        assert!(cache.join(loaded(&[("x", 3), ("y", 5), ("old", 2)], 6)));
        assert_eq!(names(&cache.list("/registry/pods/", 0)), ["old@2", "y@5", "z@7"]);
        assert_eq!(names(&cache.list_at("/registry/pods/", 6).unwrap()), ["old@2", "x@3", "y@5"]);
        assert!(cache.list_at("/registry/pods/", 5).is_err(), "what was before is not known");
        put(&cache, "x", 9);
        assert_eq!(cache.list("/registry/pods/", 0).revision, 9);
    }

    #[test]
    fn a_cache_with_too_much_to_keep_is_read_again() {
        let cache = ResourceCache::loading(Keys::below("/registry/pods/"), 0);
        let all = EVENTS_MAX as u64 + 1;
        (1..=all).for_each(|revision| put(&cache, "x", revision));
        assert!(!cache.join(loaded(&[("x", 1)], 1)), "what followed was dropped");
        put(&cache, "x", all + 2);
        assert!(cache.join(loaded(&[("x", all + 1)], all + 1)));
        assert_eq!(names(&cache.list("/registry/pods/", 0)), [format!("x@{}", all + 2)]);
    }

    #[tokio::test]
    async fn what_is_gone_tells_what_is_left_and_ends() {
        let cache = Arc::new(ResourceCache::new(Keys::below("/registry/pods/"), 0));
        let mut watcher = cache.watch(0, IndexKey::Everything);
        put(&cache, "x", 1);
        cache.end();
        put(&cache, "y", 2);
        assert_eq!(watcher.next().await.unwrap().len(), 1);
        assert_eq!(watcher.next().await.unwrap_err().code, 404);
        assert!(watcher.is_over() && cache.is_empty());
        assert_eq!(cache.read("/registry/pods/a/x").unwrap_err().code, 404);
        assert_eq!(cache.read_list("/registry/pods/", 0).unwrap_err().code, 404);
        assert_eq!(cache.list_at("/registry/pods/", 1).unwrap_err().code, 404);
        cache.reset(loaded(&[("x", 3)], 3));
        assert!(cache.is_gone() && cache.is_empty(), "nothing comes back");
    }

    #[test]
    fn every_stored_kind_has_the_name_that_configurations_have_for_it() {
        let check = |keys: Keys, expect: (&str, &str)| assert_eq!((&*keys.group, &*keys.resource), expect);
        let of = |group, version, plural| Keys::of_row(resources::find(group, version, plural).unwrap());
        check(of("", "v1", "secrets"), ("", "secrets"));
        check(of("", "v1", "services"), ("", "services"));
        check(of("apps", "v1", "deployments"), ("apps", "deployments"));
        check(
            of("autoscaling", "v1", "horizontalpodautoscalers"),
            ("autoscaling", "horizontalpodautoscalers"),
        );
        check(of("events.k8s.io", "v1", "events"), ("", "events"));
        check(Keys::below("/registry/bears.example/pandas/"), ("bears.example", "pandas"));
        check(Keys::below("/registry/masterleases/"), ("", "masterleases"));
    }
}
