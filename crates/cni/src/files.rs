//! Files that may be gone, or another version, by the next look.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::types::CniError;

/// End of the names of files that a crash left half written.
pub(crate) const UNFINISHED: &str = ".new";

pub(crate) fn remove_if_there(path: &Path) -> Result<(), CniError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(CniError::state(path)(error)),
        _ => Ok(()),
    }
}

/// A file, as far as one tells it from its next version: inode, size, time of change. `None` if it is not there.
pub(crate) type Stamp = Option<(u64, u64, i64, i64)>;

pub(crate) fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok();
    metadata.map(|it| (it.ino(), it.len(), it.ctime(), it.ctime_nsec()))
}

/// A file that is there is whole: written beside and renamed.
pub(crate) fn write_whole(path: &Path, text: &[u8]) -> Result<(), CniError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(UNFINISHED);
    let beside = PathBuf::from(beside);
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).map_err(CniError::state(path))
}
