//! Files that count when they change: the kernel tells (inotify).

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

/// Changes in files' folders: of the files themselves, and of whatever they may be replaced by.
pub(super) struct Changes(AsyncFd<Descriptor>);

/// What tokio asks of a descriptor.
struct Descriptor(Inotify);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Changes {
    /// Changes of this file from now on.
    ///
    /// # Errors
    /// If its folder cannot be watched.
    #[expect(deprecated, reason = "the replacement is unsafe code, and the descriptor is the inotify's own")]
    pub(super) fn of(path: &Path) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let changes = Self(AsyncFd::new(Descriptor(inotify))?);
        changes.also_of(path)?;
        Ok(changes)
    }

    /// Changes of this file, too. A folder is watched once.
    ///
    /// # Errors
    /// If its folder cannot be watched.
    pub(super) fn also_of(&self, path: &Path) -> Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let what = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_ATTRIB;
        self.0.get_ref().0.add_watch(folder, what).with_context(|| format!("watch {}", folder.display()))?;
        Ok(())
    }

    /// Waits for the next change; several may come as one.
    ///
    /// # Errors
    /// If the kernel does not tell any more.
    pub(super) async fn next(&mut self) -> Result<()> {
        loop {
            let mut ready = self.0.readable_mut().await?;
            match ready.get_inner().0.read_events() {
                Ok(_) => return Ok(()),
                Err(nix::errno::Errno::EAGAIN) => ready.clear_ready(),
                Err(failure) => return Err(failure.into()),
            }
        }
    }
}
