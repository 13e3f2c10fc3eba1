//! The embedded store: LMDB below, one writer thread, group commit.
//!
//! Invariants: a synced write is acknowledged after its group's flush; relaxed writes are a tail of the same log
//! that only a crash can cut off, never out of its middle, and of which the disk gets each key's newest ([`coalesced`]);
//! revisions are never given out twice, also over a crash
//! (what may have been lost answers [`StoreError::Compacted`], so that watchers list again); reads see whole
//! revisions only. What can block does so in a blocking task or in the writer's thread. Opening what is there writes
//! nothing, so that a disk that is full or takes no writes still serves. What is read back is checked ([`sealed`]);
//! what is damaged is never served. What a failing disk means is decided in [`writer`].

mod coalesced;
mod disk_probe;
mod fanout;
mod format;
mod free_pages;
mod give_back;
mod lock;
pub mod offline;
mod opening;
mod overlay;
mod record;
mod reply;
mod sealed;
mod snapshots;
mod stage;
mod tables;
mod thinning;
mod view;
mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use base::{Clock, Tasks};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch as cell};

use self::lock::{Lock, lock};
pub use self::opening::expect_data;
use self::overlay::Overlay;
use self::tables::{Gap, Tables};
use self::view::View;
use self::writer::{Op, Writer};
use crate::{Entry, Page, Revision, Store, StoreError, Watch, Write};

/// The file with everything in it.
const DATA: &str = "data.mdb";
/// Writes that wait for the writer.
const QUEUE_MAX: usize = 1024;

/// The settings of an embedded store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Writes are refused with [`StoreError::NoSpace`] when the data takes more than this.
    pub bytes_max: u64,
    /// Relaxed writes that create or remove something (Events) reach the disk within this time, if no synced one
    /// takes them along before.
    pub relaxed_flush: Duration,
    /// Those that only change what is there (renewals of Leases) reach it within this time: of each key the newest.
    pub heartbeat_flush: Duration,
    /// Of values that were replaced or removed about so much is kept, for those who ask for the past, if nobody
    /// compacts before: at least half of it.
    pub history_bytes_max: u64,
    /// So much of the data file may always be free. When more is, and more than half of what is in use, the disk gets
    /// it back.
    pub slack_bytes_min: u64,
    /// Decides when keys expire.
    pub clock: Clock,
    /// The threads that do the work.
    pub threads: Threads,
}

/// The threads on which the store does what can block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// In a thread of its own, and in the runtime's blocking ones.
    Own,
    /// In the runtime's tasks: whatever happens then follows from the order in which these run, so a simulation can
    /// choose it. Dropping such a store is a crash: nothing is written out.
    None,
}

impl Default for Options {
    /// 8 GiB, which upstream recommends as etcd's largest quota; half a minute; twenty minutes; 256 MiB; 64 MiB.
    fn default() -> Self {
        Self {
            bytes_max: 8 << 30,
            relaxed_flush: Duration::from_secs(30),
            heartbeat_flush: Duration::from_secs(1200),
            history_bytes_max: 256 << 20,
            slack_bytes_min: 64 << 20,
            clock: Clock::system(),
            threads: Threads::Own,
        }
    }
}

/// The reason why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has it open.
    #[error("the data directory {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// A newer or foreign layout.
    #[error(
        "the data has format {found}, this knarr knows up to {known}: use the knarr that wrote it, or a newer one"
    )]
    Format {
        /// In the file.
        found: u64,
        /// Known here.
        known: u64,
    },
    /// The directory cannot be used.
    #[error("cannot use the data directory {}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There was data, and now there is none.
    #[error(
        "the data file {} {state}, and this cluster has had one: put it back, bring a backup back with `knarr \
         restore`, or begin anew after `knarr reset`",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        state: &'static str,
    },
    /// The data cannot be read, or the disk refuses.
    #[error("cannot open the data file")]
    Data(#[from] StoreError),
}

/// What the writer, readers and watches share.
struct Core {
    tables: Tables,
    shared: Mutex<Shared>,
    newest: AtomicU64,
    /// What is older is not answered any more: raised before the disk forgets it, and before the disk knows.
    compacted: AtomicU64,
    failed: OnceLock<String>,
    /// Set with `failed`.
    end: cell::Sender<bool>,
    faults: Mutex<Faults>,
    /// As found when it was opened.
    gaps: Vec<Gap>,
    threads: Threads,
}

/// What is wrong, for people.
#[derive(Default)]
struct Faults {
    /// Why the last write to disk did not happen.
    disk: Option<String>,
    /// What compaction stumbled over; it stays until the process ends.
    damage: Option<String>,
}

struct Shared {
    overlay: Arc<Overlay>,
    published: Revision,
    subscribers: fanout::Subscribers,
}

impl Core {
    /// The newest picture.
    fn view(&self) -> Result<View<'_>, StoreError> {
        let (overlay, published) = {
            let shared = self.shared.lock();
            (Arc::clone(&shared.overlay), shared.published)
        };
        View::open(&self.tables, overlay, published, || self.compacted.load(Ordering::Acquire))
    }

    /// Whether history from `revision` on can be had.
    fn check(&self, revision: Revision, view: &View<'_>) -> Result<(), StoreError> {
        if revision > view.revision {
            return Err(StoreError::Future { requested: revision, newest: view.revision });
        }
        if revision < view.compacted {
            return Err(StoreError::Compacted { requested: revision, oldest: view.compacted });
        }
        match self.gaps.iter().find(|gap| gap.from < revision && revision <= gap.to) {
            Some(gap) => Err(StoreError::Compacted { requested: revision, oldest: gap.to + 1 }),
            None => Ok(()),
        }
    }

    /// Reads what takes long.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.threads == Threads::None {
            return read(self);
        }
        let core = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || read(&core)).await;
        done.map_err(|stopped| StoreError::Failed(stopped.to_string()))?
    }

    fn range(&self, start: &str, end: &str, at: Option<Revision>, limit: usize) -> Result<Page, StoreError> {
        loop {
            let view = self.view()?;
            let Some(at) = at else {
                // Compaction may have overtaken the picture between its two halves.
                if view.revision < view.compacted {
                    continue;
                }
                return view.range(start, end, view.revision, limit);
            };
            self.check(at, &view)?;
            return view.range(start, end, at, limit);
        }
    }
}

/// The embedded store. Dropping it writes out what is not yet on disk; to open the directory again within the same
/// process, [`Store::close`] it before, which also waits for its watches.
pub struct Embedded {
    core: Arc<Core>,
    queue: Option<mpsc::Sender<Op>>,
    writer: Option<JoinHandle<()>>,
    tasks: Tasks,
    /// Held until the writer has ended. A watch that ends later only reads, which harms no one.
    _lock: Lock,
}

impl Embedded {
    /// Opens the store in `dir`, which is made (mode 0700) if it is not there. To be called within a tokio runtime.
    ///
    /// # Errors
    /// If somebody else has it open, if its format is unknown, if disk or engine refuse.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let lock = lock(dir)?;
        let tables = match lock.is_read_only {
            true => opening::read_only(dir)?,
            false => opening::read_write(dir, &options)?,
        };
        tables.check_keys()?;
        if !lock.is_read_only && tables.is_fresh()? {
            opening::sync_folder(dir)?;
        }
        let (start, gaps) = opening::recover(&tables)?;
        let shared = Shared {
            overlay: Arc::default(),
            published: start.last,
            subscribers: fanout::Subscribers::default(),
        };
        let core = Arc::new(Core {
            tables,
            shared: Mutex::new(shared),
            newest: AtomicU64::new(start.last),
            compacted: AtomicU64::new(start.compacted),
            failed: OnceLock::new(),
            end: cell::Sender::new(false),
            faults: Mutex::default(),
            gaps,
            threads: options.threads,
        });
        let (queue, queued) = mpsc::channel(QUEUE_MAX);
        let writer = Writer::new(Arc::clone(&core), queued, &options, &start, dir);
        let tasks = Tasks::new();
        tasks.spawn("store timer", wake(writer.due.subscribe(), queue.downgrade(), options.clock));
        let writer = match options.threads {
            Threads::Own => {
                let thread = std::thread::Builder::new().name("store-writer".to_owned());
                let thread = thread.spawn(move || writer.run());
                Some(thread.map_err(|source| OpenError::Directory { path: dir.to_owned(), source })?)
            }
            Threads::None => {
                tasks.spawn("store writer", writer.run_as_task());
                None
            }
        };
        Ok(Self { core, queue: Some(queue), writer, tasks, _lock: lock })
    }

    /// Bytes that the data takes.
    ///
    /// # Errors
    /// If the engine cannot tell.
    pub fn used_bytes(&self) -> Result<u64, StoreError> {
        self.core.tables.used_bytes()
    }

    async fn ask<T>(
        &self,
        op: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Op,
    ) -> Result<T, StoreError> {
        let why = || self.core.failed.get().cloned().unwrap_or_else(|| "it is closed".to_owned());
        let closed = || StoreError::Failed(why());
        let (reply, mut answer) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(closed)?;
        queue.send(op(reply)).await.map_err(|_| closed())?;
        let answered = tokio::select! {
            biased;
            answered = &mut answer => answered.ok(),
            // What came into the queue just when the writer left is never looked at.
            () = queue.closed() => answer.try_recv().ok(),
        };
        answered.ok_or_else(closed)?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.core.shared.lock().subscribers.close();
        self.tasks.stop();
        drop(self.queue.take());
        if self.writer.take().is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the store's writer panicked");
        }
    }
}

impl Store for Embedded {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.ask(|reply| Op::Write(write, reply)).boxed()
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Entry>, StoreError>> {
        let entry = loop {
            match self.core.view() {
                Ok(view) if view.revision < view.compacted => {}
                Ok(view) => break if key.is_empty() { Ok(None) } else { view.get(key) },
                Err(error) => break Err(error),
            }
        };
        futures::future::ready(entry).boxed()
    }

    fn range(
        &self,
        start: &str,
        end: &str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Page, StoreError>> {
        let (start, end) = (start.to_owned(), end.to_owned());
        self.core.read(move |core| core.range(&start, &end, at, limit)).boxed()
    }

    fn revision(&self) -> Revision {
        self.core.newest.load(Ordering::Acquire)
    }

    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        futures::future::ready(Ok(self.revision())).boxed()
    }

    fn watch(&self, after: Revision) -> BoxFuture<'_, Result<Watch, StoreError>> {
        let start = self.core.view().and_then(|view| self.core.check(after, &view));
        let watch = start.map(|()| {
            let (sender, batches) = mpsc::channel(fanout::BATCHES_MAX);
            let follow = fanout::follow(Arc::clone(&self.core), after, sender);
            self.tasks.spawn("store watch", follow);
            Watch { batches }
        });
        futures::future::ready(watch).boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.ask(move |reply| Op::Compact(revision, reply)).boxed()
    }

    fn faults(&self) -> BoxFuture<'_, Vec<String>> {
        let failed = self.core.failed.get().map(|why| format!("the store failed: {why}"));
        let faults = self.core.faults.lock();
        let all = failed.into_iter().chain(faults.disk.clone()).chain(faults.damage.clone()).collect();
        futures::future::ready(all).boxed()
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        let mut end = self.core.end.subscribe();
        async move {
            if end.wait_for(|has_failed| *has_failed).await.is_err() {
                std::future::pending().await
            }
        }
        .boxed()
    }

    /// Later writes answer `Failed`.
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.core.shared.lock().subscribers.close();
            let result = self.ask(Op::Close).await;
            self.tasks.stop_and_wait().await;
            result
        }
        .boxed()
    }
}

/// Wakes the writer when it wants to be woken.
async fn wake(mut due: cell::Receiver<Option<i64>>, queue: mpsc::WeakSender<Op>, clock: Clock) {
    loop {
        let at = *due.borrow_and_update();
        let changed = match at {
            None => due.changed().await,
            Some(at) => {
                let wait = u64::try_from(at.saturating_sub(clock.now().as_microsecond())).unwrap_or(0);
                tokio::select! {
                    biased;
                    changed = due.changed() => changed,
                    () = tokio::time::sleep(Duration::from_micros(wait)) => {
                        let Some(queue) = queue.upgrade() else { return };
                        if queue.send(Op::Tick).await.is_err() {
                            return;
                        }
                        drop(queue);
                        due.changed().await
                    }
                }
            }
        };
        if changed.is_err() {
            return;
        }
    }
}
