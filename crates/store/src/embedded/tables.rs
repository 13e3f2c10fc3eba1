//! The LMDB tables and what their rows mean.
//!
//! `log`: revision to record. `current`: key to its newest revision, removals included until compaction passes
//! them. `expiry`: (time, revision) to key. `gaps`: revisions that a crash made unknowable. `meta`: counters.
//! Revisions are big endian in keys, so that tables are in revision order.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes as Raw;
use heed::{Database, Env, EnvOpenOptions, PutFlags, RoTxn, RwTxn, WithoutTls};

use super::OpenError;
use super::record::{Head, Record};
use crate::{Revision, StoreError};

/// Rises with every change of the layout.
const FORMAT: u64 = 1;
/// Concurrent read transactions: more than tokio has blocking threads.
const READERS_MAX: u32 = 1024;
/// The longest key: what LMDB takes with pages of 4 KiB, rounded down. Kubernetes' longest are below 700.
pub(super) const KEY_BYTES_MAX: usize = 1500;

type Table = Database<Raw, Raw>;

/// A counter in `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    /// The layout's version.
    Format,
    /// The newest revision on disk.
    Last,
    /// Revisions up to here may have been given out, on disk or not.
    Reserved,
    /// What is older is gone, or going.
    Compacted,
    /// How far the log has been cleared of what `Compacted` lets go.
    Swept,
}

impl Counter {
    fn key(self) -> &'static [u8] {
        match self {
            Self::Format => b"format",
            Self::Last => b"last",
            Self::Reserved => b"reserved",
            Self::Compacted => b"compacted",
            Self::Swept => b"swept",
        }
    }
}

/// Where a key's newest record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) revision: Revision,
    pub(super) is_tombstone: bool,
}

impl Pointer {
    fn encode(self) -> [u8; 9] {
        let mut out = [0; 9];
        out[..8].copy_from_slice(&self.revision.to_be_bytes());
        out[8] = u8::from(self.is_tombstone);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        match bytes.split_first_chunk::<8>() {
            Some((revision, [flag])) => {
                Ok(Self { revision: u64::from_be_bytes(*revision), is_tombstone: *flag != 0 })
            }
            _ => Err(StoreError::Failed("a row of the current table is broken".to_owned())),
        }
    }
}

/// Revisions after `from` up to `to` were given out before a crash, and what they held is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) from: Revision,
    pub(super) to: Revision,
}

/// The open environment.
pub(super) struct Tables {
    pub(super) env: Env<WithoutTls>,
    meta: Table,
    log: Table,
    current: Table,
    expiry: Table,
    gaps: Table,
}

/// Maps the engine's errors to the store's.
pub(super) fn engine(error: heed::Error) -> StoreError {
    match &error {
        heed::Error::Mdb(heed::MdbError::MapFull) => StoreError::NoSpace,
        heed::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull => StoreError::NoSpace,
        _ => StoreError::Failed(error.to_string()),
    }
}

impl Tables {
    /// Opens or creates the tables in `dir`, with a map of `map_bytes`.
    ///
    /// The caller holds the directory's lock.
    pub(super) fn open(dir: &Path, map_bytes: usize) -> Result<Self, OpenError> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map_bytes).max_dbs(8).max_readers(READERS_MAX);
        // SAFETY: the map stays valid while nobody else changes the file but through LMDB. The directory is ours
        // (mode 0700), its lock is held by this process until its last write, and nothing here truncates the file.
        #[expect(unsafe_code, reason = "LMDB maps a file, which the type system cannot guard")]
        let env = unsafe { options.open(dir) }?;
        env.clear_stale_readers()?;
        let mut txn = env.write_txn()?;
        let mut table = |name| env.create_database::<Raw, Raw>(&mut txn, Some(name));
        let (meta, log, current) = (table("meta")?, table("log")?, table("current")?);
        let (expiry, gaps) = (table("expiry")?, table("gaps")?);
        txn.commit()?;
        let tables = Self { env, meta, log, current, expiry, gaps };
        tables.check_format()?;
        Ok(tables)
    }

    fn check_format(&self) -> Result<(), OpenError> {
        let mut txn = self.env.write_txn()?;
        match self.counter(&txn, Counter::Format)? {
            0 => {
                self.set(&mut txn, Counter::Format, FORMAT)?;
                txn.commit()?;
                Ok(())
            }
            FORMAT => Ok(()),
            found => Err(OpenError::Format { found, known: FORMAT }),
        }
    }

    /// Whether nothing was ever acknowledged from here.
    pub(super) fn is_fresh(&self) -> Result<bool, heed::Error> {
        let txn = self.env.read_txn()?;
        Ok(self.counter(&txn, Counter::Last)? == 0)
    }

    /// A counter; 0 if it was never set.
    pub(super) fn counter(&self, txn: &RoTxn<'_>, counter: Counter) -> Result<u64, heed::Error> {
        let bytes = self.meta.get(txn, counter.key())?;
        Ok(bytes.and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes))
    }

    /// Sets a counter.
    pub(super) fn set(&self, txn: &mut RwTxn<'_>, counter: Counter, value: u64) -> Result<(), heed::Error> {
        self.meta.put(txn, counter.key(), &value.to_be_bytes())
    }

    /// Appends a record, which must be newer than all others, and points its key to it.
    pub(super) fn put(&self, txn: &mut RwTxn<'_>, record: &Record) -> Result<(), heed::Error> {
        let revision = record.revision.to_be_bytes();
        self.log.put_with_flags(txn, PutFlags::APPEND, &revision, &record.encode())?;
        let pointer = Pointer { revision: record.revision, is_tombstone: record.is_tombstone() };
        self.current.put(txn, record.key.as_bytes(), &pointer.encode())?;
        if record.expires_us > 0 {
            self.expiry.put(txn, &expiry_key(record.expires_us, record.revision), record.key.as_bytes())?;
        }
        Ok(())
    }

    /// The record of `revision`, if it is still there.
    pub(super) fn record(&self, txn: &RoTxn<'_>, revision: Revision) -> Result<Option<Record>, StoreError> {
        let Some(bytes) = self.log.get(txn, &revision.to_be_bytes()).map_err(engine)? else {
            return Ok(None);
        };
        Ok(Some(Head::decode(revision, bytes).map_err(broken)?.to_record(revision)))
    }

    /// Where `key`'s newest record is.
    pub(super) fn pointer(&self, txn: &RoTxn<'_>, key: &str) -> Result<Option<Pointer>, StoreError> {
        self.current.get(txn, key.as_bytes()).map_err(engine)?.map(Pointer::decode).transpose()
    }

    /// Keys in `[start, end)` with their newest records, in key order.
    pub(super) fn pointers<'t>(
        &self,
        txn: &'t RoTxn<'_>,
        start: &str,
        end: &str,
    ) -> Result<impl Iterator<Item = Result<(&'t str, Pointer), StoreError>> + use<'t>, StoreError> {
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) =
            (Bound::Included(start.as_bytes()), Bound::Excluded(end.as_bytes()));
        let rows = self.current.range(txn, &bounds).map_err(engine)?;
        Ok(rows.map(|row| {
            let (key, pointer) = row.map_err(engine)?;
            let key = std::str::from_utf8(key)
                .map_err(|_| StoreError::Failed("a key in the current table is broken".to_owned()))?;
            Ok((key, Pointer::decode(pointer)?))
        }))
    }

    /// Log records after `after` up to `to`, in order.
    pub(super) fn log<'t>(
        &self,
        txn: &'t RoTxn<'_>,
        after: Revision,
        to: Revision,
    ) -> Result<impl Iterator<Item = Result<(Revision, Head<'t>), StoreError>> + use<'t>, StoreError> {
        let (after, to) = (after.to_be_bytes(), to.to_be_bytes());
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Excluded(&after), Bound::Included(&to));
        let rows = self.log.range(txn, &bounds).map_err(engine)?;
        Ok(rows.map(|row| {
            let (revision, bytes) = row.map_err(engine)?;
            let revision = revision.try_into().map_or(0, u64::from_be_bytes);
            Ok((revision, Head::decode(revision, bytes).map_err(broken)?))
        }))
    }

    /// Removes a log record, if it is there.
    pub(super) fn forget(&self, txn: &mut RwTxn<'_>, revision: Revision) -> Result<(), heed::Error> {
        self.log.delete(txn, &revision.to_be_bytes())?;
        Ok(())
    }

    /// Removes a key whose newest record is the removal at `revision`.
    pub(super) fn forget_key(
        &self,
        txn: &mut RwTxn<'_>,
        key: &str,
        revision: Revision,
    ) -> Result<(), StoreError> {
        if self.pointer(txn, key)?.is_some_and(|p| p.revision == revision) {
            self.current.delete(txn, key.as_bytes()).map_err(engine)?;
        }
        Ok(())
    }

    /// Rows of `expiry` after `after`, in order of time.
    pub(super) fn expiring(
        &self,
        txn: &RoTxn<'_>,
        after: (i64, Revision),
        max: usize,
    ) -> Result<Vec<(i64, Revision, String)>, StoreError> {
        let after = expiry_key(after.0, after.1);
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Excluded(&after), Bound::Unbounded);
        let mut out = Vec::new();
        for row in self.expiry.range(txn, &bounds).map_err(engine)?.take(max) {
            let (time, key) = row.map_err(engine)?;
            let Some((at, revision)) = time.split_first_chunk::<8>() else { continue };
            let revision = revision.try_into().map_or(0, u64::from_be_bytes);
            out.push((i64::from_be_bytes(*at), revision, String::from_utf8_lossy(key).into_owned()));
        }
        Ok(out)
    }

    /// Removes the rows of `expiry` up to and with `upto`.
    pub(super) fn expired(&self, txn: &mut RwTxn<'_>, upto: (i64, Revision)) -> Result<(), heed::Error> {
        let upto = expiry_key(upto.0, upto.1);
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Included(&upto));
        self.expiry.delete_range(txn, &bounds)?;
        Ok(())
    }

    /// The gaps, oldest first.
    pub(super) fn gaps(&self, txn: &RoTxn<'_>) -> Result<Vec<Gap>, heed::Error> {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
        self.gaps
            .iter(txn)?
            .map(|row| row.map(|(from, to)| Gap { from: number(from), to: number(to) }))
            .collect()
    }

    /// Notes a gap.
    pub(super) fn add_gap(&self, txn: &mut RwTxn<'_>, gap: Gap) -> Result<(), heed::Error> {
        self.gaps.put(txn, &gap.from.to_be_bytes(), &gap.to.to_be_bytes())
    }

    /// Drops a gap that compaction has passed.
    pub(super) fn drop_gap(&self, txn: &mut RwTxn<'_>, gap: Gap) -> Result<(), heed::Error> {
        self.gaps.delete(txn, &gap.from.to_be_bytes())?;
        Ok(())
    }

    /// Bytes of the map that hold something.
    pub(super) fn used_bytes(&self) -> Result<u64, heed::Error> {
        let txn = self.env.read_txn()?;
        let mut used = 0;
        for table in [&self.meta, &self.log, &self.current, &self.expiry, &self.gaps] {
            let stat = table.stat(&txn)?;
            let pages = stat.leaf_pages + stat.branch_pages + stat.overflow_pages;
            used += pages as u64 * u64::from(stat.page_size);
        }
        Ok(used)
    }

    /// Bytes of the map that were ever used.
    pub(super) fn high_water_bytes(&self) -> u64 {
        self.env.info().last_page_number as u64 * u64::from(self.env.stat().page_size)
    }
}

fn broken(error: super::record::Broken) -> StoreError {
    StoreError::Failed(error.to_string())
}

fn expiry_key(at_us: i64, revision: Revision) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&at_us.max(0).to_be_bytes());
    key[8..].copy_from_slice(&revision.to_be_bytes());
    key
}
