//! The directories that layers are unpacked to, and what they take of the disk.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::unpack::Unpacked;
use super::{ImageError, ImageStore};

/// The space and inodes that something takes of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl ImageStore {
    /// Unpacked size of a layer, if it is there.
    pub(crate) fn layer_size(&self, digest: &str) -> Option<u64> {
        let dir = self.layer_dir(digest);
        let usage = read_usage(&dir.with_extension("size"))?;
        dir.exists().then_some(usage.bytes)
    }

    /// The usage of all layers, each counted once.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn usage(&self) -> Result<Usage, ImageError> {
        let mut sum = Usage::default();
        let entries = fs::read_dir(self.root().join("layers")).map_err(ImageError::io("list the layers"))?;
        for entry in entries {
            let path = entry.map_err(ImageError::io("list the layers"))?.path();
            let is_whole =
                path.extension().is_some_and(|it| it == "size") && path.with_extension("").exists();
            if let Some(usage) = is_whole.then(|| read_usage(&path)).flatten() {
                sum.bytes += usage.bytes;
                sum.inodes += usage.inodes;
            }
        }
        Ok(sum)
    }

    /// Keeps an unpacked directory, all of which is on disk, as the layer `digest`.
    pub(crate) fn adopt_layer(
        &self,
        unpacked: &Path,
        digest: &str,
        Unpacked { size_bytes, inodes, implied, .. }: &Unpacked,
    ) -> Result<(), ImageError> {
        let target = self.layer_dir(digest);
        let temporary = unpacked.with_extension("size");
        let implied =
            serde_json::to_string(implied).map_err(|e| ImageError::io("name directories")(e.into()))?;
        fs::write(&temporary, format!("{size_bytes} {inodes}\n{implied}"))
            .and_then(|()| fs::File::open(&temporary)?.sync_all())
            .and_then(|()| fs::rename(&temporary, target.with_extension("size")))
            .map_err(ImageError::io("keep a layer's size"))?;
        match fs::rename(unpacked, &target) {
            // Somebody else unpacked the same layer meanwhile.
            Err(_) if target.exists() => {
                sys::tree::remove(unpacked).map_err(ImageError::io("remove a spare layer"))
            }
            other => other.map_err(ImageError::io("keep a layer")),
        }
    }

    /// Directories that a layer has entries in but does not list, as paths from its root.
    pub(super) fn implied(&self, digest: &str) -> BTreeSet<PathBuf> {
        let text = fs::read_to_string(self.layer_dir(digest).with_extension("size")).unwrap_or_default();
        // Older stores do not have them.
        let implied = text.split_once('\n').and_then(|(_, implied)| serde_json::from_str(implied).ok());
        implied.unwrap_or_default()
    }

    /// Short, since an overlay's options have 4,096 bytes: half of the digest is plenty.
    pub(super) fn layer_dir(&self, digest: &str) -> PathBuf {
        self.root().join("layers").join(digest.get(..32).unwrap_or(digest))
    }

    pub(super) fn remove_layer(&self, digest: &str) -> Result<(), ImageError> {
        let dir = self.layer_dir(digest);
        for removed in [fs::remove_file(dir.with_extension("size")), sys::tree::remove(&dir)] {
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(ImageError::io("remove a layer")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Bytes, and the number of files on the first line, which older stores do not have.
fn read_usage(path: &Path) -> Option<Usage> {
    let text = fs::read_to_string(path).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    let bytes = numbers.next()?.ok()?;
    Some(Usage { bytes, inodes: numbers.next().and_then(Result::ok).unwrap_or_default() })
}
