//! A folder whose archives become images: those that are there at start, and those that are put there while it runs.
//!
//! An archive is a docker-archive, an OCI layout or a root file system, which is named after its file; compressed or not.
//! Each is imported once, unless it changes or its images are removed. The kernel tells of changes (inotify); a file is
//! read when its writer has closed it. What cannot be imported is written down beside what was ([`failed`]), and tried
//! again at the next start and when it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use super::import::{Hints, import};
use super::{ImageError, ImageStore};

/// What an archive's name ends with.
const ENDINGS: [&str; 8] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.zstd", ".tzst", ".oci", ".tar.gzip"];

/// What was imported from one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Imported {
    /// Inode, length, time of change in seconds and nanoseconds.
    stamp: (u64, u64, i64, i64),
    images: Vec<String>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// In the store's folder: what became of each archive.
const RECORD: &str = "folder.json";

/// Archives that could not be imported, by name, and why: what the last import in the store at `root` has written down.
#[must_use]
pub fn failed(root: &Path) -> Vec<(String, String)> {
    let failed = |(name, imported): (String, Imported)| Some((name, imported.error?));
    read(&root.join(RECORD)).into_iter().filter_map(failed).collect()
}

fn read(record: &Path) -> BTreeMap<String, Imported> {
    fs::read(record).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Imports what is in `folder`, which is made if it is not there, and goes on with what comes.
///
/// # Errors
/// The folder cannot be watched.
pub async fn follow(
    store: Arc<ImageStore>,
    folder: PathBuf,
    random: base::Random,
    tasks: &base::Tasks,
) -> Result<(), ImageError> {
    let inotify = watch(&folder).map_err(ImageError::io(format!("watch {}", folder.display())))?;
    let (first, at_start) = (folder.clone(), (Arc::clone(&store), random.clone()));
    blocking(move || import_all(&at_start.0, &first, None, &at_start.1)).await;
    tasks.spawn("images folder", async move {
        while let Some(names) = changed(&inotify).await {
            let (store, folder, random) = (Arc::clone(&store), folder.clone(), random.clone());
            blocking(move || import_all(&store, &folder, names.as_ref(), &random)).await;
        }
    });
    Ok(())
}

#[expect(deprecated, reason = "the replacement is unsafe code, and the descriptor is the inotify's own")]
fn watch(folder: &Path) -> std::io::Result<AsyncFd<Fd>> {
    fs::create_dir_all(folder)?;
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    inotify.add_watch(folder, AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO)?;
    AsyncFd::new(Fd(inotify))
}

struct Fd(Inotify);

impl std::os::fd::AsRawFd for Fd {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        use std::os::fd::AsFd;
        self.0.as_fd().as_raw_fd()
    }
}

/// The names of files that have changed; all of them if the kernel has lost count. `None` if it tells no more.
async fn changed(inotify: &AsyncFd<Fd>) -> Option<Option<BTreeSet<OsString>>> {
    loop {
        let mut ready = match inotify.readable().await {
            Ok(ready) => ready,
            Err(error) => {
                tracing::warn!(%error, "the images folder is not watched any more");
                return None;
            }
        };
        match ready.try_io(|fd| fd.get_ref().0.read_events().map_err(std::io::Error::from)) {
            Ok(Ok(events)) => {
                let is_lost = events.iter().any(|it| it.mask.contains(AddWatchFlags::IN_Q_OVERFLOW));
                let names = events.into_iter().filter_map(|event| event.name).collect();
                return Some((!is_lost).then_some(names));
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the images folder is not watched any more");
                return None;
            }
            Err(_would_block) => {}
        }
    }
}

async fn blocking(work: impl FnOnce() + Send + 'static) {
    if let Err(error) = tokio::task::spawn_blocking(work).await {
        tracing::error!(%error, "the import of images ended badly");
    }
}

/// Imports each of the `names` (all if `None`) that is an archive and is not imported yet. A bad one keeps no other from it.
fn import_all(store: &ImageStore, folder: &Path, names: Option<&BTreeSet<OsString>>, random: &base::Random) {
    let record = store.root().join(RECORD);
    let mut done = read(&record);
    let before = done.clone();
    let mut there: Vec<OsString> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    there.sort();
    done.retain(|name, _| there.iter().any(|it| it == OsStr::new(name)));
    for name in there.iter().filter(|name| names.is_none_or(|names| names.contains(*name))) {
        let Some(stem) = name.to_str().and_then(stem) else { continue };
        let path = folder.join(name);
        let Some(stamp) = stamp(&path) else { continue };
        let known = done.get(&*name.to_string_lossy());
        let is_done = |it: &Imported| {
            it.stamp == stamp && it.error.is_none() && it.images.iter().all(|id| store.find(id).is_some())
        };
        if known.is_some_and(is_done) {
            continue;
        }
        let imported = match import_one(store, &path, stem, random) {
            Ok(images) => {
                tracing::info!(path = %path.display(), images = images.len(), "imported");
                Imported { stamp, images, error: None }
            }
            Err(error) => {
                let error = base::error_chain(&error);
                tracing::warn!(path = %path.display(), error, "not imported");
                Imported { stamp, images: Vec::new(), error: Some(error) }
            }
        };
        done.insert(name.to_string_lossy().into_owned(), imported);
    }
    if done != before {
        let written = serde_json::to_vec(&done).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|bytes| fs::write(&record, bytes)) {
            tracing::warn!(%error, "what was imported is not written down: it is imported again at the next start");
        }
    }
}

fn import_one(
    store: &ImageStore,
    path: &Path,
    stem: &str,
    random: &base::Random,
) -> Result<Vec<String>, ImageError> {
    let file = fs::File::open(path).map_err(ImageError::io(format!("open {}", path.display())))?;
    let hints = Hints { root_name: Some(stem.to_owned()), ..Hints::default() };
    let images = import(store, file, &hints, random)?;
    Ok(images.into_iter().map(|image| image.id).collect())
}

/// `true` if there is nothing in a folder but archives that would become images.
///
/// # Errors
/// The folder cannot be read.
pub fn has_only_archives(folder: &Path) -> std::io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() || entry.file_name().to_str().and_then(stem).is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An archive's name without its ending; `None` if it is no archive.
fn stem(name: &str) -> Option<&str> {
    let stem = ENDINGS.iter().filter_map(|ending| name.strip_suffix(ending)).min_by_key(|stem| stem.len())?;
    (!stem.is_empty() && !name.starts_with('.')).then_some(stem)
}

fn stamp(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_told_by_their_names() {
        for (name, expect) in [
            ("a.tar", Some("a")),
            ("a.tar.gz", Some("a")),
            ("a.b.tar.zst", Some("a.b")),
            ("a.tgz", Some("a")),
            ("a.txt", None),
            (".tar", None),
            (".hidden.tar", None),
            ("a.tar.part", None),
        ] {
            assert_eq!(stem(name), expect, "{name}");
        }
    }
}
