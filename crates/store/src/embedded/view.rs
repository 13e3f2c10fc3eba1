//! A consistent picture of the store at one revision: a disk snapshot with the overlay laid over it.
//!
//! The overlay is taken before the disk snapshot, so together they hold every revision up to
//! [`View::revision`]; what the snapshot has beyond it is looked through, never shown.

use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use super::overlay::Overlay;
use super::record::{Head, Record};
use super::snapshots::Snapshot;
use super::tables::{Pointer, Tables};
use crate::{Entry, Event, Page, Revision, StoreError};

/// Log records that one read of events goes through.
const SCAN_RECORDS_MAX: usize = 4096;
/// Events that one read returns.
const EVENTS_MAX: usize = 256;
/// Bytes of values after which one read of events stops.
const EVENTS_BYTES_MAX: usize = 1 << 20;

/// The picture.
pub(super) struct View<'e> {
    tables: &'e Tables,
    txn: Snapshot<'e>,
    overlay: Arc<Overlay>,
    /// The newest revision in the picture.
    pub(super) revision: Revision,
    /// What is older cannot be seen.
    pub(super) compacted: Revision,
}

/// Some events, and how far the log was read for them.
pub(super) struct Chunk {
    pub(super) events: Vec<Event>,
    pub(super) upto: Revision,
}

impl<'e> View<'e> {
    /// `overlay` and `revision` were taken together, and before this call. `compacted` is at least what compaction has
    /// come to at the time of the call.
    pub(super) fn open(
        tables: &'e Tables,
        overlay: Arc<Overlay>,
        revision: Revision,
        compacted: impl FnOnce() -> Revision,
    ) -> Result<Self, StoreError> {
        let txn = tables.read()?;
        Ok(Self { tables, txn, overlay, revision, compacted: compacted() })
    }

    /// Where `key`'s newest record is, which may be newer than the picture.
    pub(super) fn pointer(&self, key: &str) -> Result<Option<Pointer>, StoreError> {
        match self.overlay.latest.get(key) {
            Some(pointer) => Ok(Some(*pointer)),
            None => self.tables.pointer(&self.txn, key),
        }
    }

    /// The record of `revision`.
    pub(super) fn record(&self, revision: Revision) -> Result<Option<Arc<Record>>, StoreError> {
        if revision == 0 {
            return Ok(None);
        }
        match self.overlay.record(revision) {
            Some(record) => Ok(Some(Arc::clone(record))),
            None => Ok(self.tables.record(&self.txn, revision)?.map(Arc::new)),
        }
    }

    /// The newest record at or before `at`, from `pointer` backwards; `None` if the key was not there.
    fn record_at(&self, pointer: Pointer, at: Revision) -> Result<Option<Arc<Record>>, StoreError> {
        if pointer.revision <= at && pointer.is_tombstone {
            return Ok(None);
        }
        let mut record = self.newest_record(pointer)?;
        while record.revision > at {
            // What is before may be compacted away.
            let Some(before) = self.record(record.before)? else { return Ok(None) };
            record = before;
        }
        Ok((!record.is_tombstone()).then_some(record))
    }

    /// The record that a key points to. Compaction never takes it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it is not there.
    pub(super) fn newest_record(&self, pointer: Pointer) -> Result<Arc<Record>, StoreError> {
        let missing = || self.tables.blame.damaged(format_args!("revision {}", pointer.revision));
        self.record(pointer.revision)?.ok_or_else(missing)
    }

    /// The entry of `key` in the picture.
    pub(super) fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let Some(pointer) = self.pointer(key)? else { return Ok(None) };
        let record = self.record_at(pointer, self.revision).map_err(|error| of_key(error, key))?;
        Ok(record.and_then(|record| record.entry()))
    }

    /// Entries in `[start, end)` at `at`, at most `limit` (0: all).
    pub(super) fn range(
        &self,
        start: &str,
        end: &str,
        at: Revision,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let mut page = Page { entries: Vec::new(), revision: at, remaining: 0 };
        // LMDB takes no empty key; nothing sorts between it and this one.
        let start = if start.is_empty() { "\0" } else { start };
        if start >= end {
            return Ok(page);
        }
        let disk = self.tables.pointers(&self.txn, start, end)?.peekable();
        let bounds: (Bound<&str>, Bound<&str>) = (Bound::Included(start), Bound::Excluded(end));
        let overlay =
            self.overlay.latest.range::<str, _>(bounds).map(|(key, p)| (key.as_str(), *p)).peekable();
        for row in (Merged { disk, overlay }) {
            let (key, pointer) = row?;
            let record_at = || self.record_at(pointer, at).map_err(|error| of_key(error, key));
            if limit == 0 || page.entries.len() < limit {
                page.entries.extend(record_at()?.and_then(|record| record.entry()));
                continue;
            }
            let is_there = match pointer.revision <= at {
                true => !pointer.is_tombstone,
                false => record_at()?.is_some(),
            };
            page.remaining += u64::from(is_there);
        }
        Ok(page)
    }

    /// The next events after `after`.
    pub(super) fn events(&self, after: Revision) -> Result<Chunk, StoreError> {
        let mut chunk = Chunk { events: Vec::new(), upto: after };
        let (mut scanned, mut bytes) = (0, 0);
        let mut is_enough = |chunk: &Chunk, more: usize| {
            scanned += 1;
            bytes += more;
            scanned >= SCAN_RECORDS_MAX || chunk.events.len() >= EVENTS_MAX || bytes >= EVENTS_BYTES_MAX
        };
        let disk = self.tables.log(&self.txn, after, self.revision)?.peekable();
        let memory = self.overlay.log(after, self.revision).peekable();
        for record in (Records { disk, memory }) {
            let record = record?;
            chunk.events.push(self.event(&record)?);
            chunk.upto = record.revision;
            if is_enough(&chunk, record.bytes()) {
                return Ok(chunk);
            }
        }
        chunk.upto = self.revision.max(after);
        Ok(chunk)
    }

    fn event(&self, record: &Record) -> Result<Event, StoreError> {
        let previous = self.record(record.before)?.and_then(|before| before.entry());
        Ok(Event {
            revision: record.revision,
            key: record.key.clone(),
            entry: record.entry(),
            previous,
            cause: record.cause.clone(),
        })
    }

    /// What expires after `after`, disk and overlay together, soonest first.
    pub(super) fn expiring(
        &self,
        after: (i64, Revision),
        max: usize,
    ) -> Result<Vec<(i64, Revision, String)>, StoreError> {
        let mut rows = self.tables.expiring(&self.txn, after, max)?;
        let overlay = self.overlay.expiry.range((Bound::Excluded(after), Bound::Unbounded));
        rows.extend(overlay.take(max).map(|((at, revision), key)| (*at, *revision, key.clone())));
        rows.sort_unstable();
        rows.dedup();
        rows.truncate(max);
        Ok(rows)
    }
}

/// Says whose data it is.
pub(super) fn of_key(error: StoreError, key: &str) -> StoreError {
    match error {
        StoreError::Damaged(what) => StoreError::Damaged(format!("{key}: {what}")),
        other => other,
    }
}

/// Both iterators' rows in key order; for a key in both, the overlay's.
struct Merged<D: Iterator, O: Iterator> {
    disk: Peekable<D>,
    overlay: Peekable<O>,
}

impl<'a, D, O> Iterator for Merged<D, O>
where
    D: Iterator<Item = Result<(&'a str, Pointer), StoreError>>,
    O: Iterator<Item = (&'a str, Pointer)>,
{
    type Item = Result<(&'a str, Pointer), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.disk.peek(), self.overlay.peek()) {
            (Some(Ok((disk, _))), Some((overlay, _))) => (*disk).cmp(*overlay),
            (Some(_), _) => std::cmp::Ordering::Less,
            (None, _) => std::cmp::Ordering::Greater,
        };
        match order {
            std::cmp::Ordering::Less => self.disk.next(),
            std::cmp::Ordering::Greater => self.overlay.next().map(Ok),
            std::cmp::Ordering::Equal => {
                let below = self.disk.next();
                debug_assert!(below.is_some());
                self.overlay.next().map(Ok)
            }
        }
    }
}

/// Both iterators' records in order of revision; for a revision in both, the memory's.
struct Records<D: Iterator, M: Iterator> {
    disk: Peekable<D>,
    memory: Peekable<M>,
}

impl<'a, D, M> Iterator for Records<D, M>
where
    D: Iterator<Item = Result<(Revision, Head<'a>), StoreError>>,
    M: Iterator<Item = &'a Arc<Record>>,
{
    type Item = Result<Arc<Record>, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.disk.peek(), self.memory.peek()) {
            (Some(Ok((disk, _))), Some(memory)) => disk.cmp(&memory.revision),
            (Some(_), _) => std::cmp::Ordering::Less,
            (None, _) => std::cmp::Ordering::Greater,
        };
        if order.is_ge() {
            if order.is_eq() {
                let below = self.disk.next();
                debug_assert!(below.is_some());
            }
            return self.memory.next().map(|record| Ok(Arc::clone(record)));
        }
        self.disk.next().map(|row| row.map(|(revision, head)| Arc::new(head.to_record(revision))))
    }
}
