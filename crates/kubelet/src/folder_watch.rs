//! Tells when something changes in a folder: inotify, so that nobody has to look.
//!
//! A folder that is not there yet is waited for by way of the nearest one above it that is.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

/// One folder's changes.
pub(crate) struct FolderWatch {
    folder: PathBuf,
    events: AsyncFd<OwnedFd>,
}

impl FolderWatch {
    /// Watches from now on.
    ///
    /// # Errors
    /// The kernel gives no more watches.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        Ok(Self { folder: folder.to_owned(), events: watch(folder)? })
    }

    /// Waits for changes; several are told as one.
    ///
    /// # Errors
    /// The watch is lost and cannot be made again.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
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
        // The folder itself may have come, gone, or be another one now.
        self.events = watch(&self.folder)?;
        Ok(())
    }
}

fn watch(folder: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF;
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let mut added = Err(io::Error::from(io::ErrorKind::NotFound));
    for place in folder.ancestors() {
        added = inotify.add_watch(place, flags).map_err(io::Error::from);
        if added.is_ok() {
            break;
        }
    }
    added?;
    #[expect(deprecated, reason = "its replacement is unsafe; an OwnedFd keeps its number for itself")]
    AsyncFd::new(OwnedFd::from(inotify))
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
}
