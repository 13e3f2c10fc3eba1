//! Rotation of a log file: `0.log` becomes `0.log.20260102-150405`, and the oldest of those go.
//!
//! The names are upstream's kubelet's. Two rotations within a second have nanoseconds in the later name, so that
//! names sort by age. The files are exchanged in one step: a reader never finds no file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::shim::layout::LogLimits;

/// Rotates the file at `path`, removes what is too many, and returns the new file.
pub(super) fn rotate(path: &Path, limits: LogLimits, now: Timestamp) -> io::Result<File> {
    let rotated = rotated(path)?;
    for file in rotated.iter().take(excess(rotated.len(), limits.files_max)) {
        fs::remove_file(file)?;
    }
    let name = rotated_name(path, rotated.last().map(PathBuf::as_path), now);
    let file = OpenOptions::new().append(true).create_new(true).mode(0o640).open(&name)?;
    match renameat2(AT_FDCWD, path, AT_FDCWD, &name, RenameFlags::RENAME_EXCHANGE) {
        Ok(()) => Ok(file),
        // Not every file system can exchange.
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            fs::rename(path, &name)?;
            open(path)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a log for appending; it is made if it is not there.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// What was rotated away from `path` and is there still, oldest first.
fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?.file_name();
        let suffix = entry.to_str().and_then(|entry| entry.strip_prefix(name)?.strip_prefix('.'));
        if suffix.is_some_and(|suffix| suffix.starts_with(|first: char| first.is_ascii_digit())) {
            found.push(dir.join(entry));
        }
    }
    found.sort();
    Ok(found)
}

/// How many of `rotated` files go before one more is added, if `files_max` with the current one may stay.
fn excess(rotated: usize, files_max: usize) -> usize {
    (rotated + 2).saturating_sub(files_max.max(2))
}

fn rotated_name(path: &Path, newest: Option<&Path>, now: Timestamp) -> PathBuf {
    let with = |suffix: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(".");
        name.push(suffix);
        PathBuf::from(name)
    };
    let name = with(now.strftime("%Y%m%d-%H%M%S").to_string());
    if newest.is_none_or(|newest| newest < name.as_path()) {
        return name;
    }
    with(now.strftime("%Y%m%d-%H%M%S.%9f").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_stay_as_are_wanted() {
        for (rotated, files_max, expect) in [(0, 5, 0), (3, 5, 0), (4, 5, 1), (9, 5, 6), (1, 2, 1), (0, 0, 0)]
        {
            assert_eq!(excess(rotated, files_max), expect, "{rotated} rotated, at most {files_max}");
        }
    }

    #[test]
    fn names_sort_by_age_also_within_a_second() {
        let at = |nanos: i32| Timestamp::new(1_700_000_000, nanos).unwrap();
        let log = Path::new("/l/0.log");
        let first = rotated_name(log, None, at(5));
        assert_eq!(first, Path::new("/l/0.log.20231114-221320"));
        let second = rotated_name(log, Some(&first), at(6));
        assert_eq!(second, Path::new("/l/0.log.20231114-221320.000000006"));
        let third = rotated_name(log, Some(&second), at(7));
        assert!(first < second && second < third);
        let later = rotated_name(log, Some(&third), Timestamp::new(1_700_000_001, 0).unwrap());
        assert!(third < later);
    }

    #[test]
    fn the_file_is_exchanged_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let limits = LogLimits { file_bytes_max: 1, files_max: 3 };
        for number in 0..4 {
            fs::write(&log, format!("{number}")).unwrap();
            let now = Timestamp::new(1_700_000_000 + number, 0).unwrap();
            assert_eq!(rotate(&log, limits, now).unwrap().metadata().unwrap().len(), 0);
        }
        let texts: Vec<String> =
            rotated(&log).unwrap().iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        assert_eq!(texts, ["2", "3"]);
        assert_eq!(fs::read_to_string(&log).unwrap(), "");
    }
}
