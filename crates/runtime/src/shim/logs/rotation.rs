//! Rotation of a log file by the one who writes it: when it is due, and in one step, so that a reader never finds no file.
//!
//! What is older is compressed by a process of its own: nobody's output waits for it. Names and forms: [`cri::logs`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::shim::layout::LogLimits;

/// Rotates the file at `path` and removes what is too many; returns the new file, and what may be compressed now.
pub(super) fn rotate(path: &Path, limits: LogLimits, now: Timestamp) -> io::Result<(File, Vec<PathBuf>)> {
    let (name, older) = cri::logs::remove_excess(path, limits.files_max, now)?;
    let file = OpenOptions::new().append(true).create_new(true).mode(0o640).open(&name)?;
    let file = match renameat2(AT_FDCWD, path, AT_FDCWD, &name, RenameFlags::RENAME_EXCHANGE) {
        Ok(()) => file,
        // Not every file system can exchange.
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            fs::rename(path, &name)?;
            open(path)?
        }
        Err(errno) => return Err(errno.into()),
    };
    Ok((file, older))
}

/// Opens a log for appending; it is made if it is not there.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_exchanged_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let limits = LogLimits { file_bytes_max: 1, files_max: 3 };
        for number in 0..4 {
            fs::write(&log, format!("{number}")).unwrap();
            let now = Timestamp::new(1_700_000_000 + number, 0).unwrap();
            let (file, older) = rotate(&log, limits, now).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 0);
            assert_eq!(older.len(), usize::from(number > 0), "{number}");
        }
        let mut files: Vec<PathBuf> = fs::read_dir(&dir).unwrap().map(|it| it.unwrap().path()).collect();
        files.sort();
        let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        assert_eq!(texts, ["", "2", "3"]);
    }
}
