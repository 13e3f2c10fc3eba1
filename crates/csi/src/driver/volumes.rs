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

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str) -> Volume {
        Volume {
            name: name.to_owned(),
            capacity_bytes: 5,
            kind: Kind::Filesystem,
            is_ephemeral: false,
            backing: Backing::Directory,
            allocation: Allocation::Thin,
            fs_type: String::new(),
            fs_bytes: 0,
            is_used: false,
        }
    }

    #[test]
    fn an_id_is_the_name_of_a_folder_and_of_no_other() {
        let (long, longer) = ("a".repeat(ID_BYTES_MAX), "a".repeat(ID_BYTES_MAX + 1));
        for (id, expect) in [
            ("pvc-1", true),
            ("A_b.c-9", true),
            (&*long, true),
            (&*longer, false),
            ("", false),
            (".", false),
            ("..", false),
            (".new-a", false),
            ("a/b", false),
            ("../a", false),
            ("/a", false),
            ("a\0", false),
            ("a b", false),
            ("a\n", false),
            ("\u{e9}", false),
        ] {
            assert_eq!(is_id(id), expect, "{id:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let volumes = Volumes::open(folder.path()).unwrap();
        fs::write(folder.path().join("volume.json"), serde_json::to_vec(&volume("outside")).unwrap())
            .unwrap();
        assert_eq!(volumes.get("..").unwrap(), None);
        volumes.delete("..").unwrap();
        assert!(folder.path().join("volume.json").exists() && volumes.folder().exists());
        let missing = volumes.find("../x").unwrap_err();
        assert_eq!(missing.message(), "volume ../x does not exist on this node");
    }

    #[test]
    fn what_a_crash_has_left_is_removed_and_what_is_whole_stays() {
        let folder = tempfile::tempdir().unwrap();
        let volumes = Volumes::open(folder.path()).unwrap();
        volumes.create("whole", &volume("whole"), &Content::Nothing).unwrap();
        for left in [".new-half", ".gone-half"] {
            fs::create_dir_all(volumes.folder().join(left).join("data/deep")).unwrap();
            fs::write(volumes.folder().join(left).join("data/deep/file"), "x").unwrap();
        }
        fs::write(volumes.folder().join("whole/volume.json.new"), "{\"name\": ").unwrap();
        let volumes = Volumes::open(folder.path()).unwrap();
        let names: Vec<_> =
            fs::read_dir(volumes.folder()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, ["whole"]);
        assert_eq!(volumes.list().unwrap(), [("whole".to_owned(), volume("whole"))]);
        let larger = Volume { capacity_bytes: 9, ..volume("whole") };
        volumes.note("whole", &larger).unwrap();
        assert_eq!(volumes.find("whole").unwrap(), larger);
        // A volume that is made over what an earlier try has left is a new one.
        fs::create_dir_all(volumes.folder().join(".new-next/data")).unwrap();
        fs::write(volumes.folder().join(".new-next/data/old"), "x").unwrap();
        volumes.create("next", &volume("next"), &Content::Nothing).unwrap();
        assert_eq!(fs::read_dir(volumes.data("next")).unwrap().count(), 0);
        for _ in 0..2 {
            volumes.delete("next").unwrap();
        }
        assert_eq!(volumes.get("next").unwrap(), None);
    }

    #[test]
    fn notes_of_older_versions_are_read_and_torn_ones_are_no_volume() {
        let folder = tempfile::tempdir().unwrap();
        let volumes = Volumes::open(folder.path()).unwrap();
        let note = |text: &str| {
            fs::create_dir_all(volumes.folder().join("v")).unwrap();
            fs::write(volumes.folder().join("v/volume.json"), text).unwrap();
            volumes.get("v")
        };
        let old = r#"{"name": "a", "capacityBytes": 5, "kind": "Filesystem"}"#;
        assert_eq!(note(old).unwrap(), Some(volume("a")));
        assert!(note(r#"{"name": "a", "capacityBytes": 5, "kind": "Filesystem", "later": 1}"#).is_ok());
        for torn in
            ["", "{", &old[..old.len() - 1], "null", "[]", "\0\0\0\0", r#"{"name": "a", "kind": "Tape"}"#]
        {
            let error = note(torn).unwrap_err();
            assert_eq!(error.code(), tonic::Code::Internal, "{torn:?}");
        }
    }

    #[test]
    fn one_at_a_time_makes_a_volume() {
        let folder = tempfile::tempdir().unwrap();
        let volumes = Volumes::open(folder.path()).unwrap();
        let making = volumes.begin("a").unwrap();
        let refused = volumes.begin("a").err().unwrap();
        assert_eq!(
            (refused.code(), refused.message()),
            (tonic::Code::Aborted, "volume a is being made or removed")
        );
        assert!(volumes.begin("b").is_ok(), "another is nobody's business");
        drop(making);
        assert!(volumes.begin("a").is_ok());
    }
}
