//! Tables whose rows end with a checksum, so that nothing is read back that was not written.
//!
//! A row's checksum is over its table, its key and its value: a row that was moved is as wrong as one that was changed.
//! The engine's errors become the store's here, with the file's name and the way out.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use heed::types::Bytes as Raw;
use heed::{Database, MdbError, PutFlags, RoTxn, RwTxn};

use crate::StoreError;

/// Bytes of a row's checksum.
const SUM_BYTES: usize = 4;

/// Rows by key.
pub(super) type Rows = Database<Raw, Raw>;
/// Key and value.
pub(super) type Row<'t> = (&'t [u8], &'t [u8]);
/// A part of a table.
pub(super) type Span<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Which table. The numbers are part of every checksum and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Meta = 1,
    Log = 2,
    Current = 3,
    Expiry = 4,
    Gaps = 5,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [Self::Meta, Self::Log, Self::Current, Self::Expiry, Self::Gaps];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Log => "log",
            Self::Current => "current",
            Self::Expiry => "expiry",
            Self::Gaps => "gaps",
        }
    }
}

/// `value` with its checksum behind it.
pub(super) fn seal(kind: Kind, key: &[u8], mut value: Vec<u8>) -> Vec<u8> {
    let sum = sum(kind, key, &value);
    value.extend_from_slice(&sum.to_le_bytes());
    value
}

/// The value, if the checksum behind it is right.
pub(super) fn unseal<'b>(kind: Kind, key: &[u8], bytes: &'b [u8]) -> Option<&'b [u8]> {
    let (value, found) = bytes.split_last_chunk::<SUM_BYTES>()?;
    (sum(kind, key, value) == u32::from_le_bytes(*found)).then_some(value)
}

fn sum(kind: Kind, key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind as u8]);
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}

/// Names the data file in errors.
#[derive(Clone, Debug)]
pub(super) struct Blame {
    file: Arc<Path>,
}

impl Blame {
    pub(super) fn new(dir: &Path) -> Self {
        let file = dir.join("data.mdb");
        Self { file: std::path::absolute(&file).unwrap_or(file).into() }
    }

    /// `what` is not as it was written.
    pub(super) fn damaged(&self, what: impl std::fmt::Display) -> StoreError {
        StoreError::Damaged(format!(
            "{what} in {} is not what was written; bring a backup back with `knarr restore`, or save what can be read \
             with `knarr backup --salvage`",
            self.file.display()
        ))
    }

    /// The engine's error as the store's.
    pub(super) fn engine(&self, error: heed::Error) -> StoreError {
        match &error {
            heed::Error::Mdb(MdbError::MapFull) => StoreError::NoSpace,
            heed::Error::Mdb(MdbError::Corrupted | MdbError::PageNotFound | MdbError::Invalid) => {
                self.damaged(format_args!("a page ({error})"))
            }
            heed::Error::Io(io) => of_disk(io),
            _ => StoreError::Failed(error.to_string()),
        }
    }
}

/// What an error of the disk means for a write that did not happen.
pub(super) fn of_disk(error: &std::io::Error) -> StoreError {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => StoreError::NoSpace,
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied | ErrorKind::OutOfMemory => {
            StoreError::Refused(error.to_string())
        }
        _ => StoreError::Failed(error.to_string()),
    }
}

/// A table with checksums.
pub(super) struct Table {
    pub(super) kind: Kind,
    pub(super) rows: Rows,
    pub(super) blame: Blame,
}

impl Table {
    /// The value of `key`.
    pub(super) fn get<'t>(&self, txn: &'t RoTxn<'_>, key: &[u8]) -> Result<Option<&'t [u8]>, StoreError> {
        let Some(bytes) = self.rows.get(txn, key).map_err(|error| self.blame.engine(error))? else {
            return Ok(None);
        };
        unseal(self.kind, key, bytes).map(Some).ok_or_else(|| self.broken(key))
    }

    /// Sets the value of `key`.
    pub(super) fn put(&self, txn: &mut RwTxn<'_>, key: &[u8], value: Vec<u8>) -> Result<(), StoreError> {
        self.rows.put(txn, key, &seal(self.kind, key, value)).map_err(|error| self.blame.engine(error))
    }

    /// Sets the value of `key`, which is above all others.
    pub(super) fn append(&self, txn: &mut RwTxn<'_>, key: &[u8], value: Vec<u8>) -> Result<(), StoreError> {
        let value = seal(self.kind, key, value);
        self.rows.put_with_flags(txn, PutFlags::APPEND, key, &value).map_err(|error| self.blame.engine(error))
    }

    /// Removes `key`, if it is there.
    pub(super) fn delete(&self, txn: &mut RwTxn<'_>, key: &[u8]) -> Result<(), StoreError> {
        self.rows.delete(txn, key).map(drop).map_err(|error| self.blame.engine(error))
    }

    /// Removes a part.
    pub(super) fn delete_range(&self, txn: &mut RwTxn<'_>, span: &Span<'_>) -> Result<(), StoreError> {
        self.rows.delete_range(txn, span).map(drop).map_err(|error| self.blame.engine(error))
    }

    /// Rows of a part in order. One whose checksum is wrong is an error, and the next ones follow; an error of the
    /// engine is the last.
    pub(super) fn range<'t>(
        &self,
        txn: &'t RoTxn<'_>,
        span: &Span<'_>,
    ) -> Result<impl Iterator<Item = Result<Row<'t>, StoreError>> + use<'t>, StoreError> {
        let (kind, blame) = (self.kind, self.blame.clone());
        let mut rows = self.rows.range(txn, span).map_err(|error| blame.engine(error))?;
        let mut has_ended = false;
        Ok(std::iter::from_fn(move || {
            if has_ended {
                return None;
            }
            let row = rows.next()?;
            has_ended = row.is_err();
            Some(row.map_err(|error| blame.engine(error)).and_then(|(key, bytes)| {
                let value = unseal(kind, key, bytes).ok_or_else(|| broken(&blame, kind, key))?;
                Ok((key, value))
            }))
        }))
    }

    /// All rows.
    pub(super) fn all<'t>(
        &self,
        txn: &'t RoTxn<'_>,
    ) -> Result<impl Iterator<Item = Result<Row<'t>, StoreError>> + use<'t>, StoreError> {
        self.range(txn, &(Bound::Unbounded, Bound::Unbounded))
    }

    /// How many rows the engine believes there are.
    pub(super) fn len(&self, txn: &RoTxn<'_>) -> Result<u64, StoreError> {
        self.rows.len(txn).map_err(|error| self.blame.engine(error))
    }

    /// Bytes of its pages.
    pub(super) fn bytes(&self, txn: &RoTxn<'_>) -> Result<u64, StoreError> {
        let stat = self.rows.stat(txn).map_err(|error| self.blame.engine(error))?;
        let pages = stat.leaf_pages + stat.branch_pages + stat.overflow_pages;
        Ok(pages as u64 * u64::from(stat.page_size))
    }

    /// The row of `key` is not what was written.
    pub(super) fn broken(&self, key: &[u8]) -> StoreError {
        broken(&self.blame, self.kind, key)
    }
}

fn broken(blame: &Blame, kind: Kind, key: &[u8]) -> StoreError {
    let what = match (kind, <[u8; 8]>::try_from(key)) {
        (Kind::Log, Ok(revision)) => format!("revision {}", u64::from_be_bytes(revision)),
        (Kind::Current, _) => format!("the key {}", key.escape_ascii()),
        _ => format!("the row {} of the table {}", key.escape_ascii(), kind.name()),
    };
    blame.damaged(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_key_or_value_is_noticed() {
        let (key, value) = (b"/registry/a".as_slice(), b"a value".to_vec());
        let sealed = seal(Kind::Log, key, value.clone());
        assert_eq!(unseal(Kind::Log, key, &sealed), Some(&value[..]));
        assert_eq!(unseal(Kind::Current, key, &sealed), None, "another table's row");
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(Kind::Log, key, &flipped), None, "bit {bit}");
        }
        for bit in 0..key.len() * 8 {
            let mut flipped = key.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(Kind::Log, &flipped, &sealed), None, "bit {bit} of the key");
        }
        assert!((0..sealed.len()).all(|len| unseal(Kind::Log, key, &sealed[..len]).is_none()));
    }

    #[test]
    fn errors_of_the_disk_are_told_apart() {
        let of = |errno| of_disk(&std::io::Error::from_raw_os_error(errno));
        // ENOSPC, EDQUOT, EFBIG.
        for full in [28, 122, 27] {
            assert!(matches!(of(full), StoreError::NoSpace), "{full}");
        }
        assert!(matches!(of(30), StoreError::Refused(_)), "EROFS");
        assert!(matches!(of(5), StoreError::Failed(_)), "EIO: nobody knows what was written");
    }
}
