//! Mounts: bind, overlay, tmpfs, read-only, propagation, and the list of what is mounted.
//!
//! Paths are taken as they are: who calls has made the targets. Unmounting what is not mounted is no error.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;

use crate::{Doing, Error, Result};

/// What mount(2) takes of options is one page, with the zero at its end.
const OPTION_BYTES_MAX: usize = 4096;

/// The options of a bind mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindOptions {
    /// Also what is mounted below the source (`MS_REC`).
    pub recursive: bool,
    /// Nobody can write through this mount.
    pub read_only: bool,
    /// Neither set-uid programs nor devices work through this mount.
    pub no_suid_no_dev: bool,
    /// No programs run from this mount.
    pub no_exec: bool,
}

/// The direction in which mounts made later cross into and out of a mount. Source: mount_namespaces(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Both ways.
    Shared,
    /// Inwards only.
    Slave,
    /// Not at all.
    Private,
}

/// One line of `/proc/thread-self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount's number.
    pub id: u32,
    /// The mount point.
    pub target: PathBuf,
    /// The part of the file system that is mounted there.
    pub root: PathBuf,
    /// Mount options, comma-separated.
    pub options: String,
    /// `true` if it is in a peer group: what is mounted below it is mounted below the others.
    pub is_shared: bool,
    /// `true` if what is mounted below one of a peer group is mounted below it.
    pub is_slave: bool,
    /// File system type.
    pub fs_type: String,
    /// The mounted device or name.
    pub source: String,
    /// Options of the file system, comma-separated.
    pub super_options: String,
}

/// Mounts `source` (a file or directory) at `target`.
pub fn bind(source: &Path, target: &Path, options: BindOptions) -> Result<()> {
    let mut flags = MsFlags::MS_BIND;
    if options.recursive {
        flags |= MsFlags::MS_REC;
    }
    mount(Some(source), target, None::<&str>, flags, None::<&str>)
        .doing(|| format!("bind {} at {}", source.display(), target.display()))?;
    let mut extra = MsFlags::empty();
    if options.read_only {
        extra |= MsFlags::MS_RDONLY;
    }
    if options.no_suid_no_dev {
        extra |= MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    }
    if options.no_exec {
        extra |= MsFlags::MS_NOEXEC;
    }
    if extra.is_empty() { Ok(()) } else { remount_bind(target, extra) }
}

/// Mounts an overlay: `lower` is listed topmost first. Without `upper` (a writable directory and its work directory
/// on one file system) it is read-only, and neither programs nor devices in it work.
pub fn overlay(lower: &[PathBuf], upper: Option<(&Path, &Path)>, target: &Path) -> Result<()> {
    let doing = || format!("mount an overlay at {}", target.display());
    let mut options = overlay_options(lower, upper)?;
    let mut held = Vec::new();
    if options.len() >= OPTION_BYTES_MAX {
        // Shorter names of the same directories, as long as this process holds them.
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        for layer in lower {
            held.push(open(layer, flags, Mode::empty()).doing(|| format!("open {}", layer.display()))?);
        }
        let name = |layer: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", layer.as_raw_fd()));
        options = overlay_options(&held.iter().map(name).collect::<Vec<_>>(), upper)?;
    }
    if options.len() >= OPTION_BYTES_MAX {
        return Err(Error::other(doing(), "too many layers: the option text is longer than a page"));
    }
    let flags = match upper {
        Some(_) => MsFlags::empty(),
        None => MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
    };
    mount(Some("overlay"), target, Some("overlay"), flags, Some(options.as_str())).doing(doing)
}

fn overlay_options(lower: &[PathBuf], upper: Option<(&Path, &Path)>) -> Result<String> {
    let lower = lower.iter().map(|layer| escape_overlay(layer)).collect::<Result<Vec<_>>>()?;
    let mut options = format!("lowerdir={}", lower.join(":"));
    if let Some((upper, work)) = upper {
        options.push_str(&format!(",upperdir={},workdir={}", escape_overlay(upper)?, escape_overlay(work)?));
    }
    Ok(options)
}

fn escape_overlay(path: &Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| {
        Error::other(format!("mount overlay layer {}", path.display()), "path is not UTF-8")
    })?;
    Ok(text.replace('\\', "\\\\").replace(':', "\\:").replace(',', "\\,"))
}

/// Mounts a tmpfs with `nosuid,nodev`; without `size_bytes` the kernel's default (half of the memory) holds.
pub fn tmpfs(target: &Path, size_bytes: Option<u64>, mode: u32) -> Result<()> {
    let mut options = format!("mode={mode:o}");
    if let Some(size) = size_bytes {
        options.push_str(&format!(",size={size}"));
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), target, Some("tmpfs"), flags, Some(options.as_str()))
        .doing(|| format!("mount a tmpfs at {}", target.display()))
}

/// Makes what is mounted at `target` read-only for everyone who comes through this mount.
pub fn remount_read_only(target: &Path) -> Result<()> {
    remount_bind(target, MsFlags::MS_RDONLY)
}

/// Adds flags to a bind mount, keeping those that it has: dropping a locked one is refused by the kernel.
fn remount_bind(target: &Path, extra: MsFlags) -> Result<()> {
    let doing = || format!("remount {}", target.display());
    let kept = nix::sys::statvfs::statvfs(target).doing(doing)?.flags();
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | extra;
    for (bit, flag) in [
        (nix::libc::ST_NOSUID, MsFlags::MS_NOSUID),
        (nix::libc::ST_NODEV, MsFlags::MS_NODEV),
        (nix::libc::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (nix::libc::ST_RDONLY, MsFlags::MS_RDONLY),
        (nix::libc::ST_NOATIME, MsFlags::MS_NOATIME),
        (nix::libc::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        if kept.bits() & bit != 0 {
            flags |= flag;
        }
    }
    change(target, flags).doing(doing)
}

/// Gives what is mounted at `target` other flags.
fn change(target: &Path, flags: MsFlags) -> nix::Result<()> {
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
}

/// Sets how later mounts cross `target`.
pub fn set_propagation(target: &Path, propagation: Propagation) -> Result<()> {
    propagate(target, propagation, MsFlags::empty())
}

/// The same, also for what is mounted below `target`.
pub fn set_propagation_of_all(target: &Path, propagation: Propagation) -> Result<()> {
    propagate(target, propagation, MsFlags::MS_REC)
}

fn propagate(target: &Path, propagation: Propagation, flags: MsFlags) -> Result<()> {
    let how = match propagation {
        Propagation::Shared => MsFlags::MS_SHARED,
        Propagation::Slave => MsFlags::MS_SLAVE,
        Propagation::Private => MsFlags::MS_PRIVATE,
    };
    change(target, how | flags).doing(|| format!("set the propagation of {}", target.display()))
}

/// Unmounts `target`; fails with `EBUSY` while it is used.
pub fn unmount(target: &Path) -> Result<()> {
    unmount_with(target, MntFlags::UMOUNT_NOFOLLOW)
}

/// Takes `target` out of the tree at once; the kernel frees it when its last user is gone.
pub fn detach(target: &Path) -> Result<()> {
    unmount_with(target, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH)
}

fn unmount_with(target: &Path, flags: MntFlags) -> Result<()> {
    match umount2(target, flags) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(error) => Err(error).doing(|| format!("unmount {}", target.display())),
    }
}

/// Everything mounted in this process's mount namespace, in mount order.
pub fn mounts() -> Result<Vec<MountEntry>> {
    let bytes =
        fs::read("/proc/thread-self/mountinfo").doing(|| "read /proc/thread-self/mountinfo".into())?;
    Ok(parse_mountinfo(&bytes))
}

/// `true` if something is mounted exactly at `target`; not if there is no such path. The cost does not depend on what
/// is mounted elsewhere, and what is mounted is not asked.
pub fn is_mounted(target: &Path) -> Result<bool> {
    let doing = || format!("look at what is mounted at {}", target.display());
    let Some(parent) = target.parent() else { return Ok(true) };
    let name = target.file_name().ok_or_else(|| Error::other(doing(), "the path has no last part"))?;
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags | OFlag::O_NOFOLLOW).resolve(ResolveFlag::RESOLVE_NO_XDEV);
    let found = open(parent, flags, Mode::empty()).and_then(|parent| openat2(&parent, name, how));
    match found {
        Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(false),
        Err(Errno::EXDEV) => Ok(true),
        Err(error) => Err(error).doing(doing),
    }
}

/// Detaches everything mounted at or below `prefix`, newest first, and returns what it was.
pub fn detach_below(prefix: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> =
        mounts()?.into_iter().map(|mount| mount.target).filter(|target| target.starts_with(prefix)).collect();
    found.reverse();
    for target in &found {
        detach(target)?;
    }
    Ok(found)
}

/// Detaches everything mounted below `folder`, newest first, but not what is mounted on the folder itself.
///
/// # Errors
/// The kernel refuses for one of them.
pub fn detach_inside(folder: &Path) -> Result<()> {
    let targets = mounts()?.into_iter().map(|mount| mount.target);
    let inside: Vec<PathBuf> =
        targets.filter(|target| target.starts_with(folder) && target != folder).collect();
    inside.iter().rev().try_for_each(|target| detach(target))
}

/// Gives this process a mount namespace of its own whose mounts reach containers made from it (recursively shared).
///
/// For a process with one thread: the other threads would stay in the old namespace.
pub fn own_namespace() -> Result<()> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).doing(|| "make a mount namespace".into())?;
    set_propagation_of_all(Path::new("/"), Propagation::Slave)?;
    set_propagation_of_all(Path::new("/"), Propagation::Shared)
}

/// Whoever mounts something chooses the bytes of its path: one that is no UTF-8 must not hide the others.
pub(crate) fn parse_mountinfo(bytes: &[u8]) -> Vec<MountEntry> {
    bytes.split(|byte| *byte == b'\n').filter_map(parse_mountinfo_line).collect()
}

/// Source: proc_pid_mountinfo(5).
fn parse_mountinfo_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    // The parent's number, then the device's.
    fields.next()?;
    fields.next().filter(|device| is_device(device))?;
    let root = path_of(fields.next()?);
    let target = path_of(fields.next()?);
    let options = text(fields.next()?);
    let tags: Vec<&[u8]> = fields.by_ref().take_while(|field| *field != b"-").collect();
    let has = |name: &str| tags.iter().any(|tag| tag.starts_with(name.as_bytes()));
    let (is_shared, is_slave) = (has("shared:"), has("master:"));
    Some(MountEntry {
        id,
        target,
        root,
        options,
        is_shared,
        is_slave,
        fs_type: text(fields.next()?),
        source: text(&unescape(fields.next()?)),
        super_options: fields.next().map(text).unwrap_or_default(),
    })
}

/// `8:1`
fn is_device(field: &[u8]) -> bool {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = field.split(|byte| *byte == b':');
    parts.next().is_some_and(is_number) && parts.next().is_some_and(is_number) && parts.next().is_none()
}

fn path_of(field: &[u8]) -> PathBuf {
    OsString::from_vec(unescape(field)).into()
}

/// Undoes the kernel's octal escapes (`\040` for a space).
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(octal.unwrap_or(first));
        rest = after.get(if octal.is_some() { 3 } else { 0 }..).unwrap_or_default();
    }
    bytes
}

#[cfg(test)]
mod tests;
