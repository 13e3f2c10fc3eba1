//! One process at a time owns a cluster's folder: it holds the lock, and the file has its process id.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use sys::process::{PidFd, start_time};

use crate::layout::Layout;

/// A process that was killed is gone after that long.
const DYING_MAX: Duration = Duration::from_millis(500);

/// Takes the folder's lock, which lasts as long as the returned file is open, and writes our process id to it.
///
/// # Errors
/// If another process has it.
pub(crate) fn lock(layout: &Layout) -> Result<Flock<File>> {
    let mut free = try_lock(layout)?;
    if free.is_none() {
        wait_for_holder(layout)?;
        free = try_lock(layout)?;
    }
    let Some(mut lock) = free else {
        let root = layout.root().display();
        bail!("a cluster already runs in {root}; stop it with `knarr down --data-dir {root}`");
    };
    lock.set_len(0)?;
    write!(lock, "{}", std::process::id())?;
    Ok(lock)
}

/// Waits a moment for whoever has the lock: a process that was killed has it until it is gone.
///
/// # Errors
/// If it cannot be looked at.
pub(crate) fn wait_for_holder(layout: &Layout) -> Result<()> {
    let holder = std::fs::read_to_string(layout.lock()).ok().and_then(|text| text.trim().parse().ok());
    let Some((pid, start_time)) = holder.and_then(|pid| Some((pid, start_time(pid).ok()?))) else {
        return Ok(());
    };
    if let Some(process) = PidFd::open_same(pid, start_time)? {
        process.wait(DYING_MAX).with_context(|| format!("wait for process {pid}"))?;
    }
    Ok(())
}

/// Whether no process has the lock. Who may read the file may ask.
pub(crate) fn lock_is_free(layout: &Layout) -> Result<bool> {
    Ok(try_to(layout, FlockArg::LockSharedNonblock, File::options().read(true))?.is_some())
}

fn try_lock(layout: &Layout) -> Result<Option<Flock<File>>> {
    let options = File::options().create(true).truncate(false).write(true).read(true).to_owned();
    try_to(layout, FlockArg::LockExclusiveNonblock, &options)
}

fn try_to(layout: &Layout, how: FlockArg, options: &OpenOptions) -> Result<Option<Flock<File>>> {
    let path = layout.lock();
    let file = options.open(&path).with_context(|| format!("open {}", path.display()))?;
    match Flock::lock(file, how) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error).with_context(|| format!("lock {}", path.display())),
    }
}
