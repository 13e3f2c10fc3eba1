//! Tells when something changes in folders: inotify, so that nobody has to look.
//!
//! A folder that is not there yet is waited for by way of the nearest one above it that is.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

/// The changes of one folder, or of several.
#[derive(Debug)]
pub struct FolderWatch {
    folders: Vec<PathBuf>,
    events: AsyncFd<OwnedFd>,
}

impl FolderWatch {
    /// Watches from now on.
    ///
    /// # Errors
    /// The kernel gives no more watches.
    pub fn new(folder: &Path) -> io::Result<Self> {
        Self::of(vec![folder.to_owned()])
    }

    /// Watches several from now on.
    ///
    /// # Errors
    /// The kernel gives no more watches.
    pub fn of(folders: Vec<PathBuf>) -> io::Result<Self> {
        let events = watch(&folders)?;
        Ok(Self { folders, events })
    }

    /// Waits for changes; several are told as one.
    ///
    /// # Errors
    /// The watch is lost and cannot be made again.
    pub async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [0_u8; 4096];
            let read =
                ready.try_io(|fd| nix::unistd::read(fd.get_ref(), &mut buffer).map_err(io::Error::from));
            match read {
                Ok(Ok(_)) => break,
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
        // A folder itself may have come, gone, or be another one now.
        self.events = watch(&self.folders)?;
        Ok(())
    }
}

fn watch(folders: &[PathBuf]) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF;
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    folders.iter().try_for_each(|folder| watch_nearest(&inotify, folder, flags))?;
    #[expect(deprecated, reason = "its replacement is unsafe; an OwnedFd keeps its number for itself")]
    AsyncFd::new(OwnedFd::from(inotify))
}

/// The folder, or the nearest one above it that is there.
fn watch_nearest(inotify: &Inotify, folder: &Path, flags: AddWatchFlags) -> io::Result<()> {
    loop {
        let mut below = None;
        let mut added = Err(io::Error::from(io::ErrorKind::NotFound));
        for place in folder.ancestors() {
            added = inotify.add_watch(place, flags).map_err(io::Error::from);
            match &added {
                Ok(_) => break,
                Err(error) => below = (error.kind() == io::ErrorKind::NotFound).then_some(place),
            }
        }
        added?;
        // What came while its parent was not watched yet is not told of.
        if !below.is_some_and(Path::is_dir) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_and_a_folder_that_comes_later_are_noticed() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("later");
        let mut watch = FolderWatch::new(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        watch.changed().await.unwrap();
        std::fs::write(folder.join("one"), "x").unwrap();
        watch.changed().await.unwrap();
        std::fs::remove_file(folder.join("one")).unwrap();
        watch.changed().await.unwrap();
    }

    #[tokio::test]
    async fn several_folders_are_watched_together() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut watch = FolderWatch::of(vec![one.path().into(), two.path().join("a/b")]).unwrap();
        std::fs::write(one.path().join("x"), "x").unwrap();
        watch.changed().await.unwrap();
        std::fs::create_dir_all(two.path().join("a/b")).unwrap();
        watch.changed().await.unwrap();
        std::fs::write(two.path().join("a/b/x"), "x").unwrap();
        watch.changed().await.unwrap();
    }
}
