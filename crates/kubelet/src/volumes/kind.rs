//! What each kind of volume is to the kubelet: a row per kind. How it is made and filled is in the kind's own file.
//!
//! A kind that is not here is [`super::refused`], or nobody knows it.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Volume;

use super::error::{Specific, VolumeError};
use super::{VolumeInput, empty_dir, host_path, payload, persistent};

/// A kind of volume.
struct Kind {
    is: fn(&Volume) -> bool,
    content: Content,
    place: Place,
}

/// Who makes what is in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The kubelet: containers may only read it.
    Managed,
    /// The Pod's containers, for as long as it lives.
    Scratch,
    /// Others; it outlives the Pod.
    Foreign,
}

/// Where a volume is.
enum Place {
    /// In a folder of the Pod's, named for upstream's plugin, which a function makes or brings up to date.
    Own(&'static str, fn(&Path, &Volume, &VolumeInput) -> Result<(), VolumeError>),
    /// Where the one function finds it, of a Pod with that folder, after the other has said that it may.
    Elsewhere(fn(&Path, &Volume) -> Option<PathBuf>, fn(&Volume) -> Result<(), VolumeError>),
}

static KINDS: [Kind; 8] = [
    Kind {
        is: |volume| volume.host_path.is_some(),
        content: Content::Foreign,
        place: Place::Elsewhere(host_path::path, host_path::prepare),
    },
    Kind {
        is: persistent::is_persistent,
        content: Content::Foreign,
        // Prepared before the others.
        place: Place::Elsewhere(persistent::path, |_| Ok(())),
    },
    Kind {
        is: |volume| volume.image.is_some(),
        content: Content::Foreign,
        // The runtime mounts it, into each container.
        place: Place::Elsewhere(|_, _| None, |_| Ok(())),
    },
    Kind {
        is: |volume| volume.empty_dir.is_some(),
        content: Content::Scratch,
        place: Place::Own("kubernetes.io~empty-dir", empty_dir::prepare),
    },
    Kind {
        is: |volume| volume.config_map.is_some(),
        content: Content::Managed,
        place: Place::Own("kubernetes.io~configmap", payload::on_disk),
    },
    Kind {
        is: |volume| volume.secret.is_some(),
        content: Content::Managed,
        place: Place::Own("kubernetes.io~secret", payload::in_memory),
    },
    Kind {
        is: |volume| volume.downward_api.is_some(),
        content: Content::Managed,
        place: Place::Own("kubernetes.io~downward-api", payload::on_disk),
    },
    Kind {
        is: |volume| volume.projected.is_some(),
        content: Content::Managed,
        place: Place::Own("kubernetes.io~projected", payload::in_memory),
    },
];

/// A volume of no kind that this kubelet knows.
#[derive(Debug, thiserror::Error)]
#[error("no volume plugin matched")]
struct NoPlugin;

impl Specific for NoPlugin {}

/// Makes a volume, or brings it up to date.
pub(super) fn prepare(input: &VolumeInput, volume: &Volume) -> Result<(), VolumeError> {
    match of(volume).ok_or(NoPlugin)?.place {
        Place::Own(plugin, make) => make(&own_folder(&input.pod_dir, plugin, volume), volume, input),
        Place::Elsewhere(_, check) => check(volume),
    }
}

/// Where a volume's content is; `None` if this kubelet does not know the kind, or has not prepared it.
pub(crate) fn volume_path(pod_dir: &Path, volume: &Volume) -> Option<PathBuf> {
    match of(volume)?.place {
        Place::Own(plugin, _) => Some(own_folder(pod_dir, plugin, volume)),
        Place::Elsewhere(find, _) => find(pod_dir, volume),
    }
}

/// Who makes what is in the volume: others, if nobody knows the kind.
pub(crate) fn content(volume: &Volume) -> Content {
    of(volume).map_or(Content::Foreign, |kind| kind.content)
}

fn of(volume: &Volume) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| (kind.is)(volume))
}

fn own_folder(pod_dir: &Path, plugin: &str, volume: &Volume) -> PathBuf {
    pod_dir.join("volumes").join(plugin).join(&volume.name)
}

#[cfg(test)]
mod tests;
