//! The probe of the disk, a page beside the data: what the disk says to a write and a flush, asked without touching the data.
//!
//! The engine does not say which of its calls has failed, and says `EIO` where a full disk took a part of a write. A
//! write that fails has changed nothing that is used; after a flush that fails nobody knows what is on disk, and the
//! process starts over.

use std::fs::{File, OpenOptions};
use std::io::Error;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const PAGE: [u8; 4096] = [0x5a; 4096];

/// The probe; its file is opened when it is first asked.
pub(super) struct DiskProbe {
    path: PathBuf,
    file: Option<File>,
}

/// What the disk does not do.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It takes no writes.
    Write(Error),
    /// It takes them and does not keep them.
    Flush(Error),
}

impl Refusal {
    pub(super) fn error(&self) -> &Error {
        match self {
            Self::Write(error) | Self::Flush(error) => error,
        }
    }
}

impl DiskProbe {
    /// A page in `dir`, which is not touched yet.
    pub(super) fn new(dir: &Path) -> Self {
        Self { path: dir.join("trial"), file: None }
    }

    /// Writes the page and flushes it.
    pub(super) fn run(&mut self) -> Result<(), Refusal> {
        let file = self.opened().map_err(Refusal::Write)?;
        file.write_all_at(&PAGE, 0).map_err(Refusal::Write)?;
        file.sync_data().map_err(Refusal::Flush)
    }

    /// The same, and whether there is room for `bytes` more, which are given back.
    pub(super) fn run_with_free_space(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.run()?;
        let file = self.opened().map_err(Refusal::Write)?;
        let end = PAGE.len() as u64 + bytes;
        let mut pages = (PAGE.len() as u64..end).step_by(PAGE.len());
        let filled = pages.try_for_each(|at| file.write_all_at(&PAGE, at)).map_err(Refusal::Write);
        let flushed = filled.and_then(|()| file.sync_data().map_err(Refusal::Flush));
        file.set_len(PAGE.len() as u64).map_err(Refusal::Write)?;
        flushed
    }

    fn opened(&mut self) -> Result<&File, Error> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.open()?,
        };
        Ok(self.file.insert(file))
    }

    fn open(&self) -> Result<File, Error> {
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&self.path)
    }
}
