//! A part of a volume as a mount of its own, safe against links that lead out of the volume.
//!
//! Where links lead is looked up first, and what lies outside of the volume is refused; what was found is then opened
//! without following any link, and bound to a place of the kubelet's: a link that a container plants meanwhile, or
//! later, changes nothing. Source: `pkg/volume/util/subpath`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::libc::{S_IFDIR, S_IFMT};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmodat, fstatat, mkdirat};

/// Why there is no such part. What it was is for the log: it may tell of the host's files.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// It was not there, and was not made.
    #[error("make")]
    Make(#[source] io::Error),
    /// It is there, and was not bound.
    #[error("bind")]
    Bind(#[source] io::Error),
}

/// What could not be below a volume, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum Outside {
    #[error("error SubPath `{0}` must not be an absolute path")]
    Absolute(String),
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    Up(String),
}

/// Refuses what could not be below a volume.
pub(super) fn check(sub: &str) -> Result<(), Outside> {
    if sub.starts_with('/') {
        return Err(Outside::Absolute(sub.to_owned()));
    }
    if sub.split('/').any(|part| part == "..") {
        return Err(Outside::Up(sub.to_owned()));
    }
    Ok(())
}

/// Binds `volume/sub` to `target`; makes missing directories of `sub`. What was bound there before stays only if it is the
/// same: files of a ConfigMap are others after a change.
pub(super) fn bind(volume: &Path, sub: &str, target: &Path) -> Result<(), Error> {
    let opened = open_beneath(volume, sub)?;
    bind_opened(&opened, target).map_err(Error::Bind)
}

fn bind_opened(opened: &OwnedFd, target: &Path) -> io::Result<()> {
    let stat = stat(opened)?;
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(Errno::EINVAL.into());
    };
    fs::create_dir_all(parent)?;
    // As the kernel lists it.
    let target = &parent.canonicalize()?.join(name);
    let other = |error: sys::Error| io::Error::other(error.to_string());
    while sys::mount::is_mounted(target).map_err(other)? {
        let bound = fs::symlink_metadata(target);
        if bound.is_ok_and(|bound| (bound.dev(), bound.ino()) == (stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        sys::mount::detach(target).map_err(other)?;
    }
    make_target(target, stat.st_mode & S_IFMT == S_IFDIR)?;
    let source = format!("/proc/self/fd/{}", opened.as_raw_fd());
    Ok(mount(Some(source.as_str()), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}

/// A file or an empty folder to be covered, whichever it takes.
fn make_target(target: &Path, is_dir: bool) -> io::Result<()> {
    match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() == is_dir => return Ok(()),
        Ok(found) if found.is_dir() => fs::remove_dir(target)?,
        Ok(_) => fs::remove_file(target)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if is_dir { fs::create_dir(target) } else { fs::File::create(target).map(drop) }
}

fn stat(file: &OwnedFd) -> nix::Result<FileStat> {
    fstatat(file, "", AtFlags::AT_EMPTY_PATH)
}

/// What may be done with a new folder: as much as with the volume itself. Source: `doBindSubPath`, `pkg/volume/util/subpath`.
fn new_folder_mode(root: &OwnedFd) -> nix::Result<Mode> {
    Ok(Mode::from_bits_truncate(stat(root)?.st_mode & 0o7777))
}

/// Opens `volume/sub`. As much of it as is there may go through links, as long as they stay in the volume.
fn open_beneath(volume: &Path, sub: &str) -> Result<OwnedFd, Error> {
    let volume = volume.canonicalize().map_err(Error::Bind)?;
    let (mut existing, mut missing) = (volume.join(sub), Vec::<OsString>::new());
    let found = loop {
        match existing.canonicalize() {
            Ok(found) => break found,
            Err(error) if error.kind() == io::ErrorKind::NotFound && existing != volume => {
                missing.extend(existing.file_name().map(OsString::from));
                existing.pop();
            }
            Err(error) => return Err(Error::Bind(error)),
        }
    };
    let is_there = missing.is_empty();
    let failed = |error: Errno| if is_there { Error::Bind(error.into()) } else { Error::Make(error.into()) };
    let inside = found.strip_prefix(&volume).map_err(|_| failed(Errno::EXDEV))?;
    let root = open(&volume, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
    let root = root.map_err(failed)?;
    let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
    let mut current = step(&root, inside).map_err(failed)?;
    let mode = new_folder_mode(&root).map_err(failed)?;
    for name in missing.iter().rev() {
        current = make_folder(&current, Path::new(name), mode).map_err(failed)?;
    }
    Ok(current)
}

/// Opens what is below, and follows no link on the way.
fn step(folder: &OwnedFd, path: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(folder, path, how)
}

fn make_folder(parent: &OwnedFd, name: &Path, mode: Mode) -> nix::Result<OwnedFd> {
    if !matches!(name.components().next(), Some(Component::Normal(_))) {
        return Err(Errno::EINVAL);
    }
    let is_new = match mkdirat(parent, name, mode) {
        Ok(()) => true,
        Err(Errno::EEXIST) => false,
        Err(error) => return Err(error),
    };
    let made = step(parent, name)?;
    if is_new {
        // The process's umask may have taken bits away.
        let path = format!("/proc/self/fd/{}", made.as_raw_fd());
        fchmodat(AT_FDCWD, path.as_str(), mode, FchmodatFlags::FollowSymlink)?;
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// What is at the target afterwards, or at which step it failed.
    fn bound(dir: &Path, sub: &str) -> Result<String, String> {
        let target = dir.join("bound").join(sub.replace('/', "-"));
        bind(&dir.join("volume"), sub, &target).map_err(|error| error.to_string())?;
        let text = if target.is_dir() { "a folder".to_owned() } else { fs::read_to_string(&target).unwrap() };
        sys::mount::detach(&target.canonicalize().unwrap()).unwrap();
        Ok(text)
    }

    #[test]
    fn links_lead_anywhere_in_the_volume_and_nowhere_else() {
        assert!(nix::unistd::geteuid().is_root(), "this test mounts: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let (dir, volume) = (dir.path(), dir.path().join("volume"));
        fs::create_dir_all(volume.join("deep/down")).unwrap();
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o2775)).unwrap();
        for (path, text) in [("outside", "not yours"), ("volume/file", "mine"), ("volume/deep/file", "deep")]
        {
            fs::write(dir.join(path), text).unwrap();
        }
        for (name, to) in [
            ("inside", Path::new("deep/file")),
            ("absolute", &volume.join("file")),
            ("up", Path::new("..")),
            ("out", Path::new("../outside")),
            ("root", Path::new("/")),
            ("folder", Path::new("deep")),
            ("nowhere", Path::new("gone")),
        ] {
            symlink(to, volume.join(name)).unwrap();
        }
        symlink("../../file", volume.join("deep/down/back")).unwrap();
        for (sub, expect) in [
            ("file", Ok("mine")),
            ("inside", Ok("deep")),
            ("absolute", Ok("mine")),
            ("deep/down/back", Ok("mine")),
            ("new/one", Ok("a folder")),
            ("folder/new", Ok("a folder")),
            ("up", Err("bind")),
            ("out", Err("bind")),
            ("root/etc", Err("bind")),
            ("root/not-there-at-all", Err("make")),
            ("nowhere", Err("make")),
            ("file/below", Err("bind")),
        ] {
            let expect = expect.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(bound(dir, sub), expect, "{sub}");
        }
        assert_eq!(fs::metadata(volume.join("deep/new")).unwrap().mode() & 0o7777, 0o2775);
    }

    #[test]
    fn what_is_bound_is_what_is_there_now() {
        assert!(nix::unistd::geteuid().is_root(), "this test mounts: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (volume, target) = (root.join("volume"), root.join("bound/0"));
        fs::create_dir(&volume).unwrap();
        let mounts = || sys::mount::mounts().unwrap().iter().filter(|mount| mount.target == target).count();
        fs::write(volume.join("key"), "old").unwrap();
        bind(&volume, "key", &target).unwrap();
        bind(&volume, "key", &target).unwrap();
        assert_eq!((fs::read_to_string(&target).unwrap().as_str(), mounts()), ("old", 1));
        // As an update does it: the new one comes, and the old one is unlinked.
        fs::write(volume.join("new"), "new").unwrap();
        fs::rename(volume.join("new"), volume.join("key")).unwrap();
        bind(&volume, "key", &target).unwrap();
        assert_eq!((fs::read_to_string(&target).unwrap().as_str(), mounts()), ("new", 1));
        fs::remove_file(volume.join("key")).unwrap();
        fs::create_dir(volume.join("key")).unwrap();
        bind(&volume, "key", &target).unwrap();
        assert!(target.is_dir() && mounts() == 1);
        sys::mount::detach(&target).unwrap();
    }

    #[test]
    fn no_path_leads_up() {
        for (sub, expect) in [
            ("a/b", Ok(())),
            ("a..b/..c", Ok(())),
            ("/a", Err("error SubPath `/a` must not be an absolute path")),
            ("a/../b", Err("unable to provision SubPath `a/../b`: must not contain '..'")),
            ("..", Err("unable to provision SubPath `..`: must not contain '..'")),
        ] {
            let found = check(sub).map_err(|error| error.to_string());
            assert_eq!(found, expect.map_err(str::to_owned), "{sub}");
        }
    }
}
