//! Changes of objects, and the subscriptions that tell of them: what a subscriber has not taken yet is coalesced, one change
//! for each key.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Objects;

/// The change of one key since its subscriber last looked.
#[derive(Clone, Debug)]
pub struct Change<K> {
    /// `namespace/name` or `name`.
    pub key: String,
    /// The object that the subscriber last knew.
    pub old: Option<Arc<K>>,
    /// The object that is there now; `None` after a deletion.
    pub new: Option<Arc<K>>,
    /// The revision that made it so.
    pub revision: u64,
}

impl<K> Change<K> {
    /// The object as it is now, or as it last was.
    pub fn object(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// A subscription.
pub struct Changes<K> {
    pending: Arc<PendingChanges<K>>,
    // Keeps the informer alive, and with it the sender of what comes next.
    _objects: Arc<dyn Objects<K>>,
}

impl<K> Changes<K> {
    /// Everything that is there, and then what changes.
    pub(super) fn of(objects: &Arc<dyn Objects<K>>) -> Self {
        let pending = Arc::new(PendingChanges { by_key: Mutex::default(), arrived: Notify::new() });
        objects.join(&pending);
        Self { pending, _objects: objects.clone() }
    }

    /// Waits for changes and takes all that have gathered, in key order.
    pub async fn next(&mut self) -> Vec<Change<K>> {
        loop {
            let arrived = self.pending.arrived.notified();
            let changes = self.take();
            if !changes.is_empty() {
                return changes;
            }
            arrived.await;
        }
    }

    /// Takes all changes that have gathered, in key order.
    pub fn take(&self) -> Vec<Change<K>> {
        std::mem::take(&mut *self.pending.by_key.lock()).into_values().collect()
    }
}

/// The changes that a subscriber has not taken yet.
pub(crate) struct PendingChanges<K> {
    by_key: Mutex<BTreeMap<String, Change<K>>>,
    arrived: Notify,
}

impl<K> PendingChanges<K> {
    pub(super) fn push(&self, change: Change<K>) {
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
