//! The control plane's folder, which belongs to its unprivileged user.
//!
//! Root follows no path in it: whatever took over the control plane may have put links there, so that root would give,
//! read or overwrite files of the host. What root has to do there it does with the control plane's own rights
//! ([`as_control_plane`]), and what an administrator has put there is given away by descriptor, name by name.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::fchownat;

use super::users::{CONTROL_PLANE_GID, CONTROL_PLANE_UID};
use crate::layout::Layout;

/// How deep the control plane's own files lie at most; what is deeper is not given away.
const DEPTH_MAX: usize = 8;
/// Keys are for nobody else.
pub(super) const SECRET_MODE: u32 = 0o600;

/// Does something with files in the control plane's folder, as its user.
///
/// # Errors
/// Those of the work; if it cannot be done as that user.
pub(crate) fn as_control_plane<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    sys::as_user::as_user(CONTROL_PLANE_UID, CONTROL_PLANE_GID, work)?
}

/// Makes the control plane's folder, for its user alone, and gives him what root has put there.
///
/// # Errors
/// If it cannot be made, is something else, or somebody else's; if its user cannot get there.
pub(crate) fn prepare(layout: &Layout) -> Result<()> {
    let path = layout.server();
    match std::fs::create_dir(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => std::fs::create_dir_all(&path),
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
    .with_context(|| format!("create {}", path.display()))?;
    let folder = open_folder(&path)?;
    let owner = folder.metadata()?.uid();
    if owner != 0 && owner != CONTROL_PLANE_UID {
        bail!("{} belongs to user {owner}, neither to root nor to the control plane", path.display());
    }
    if owner == 0 {
        std::os::unix::fs::fchown(&folder, Some(CONTROL_PLANE_UID), Some(CONTROL_PLANE_GID))
            .with_context(|| format!("hand over {}", path.display()))?;
    }
    folder.set_permissions(std::fs::Permissions::from_mode(0o700))?;
    take_in(folder.into(), 0).with_context(|| format!("hand over {}", path.display()))?;
    reachable(&path)
}

/// Gives the control plane's user what root has put into his folder since.
///
/// # Errors
/// If something there cannot be looked at.
pub(super) fn take_in_new(layout: &Layout) -> Result<()> {
    let path = layout.server();
    take_in(open_folder(&path)?.into(), 0).with_context(|| format!("hand over {}", path.display()))
}

fn open_folder(path: &Path) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
    opened.with_context(|| format!("open {}", path.display()))
}

/// Gives away what is in a folder and is root's. A file that has another name is left alone: it may be one of the
/// host's. So are links, devices, pipes and sockets.
fn take_in(folder: OwnedFd, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Ok(());
    }
    let entries = std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
    let names: Vec<OsString> = entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<_>>()?;
    for name in &names {
        // It is this one from here on, whatever becomes of the name; and nothing waits for a pipe's other end.
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let found = match openat(&folder, name.as_os_str(), flags, Mode::empty()) {
            Err(Errno::ENOENT) => continue,
            other => File::from(other?),
        };
        let is = found.metadata()?;
        if is_given(&is) {
            let (uid, gid) = (CONTROL_PLANE_UID.into(), CONTROL_PLANE_GID.into());
            fchownat(&found, c"", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH)?;
        }
        if is.is_dir() {
            // Of a descriptor, so no link is followed.
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            take_in(openat(&found, c".", flags, Mode::empty())?, depth + 1)?;
        }
    }
    Ok(())
}

/// Whether something in the control plane's folder is root's to give.
fn is_given(is: &Metadata) -> bool {
    let is_only_here = is.is_dir() || (is.is_file() && is.nlink() == 1);
    let is_plain = is.permissions().mode() & 0o6000 == 0;
    is.uid() == 0 && is_only_here && is_plain
}

/// Whether the control plane's user can get to his folder; says which one stops him.
fn reachable(path: &Path) -> Result<()> {
    let closed = as_control_plane(|| {
        let ways: Vec<&Path> = path.ancestors().collect();
        let closed = ways.into_iter().rev().find(|way| {
            let entered = std::fs::metadata(way.join("."));
            entered.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
        });
        Ok(closed.map(Path::to_owned))
    })?;
    let Some(closed) = closed else { return Ok(()) };
    let mode = std::fs::metadata(&closed).map_or(0, |is| is.permissions().mode() & 0o7777);
    let closed = closed.display();
    bail!(
        "the control plane does not run as root, and its user {CONTROL_PLANE_UID} may not enter {closed} (mode {mode:04o}): \
         allow it with `chmod o+x {closed}`, or choose another --data-dir"
    )
}

/// Writes a file of the control plane's, at once and whole.
pub(super) fn write_secret(text: &[u8], path: &Path) -> Result<()> {
    as_control_plane(|| Ok(auth::pki::write_file(path, text, SECRET_MODE)?))
}

#[cfg(test)]
mod tests;
