//! Directories that a layer has entries in but does not list. They are as the layers below have them; without more they
//! would get root's owner and a mode of 0755, since layers are unpacked apart from each other. Where that matters an
//! image has one more layer, on top: those directories alone.
//!
//! Source: containerd's `mkparent` of `archive.Apply`, which copies owner, mode and attributes from the layers below.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use registry::digest::hex;
use sha2::{Digest, Sha256};

use super::unpack::{Unpacked, make_root};
use super::{ImageError, ImageStore};

/// How the names of such layers begin, which are no digests.
pub(crate) const PREFIX: &str = "parents-";

/// What a layer says about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    /// Whatever the layers below have there is gone.
    Hidden,
    Directory {
        /// What the layers below have there is gone, too.
        is_anew: bool,
    },
}

impl ImageStore {
    /// The layers with one more on top if they need it, which is made.
    ///
    /// To be called while [`ImageStore::work`] is held.
    pub(super) fn with_parents(&self, mut layers: Vec<String>) -> Result<Vec<String>, ImageError> {
        layers.retain(|layer| !layer.starts_with(PREFIX));
        let stack: Vec<Layer> = layers.iter().map(|layer| self.layer(layer)).collect();
        let mut wanted: BTreeMap<PathBuf, Option<PathBuf>> = BTreeMap::new();
        let listing = |path: &Path| listing(&stack, path).map_err(ImageError::io("look into a layer"));
        let implied: BTreeSet<&PathBuf> = stack.iter().flat_map(|layer| &layer.implied).collect();
        for path in implied {
            if let Some(Listing { source, is_hidden: true }) = listing(path)? {
                wanted.insert(path.clone(), Some(source));
            }
        }
        if wanted.is_empty() {
            return Ok(layers);
        }
        let ancestors: BTreeSet<PathBuf> =
            wanted.keys().flat_map(|path| path.ancestors().skip(1)).map(Path::to_owned).collect();
        for path in ancestors.into_iter().filter(|path| path != Path::new("")) {
            let listing = listing(&path)?;
            wanted.entry(path).or_insert(listing.map(|listing| listing.source));
        }
        let name = format!("{PREFIX}{}", hex(&Sha256::digest(layers.concat())));
        if self.layer_size(&name).is_none() {
            self.make_parents(&name, &wanted)?;
        }
        layers.push(name);
        Ok(layers)
    }

    fn layer(&self, digest: &str) -> Layer {
        Layer { dir: self.layer_dir(digest), implied: self.implied(digest) }
    }

    fn make_parents(
        &self,
        name: &str,
        wanted: &BTreeMap<PathBuf, Option<PathBuf>>,
    ) -> Result<(), ImageError> {
        let root = self.root().join("tmp").join(name);
        sys::tree::remove(&root).or_else(absent_is_fine).map_err(ImageError::io("remove a layer"))?;
        make_root(&root)?;
        for (path, source) in wanted {
            make(&root.join(path), source.as_deref()).map_err(ImageError::io("make a directory"))?;
        }
        let inodes = wanted.len() as u64;
        self.adopt_layer(&root, name, &Unpacked { inodes, ..Unpacked::default() })
    }
}

#[derive(Debug)]
struct Layer {
    dir: PathBuf,
    implied: BTreeSet<PathBuf>,
}

/// How a directory is.
struct Listing {
    /// The directory of the topmost layer that lists it.
    source: PathBuf,
    /// A layer above that has it, too, and only implies it.
    is_hidden: bool,
}

/// `None` if no layer lists `path` as a directory that is still there.
fn listing(stack: &[Layer], path: &Path) -> io::Result<Option<Listing>> {
    let mut is_hidden = false;
    for layer in stack.iter().rev() {
        match said(&layer.dir, path)? {
            Said::Nothing => {}
            Said::Hidden => return Ok(None),
            Said::Directory { .. } if !layer.implied.contains(path) => {
                return Ok(Some(Listing { source: layer.dir.join(path), is_hidden }));
            }
            Said::Directory { is_anew: true } => return Ok(None),
            Said::Directory { is_anew: false } => is_hidden = true,
        }
    }
    Ok(None)
}

fn said(layer: &Path, path: &Path) -> io::Result<Said> {
    let (mut at, mut is_anew, mut is_opaque) = (layer.to_owned(), false, false);
    for name in path.components() {
        at.push(name);
        is_anew = is_opaque;
        let metadata = match fs::symlink_metadata(&at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(if is_anew { Said::Hidden } else { Said::Nothing });
            }
            found => found?,
        };
        if !metadata.is_dir() {
            return Ok(Said::Hidden);
        }
        is_opaque |= sys::overlayfs::is_opaque(&at).map_err(io::Error::other)?;
    }
    Ok(Said::Directory { is_anew })
}

/// A directory with owner, mode, attributes and time of another; without one, as implied directories are.
fn make(path: &Path, source: Option<&Path>) -> io::Result<()> {
    fs::create_dir(path)?;
    let Some(source) = source else { return fs::set_permissions(path, fs::Permissions::from_mode(0o755)) };
    let metadata = fs::metadata(source)?;
    chown(path, Some(metadata.uid()), Some(metadata.gid()))?;
    for (name, value) in sys::overlayfs::attributes(source).map_err(io::Error::other)? {
        sys::overlayfs::set_attribute(path, &name, &value).map_err(io::Error::other)?;
    }
    fs::set_permissions(path, metadata.permissions())
}

fn absent_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
