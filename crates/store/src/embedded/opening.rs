//! A store's files before there is a store: made, found, missed; and where to go on from what is in them.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::tables::{Counter, Gap, Tables};
use super::writer::Start;
use super::{DATA, OpenError, Options};
use crate::StoreError;

/// Where the data file is made.
const NEW: &str = "new";
/// The map is this much larger than [`Options::bytes_max`], so that it is never what ends first: removals and
/// compaction go on beyond the bound, and pages that a long read holds are not free. It costs addresses, no memory.
const MAP_FACTOR: u64 = 4;
const MAP_BYTES_MIN: u64 = 1 << 30;

/// Says whether there is data in `dir`, where there has been some: to open it would begin anew.
///
/// # Errors
/// [`OpenError::Missing`] if there is none.
pub fn expect_data(dir: &Path) -> Result<(), OpenError> {
    let path = dir.join(DATA);
    let state = match path.metadata() {
        Ok(data) if data.len() > 0 => return Ok(()),
        Ok(_) => "is empty",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "is missing",
        Err(source) => return Err(OpenError::Directory { path, source }),
    };
    Err(OpenError::Missing { path, state })
}

pub(super) fn read_write(dir: &Path, options: &Options) -> Result<Tables, OpenError> {
    if !dir.join(DATA).exists() {
        create(dir)?;
    }
    Tables::open(dir, map_bytes(options))
}

/// Of a disk that takes no writes: what is there is served, whoever writes is refused.
pub(super) fn read_only(dir: &Path) -> Result<Tables, OpenError> {
    tracing::error!(dir = %dir.display(), "the disk takes no writes: they are refused, reads go on");
    expect_data(dir)?;
    Tables::open_to_read(dir)
}

/// Makes an empty store aside, and gives it its name when all of it is on disk: a power loss leaves no store or a whole
/// one.
fn create(dir: &Path) -> Result<(), OpenError> {
    let refused = |source| OpenError::Directory { path: dir.to_owned(), source };
    let new = dir.join(NEW);
    if new.exists() {
        std::fs::remove_dir_all(&new).map_err(refused)?;
    }
    DirBuilder::new().mode(0o700).create(&new).map_err(refused)?;
    drop(Tables::open(&new, map_bytes(&Options { bytes_max: 0, ..Options::default() }))?);
    std::fs::rename(new.join(DATA), dir.join(DATA)).map_err(refused)?;
    std::fs::remove_dir_all(&new).map_err(refused)?;
    sync_folder(dir)
}

/// A new file survives a power loss when its folder was flushed.
pub(super) fn sync_folder(dir: &Path) -> Result<(), OpenError> {
    let synced = File::open(dir).and_then(|folder| folder.sync_all());
    synced.map_err(|source| OpenError::Directory { path: dir.to_owned(), source })
}

/// Where to go on: above everything that may have been given out, with a gap where a tail was lost.
///
/// Nothing is written: until the first write, opening it again finds the same. A fresh store starts at revision 1, as
/// etcd's does, so that no list ever has the resource version 0.
pub(super) fn recover(tables: &Tables) -> Result<(Start, Vec<Gap>), StoreError> {
    let txn = tables.read()?;
    let (last, reserved) = (tables.counter(&txn, Counter::Last)?, tables.counter(&txn, Counter::Reserved)?);
    let (compacted, swept) =
        (tables.counter(&txn, Counter::Compacted)?, tables.counter(&txn, Counter::Swept)?);
    let newest = if reserved > last { reserved + 1 } else { last.max(1) };
    let lost = (reserved > last).then_some(Gap { from: last, to: reserved });
    if lost.is_some() {
        tracing::info!(last, resumed_at = newest, "the store was not closed: relaxed writes may be lost");
    }
    let mut gaps = tables.gaps(&txn)?;
    gaps.extend(lost);
    Ok((Start { last: newest, reserved: reserved.max(last), compacted, swept, lost }, gaps))
}

/// The map of a store with these options.
pub(super) fn map_bytes(options: &Options) -> usize {
    let bytes = options.bytes_max.saturating_mul(MAP_FACTOR).max(MAP_BYTES_MIN);
    usize::try_from(bytes & !0xffff).unwrap_or(usize::MAX & !0xffff)
}
