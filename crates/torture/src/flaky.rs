//! A store that is honest and hard to reach: answers come late or not at all, watches break.
//!
//! It is what a network makes of a store. Nothing that it does is a lie, so nothing of it may be found by the checker;
//! what stands upon it has to live with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Random, Tasks};
use futures::FutureExt;
use futures::future::BoxFuture;
use store::{Batch, Entry, Page, Revision, Store, StoreError, Watch, Write};
use tokio::sync::mpsc;

/// How late an answer may be.
const LATE_MILLIS_MAX: u64 = 30;
/// Events that one batch is left with.
const EVENTS_MAX: u64 = 3;

/// The store.
pub struct Flaky {
    inner: Arc<dyn Store>,
    random: Random,
    /// Of a hundred requests, how many are not answered.
    percent: Arc<AtomicU64>,
    tasks: Tasks,
}

impl Flaky {
    /// Of a hundred requests to `inner`, about `percent` are not answered.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, random: Random, percent: u64) -> Self {
        Self { inner, random, percent: Arc::new(AtomicU64::new(percent)), tasks: Tasks::new() }
    }

    /// From now on, so many of a hundred.
    pub fn set(&self, percent: u64) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    fn is_broken(&self) -> bool {
        self.random.below(100) < self.percent.load(Ordering::Relaxed)
    }

    async fn late(&self) {
        if self.random.below(3) == 0 {
            tokio::time::sleep(Duration::from_millis(self.random.below(LATE_MILLIS_MAX))).await;
        }
    }

    /// A request, which may be lost on its way there, and an answer, which may be lost on its way back.
    async fn through<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.late().await;
        if self.is_broken() {
            return Err(StoreError::Unavailable("the request was lost".to_owned()));
        }
        let done = work.await;
        self.late().await;
        if self.is_broken() {
            return Err(StoreError::Unavailable("the answer was lost".to_owned()));
        }
        done
    }
}

impl Drop for Flaky {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

impl Store for Flaky {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.through(self.inner.commit(write)).boxed()
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Entry>, StoreError>> {
        let key = key.to_owned();
        // The inner read takes place when it is asked for.
        async move { self.through(async { self.inner.get(&key).await }).await }.boxed()
    }

    fn range(
        &self,
        start: &str,
        end: &str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.through(self.inner.range(start, end, at, limit)).boxed()
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.through(async { self.inner.newest().await }).boxed()
    }

    fn watch(&self, after: Revision) -> BoxFuture<'_, Result<Watch, StoreError>> {
        async move {
            let watch = self.through(async { self.inner.watch(after).await }).await?;
            let (sender, batches) = mpsc::channel(1);
            let life = 5 + self.random.below(200);
            let forward = forward(watch, sender, (self.random.clone(), Arc::clone(&self.percent)), life);
            self.tasks.spawn("flaky watch", forward);
            Ok(Watch { batches })
        }
        .boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.through(self.inner.compact(revision)).boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.tasks.stop_and_wait().await;
            self.inner.close().await
        }
        .boxed()
    }
}

/// Hands on batches, late and in pieces, until so many are through.
async fn forward(
    mut watch: Watch,
    sender: mpsc::Sender<Result<Batch, StoreError>>,
    (random, percent): (Random, Arc<AtomicU64>),
    mut life: u64,
) {
    while let Some(batch) = watch.batches.recv().await {
        if random.below(4) == 0 {
            tokio::time::sleep(Duration::from_millis(random.below(LATE_MILLIS_MAX))).await;
        }
        let pieces = match batch {
            Ok(batch) => pieces(batch, &random).into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        for piece in pieces {
            // Without trouble nothing breaks.
            life = life.saturating_sub(u64::from(percent.load(Ordering::Relaxed) > 0));
            let piece = match life {
                0 => Err(StoreError::Unavailable("the watch broke".to_owned())),
                _ => piece,
            };
            if sender.send(piece).await.is_err() || life == 0 {
                return;
            }
        }
    }
}

/// The same events in more batches; a batch without events says how far the store is.
fn pieces(batch: Batch, random: &Random) -> Vec<Batch> {
    let mut pieces: Vec<Batch> = Vec::new();
    let mut events = batch.events;
    while events.len() > 1 && random.below(2) == 0 {
        let count = usize::try_from(1 + random.below(EVENTS_MAX)).unwrap_or(1).min(events.len() - 1);
        let rest = events.split_off(count);
        let upto = events.last().map_or(0, |event| event.revision);
        pieces.push(Batch { events, upto });
        events = rest;
    }
    pieces.push(Batch { events, upto: batch.upto });
    pieces
}
