//! One resource's objects, its ring of recent events, and the cursors of its watchers.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use store::Revision;
use tokio::sync::watch;

use super::interest::{Interest, Interests};
use super::object::CachedObject;
use crate::at_rest::Unreadable;
use crate::status::{Error, Result};

/// How many events a resource remembers. A watcher that is further behind is cut with 410.
pub const EVENTS_MAX: usize = 4096;
/// How many events a watcher takes at once.
const BATCH_EVENTS_MAX: usize = 256;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// It came to be.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

impl EventType {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change.
#[derive(Clone, Debug)]
pub struct CacheEvent {
    /// The revision the change made.
    pub revision: Revision,
    /// What happened.
    pub event_type: EventType,
    /// The new state; for a deletion the last state, under the deletion's revision.
    pub object: Arc<CachedObject>,
    /// The state before.
    pub previous: Option<Arc<CachedObject>>,
}

/// A picture of part of a resource.
#[derive(Clone, Debug)]
pub struct Listing {
    /// In key order.
    pub objects: Vec<Arc<CachedObject>>,
    /// What the picture is of.
    pub revision: Revision,
}

/// The cache of one resource.
#[derive(Debug)]
pub struct ResourceCache {
    prefix: String,
    state: RwLock<State>,
    interests: Interests,
}

#[derive(Debug)]
struct State {
    objects: BTreeMap<Arc<str>, Arc<CachedObject>>,
    /// Keys whose values cannot be read, and why.
    unreadable: BTreeMap<Arc<str>, Unreadable>,
    ring: VecDeque<CacheEvent>,
    /// Every event after this revision is in the ring.
    oldest: Revision,
    /// The newest event's revision.
    revision: Revision,
    /// The newest event that watchers were told of.
    announced: Revision,
}

impl State {
    /// Has nothing to tell of what was before `revision`.
    fn forget_events(&mut self, revision: Revision) {
        self.ring.clear();
        self.oldest = revision;
        self.revision = revision;
        self.announced = revision;
    }
}

impl ResourceCache {
    /// An empty cache which is complete at `revision`.
    pub fn new(prefix: &str, revision: Revision) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            ring: VecDeque::new(),
            oldest: revision,
            revision,
            announced: revision,
        };
        Self { prefix: prefix.to_owned(), state: RwLock::new(state), interests: Interests::new(revision) }
    }

    /// What all of its keys begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The object under `key` now.
    pub fn get(&self, key: &str) -> Option<Arc<CachedObject>> {
        self.state.read().objects.get(key).cloned()
    }

    /// The same for a client.
    ///
    /// # Errors
    /// 500 if something is stored there that cannot be read.
    pub fn read(&self, key: &str) -> Result<Option<Arc<CachedObject>>> {
        let state = self.state.read();
        match state.unreadable.get(key) {
            Some(why) => Err(why.clone().into()),
            None => Ok(state.objects.get(key).cloned()),
        }
    }

    /// Whether clients may be told of everything whose key begins with `prefix`.
    ///
    /// # Errors
    /// 500 if something there cannot be read: a list without it would say that it is gone.
    pub fn check_readable(&self, prefix: &str) -> Result<()> {
        match range(&self.state.read().unreadable, prefix).next() {
            Some((_, why)) => Err(why.clone().into()),
            None => Ok(()),
        }
    }

    /// Whether anything cannot be read.
    pub fn is_unreadable(&self) -> bool {
        !self.state.read().unreadable.is_empty()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is no object whose key begins with `prefix`.
    pub fn is_empty_under(&self, prefix: &str) -> bool {
        let state = self.state.read();
        range(&state.objects, prefix).next().is_none() && range(&state.unreadable, prefix).next().is_none()
    }

    /// The objects whose keys begin with `prefix`, now. `complete` is a revision which the cache is known to have
    /// reached before this call.
    pub fn list(&self, prefix: &str, complete: Revision) -> Listing {
        let state = self.state.read();
        let objects = range(&state.objects, prefix).map(|(_, object)| Arc::clone(object)).collect();
        Listing { objects, revision: state.revision.max(complete) }
    }

    /// The objects whose keys begin with `prefix` as they were at `revision`: today's state, with later events
    /// taken back.
    ///
    /// # Errors
    /// 410 if the ring does not reach back that far.
    pub fn list_at(&self, prefix: &str, revision: Revision) -> Result<Listing> {
        let state = self.state.read();
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

    /// A watcher of the events after `revision`: certainly of those that `interest` is about, perhaps of others.
    pub fn watch(self: &Arc<Self>, revision: Revision, interest: Interest) -> Watcher {
        let changed = self.interests.join(&interest);
        Watcher { cache: Arc::clone(self), cursor: revision, changed, interest }
    }

    /// Starts over with `objects` at `revision`: watchers behind it are cut.
    pub fn reset(
        &self,
        objects: Vec<Arc<CachedObject>>,
        unreadable: Vec<(Arc<str>, Unreadable)>,
        revision: Revision,
    ) {
        {
            let mut state = self.state.write();
            state.objects = objects.into_iter().map(|o| (Arc::clone(&o.key), o)).collect();
            state.unreadable = unreadable.into_iter().collect();
            state.forget_events(revision);
        }
        self.interests.wake_all(revision);
    }

    /// Takes note of a value that cannot be read. Watchers are cut, and will be told why when they list again.
    pub(super) fn lose(&self, key: &str, revision: Revision, why: Unreadable) {
        {
            let mut state = self.state.write();
            if revision <= state.revision {
                return;
            }
            state.objects.remove(key);
            state.unreadable.insert(key.into(), why);
            state.forget_events(revision);
        }
        self.interests.wake_all(revision);
    }

    /// Takes one change and answers it. `new` is `None` for a deletion, whose last state `last` makes.
    pub(super) fn apply(
        &self,
        key: &str,
        revision: Revision,
        new: Option<Arc<CachedObject>>,
        last: Last<'_>,
    ) -> Option<CacheEvent> {
        let mut state = self.state.write();
        if revision <= state.revision {
            return None;
        }
        state.unreadable.remove(key);
        let event = match new {
            Some(object) => {
                let previous = state.objects.insert(Arc::clone(&object.key), Arc::clone(&object));
                let event_type = if previous.is_some() { EventType::Modified } else { EventType::Added };
                CacheEvent { revision, event_type, object, previous }
            }
            None => {
                let previous = state.objects.remove(key);
                let object = last(previous.as_deref())?;
                CacheEvent { revision, event_type: EventType::Deleted, object, previous }
            }
        };
        state.revision = revision;
        if state.ring.len() >= EVENTS_MAX
            && let Some(dropped) = state.ring.pop_front()
        {
            state.oldest = dropped.revision;
        }
        state.ring.push_back(event.clone());
        Some(event)
    }

    /// Wakes the watchers whom what happened since the last call may concern.
    pub(super) fn announce(&self, revision: Revision) {
        let events: Vec<CacheEvent> = {
            let mut state = self.state.write();
            let announced = std::mem::replace(&mut state.announced, revision);
            state.ring.iter().rev().take_while(|event| event.revision > announced).cloned().collect()
        };
        self.interests.wake(&events, revision);
    }
}

/// Makes the last state of a deleted object out of what the cache held.
pub(super) type Last<'a> = &'a dyn Fn(Option<&CachedObject>) -> Option<Arc<CachedObject>>;

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
    interest: Interest,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.cache.interests.leave(&self.interest);
    }
}

impl Watcher {
    /// The revision up to which everything was delivered.
    pub fn cursor(&self) -> Revision {
        self.cursor
    }

    /// The next events; waits until there are some.
    ///
    /// # Errors
    /// 410 if what comes next was forgotten.
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
        if let Some(last) = events.last() {
            self.cursor = last.revision;
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
        cache.apply(&object.key.clone(), revision, Some(object), &|_| None);
    }

    fn names(listing: &Listing) -> Vec<String> {
        listing.objects.iter().map(|o| format!("{}@{}", o.name(), o.revision)).collect()
    }

    #[test]
    fn the_past_is_rebuilt_from_the_ring() {
        let cache = ResourceCache::new("/registry/pods/", 0);
        put(&cache, "x", 1);
        put(&cache, "y", 2);
        put(&cache, "x", 3);
        cache.apply("/registry/pods/a/y", 4, None, &|_| Some(object("y", 4)));
        assert_eq!(names(&cache.list("/registry/pods/", 0)), ["x@3"]);
        assert_eq!(names(&cache.list_at("/registry/pods/", 2).unwrap()), ["x@1", "y@2"]);
        assert_eq!(names(&cache.list_at("/registry/pods/", 3).unwrap()), ["x@3", "y@2"]);
        assert_eq!(names(&cache.list_at("/registry/pods/", 0).unwrap()), Vec::<String>::new());
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_an_error_until_it_can() {
        let cache = Arc::new(ResourceCache::new("/registry/pods/", 0));
        put(&cache, "x", 1);
        put(&cache, "y", 2);
        let mut watcher = cache.watch(2, Interest::Everything);
        let key = "/registry/pods/a/y";
        cache.lose(key, 3, Unreadable("no key".into()));
        assert_eq!(watcher.next().await.unwrap_err().reason, "Expired");
        assert_eq!(cache.read(key).unwrap_err().message, "Internal error occurred: no key");
        assert!(cache.check_readable("/registry/pods/a/").is_err());
        assert!(cache.check_readable("/registry/pods/b/").is_ok());
        assert!(cache.read("/registry/pods/a/x").unwrap().is_some());
        put(&cache, "y", 4);
        assert!(cache.read(key).unwrap().is_some() && !cache.is_unreadable());
        cache.lose(key, 5, Unreadable("no key".into()));
        cache.apply(key, 6, None, &|_| None);
        assert!(cache.read(key).unwrap().is_none() && !cache.is_unreadable());
    }

    #[tokio::test]
    async fn a_slow_watcher_holds_nobody_up_and_keeps_nothing() {
        let cache = Arc::new(ResourceCache::new("/registry/pods/", 0));
        let mut slow = cache.watch(0, Interest::Everything);
        let mut fast = cache.watch(0, Interest::Everything);
        let all = EVENTS_MAX as u64 + 100;
        let mut seen = 0;
        for revision in 1..=all {
            put(&cache, "x", revision);
            seen += fast.next().await.unwrap().len() as u64;
        }
        assert_eq!(seen, all);
        assert_eq!(cache.state.read().ring.len(), EVENTS_MAX, "what is kept does not depend on watchers");
        assert_eq!(slow.next().await.unwrap_err().reason, "Expired");
        let mut late = cache.watch(all - 300, Interest::Everything);
        assert_eq!(late.next().await.unwrap().len(), BATCH_EVENTS_MAX, "a little at a time");
        assert_eq!(late.next().await.unwrap().len(), 300 - BATCH_EVENTS_MAX);
    }

    #[tokio::test]
    async fn a_watcher_sees_every_event_once_or_is_cut() {
        let cache = Arc::new(ResourceCache::new("/registry/pods/", 0));
        let mut watcher = cache.watch(0, Interest::Everything);
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
}
