//! Images on disk: layers unpacked once each, and one index of what there is.
//!
//! A layer is a directory named after the digest of its uncompressed tar. Everything is made under a temporary
//! name and renamed when it is whole and on disk; the index, renamed last, names only what is there. A crash leaves
//! temporary files, which the next start removes.
//!
//! Several processes may have a store open (a node, and `knarr image import` beside it): whoever changes something
//! holds the lock file, and everybody reads the index again when it is another file than before. Who takes long to make
//! layers (a pull) does not hold it meanwhile, but marks the store as busy, so that nobody clears temporary files, and
//! the layers as wanted, so that this process does not collect them; before the image is added, all of them are looked
//! for once more.

pub mod builtin;
pub mod folder;
pub mod import;
pub mod pull;
pub mod unpack;

mod compression;
mod downloads;
mod layers;
pub(crate) mod parents;
mod sparse;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

/// An image's settings for its process. Source: OCI image configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    /// `user[:group]`, names or numbers.
    pub user: String,
    /// `NAME=value`.
    #[serde(deserialize_with = "null_is_empty")]
    pub env: Vec<String>,
    /// The command.
    #[serde(deserialize_with = "null_is_empty")]
    pub entrypoint: Vec<String>,
    /// Its default arguments.
    #[serde(deserialize_with = "null_is_empty")]
    pub cmd: Vec<String>,
    /// The working directory.
    pub working_dir: String,
    /// The signal by which it is asked to end.
    pub stop_signal: String,
    /// Paths of the container that are to lie outside of its root file system; the values say nothing.
    #[serde(deserialize_with = "null_is_empty")]
    pub volumes: BTreeMap<String, serde_json::Value>,
}

fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// One image in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// `sha256:` and the digest of its configuration.
    pub id: String,
    /// Full references, `registry/path:tag` and `registry/path@digest`.
    pub names: BTreeSet<String>,
    /// Those of the names that a registry has given, and not whoever imported the image.
    #[serde(default)]
    pub pulled: BTreeSet<String>,
    /// Digests of its layers' uncompressed tars, hexadecimal, lowest first. Above them one of our own, perhaps, with
    /// directories that they only imply.
    pub layers: Vec<String>,
    /// The settings of its process.
    pub config: ImageConfig,
    /// Unpacked size.
    pub size_bytes: u64,
    /// `true` if garbage collection leaves it alone.
    pub is_pinned: bool,
}

impl Image {
    /// Its first tag, else any name, else its id.
    pub fn tag_or_id(&self) -> String {
        let tag = self.names.iter().find(|name| !name.contains('@'));
        tag.or_else(|| self.names.first()).unwrap_or(&self.id).clone()
    }
}

/// The reason why an image could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// What was given is no image, or a broken one.
    #[error("invalid image: {0}")]
    Invalid(String),
    /// It is larger than what is accepted.
    #[error("the image is larger than {0} bytes")]
    TooLarge(u64),
    /// Layers that the image is made of have gone meanwhile.
    #[error("layers of the image have been removed meanwhile")]
    LayersGone,
    /// The host failed.
    #[error("cannot {doing}")]
    Io {
        /// What was attempted.
        doing: String,
        /// The reason.
        source: io::Error,
    },
}

impl ImageError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// What a reader of archives said.
pub(crate) fn broken(error: io::Error) -> ImageError {
    match is_about_header(&error) {
        // What follows would be the file's content.
        true => ImageError::Invalid("this is no tar archive, or it is damaged".to_owned()),
        false => ImageError::Invalid(format!("the archive cannot be read: {error}")),
    }
}

/// Whether a header of a tar archive has no number where one must be: the reader's errors differ in nothing but their texts.
fn is_about_header(error: &io::Error) -> bool {
    error.to_string().contains("numeric field")
}

/// An archive that cannot be taken.
pub(crate) fn invalid(message: &str) -> ImageError {
    ImageError::Invalid(message.to_owned())
}

impl From<sys::Error> for ImageError {
    fn from(error: sys::Error) -> Self {
        Self::Io { doing: "unpack a layer".into(), source: io::Error::other(error) }
    }
}

/// All images of a data directory.
#[derive(Debug)]
pub struct ImageStore {
    root: PathBuf,
    index: Mutex<Index>,
    /// Held while layers are added or removed, so that nobody relies on a layer that somebody removes.
    layers: Mutex<()>,
    /// Layers that pulls of this process rely on, and how many do.
    wanted: Mutex<BTreeMap<String, usize>>,
}

/// The index as it was last read or written.
#[derive(Debug, Default)]
struct Index {
    images: BTreeMap<String, Image>,
    file: Option<FileStamp>,
}

/// Tells one index file from the next: inode, length, time of change in seconds and nanoseconds.
type FileStamp = (u64, u64, i64, i64);

/// While this lives, nobody clears temporary files.
pub(crate) struct Busy(#[expect(dead_code, reason = "held")] Flock<fs::File>);

/// While this lives, these layers are not collected by this process.
pub(crate) struct Wanted<'a> {
    store: &'a ImageStore,
    layers: Vec<String>,
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        let mut wanted = self.store.wanted.lock();
        for layer in &self.layers {
            if let Some(count) = wanted.get_mut(layer) {
                *count -= 1;
            }
        }
        wanted.retain(|_, count| *count > 0);
    }
}

/// Who holds this is alone in changing the store, in this process and among all others.
pub(crate) struct Work<'a> {
    _here: MutexGuard<'a, ()>,
    _everywhere: Flock<fs::File>,
}

impl ImageStore {
    /// Opens the store below `root`, which is made if it is not there, and removes what a crash left.
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        for dir in ["layers", "tmp", downloads::DIR] {
            fs::create_dir_all(root.join(dir)).map_err(ImageError::io("create the image store"))?;
        }
        // Layers have set-uid files of anybody's making, which the host's users must not execute. Containers reach them
        // through mounts, also those with users of their own.
        fs::set_permissions(root, fs::Permissions::from_mode(0o700))
            .map_err(ImageError::io("close the image store"))?;
        let store = Self {
            root: root.to_owned(),
            index: Mutex::default(),
            layers: Mutex::default(),
            wanted: Mutex::default(),
        };
        *store.index.lock() = store.read_index()?;
        if let Some(_alone) = store.try_work()?
            && let Ok(_nobody_else) = Flock::lock(store.lock_file("busy")?, FlockArg::LockExclusiveNonblock)
        {
            store.clear_temporary()?;
        }
        Ok(store)
    }

    /// The index, read again if somebody else has written it.
    fn current(&self) -> MutexGuard<'_, Index> {
        let mut index = self.index.lock();
        if self.index_stamp() != index.file {
            match self.read_index() {
                Ok(newer) => *index = newer,
                Err(error) => tracing::warn!(%error, "the image index cannot be read again"),
            }
        }
        index
    }

    fn index_stamp(&self) -> Option<FileStamp> {
        use std::os::unix::fs::MetadataExt;
        let meta = fs::metadata(self.root.join("index.json")).ok()?;
        Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
    }

    fn read_index(&self) -> Result<Index, ImageError> {
        let file = self.index_stamp();
        let images: Vec<Image> = match fs::read(self.root.join("index.json")) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| ImageError::io("read the image index")(e.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(ImageError::io("read the image index")(error)),
        };
        Ok(Index { images: images.into_iter().map(|image| (image.id.clone(), image)).collect(), file })
    }

    /// The image that an id, an id's beginning (12 digits at least) or a name in any of its forms means.
    pub fn find(&self, name: &str) -> Option<Image> {
        let index = self.current();
        let images = &index.images;
        let digits = name.strip_prefix("sha256:").unwrap_or(name);
        if digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            let by_id = |image: &&Image| image.id.trim_start_matches("sha256:").starts_with(digits);
            if let Some(image) = images.values().find(by_id) {
                return Some(image.clone());
            }
        }
        let full = full_name(name)?;
        images.values().find(|image| image.names.contains(&full)).cloned()
    }

    /// Every image, by id.
    pub fn list(&self) -> Vec<Image> {
        self.current().images.values().cloned().collect()
    }

    /// The folders of an image's layers, topmost first, as an overlay wants them.
    pub fn lower_dirs(&self, image: &Image) -> Vec<PathBuf> {
        image.layers.iter().rev().map(|layer| self.layer_dir(layer)).collect()
    }

    /// Adds an image whose layers are there. Its names are taken from the images that had them.
    ///
    /// To be called while [`ImageStore::work`] is held.
    pub(crate) fn add(&self, mut image: Image) -> Result<Image, ImageError> {
        image.layers = self.with_parents(image.layers)?;
        let mut index = self.current();
        let mut changed = index.images.clone();
        for other in changed.values_mut() {
            if other.id != image.id {
                other.names.retain(|name| !image.names.contains(name));
                other.pulled.retain(|name| !image.names.contains(name));
            }
        }
        if let Some(known) = changed.get(&image.id) {
            // A name is as its last giver has given it.
            let older = known.pulled.difference(&image.names).cloned();
            image.pulled.extend(older);
            image.names.extend(known.names.iter().cloned());
            image.is_pinned |= known.is_pinned;
        }
        changed.insert(image.id.clone(), image.clone());
        self.write_index(&mut index, changed)?;
        Ok(image)
    }

    /// Removes a name, or the image if it is given by id or that was its last name; layers that nobody needs go too.
    /// No error if it is not there. Layers `in_use` stay; [`ImageStore::collect`] removes them later.
    pub fn remove(&self, name: &str, in_use: &BTreeSet<String>) -> Result<(), ImageError> {
        let _alone = self.work()?;
        let Some(image) = self.find(name) else { return Ok(()) };
        let mut index = self.current();
        let mut changed = index.images.clone();
        let full = full_name(name).filter(|full| image.names.contains(full));
        let is_last = match (&full, changed.get_mut(&image.id)) {
            (Some(full), Some(known)) => {
                forget_name(&mut known.names, full);
                known.names.is_empty()
            }
            _ => true,
        };
        if is_last {
            changed.remove(&image.id);
        }
        self.write_index(&mut index, changed)?;
        let wanted = self.wanted.lock();
        let is_needed = |layer: &String| {
            in_use.contains(layer)
                || wanted.contains_key(layer)
                || index.images.values().any(|it| it.layers.contains(layer))
        };
        image.layers.iter().filter(|layer| !is_needed(layer)).try_for_each(|layer| self.remove_layer(layer))
    }

    /// Removes layers that no image and nobody else (`in_use`) needs, unless layers are being worked on.
    pub fn collect(&self, in_use: &BTreeSet<String>) -> Result<(), ImageError> {
        let Some(_alone) = self.try_work()? else { return Ok(()) };
        let index = self.current();
        let wanted = self.wanted.lock();
        let needed: BTreeSet<PathBuf> = index
            .images
            .values()
            .flat_map(|image| &image.layers)
            .chain(in_use)
            .chain(wanted.keys())
            .map(|layer| self.layer_dir(layer))
            .collect();
        drop((index, wanted));
        let entries = fs::read_dir(self.root.join("layers")).map_err(ImageError::io("list the layers"))?;
        for entry in entries {
            let path = entry.map_err(ImageError::io("list the layers"))?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if !needed.contains(&path.with_extension("")) {
                self.remove_layer(&name)?;
            }
        }
        Ok(())
    }

    /// Keeps others from adding and removing images and layers; waits for those who do.
    pub(crate) fn work(&self) -> Result<Work<'_>, ImageError> {
        let here = self.layers.lock();
        let file = self.lock_file("lock")?;
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(everywhere) => Ok(Work { _here: here, _everywhere: everywhere }),
            Err((_, error)) => Err(ImageError::io("lock the image store")(error.into())),
        }
    }

    /// As [`ImageStore::work`]; `None` if somebody else is at work.
    fn try_work(&self) -> Result<Option<Work<'_>>, ImageError> {
        let Some(here) = self.layers.try_lock() else { return Ok(None) };
        match Flock::lock(self.lock_file("lock")?, FlockArg::LockExclusiveNonblock) {
            Ok(everywhere) => Ok(Some(Work { _here: here, _everywhere: everywhere })),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(ImageError::io("lock the image store")(error.into())),
        }
    }

    /// Marks the store as busy with something that takes long. Blocks while somebody clears it.
    pub(crate) fn busy(&self) -> Result<Busy, ImageError> {
        match Flock::lock(self.lock_file("busy")?, FlockArg::LockShared) {
            Ok(lock) => Ok(Busy(lock)),
            Err((_, error)) => Err(ImageError::io("lock the image store")(error.into())),
        }
    }

    /// Keeps these layers, also those that are not there yet.
    pub(crate) fn want(&self, layers: &[String]) -> Wanted<'_> {
        let mut wanted = self.wanted.lock();
        for layer in layers {
            *wanted.entry(layer.clone()).or_default() += 1;
        }
        Wanted { store: self, layers: layers.to_vec() }
    }

    /// As [`ImageStore::add`], for layers that were not watched over all the time.
    pub(crate) fn add_if_whole(&self, image: Image) -> Result<Image, ImageError> {
        let _alone = self.work()?;
        if image.layers.iter().any(|layer| self.layer_size(layer).is_none()) {
            return Err(ImageError::LayersGone);
        }
        self.add(image)
    }

    fn lock_file(&self, name: &str) -> Result<fs::File, ImageError> {
        let path = self.root.join(name);
        let file = fs::File::options().create(true).truncate(false).write(true).open(path);
        file.map_err(ImageError::io("open the image store's lock"))
    }

    /// The directory of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A fresh path for something that is not whole yet.
    pub fn temporary(&self, random: &base::Random) -> PathBuf {
        self.root.join("tmp").join(random.uuid())
    }

    fn clear_temporary(&self) -> Result<(), ImageError> {
        let dir = self.root.join("tmp");
        let cleared = sys::tree::remove(&dir).and_then(|()| fs::create_dir(&dir));
        cleared.map_err(ImageError::io("clear temporary files"))
    }

    fn write_index(&self, index: &mut Index, images: BTreeMap<String, Image>) -> Result<(), ImageError> {
        let list: Vec<&Image> = images.values().collect();
        let write = || {
            let bytes = serde_json::to_vec(&list)?;
            let temporary = self.root.join("index.json.new");
            fs::write(&temporary, bytes)?;
            fs::File::open(&temporary)?.sync_all()?;
            fs::rename(&temporary, self.root.join("index.json"))?;
            fs::File::open(&self.root)?.sync_all()
        };
        write().map_err(ImageError::io("write the image index"))?;
        *index = Index { images, file: self.index_stamp() };
        Ok(())
    }
}

/// A name in its full form; `None` if it is no reference.
pub fn full_name(name: &str) -> Option<String> {
    name.parse().ok().map(|reference: registry::Reference| reference.to_string())
}

/// Takes a name away; with the last tag of a repository go its digests, which were never asked for by themselves.
fn forget_name(names: &mut BTreeSet<String>, name: &str) {
    names.remove(name);
    let parsed: Option<registry::Reference> = name.parse().ok();
    let Some(repository) = parsed.filter(|it| it.digest.is_none()).map(|it| it.name()) else { return };
    let (tag, digest) = (format!("{repository}:"), format!("{repository}@"));
    if !names.iter().any(|other| other.starts_with(&tag)) {
        names.retain(|other| !other.starts_with(&digest));
    }
}

#[cfg(test)]
mod tests;
