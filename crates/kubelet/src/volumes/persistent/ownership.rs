//! Gives a volume's files to the Pod's group. Source: `pkg/volume/volume_linux.go`, KEP-695.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::libc::{S_IFDIR, S_IFLNK, S_IFMT};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::fchownat;
use sys::tree::{Found, walk};

use crate::volumes::error::{Specific, VolumeError};

/// The files are not the group's.
#[derive(Debug, thiserror::Error)]
#[error("applyFSGroup failed for vol: change the group below {}: {source}", path.display())]
struct GroupError {
    path: PathBuf,
    source: io::Error,
}

impl Specific for GroupError {}

/// Read and write for files.
const FILE_BITS: u32 = 0o660;
/// Enter, and hand the group on, for folders.
const FOLDER_BITS: u32 = 0o2110;

/// The group that the Pod's files are to have.
pub(super) fn group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(context.fs_group?).ok()
}

/// Gives all below `path` to the Pod's group, if it has one.
pub(super) async fn apply_for(pod: &Pod, path: &Path) -> Result<(), VolumeError> {
    let Some(group) = group(pod) else { return Ok(()) };
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
    let (path, only_if_wrong) = (path.to_owned(), policy == Some("OnRootMismatch"));
    let done = tokio::task::spawn_blocking(move || {
        if only_if_wrong && is_right(&path, group) {
            return Ok(());
        }
        apply(&path, group).map_err(|source| GroupError { path, source })
    });
    Ok(done.await??)
}

fn is_right(root: &Path, group: u32) -> bool {
    let wanted = FILE_BITS | FOLDER_BITS;
    fs::metadata(root).is_ok_and(|meta| meta.gid() == group && meta.mode() & wanted == wanted)
}

/// The root comes last, so that an interrupted change is seen by [`is_right`]. Other Pods may be at work in there: each file
/// is changed by a descriptor, and no link that comes meanwhile is followed.
fn apply(path: &Path, group: u32) -> io::Result<()> {
    let root = fs::symlink_metadata(path)?;
    if root.is_dir() {
        let give_one = |found: &Found<'_>| match found.pin() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            pinned => give(&pinned?, group).map(|()| true),
        };
        walk(path, give_one)?;
    }
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    give(&open(path, flags, Mode::empty())?, group)
}

fn give(file: &OwnedFd, group: u32) -> io::Result<()> {
    let stat = fstat(file)?;
    fchownat(file, "", None, Some(group.into()), AtFlags::AT_EMPTY_PATH)?;
    let bits = match stat.st_mode & S_IFMT {
        S_IFLNK => return Ok(()),
        S_IFDIR => FILE_BITS | FOLDER_BITS,
        _ => FILE_BITS,
    };
    let mode = fs::Permissions::from_mode(stat.st_mode & 0o7777 | bits);
    fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn everything_below_is_the_groups_and_links_are_not_followed() {
        assert!(nix::unistd::geteuid().is_root(), "this test changes owners: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("sub/file"), "").unwrap();
        fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        assert!(!is_right(&root, 2000));
        apply(&root, 2000).unwrap();
        assert!(is_right(&root, 2000));
        let seen = |path: &Path| fs::metadata(path).map(|meta| (meta.gid(), meta.mode() & 0o7777)).unwrap();
        assert_eq!(seen(&root.join("sub")), (2000, 0o2775));
        assert_eq!(seen(&root.join("sub/file")), (2000, 0o664));
        assert_eq!(seen(&outside).0, 0);
        // As deep as no path can be.
        let deep = root.join(["d"; 1500].join("/"));
        fs::create_dir_all(&deep).unwrap();
        fs::rename(root.join("d"), root.join("sub/d")).unwrap();
        fs::create_dir_all(&deep).unwrap();
        fs::rename(root.join("sub"), deep.join("sub")).unwrap();
        apply(&root, 3000).unwrap();
        let mut groups = BTreeSet::new();
        walk(&root, |found| {
            groups.insert(found.stat.st_gid);
            Ok(true)
        })
        .unwrap();
        assert_eq!(groups, BTreeSet::from([3000]));
    }

    /// Source: `TestSkipPermissionChange` of upstream's `pkg/volume`.
    #[test]
    fn a_root_is_right_with_its_group_its_bits_and_the_set_group_bit() {
        let dir = tempfile::tempdir().unwrap();
        let own = fs::metadata(dir.path()).unwrap().gid();
        for (mode, group, expect) in [
            (0o2770, own, true),
            (0o2775, own, true),
            (0o2777, own, true),
            (0o2770, own + 3000, false),
            (0o770, own, false),
            (0o2760, own, false),
            (0o2670, own, false),
            (0o2700, own, false),
        ] {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_right(dir.path(), group), expect, "{mode:o} {group}");
        }
        assert!(!is_right(&dir.path().join("none"), own));
    }
}
