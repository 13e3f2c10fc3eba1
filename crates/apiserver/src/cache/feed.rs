//! Fills the caches: each by a range of the store, and all of them by one watch of the whole store.
//!
//! A cache may come at any time, and misses nothing:
//! - It gets every event of the watch from the moment it begins, and keeps it until it is loaded.
//! - Its range is asked for after that. What the watch had told before is in it, because a range without a revision is
//!   of the newest one: what was told is older than what is read.
//! - What was kept and is in the range is dropped by its revision; the rest is applied in order. So at its end a cache has
//!   all of the range, and all that follows it.
//! - Whenever the watch cannot go on where it was, everything is read again. This and the above exclude each other: there
//!   is no gap that a cache does not know of.

use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Random};
use futures::future::try_join_all;
use store::{Batch, Event, Revision, StoreError};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::Cache;
use super::event::CacheEvent;
use super::resource::{Change, Loaded, ResourceCache};
use crate::at_rest::{self, AtRest, Unreadable};
use crate::object::CachedObject;

/// How often the store is read for new caches before the events that happen meanwhile are too many.
const READINGS_MAX: usize = 8;
/// How many kinds are read at a time: each is a round trip if the store is not in this process.
const READS_MAX: usize = 16;

/// An observer of everything, who is told before anybody can read it from the cache.
pub trait Observer: Send + Sync {
    /// The cache holds another picture than before: what was observed counts no more.
    fn loaded(&self, cache: &Cache);

    /// Something was committed, whatever key it has.
    fn committed(&self, cache: &Cache, event: &Event);

    /// An object under `prefix` has changed.
    fn changed(&self, prefix: &str, event: &CacheEvent);
}

/// Loads the caches that are not.
///
/// # Errors
/// As the store's.
pub async fn load(cache: &Cache) -> Result<(), StoreError> {
    let _reading = cache.reading.lock().await;
    for _ in 0..READINGS_MAX {
        let new: Vec<_> = cache.all().into_iter().filter(|resource| resource.is_loading()).collect();
        if new.is_empty() {
            return Ok(());
        }
        let keys = key_changes(cache);
        let (revision, loaded) = read_all(cache, &new).await?;
        // What could not be read may be readable now, and nobody looks at it again before the next change of keys.
        let is_healed = loaded.iter().any(|one| !one.unreadable.is_empty()) && keys != key_changes(cache);
        if is_healed {
            continue;
        }
        for (resource, loaded) in new.iter().zip(loaded) {
            if !resource.join(loaded) {
                warn!(prefix = %resource.keys().prefix, "more has changed than is kept while it was read");
            }
        }
        if !cache.loaded.swap(true, std::sync::atomic::Ordering::AcqRel) {
            cache.advance(revision);
            info!(revision, "watch cache loaded");
        }
    }
    let is_loaded = cache.all().iter().all(|resource| !resource.is_loading());
    is_loaded.then_some(()).ok_or_else(|| StoreError::Unavailable("it changes faster than it is read".into()))
}

/// Loads all caches again.
async fn reload(cache: &Cache) -> Result<(), StoreError> {
    let _reading = cache.reading.lock().await;
    let all = cache.all();
    let (revision, loaded) = read_all(cache, &all).await?;
    for (resource, loaded) in all.iter().zip(loaded) {
        resource.reset(loaded);
    }
    cache.advance(revision);
    info!(revision, "watch cache loaded again");
    Ok(())
}

/// What the store has of resources, all of it at the newest revision.
async fn read_all(
    cache: &Cache,
    resources: &[Arc<ResourceCache>],
) -> Result<(Revision, Vec<Loaded>), StoreError> {
    let Some((first, others)) = resources.split_first() else { return Ok((0, Vec::new())) };
    let first = read(cache, first, None).await?;
    let revision = first.revision;
    let mut all = vec![first];
    for some in others.chunks(READS_MAX) {
        let reads: Vec<_> = some.iter().map(|resource| read(cache, resource, Some(revision))).collect();
        all.extend(try_join_all(reads).await?);
    }
    for (resource, loaded) in resources.iter().zip(&all) {
        tell_of(resource, &loaded.unreadable);
    }
    Ok((revision, all))
}

async fn read(cache: &Cache, resource: &ResourceCache, at: Option<Revision>) -> Result<Loaded, StoreError> {
    let keys = resource.keys();
    let end = format!("{}0", keys.prefix.trim_end_matches('/'));
    let page = cache.store.range(&keys.prefix, &end, at, 0).await?;
    let (mut objects, mut unreadable) = (Vec::with_capacity(page.entries.len()), Vec::new());
    for entry in page.entries {
        match at_rest::object(&cache.at_rest, keys, &entry, entry.revision).await {
            Ok(object) => objects.push(object),
            Err(why) => unreadable.push((entry.key.into(), why)),
        }
    }
    Ok(Loaded { objects, unreadable, revision: at.unwrap_or(page.revision) })
}

/// How often what could not be read may have become readable.
fn key_changes(cache: &Cache) -> Option<u64> {
    cache.at_rest.changed().map(|changed| *changed.borrow())
}

/// Reads again what could not be read, because it may be readable now: as of what the watch has told, so that it tells
/// all that follows.
async fn heal(cache: &Cache, observer: &dyn Observer) {
    let lost: Vec<_> = cache.all().into_iter().filter(|resource| resource.is_unreadable()).collect();
    for resource in &lost {
        match read(cache, resource, Some(cache.revision())).await {
            Ok(loaded) => {
                let prefix = &*resource.keys().prefix;
                info!(prefix, unreadable = loaded.unreadable.len(), "read again");
                tell_of(resource, &loaded.unreadable);
                resource.reset(loaded);
            }
            Err(failure) => {
                warn!(%failure, prefix = %resource.keys().prefix, "cannot read again what could not be read");
            }
        }
    }
    if !lost.is_empty() {
        observer.loaded(cache);
    }
}

/// One line for a kind, however much of it cannot be read: it is mostly one key that is missing.
fn tell_of(resource: &ResourceCache, unreadable: &[(Arc<str>, Unreadable)]) {
    if let Some((_, why)) = unreadable.first() {
        let prefix = &*resource.keys().prefix;
        error!(prefix, count = unreadable.len(), %why, "stored values cannot be read; the first of them");
    }
}

/// Ends when unreadable values may be readable.
async fn keys_changed(changed: &mut Option<watch::Receiver<u64>>) {
    match changed {
        Some(changed) => {
            if changed.changed().await.is_err() {
                std::future::pending().await
            }
        }
        None => std::future::pending().await,
    }
}

/// Follows the store for ever; starts over when the store forgot what comes next. While the store does not answer,
/// what is here stays as it was.
pub async fn follow(cache: Arc<Cache>, observer: Arc<dyn Observer>, random: Random) {
    let mut keys = cache.at_rest.changed();
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2), 0.5);
    loop {
        let ended = match cache.store.watch(cache.revision()).await {
            Ok(mut watch) => loop {
                let batch = tokio::select! {
                    batch = watch.batches.recv() => batch,
                    () = keys_changed(&mut keys) => {
                        heal(&cache, &*observer).await;
                        continue;
                    }
                };
                match batch {
                    Some(Ok(batch)) => {
                        backoff.reset();
                        take(&cache, &*observer, &batch).await;
                    }
                    Some(Err(failure)) => break failure,
                    None => return,
                }
            },
            Err(failure) => failure,
        };
        error!(failure = %ended, "the store's watch ended");
        if !matches!(ended, StoreError::Unavailable(_)) {
            match reload(&cache).await {
                Ok(()) => {
                    observer.loaded(&cache);
                    continue;
                }
                Err(failure) => error!(%failure, "cannot load from the store"),
            }
        }
        tokio::time::sleep(backoff.next(&random)).await;
    }
}

async fn take(cache: &Cache, observer: &dyn Observer, batch: &Batch) {
    let mut touched: Vec<Arc<ResourceCache>> = Vec::new();
    for event in &batch.events {
        observer.committed(cache, event);
        for resource in cache.of_key(&event.key) {
            if let Some(change) = apply(&cache.at_rest, &resource, event).await {
                observer.changed(&resource.keys().prefix, &change);
            }
            if !touched.iter().any(|seen| Arc::ptr_eq(seen, &resource)) {
                touched.push(resource);
            }
        }
    }
    cache.advance(batch.upto);
    for resource in touched {
        resource.announce(batch.upto);
    }
}

async fn apply(at_rest: &AtRest, resource: &ResourceCache, event: &Event) -> Option<CacheEvent> {
    let (key, revision, keys) = (event.key.as_str(), event.revision, resource.keys());
    let Some(entry) = &event.entry else {
        return resource.apply(key, revision, Change::Delete(last(at_rest, resource, event).await));
    };
    match at_rest::object(at_rest, keys, entry, revision).await {
        Ok(object) => resource.apply(key, revision, Change::Put(object)),
        Err(why) => {
            if !resource.is_unreadable() {
                error!(prefix = %keys.prefix, %why, "a stored value cannot be read");
            }
            resource.apply(key, revision, Change::Lose(why))
        }
    }
}

/// The last state of a deleted object. What the cache holds need not be decrypted again.
async fn last(at_rest: &AtRest, resource: &ResourceCache, event: &Event) -> Option<Arc<CachedObject>> {
    let keys = resource.keys();
    let previous = event.previous.as_ref()?;
    if at_rest.is_configured(keys) && resource.get(&event.key).is_some() {
        return None;
    }
    at_rest::object(at_rest, keys, previous, event.revision).await.ok()
}
