//! On which disks what Pods write lies.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cri::{ImageService, v1};

use crate::config::eviction::Signal;

/// Folders, as far as they are known.
#[derive(Clone, Debug)]
pub(super) struct Folders {
    /// Volumes and logs.
    pub(super) root: PathBuf,
    /// Of the runtime.
    pub(super) images: Option<PathBuf>,
    /// What containers write into their own file systems.
    layers: Option<PathBuf>,
    /// The runtime has said.
    is_known: bool,
}

/// What tells one disk from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Devices {
    pub(super) root: u64,
    pub(super) images: u64,
    pub(super) layers: u64,
}

/// What of a Pod is on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// Its volumes and logs.
    pub(super) files: bool,
    /// What its containers write into their own file systems.
    pub(super) layers: bool,
}

impl Folders {
    /// That of the kubelet; nothing is known of the runtime's.
    pub(super) fn of(root: &Path) -> Self {
        Self { root: root.to_owned(), images: None, layers: None, is_known: false }
    }

    /// Asks the runtime, unless it has said already.
    pub(super) async fn ask(&mut self, runtime: &dyn ImageService) {
        if self.is_known {
            return;
        }
        match runtime.image_fs_info(v1::ImageFsInfoRequest {}).await {
            Ok(answer) => self.learn(answer),
            Err(error) => tracing::info!(%error, "the runtime does not say yet where images are"),
        }
    }

    fn learn(&mut self, answer: v1::ImageFsInfoResponse) {
        let first = |all: Vec<v1::FilesystemUsage>| {
            let folder = PathBuf::from(all.into_iter().next()?.fs_id?.mountpoint);
            Some(folder).filter(|folder| folder.exists())
        };
        self.is_known = !answer.image_filesystems.is_empty();
        self.images = first(answer.image_filesystems);
        self.layers = first(answer.container_filesystems);
    }

    /// Whether the runtime has said.
    pub(super) fn are_known(&self) -> bool {
        self.is_known
    }

    /// What is not known is where images are, and those are with volumes.
    pub(super) fn devices(&self) -> Devices {
        let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
        let root = device(&self.root).unwrap_or_default();
        let images = self.images.as_deref().and_then(device).unwrap_or(root);
        let layers = self.layers.as_deref().and_then(device).unwrap_or(images);
        Devices { root, images, layers }
    }
}

impl Devices {
    /// Whether images have a disk of their own. Source: `HasDedicatedImageFs`.
    pub(super) fn have_one_for_images(self) -> bool {
        self.images != self.root
    }

    /// What counts when the signal's disk is short. Source: `buildSignalToRankFunc`.
    pub(super) fn counted(self, signal: Signal) -> Counted {
        let disk = match signal {
            Signal::ImageFsAvailable | Signal::ImageFsInodesFree => self.images,
            _ => self.root,
        };
        Counted { files: disk == self.root, layers: disk == self.layers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_counts_with_what_it_has_on_the_disk_that_is_short() {
        let (node, images) = (Signal::NodeFsAvailable, Signal::ImageFsInodesFree);
        let table = [
            ("one disk", (1, 1, 1), node, (true, true)),
            ("one disk", (1, 1, 1), images, (true, true)),
            ("a disk for the runtime", (1, 2, 2), node, (true, false)),
            ("a disk for the runtime", (1, 2, 2), images, (false, true)),
            ("a disk for images alone", (1, 2, 1), node, (true, true)),
            ("a disk for images alone", (1, 2, 1), images, (false, false)),
        ];
        for (name, (root, images, layers), signal, (files, own)) in table {
            let counted = Devices { root, images, layers }.counted(signal);
            assert_eq!(counted, Counted { files, layers: own }, "{name} {signal:?}");
        }
    }

    fn answer(images: &[&Path], layers: &[&Path]) -> v1::ImageFsInfoResponse {
        let usage = |path: &&Path| v1::FilesystemUsage {
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: path.display().to_string() }),
            ..v1::FilesystemUsage::default()
        };
        v1::ImageFsInfoResponse {
            image_filesystems: images.iter().map(usage).collect(),
            container_filesystems: layers.iter().map(usage).collect(),
        }
    }

    #[test]
    fn what_the_runtime_does_not_say_is_where_the_rest_is() {
        let (here, proc, none) = (tempfile::tempdir().unwrap(), Path::new("/proc"), Path::new("/none/of/it"));
        let own = std::fs::metadata(here.path()).unwrap().dev();
        let other = std::fs::metadata(proc).unwrap().dev();
        for (name, images, layers, is_known, expect) in [
            ("nothing", &[][..], &[][..], false, (own, own)),
            ("images", &[proc], &[], true, (other, other)),
            ("both", &[proc], &[here.path()], true, (other, own)),
            ("several", &[here.path(), proc], &[proc, here.path()], true, (own, other)),
            ("a folder that is not there", &[none], &[none], true, (own, own)),
            ("containers alone", &[], &[proc], false, (own, other)),
        ] {
            let mut folders = Folders::of(here.path());
            folders.learn(answer(images, layers));
            let devices = folders.devices();
            assert_eq!(folders.are_known(), is_known, "{name}");
            assert_eq!((devices.root, devices.images, devices.layers), (own, expect.0, expect.1), "{name}");
            assert_eq!(devices.have_one_for_images(), expect.0 != own, "{name}");
        }
    }
}
