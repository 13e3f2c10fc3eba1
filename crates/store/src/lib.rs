//! Revisions, ranges, watch, compaction, expiry: bytes only.
//!
//! One trait, two implementations ([`embedded`], [`etcd`]), one suite (`tests/all/suite.rs`) that both pass.
//! Nothing here knows what a key or a value means; [`backup`] is the form in which a store leaves and comes back.
//! Invariants: revisions rise by one per committed write (over a crash
//! they may leap, they never come back);
//! an acknowledged durable write is on disk; a watch delivers every revision in order or ends with
//! [`StoreError::Compacted`], it never skips.

pub mod backup;
pub mod embedded;
pub mod etcd;
#[cfg(test)]
#[path = "../tests/all/writes.rs"]
mod writes;

/// The name that tests outside call the crate by.
#[cfg(test)]
extern crate self as store;

use bytes::Bytes;
use futures::future::BoxFuture;

/// The prefix of every key, as upstream's.
pub const ROOT: &str = "/registry/";

/// The store's counter. 0 is before the first write.
pub type Revision = u64;

/// One compare-and-write.
#[derive(Clone, Debug)]
pub struct Write {
    /// `/registry/<resource>/<namespace>/<name>`
    pub key: String,
    /// The condition on which the write happens.
    pub expect: Expect,
    /// The change to write.
    pub change: Change,
    /// The moment of acknowledgement.
    pub durability: Durability,
    /// Beside the value, never in it: what caused this revision. Opaque here.
    pub cause: Bytes,
    /// A condition on another key on which the write happens.
    pub only_while: Option<Unchanged>,
}

/// The condition that the last change of a key, which is there, is still this revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unchanged {
    /// The key.
    pub key: String,
    /// Its last change.
    pub revision: Revision,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key's last change is this revision.
    Revision(Revision),
}

/// The effect of a write.
#[derive(Clone, Debug)]
pub enum Change {
    /// Sets the value; it expires after `ttl_seconds` if given.
    Put {
        /// The object's encoded form.
        value: Bytes,
        /// Time to live; upstream gives Events one hour.
        ttl_seconds: Option<u32>,
    },
    /// Removes the key.
    Delete,
}

/// The moment at which a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After it is on disk.
    Synced,
    /// Acknowledged when it is visible; it reaches the disk with the next synced write or within a bounded time
    /// (Leases, Events).
    Relaxed,
}

/// A key's value at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// The revision at which the key was created.
    pub create_revision: Revision,
    /// The revision of the last change.
    pub revision: Revision,
}

/// Part of the key space at one revision.
#[derive(Clone, Debug)]
pub struct Page {
    /// In key order.
    pub entries: Vec<Entry>,
    /// The revision that this is a picture of.
    pub revision: Revision,
    /// Keys in the range after the last entry.
    pub remaining: u64,
}

/// One committed change, as a watch delivers it.
#[derive(Clone, Debug)]
pub struct Event {
    /// The revision that the change made.
    pub revision: Revision,
    /// The key.
    pub key: String,
    /// The new entry; `None` for a deletion.
    pub entry: Option<Entry>,
    /// The entry before the change.
    pub previous: Option<Entry>,
    /// The cause of the change.
    pub cause: Bytes,
}

/// The reason why the store could not do it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The condition of a write did not hold.
    #[error("the key's state is not the expected one")]
    Conflict {
        /// What is there instead.
        current: Option<Entry>,
    },
    /// The key of [`Write::only_while`] has changed; nothing happened.
    #[error("what the write depends on has changed")]
    Overtaken,
    /// The revision asked for is gone.
    #[error("revision {requested} was compacted, the oldest is {oldest}")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// What can be had, as far as is known: it may be newer.
        oldest: Revision,
    },
    /// The revision asked for has not happened yet.
    #[error("revision {requested} is in the future, the newest is {newest}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// What can be had.
        newest: Revision,
    },
    /// The value is larger than the engine takes.
    #[error("the value is too large for the store")]
    TooLarge,
    /// The engine does not answer; nothing is known to be lost, and trying again may help.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// Disk or quota full, or the store's own bound is reached: nothing of the write happened, and the next one is
    /// tried again.
    #[error("no space is left for the store")]
    NoSpace,
    /// The disk takes no writes: nothing of this one happened, and the next one is tried again.
    #[error("the disk refuses writes: {0}")]
    Refused(String),
    /// Data on disk that differs from what was written. It is not served.
    #[error("the data is damaged: {0}")]
    Damaged(String),
    /// The engine failed; nothing is acknowledged any more from this state.
    #[error("the store failed: {0}")]
    Failed(String),
}

/// The store on which the API server stands.
pub trait Store: Send + Sync + 'static {
    /// Commits one write under a new revision.
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>>;

    /// The entry of `key` now.
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Entry>, StoreError>>;

    /// Entries in `[start, end)` at `at` (now, if `None`), at most `limit` (0: all).
    fn range(
        &self,
        start: &str,
        end: &str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Page, StoreError>>;

    /// The newest revision that this process knows of.
    fn revision(&self) -> Revision;

    /// The newest revision that anyone had committed when this was called: what a consistent read must have seen.
    /// Watches get there soon, also if nothing of theirs changes any more.
    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>>;

    /// Every change after `after`, in order.
    fn watch(&self, after: Revision) -> BoxFuture<'_, Result<Watch, StoreError>>;

    /// Forgets what is older than `revision`.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>>;

    /// What keeps the store from working as it should, a line each; empty when it is well.
    fn faults(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async { Vec::new() })
    }

    /// Ends when nothing will be acknowledged any more: the process has to start over from what is on disk.
    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Writes out what is not yet on disk and ends all watches; later writes may be refused.
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// The receiving end of a watch: batches of events in revision order.
///
/// The channel is bounded; when the reader falls behind, the store reads on from its log, so nothing is lost.
/// It ends with `Err(Compacted)` if what comes next was compacted meanwhile, or with `None` at shutdown.
pub struct Watch {
    /// The next batch.
    pub batches: tokio::sync::mpsc::Receiver<Result<Batch, StoreError>>,
}

/// Events that a watch delivers together: all of a revision, or none of it.
#[derive(Clone, Debug)]
pub struct Batch {
    /// In revision order; empty when other keys moved the revision on.
    pub events: Vec<Event>,
    /// Everything up to this revision has now been delivered.
    pub upto: Revision,
}
