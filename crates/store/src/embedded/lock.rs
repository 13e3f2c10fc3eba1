//! One process at a time has a store's folder open.
//!
//! The lock goes with the process, and is let go by name when the store is dropped: a process that somebody else was
//! just about to start may hold a copy of the descriptor, so that closing ours would not do.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::OpenError;
use super::opening::sync_folder;

const FILE: &str = "lock";

/// A folder's lock.
pub(super) struct Lock {
    file: File,
    /// The disk takes no writes: the folder can be read, and that is all.
    pub(super) is_read_only: bool,
}

/// Makes `dir` and takes its lock.
pub(super) fn lock(dir: &Path) -> Result<Lock, OpenError> {
    let refused = |source| OpenError::Directory { path: dir.to_owned(), source };
    if !dir.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(refused)?;
        dir.parent().filter(|parent| parent.is_dir()).map_or(Ok(()), sync_folder)?;
    }
    let (file, is_read_only) = match open(dir) {
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => (File::open(dir.join(FILE)), true),
        opened => (opened, false),
    };
    let file = file.map_err(refused)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock { file, is_read_only }),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked(dir.to_owned())),
        Err(TryLockError::Error(source)) => Err(refused(source)),
    }
}

fn open(dir: &Path) -> Result<File, Error> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(dir.join(FILE))
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "the lock goes when the file is closed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_dropped_is_free_though_another_process_has_the_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        let copy = first.file.try_clone().unwrap();
        let mut heir = std::process::Command::new("sleep").arg("60").stdin(copy).spawn().unwrap();
        assert!(matches!(lock(dir.path()), Err(OpenError::Locked(_))));
        drop(first);
        let again = lock(dir.path());
        heir.kill().unwrap();
        heir.wait().unwrap();
        assert!(again.is_ok(), "the heir keeps it");
    }
}
