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
mod kind;
pub(crate) mod mounts;
pub(crate) mod objects;
mod payload;
pub(crate) mod pem;
pub(crate) mod persistent;
mod refused;
mod sub_path;
mod trust_bundles;
pub(crate) mod upkeep;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::PodSpec;

use crate::context::Context;
use crate::pod::env::EnvSources;
use certificates::Issued;
use error::VolumeError;
use folder::make_dir;
pub(crate) use folder::tear_down;
pub(crate) use kind::{Content, content, volume_path};
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

impl VolumeInput {
    fn spec(&self) -> &PodSpec {
        static EMPTY: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);
        self.sources.pod.spec.as_ref().unwrap_or(&EMPTY)
    }

    /// Bytes that the node gives to Pods.
    fn allocatable_memory(&self) -> Option<i64> {
        self.sources.allocatable.get("memory").copied()
    }
}

/// Makes or updates every volume of the Pod.
///
/// # Errors
/// In upstream's words, with the volume.
pub(crate) fn prepare(input: &VolumeInput) -> Result<(), VolumeError> {
    let spec = input.spec();
    make_dir(&input.pod_dir, 0o750)?;
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        make_dir(&input.pod_dir.join("containers").join(&container.name), 0o750)?;
    }
    for volume in spec.volumes.iter().flatten() {
        refused::inline(volume)?;
        kind::prepare(input, volume).map_err(VolumeError::step("MountVolume.SetUp", &volume.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
