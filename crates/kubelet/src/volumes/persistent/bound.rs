//! A Pod's own place for what is there for all Pods of the node.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use sys::mount::BindOptions;

use super::ownership;
use super::prepared::Prepared;
use super::resolve::Resolved;
use crate::volumes::error::{VolumeError, at};

/// The folder of a volume that a plugin of upstream's name has for the Pod, as the kernel lists it when it is mounted.
pub(super) fn folder(pod_dir: &Path, plugin: &str, name: &str) -> Result<PathBuf, VolumeError> {
    let path = pod_dir.join("volumes").join(plugin).join(name);
    std::fs::create_dir_all(&path).map_err(at("mkdir", &path))?;
    path.canonicalize().map_err(at("find", &path))
}

/// Binds `source` to the Pod's folder, whose files are its group's then.
pub(super) async fn bind(
    pod: &Pod,
    source: &Path,
    pod_dir: &Path,
    plugin: &str,
    resolved: &Resolved,
) -> Result<Prepared, VolumeError> {
    let path = folder(pod_dir, plugin, &resolved.name)?;
    if !sys::mount::is_mounted(&path)? {
        let options = BindOptions { read_only: resolved.read_only, ..BindOptions::default() };
        sys::mount::bind(source, &path, options)?;
    }
    if !resolved.read_only {
        ownership::apply_for(pod, &path).await?;
    }
    Ok(Prepared::plain(path, resolved))
}
