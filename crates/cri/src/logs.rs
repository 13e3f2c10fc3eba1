//! The files of a container's log: `0.log` is written, `0.log.20260102-150405` was rotated away.
//!
//! Who rotates (a runtime that counts what it writes, or the kubelet for others) and who reads must agree on these. The
//! names are upstream's kubelet's. Two rotations within a second have nanoseconds in the later name, so that names sort
//! by age. What is older than the newest of them is compressed, with the same times: readers tell by these that they
//! know it. Source: `pkg/kubelet/logs/container_log_manager.go`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;

pub use record::Record;

mod record;

/// What the name of a compressed file ends with.
const PACKED: &str = ".gz";
/// What the name of one ends with that is not complete.
const UNFINISHED: &str = ".tmp";

/// Removes what is too many before one more is rotated away from `path`, of which `files_max` with the one that is
/// written may stay. Says what the next file is called, and which older ones may be compressed when it is there.
///
/// # Errors
/// The folder cannot be read, or a file not be removed.
pub fn remove_excess(path: &Path, files_max: usize, now: Timestamp) -> io::Result<(PathBuf, Vec<PathBuf>)> {
    let mut older = rotated(path)?;
    let name = rotated_name(path, older.last().map(PathBuf::as_path), now);
    for file in older.drain(..excess(older.len(), files_max)) {
        remove(&file)?;
    }
    older.retain(|file| file.exists());
    Ok((name, older))
}

/// Removes a file in all its forms.
fn remove(file: &Path) -> io::Result<()> {
    let unfinished = with_suffix(file, UNFINISHED);
    for form in [file.to_owned(), with_suffix(file, PACKED), unfinished] {
        match fs::remove_file(form) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Replaces a file that nobody writes any more by a compressed one. Nothing happens if somebody else is at it, or was.
///
/// # Errors
/// The disk failed.
pub fn pack(file: &Path) -> io::Result<()> {
    let plain = match File::open(file) {
        Ok(plain) => plain,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match plain.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let unfinished = with_suffix(file, UNFINISHED);
    let packed = OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(&unfinished)?;
    let mut encoder = GzEncoder::new(packed, Compression::default());
    io::copy(&mut &plain, &mut encoder)?;
    encoder.finish()?.set_modified(plain.metadata()?.modified()?)?;
    // First the new one: readers look for it when they do not find the old one.
    fs::rename(&unfinished, with_suffix(file, PACKED))?;
    fs::remove_file(file)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// What was rotated away from `path` and is there still, compressed or not, by the names of what is not; oldest first.
fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?.file_name();
        let Some(entry) = entry.to_str() else { continue };
        let entry = entry.strip_suffix(PACKED).or(entry.strip_suffix(UNFINISHED)).unwrap_or(entry);
        let suffix = entry.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
        if suffix.is_some_and(|suffix| suffix.starts_with(|first: char| first.is_ascii_digit())) {
            found.insert(dir.join(entry));
        }
    }
    Ok(found.into_iter().collect())
}

/// How many of `rotated` files go before one more is added, if `files_max` with the current one may stay.
fn excess(rotated: usize, files_max: usize) -> usize {
    (rotated + 2).saturating_sub(files_max.max(2))
}

fn rotated_name(path: &Path, newest: Option<&Path>, now: Timestamp) -> PathBuf {
    let with = |suffix: String| with_suffix(path, &format!(".{suffix}"));
    let name = with(now.strftime("%Y%m%d-%H%M%S").to_string());
    if newest.is_none_or(|newest| newest < name.as_path()) {
        return name;
    }
    with(now.strftime("%Y%m%d-%H%M%S.%9f").to_string())
}

#[cfg(test)]
mod tests;
