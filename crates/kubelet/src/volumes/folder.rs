//! Folders and files that volumes are made of, and file systems of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use serde::Serialize;

use super::error::{VolumeError, at};

/// Sets permission bits, whatever the process's umask.
pub(super) fn set_mode(path: &Path, mode: u32) -> Result<(), VolumeError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(at("chmod", path))
}

/// Makes a folder if there is none.
pub(super) fn make_dir(path: &Path, mode: u32) -> Result<(), VolumeError> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(at("mkdir", path))?;
    set_mode(path, mode)
}

/// Mounts a new file system at `path`, unless something is mounted there.
pub(super) fn mount_new(
    path: &Path,
    fs_type: &str,
    flags: MsFlags,
    options: Option<&str>,
) -> Result<(), VolumeError> {
    if sys::mount::is_mounted(path)? {
        return Ok(());
    }
    let failed = |source| VolumeError::Mount { fs_type: fs_type.to_owned(), path: path.to_owned(), source };
    mount(Some(fs_type), path, Some(fs_type), flags, options).map_err(failed)
}

/// Writes a note in a folder, which is made if need be: all of it or nothing.
pub(super) fn write_note(folder: &Path, name: &str, note: &impl Serialize) -> Result<(), VolumeError> {
    let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
    let text = serde_json::to_vec(note).map_err(|error| at("write", &path)(error.into()))?;
    fs::create_dir_all(folder).map_err(at("mkdir", folder))?;
    fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(at("write", &path))
}

/// Unmounts everything below `path` and removes it. Blocking.
///
/// What is mounted belongs to someone else: nothing of it is removed.
///
/// # Errors
/// What could not be taken back.
pub(crate) fn tear_down(path: &Path) -> Result<(), VolumeError> {
    match sys::tree::remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at("remove", path)(error)),
        _ => Ok(()),
    }
}
