//! Volumes that an image declares: each is a folder beside the container's root file system, gone with the container.
//! It can be written to even if the root cannot, and another overlay can lie on it.
//!
//! Source: OCI image configuration, `Volumes`; containerd's `volumeMounts`.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use cri::v1;
use sys::userns::Mapping;

use crate::images::ImageConfig;
use crate::in_root;

const FOLDER: &str = "volumes";

/// Adds mounts to `config` for those that it mounts nothing else on. `dir` is the container's directory.
pub(crate) fn mount(
    dir: &Path,
    rootfs: &Path,
    mapping: Option<Mapping>,
    image: &ImageConfig,
    config: &mut v1::ContainerConfig,
) -> io::Result<()> {
    for (number, declared) in image.volumes.keys().enumerate() {
        let path = Path::new("/").join(declared);
        if config.mounts.iter().any(|mount| Path::new(&mount.container_path) == path) {
            continue;
        }
        let host_path = match found(rootfs, &path)? {
            Some(source) if has_entries(&source)? => source,
            template => make(&dir.join(FOLDER), number, template.as_deref(), mapping)?,
        };
        config.mounts.push(v1::Mount {
            container_path: path.to_string_lossy().into_owned(),
            host_path: host_path.to_string_lossy().into_owned(),
            ..v1::Mount::default()
        });
    }
    Ok(())
}

/// The folder of the image that is declared. It is the container's own already: what is in it need not be copied.
fn found(rootfs: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
    let inside = in_root::resolve(rootfs, path)?;
    let found = rootfs.join(inside.strip_prefix("/").unwrap_or(&inside));
    Ok(found.is_dir().then_some(found))
}

fn has_entries(folder: &Path) -> io::Result<bool> {
    Ok(std::fs::read_dir(folder)?.next().is_some())
}

/// An empty folder with owner and mode as in the image; root's if it has none there.
fn make(
    parent: &Path,
    number: usize,
    template: Option<&Path>,
    mapping: Option<Mapping>,
) -> io::Result<PathBuf> {
    std::fs::create_dir_all(parent)?;
    if let Some(mapping) = mapping {
        crate::userns::open_to(parent, mapping)?;
    }
    let folder = parent.join(number.to_string());
    std::fs::create_dir(&folder)?;
    let root = mapping.map_or((0, 0), |it| (it.first_uid, it.first_gid));
    let (owner, mode) = match template {
        Some(template) => {
            let found = template.metadata()?;
            ((found.uid(), found.gid()), found.mode() & 0o7777)
        }
        None => (root, 0o755),
    };
    chown(&folder, Some(owner.0), Some(owner.1))?;
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode))?;
    Ok(folder)
}
