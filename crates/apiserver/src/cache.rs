//! The watch cache: one watch of the store feeds a cache per resource, and every GET, LIST and WATCH is served
//! from there.
//!
//! Invariants: a resource's state at revision R holds every event up to R; a watcher sees every event after its
//! cursor in order, or ends with `Expired`; a watcher has no queue of its own, it is a cursor into the bounded
//! ring of recent events, so a slow one holds nothing up and costs nothing. Bytes are encoded once and shared.

pub mod feed;
pub mod filter;
pub mod interest;
pub mod object;
pub mod part;
pub mod resource;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use store::{Revision, Store};
use tokio::sync::watch;

use crate::at_rest::AtRest;
use crate::status::{Error, Result};
pub use filter::Filter;
pub use interest::Interest;
pub use object::CachedObject;
pub use resource::{CacheEvent, EventType, Listing, ResourceCache, Watcher};

/// How long a read waits for the cache to reach the revision it needs.
pub const FRESHNESS_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a revision that exists takes to arrive, most of the time.
const BY_ITSELF: Duration = Duration::from_millis(50);

/// All resources' caches and how far they are.
pub struct Cache {
    store: Arc<dyn Store>,
    at_rest: Arc<AtRest>,
    resources: RwLock<HashMap<String, Arc<ResourceCache>>>,
    progress: watch::Sender<Revision>,
    compacted: AtomicU64,
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
            progress: watch::Sender::new(0),
            compacted: AtomicU64::new(0),
            loaded: AtomicBool::new(false),
        }
    }

    /// Says that the store has forgotten what was before `revision`.
    pub fn compacted(&self, revision: Revision) {
        self.compacted.fetch_max(revision, Ordering::Relaxed);
    }

    /// Whether lists of a revision are no longer to be had, though the cache may still reach back to it: that they end
    /// when the store forgets is what clients see of upstream.
    pub fn is_compacted(&self, revision: Revision) -> bool {
        revision < self.compacted.load(Ordering::Relaxed)
    }

    /// The cache of the objects under `prefix` (`/registry/pods/`), made on first use.
    pub fn resource(&self, prefix: &str) -> Arc<ResourceCache> {
        if let Some(found) = self.resources.read().get(prefix) {
            return Arc::clone(found);
        }
        let mut resources = self.resources.write();
        let made = resources
            .entry(prefix.to_owned())
            .or_insert_with(|| Arc::new(ResourceCache::new(prefix, *self.progress.borrow())));
        Arc::clone(made)
    }

    /// The cache that `key` belongs to: rows' prefixes have two or three segments.
    fn of_key(&self, key: &str) -> Option<Arc<ResourceCache>> {
        let resources = self.resources.read();
        let mut ends = key.match_indices('/').map(|(at, _)| at + 1).skip(2).take(2);
        let (short, long) = (ends.next(), ends.next());
        [long, short]
            .into_iter()
            .flatten()
            .find_map(|end| key.get(..end).and_then(|prefix| resources.get(prefix)).map(Arc::clone))
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

    /// What keeps the store from working as it should, a line each.
    pub async fn faults(&self) -> Vec<String> {
        self.store.faults().await
    }

    /// Whether the store was read.
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(std::sync::atomic::Ordering::Acquire)
    }

    fn advance(&self, revision: Revision) {
        self.progress.send_if_modified(|now| {
            let rises = revision > *now;
            *now = revision.max(*now);
            rises
        });
    }

    fn all(&self) -> Vec<Arc<ResourceCache>> {
        self.resources.read().values().cloned().collect()
    }
}
