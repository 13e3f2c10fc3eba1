//! The volumes on disk: `volumes/<id>/` has `volume.json`, and `data/` or `disk.img`.
//!
//! A volume is made under another name and renamed when it is complete; it is renamed before it is taken apart. What a
//! crash has left of either is removed at the next start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use super::internal;
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
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Self { folder, turn: Mutex::new(()) })
    }

    /// Calls wait for each other.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
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
    pub(super) fn create(&self, id: &str, volume: &Volume) -> io::Result<()> {
        let new = self.folder.join(format!("{NEW}{id}"));
        if new.exists() {
            fs::remove_dir_all(&new)?;
        }
        fs::create_dir(&new)?;
        match volume.kind {
            Kind::Filesystem => {
                let data = new.join("data");
                fs::create_dir(&data)?;
                fs::set_permissions(&data, fs::Permissions::from_mode(0o777))?;
            }
            Kind::Block => resize(&new.join("disk.img"), volume.capacity_bytes)?,
        }
        write(&new.join("volume.json"), volume)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, self.folder.join(id))?;
        File::open(&self.folder)?.sync_all()
    }

    /// Writes down that the volume is larger, after it has become so.
    pub(super) fn grow(&self, id: &str, volume: &Volume) -> io::Result<()> {
        if volume.kind == Kind::Block {
            resize(&self.image(id), volume.capacity_bytes)?;
        }
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
        match fs::remove_dir_all(&gone) {
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

fn resize(image: &Path, bytes: i64) -> io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(image)?;
    let bytes = u64::try_from(bytes).unwrap_or(0);
    if file.metadata()?.len() < bytes {
        file.set_len(bytes)?;
    }
    fs::set_permissions(image, fs::Permissions::from_mode(0o600))?;
    file.sync_all()
}

fn write(path: &Path, volume: &Volume) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&serde_json::to_vec_pretty(volume)?)?;
    file.sync_all()
}
