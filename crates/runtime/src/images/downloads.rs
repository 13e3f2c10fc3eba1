//! The downloads that are not unpacked yet: a file per blob, under the blob's digest, that holds its beginning.
//!
//! It stays when a pull breaks off, also by the death of the process, and the next pull goes on from it. Who works on
//! one has it locked. What nobody takes up goes after a while, and the oldest of too many, and all of them when images
//! are removed for room.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};

use super::{ImageError, ImageStore};

/// The folder's name below the store.
pub(super) const DIR: &str = "downloads";
/// How long after its last byte a download stays. Source: containerd, whose leases for pulls last as long.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// How much stays that nobody works on.
const BYTES_MAX: u64 = 8 << 30;

/// A file that is locked.
pub(super) type Lock = Flock<fs::File>;

/// A download that nobody works on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Idle {
    name: OsString,
    changed: SystemTime,
    bytes: u64,
}

impl ImageStore {
    /// Where a blob is downloaded to.
    pub(super) fn download(&self, digest: &registry::Digest) -> PathBuf {
        self.root().join(DIR).join(digest.hex())
    }

    /// Removes downloads that were not taken up again for long, and the oldest if all are too much.
    pub(crate) fn clear_downloads(&self, now: SystemTime) {
        self.remove_downloads(|idle| stale(idle, now));
    }

    /// Removes all downloads that nobody works on.
    pub(crate) fn drop_downloads(&self) {
        self.remove_downloads(|idle| idle.into_iter().map(|it| it.name).collect());
    }

    fn remove_downloads(&self, which: impl FnOnce(Vec<Idle>) -> Vec<OsString>) {
        let dir = self.root().join(DIR);
        let idle = |entry: fs::DirEntry| {
            let metadata = entry.metadata().ok()?;
            try_lock(&entry.path())?;
            Some(Idle { name: entry.file_name(), changed: metadata.modified().ok()?, bytes: metadata.len() })
        };
        let all = fs::read_dir(&dir).into_iter().flatten().flatten().filter_map(idle).collect();
        for name in which(all) {
            let path = dir.join(name);
            // Taken up meanwhile: it stays.
            let Some(_lock) = try_lock(&path) else { continue };
            if let Err(error) = fs::remove_file(&path) {
                tracing::debug!(path = %path.display(), %error, "an old download stays");
            }
        }
    }
}

/// Those that are too old, then the oldest until the rest is not too much.
fn stale(mut idle: Vec<Idle>, now: SystemTime) -> Vec<OsString> {
    idle.sort_by(|a, b| (b.changed, &b.name).cmp(&(a.changed, &a.name)));
    let mut bytes = 0_u64;
    let mut is_stale = |it: &Idle| {
        let is_old = now.duration_since(it.changed).is_ok_and(|age| age > AGE_MAX);
        bytes = bytes.saturating_add(it.bytes);
        is_old || bytes > BYTES_MAX
    };
    idle.retain(&mut is_stale);
    idle.into_iter().map(|it| it.name).collect()
}

/// Keeps other processes from the same download.
pub(super) fn lock(path: &Path) -> Result<Lock, ImageError> {
    let doing = "lock a download";
    loop {
        let file = fs::File::options().create(true).truncate(false).write(true).open(path);
        let file = file.map_err(ImageError::io(doing))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| ImageError::io(doing)(errno.into()))?;
        // Whoever had it may have finished, and removed it.
        let inode = lock.metadata().map_err(ImageError::io(doing))?.ino();
        if fs::metadata(path).is_ok_and(|metadata| metadata.ino() == inode) {
            return Ok(lock);
        }
    }
}

/// Removes a download that is not needed any more.
pub(super) fn remove(path: &Path, lock: Lock) -> Result<(), ImageError> {
    let removed = fs::remove_file(path);
    drop(lock);
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ImageError::io("remove a download")(error))
        }
        _ => Ok(()),
    }
}

fn try_lock(path: &Path) -> Option<Lock> {
    Flock::lock(fs::File::open(path).ok()?, FlockArg::LockExclusiveNonblock).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_goes_and_the_oldest_of_too_much() {
        const HOUR: Duration = Duration::from_secs(3600);
        let now = SystemTime::UNIX_EPOCH + 1000 * HOUR;
        let check = |downloads: &[(&str, u32, u64)], expect: &[&str]| {
            let idle = downloads.iter().map(|(name, hours, gib)| Idle {
                name: name.into(),
                changed: now - *hours * HOUR,
                bytes: gib << 30,
            });
            assert_eq!(stale(idle.collect(), now), expect, "{downloads:?}");
        };
        check(&[], &[]);
        check(&[("a", 1, 1), ("b", 24, 1), ("c", 25, 1)], &["c"]);
        check(&[("old", 3, 3), ("new", 1, 3), ("older", 4, 1), ("newer", 0, 3)], &["old", "older"]);
        check(&[("one", 0, 9)], &["one"]);
    }

    #[test]
    fn who_works_on_a_download_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path()).unwrap();
        let path = |name: &str| dir.path().join(DIR).join(name);
        let held = lock(&path("held")).unwrap();
        fs::write(path("idle"), "x").unwrap();
        store.clear_downloads(SystemTime::now());
        assert!(path("idle").exists());
        store.drop_downloads();
        assert!(path("held").exists() && !path("idle").exists());
        remove(&path("held"), held).unwrap();
        assert!(!path("held").exists());
    }
}
