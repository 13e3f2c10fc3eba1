//! File systems: how large they are, and on which device. Blocking.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sys::usage::device_name;

/// A file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) capacity: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

/// The file system that a path is on; nothing if it cannot be asked.
pub(crate) fn file_system(path: &Path) -> Option<FileSystem> {
    let stat = nix::sys::statvfs::statvfs(path).ok()?;
    let unit = stat.fragment_size();
    Some(FileSystem {
        capacity: stat.blocks() * unit,
        available: stat.blocks_available() * unit,
        used: stat.blocks().saturating_sub(stat.blocks_free()) * unit,
        inodes: stat.files(),
        inodes_free: stat.files_available(),
    })
}

/// The device that a path's file system is on, such as `/dev/sda1`; its numbers if it has no such name.
pub(crate) fn device(path: &Path) -> Option<String> {
    let device = std::fs::metadata(path).ok()?.dev();
    Some(device_name(nix::sys::stat::major(device), nix::sys::stat::minor(device)))
}
