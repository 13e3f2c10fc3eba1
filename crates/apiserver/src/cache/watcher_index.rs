//! The watchers that wake for an event: watchers are found by what their filters ask for, and all others sleep on.
//!
//! A watcher that asks for one object, one name, one value of a field (`spec.nodeName` of a kubelet's Pods) or one
//! namespace is woken by events about that, every other one by all events. The index is a hint: whoever wakes filters,
//! so waking too many is a waste, and waking too few a bug. So that no cursor falls out of the ring while its watcher
//! sleeps, everybody is woken once in [`ALL_EVERY`] events, of which a large one counts as many.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use store::Revision;
use tokio::sync::watch;

use super::event::{CacheEvent, EVENTS_BYTES_MAX, EVENTS_MAX};
use crate::object::{CachedObject, Fields};

/// After so many events every watcher is woken.
const ALL_EVERY: usize = EVENTS_MAX / 4;

/// How much of the ring an event takes, in events.
fn share(event: &CacheEvent) -> usize {
    1 + event.object.json.len() / (EVENTS_BYTES_MAX / EVENTS_MAX)
}

/// A reader of the selectable fields of objects: what a kind knows of them.
pub trait ReadFields: std::fmt::Debug + Send + Sync {
    /// The fields of an object.
    fn fields_of(&self, object: &CachedObject) -> Fields;
}

/// The index term that a watcher can be found by.
#[derive(Clone, Debug)]
pub enum IndexKey {
    /// Nothing: it sees every event.
    Everything,
    /// The object under this key.
    Key(String),
    /// Objects of this name in any namespace.
    Name(String),
    /// Objects of the kind whose field has this value.
    Field(Arc<dyn ReadFields>, String, String),
    /// Objects whose keys are this and a name.
    Namespace(String),
}

/// The watchers of one resource, by index key.
#[derive(Debug)]
pub(super) struct WatcherIndex {
    everyone: watch::Sender<Revision>,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    keys: Group,
    names: Group,
    namespaces: Group,
    fields: BTreeMap<String, Group>,
    /// Reads the fields; set with the first watcher of one.
    kind: Option<Arc<dyn ReadFields>>,
    since_all: usize,
}

/// Watchers by one property's value.
#[derive(Debug, Default)]
struct Group(HashMap<String, Watchers>);

#[derive(Debug)]
struct Watchers {
    changed: watch::Sender<Revision>,
    count: usize,
}

impl Group {
    fn join(&mut self, value: &str, revision: Revision) -> watch::Receiver<Revision> {
        let new = || Watchers { changed: watch::Sender::new(revision), count: 0 };
        let watchers = self.0.entry(value.to_owned()).or_insert_with(new);
        watchers.count += 1;
        watchers.changed.subscribe()
    }

    fn leave(&mut self, value: &str) {
        let Some(watchers) = self.0.get_mut(value) else { return };
        watchers.count -= 1;
        if watchers.count == 0 {
            self.0.remove(value);
        }
    }

    fn wake(&self, value: &str, revision: Revision) {
        if let Some(watchers) = self.0.get(value) {
            watchers.changed.send_replace(revision);
        }
    }

    fn wake_all(&self, revision: Revision) {
        for watchers in self.0.values() {
            watchers.changed.send_replace(revision);
        }
    }
}

impl Index {
    fn group(&mut self, index_key: &IndexKey) -> Option<(&mut Group, String)> {
        match index_key {
            IndexKey::Everything => None,
            IndexKey::Key(key) => Some((&mut self.keys, key.clone())),
            IndexKey::Name(name) => Some((&mut self.names, name.clone())),
            IndexKey::Namespace(prefix) => Some((&mut self.namespaces, prefix.clone())),
            IndexKey::Field(kind, field, value) => {
                self.kind = Some(kind.clone());
                Some((self.fields.entry(field.clone()).or_default(), value.clone()))
            }
        }
    }

    fn wake_all(&mut self, revision: Revision) {
        self.since_all = 0;
        let fields = self.fields.values();
        for group in [&self.keys, &self.names, &self.namespaces].into_iter().chain(fields) {
            group.wake_all(revision);
        }
    }

    fn wake(&self, object: &CachedObject, revision: Revision) {
        self.keys.wake(&object.key, revision);
        self.names.wake(object.name(), revision);
        let namespace = object.key.rfind('/').and_then(|end| object.key.get(..=end));
        self.namespaces.wake(namespace.unwrap_or_default(), revision);
        let Some(kind) = self.kind.as_ref().filter(|_| !self.fields.is_empty()) else { return };
        let fields = object.fields(|object| kind.fields_of(object));
        for (field, group) in &self.fields {
            let found = fields.iter().find(|(name, _)| name == field);
            group.wake(found.map_or("", |(_, value)| value.as_str()), revision);
        }
    }
}

impl WatcherIndex {
    pub(super) fn new(revision: Revision) -> Self {
        Self { everyone: watch::Sender::new(revision), index: Mutex::default() }
    }

    /// Adds a watcher; what it gets tells of every event that may concern it. [`WatcherIndex::leave`] must follow.
    pub(super) fn join(&self, index_key: &IndexKey) -> watch::Receiver<Revision> {
        let revision = *self.everyone.borrow();
        match self.index.lock().group(index_key) {
            Some((group, value)) => group.join(&value, revision),
            None => self.everyone.subscribe(),
        }
    }

    /// Removes a watcher.
    pub(super) fn leave(&self, index_key: &IndexKey) {
        let mut index = self.index.lock();
        if let Some((group, value)) = index.group(index_key) {
            group.leave(&value);
        }
        index.fields.retain(|_, group| !group.0.is_empty());
        // The kind has the cache that has this: nothing keeps them once nobody asks.
        if index.fields.is_empty() {
            index.kind = None;
        }
    }

    /// Wakes whom `events` may concern.
    pub(super) fn wake(&self, events: &[CacheEvent], revision: Revision) {
        self.everyone.send_replace(revision);
        let mut index = self.index.lock();
        index.since_all += events.iter().map(share).sum::<usize>();
        if index.since_all >= ALL_EVERY {
            index.wake_all(revision);
            return;
        }
        for event in events {
            for object in [Some(&event.object), event.previous.as_ref()].into_iter().flatten() {
                index.wake(object, revision);
            }
        }
    }

    /// Wakes every watcher.
    pub(super) fn wake_all(&self, revision: Revision) {
        self.everyone.send_replace(revision);
        self.index.lock().wake_all(revision);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cache::EventType;

    fn pod(name: &str, node: &str, revision: Revision) -> Arc<CachedObject> {
        let key = format!("/registry/pods/a/{name}");
        let stored = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{node}"}}}}"#);
        Arc::new(CachedObject::from_stored(key.as_str().into(), stored.as_bytes(), revision).unwrap())
    }

    fn event(object: Arc<CachedObject>, previous: Option<Arc<CachedObject>>) -> CacheEvent {
        CacheEvent { revision: object.revision, event_type: EventType::Modified, object, previous }
    }

    fn index_keys() -> Vec<(&'static str, IndexKey)> {
        let kinds = crate::kinds::all::builtin();
        let pods = kinds.find("", "v1", "pods").unwrap();
        let node = |value: &str| IndexKey::Field(pods.field_reader(), "spec.nodeName".into(), value.into());
        vec![
            ("everything", IndexKey::Everything),
            ("key a/x", IndexKey::Key("/registry/pods/a/x".into())),
            ("name y", IndexKey::Name("y".into())),
            ("node n1", node("n1")),
            ("node n2", node("n2")),
            ("namespace a", IndexKey::Namespace("/registry/pods/a/".into())),
            ("namespace b", IndexKey::Namespace("/registry/pods/b/".into())),
        ]
    }

    fn check(events: &[CacheEvent], expect: &[&str]) {
        let all = WatcherIndex::new(0);
        let mut watchers: Vec<_> = index_keys().into_iter().map(|(name, i)| (name, all.join(&i))).collect();
        all.wake(events, 9);
        let woken = watchers.iter_mut().filter(|(_, seen)| seen.has_changed().unwrap_or(false));
        assert_eq!(woken.map(|(name, _)| *name).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn the_right_watchers_wake_and_the_others_do_not() {
        check(&[event(pod("x", "n1", 1), None)], &["everything", "key a/x", "node n1", "namespace a"]);
        check(&[event(pod("y", "", 1), None)], &["everything", "name y", "namespace a"]);
    }

    #[test]
    fn whoever_loses_sight_of_an_object_wakes_too() {
        let moved = event(pod("z", "n2", 2), Some(pod("z", "n1", 1)));
        check(&[moved], &["everything", "node n1", "node n2", "namespace a"]);
    }

    #[test]
    fn everybody_wakes_before_the_ring_has_turned() {
        let far = vec![event(pod("z", "", 1), None); ALL_EVERY];
        let all: Vec<&str> = index_keys().into_iter().map(|(name, _)| name).collect();
        check(&far, &all);
        check(&[event(pod("z", &"n".repeat(EVENTS_BYTES_MAX / 3), 1), None)], &all);
    }

    #[test]
    fn who_left_leaves_nothing_behind() {
        let all = WatcherIndex::new(0);
        for (_, index_key) in index_keys() {
            drop(all.join(&index_key));
            all.leave(&index_key);
        }
        let index = all.index.lock();
        assert!(index.keys.0.is_empty() && index.names.0.is_empty() && index.fields.is_empty());
    }
}
