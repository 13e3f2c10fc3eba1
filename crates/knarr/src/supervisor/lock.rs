//! One process at a time owns a cluster's folder: it holds the lock, and the file has its process id.

use std::fs::File;
use std::io::Write;

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

use crate::layout::Layout;

/// Takes the folder's lock, which lasts as long as the returned file is open, and writes our process id to it.
///
/// # Errors
/// If another process has it.
pub(crate) fn lock(layout: &Layout) -> Result<Flock<File>> {
    let Some(mut lock) = try_lock(layout)? else {
        let root = layout.root().display();
        bail!("a cluster already runs in {root}; stop it with `knarr down --data-dir {root}`");
    };
    lock.set_len(0)?;
    write!(lock, "{}", std::process::id())?;
    Ok(lock)
}

/// Whether no process has the lock.
pub(crate) fn lock_is_free(layout: &Layout) -> Result<bool> {
    Ok(try_lock(layout)?.is_some())
}

fn try_lock(layout: &Layout) -> Result<Option<Flock<File>>> {
    let path = layout.lock();
    let file = File::options().create(true).truncate(false).write(true).read(true).open(&path);
    let file = file.with_context(|| format!("open {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error).with_context(|| format!("lock {}", path.display())),
    }
}
