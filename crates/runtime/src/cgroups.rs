//! Removing cgroups in every hierarchy, also those that only libcontainer uses (blkio, hugetlb, ...).

use std::io;
use std::path::{Path, PathBuf};

/// Removes the cgroup if nothing is in it.
pub(crate) fn remove_if_empty(path: &str) {
    for dir in dirs(path) {
        if let Err(error) = std::fs::remove_dir(&dir) {
            tracing::trace!(cgroup = %dir.display(), %error, "cgroup kept");
        }
    }
}

/// Removes the cgroup and those below it, which must hold no process. The root is never removed.
pub(crate) fn remove_tree(path: &str) -> io::Result<()> {
    if path.trim_matches('/').is_empty() {
        return Ok(());
    }
    dirs(path).iter().try_for_each(|dir| remove_dirs(dir))
}

fn dirs(path: &str) -> Vec<PathBuf> {
    let mounts = sys::mount::mounts().unwrap_or_default();
    let cgroups = mounts.iter().filter(|mount| mount.fs_type.starts_with("cgroup"));
    cgroups.map(|mount| mount.target.join(path.trim_start_matches('/'))).collect()
}

fn remove_dirs(dir: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_dirs(&entry.path())?;
        }
    }
    std::fs::remove_dir(dir)
}
