//! A part of a volume as a mount of its own, safe against links that lead out of the volume.
//!
//! The path is opened by the kernel with links confined to the volume, and what was opened is bound to a place
//! of the kubelet's: a link that a container plants later changes nothing.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, fstatat, mkdirat};

/// Binds `volume/sub` to `target`; makes missing directories of `sub`.
pub(super) fn bind(volume: &Path, sub: &str, target: &Path) -> Result<(), String> {
    if sys::mount::is_mounted(target).unwrap_or(false) {
        return Ok(());
    }
    let opened = open_beneath(volume, sub).map_err(|e| format!("{sub}: {e}"))?;
    let is_dir = fstatat(&opened, "", AtFlags::AT_EMPTY_PATH)
        .is_ok_and(|stat| stat.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR);
    let text = |e: std::io::Error| e.to_string();
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(text)?;
    }
    if is_dir {
        fs::create_dir_all(target).map_err(text)?;
    } else if !target.exists() {
        fs::File::create(target).map_err(text)?;
    }
    let source = format!("/proc/self/fd/{}", opened.as_raw_fd());
    mount(Some(source.as_str()), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|e| format!("bind {sub}: {e}"))
}

/// What may be done with a new folder: as much as with the volume itself. Source: `doBindSubPath`, `pkg/volume/util/subpath`.
fn new_folder_mode(root: &OwnedFd) -> nix::Result<Mode> {
    let stat = fstatat(root, "", AtFlags::AT_EMPTY_PATH)?;
    Ok(Mode::from_bits_truncate(stat.st_mode & 0o7777))
}

fn open_beneath(volume: &Path, sub: &str) -> nix::Result<OwnedFd> {
    let root = open(volume, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    match openat2(&root, sub, how) {
        Ok(fd) => return Ok(fd),
        Err(nix::Error::ENOENT) => {}
        Err(error) => return Err(error),
    }
    let mode = new_folder_mode(&root)?;
    let mut current = root.try_clone().map_err(|_| nix::Error::EMFILE)?;
    for part in Path::new(sub).components() {
        let Component::Normal(name) = part else { return Err(nix::Error::EINVAL) };
        let is_new = match mkdirat(&current, name, mode) {
            Ok(()) => true,
            Err(nix::Error::EEXIST) => false,
            Err(error) => return Err(error),
        };
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        current = openat2(&current, name, how)?;
        if is_new {
            // The process's umask may have taken bits away.
            let path = format!("/proc/self/fd/{}", current.as_raw_fd());
            fchmodat(AT_FDCWD, path.as_str(), mode, FchmodatFlags::FollowSymlink)?;
        }
    }
    Ok(current)
}
