//! Lets the store forget old revisions, so that its size is that of what is there.
//!
//! Source: upstream's `etcd3/compact.go` (`--etcd-compaction-interval`): what was the newest revision an interval ago
//! is the oldest that is kept. Several servers on one etcd may all do it; the second finds the work done.

use std::sync::Arc;
use std::time::Duration;

use store::{Store, StoreError};
use tracing::{debug, warn};

use crate::cache::Cache;

/// How long every revision is kept at least.
const INTERVAL: Duration = Duration::from_secs(300);

/// Compacts for ever; sleeps while nothing is written.
pub(crate) async fn run(cache: Arc<Cache>, store: Arc<dyn Store>) {
    let mut kept = cache.revision();
    while let Ok(newest) = cache.moved_beyond(kept).await {
        tokio::time::sleep(INTERVAL).await;
        match store.compact(newest).await {
            Ok(()) | Err(StoreError::Compacted { .. }) => {
                debug!(revision = newest, "compacted");
                cache.compacted(newest);
                kept = newest;
            }
            Err(failure) => warn!(%failure, revision = newest, "cannot compact; trying again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use store::embedded::{Embedded, Options};
    use store::{Change, Durability, Expect, Write};

    use super::*;
    use crate::cache::feed;

    fn put(expect: Expect) -> Write {
        Write {
            key: "/registry/a".to_owned(),
            expect,
            change: Change::Put { value: Bytes::from_static(b"{}"), ttl_seconds: None },
            durability: Durability::Synced,
            cause: Bytes::new(),
            only_while: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_older_than_the_interval_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path(), Options::default()).unwrap());
        let cache = Arc::new(Cache::new(Arc::clone(&store)));
        let first = store.commit(put(Expect::Absent)).await.unwrap();
        let compacting = tokio::spawn(run(Arc::clone(&cache), Arc::clone(&store)));
        let second = store.commit(put(Expect::Revision(first))).await.unwrap();
        cache.begin(crate::cache::Keys::below("/registry/pods/"));
        feed::load(&cache).await.unwrap();
        let started = tokio::time::Instant::now();
        while store.watch(first).await.is_ok() {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(started.elapsed() >= INTERVAL);
        assert!(store.watch(second).await.is_ok(), "what was the newest is kept");
        // A page of a list goes on from what is kept only, however far back the cache reaches.
        while !cache.is_compacted(first) {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(!cache.is_compacted(second));
        compacting.abort();
    }
}
