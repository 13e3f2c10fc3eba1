//! Carries out what [`super`] decides: every five minutes, as nothing tells when a disk fills up.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use controller::{EventType, Informer};
use cri::{CriError, v1};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::{Candidate, Disk, Records};
use crate::images::Images;
use crate::metrics::Count;
use crate::pod::needed_images::in_volumes;

/// Source: `ImageGCPeriod` of upstream.
const PERIOD: Duration = Duration::from_secs(300);

/// Why a collection has not done what it should.
#[derive(Debug, thiserror::Error)]
enum GcError {
    #[error("{0}")]
    Runtime(#[from] CriError),
    #[error("invalid capacity 0 on image filesystem")]
    Capacity,
    #[error("cannot read the size of the image filesystem: {0}")]
    Disk(std::io::Error),
    #[error(
        "wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {first}"
    )]
    Removal { wanted: u64, freed: u64, first: CriError },
    #[error("{0}")]
    TooLittle(String),
}

/// Those who want all unused images gone at once, because the disk is all but full.
pub(crate) struct Requests {
    sender: mpsc::Sender<oneshot::Sender<()>>,
    /// Until the collector takes it.
    receiver: Mutex<Option<mpsc::Receiver<oneshot::Sender<()>>>>,
}

impl Default for Requests {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(1);
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Requests {
    /// Waits until every image is gone that nobody uses.
    pub(crate) async fn all_unused(&self) {
        let (done, is_done) = oneshot::channel();
        if self.sender.send(done).await.is_err() || is_done.await.is_err() {
            tracing::debug!("nobody collects images");
        }
    }
}

/// Collects until the kubelet stops.
pub(crate) async fn run(store: Arc<Images>, pods: Informer<Pod>) {
    let began = store.clock.now();
    let mut collector = Collector { store: store.clone(), pods, records: Records::default(), began };
    let mut has_failed = false;
    let Some(mut requests) = store.image_requests.receiver.lock().take() else { return };
    loop {
        match collector.collect().await {
            Ok(()) => has_failed = false,
            Err(error) => {
                tracing::warn!(%error, "image garbage collection failed");
                // Once may happen, as upstream has it: only failures in a row are told.
                if has_failed {
                    collector.event("ImageGCFailed", error.to_string());
                }
                has_failed = true;
            }
        }
        let wanted = tokio::time::timeout(PERIOD, requests.recv()).await;
        if let Ok(Some(done)) = wanted {
            if let Err(error) = collector.collect_all().await {
                tracing::warn!(%error, "not all unused images were removed");
            }
            if done.send(()).is_err() {
                tracing::debug!("who wanted images gone has not waited");
            }
        }
    }
}

/// Puts the records of pulls in order. Before the first Pod.
pub(crate) async fn recover(store: &Images) {
    let now = store.clock.now();
    match images(store).await {
        Ok(images) => store.pulls.records.recover(images, now).await,
        Err(error) => tracing::warn!(%error, "the runtime did not list its images"),
    }
}

async fn images(store: &Images) -> Result<Vec<v1::Image>, CriError> {
    Ok(store.images.list_images(v1::ListImagesRequest { filter: None }).await?.images)
}

struct Collector {
    store: Arc<Images>,
    pods: Informer<Pod>,
    records: Records,
    began: Timestamp,
}

impl Collector {
    async fn collect(&mut self) -> Result<(), GcError> {
        let (images, in_use) = (images(&self.store).await?, self.in_use().await?);
        let now = self.store.clock.now();
        self.records.detect(&images, &in_use, now);
        let policy = self.store.config.image_gc.clone();
        let old = self.records.too_old(&policy, self.began, now);
        self.free(&old, u64::MAX, "age").await?;
        let disk = self.disk().await?;
        if let Some(wanted) = disk.to_free(&policy) {
            let gone: BTreeSet<String> = old.into_iter().map(|candidate| candidate.id).collect();
            let mut candidates = self.records.to_make_room(&policy, now);
            candidates.retain(|candidate| !gone.contains(&candidate.id));
            let freed = self.free(&candidates, wanted, "space").await?;
            if freed < wanted {
                let complaint = disk.complaint(freed);
                self.event("FreeDiskSpaceFailed", complaint.clone());
                return Err(GcError::TooLittle(complaint));
            }
        }
        self.store.pulls.records.prune(self.records.ids(), now).await;
        Ok(())
    }

    /// Everything that nobody uses. Source: `DeleteUnusedImages` of upstream.
    async fn collect_all(&mut self) -> Result<(), GcError> {
        let (images, in_use) = (images(&self.store).await?, self.in_use().await?);
        let now = self.store.clock.now();
        self.records.detect(&images, &in_use, now);
        let candidates = self.records.to_make_room(&self.store.config.image_gc, now);
        self.free(&candidates, u64::MAX, "space").await.map(drop)
    }

    /// Ids and names of images that containers and volumes use.
    async fn in_use(&self) -> Result<BTreeSet<String>, CriError> {
        let request = v1::ListContainersRequest { filter: None };
        let containers = self.store.runtime.list_containers(request).await?.containers;
        let of_containers = containers.into_iter().flat_map(|container| {
            [container.image_id, container.image_ref, container.image.unwrap_or_default().image]
        });
        self.pods.synced().await;
        let volumes: Vec<String> = self.pods.list().iter().flat_map(|pod| in_volumes(pod)).collect();
        let full = |name: String| name.parse().map_or(name, |it: registry::Reference| it.to_string());
        Ok(of_containers.chain(volumes.into_iter().map(full)).filter(|name| !name.is_empty()).collect())
    }

    /// Removes candidates until `wanted` bytes are free; returns how many became so.
    async fn free(&self, candidates: &[Candidate], wanted: u64, reason: &str) -> Result<u64, GcError> {
        let (mut freed, mut first) = (0_u64, None);
        for Candidate { id, size } in candidates {
            if freed >= wanted {
                break;
            }
            let image = v1::ImageSpec { image: id.clone(), ..v1::ImageSpec::default() };
            match self.store.images.remove_image(v1::RemoveImageRequest { image: Some(image) }).await {
                Ok(_) => {
                    tracing::info!(image = id, bytes = size, "removed an unused image");
                    self.store.metrics.count(Count::ImagesCollected, &[reason]);
                    freed = freed.saturating_add(*size);
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        match first {
            Some(first) => Err(GcError::Removal { wanted, freed, first }),
            None => Ok(freed),
        }
    }

    async fn disk(&self) -> Result<Disk, GcError> {
        let info = self.store.images.image_fs_info(v1::ImageFsInfoRequest {}).await?;
        let mount_point = info.image_filesystems.into_iter().next().and_then(|it| it.fs_id);
        let path = PathBuf::from(mount_point.unwrap_or_default().mountpoint);
        let looked = tokio::task::spawn_blocking(move || nix::sys::statvfs::statvfs(&path));
        let stat = looked.await.map_err(|error| GcError::Disk(std::io::Error::other(error)))?;
        let stat = stat.map_err(|errno| GcError::Disk(errno.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
        let disk = Disk { capacity: bytes(stat.blocks()), available: bytes(stat.blocks_available()) };
        if disk.capacity == 0 {
            self.event("InvalidDiskCapacity", GcError::Capacity.to_string());
            return Err(GcError::Capacity);
        }
        Ok(disk)
    }

    fn event(&self, reason: &str, message: String) {
        let name = &self.store.config.node_name;
        let regarding = ObjectReference {
            kind: Some("Node".into()),
            name: Some(name.clone()),
            uid: Some(name.clone()),
            ..ObjectReference::default()
        };
        self.store.recorder.event(regarding, EventType::Warning, reason, message);
    }
}
