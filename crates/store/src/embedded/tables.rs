//! The LMDB tables and what their rows mean.
//!
//! `log`: revision to record. `current`: key to its newest revision, removals included until compaction passes
//! them. `expiry`: (time, revision) to key. `gaps`: revisions that a crash made unknowable. `meta`: counters.
//! Revisions are big endian in keys, so that tables are in revision order. Every row is [`sealed`](super::sealed).

use std::ops::Bound;
use std::path::Path;

use heed::{Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithoutTls};

use super::OpenError;
use super::format::{self, FORMAT};
use super::record::{Head, Record};
use super::sealed::{Blame, Kind, Rows, Span, Table};
use super::snapshots::{Snapshot, Snapshots};
use crate::{Revision, StoreError};

/// Concurrent read transactions: more than tokio has blocking threads.
const READERS_MAX: u32 = 1024;
/// The longest key: what LMDB takes with pages of 4 KiB, rounded down. Kubernetes' longest are below 700.
pub(super) const KEY_BYTES_MAX: usize = 1500;

/// A counter in `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    /// The newest revision on disk.
    Last,
    /// Revisions up to here may have been given out, on disk or not.
    Reserved,
    /// The revision below which everything is gone, or going.
    Compacted,
    /// The revision up to which the log has been cleared of what `Compacted` lets go.
    Swept,
}

impl Counter {
    fn key(self) -> &'static [u8] {
        match self {
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
    fn encode(self) -> Vec<u8> {
        let mut out = self.revision.to_be_bytes().to_vec();
        out.push(u8::from(self.is_tombstone));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first_chunk::<8>()? {
            (revision, [flag]) => {
                Some(Self { revision: u64::from_be_bytes(*revision), is_tombstone: *flag != 0 })
            }
            _ => None,
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
    pub(super) blame: Blame,
    pub(super) snapshots: Snapshots,
    /// The disk takes no writes, so there is no writer's half.
    pub(super) is_read_only: bool,
    /// In the order of [`Kind::ALL`].
    tables: [Table; 5],
}

impl Tables {
    /// Opens or creates the tables in `dir`, with a map of `map_bytes`, and brings older ones to this format.
    ///
    /// The caller holds the directory's lock.
    pub(super) fn open(dir: &Path, map_bytes: usize) -> Result<Self, OpenError> {
        let blame = Blame::new(dir);
        let env = env(dir, map_bytes, EnvFlags::empty()).map_err(|error| blame.engine(error))?;
        let made = fill_up(&env).and_then(|()| {
            env.clear_stale_readers()?;
            let mut txn = env.write_txn()?;
            let mut rows = Vec::new();
            for kind in Kind::ALL {
                rows.push(env.create_database(&mut txn, Some(kind.name()))?);
            }
            txn.commit()?;
            Ok(rows)
        });
        let rows = made.map_err(|error| blame.engine(error))?;
        let tables = named(&rows, &blame)?;
        format::bring_up(&env, &tables)?;
        Ok(Self::new(env, blame, tables, false))
    }

    fn new(env: Env<WithoutTls>, blame: Blame, tables: [Table; 5], is_read_only: bool) -> Self {
        let [meta, ..] = &tables;
        let snapshots = Snapshots::new(env.clone(), meta.rows);
        Self { env, blame, snapshots, is_read_only, tables }
    }

    /// Opens what is in `dir` for reading, also while another process writes there.
    pub(super) fn open_to_read(dir: &Path) -> Result<Self, OpenError> {
        let blame = Blame::new(dir);
        let opened = env(dir, 0, EnvFlags::READ_ONLY).and_then(|env| {
            let txn = env.read_txn()?;
            let mut rows = Vec::new();
            for kind in Kind::ALL {
                rows.extend(env.open_database(&txn, Some(kind.name()))?);
            }
            txn.commit()?;
            Ok((env, rows))
        });
        let (env, rows) = opened.map_err(|error| blame.engine(error))?;
        let named = named(&rows, &blame)?;
        let tables = Self::new(env, blame, named, true);
        let txn = tables.read()?;
        match format::read(tables.table(Kind::Meta), &txn)? {
            FORMAT => {}
            found => return Err(OpenError::Format { found, known: FORMAT }),
        }
        drop(txn);
        Ok(tables)
    }

    fn table(&self, kind: Kind) -> &Table {
        let [meta, log, current, expiry, gaps] = &self.tables;
        match kind {
            Kind::Meta => meta,
            Kind::Log => log,
            Kind::Current => current,
            Kind::Expiry => expiry,
            Kind::Gaps => gaps,
        }
    }

    /// Begins to write.
    pub(super) fn write(&self) -> Result<RwTxn<'_>, StoreError> {
        self.env.write_txn().map_err(|error| self.blame.engine(error))
    }

    /// Begins to read.
    pub(super) fn read(&self) -> Result<Snapshot<'_>, StoreError> {
        self.snapshots.newest().map_err(|error| self.blame.engine(error))
    }

    /// Ends what [`Self::write`] began: it is on disk then, and whoever begins to read sees it.
    pub(super) fn commit(&self, txn: RwTxn<'_>) -> Result<(), StoreError> {
        txn.commit().map_err(|error| self.blame.engine(error))?;
        self.snapshots.committed();
        Ok(())
    }

    /// Whether nothing was ever acknowledged from here.
    pub(super) fn is_fresh(&self) -> Result<bool, StoreError> {
        let txn = self.read()?;
        Ok(self.counter(&txn, Counter::Last)? == 0)
    }

    /// A counter; 0 if it was never set.
    pub(super) fn counter(&self, txn: &RoTxn<'_>, counter: Counter) -> Result<u64, StoreError> {
        let meta = self.table(Kind::Meta);
        let Some(bytes) = meta.get(txn, counter.key())? else { return Ok(0) };
        bytes.try_into().map(u64::from_be_bytes).map_err(|_| meta.broken(counter.key()))
    }

    /// Sets a counter.
    pub(super) fn set(&self, txn: &mut RwTxn<'_>, counter: Counter, value: u64) -> Result<(), StoreError> {
        self.table(Kind::Meta).put(txn, counter.key(), value.to_be_bytes().to_vec())
    }

    /// Appends a record, which must be newer than all others, and points its key to it.
    pub(super) fn put(&self, txn: &mut RwTxn<'_>, record: &Record) -> Result<(), StoreError> {
        self.table(Kind::Log).append(txn, &record.revision.to_be_bytes(), record.encode())?;
        self.index(txn, record)
    }

    /// Puts a record where its revision belongs, which no other has, and points its key to it.
    pub(super) fn put_anywhere(&self, txn: &mut RwTxn<'_>, record: &Record) -> Result<(), StoreError> {
        self.table(Kind::Log).put(txn, &record.revision.to_be_bytes(), record.encode())?;
        self.index(txn, record)
    }

    fn index(&self, txn: &mut RwTxn<'_>, record: &Record) -> Result<(), StoreError> {
        let pointer = Pointer { revision: record.revision, is_tombstone: record.is_tombstone() };
        self.table(Kind::Current).put(txn, record.key.as_bytes(), pointer.encode())?;
        if record.expires_us > 0 {
            let key = expiry_key(record.expires_us, record.revision);
            self.table(Kind::Expiry).put(txn, &key, record.key.clone().into_bytes())?;
        }
        Ok(())
    }

    /// The record of `revision`, if it is still there.
    pub(super) fn record(&self, txn: &RoTxn<'_>, revision: Revision) -> Result<Option<Record>, StoreError> {
        let (log, key) = (self.table(Kind::Log), revision.to_be_bytes());
        let Some(bytes) = log.get(txn, &key)? else { return Ok(None) };
        Head::decode(bytes).map(|head| Some(head.to_record(revision))).ok_or_else(|| log.broken(&key))
    }

    /// Where `key`'s newest record is.
    pub(super) fn pointer(&self, txn: &RoTxn<'_>, key: &str) -> Result<Option<Pointer>, StoreError> {
        let current = self.table(Kind::Current);
        let Some(bytes) = current.get(txn, key.as_bytes())? else { return Ok(None) };
        Pointer::decode(bytes).map(Some).ok_or_else(|| current.broken(key.as_bytes()))
    }

    /// Keys in `[start, end)` with their newest records, in key order.
    pub(super) fn pointers<'t>(
        &self,
        txn: &'t RoTxn<'_>,
        start: &str,
        end: &str,
    ) -> Result<impl Iterator<Item = Result<(&'t str, Pointer), StoreError>> + use<'t>, StoreError> {
        self.pointers_of(txn, &(Bound::Included(start.as_bytes()), Bound::Excluded(end.as_bytes())))
    }

    /// All keys with their newest records, in key order.
    pub(super) fn all_pointers<'t>(
        &self,
        txn: &'t RoTxn<'_>,
    ) -> Result<impl Iterator<Item = Result<(&'t str, Pointer), StoreError>> + use<'t>, StoreError> {
        self.pointers_of(txn, &(Bound::Unbounded, Bound::Unbounded))
    }

    fn pointers_of<'t>(
        &self,
        txn: &'t RoTxn<'_>,
        span: &Span<'_>,
    ) -> Result<impl Iterator<Item = Result<(&'t str, Pointer), StoreError>> + use<'t>, StoreError> {
        let blame = self.blame.clone();
        let rows = self.table(Kind::Current).range(txn, span)?;
        Ok(rows.map(move |row| {
            let (key, pointer) = row?;
            let pair = std::str::from_utf8(key).ok().zip(Pointer::decode(pointer));
            pair.ok_or_else(|| blame.damaged(format_args!("the key {}", key.escape_ascii())))
        }))
    }

    /// Whether every key can be read and none is missing.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if not.
    pub(super) fn check_keys(&self) -> Result<(), StoreError> {
        let txn = self.read()?;
        let mut found = 0;
        for row in self.all_pointers(&txn)? {
            row?;
            found += 1;
        }
        match self.table(Kind::Current).len(&txn)? {
            expected if expected == found => Ok(()),
            expected => Err(self.blame.damaged(format_args!("the list of keys ({found} of {expected})"))),
        }
    }

    /// Log records after `after` up to `to`, in order.
    pub(super) fn log<'t>(
        &self,
        txn: &'t RoTxn<'_>,
        after: Revision,
        to: Revision,
    ) -> Result<impl Iterator<Item = Result<(Revision, Head<'t>), StoreError>> + use<'t>, StoreError> {
        let (after, to, blame) = (after.to_be_bytes(), to.to_be_bytes(), self.blame.clone());
        let rows = self.table(Kind::Log).range(txn, &(Bound::Excluded(&after), Bound::Included(&to)))?;
        Ok(rows.map(move |row| {
            let (key, bytes) = row?;
            let revision = key.try_into().map_or(0, u64::from_be_bytes);
            let head = Head::decode(bytes);
            head.map(|head| (revision, head))
                .ok_or_else(|| blame.damaged(format_args!("revision {revision}")))
        }))
    }

    /// Removes a log record, if it is there.
    pub(super) fn forget(&self, txn: &mut RwTxn<'_>, revision: Revision) -> Result<(), StoreError> {
        self.table(Kind::Log).delete(txn, &revision.to_be_bytes())
    }

    /// Removes a key whose newest record is the removal at `revision`.
    pub(super) fn forget_key(
        &self,
        txn: &mut RwTxn<'_>,
        key: &str,
        revision: Revision,
    ) -> Result<(), StoreError> {
        if self.pointer(txn, key)?.is_some_and(|p| p.revision == revision) {
            self.table(Kind::Current).delete(txn, key.as_bytes())?;
        }
        Ok(())
    }

    /// Rows of `expiry` after `after`, in order of time. One that is damaged keeps its key from expiring, and is said.
    pub(super) fn expiring(
        &self,
        txn: &RoTxn<'_>,
        after: (i64, Revision),
        max: usize,
    ) -> Result<Vec<(i64, Revision, String)>, StoreError> {
        let after = expiry_key(after.0, after.1);
        let mut out = Vec::new();
        for row in self.table(Kind::Expiry).range(txn, &(Bound::Excluded(&after), Bound::Unbounded))? {
            let (time, key) = match row {
                Ok(row) => row,
                Err(error @ StoreError::Damaged(_)) => {
                    tracing::error!(%error, "something will not expire");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some((at, revision)) = time.split_first_chunk::<8>() else { continue };
            let revision = revision.try_into().map_or(0, u64::from_be_bytes);
            out.push((i64::from_be_bytes(*at), revision, String::from_utf8_lossy(key).into_owned()));
            if out.len() >= max {
                break;
            }
        }
        Ok(out)
    }

    /// Removes the rows of `expiry` up to and with `upto`.
    pub(super) fn expired(&self, txn: &mut RwTxn<'_>, upto: (i64, Revision)) -> Result<(), StoreError> {
        let upto = expiry_key(upto.0, upto.1);
        self.table(Kind::Expiry).delete_range(txn, &(Bound::Unbounded, Bound::Included(&upto)))
    }

    /// The gaps, oldest first.
    pub(super) fn gaps(&self, txn: &RoTxn<'_>) -> Result<Vec<Gap>, StoreError> {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
        let rows = self.table(Kind::Gaps).all(txn)?;
        rows.map(|row| row.map(|(from, to)| Gap { from: number(from), to: number(to) })).collect()
    }

    /// Notes a gap.
    pub(super) fn add_gap(&self, txn: &mut RwTxn<'_>, gap: Gap) -> Result<(), StoreError> {
        self.table(Kind::Gaps).put(txn, &gap.from.to_be_bytes(), gap.to.to_be_bytes().to_vec())
    }

    /// Drops a gap that compaction has passed.
    pub(super) fn drop_gap(&self, txn: &mut RwTxn<'_>, gap: Gap) -> Result<(), StoreError> {
        self.table(Kind::Gaps).delete(txn, &gap.from.to_be_bytes())
    }

    /// Bytes of the map that hold something.
    pub(super) fn used_bytes(&self) -> Result<u64, StoreError> {
        let txn = self.read()?;
        self.tables.iter().map(|table| table.bytes(&txn)).sum()
    }

    /// Bytes of the map that were ever used.
    pub(super) fn high_water_bytes(&self) -> u64 {
        self.env.info().last_page_number as u64 * self.page_bytes()
    }

    /// What the engine reads and writes at once.
    pub(super) fn page_bytes(&self) -> u64 {
        u64::from(self.env.stat().page_size)
    }

    /// Lets go of the pages that readers hold which died while they read.
    pub(super) fn forget_dead_readers(&self) -> Result<(), StoreError> {
        self.env.clear_stale_readers().map(drop).map_err(|error| self.blame.engine(error))
    }
}

fn env(dir: &Path, map_bytes: usize, flags: EnvFlags) -> Result<Env<WithoutTls>, heed::Error> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.max_dbs(8).max_readers(READERS_MAX);
    if map_bytes > 0 {
        options.map_size(map_bytes);
    }
    // SAFETY: the map stays valid while nobody else changes the file but through LMDB. The directory is ours
    // (mode 0700), its lock is held by the writing process until its last write, and nothing truncates the file. The
    // only flag is the one that forbids to write.
    #[expect(unsafe_code, reason = "LMDB maps a file, which the type system cannot guard")]
    unsafe {
        options.flags(flags);
        options.open(dir)
    }
}

/// A file that was cut off ends in empty pages, which the engine knows to be broken; beyond the end there would be
/// none at all, and to touch them ends the process.
fn fill_up(env: &Env<WithoutTls>) -> Result<(), heed::Error> {
    let pages = env.info().last_page_number as u64 + 1;
    let file = env.try_clone_inner_file()?;
    let bytes = pages * u64::from(env.stat().page_size);
    if file.metadata()?.len() < bytes { Ok(file.set_len(bytes)?) } else { Ok(()) }
}

fn named(rows: &[Rows], blame: &Blame) -> Result<[Table; 5], OpenError> {
    let table = |(kind, rows): (Kind, &Rows)| Table { kind, rows: *rows, blame: blame.clone() };
    let tables: Vec<Table> = Kind::ALL.into_iter().zip(rows).map(table).collect();
    Ok(tables.try_into().map_err(|_| blame.damaged("the list of tables"))?)
}

fn expiry_key(at_us: i64, revision: Revision) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&at_us.max(0).to_be_bytes());
    key[8..].copy_from_slice(&revision.to_be_bytes());
    key
}
