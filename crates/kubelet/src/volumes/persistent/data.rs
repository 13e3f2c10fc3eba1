//! What is written beside a driver's volume, so that whoever takes it back knows whose it is.
//!
//! Source: `vol_data.json` of `pkg/volume/csi`; the paths are ours to add.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::volumes::error::VolumeError;
use crate::volumes::folder::write_note;

const FILE: &str = "vol_data.json";
const FOLDERS: [&str; 2] = ["volumes/kubernetes.io~csi", "volumeDevices/kubernetes.io~csi"];

/// Whose volume it is, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumeData {
    #[serde(rename = "specVolID")]
    pub(super) spec_vol_id: String,
    pub(super) volume_handle: String,
    pub(super) driver_name: String,
    pub(super) node_name: String,
    /// The VolumeAttachment's name; empty if the driver wants none.
    #[serde(rename = "attachmentID")]
    pub(super) attachment_id: String,
    /// `Persistent` or `Ephemeral`.
    pub(super) volume_lifecycle_mode: String,
    /// What NodePublishVolume was told; empty if it is sure that nothing is there.
    pub(super) target_path: PathBuf,
    /// What NodeStageVolume was told; none if the driver does not stage, or if it is sure that nothing is there.
    pub(super) staging_path: Option<PathBuf>,
}

impl VolumeData {
    /// Whether something may be at its target.
    pub(super) fn is_published(&self) -> bool {
        !self.target_path.as_os_str().is_empty()
    }

    /// Whether it is of the same volume.
    pub(super) fn is_of(&self, driver: &str, handle: &str) -> bool {
        self.driver_name == driver && self.volume_handle == handle
    }
}

/// A volume of a Pod on disk.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) folder: PathBuf,
    pub(super) data: VolumeData,
}

/// The folder of one volume of a Pod. Names of volumes that drivers have taken over may be paths. Source:
/// `EscapeQualifiedName`.
pub(super) fn folder(pod_dir: &Path, name: &str, is_device: bool) -> PathBuf {
    let [folders, devices] = FOLDERS;
    pod_dir.join(if is_device { devices } else { folders }).join(name.replace('/', "~"))
}

/// Writes what is known, all or nothing.
pub(super) fn write(folder: &Path, data: &VolumeData) -> Result<(), VolumeError> {
    write_note(folder, FILE, data)
}

/// What is known of the volume in that folder.
pub(super) fn read(folder: &Path) -> Option<VolumeData> {
    let text = std::fs::read(folder.join(FILE)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// What is known of one volume for other Pods than the one whose folder it is.
pub(super) fn elsewhere(root_dir: &Path, folder: &Path, (driver, handle): (&str, &str)) -> Vec<VolumeData> {
    let others = of_node(root_dir).into_iter().filter(|found| found.folder != folder);
    others.map(|found| found.data).filter(|data| data.is_of(driver, handle)).collect()
}

/// Every driver's volume of the Pod with that folder.
pub(super) fn of_pod(pod_dir: &Path) -> Vec<Found> {
    let mut all = Vec::new();
    for folder in FOLDERS.map(|folder| pod_dir.join(folder)) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let folder = entry.path();
            if let Some(data) = read(&folder) {
                all.push(Found { folder, data });
            }
        }
    }
    all.sort_by(|a, b| a.folder.cmp(&b.folder));
    all
}

/// Every driver's volume of every Pod.
pub(super) fn of_node(root_dir: &Path) -> Vec<Found> {
    let pods = std::fs::read_dir(root_dir.join("pods")).into_iter().flatten().flatten();
    pods.flat_map(|pod| of_pod(&pod.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let pod = dir.path().join("pods/u");
        let data = VolumeData { driver_name: "d".into(), volume_handle: "h".into(), ..VolumeData::default() };
        write(&folder(&pod, "pv", false), &data).unwrap();
        write(&folder(&pod, "raw", true), &data).unwrap();
        write(&folder(&pod, "/disks/one", false), &data).unwrap();
        std::fs::create_dir_all(folder(&pod, "half", false)).unwrap();
        let found: Vec<_> = of_node(dir.path()).into_iter().map(|found| found.folder).collect();
        let disk = pod.join("volumes/kubernetes.io~csi/~disks~one");
        assert_eq!(found, [folder(&pod, "raw", true), folder(&pod, "pv", false), disk]);
    }
}
