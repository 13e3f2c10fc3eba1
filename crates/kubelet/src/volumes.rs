//! A Pod's volumes on the node: directories, files, mounts, and what of them each container sees.
//!
//! Everything lies below the Pod's own directory, laid out as upstream does
//! (`volumes/kubernetes.io~<type>/<name>`), so that one removal takes all of it back. Blocking: call it from a
//! blocking task. Preparing again updates what has changed and leaves the rest alone.

mod atomic;
pub(crate) mod certificates;
pub(crate) mod csi;
mod empty_dir;
pub(crate) mod error;
mod folder;
mod host_path;
pub(crate) mod mounts;
pub(crate) mod objects;
mod payload;
pub(crate) mod pem;
pub(crate) mod persistent;
mod refused;
mod sub_path;
mod trust_bundles;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodSpec, Volume};

use crate::context::Context;
use crate::pod::env::EnvSources;
use certificates::Issued;
use error::{Specific, VolumeError, at};
use folder::make_dir;
pub(crate) use folder::tear_down;
pub(crate) use payload::{TokenKey, references, token_keys};
pub(crate) use trust_bundles::are_mounted as mounts_trust_bundles;

/// What the volumes of all Pods share.
pub(crate) struct Volumes {
    pub(crate) context: Arc<Context>,
    /// ConfigMaps and Secrets that Pods name.
    pub(crate) objects: objects::Registers,
    /// Certificates of Pods.
    pub(crate) certificates: certificates::All,
    /// The drivers of this node.
    pub(crate) csi: csi::Drivers,
}

impl Deref for Volumes {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

/// What volumes are filled from.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeInput {
    /// The Pod's own directory.
    pub(crate) pod_dir: PathBuf,
    /// ConfigMaps, Secrets and the Pod.
    pub(crate) sources: EnvSources,
    /// Service account tokens by audience and lifetime.
    pub(crate) tokens: BTreeMap<TokenKey, String>,
    /// Certificates by volume and source.
    pub(crate) certificates: Issued,
}

/// Makes or updates every volume of the Pod.
///
/// # Errors
/// In upstream's words, with the volume.
pub(crate) fn prepare(input: &VolumeInput) -> Result<(), VolumeError> {
    let empty = PodSpec::default();
    let spec = input.sources.pod.spec.as_ref().unwrap_or(&empty);
    make_dir(&input.pod_dir, 0o750)?;
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        make_dir(&input.pod_dir.join("containers").join(&container.name), 0o750)?;
    }
    for volume in spec.volumes.iter().flatten() {
        refused::inline(volume)?;
        prepare_one(input, spec, volume).map_err(VolumeError::step("MountVolume.SetUp", &volume.name))?;
    }
    Ok(())
}

/// A volume of no kind that this kubelet knows.
#[derive(Debug, thiserror::Error)]
#[error("no volume plugin matched")]
struct NoPlugin;

impl Specific for NoPlugin {}

fn prepare_one(input: &VolumeInput, spec: &PodSpec, volume: &Volume) -> Result<(), VolumeError> {
    if persistent::is_persistent(volume) {
        return Ok(());
    }
    if let Some(source) = &volume.host_path {
        return host_path::check(source);
    }
    // The runtime mounts it, into each container.
    if volume.image.is_some() {
        return Ok(());
    }
    let Some(path) = volume_path(&input.pod_dir, volume) else {
        return Err(NoPlugin.into());
    };
    let allocatable = input.sources.allocatable.get("memory").copied();
    if let Some(source) = &volume.empty_dir {
        return empty_dir::prepare(&path, source, spec, allocatable);
    }
    let files = payload::files(volume, input)?;
    make_dir(&path, 0o777)?;
    if volume.secret.is_some() || volume.projected.is_some() {
        empty_dir::mount_memory(&path, empty_dir::memory_size(None, spec, allocatable), None)?;
    }
    let fs_group = spec.security_context.as_ref().and_then(|c| c.fs_group);
    atomic::write(&path, &files, fs_group).map_err(at("write", &path))
}

/// Where a volume's content is; `None` if this kubelet does not know the type, or has not prepared it.
pub(crate) fn volume_path(pod_dir: &Path, volume: &Volume) -> Option<PathBuf> {
    if let Some(source) = &volume.host_path {
        return Some(PathBuf::from(&source.path));
    }
    if persistent::is_persistent(volume) {
        return persistent::find(pod_dir, &volume.name).map(|prepared| prepared.path);
    }
    let plugin = if volume.empty_dir.is_some() {
        "kubernetes.io~empty-dir"
    } else if volume.config_map.is_some() {
        "kubernetes.io~configmap"
    } else if volume.secret.is_some() {
        "kubernetes.io~secret"
    } else if volume.downward_api.is_some() {
        "kubernetes.io~downward-api"
    } else if volume.projected.is_some() {
        "kubernetes.io~projected"
    } else {
        return None;
    };
    Some(pod_dir.join("volumes").join(plugin).join(&volume.name))
}

#[cfg(test)]
mod tests;
