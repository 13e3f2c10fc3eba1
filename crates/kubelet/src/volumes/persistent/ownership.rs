//! Gives a volume's files to the Pod's group. Source: `pkg/volume/volume_linux.go`, KEP-695.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;

use crate::volumes::describe;

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
pub(super) async fn apply_for(pod: &Pod, path: &Path) -> Result<(), String> {
    let Some(group) = group(pod) else { return Ok(()) };
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
    let (path, only_if_wrong) = (path.to_owned(), policy == Some("OnRootMismatch"));
    let done = tokio::task::spawn_blocking(move || {
        if only_if_wrong && is_right(&path, group) {
            return Ok(());
        }
        apply(&path, group)
    });
    done.await
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("applyFSGroup failed for vol: {error}"))
}

fn is_right(root: &Path, group: u32) -> bool {
    let wanted = FILE_BITS | FOLDER_BITS;
    fs::metadata(root).is_ok_and(|meta| meta.gid() == group && meta.mode() & wanted == wanted)
}

/// The root comes last, so that an interrupted change is seen by [`is_right`].
fn apply(path: &Path, group: u32) -> Result<(), String> {
    let meta = fs::symlink_metadata(path).map_err(|e| describe("stat", path, &e))?;
    if meta.is_dir() {
        for entry in fs::read_dir(path).map_err(|e| describe("list", path, &e))? {
            apply(&entry.map_err(|e| describe("list", path, &e))?.path(), group)?;
        }
    }
    lchown(path, None, Some(group)).map_err(|e| describe("chown", path, &e))?;
    if meta.is_symlink() {
        return Ok(());
    }
    let bits = if meta.is_dir() { FILE_BITS | FOLDER_BITS } else { FILE_BITS };
    let mode = fs::Permissions::from_mode(meta.mode() & 0o7777 | bits);
    fs::set_permissions(path, mode).map_err(|e| describe("chmod", path, &e))
}

#[cfg(test)]
mod tests {
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
    }
}
