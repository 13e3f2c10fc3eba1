//! What became of a Pod's volumes, as it is written down, and how far one has come.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
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
    /// The group that its files are for, as its object says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<i64>,
}

impl Prepared {
    pub(super) fn plain(path: PathBuf, resolved: &Resolved) -> Self {
        let is_device = resolved.is_device();
        let (read_only, group) = (resolved.read_only, resolved.group());
        Self { path, is_device, read_only, driver: None, handle: String::new(), group }
    }
}

pub(super) type All = BTreeMap<String, Prepared>;

/// What the Pod's volume came to, if it was prepared.
pub(crate) fn find(pod_dir: &Path, name: &str) -> Option<Prepared> {
    read(pod_dir).remove(name)
}

/// The groups that the files of the Pod's volumes are for, beside those that it has itself.
///
/// Source: `GetExtraSupplementalGroupsForPod` of upstream's `pkg/kubelet/volumemanager`.
pub(crate) fn extra_groups(pod_dir: &Path, pod: &Pod) -> Vec<i64> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let own = context.and_then(|context| context.supplemental_groups.as_deref()).unwrap_or_default();
    let groups: BTreeSet<i64> = read(pod_dir).into_values().filter_map(|known| known.group).collect();
    groups.into_iter().filter(|group| !own.contains(group)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(context: &str) -> Pod {
        serde_saphyr::from_str(&format!("{{spec: {{containers: [], securityContext: {context}}}}}")).unwrap()
    }

    /// Source: `TestGetExtraSupplementalGroupsForPod` of upstream's `pkg/kubelet/volumemanager`.
    #[test]
    fn a_pod_has_the_groups_that_its_volumes_files_are_for() {
        for (name, all, context, expect) in [
            ("one", r#"{"a":777}"#, "{supplementalGroups: [5]}", &[777][..]),
            ("one that it has", r#"{"a":5}"#, "{supplementalGroups: [5]}", &[]),
            ("without any of its own", r#"{"a":777}"#, "{}", &[777]),
            ("nobody says", r#"{"a":null}"#, "{}", &[]),
            ("several, one twice", r#"{"a":9,"b":777,"c":9,"d":null}"#, "{}", &[9, 777]),
            ("the Pod's own group is another matter", r#"{"a":7}"#, "{fsGroup: 7}", &[7]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let groups: BTreeMap<String, Option<i64>> = serde_json::from_str(all).unwrap();
            let of = |(name, group): (String, Option<i64>)| {
                let path = PathBuf::from("/volumes").join(&name);
                let handle = String::new();
                (name, Prepared { path, is_device: false, read_only: false, driver: None, handle, group })
            };
            let all: All = groups.into_iter().map(of).collect();
            std::fs::write(folder.path().join(FILE), serde_json::to_vec(&all).unwrap()).unwrap();
            assert_eq!(extra_groups(folder.path(), &pod(context)), expect, "{name}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(extra_groups(folder.path(), &pod("{}")).is_empty(), "it has no such volumes");
        // As a kubelet before this one has written it.
        let old = r#"{"a":{"path":"/volumes/a","isDevice":false,"readOnly":true,"driver":"d","handle":"h"}}"#;
        std::fs::write(folder.path().join(FILE), old).unwrap();
        assert!(find(folder.path(), "a").is_some_and(|known| known.read_only && known.group.is_none()));
        assert!(extra_groups(folder.path(), &pod("{}")).is_empty());
    }

    #[test]
    fn failures_are_told_by_the_step_and_the_mode() {
        let resolved = |mode: &str| Resolved {
            name: "pv".to_owned(),
            own_name: "data".to_owned(),
            source: super::super::resolve::Source::HostPath(Default::default()),
            volume: serde_saphyr::from_str(&format!("{{spec: {{volumeMode: {mode}}}}}")).unwrap(),
            claim: None,
            read_only: false,
        };
        for (phase, mode, expect) in [
            (Phase::Attach, "Filesystem", "MountVolume.WaitForAttach failed for volume \"pv\""),
            (Phase::Stage, "Filesystem", "MountVolume.MountDevice failed for volume \"pv\""),
            (Phase::Publish, "Filesystem", "MountVolume.SetUp failed for volume \"pv\""),
            (Phase::Attach, "Block", "MapVolume.WaitForAttach failed for volume \"pv\""),
            (Phase::Stage, "Block", "MapVolume.SetUpDevice failed for volume \"pv\""),
            (Phase::Publish, "Block", "MapVolume.MapPodDevice failed for volume \"pv\""),
        ] {
            let error = phase.failed(&resolved(mode))(VolumeError::NotAttached("pv".into()));
            assert!(error.to_string().starts_with(expect), "{error}");
            let reason =
                if mode == "Block" { FailureReason::FailedMapVolume } else { FailureReason::FailedMount };
            assert_eq!(error.reason(), reason, "{error}");
        }
    }
}
