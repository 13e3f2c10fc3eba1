//! The watch cache: one watch of the store feeds a cache per resource, and every GET, LIST and WATCH is served
//! from there.
//!
//! Invariants: a resource's state at revision R holds every event up to R; a watcher sees every event after its
//! cursor in order, or ends with `Expired`; a watcher has no queue of its own, it is a cursor into the bounded
//! ring of recent events, so a slow one holds nothing up and costs nothing. Bytes are encoded once and shared.

pub mod event;
pub mod feed;
pub mod resource;
pub mod watcher_index;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use store::{ROOT, Revision, Store};
use tokio::sync::{Mutex, watch};

use crate::at_rest::AtRest;
pub use crate::object::{CachedObject, Keys};
use crate::status::{Error, Result};
pub use event::{CacheEvent, EventType};
pub use resource::{Listing, ResourceCache, Watcher};
pub use watcher_index::{IndexKey, ReadFields};

/// The time for which a read waits for the cache to reach the revision it needs.
pub const FRESHNESS_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a revision that exists takes to arrive, most of the time.
const BY_ITSELF: Duration = Duration::from_millis(50);

/// The cache that events below a prefix go to.
struct ServedCache {
    serving: Arc<ResourceCache>,
    /// What will serve instead, and has everything that happens until then.
    next: Option<Arc<ResourceCache>>,
}

/// All resources' caches and how far they are.
pub struct Cache {
    store: Arc<dyn Store>,
    at_rest: Arc<AtRest>,
    resources: RwLock<HashMap<String, ServedCache>>,
    /// Whoever reads the store for caches has it.
    reading: Mutex<()>,
    progress: watch::Sender<Revision>,
    compacted: AtomicU64,
    policy: AtomicU64,
    registrations: AtomicU64,
    loaded: AtomicBool,
}

impl Cache {
    /// An empty cache over `store`, where nothing is encrypted; [`feed::load`] fills it.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::encrypted(store, Arc::default())
    }

    /// The same over a store where values lie as `at_rest` says.
    pub fn encrypted(store: Arc<dyn Store>, at_rest: Arc<AtRest>) -> Self {
        Self {
            store,
            at_rest,
            resources: RwLock::default(),
            reading: Mutex::default(),
            progress: watch::Sender::new(0),
            compacted: AtomicU64::new(0),
            policy: AtomicU64::new(0),
            registrations: AtomicU64::new(0),
            loaded: AtomicBool::new(false),
        }
    }

    /// Says that the store has forgotten what was before `revision`.
    pub fn compacted(&self, revision: Revision) {
        self.compacted.fetch_max(revision, Ordering::Relaxed);
    }

    /// `true` if lists of a revision are no longer to be had, though the cache may still reach back to it: that they
    /// end when the store forgets is what clients see of upstream.
    pub fn is_compacted(&self, revision: Revision) -> bool {
        revision < self.compacted.load(Ordering::Relaxed)
    }

    /// Says that `revision` changed what other requests are judged by.
    pub fn policy_changed(&self, revision: Revision) {
        self.policy.fetch_max(revision, Ordering::AcqRel);
    }

    /// The last change of what other requests are judged by, that this server has made: namespaces, roles, quotas,
    /// classes, tokens, webhooks, admission policies.
    pub fn policy_revision(&self) -> Revision {
        self.policy.load(Ordering::Acquire)
    }

    /// Says that this server has changed who serves group-versions elsewhere: an APIService.
    pub fn registrations_changed(&self, revision: Revision) {
        self.registrations.fetch_max(revision, Ordering::AcqRel);
    }

    /// The last of such changes.
    pub fn registrations_revision(&self) -> Revision {
        self.registrations.load(Ordering::Acquire)
    }

    /// The cache of the objects under `prefix`: of a built-in kind, or of the server's own records. One that stays empty,
    /// if nothing is served from there.
    pub fn resource(&self, prefix: &str) -> Arc<ResourceCache> {
        let found = self.resources.read().get(prefix).map(|served| Arc::clone(&served.serving));
        found.unwrap_or_else(|| Arc::new(ResourceCache::new(Keys::below(prefix), 0)))
    }

    /// A new cache: it gets all that happens from here on, and is yet to be loaded. If there is one of the same prefix
    /// that is not new, it stays where it is until [`Cache::settle`].
    pub(crate) fn begin(&self, keys: Keys) -> Arc<ResourceCache> {
        let made = Arc::new(ResourceCache::loading(keys, self.revision()));
        match self.resources.write().entry(made.keys().prefix.to_string()) {
            Entry::Vacant(served) => {
                served.insert(ServedCache { serving: Arc::clone(&made), next: None });
            }
            Entry::Occupied(mut served) => served.get_mut().next = Some(Arc::clone(&made)),
        }
        made
    }

    /// Puts a cache in its place; that of an earlier one ends.
    pub(crate) fn settle(&self, resource: &Arc<ResourceCache>) {
        let mut resources = self.resources.write();
        let Some(served) = resources.get_mut(&*resource.keys().prefix) else { return };
        if let Some(next) = served.next.take_if(|next| Arc::ptr_eq(next, resource)) {
            std::mem::replace(&mut served.serving, next).end();
        }
    }

    /// Ends a cache, wherever it is.
    pub(crate) fn end(&self, resource: &Arc<ResourceCache>) {
        resource.end();
        let mut resources = self.resources.write();
        let Entry::Occupied(mut served) = resources.entry(resource.keys().prefix.to_string()) else { return };
        served.get_mut().next.take_if(|next| Arc::ptr_eq(next, resource));
        if Arc::ptr_eq(&served.get().serving, resource) {
            match served.get_mut().next.take() {
                Some(next) => served.get_mut().serving = next,
                None => drop(served.remove()),
            }
        }
    }

    /// The caches that `key` belongs to: prefixes have two or three segments. A second one is on its way to be the first.
    fn of_key(&self, key: &str) -> impl Iterator<Item = Arc<ResourceCache>> + use<> {
        let resources = self.resources.read();
        let mut ends = key.match_indices('/').map(|(at, _)| at + 1).skip(2).take(2);
        let (short, long) = (ends.next(), ends.next());
        let served = [long, short]
            .into_iter()
            .flatten()
            .find_map(|end| key.get(..end).and_then(|prefix| resources.get(prefix)));
        let found = served.map(|served| (Arc::clone(&served.serving), served.next.clone()));
        found.into_iter().flat_map(|(serving, next)| std::iter::once(serving).chain(next))
    }

    /// An object's key as people read it: `nodes/vm` of `/registry/minions/vm`.
    pub(crate) fn named(&self, key: &str) -> String {
        let named = self.of_key(key).find_map(|resource| {
            let Keys { prefix, resource, .. } = resource.keys();
            Some(format!("{resource}/{}", key.strip_prefix(&**prefix)?))
        });
        named.unwrap_or_else(|| key.strip_prefix(ROOT).unwrap_or(key).to_owned())
    }

    /// The revision up to which every resource is complete.
    pub fn revision(&self) -> Revision {
        *self.progress.borrow()
    }

    /// Waits until everything that was committed before this call is here.
    ///
    /// # Errors
    /// 504 after [`FRESHNESS_TIMEOUT`].
    pub async fn fresh(&self) -> Result<Revision> {
        let newest = self.store.newest().await.map_err(|failure| {
            tracing::error!(%failure, "cannot ask for the newest revision");
            Error::unavailable("the store does not answer")
        })?;
        self.reached(newest).await
    }

    /// Waits until the cache has reached `revision`.
    ///
    /// # Errors
    /// 504 after [`FRESHNESS_TIMEOUT`]: the revision has not happened yet, or the cache lags.
    pub async fn reached(&self, revision: Revision) -> Result<Revision> {
        let now = self.revision();
        if now >= revision {
            return Ok(now);
        }
        let arrives = async {
            let mut progress = self.progress.subscribe();
            if let Ok(reached) =
                tokio::time::timeout(BY_ITSELF, progress.wait_for(|now| *now >= revision)).await
            {
                return reached.map(|now| *now).ok();
            }
            // Another server may have got it from a store whose other keys have changed: to ask is to be told soon.
            if let Err(failure) = self.store.newest().await {
                tracing::warn!(%failure, "cannot ask for the newest revision");
            }
            progress.wait_for(|now| *now >= revision).await.map(|now| *now).ok()
        };
        let reached = tokio::time::timeout(FRESHNESS_TIMEOUT, arrives).await;
        reached.ok().flatten().ok_or_else(|| Error::too_large(revision, self.revision()))
    }

    /// Waits until something newer than `revision` is here; answers how far it is then.
    ///
    /// # Errors
    /// Never while the cache lives.
    pub async fn moved_beyond(
        &self,
        revision: Revision,
    ) -> std::result::Result<Revision, watch::error::RecvError> {
        self.progress.subscribe().wait_for(|now| *now > revision).await.map(|now| *now)
    }

    /// The faults that keep the store from working as it should, a line each.
    pub async fn faults(&self) -> Vec<String> {
        self.store.faults().await
    }

    /// `true` if the store was read.
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(std::sync::atomic::Ordering::Acquire)
    }

    /// The store.
    pub(crate) fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn advance(&self, revision: Revision) {
        self.progress.send_if_modified(|now| {
            let rises = revision > *now;
            *now = revision.max(*now);
            rises
        });
    }

    fn all(&self) -> Vec<Arc<ResourceCache>> {
        let resources = self.resources.read();
        let all = resources.values().flat_map(|served| std::iter::once(&served.serving).chain(&served.next));
        all.cloned().collect()
    }
}
