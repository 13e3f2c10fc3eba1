//! Folders that others have filled, removed and looked at whatever is in them.
//!
//! Containers may make folders deeper than a path or a stack can be, and move them while somebody looks. So nothing here
//! follows a link, calls itself for each level, or holds more than [`OPEN_MAX`] levels open. What is mounted in a folder
//! belongs to somebody else: it is taken out before the folder is removed, and never gone into for that.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, ReadDir};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Most levels of folders that are open at once.
const OPEN_MAX: usize = 16;
/// How the names of folders begin that are moved up to be removed; a number follows.
const MOVED: &str = ".removing-";

/// Removes a folder and all that is in it; of a link, the link. What is mounted there, or in it, is unmounted: what it
/// costs to find that does not depend on what is mounted elsewhere.
///
/// # Errors
/// It is not there, something in it cannot be unmounted, or the disk fails.
pub fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_symlink() {
        return fs::remove_file(path);
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let parent = openat(AT_FDCWD, parent, flags, Mode::empty())?;
    let root = unmounting(&parent, name, || open_own_folder(&parent, name))?;
    let mut moved = 0;
    while empty(&root, &mut moved)? {}
    Ok(unlinkat(&parent, name, UnlinkatFlags::RemoveDir)?)
}

/// Removes a folder and all that is in it, or a file, but none of the mount points in `kept` and nothing that is mounted
/// there; returns whether all of it went.
///
/// # Errors
/// As [`remove`].
pub fn remove_beside(path: &Path, kept: &[PathBuf]) -> io::Result<bool> {
    if kept.iter().any(|mount| mount == path) {
        return Ok(false);
    }
    let is_folder = fs::symlink_metadata(path)?.is_dir();
    if !kept.iter().any(|mount| mount.starts_with(path)) {
        if is_folder {
            remove(path)?
        } else {
            fs::remove_file(path)?
        }
        return Ok(true);
    }
    empty_beside(path, kept)?;
    Ok(false)
}

/// The same for what is in a folder, be it a mount point itself or not.
///
/// # Errors
/// As [`remove`].
pub fn empty_beside(folder: &Path, kept: &[PathBuf]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        remove_beside(&entry?.path(), kept)?;
    }
    Ok(())
}

/// Does something with an entry as soon as nothing is mounted on it any more.
fn unmounting<T>(folder: &OwnedFd, name: &OsStr, act: impl Fn() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match act() {
            Err(errno @ (Errno::EXDEV | Errno::EBUSY)) => {
                let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
                match umount2(&path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                    // Nothing is mounted: it is something else.
                    Err(Errno::EINVAL) => return Err(errno),
                    unmounted => unmounted?,
                }
            }
            done => return done,
        }
    }
}

/// A folder whose entries are being removed.
struct Emptying {
    folder: OwnedFd,
    entries: ReadDir,
    name: OsString,
}

impl Emptying {
    fn new(folder: OwnedFd, name: OsString) -> io::Result<Self> {
        Ok(Self { entries: list(&folder)?, folder, name })
    }
}

/// Removes what is in `root`; true if some of it was too deep and has been moved up to it.
fn empty(root: &OwnedFd, moved: &mut u64) -> io::Result<bool> {
    let before = *moved;
    let mut levels = vec![Emptying::new(root.try_clone()?, OsString::new())?];
    loop {
        let has_room = levels.len() < OPEN_MAX;
        let Some(level) = levels.last_mut() else { break };
        let Some(entry) = level.entries.next().transpose()? else {
            let done = levels.pop();
            if let (Some(above), Some(done)) = (levels.last(), done) {
                gone_is_fine(unlinkat(&above.folder, done.name.as_os_str(), UnlinkatFlags::RemoveDir))?;
            }
            continue;
        };
        let name = entry.file_name();
        if !entry.file_type()?.is_dir() {
            let unlink = || unlinkat(&level.folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
            gone_is_fine(unmounting(&level.folder, &name, unlink))?;
        } else if has_room {
            let folder = unmounting(&level.folder, &name, || open_own_folder(&level.folder, &name))?;
            levels.push(Emptying::new(folder, name)?);
        } else {
            move_up(&level.folder, &name, root, moved)?;
        }
    }
    Ok(*moved > before)
}

/// Moves a folder to `root`, under a name that nothing has there.
fn move_up(folder: &OwnedFd, name: &OsStr, root: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        let to = format!("{MOVED}{moved}");
        match unmounting(folder, name, || renameat(folder, name, root, to.as_str())) {
            Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
            other => return Ok(gone_is_fine(other)?),
        }
    }
}

fn gone_is_fine(done: nix::Result<()>) -> nix::Result<()> {
    if done == Err(Errno::ENOENT) { Ok(()) } else { done }
}

/// The space that a folder takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// On disk: holes take nothing.
    pub bytes: u64,
    /// Files and folders.
    pub inodes: u64,
}

impl Size {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }
}

/// The space that `path` and all below it take, on its own file system: a file with two names counts once. Files that
/// are not there, or go meanwhile, do not count.
pub fn size(path: &Path) -> Size {
    use std::os::unix::fs::MetadataExt;
    const BLOCK_BYTES: u64 = 512;
    let Ok(root) = fs::symlink_metadata(path) else { return Size::default() };
    let mut used = Size { bytes: root.blocks() * BLOCK_BYTES, inodes: 1 };
    if !root.is_dir() {
        return used;
    }
    let mut seen = BTreeSet::new();
    let looked = walk(path, |found| {
        let is_counted = found.stat.st_dev == root.dev()
            && (found.is_folder() || found.stat.st_nlink < 2 || seen.insert(found.stat.st_ino));
        if is_counted {
            let blocks = u64::try_from(found.stat.st_blocks).unwrap_or_default();
            used = used.plus(Size { bytes: blocks * BLOCK_BYTES, inodes: 1 });
        }
        Ok(is_counted)
    });
    if let Err(error) = looked {
        tracing::warn!(path = %path.display(), %error, "cannot look at all of a folder");
    }
    used
}

/// Something in a folder.
#[derive(Debug)]
pub struct Found<'a> {
    /// The folder that it is in.
    folder: BorrowedFd<'a>,
    name: &'a OsStr,
    /// Its own, not that of what it is a link to.
    pub stat: FileStat,
}

impl Found<'_> {
    /// `true` if it can have something in it.
    pub fn is_folder(&self) -> bool {
        is_folder(&self.stat)
    }

    /// A descriptor of what has its name now, which stands for the very same from then on (`O_PATH`). It may be a link.
    ///
    /// # Errors
    /// As openat(2).
    pub fn pin(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(self.folder, self.name, flags, Mode::empty())?)
    }
}

/// A folder that has been listed, and the folders in it that have not.
struct Level {
    /// `None` while it is closed for the sake of deeper ones.
    folder: Option<OwnedFd>,
    id: (u64, u64),
    below: Vec<OsString>,
}

/// Visits everything below the folder `path`, but not itself; of a folder, `visit` says whether it is gone into. What is
/// moved elsewhere meanwhile may be left out.
///
/// # Errors
/// What `visit` says, or the folder cannot be opened.
pub fn walk(path: &Path, mut visit: impl FnMut(&Found<'_>) -> io::Result<bool>) -> io::Result<()> {
    let mut levels = vec![look(open_folder(AT_FDCWD, path.as_os_str())?, &mut visit)?];
    while let Some(level) = levels.last_mut() {
        if let (Some(folder), Some(name)) = (&level.folder, level.below.pop()) {
            match open_folder(folder, &name) {
                Ok(below) => levels.push(look(below, &mut visit)?),
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
                Err(errno) => return Err(errno.into()),
            }
            // The first ones stay open: where somebody has moved folders, it goes on from there.
            if let Some(far) = levels.len().checked_sub(OPEN_MAX / 2).filter(|at| *at >= OPEN_MAX / 2)
                && let Some(level) = levels.get_mut(far)
            {
                level.folder = None;
            }
            continue;
        }
        let done = levels.pop().and_then(|level| level.folder);
        if let (Some(above), Some(done)) = (levels.last_mut(), done)
            && above.folder.is_none()
        {
            let parent = open_folder(&done, OsStr::new(".."))?;
            above.folder = (id(&fstat(&parent)?) == above.id).then_some(parent);
        }
    }
    Ok(())
}

/// Visits what is in a folder.
fn look(folder: OwnedFd, visit: &mut impl FnMut(&Found<'_>) -> io::Result<bool>) -> io::Result<Level> {
    let (id, mut below) = (id(&fstat(&folder)?), Vec::new());
    for entry in list(&folder)? {
        let name = entry?.file_name();
        let stat = match fstatat(&folder, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => continue,
            stat => stat?,
        };
        if visit(&Found { folder: folder.as_fd(), name: &name, stat })? && is_folder(&stat) {
            below.push(name);
        }
    }
    Ok(Level { folder: Some(folder), id, below })
}

fn id(stat: &FileStat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn is_folder(stat: &FileStat) -> bool {
    stat.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR
}

fn open_folder(at: impl AsFd, name: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// Unless something is mounted on it (`EXDEV`).
fn open_own_folder(at: &OwnedFd, name: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat2(at, name, OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_XDEV))
}

/// Its entries, by its descriptor: its path may be too long.
fn list(folder: &OwnedFd) -> io::Result<ReadDir> {
    fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use nix::sys::stat::mkdirat;

    use super::*;

    /// Folders in folders, the last of which has a file; and as many that lie beside them.
    fn deep(root: &Path, levels: usize) {
        let mut at = open_folder(AT_FDCWD, root.as_os_str()).unwrap();
        for _ in 0..levels {
            for name in ["a", MOVED] {
                mkdirat(&at, name, Mode::from_bits_truncate(0o755)).unwrap();
            }
            at = open_folder(&at, OsStr::new("a")).unwrap();
        }
        fs::write(format!("/proc/self/fd/{}/file", at.as_raw_fd()), vec![1; 100_000]).unwrap();
    }

    #[test]
    fn folders_deeper_than_a_path_and_a_stack_are_measured_and_removed() {
        const LEVELS: usize = 30_000;
        // In memory: a disk takes long for so many.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        deep(&root, LEVELS);
        let used = size(&root);
        assert_eq!(used.inodes, 2 * LEVELS as u64 + 2);
        assert!(used.bytes >= 100_000, "{used:?}");
        remove(&root).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn names_that_are_taken_are_not_overwritten_where_folders_are_moved_up() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        deep(&root, 3 * OPEN_MAX);
        fs::write(root.join(format!("{MOVED}1")), "").unwrap();
        fs::create_dir_all(root.join(format!("{MOVED}2/x"))).unwrap();
        remove(&root).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn what_is_mounted_in_a_folder_is_unmounted_and_keeps_what_it_has() {
        use crate::mount::{BindOptions, bind, is_mounted, tmpfs};
        assert!(nix::unistd::geteuid().is_root(), "this test mounts: run it as root");
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        let far: PathBuf = ["a"; 2 * OPEN_MAX].iter().collect();
        let make = |name: &Path| {
            fs::create_dir_all(root.join(name)).unwrap();
            root.join(name)
        };
        for kept in ["kept", "below/kept"] {
            fs::create_dir_all(outside.join(kept).parent().unwrap()).unwrap();
            fs::write(outside.join(kept), kept).unwrap();
        }
        for name in [Path::new("folder"), &far.join("far"), &far] {
            bind(&outside, &make(name), BindOptions::default()).unwrap();
        }
        // Two at one place, one in another, and one on a file.
        bind(&outside, &root.join("folder"), BindOptions::default()).unwrap();
        tmpfs(&root.join("folder/below"), None, 0o700).unwrap();
        fs::write(root.join("file"), "").unwrap();
        bind(&outside.join("kept"), &root.join("file"), BindOptions::default()).unwrap();
        // And one on the folder itself.
        bind(&root, &root, BindOptions { recursive: true, ..BindOptions::default() }).unwrap();
        assert!(is_mounted(&root).unwrap() && is_mounted(&root.join("file")).unwrap());
        remove(&root).unwrap();
        assert!(!root.exists());
        for kept in ["kept", "below/kept"] {
            assert_eq!(fs::read_to_string(outside.join(kept)).unwrap(), kept);
        }
        let left = crate::mount::mounts().unwrap().into_iter();
        let left: Vec<_> = left.filter(|mount| mount.target.starts_with(folder.path())).collect();
        assert_eq!(left, []);
    }

    #[test]
    fn a_file_with_two_names_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), vec![1_u8; 100_000]).unwrap();
        let one = size(folder.path());
        assert!(one.bytes >= 100_000 && one.inodes == 2, "{one:?}");
        fs::hard_link(folder.path().join("a"), folder.path().join("b")).unwrap();
        let two = size(folder.path());
        assert!(two.bytes < one.bytes + 50_000 && two.inodes == 2, "{two:?}");
        assert_eq!(size(Path::new("/not/there")), Size::default());
    }

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        for made in [&root, &outside] {
            fs::create_dir(made).unwrap();
        }
        fs::write(outside.join("file"), "kept").unwrap();
        symlink(&outside, root.join("link")).unwrap();
        symlink(&root, folder.path().join("to-root")).unwrap();
        assert_eq!(size(&root).inodes, 2);
        assert_eq!(size(&folder.path().join("to-root")).inodes, 1);
        remove(&folder.path().join("to-root")).unwrap();
        remove(&root).unwrap();
        assert!(outside.join("file").exists() && !root.exists());
        assert_eq!(remove(&root).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_folder_that_moves_while_somebody_looks_hides_nothing_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let (root, away) = (folder.path().join("root"), folder.path().join("away"));
        for made in [&root, &away] {
            fs::create_dir(made).unwrap();
        }
        deep(&root, 3 * OPEN_MAX);
        fs::write(root.join("seen-last"), "").unwrap();
        fs::create_dir(root.join("beside")).unwrap();
        fs::write(root.join("beside/below"), "").unwrap();
        let mut found = BTreeSet::new();
        walk(&root, |it| {
            if it.name == "file" {
                let far = ["a"; OPEN_MAX].join("/");
                fs::rename(root.join(&far), away.join("a")).unwrap();
            }
            found.insert(it.name.to_owned());
            Ok(true)
        })
        .unwrap();
        assert!(found.contains(OsStr::new("file")) && found.contains(OsStr::new("below")), "{found:?}");
    }
}
