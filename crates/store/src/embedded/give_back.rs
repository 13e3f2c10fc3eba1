//! Disk that is no longer needed goes back to the file system while the store runs.
//!
//! The engine never makes its file smaller: what compaction frees it uses again, some day. When more is free than is
//! likely to be used soon, holes are punched into the file where free pages are; nothing is moved, nothing is written
//! twice, and a disk that is full has room again. See `docs/adr/0011-holes.md`.
//!
//! A hole may be where the engine itself would write next, and nowhere else: in pages that no commit on disk uses, that
//! nobody reads, in this process ([`Snapshots::oldest`](super::snapshots::Snapshots::oldest)) or in another (the lock on
//! the data file, see [`offline`](super::offline)). Only the writer makes holes, between two groups, when its last
//! commit is on disk.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek};

use super::free_pages::{self, FreePages, Unclear};
use super::tables::Tables;
use crate::StoreError;

/// Bytes in a block, as `stat` counts them.
const BLOCK_BYTES: u64 = 512;
/// Holes that are made in one go: some milliseconds, in which nobody writes.
const HOLES_MAX: usize = 1024;

/// The file, and how much of it may lie idle.
pub(super) struct GiveBack {
    path: PathBuf,
    file: Option<File>,
    slack_bytes_min: u64,
    /// The file system knows no holes.
    is_in_vain: bool,
}

/// What is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// There is more to give back.
    More,
    /// There is not, or not now.
    Nothing,
}

/// Pages that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    /// The first that is not in it.
    end: u64,
}

/// Why nothing was given back.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the list of free pages is not understood: {0}")]
    Unclear(#[from] Unclear),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Errno(#[from] Errno),
}

impl GiveBack {
    /// Of the file at `path`, which is not opened yet. So much may always be free in it.
    pub(super) fn new(path: PathBuf, slack_bytes_min: u64) -> Self {
        Self { path, file: None, slack_bytes_min, is_in_vain: false }
    }

    /// Gives a part back, if too much is free.
    pub(super) fn step(&mut self, tables: &Tables) -> Left {
        if self.is_in_vain {
            return Left::Nothing;
        }
        match self.try_step(tables) {
            Ok(left) => left,
            Err(Failure::Errno(Errno::EOPNOTSUPP)) => {
                tracing::info!("the file system takes no space back from within a file");
                self.is_in_vain = true;
                Left::Nothing
            }
            Err(failure) => {
                tracing::warn!(%failure, "free space in the data file is not given back");
                Left::Nothing
            }
        }
    }

    fn try_step(&mut self, tables: &Tables) -> Result<Left, Failure> {
        let file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().read(true).write(true).open(&self.path)?,
        };
        let file = self.file.insert(file);
        let (used, allocated) = (tables.used_bytes()?, allocated(file)?);
        let slack = self.slack_bytes_min.max(used / 2);
        if allocated <= used.saturating_add(slack) {
            return Ok(Left::Nothing);
        }
        match file.try_lock() {
            Ok(()) => {}
            // Somebody reads it for a backup.
            Err(TryLockError::WouldBlock) => return Ok(Left::Nothing),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let punched = punch(file, tables, used, slack / 2);
        file.unlock()?;
        let (made, after) = (punched?, self::allocated(file)?);
        tracing::debug!(made, allocated, after, used, "gave back what was free in the data file");
        let goes_on = after < allocated && after > used.saturating_add(slack);
        Ok(if goes_on { Left::More } else { Left::Nothing })
    }
}

fn allocated(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks() * BLOCK_BYTES)
}

/// Makes holes, but for `kept` bytes of what is free; how many.
fn punch(file: &File, tables: &Tables, used: u64, kept: u64) -> Result<usize, Failure> {
    let page_bytes = tables.page_bytes();
    let free = free_pages::read(file, usize::try_from(page_bytes).unwrap_or(0), used / page_bytes)?;
    let runs = runs(&free, tables.snapshots.oldest());
    let holes = to_punch(&runs, kept / page_bytes, |page| data_from(file, page, page_bytes))?;
    for hole in &holes {
        let (from, bytes) = (hole.first * page_bytes, (hole.end - hole.first) * page_bytes);
        fallocate(
            file,
            FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE,
            offset(from)?,
            offset(bytes)?,
        )?;
    }
    Ok(holes.len())
}

fn offset(number: u64) -> Result<i64, Failure> {
    Ok(i64::try_from(number).map_err(io::Error::other)?)
}

/// The first page from `page` on that is not in a hole; `None` behind the last.
fn data_from(file: &File, page: u64, page_bytes: u64) -> Result<Option<u64>, Failure> {
    match lseek(file, offset(page * page_bytes)?, Whence::SeekData) {
        Ok(at) => Ok(Some(u64::try_from(at).map_err(io::Error::other)? / page_bytes)),
        Err(Errno::ENXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What the engine may write to next, in order: what was freed before the commit that the oldest reader reads, and
/// before the newest one.
fn runs(free: &FreePages, oldest_read: Option<u64>) -> Vec<Run> {
    let bound = oldest_read.map_or(free.newest, |oldest| oldest.min(free.newest));
    let unused = free.by_transaction.iter().filter(|(transaction, _)| *transaction < bound);
    let mut pages: Vec<u64> = unused.flat_map(|(_, pages)| pages).copied().collect();
    pages.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(run) if run.end == page => run.end += 1,
            _ => runs.push(Run { first: page, end: page + 1 }),
        }
    }
    runs
}

/// Which of them to punch now. The first so many pages stay, because the engine takes the first ones again first; what is
/// a hole already is passed over.
fn to_punch<E>(
    runs: &[Run],
    mut kept_pages: u64,
    data_from: impl Fn(u64) -> Result<Option<u64>, E>,
) -> Result<Vec<Run>, E> {
    let (mut holes, mut rest) = (Vec::new(), runs);
    while let Some((run, after)) = rest.split_first()
        && holes.len() < HOLES_MAX
    {
        rest = after;
        let Some(data) = data_from(run.first)? else { break };
        if data >= run.end {
            rest = after.get(after.partition_point(|later| later.end <= data)..).unwrap_or_default();
            continue;
        }
        let kept = kept_pages.min(run.end - run.first);
        kept_pages -= kept;
        if run.first + kept < run.end {
            holes.push(Run { first: run.first + kept, end: run.end });
        }
    }
    Ok(holes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(newest: u64, by_transaction: &[(u64, &[u64])]) -> FreePages {
        let by_transaction = by_transaction.iter().map(|(id, pages)| (*id, pages.to_vec())).collect();
        FreePages { newest, by_transaction }
    }

    fn pairs(runs: &[Run]) -> Vec<(u64, u64)> {
        runs.iter().map(|run| (run.first, run.end)).collect()
    }

    #[test]
    fn pages_that_a_commit_on_disk_or_a_reader_may_use_are_left_alone() {
        let list = free(9, &[(5, &[12, 11, 4]), (7, &[13]), (8, &[20]), (9, &[30])]);
        let check = |oldest, expected: &[(u64, u64)]| {
            assert_eq!(pairs(&runs(&list, oldest)), expected, "read at {oldest:?}");
        };
        check(None, &[(4, 5), (11, 14), (20, 21)]);
        check(Some(9), &[(4, 5), (11, 14), (20, 21)]);
        check(Some(8), &[(4, 5), (11, 14)]);
        check(Some(7), &[(4, 5), (11, 13)]);
        check(Some(5), &[]);
    }

    #[test]
    fn the_first_pages_stay_and_holes_are_not_made_twice() {
        let runs = [(2, 4), (6, 10), (20, 24), (26, 27), (40, 42)].map(|(first, end)| Run { first, end });
        let check = |kept, holes: &[(u64, u64)], expected: &[(u64, u64)]| {
            let in_hole = |page: u64| holes.iter().find(|(first, end)| (*first..*end).contains(&page));
            let data_from = |page| Ok::<_, ()>(Some(in_hole(page).map_or(page, |hole| hole.1)));
            assert_eq!(pairs(&to_punch(&runs, kept, data_from).unwrap()), expected, "{kept} kept, {holes:?}");
        };
        check(0, &[], &[(2, 4), (6, 10), (20, 24), (26, 27), (40, 42)]);
        check(3, &[], &[(7, 10), (20, 24), (26, 27), (40, 42)]);
        check(0, &[(6, 26)], &[(2, 4), (26, 27), (40, 42)]);
        check(3, &[(2, 4), (20, 24)], &[(9, 10), (26, 27), (40, 42)]);
        check(100, &[], &[]);
        assert_eq!(to_punch(&runs, 0, |_| Ok::<_, ()>(None)).unwrap(), []);
    }
}
