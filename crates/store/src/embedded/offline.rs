//! The embedded store seen from outside: a picture of it for a backup, and a new one made from a backup.
//!
//! A picture is a read transaction of the engine, which other processes may hold while the server writes: it is the
//! newest revision on disk, and nothing that is written later changes it. The relaxed tail (Leases and Events of the
//! last minutes) is not on disk yet and not in it. While a picture is held, the pages that it shows are not used again;
//! and a lock on the data file, which readers share, keeps the server from making holes in it.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::lock::{Lock, lock};
use super::opening::map_bytes;
use super::snapshots::Snapshot;
use super::tables::{Counter, Pointer, Tables};
use super::view::of_key;
use super::{DATA, OpenError, Options};
use crate::backup::Record;
use crate::{Revision, StoreError};

/// Objects that are written in one transaction.
const GROUP: usize = 5_000;

/// The store in a folder, opened for reading.
pub struct Archive {
    tables: Tables,
    /// Locked, with all who read. Released after the tables.
    _data: File,
}

/// The store at one revision.
pub struct Picture<'a> {
    tables: &'a Tables,
    txn: Snapshot<'a>,
    /// The revision.
    pub revision: Revision,
    /// Clients may have seen revisions up to here.
    pub seen: Revision,
}

impl Archive {
    /// Opens the store in `dir`, whether a server has it open or not.
    ///
    /// # Errors
    /// If there is none, or it has another format.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let data = File::open(dir.join(DATA)).and_then(|data| data.lock_shared().map(|()| data));
        let data = data.map_err(|source| OpenError::Directory { path: dir.to_owned(), source })?;
        Ok(Self { tables: Tables::open_to_read(dir)?, _data: data })
    }

    /// The newest revision on disk.
    ///
    /// # Errors
    /// As the engine's.
    pub fn picture(&self) -> Result<Picture<'_>, StoreError> {
        let txn = self.tables.read()?;
        let revision = self.tables.counter(&txn, Counter::Last)?;
        let seen = self.tables.counter(&txn, Counter::Reserved)?.max(revision) + 1;
        Ok(Picture { tables: &self.tables, txn, revision, seen })
    }
}

impl Picture<'_> {
    /// All objects in key order; what is damaged is an error, and what comes behind it follows.
    ///
    /// # Errors
    /// As the engine's.
    pub fn records(&self) -> Result<impl Iterator<Item = Result<Record, StoreError>> + '_, StoreError> {
        Ok(self.tables.all_pointers(&self.txn)?.filter_map(|row| match row {
            Ok((_, Pointer { is_tombstone: true, .. })) => None,
            Ok((key, pointer)) => Some(self.record(key, pointer.revision)),
            Err(error) => Some(Err(error)),
        }))
    }

    fn record(&self, key: &str, revision: Revision) -> Result<Record, StoreError> {
        let record = self.tables.record(&self.txn, revision).map_err(|error| of_key(error, key))?;
        let record = record.filter(|record| record.key == key && !record.is_tombstone());
        let missing = || of_key(self.tables.blame.damaged(format_args!("revision {revision}")), key);
        let record = record.ok_or_else(missing)?;
        Ok(Record {
            value: record.value.unwrap_or_default(),
            key: record.key,
            create_revision: record.create_revision,
            revision: record.revision,
            expires_us: record.expires_us,
            cause: record.cause,
        })
    }
}

/// A store that is being made from a backup.
pub struct Restored {
    dir: PathBuf,
    tables: Tables,
    waiting: Vec<super::record::Record>,
    _lock: Lock,
}

impl Restored {
    /// Begins a new store in `dir`, which must be empty or absent.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn begin(dir: &Path) -> Result<Self, OpenError> {
        let lock = lock(dir)?;
        let tables = Tables::open(dir, map_bytes(&Options::default()))?;
        Ok(Self { dir: dir.to_owned(), tables, waiting: Vec::new(), _lock: lock })
    }

    /// Adds an object.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn add(&mut self, record: Record) -> Result<(), StoreError> {
        self.waiting.push(super::record::Record {
            revision: record.revision,
            key: record.key,
            value: Some(record.value),
            create_revision: record.create_revision,
            before: 0,
            expires_us: record.expires_us,
            cause: record.cause,
        });
        if self.waiting.len() >= GROUP { self.write_out(|_, _| Ok(())) } else { Ok(()) }
    }

    /// Ends it: the store goes on above `revision`, and what is older is compacted away for whoever asks.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn finish(mut self, revision: Revision) -> Result<(), OpenError> {
        self.write_out(|tables, txn| {
            let counters = [Counter::Last, Counter::Reserved, Counter::Compacted, Counter::Swept];
            counters.into_iter().try_for_each(|counter| tables.set(txn, counter, revision))
        })?;
        let synced = std::fs::File::open(&self.dir).and_then(|dir| dir.sync_all());
        synced.map_err(|source| OpenError::Directory { path: self.dir.clone(), source })
    }

    fn write_out(
        &mut self,
        also: impl FnOnce(&Tables, &mut heed::RwTxn<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut txn = self.tables.write()?;
        for record in self.waiting.drain(..) {
            self.tables.put_anywhere(&mut txn, &record)?;
        }
        also(&self.tables, &mut txn)?;
        self.tables.commit(txn)
    }
}
