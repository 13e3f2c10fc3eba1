//! What became of a Pod's volumes, as it is written down, and how far one has come.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::resolve::Resolved;
use crate::pod::failure_reason::FailureReason;
use crate::volumes::error::VolumeError;

/// The file with what a Pod's volumes came to.
pub(super) const FILE: &str = "persistent.json";

/// What one volume came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Prepared {
    /// Where it is on the node.
    pub(crate) path: PathBuf,
    /// It is a device, not a folder.
    pub(crate) is_device: bool,
    /// Containers may only read it.
    pub(crate) read_only: bool,
    /// Whose it is; none if it is no driver's.
    #[serde(default)]
    pub(crate) driver: Option<String>,
    /// What the driver calls it.
    #[serde(default)]
    pub(crate) handle: String,
}

impl Prepared {
    pub(super) fn plain(path: PathBuf, resolved: &Resolved) -> Self {
        let is_device = resolved.is_device();
        Self { path, is_device, read_only: resolved.read_only, driver: None, handle: String::new() }
    }
}

pub(super) type All = BTreeMap<String, Prepared>;

/// What the Pod's volume came to, if it was prepared.
pub(crate) fn find(pod_dir: &Path, name: &str) -> Option<Prepared> {
    read(pod_dir).remove(name)
}

pub(super) fn read(pod_dir: &Path) -> All {
    let text = std::fs::read(pod_dir.join(FILE)).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// A reboot takes mounts and devices away and leaves the file that says they were there.
pub(super) fn is_there(known: &Prepared) -> bool {
    let is_own =
        known.path.components().any(|part| part.as_os_str() == "volumes" || part.as_os_str() == "plugins");
    if is_own {
        return sys::mount::is_mounted(&known.path).unwrap_or(false);
    }
    !known.is_device || known.path.exists()
}

/// How far a volume has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Attach,
    /// For the node.
    Stage,
    /// For the Pod.
    Publish,
}

impl Phase {
    /// Source: `GenerateMountVolumeFunc`, `GenerateMapVolumeFunc` of upstream's operation executor.
    pub(super) fn failed<E: Into<VolumeError>>(self, resolved: &Resolved) -> impl Fn(E) -> VolumeError {
        let (call, reason) = match (self, resolved.is_device()) {
            (Self::Attach, false) => ("MountVolume.WaitForAttach", FailureReason::FailedMount),
            (Self::Stage, false) => ("MountVolume.MountDevice", FailureReason::FailedMount),
            (Self::Publish, false) => ("MountVolume.SetUp", FailureReason::FailedMount),
            (Self::Attach, true) => ("MapVolume.WaitForAttach", FailureReason::FailedMapVolume),
            (Self::Stage, true) => ("MapVolume.SetUpDevice", FailureReason::FailedMapVolume),
            (Self::Publish, true) => ("MapVolume.MapPodDevice", FailureReason::FailedMapVolume),
        };
        move |error| {
            let (volume, source) = (resolved.name.clone(), Box::new(error.into()));
            VolumeError::Step { call, volume, reason, source }
        }
    }
}
