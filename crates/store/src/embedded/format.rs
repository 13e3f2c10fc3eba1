//! The layout's version in the data file, and the way from older ones.
//!
//! 1: rows without checksums. 2: every row of every table is [`sealed`](super::sealed). The version's own row has no
//! checksum and never changes its form, so that every version can read every other's.

use std::ops::Bound;

use heed::{Env, RoTxn, RwTxn, WithoutTls};

use super::OpenError;
use super::record::Head;
use super::sealed::{Kind, Table, seal};
use crate::StoreError;

/// Rises with every change of the layout.
pub(super) const FORMAT: u64 = 2;
/// Where the version stands in the table `meta`.
const KEY: &[u8] = b"format";
/// Rows that are rewritten at a time.
const CHUNK: usize = 256;

/// The version of the data; 0 if nothing was ever written.
pub(super) fn read(meta: &Table, txn: &RoTxn<'_>) -> Result<u64, StoreError> {
    let bytes = meta.rows.get(txn, KEY).map_err(|error| meta.blame.engine(error))?;
    bytes.map_or(Ok(0), |bytes| bytes.try_into().map(u64::from_be_bytes).map_err(|_| meta.broken(KEY)))
}

/// Makes the data that of this version, in one transaction.
///
/// # Errors
/// If it is a newer version's, or the disk refuses.
pub(super) fn bring_up(env: &Env<WithoutTls>, tables: &[Table; 5]) -> Result<(), OpenError> {
    let [meta, ..] = tables;
    let mut txn = env.write_txn().map_err(|error| meta.blame.engine(error))?;
    match read(meta, &txn)? {
        FORMAT => return Ok(()),
        0 => {}
        1 => {
            tracing::info!(from = 1, to = FORMAT, "the data is brought to this version's format");
            for table in tables {
                seal_all(&mut txn, table)?;
            }
        }
        found => return Err(OpenError::Format { found, known: FORMAT }),
    }
    let written = meta.rows.put(&mut txn, KEY, &FORMAT.to_be_bytes()).and_then(|()| txn.commit());
    Ok(written.map_err(|error| meta.blame.engine(error))?)
}

/// Gives every row its checksum.
fn seal_all(txn: &mut RwTxn<'_>, table: &Table) -> Result<(), StoreError> {
    let engine = |error| table.blame.engine(error);
    let mut after: Option<Vec<u8>> = None;
    loop {
        let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let rows = table.rows.range(txn, &(start, Bound::Unbounded)).map_err(engine)?;
        let rows = rows.take(CHUNK).map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())));
        let rows: Vec<(Vec<u8>, Vec<u8>)> = rows.collect::<Result<_, _>>().map_err(engine)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        after = Some(last.clone());
        for (key, value) in rows {
            if table.kind == Kind::Meta && key == KEY {
                continue;
            }
            if table.kind == Kind::Log && Head::decode(&value).is_none() {
                return Err(table.broken(&key));
            }
            table.rows.put(txn, &key, &seal(table.kind, &key, value)).map_err(engine)?;
        }
    }
}
