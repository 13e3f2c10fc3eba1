//! Fills the caches: one range at the start, then one watch of the whole store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Random};
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

/// Follows the store for ever; starts over when the store forgot what comes next. While the store does not answer,
/// what is here stays as it was.
pub async fn follow(
    cache: Arc<Cache>,
    store: Arc<dyn Store>,
    trace: Arc<Trace>,
    security: Arc<Security>,
    random: Random,
) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2), 0.5);
    loop {
        let ended = match store.watch(cache.revision()).await {
            Ok(mut watch) => loop {
                match watch.batches.recv().await {
                    Some(Ok(batch)) => {
                        backoff.reset();
                        take(&cache, &trace, &security, &batch);
                    }
                    Some(Err(failure)) => break failure,
                    None => return,
                }
            },
            Err(failure) => failure,
        };
        error!(failure = %ended, "the store's watch ended");
        if !matches!(ended, StoreError::Unavailable(_)) {
            match load(&cache, store.as_ref()).await {
                Ok(()) => {
                    security.load(&cache);
                    continue;
                }
                Err(failure) => error!(%failure, "cannot load from the store"),
            }
        }
        tokio::time::sleep(backoff.next(&random)).await;
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
