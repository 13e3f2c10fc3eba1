//! Fills the caches: one range at the start, then one watch of the whole store.

use std::collections::HashMap;
use std::sync::Arc;

use store::{Batch, Event, ROOT, Store, StoreError};
use tracing::{error, info, warn};

use super::Cache;
use super::object::CachedObject;
use super::resource::{CacheEvent, ResourceCache};
use crate::security::Security;
use crate::trace::Trace;

/// The first string after every key.
const ROOT_END: &str = "/registry0";

/// Reads the whole store into the caches.
///
/// # Errors
/// As the store's.
pub async fn load(cache: &Cache, store: &dyn Store) -> Result<(), StoreError> {
    let page = store.range(ROOT, ROOT_END, None, 0).await?;
    let revision = page.revision;
    let mut by_resource: HashMap<String, Vec<Arc<CachedObject>>> = HashMap::new();
    for entry in page.entries {
        let Some(resource) = cache.of_key(&entry.key) else { continue };
        match CachedObject::from_stored(entry.key.as_str().into(), &entry.value, entry.revision) {
            Some(object) => {
                by_resource.entry(resource.prefix().to_owned()).or_default().push(Arc::new(object));
            }
            None => warn!(key = %entry.key, "stored value is no JSON object; it is not served"),
        }
    }
    for resource in cache.all() {
        resource.reset(by_resource.remove(resource.prefix()).unwrap_or_default(), revision);
    }
    cache.advance(revision);
    cache.loaded.store(true, std::sync::atomic::Ordering::Release);
    info!(revision, "watch cache loaded");
    Ok(())
}

/// Follows the store for ever; starts over when the store forgot what comes next.
pub async fn follow(cache: Arc<Cache>, store: Arc<dyn Store>, trace: Arc<Trace>, security: Arc<Security>) {
    loop {
        let mut watch = match store.watch(cache.revision()).await {
            Ok(watch) => watch,
            Err(failure) => {
                error!(%failure, "cannot watch the store; loading again");
                if let Err(failure) = load(&cache, store.as_ref()).await {
                    error!(%failure, "cannot load from the store");
                    return;
                }
                continue;
            }
        };
        loop {
            match watch.batches.recv().await {
                Some(Ok(batch)) => take(&cache, &trace, &security, &batch),
                Some(Err(failure)) => {
                    warn!(%failure, "the store's watch ended");
                    if let Err(failure) = load(&cache, store.as_ref()).await {
                        error!(%failure, "cannot load from the store");
                        return;
                    }
                    break;
                }
                None => return,
            }
        }
    }
}

fn take(cache: &Cache, trace: &Trace, security: &Security, batch: &Batch) {
    let mut touched: Vec<Arc<ResourceCache>> = Vec::new();
    for event in &batch.events {
        trace.committed(event);
        let Some(resource) = cache.of_key(&event.key) else { continue };
        if let Some(change) = apply(&resource, event) {
            security.observe(resource.prefix(), &change);
        }
        if !touched.iter().any(|seen| Arc::ptr_eq(seen, &resource)) {
            touched.push(resource);
        }
    }
    cache.advance(batch.upto);
    for resource in touched {
        resource.announce(batch.upto);
    }
}

fn apply(resource: &ResourceCache, event: &Event) -> Option<CacheEvent> {
    let make = |value: &[u8]| {
        let made = CachedObject::from_stored(event.key.as_str().into(), value, event.revision).map(Arc::new);
        if made.is_none() {
            warn!(key = %event.key, "stored value is no JSON object; it is not served");
        }
        made
    };
    match &event.entry {
        Some(entry) => resource.apply(&event.key, event.revision, Some(make(&entry.value)?), &|_| None),
        None => resource.apply(&event.key, event.revision, None, &|held| match (&event.previous, held) {
            (Some(previous), _) => make(&previous.value),
            (None, Some(held)) => make(&held.json),
            (None, None) => None,
        }),
    }
}
