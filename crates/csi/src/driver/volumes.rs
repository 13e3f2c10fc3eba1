//! The volumes on disk: `volumes/<id>/` has `volume.json`, and `data/` or `disk.img`.
//!
//! A volume is made under another name and renamed when it is complete; it is renamed before it is taken apart. What a
//! crash has left of either is removed at the next start. Making one may take as long as copying another: it holds up
//! nobody else, and who asks for the same one meanwhile is told so.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use super::images;
use super::internal;
use super::options::{Allocation, Backing};
use crate::Status;

/// The longest id: a folder's name has to hold it with a prefix.
const ID_BYTES_MAX: usize = 128;
const NEW: &str = ".new-";
const GONE: &str = ".gone-";

/// What is written down of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) capacity_bytes: i64,
    pub(super) kind: Kind,
    /// It goes with the Pod that it was made for. Source: KEP-596.
    #[serde(default)]
    pub(super) is_ephemeral: bool,
    #[serde(default)]
    pub(super) backing: Backing,
    #[serde(default)]
    pub(super) allocation: Allocation,
    /// Of the file system in an image.
    #[serde(default)]
    pub(super) fs_type: String,
    /// How large that file system is: the image may have grown since.
    #[serde(default)]
    pub(super) fs_bytes: i64,
    /// It has been mounted: its root's mode is whoever uses it to choose.
    #[serde(default)]
    pub(super) is_used: bool,
}

impl Volume {
    /// Whether it is a file, which has a size, rather than a directory.
    pub(super) fn has_image(&self) -> bool {
        self.kind == Kind::Block || self.backing == Backing::Image
    }
}

/// What a volume is a copy of.
pub(super) enum Content<'a> {
    Nothing,
    CopyOf(&'a str),
}

/// How a volume is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// A folder.
    Filesystem,
    /// A file behind a loop device.
    Block,
}

/// All volumes of the node.
pub(super) struct Volumes {
    folder: PathBuf,
    turn: Mutex<()>,
    making: Mutex<BTreeSet<String>>,
}

/// While it lives, nobody else makes or removes the volume.
pub(super) struct Making<'a> {
    all: &'a Mutex<BTreeSet<String>>,
    id: String,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

impl Volumes {
    /// Opens the folder and removes what a crash has left.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let folder = folder.join("volumes");
        fs::create_dir_all(&folder)?;
        if let Some(parent) = folder.parent() {
            // Folders of volumes may be open to all users: nobody but root reaches them from here.
            fs::set_permissions(parent, fs::Permissions::from_mode(0o700))?;
        }
        let folder = folder.canonicalize()?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(NEW) || name.starts_with(GONE) {
                sys::tree::remove(&entry.path())?;
            }
        }
        Ok(Self { folder, turn: Mutex::new(()), making: Mutex::default() })
    }

    /// Calls wait for each other.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Lets one at a time make or remove the volume.
    pub(super) fn begin(&self, id: &str) -> Result<Making<'_>, Status> {
        match self.making.lock().insert(id.to_owned()) {
            true => Ok(Making { all: &self.making, id: id.to_owned() }),
            false => Err(Status::aborted(format!("volume {id} is being made or removed"))),
        }
    }

    /// The folder that all volumes share.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of a volume's files.
    pub(super) fn data(&self, id: &str) -> PathBuf {
        self.folder.join(id).join("data")
    }

    /// A raw block volume's file.
    pub(super) fn image(&self, id: &str) -> PathBuf {
        self.folder.join(id).join("disk.img")
    }

    /// What is written down of the volume.
    pub(super) fn get(&self, id: &str) -> Result<Option<Volume>, Status> {
        if !is_id(id) {
            return Ok(None);
        }
        match fs::read(self.folder.join(id).join("volume.json")) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(internal),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(internal(error)),
        }
    }

    /// The volume, or that it is not there.
    pub(super) fn find(&self, id: &str) -> Result<Volume, Status> {
        self.get(id)?.ok_or_else(|| Status::not_found(format!("volume {id} does not exist on this node")))
    }

    /// Every volume, by id.
    pub(super) fn list(&self) -> Result<Vec<(String, Volume)>, Status> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(internal)? {
            let id = entry.map_err(internal)?.file_name().to_string_lossy().into_owned();
            if let Some(volume) = self.get(&id)? {
                all.push((id, volume));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// Makes a volume that is not there.
    pub(super) fn create(&self, id: &str, volume: &Volume, content: &Content<'_>) -> io::Result<()> {
        let new = self.folder.join(format!("{NEW}{id}"));
        if new.exists() {
            sys::tree::remove(&new)?;
        }
        fs::create_dir(&new)?;
        let filled = self.fill(&new, volume, content);
        if filled.is_err() {
            sys::tree::remove(&new)?;
        }
        filled?;
        write(&new.join("volume.json"), volume)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, self.folder.join(id))?;
        File::open(&self.folder)?.sync_all()
    }

    fn fill(&self, new: &Path, volume: &Volume, content: &Content<'_>) -> io::Result<()> {
        if !volume.has_image() {
            let data = new.join("data");
            fs::create_dir(&data)?;
            fs::set_permissions(&data, fs::Permissions::from_mode(0o777))?;
            return match content {
                Content::Nothing => Ok(()),
                Content::CopyOf(id) => images::copy(&self.data(id), &data),
            };
        }
        let image = new.join("disk.img");
        if let Content::CopyOf(id) = content {
            images::copy(&self.image(id), &image)?;
            return images::resize(&image, volume.capacity_bytes, volume.allocation);
        }
        images::resize(&image, volume.capacity_bytes, volume.allocation)?;
        match volume.kind {
            Kind::Block => Ok(()),
            Kind::Filesystem => images::format(&image, &volume.fs_type),
        }
    }

    /// Writes down that the volume is larger, or otherwise not what it was, after it has become so.
    pub(super) fn change(&self, id: &str, volume: &Volume) -> io::Result<()> {
        if volume.has_image() {
            images::resize(&self.image(id), volume.capacity_bytes, volume.allocation)?;
        }
        self.note(id, volume)
    }

    /// Writes down what is known of the volume.
    pub(super) fn note(&self, id: &str, volume: &Volume) -> io::Result<()> {
        let folder = self.folder.join(id);
        write(&folder.join("volume.json.new"), volume)?;
        fs::rename(folder.join("volume.json.new"), folder.join("volume.json"))?;
        File::open(&folder)?.sync_all()
    }

    /// Removes a volume; no error if there is none.
    pub(super) fn delete(&self, id: &str) -> io::Result<()> {
        if !is_id(id) {
            return Ok(());
        }
        let gone = self.folder.join(format!("{GONE}{id}"));
        match fs::rename(self.folder.join(id), &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
        match sys::tree::remove(&gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

/// Whether a text can be a volume's id, which is a folder's name.
pub(super) fn is_id(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= ID_BYTES_MAX && !text.starts_with('.') && text.chars().all(is_plain)
}

fn write(path: &Path, volume: &Volume) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&serde_json::to_vec_pretty(volume)?)?;
    file.sync_all()
}
