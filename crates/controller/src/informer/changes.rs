//! Changes of objects, and the subscriptions that tell of them: what a subscriber has not taken yet is coalesced, one change
//! for each key.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::object::{Object, typed};
use super::{Kind, Objects};

/// The change of one key since its subscriber last looked.
#[derive(Clone, Debug)]
pub struct Change<K: ?Sized> {
    /// `namespace/name` or `name`.
    pub key: Arc<str>,
    /// The object that the subscriber last knew.
    pub old: Option<Arc<K>>,
    /// The object that is there now; `None` after a deletion.
    pub new: Option<Arc<K>>,
    /// The revision that made it so.
    pub revision: u64,
}

impl Change<dyn Object> {
    /// The change for those who know of which type the objects are.
    pub(super) fn typed<K: Kind>(&self) -> Change<K> {
        let [old, new] = [&self.old, &self.new].map(|object| object.clone().and_then(typed));
        Change { key: self.key.clone(), old, new, revision: self.revision }
    }
}

impl<K> Change<K> {
    /// The object as it is now, or as it last was.
    pub fn object(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// A subscription.
pub struct Changes<K> {
    pending: Arc<PendingChanges>,
    // Keeps the informer alive, and with it the sender of what comes next.
    _objects: Arc<dyn Objects>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Changes<K> {
    /// Everything that is there, and then what changes.
    pub(super) fn of(objects: &Arc<dyn Objects>) -> Self {
        let pending = PendingChanges::of(&**objects);
        Self { pending, _objects: objects.clone(), kind: PhantomData }
    }

    /// Waits for changes and takes all that have gathered, in key order.
    pub async fn next(&mut self) -> Vec<Change<K>> {
        self.pending.next().await.iter().map(Change::typed).collect()
    }

    /// Takes all changes that have gathered, in key order.
    pub fn take(&self) -> Vec<Change<K>> {
        self.pending.take().iter().map(Change::typed).collect()
    }
}

/// The changes that a subscriber has not taken yet.
pub(crate) struct PendingChanges {
    by_key: Mutex<BTreeMap<Arc<str>, Change<dyn Object>>>,
    arrived: Notify,
}

impl PendingChanges {
    /// Everything that is there, and then what changes.
    pub(super) fn of(objects: &dyn Objects) -> Arc<Self> {
        let pending = Arc::new(Self { by_key: Mutex::default(), arrived: Notify::new() });
        objects.join(&pending);
        pending
    }

    /// Waits for changes and takes all that have gathered, in key order.
    pub(super) async fn next(&self) -> Vec<Change<dyn Object>> {
        loop {
            let arrived = self.arrived.notified();
            let changes = self.take();
            if !changes.is_empty() {
                return changes;
            }
            arrived.await;
        }
    }

    /// Takes all changes that have gathered, in key order.
    pub(super) fn take(&self) -> Vec<Change<dyn Object>> {
        std::mem::take(&mut *self.by_key.lock()).into_values().collect()
    }

    pub(super) fn push(&self, change: Change<dyn Object>) {
        let mut by_key = self.by_key.lock();
        match by_key.get_mut(&change.key) {
            Some(waiting) => {
                waiting.new = change.new;
                waiting.revision = change.revision;
            }
            None => {
                by_key.insert(change.key.clone(), change);
            }
        }
        drop(by_key);
        self.arrived.notify_one();
    }
}
