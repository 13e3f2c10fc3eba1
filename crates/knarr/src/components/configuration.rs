//! A configuration file with all that it names, as it is read and handed over.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use apiserver::ApiServer;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::Settings;
use super::hand_over::{as_control_plane, write_secret};

/// The longest file that is handed over, of those that a configuration names, or is one.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file, by what tells it from others.
pub(super) struct Configuration {
    /// What it is called in the log.
    pub(super) what: &'static str,
    /// What counts, in the server's folder.
    pub(super) good: &'static str,
    /// What was meant to count, and cannot be used.
    pub(super) broken: &'static str,
    /// The file, and the flag that names it.
    pub(super) named: fn(&Settings) -> Option<(&'static str, &Path)>,
    /// What is wrong with what it says.
    pub(super) check: fn(&Settings, &str, &Reader<'_>) -> Result<()>,
    /// Has it count; says whether it is another one than before.
    pub(super) reload: for<'a> fn(&'a Settings, &'a ApiServer, &'a Bundle) -> BoxFuture<'a, Result<bool>>,
}

/// Reads a file that a configuration names.
pub(super) type Reader<'a> = dyn Fn(&str) -> Result<String, ReadError> + 'a;

/// The reason why a file that a configuration names cannot be read, in upstream's words where it has some.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("must be a regular file")]
    NotRegular,
    #[error("stat {0}: {1}")]
    Stat(String, #[source] io::Error),
    #[error("{0:#}")]
    Read(anyhow::Error),
    #[error("open {0}: it was not handed over")]
    NotHandedOver(String),
}

/// A configuration, and all files that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bundle {
    pub(super) text: String,
    pub(super) files: BTreeMap<String, String>,
}

impl Bundle {
    /// A file that the configuration names.
    pub(super) fn read(&self, path: &str) -> Result<String, ReadError> {
        self.files.get(path).cloned().ok_or_else(|| ReadError::NotHandedOver(path.to_owned()))
    }

    /// What [`prepare`] has left; `folder` is the server's.
    pub(super) fn of(configuration: &Configuration, folder: &Path) -> Result<Self> {
        let path = folder.join(configuration.good);
        as_control_plane(|| Self::load(&path))
    }

    /// What was handed over.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
    }

    pub(super) fn hand_over(&self, path: &Path) -> Result<()> {
        write_secret(&serde_json::to_vec(self)?, path)
    }
}

/// Reads a file of bounded length.
pub(super) fn read_text(path: &Path) -> Result<String> {
    let length = path.metadata().with_context(|| format!("look at {}", path.display()))?.len();
    anyhow::ensure!(length <= FILE_BYTES_MAX, "{} is longer than {FILE_BYTES_MAX} bytes", path.display());
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

/// Reads a file that a configuration names.
pub(super) fn read_named(path: &str) -> Result<String, ReadError> {
    let file = Path::new(path);
    let is = file.metadata().map_err(|failure| ReadError::Stat(path.to_owned(), failure))?;
    if !is.is_file() {
        return Err(ReadError::NotRegular);
    }
    read_text(file).map_err(ReadError::Read)
}
