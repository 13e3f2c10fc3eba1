//! Fills the caches: one range at the start, then one watch of the whole store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Random};
use store::{Batch, Event, ROOT, Store, StoreError};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::Cache;
use super::object::CachedObject;
use super::resource::{CacheEvent, ResourceCache};
use crate::at_rest::{self, AtRest, Unreadable};
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
    let mut by_resource: HashMap<String, (Vec<Arc<CachedObject>>, Vec<_>)> = HashMap::new();
    for entry in page.entries {
        let Some(resource) = cache.of_key(&entry.key) else { continue };
        let opened = at_rest::object(&cache.at_rest, resource.prefix(), &entry, entry.revision).await;
        let (objects, unreadable) = by_resource.entry(resource.prefix().to_owned()).or_default();
        match opened {
            Ok(object) => objects.push(object),
            Err(why) => unreadable.push((entry.key.into(), why)),
        }
    }
    for resource in cache.all() {
        let (objects, unreadable) = by_resource.remove(resource.prefix()).unwrap_or_default();
        tell_of(resource.prefix(), &unreadable);
        resource.reset(objects, unreadable, revision);
    }
    cache.advance(revision);
    cache.loaded.store(true, std::sync::atomic::Ordering::Release);
    info!(revision, "watch cache loaded");
    Ok(())
}

/// Reads again what could not be read, because it may be readable now: as of what the watch has told, so that it tells
/// all that follows.
async fn heal(cache: &Cache, store: &dyn Store, security: &Security) {
    let lost: Vec<_> = cache.all().into_iter().filter(|resource| resource.is_unreadable()).collect();
    for resource in &lost {
        let end = format!("{}0", resource.prefix().trim_end_matches('/'));
        let page = match store.range(resource.prefix(), &end, Some(cache.revision()), 0).await {
            Ok(page) => page,
            Err(failure) => {
                warn!(%failure, prefix = resource.prefix(), "cannot read again what could not be read");
                continue;
            }
        };
        let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
        for entry in page.entries {
            match at_rest::object(&cache.at_rest, resource.prefix(), &entry, entry.revision).await {
                Ok(object) => objects.push(object),
                Err(why) => unreadable.push((entry.key.into(), why)),
            }
        }
        info!(prefix = resource.prefix(), unreadable = unreadable.len(), "read again");
        tell_of(resource.prefix(), &unreadable);
        resource.reset(objects, unreadable, page.revision);
    }
    if !lost.is_empty() {
        security.load(cache);
    }
}

/// One line for a kind, however much of it cannot be read: it is mostly one key that is missing.
fn tell_of(prefix: &str, unreadable: &[(Arc<str>, Unreadable)]) {
    if let Some((_, why)) = unreadable.first() {
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
pub async fn follow(
    cache: Arc<Cache>,
    store: Arc<dyn Store>,
    trace: Arc<Trace>,
    security: Arc<Security>,
    random: Random,
) {
    let mut keys = cache.at_rest.changed();
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2), 0.5);
    loop {
        let ended = match store.watch(cache.revision()).await {
            Ok(mut watch) => loop {
                let batch = tokio::select! {
                    batch = watch.batches.recv() => batch,
                    () = keys_changed(&mut keys) => {
                        heal(&cache, store.as_ref(), &security).await;
                        continue;
                    }
                };
                match batch {
                    Some(Ok(batch)) => {
                        backoff.reset();
                        take(&cache, &trace, &security, &batch).await;
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

async fn take(cache: &Cache, trace: &Trace, security: &Security, batch: &Batch) {
    let mut touched: Vec<Arc<ResourceCache>> = Vec::new();
    for event in &batch.events {
        trace.committed(event);
        let Some(resource) = cache.of_key(&event.key) else { continue };
        if let Some(change) = apply(&cache.at_rest, &resource, event).await {
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

async fn apply(at_rest: &AtRest, resource: &ResourceCache, event: &Event) -> Option<CacheEvent> {
    let (key, revision, prefix) = (event.key.as_str(), event.revision, resource.prefix());
    if let Some(entry) = &event.entry {
        return match at_rest::object(at_rest, prefix, entry, revision).await {
            Ok(object) => resource.apply(key, revision, Some(object), &|_| None),
            Err(why) => {
                if !resource.is_unreadable() {
                    error!(prefix, %why, "a stored value cannot be read");
                }
                resource.lose(key, revision, why);
                None
            }
        };
    }
    // What the cache holds need not be decrypted again.
    let last = match &event.previous {
        Some(previous) if !at_rest.is_configured(prefix) || resource.get(key).is_none() => {
            at_rest::object(at_rest, prefix, previous, revision).await.ok()
        }
        _ => None,
    };
    resource.apply(key, revision, None, &|held| {
        last.clone().or_else(|| held.map(|held| Arc::new(held.at_revision(revision))))
    })
}
