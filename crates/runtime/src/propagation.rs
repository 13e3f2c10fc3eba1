//! The check that mounts can cross into and out of a container as it asks for: where the host's mount is private they
//! would not, and nobody would be told.
//!
//! Source: `ensureShared` and `ensureSharedOrSlave` of containerd for the words.

use std::path::Path;

use cri::v1::{self, MountPropagation};
use sys::mount::MountEntry;

use crate::refusal::Refusal;

/// Looks at what is mounted only if somebody asks for propagation.
///
/// # Errors
/// Names the mount that stands in the way.
pub(crate) fn check(config: &v1::ContainerConfig) -> Result<(), Refusal> {
    let private = MountPropagation::PropagationPrivate;
    let mut wanted = config.mounts.iter().filter(|mount| mount.propagation() != private).peekable();
    if wanted.peek().is_none() {
        return Ok(());
    }
    let mounts = sys::mount::mounts().map_err(Refusal::Mounts)?;
    wanted.try_for_each(|mount| {
        let path = std::fs::canonicalize(&mount.host_path)
            .map_err(Refusal::step(format!("failed to resolve symlink {:?}", mount.host_path)))?;
        crosses(&path, mount.propagation(), &mounts)
    })
}

/// `mounts` are in mount order.
fn crosses(path: &Path, propagation: MountPropagation, mounts: &[MountEntry]) -> Result<(), Refusal> {
    // Of several at one place, the last one hides the others.
    let around = mounts.iter().filter(|mount| path.starts_with(&mount.target));
    let around = around.max_by_key(|mount| mount.target.components().count());
    let Some(mount) = around else {
        return Err(Refusal::Missing(format!("could not find source mount of {}", path.display())));
    };
    let (is_enough, needed) = match propagation {
        MountPropagation::PropagationPrivate => return Ok(()),
        MountPropagation::PropagationHostToContainer => {
            (mount.is_shared || mount.is_slave, "a shared or slave mount")
        }
        MountPropagation::PropagationBidirectional => (mount.is_shared, "a shared mount"),
    };
    if is_enough {
        return Ok(());
    }
    let (path, target) = (path.display().to_string(), mount.target.display().to_string());
    Err(Refusal::Unsupported(format!("path {path:?} is mounted on {target:?} but it is not {needed}")))
}

#[cfg(test)]
mod tests {
    use MountPropagation::{PropagationBidirectional as Both, PropagationHostToContainer as Inwards};

    use super::*;

    #[test]
    fn the_innermost_mount_decides() {
        let mount = |target: &str, is_shared: bool, is_slave: bool| MountEntry {
            id: 1,
            target: target.into(),
            root: "/".into(),
            options: String::new(),
            is_shared,
            is_slave,
            fs_type: String::new(),
            source: String::new(),
            super_options: String::new(),
        };
        let mounts = [
            mount("/", true, false),
            mount("/slave", false, true),
            mount("/private", false, false),
            mount("/twice", true, false),
            mount("/twice", false, false),
        ];
        for (path, propagation, expect) in [
            ("/data", Both, Ok(())),
            ("/data", Inwards, Ok(())),
            ("/slave/data", Inwards, Ok(())),
            (
                "/slave/data",
                Both,
                Err(r#"path "/slave/data" is mounted on "/slave" but it is not a shared mount"#),
            ),
            (
                "/private",
                Inwards,
                Err(r#"path "/private" is mounted on "/private" but it is not a shared or slave mount"#),
            ),
            ("/twice", Both, Err(r#"path "/twice" is mounted on "/twice" but it is not a shared mount"#)),
            ("/privateer", Both, Ok(())),
        ] {
            let found = crosses(Path::new(path), propagation, &mounts).map_err(|refusal| refusal.to_string());
            assert_eq!(found, expect.map_err(str::to_owned), "{path}");
        }
    }
}
