//! Stores that lie: the negative controls. Each tells one kind of lie, now and then, and a named test catches it.
//!
//! Some lie only where something else is wrong too (the process dies, a request is lost, the clock leaps): these are
//! what the faults themselves are tried on.

mod cache;
mod reads;
mod watches;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Clock, Tasks};
use clap::ValueEnum;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use store::{Entry, Page, Revision, Store, StoreError, Watch, Write};

/// A lie of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lie {
    /// Nothing: the control.
    None,
    /// The condition of an update or removal is not looked at.
    LostUpdate,
    /// A key that must not be there is replaced.
    CreateOverExisting,
    /// A write is acknowledged and not made.
    NotWritten,
    /// A write is refused and made.
    WrittenAfterAll,
    /// Two writes get one revision.
    RevisionTwice,
    /// A removed key comes back.
    DeletedKeyComesBack,
    /// What a refusal shows is not what is there.
    RefusalShowsThePast,
    /// A read answers what was there before.
    StaleGet,
    /// A read finds nothing where something is.
    BlindGet,
    /// A list lacks a key.
    ListMissesKey,
    /// A list has a key that is gone.
    ListHasDeletedKey,
    /// A list at a revision shows what is there now.
    ListIgnoresItsRevision,
    /// A list of one namespace has keys of another.
    WrongRange,
    /// A list says that it is newer than it is.
    ListRevisionAhead,
    /// A list shows what was there before.
    StaleList,
    /// The newest revision is an old one.
    StaleNewest,
    /// What comes after a page is not counted right.
    WrongRemaining,
    /// A key that was updated seems new.
    CreationForgotten,
    /// A watcher is not told of a change.
    DroppedEvent,
    /// A watcher is told of a change twice.
    DoubledEvent,
    /// A watcher is told of changes in the wrong order.
    ReorderedEvents,
    /// A watch begins one too late.
    WatchStartsLate,
    /// A watch begins one too early.
    WatchStartsEarly,
    /// An event does not say what was before.
    PreviousMissing,
    /// An event says something else about what was before.
    PreviousWrong,
    /// A watcher is told that it has seen what is still to come.
    ProgressAhead,
    /// An event shows another value.
    WrongValue,
    /// A removal looks like an update.
    DeletionAsUpdate,
    /// A watch from a revision that is forgotten begins later, silently.
    SkipsCompacted,
    /// A watch goes to sleep.
    StuckWatch,
    /// Compaction removes a key that is still there.
    CompactionEatsLiveKey,
    /// Compaction forgets more than it was told to.
    CompactsTooMuch,
    /// Reads and lists show what a watch has told so far.
    CachedReads,
    /// A synced write is acknowledged before it is on disk.
    NotFlushed,
    /// A write that failed is acknowledged.
    ErrorsSwallowed,
    /// A write without an answer is sent again, and the second answer is believed.
    RetriesBlindly,
    /// A watcher is not told of what happened while the process stood still.
    SleepsThroughEvents,
    /// A watcher is not told of what is older, by the clock, than what it was told before.
    BelievesTheClock,
}

impl Lie {
    /// As command lines have it: `dropped-event`.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// A store that tells one kind of lie about another one.
pub struct Liar {
    inner: Arc<dyn Store>,
    lie: Lie,
    is_honest: Arc<AtomicBool>,
    chances: AtomicU64,
    memory: Mutex<Memory>,
    cache: cache::Cache,
    clock: Clock,
    tasks: Tasks,
}

/// What a lie needs to remember.
#[derive(Default)]
struct Memory {
    revision: Revision,
    entries: BTreeMap<String, Entry>,
    pages: BTreeMap<String, Page>,
    eaten: Option<String>,
}

impl Liar {
    /// Tells `lie` about `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, lie: Lie) -> Self {
        Self {
            inner,
            lie,
            is_honest: Arc::default(),
            chances: AtomicU64::new(0),
            memory: Mutex::default(),
            cache: cache::Cache::default(),
            clock: Clock::system(),
            tasks: Tasks::new(),
        }
    }

    /// Looks at this clock, if that is the lie.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Tells the truth until [`Liar::begin`].
    #[must_use]
    pub fn honest_at_first(self) -> Self {
        self.is_honest.store(true, Ordering::Relaxed);
        self
    }

    /// Lies from now on.
    pub fn begin(&self) {
        self.is_honest.store(false, Ordering::Relaxed);
    }

    /// What it lies about now.
    fn lie(&self) -> Lie {
        if self.is_honest.load(Ordering::Relaxed) { Lie::None } else { self.lie }
    }

    /// Whether to lie this time: one chance in `every`, if this is the lie.
    fn is_lying(&self, lie: Lie, every: u64) -> bool {
        self.lie() == lie && self.chances.fetch_add(1, Ordering::Relaxed) % every == every - 1
    }
}

impl Store for Liar {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        writes::commit(self, write).boxed()
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Entry>, StoreError>> {
        reads::get(self, key.to_owned()).boxed()
    }

    fn range(
        &self,
        start: &str,
        end: &str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Page, StoreError>> {
        reads::range(self, (start.to_owned(), end.to_owned()), at, limit).boxed()
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        reads::newest(self).boxed()
    }

    fn watch(&self, after: Revision) -> BoxFuture<'_, Result<Watch, StoreError>> {
        watches::watch(self, after).boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let much = if self.lie() == Lie::CompactsTooMuch { self.inner.revision() } else { revision };
            self.inner.compact(much).await?;
            if self.lie() == Lie::CompactionEatsLiveKey {
                let page = self.inner.range("/registry/", "/registry0", None, 0).await?;
                let oldest = page.entries.into_iter().min_by_key(|entry| entry.revision);
                self.memory.lock().eaten = oldest.map(|entry| entry.key);
            }
            Ok(())
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.tasks.stop_and_wait().await;
            self.inner.close().await
        }
        .boxed()
    }
}
