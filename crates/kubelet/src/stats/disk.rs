//! Bytes and inodes on disk: of file systems, and of a Pod's folders. Blocking.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use sys::tree::{Size, size};

use crate::volumes::{Content, content, volume_path};

/// Bytes that a Pod has on the node's disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DiskUse {
    /// By container, what its own limit is about.
    pub(crate) containers: BTreeMap<String, i64>,
    /// By emptyDir volume.
    pub(crate) empty_dirs: BTreeMap<String, i64>,
    /// What else the kubelet made for it.
    pub(crate) others: i64,
}

/// What a Pod has on the node's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodDisk {
    /// By container.
    pub(crate) logs: BTreeMap<String, Size>,
    /// By volume that the kubelet has filled; those of claims and drivers are looked at elsewhere.
    pub(crate) volumes: BTreeMap<String, Size>,
    /// Volumes that are no emptyDir, or one in memory: they are not the Pod's to fill.
    pub(crate) foreign: BTreeSet<String>,
    /// Everything else in the Pod's folder.
    pub(crate) others: Size,
    /// How long it took to look at each of the volumes.
    pub(crate) looks: Vec<Duration>,
}

/// What containers have written into a Pod's folder of logs, by their names.
pub(crate) fn logs(log_dir: &Path) -> BTreeMap<String, Size> {
    let entries = std::fs::read_dir(log_dir).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), size(&entry.path()))).collect()
}

/// Looks at a Pod's folders.
pub(crate) fn of_pod(pod_dir: &Path, log_dir: &Path, pod: &Pod) -> PodDisk {
    let mut disk = PodDisk { logs: logs(log_dir), ..PodDisk::default() };
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        if content(volume) == Content::Foreign {
            continue;
        }
        let Some(path) = volume_path(pod_dir, volume).filter(|path| path.starts_with(pod_dir)) else {
            continue;
        };
        let start = Instant::now();
        disk.volumes.insert(volume.name.clone(), size(&path));
        disk.looks.push(start.elapsed());
        let is_on_disk = volume
            .empty_dir
            .as_ref()
            .is_some_and(|source| source.medium.as_deref().unwrap_or_default().is_empty());
        if !is_on_disk {
            disk.foreign.insert(volume.name.clone());
        }
    }
    // Not `volume-subpaths`: parts of volumes are mounted there, which have been counted, or are not the Pod's.
    for part in ["etc-hosts", "containers"] {
        disk.others = disk.others.plus(size(&pod_dir.join(part)));
    }
    disk
}

impl PodDisk {
    /// As limits look at it. `layers` are the containers' writable layers.
    pub(crate) fn limited(&self, layers: &BTreeMap<String, u64>) -> DiskUse {
        let mut used = self.limited_apart(&BTreeMap::new());
        for (name, bytes) in layers {
            let own = used.containers.entry(name.clone()).or_default();
            *own = own.saturating_add(number(*bytes));
        }
        used
    }

    /// The same where layers are on a disk of their own: they count for the Pod, but not for their containers' limits.
    /// Source: `containerEphemeralStorageLimitEviction` of upstream.
    pub(crate) fn limited_apart(&self, layers: &BTreeMap<String, u64>) -> DiskUse {
        let containers = self.logs.iter().map(|(name, log)| (name.clone(), number(log.bytes))).collect();
        let own = self.volumes.iter().filter(|(name, _)| !self.foreign.contains(*name));
        DiskUse {
            containers,
            empty_dirs: own.map(|(name, tree)| (name.clone(), number(tree.bytes))).collect(),
            others: number(layers.values().sum::<u64>().saturating_add(self.others.bytes)),
        }
    }
}

fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::file_system::file_system;

    #[test]
    fn parts_of_volumes_that_are_mounted_again_do_not_count_again() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![1_u8; 100_000]).unwrap();
        };
        write("volumes/kubernetes.io~empty-dir/scratch/file");
        write("volume-subpaths/scratch/main/0/file");
        write("containers/main/0.msg");
        let pod =
            serde_saphyr::from_str("{spec: {containers: [], volumes: [{name: scratch, emptyDir: {}}]}}");
        let disk = of_pod(folder.path(), Path::new("/not/there"), &pod.unwrap());
        let layers = [("main".to_owned(), 7)].into();
        let of_pod = |used: DiskUse| used.others + used.containers.values().sum::<i64>();
        let (together, apart) = (disk.limited(&layers), disk.limited_apart(&layers));
        assert_eq!((together.containers.get("main"), apart.containers.get("main")), (Some(&7), None));
        assert_eq!(of_pod(together), of_pod(apart));
        let counted = |size: Size| size.bytes / 100_000;
        assert_eq!((counted(disk.volumes["scratch"]), counted(disk.others)), (1, 1), "{disk:?}");
        assert!(file_system(folder.path()).unwrap().capacity > 0);
    }

    /// Source: `localStorageEviction` of upstream's `pkg/kubelet/eviction`.
    #[test]
    fn limits_are_about_what_is_the_pods_own() {
        let size = |bytes: u64| Size { bytes, inodes: 1 };
        let disk = PodDisk {
            logs: [("a".to_owned(), size(10)), ("b".to_owned(), size(20))].into(),
            volumes: [("scratch".to_owned(), size(100)), ("memory".to_owned(), size(1000))].into(),
            foreign: ["memory".to_owned()].into(),
            others: size(5),
            ..PodDisk::default()
        };
        for (name, layers, together, apart) in [
            ("no layers", &[][..], (&[("a", 10), ("b", 20)][..], 5), (&[("a", 10), ("b", 20)][..], 5)),
            ("of one", &[("a", 7)], (&[("a", 17), ("b", 20)], 5), (&[("a", 10), ("b", 20)], 12)),
            (
                "of one without a log",
                &[("c", 7)],
                (&[("a", 10), ("b", 20), ("c", 7)], 5),
                (&[("a", 10), ("b", 20)], 12),
            ),
            (
                "too large",
                &[("a", u64::MAX)],
                (&[("a", i64::MAX), ("b", 20)], 5),
                (&[("a", 10), ("b", 20)], i64::MAX),
            ),
        ] {
            let layers =
                layers.iter().map(|(name, bytes): &(&str, u64)| ((*name).to_owned(), *bytes)).collect();
            let expect = |(containers, others): (&[(&str, i64)], i64)| DiskUse {
                containers: containers.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect(),
                empty_dirs: [("scratch".to_owned(), 100)].into(),
                others,
            };
            assert_eq!(disk.limited_apart(&layers), expect(apart), "{name}");
            assert_eq!(disk.limited(&layers), expect(together), "{name}");
        }
    }
}
