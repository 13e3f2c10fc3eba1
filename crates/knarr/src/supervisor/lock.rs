//! One process at a time owns a cluster's folder: it holds the lock, and the file has its process id.
//!
//! Parts that run alone share a folder: each holds a share of that lock, and a lock of its own with its process id.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use sys::process::{PidFd, start_time};

use crate::layout::Layout;

/// A process that was killed is gone after that long.
const DYING_MAX: Duration = Duration::from_millis(500);
/// The parts that may run alone in a folder.
const PARTS_ALONE: [&str; 2] = ["kubelet", "proxy"];

/// A part's hold on a folder: neither a whole cluster nor the same part runs there as long as this lives.
#[derive(Debug)]
pub(crate) struct PartLock {
    _part: Flock<File>,
    _folder: Flock<File>,
}

/// Takes the folder's lock, which lasts as long as the returned file is open, and writes our process id to it.
///
/// # Errors
/// If another process has it.
pub(crate) fn lock(layout: &Layout) -> Result<Flock<File>> {
    let Some(mut lock) = wait_and_lock(&layout.lock(), FlockArg::LockExclusiveNonblock)? else {
        let root = layout.root().display();
        bail!("a cluster already runs in {root}; stop it with `knarr down --data-dir {root}`");
    };
    write_pid(&mut lock)?;
    Ok(lock)
}

/// Takes the lock of a part that runs alone.
///
/// # Errors
/// If the same part or a whole cluster runs there.
pub(crate) fn lock_part(layout: &Layout, part: &'static str) -> Result<PartLock> {
    let root = layout.root().display();
    let advice =
        format!("stop it with `knarr down --data-dir {root}`, or choose another folder with --data-dir");
    let Some(folder) = wait_and_lock(&layout.lock(), FlockArg::LockSharedNonblock)? else {
        bail!("a cluster already runs in {root}; {advice}");
    };
    let Some(mut own) = wait_and_lock(&layout.part_lock(part), FlockArg::LockExclusiveNonblock)? else {
        bail!("a {part} already runs in {root}; {advice}");
    };
    write_pid(&mut own)?;
    Ok(PartLock { _part: own, _folder: folder })
}

/// The process ids of those who run in a folder: a cluster's supervisor, or parts that run alone.
///
/// # Errors
/// If the locks cannot be looked at.
pub(crate) fn holders(layout: &Layout) -> Result<Vec<i32>> {
    if !is_free(&layout.lock())? {
        return Ok(vec![pid(&layout.lock())?]);
    }
    let mut pids = Vec::new();
    for part in PARTS_ALONE {
        let path = layout.part_lock(part);
        if !is_free(&path)? {
            pids.push(pid(&path)?);
        }
    }
    Ok(pids)
}

/// Waits a moment for whoever has the folder's lock: a process that was killed has it until it is gone.
///
/// # Errors
/// If it cannot be looked at.
pub(crate) fn wait_for_holder(layout: &Layout) -> Result<()> {
    wait_for(&layout.lock())
}

fn wait_for(path: &Path) -> Result<()> {
    let Some((pid, start_time)) = pid(path).ok().and_then(|pid| Some((pid, start_time(pid).ok()?))) else {
        return Ok(());
    };
    if let Some(process) = PidFd::open_same(pid, start_time)? {
        process.wait(DYING_MAX).with_context(|| format!("wait for process {pid}"))?;
    }
    Ok(())
}

fn wait_and_lock(path: &Path, how: FlockArg) -> Result<Option<Flock<File>>> {
    let free = try_lock(path, how)?;
    if free.is_some() {
        return Ok(free);
    }
    wait_for(path)?;
    try_lock(path, how)
}

/// Whether nobody has a lock for itself. Who may read the file may ask.
fn is_free(path: &Path) -> Result<bool> {
    if !path.exists() {
        return Ok(true);
    }
    Ok(lock_file(path, File::options().read(true), FlockArg::LockSharedNonblock)?.is_some())
}

fn try_lock(path: &Path, how: FlockArg) -> Result<Option<Flock<File>>> {
    lock_file(path, File::options().create(true).truncate(false).write(true).read(true), how)
}

fn lock_file(path: &Path, options: &OpenOptions, how: FlockArg) -> Result<Option<Flock<File>>> {
    let file = options.open(path).with_context(|| format!("open {}", path.display()))?;
    match Flock::lock(file, how) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error).with_context(|| format!("lock {}", path.display())),
    }
}

fn write_pid(lock: &mut File) -> std::io::Result<()> {
    lock.set_len(0)?;
    write!(lock, "{}", std::process::id())
}

fn pid(path: &Path) -> Result<i32> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    text.trim().parse().context("read the process id of the running cluster")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_a_folder_that_a_cluster_has_for_itself() {
        let dir = std::env::temp_dir().join(format!("knarr-locks-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let layout = Layout::new(&dir).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let refusal = |part| lock_part(&layout, part).map(drop).unwrap_err().to_string();
        assert_eq!(holders(&layout).unwrap(), [0; 0]);

        let kubelet = lock_part(&layout, "kubelet").unwrap();
        assert_eq!(holders(&layout).unwrap(), [own]);
        assert!(refusal("kubelet").starts_with("a kubelet already runs in "), "{}", refusal("kubelet"));
        let proxy = lock_part(&layout, "proxy").unwrap();
        assert_eq!(holders(&layout).unwrap(), [own, own]);
        assert!(lock(&layout).is_err(), "parts run there");
        drop(kubelet);
        assert!(lock(&layout).is_err(), "one part still runs there");
        drop(proxy);

        let cluster = lock(&layout).unwrap();
        assert_eq!(holders(&layout).unwrap(), [own]);
        assert!(refusal("proxy").starts_with("a cluster already runs in "), "{}", refusal("proxy"));
        drop(cluster);
        assert_eq!(holders(&layout).unwrap(), [0; 0]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
