//! A cluster's folder: whether it may be ours, which version of knarr made it, and where the host remembers it.
//!
//! A folder with things of somebody else in it is never taken: `knarr reset` removes the whole folder.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use auth::pki::PkiError;
use nix::unistd::AccessFlags;
use runtime::images::folder::has_only_archives;

use crate::layout::Layout;

/// How things lie in the folder. Another number is another version's.
const FORMAT: &str = "1";
/// Of the folder: what is below is closed by whose it is.
const MODE: u32 = 0o711;
/// Which folders have things on this host: a file per cluster, named by its id, gone with the next boot as are
/// links, tables and cgroups.
const REGISTRY: &str = "/run/knarr";
/// Whoever forgets the last cluster of a host removes the folder, perhaps just when the next one is about to be written.
const REGISTER_ATTEMPTS_MAX: usize = 10;

/// Makes the folder ours: creates it, or finds it to be a cluster's of this version.
///
/// # Errors
/// If it cannot be written, is somebody else's, or another version's.
pub(crate) fn claim(layout: &Layout) -> Result<()> {
    let root = layout.root();
    let advice = "choose another with --data-dir";
    if let Err(error) = std::fs::create_dir_all(root) {
        bail!("cannot make the data directory {}: {}; {advice}", root.display(), plain(&error));
    }
    if let Err(error) = nix::unistd::access(root, AccessFlags::W_OK) {
        bail!("cannot write to the data directory {}: {}; {advice}", root.display(), plain(&error.into()));
    }
    if look(layout)? == State::New
        && let Err(error) =
            auth::pki::write_file(&layout.version(), format!("{FORMAT}\n").as_bytes(), 0o644)
        // Another part that is to share the folder may have been quicker.
        && look(layout)? != State::Ours
    {
        return Err(error.into());
    }
    close(root).with_context(|| format!("close {} to others", root.display()))
}

/// Who is not root may pass through, as the control plane's user must, and see no names. A folder of somebody else's, which
/// a part alone may be given, stays as it is.
fn close(root: &Path) -> std::io::Result<()> {
    let metadata = std::fs::metadata(root)?;
    let own = nix::unistd::geteuid().as_raw();
    if metadata.mode() & 0o7777 == MODE || (own != 0 && metadata.uid() != own) {
        return Ok(());
    }
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(MODE))
}

/// What a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Absent, or with nothing in it but images for the first start.
    New,
    /// A cluster's.
    Ours,
}

/// Looks without changing anything.
///
/// # Errors
/// If the folder can be no cluster's of ours.
pub(crate) fn look(layout: &Layout) -> Result<State> {
    let root = layout.root().display();
    match std::fs::read_to_string(layout.version()) {
        Ok(found) if found.trim() == FORMAT => return Ok(State::Ours),
        Ok(found) => bail!(
            "{root} was written by another version of knarr (data format {}, this one has {FORMAT}); use that version, \
             or choose another folder with --data-dir",
            found.trim().escape_debug()
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => bail!("cannot read {}: {}; choose another folder with --data-dir", root, plain(&error)),
    }
    if !layout.root().exists() {
        return Ok(State::New);
    }
    let is_for_us = |path: &Path| {
        path.ends_with("lost+found")
            || path.ends_with("version.new")
            // Images that are to be there at the first start.
            || (path == layout.images_folder() && has_only_archives(path).unwrap_or(false))
    };
    let mut others = std::fs::read_dir(layout.root())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| !is_for_us(path))
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect::<Vec<_>>();
    others.sort();
    match others.first() {
        None => Ok(State::New),
        // Another part has claimed it meanwhile.
        Some(_) if layout.version().exists() => look(layout),
        Some(first) => bail!(
            "{root} is not a cluster's folder (it has {first}); choose an empty or a new one with --data-dir"
        ),
    }
}

/// Has the host remember that this folder has links, tables and cgroups here.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn register(layout: &Layout) -> Result<()> {
    let path = Path::new(REGISTRY).join(layout.cluster_id());
    let write = || auth::pki::write_file(&path, layout.root().as_os_str().as_encoded_bytes(), 0o644);
    let mut written = write();
    for _ in 1..REGISTER_ATTEMPTS_MAX {
        if !matches!(&written, Err(PkiError::File { source, .. }) if source.kind() == ErrorKind::NotFound) {
            break;
        }
        written = write();
    }
    Ok(written?)
}

/// Takes that back.
///
/// # Errors
/// If it cannot be removed.
pub(crate) fn forget(layout: &Layout) -> Result<()> {
    let path = Path::new(REGISTRY).join(layout.cluster_id());
    if path.exists() {
        std::fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    match std::fs::remove_dir(REGISTRY) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error.into()),
        // Gone, or in use for other clusters.
        _ => Ok(()),
    }
}

/// Whether this host remembers the folder, be it there or not.
pub(crate) fn is_registered(layout: &Layout) -> bool {
    Path::new(REGISTRY).join(layout.cluster_id()).exists()
}

/// Folders that this host remembers and that are no longer there.
pub(crate) fn vanished() -> Vec<PathBuf> {
    registered().into_iter().filter(|folder| !folder.exists()).collect()
}

/// Folders that this host remembers.
pub(crate) fn registered() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(REGISTRY).into_iter().flatten().flatten();
    let folders = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).map(PathBuf::from);
    let mut folders: Vec<PathBuf> = folders.collect();
    folders.sort();
    folders
}

/// `Permission denied`, without the number.
pub(crate) fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
