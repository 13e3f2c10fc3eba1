//! Paths of a container before it runs, as a process inside would see them: links are followed, also those that lead to
//! nothing yet, and nothing leads out of its root.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use cri::v1;
use nix::errno::Errno;
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};

use crate::refusal::Refusal;

/// Links on one path. Source: the kernel's `MAXSYMLINKS`.
const LINKS_MAX: usize = 40;
/// What may be mounted below `/proc`. Source: runc's `checkProcMount`.
const PROC_FILES: [&str; 10] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/slabinfo",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/crypto/fips_enabled",
];

/// What happens to a name that is not there.
#[derive(Clone, Copy)]
enum Missing {
    Leave,
    /// It becomes a directory of this user and group.
    Make(u32, u32),
}

/// Makes `path` and what leads to it below `root`.
///
/// # Errors
/// Something on the way is no directory, or there are too many links.
pub(crate) fn make_dir(root: &Path, path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    walk(root, path, Missing::Make(uid, gid)).map(drop)
}

/// Where `path` leads below `root`, as a path from `root`; what is not there leads to itself.
///
/// # Errors
/// Something on the way is no directory, or there are too many links.
pub(crate) fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    walk(root, path, Missing::Leave)
}

/// Refuses mounts over what the container's own processes are told by the kernel.
///
/// # Errors
/// Names the mount, in runc's words.
pub(crate) fn check_mounts(root: &Path, config: &v1::ContainerConfig) -> Result<(), Refusal> {
    for mount in &config.mounts {
        let wanted = &mount.container_path;
        let cannot = |why| Refusal::Invalid(format!("{wanted:?} cannot be mounted because it {why}"));
        let found = walk(root, Path::new(wanted), Missing::Leave)
            .map_err(Refusal::step(format!("mount at {wanted:?}")))?;
        if found == Path::new("/proc") {
            let is_proc =
                statfs(mount.host_path.as_str()).is_ok_and(|it| it.filesystem_type() == PROC_SUPER_MAGIC);
            if !is_proc {
                return Err(cannot("is not of type proc"));
            }
        } else if found.starts_with("/proc") && !PROC_FILES.iter().any(|file| found == Path::new(file)) {
            return Err(cannot("is inside /proc"));
        }
    }
    Ok(())
}

/// Says where mounts lead that are asked for by way of `..`, but for those that are `named` elsewhere. The kernel does not go
/// that way while anything is mounted or renamed anywhere. Source: EAGAIN of `openat2(2)`.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn settle_parents(
    root: &Path,
    config: &mut v1::ContainerConfig,
    named: impl Fn(&str) -> bool,
) -> io::Result<()> {
    for mount in &mut config.mounts {
        let wanted = Path::new(&mount.container_path);
        let has_parent = wanted.components().any(|part| part == Component::ParentDir);
        if has_parent && wanted.is_absolute() && !named(&mount.container_path) {
            mount.container_path = resolve(root, wanted)?.to_string_lossy().into_owned();
        }
    }
    Ok(())
}

/// Where `path` leads below `root`.
fn walk(root: &Path, path: &Path, missing: Missing) -> io::Result<PathBuf> {
    let mut left = names(path);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        if let Some(target) = step(root, &at, &name, missing)? {
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::ELOOP.into());
            }
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            names(&target).into_iter().rev().for_each(|name| left.push_front(name));
            continue;
        }
        at.push(name);
    }
    Ok(at)
}

/// The target of `name` if it is a link; else it is seen to that it is there, if that is wanted.
fn step(root: &Path, at: &Path, name: &OsString, missing: Missing) -> io::Result<Option<PathBuf>> {
    let parent = match sys::descriptors::open_in_root(root, at) {
        Err(error) if error.is_not_found() && matches!(missing, Missing::Leave) => return Ok(None),
        other => other.map_err(io::Error::other)?,
    };
    if let Missing::Make(uid, gid) = missing {
        match mkdirat(&parent, name.as_os_str(), Mode::from_bits_truncate(0o755)) {
            Ok(()) => {
                let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
                nix::unistd::fchownat(&parent, name.as_os_str(), Some(uid.into()), Some(gid.into()), flags)?;
                return Ok(None);
            }
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(nix::fcntl::readlinkat(&parent, name.as_os_str()).ok().map(PathBuf::from))
}

/// The names on a path, `..` among them.
fn names(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        symlink("../../../out", root.path().join("etc/up")).unwrap();
        symlink("/proc/self", root.path().join("me")).unwrap();
        symlink("loop", root.path().join("loop")).unwrap();
        root
    }

    #[test]
    fn links_are_followed_within_the_root() {
        let root = root();
        make_dir(root.path(), Path::new("/etc/up/below"), 0, 0).unwrap();
        assert!(root.path().join("out/below").is_dir());
        let error = make_dir(root.path(), Path::new("/loop/x"), 0, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ELOOP as i32));
    }

    #[test]
    fn nothing_is_mounted_over_what_the_kernel_tells() {
        let root = root();
        let check = |host: &str, inside: &str, expect: Option<&str>| {
            let mount =
                v1::Mount { host_path: host.into(), container_path: inside.into(), ..Default::default() };
            let config = v1::ContainerConfig { mounts: vec![mount], ..Default::default() };
            let refused = check_mounts(root.path(), &config).err().map(|refusal| refusal.to_string());
            match (&refused, expect) {
                (Some(error), Some(expect)) => assert!(error.contains(expect), "{inside}: {error}"),
                _ => assert_eq!(refused.as_deref(), expect, "{inside}"),
            }
        };
        check("/tmp", "/data/new/folder", None);
        check("/tmp", "/proc", Some("not of type proc"));
        check("/proc", "/proc", None);
        check("/tmp", "/proc/self/fd", Some("inside /proc"));
        check("/tmp", "/data/../proc/sys", Some("inside /proc"));
        check("/tmp", "/me/fd", Some("inside /proc"));
        check("/proc/uptime", "/proc/uptime", None);
    }

    #[test]
    fn mounts_lead_through_no_parent() {
        let root = root();
        let of = |inside: &str| v1::Mount { container_path: inside.into(), ..Default::default() };
        let asked = ["/data/../up/a", "/../../b", "/data/c", "/named/../d", "../e"];
        let mut config = v1::ContainerConfig { mounts: asked.map(of).into(), ..Default::default() };
        settle_parents(root.path(), &mut config, |path| path.starts_with("/named")).unwrap();
        let found: Vec<&str> = config.mounts.iter().map(|mount| mount.container_path.as_str()).collect();
        assert_eq!(found, ["/up/a", "/b", "/data/c", "/named/../d", "../e"]);
    }
}
