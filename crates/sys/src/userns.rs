//! User namespaces with the namespaces that belong to them, and mounts that show files under other owners.
//!
//! Source: user_namespaces(7), mount_setattr(2) on ID-mapped mounts.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use nix::libc;
use nix::mount::{MsFlags, mount};

use crate::{Doing, Error, Result};

/// A map of a namespace's users and groups to the host's: ids from 0 on are as many from these on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The host's user that is root inside.
    pub first_uid: u32,
    /// The host's group that is root's inside.
    pub first_gid: u32,
    /// The number of ids.
    pub length: u32,
}

/// Names of the files by which namespaces are kept, with what procfs calls them.
const KEPT: [(&str, &str); 4] = [("userns", "user"), ("netns", "net"), ("ipcns", "ipc"), ("utsns", "uts")];

/// Makes a user namespace, and network, IPC and UTS namespaces that are its own; keeps them at the files `userns`,
/// `netns` (with `lo` up), `ipcns` and `utsns` in `folder`.
///
/// `holder` is any program that stays until it is killed: the namespaces are made in its process.
pub fn create(folder: &Path, mapping: Mapping, mut holder: Command) -> Result<()> {
    let doing = || format!("make a user namespace in {}", folder.display());
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    // SAFETY: the closure runs between fork and exec and makes one system call.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut holder, move || {
            if libc::unshare(flags) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    let mut child = holder.spawn().doing(doing)?;
    let made = keep(folder, mapping, child.id());
    child.kill().doing(doing)?;
    child.wait().doing(doing)?;
    made?;
    crate::netns::NetNs::open(&folder.join("netns"))?.run(|| crate::netlink::Route::open()?.loopback_up())
}

fn keep(folder: &Path, mapping: Mapping, pid: u32) -> Result<()> {
    for (file, first) in [("uid_map", mapping.first_uid), ("gid_map", mapping.first_gid)] {
        let path = format!("/proc/{pid}/{file}");
        fs::write(&path, format!("0 {first} {}\n", mapping.length)).doing(|| format!("write {path}"))?;
    }
    KEPT.iter().try_for_each(|(name, namespace)| keep_one(pid, namespace, &folder.join(name)))
}

/// Keeps the PID namespace of a process at `path`, for those who may not look at the process.
pub fn keep_pid_namespace(pid: i32, path: &Path) -> Result<()> {
    crate::netns::delete(path)?;
    keep_one(pid, "pid", path)
}

fn keep_one(pid: impl std::fmt::Display, namespace: &str, path: &Path) -> Result<()> {
    let doing = || format!("keep namespace {}", path.display());
    OpenOptions::new().write(true).create(true).truncate(true).open(path).doing(doing)?;
    let source = format!("/proc/{pid}/ns/{namespace}");
    mount(Some(source.as_str()), path, None::<&str>, MsFlags::MS_BIND, None::<&str>).doing(doing)
}

/// Takes back what [`create`] made; no error if it is gone already.
pub fn delete(folder: &Path) -> Result<()> {
    KEPT.iter().try_for_each(|(name, _)| crate::netns::delete(&folder.join(name)))
}

/// Mounts `source`, with what is mounted below it, at `target` too. With a user namespace (a file that keeps one),
/// owners are shown as that namespace's: what belongs to the host's root belongs to the namespace's.
///
/// # Errors
/// `EINVAL` if the file system of `source` cannot do that.
pub fn bind(source: &Path, target: &Path, userns: Option<&Path>) -> Result<()> {
    let doing = || format!("mount {} at {}", source.display(), target.display());
    let flags = libc::OPEN_TREE_CLONE as libc::c_uint
        | libc::OPEN_TREE_CLOEXEC as libc::c_uint
        | libc::AT_RECURSIVE as libc::c_uint;
    let text = c_path(source)?;
    // SAFETY: a string that ends with zero, and flags; the result is checked.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, text.as_ptr(), flags) };
    if tree < 0 {
        return Err(io::Error::last_os_error()).doing(doing);
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let tree = unsafe { OwnedFd::from_raw_fd(tree as libc::c_int) };
    if let Some(userns) = userns {
        let namespace = File::open(userns).doing(|| format!("open user namespace {}", userns.display()))?;
        map(&tree, &namespace).doing(|| format!("map the owners of {}", source.display()))?;
    }
    let (empty, text) = (c"", c_path(target)?);
    // SAFETY: two descriptors, two strings that end with zero, and a flag.
    let moved = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_FDCWD,
            text.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    if moved < 0 { Err(io::Error::last_os_error()).doing(doing) } else { Ok(()) }
}

fn map(tree: &OwnedFd, namespace: &File) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: namespace.as_raw_fd() as u64,
    };
    // SAFETY: a descriptor, an empty string, a flag, and a structure with its size, which the kernel only reads.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            std::mem::size_of::<libc::mount_attr>(),
        )
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|error| Error::new(format!("use path {}", path.display()), io::Error::from(error)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_mapped_mount_shows_other_owners() {
        assert!(nix::unistd::geteuid().is_root(), "this test makes namespaces: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let mapping = Mapping { first_uid: 65536, first_gid: 131_072, length: 65536 };
        let mut holder = Command::new("sleep");
        holder.arg("1000");
        create(dir.path(), mapping, holder).unwrap();
        let (real, shown) = (dir.path().join("real"), dir.path().join("shown"));
        fs::create_dir(&real).unwrap();
        fs::create_dir(&shown).unwrap();
        fs::write(real.join("file"), "").unwrap();
        bind(&real, &shown, Some(&dir.path().join("userns"))).unwrap();
        let metadata = fs::metadata(shown.join("file")).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (65536, 131_072));
        crate::mount::detach(&shown).unwrap();
        delete(dir.path()).unwrap();
        delete(dir.path()).unwrap();
    }
}
