//! A source of kinds that come and go: one informer per kind that discovery names, as long as it does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::discovery::{Discovered, Served, Watcher};
use crate::informer::{Change, Held, Informers, PartialObject};
use crate::resource_ref::ResourceRef;
use crate::workqueue::WorkQueue;

/// How long what a server told before a kind went may be on its way.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The part of a controller about kinds that come and go.
#[derive(Clone, Copy, Debug)]
pub struct Following {
    /// The choice of those that it follows.
    pub wants: fn(&Discovered) -> bool,
    /// The keys that a change of an object wakes.
    pub changed: fn(&Change<PartialObject>, &ResourceRef, &Informers) -> Vec<String>,
    /// The keys that wake when the objects of a kind are at hand.
    pub came: fn(&ResourceRef, &Informers) -> Vec<String>,
    /// The keys that wake when a kind is not served any more, with what was last known of its objects: they are out of
    /// sight, which does not mean that they were deleted.
    pub went: fn(&ResourceRef, &[Arc<PartialObject>], &Informers) -> Vec<String>,
}

impl Following {
    /// Follows for ever.
    pub(super) async fn run(self, informers: Informers, queue: Arc<WorkQueue>) {
        let mut changes = Watcher::of(&informers).subscribe();
        // Whose sender is dropped stops.
        let mut followed: BTreeMap<ResourceRef, oneshot::Sender<()>> = BTreeMap::new();
        loop {
            let served = changes.borrow_and_update().clone();
            let wanted = self.wanted(&served);
            followed.retain(|resource, _| wanted.contains(resource));
            for resource in wanted {
                followed.entry(resource).or_insert_with_key(|resource| {
                    let (stop, stopped) = oneshot::channel();
                    let kind = Kind { of: self, informers: informers.clone(), queue: queue.clone() };
                    informers.tasks().spawn("source", Box::pin(kind.run(informers.held(resource), stopped)));
                    stop
                });
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn wanted(&self, served: &Served) -> BTreeSet<ResourceRef> {
        served.resources().filter(|found| (self.wants)(found)).map(|found| found.resource.clone()).collect()
    }
}

/// One kind that is followed.
struct Kind {
    of: Following,
    informers: Informers,
    queue: Arc<WorkQueue>,
}

impl Kind {
    async fn run(self, held: Arc<Held>, mut stopped: oneshot::Receiver<()>) {
        let (resource, informer) = (held.resource().clone(), held.informer().clone());
        let mut changes = informer.subscribe();
        let mut is_synced = false;
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                () = informer.synced(), if !is_synced => {
                    is_synced = true;
                    self.wake((self.of.came)(&resource, &self.informers), informer.revision());
                }
                all = changes.next() => self.tell(all, &resource),
            }
        }
        // What was deleted before the kind went is deleted, and may not have been heard of.
        tokio::time::sleep(LAST_WORDS).await;
        self.tell(changes.take(), &resource);
        let (left, revision) = (informer.list(), informer.revision());
        drop((changes, informer, held));
        self.wake((self.of.went)(&resource, &left, &self.informers), revision);
    }

    fn tell(&self, changes: Vec<Change<PartialObject>>, resource: &ResourceRef) {
        for change in changes {
            self.wake((self.of.changed)(&change, resource, &self.informers), change.revision);
        }
    }

    fn wake(&self, keys: Vec<String>, cause: u64) {
        keys.into_iter().for_each(|key| self.queue.add(key, cause));
    }
}

#[cfg(test)]
mod tests;
