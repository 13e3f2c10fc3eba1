//! Images as volumes: their layers together, read-only and with nothing to run, below the container's own directory.
//!
//! Source: CRI `Mount.image` and `Mount.image_sub_path` (KEP-4639). What the image is made of stays as long as the
//! container does. A sub path is found by the kernel with links confined to the image.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use cri::{CriError, CriResult, v1};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open};
use nix::sys::stat::Mode;

use crate::images::{Image, ImageStore};
use crate::state::internal;

/// Mounts what `config` asks for below `dir`, and makes mounts of directories of them. Returns the layers in use.
///
/// # Errors
/// They begin as kubelets know them.
pub(crate) fn mount(
    images: &ImageStore,
    dir: &Path,
    config: &mut v1::ContainerConfig,
) -> CriResult<Vec<String>> {
    let failed = |why: String| format!("{}: {why}", cri::IMAGE_VOLUME_FAILED);
    mount_all(images, dir, config).map_err(|error| match error {
        CriError::NotFound(why) => CriError::NotFound(failed(why)),
        CriError::InvalidArgument(why) => CriError::InvalidArgument(failed(why)),
        other => CriError::Internal(failed(other.to_string())),
    })
}

fn mount_all(images: &ImageStore, dir: &Path, config: &mut v1::ContainerConfig) -> CriResult<Vec<String>> {
    let mut layers = Vec::new();
    for (number, mount) in config.mounts.iter_mut().enumerate() {
        let Some(name) = mount.image.as_ref().map(|it| it.image.clone()).filter(|it| !it.is_empty()) else {
            continue;
        };
        let image = images
            .find(&name)
            .ok_or_else(|| CriError::NotFound(format!("image {name:?} of a volume is not present")))?;
        let target = dir.join("image-volumes").join(number.to_string());
        mount_image(images, &image, &target)?;
        let path = sub_path(&target, &mount.image_sub_path).map_err(|errno| {
            CriError::InvalidArgument(format!(
                "image {name:?} of a volume has no {:?}: {errno}",
                mount.image_sub_path
            ))
        })?;
        mount.host_path = path.to_string_lossy().into_owned();
        mount.readonly = true;
        layers.extend(image.layers);
    }
    Ok(layers)
}

fn mount_image(images: &ImageStore, image: &Image, target: &Path) -> CriResult<()> {
    std::fs::create_dir_all(target).map_err(internal)?;
    let lower = images.lower_dirs(image);
    let options =
        sys::mount::BindOptions { recursive: false, read_only: true, no_suid_no_dev: true, no_exec: true };
    match lower.as_slice() {
        [] => Ok(()),
        // An overlay needs two directories at least.
        [only] => sys::mount::bind(only, target, options).map_err(internal),
        _ => sys::mount::overlay(&lower, None, target).map_err(internal),
    }
}

fn sub_path(root: &Path, sub: &str) -> nix::Result<PathBuf> {
    if sub.is_empty() {
        return Ok(root.to_owned());
    }
    let dir: OwnedFd = open(root, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let found = sys::descriptors::open_scoped(&dir, sub, how)?;
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    std::fs::read_link(link).map_err(|_| nix::Error::ENOENT)
}
