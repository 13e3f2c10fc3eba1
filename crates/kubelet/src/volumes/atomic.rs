//! Replaces all files of a volume at once: containers see the old set or the new one, never a mixture.
//!
//! `..data` is a symbolic link to a directory with a fresh name; each visible name is a link through `..data`.
//! Source: `pkg/volume/util/atomic_writer.go` of upstream for the layout that programs rely on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

/// One file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    /// Content.
    pub(crate) data: Vec<u8>,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Who it belongs to, if not to root.
    pub(crate) owner: Option<u32>,
}

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";
/// How the names of directories begin that hold a set of files; a number follows.
const SET: &str = "..v";

/// Makes `dir` hold exactly `files`, by relative path; also what an earlier call did not come to.
pub(super) fn write(dir: &Path, files: &BTreeMap<String, File>, fs_group: Option<i64>) -> io::Result<()> {
    let group = fs_group.and_then(|g| u32::try_from(g).ok());
    let old = fs::read_link(dir.join(DATA)).ok();
    give_folder(dir, group)?;
    remove_unfinished(dir, old.as_deref())?;
    if old.is_some() && is_same(&dir.join(DATA), files)? {
        return link_visible(dir, files);
    }
    let name = fresh_name(dir)?;
    let new = dir.join(&name);
    fs::create_dir(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    for (path, file) in files {
        write_file(&new, path, file, group)?;
    }
    give_folders(&new, group)?;
    let link = dir.join(DATA_NEW);
    if fs::symlink_metadata(&link).is_ok() {
        fs::remove_file(&link)?;
    }
    symlink(&name, &link)?;
    fs::rename(&link, dir.join(DATA))?;
    link_visible(dir, files)?;
    match old {
        Some(old) => fs::remove_dir_all(dir.join(old)),
        None => Ok(()),
    }
}

/// Directories of earlier calls that are not, or no longer, what `..data` leads to.
fn remove_unfinished(dir: &Path, current: Option<&Path>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_set = name.to_str().is_some_and(|name| name.starts_with(SET)) && entry.file_type()?.is_dir();
        if is_set && current != Some(Path::new(&name)) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn write_file(root: &Path, path: &str, file: &File, group: Option<u32>) -> io::Result<()> {
    let target = root.join(path);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&target, &file.data)?;
    // A group that shall read gets the owner's read bit, as upstream's volume ownership does.
    let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
    fs::set_permissions(&target, fs::Permissions::from_mode(mode))?;
    if group.is_some() || file.owner.is_some() {
        chown(&target, file.owner, group)?;
    }
    Ok(())
}

/// Gives the group a folder and all folders in it.
fn give_folders(folder: &Path, group: Option<u32>) -> io::Result<()> {
    give_folder(folder, group)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_folders(&entry.path(), group)?;
        }
    }
    Ok(())
}

/// Lets a group enter and list a folder, and have what is made in it. Source: `changeFilePermission` of upstream's
/// `pkg/volume`.
fn give_folder(folder: &Path, group: Option<u32>) -> io::Result<()> {
    let Some(group) = group else { return Ok(()) };
    chown(folder, None, Some(group))?;
    let mode = fs::metadata(folder)?.permissions().mode() & 0o7777;
    fs::set_permissions(folder, fs::Permissions::from_mode(mode | 0o2550))
}

/// A name that no directory in `dir` has.
fn fresh_name(dir: &Path) -> io::Result<String> {
    let mut highest = 0_u64;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|n| n.strip_prefix(SET)).and_then(|n| n.parse().ok());
        highest = highest.max(number.unwrap_or(0));
    }
    Ok(format!("{SET}{}", highest + 1))
}

fn is_same(data: &Path, files: &BTreeMap<String, File>) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    collect(data, "", &mut found)?;
    if found.len() != files.len() {
        return Ok(false);
    }
    for (path, file) in files {
        if !found.contains(path) || fs::read(data.join(path))? != file.data {
            return Ok(false);
        }
    }
    Ok(true)
}

fn collect(root: &Path, prefix: &str, found: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(prefix))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if entry.file_type()?.is_dir() {
            collect(root, &path, found)?;
        } else {
            found.insert(path);
        }
    }
    Ok(())
}

/// Links for the top-level names, and none for those that are gone.
fn link_visible(dir: &Path, files: &BTreeMap<String, File>) -> io::Result<()> {
    let wanted: BTreeSet<&str> = files.keys().filter_map(|path| path.split('/').next()).collect();
    for name in &wanted {
        if fs::symlink_metadata(dir.join(name)).is_err() {
            symlink(Path::new(DATA).join(name), dir.join(name))?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !wanted.contains(name.as_ref()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
