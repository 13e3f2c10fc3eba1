//! Writes that are visible and not yet on disk: the relaxed tail of the log.
//!
//! Its records are newer than everything on disk, and go there together with the next synced group, those that were
//! replaced meanwhile left out ([`Coalesced`]); so a crash can only cut the tail off. Readers share it as an `Arc` and lay
//! it over a disk snapshot taken later.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::coalesced::Coalesced;
use super::record::Record;
use super::tables::Pointer;
use crate::Revision;

/// Records that are kept before they are written out in any case.
const RECORDS_MAX: usize = 4096;
/// Bytes that are kept before they are written out in any case.
const BYTES_MAX: usize = 8 << 20;

/// The tail, indexed as the tables are.
#[derive(Clone, Default)]
pub(super) struct Overlay {
    pub(super) records: BTreeMap<Revision, Arc<Record>>,
    pub(super) latest: BTreeMap<String, Pointer>,
    /// (time, revision) of what expires.
    pub(super) expiry: BTreeMap<(i64, Revision), String>,
    bytes: usize,
    /// What was left out when earlier tails went to disk.
    pub(super) coalesced: Arc<Coalesced>,
}

impl Overlay {
    /// Nothing, after `coalesced`.
    pub(super) fn after(coalesced: Arc<Coalesced>) -> Self {
        Self { coalesced, ..Self::default() }
    }

    /// The record of `revision`, if it is not to be read from disk.
    pub(super) fn record(&self, revision: Revision) -> Option<&Arc<Record>> {
        self.records.get(&revision).or_else(|| self.coalesced.record(revision))
    }

    /// Records after `after` up to `to` that are not to be read from disk, in order.
    pub(super) fn log(&self, after: Revision, to: Revision) -> impl Iterator<Item = &Arc<Record>> {
        let tail = self.records.range(after.saturating_add(1)..).map(|(_, record)| record);
        self.coalesced.newer(after).chain(tail).take_while(move |record| record.revision <= to)
    }

    /// Adds a record newer than all others.
    pub(super) fn push(&mut self, record: Arc<Record>) {
        debug_assert!(self.records.last_key_value().is_none_or(|(last, _)| *last < record.revision));
        self.bytes += record.bytes();
        let pointer = Pointer { revision: record.revision, is_tombstone: record.is_tombstone() };
        self.latest.insert(record.key.clone(), pointer);
        if record.expires_us > 0 {
            self.expiry.insert((record.expires_us, record.revision), record.key.clone());
        }
        self.records.insert(record.revision, record);
    }

    /// Whether it must be written out before it takes `more` records.
    pub(super) fn is_full(&self, more: usize) -> bool {
        self.records.len() + more > RECORDS_MAX || self.bytes > BYTES_MAX
    }

    /// Whether all is on disk.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}
