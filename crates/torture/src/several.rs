//! Several stores on one cluster as one: each request goes to the next of them, so that whatever one of them has
//! acknowledged must be seen through all others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use store::{Entry, Page, Revision, Store, StoreError, Watch, Write};

/// The stores.
pub struct Several {
    stores: Vec<Arc<dyn Store>>,
    next: AtomicUsize,
}

impl Several {
    /// One by one in this order; there must be one at least.
    #[must_use]
    pub fn new(stores: Vec<Arc<dyn Store>>) -> Self {
        Self { stores, next: AtomicUsize::new(0) }
    }

    /// Not empty, so there is one at every number below the count.
    fn next(&self) -> &Arc<dyn Store> {
        &self.stores[self.next.fetch_add(1, Ordering::Relaxed) % self.stores.len()]
    }
}

impl Store for Several {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.next().commit(write)
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Entry>, StoreError>> {
        self.next().get(key)
    }

    fn range(
        &self,
        start: &str,
        end: &str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.next().range(start, end, at, limit)
    }

    fn revision(&self) -> Revision {
        self.stores.iter().map(|store| store.revision()).max().unwrap_or(0)
    }

    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        // Each of them, for whoever watches through one of them must get there too.
        async move {
            let all = futures::future::try_join_all(self.stores.iter().map(|store| store.newest())).await?;
            Ok(all.into_iter().min().unwrap_or(0))
        }
        .boxed()
    }

    fn watch(&self, after: Revision) -> BoxFuture<'_, Result<Watch, StoreError>> {
        self.next().watch(after)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.next().compact(revision)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            for store in &self.stores {
                store.close().await?;
            }
            Ok(())
        }
        .boxed()
    }
}
