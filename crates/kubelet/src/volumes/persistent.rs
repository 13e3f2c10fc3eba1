//! Volumes that outlive the node's files, or that a driver makes: of claims, of CSI drivers inline, of NFS and iSCSI.
//!
//! They are prepared before the rest, each asks the API what it is, and what they came to is written beside them
//! (`persistent.json`), so that containers that are started later find them without asking again. Taking back goes by
//! what is on disk alone.

mod prepared;
mod resolve;

mod csi_volume;
mod iscsi;
mod local;
mod nfs;

mod attach;
mod bound;
mod data;
mod expand;
mod format;
mod ownership;
mod request;
mod stats;
mod wishes;

use std::path::{Path, PathBuf};

use controller::volume::migration;
use k8s_openapi::api::core::v1::{Pod, Volume};

use super::csi::InUseError;
use super::error::VolumeError;
use super::folder::write_note;
use super::host_path;
use crate::volumes::Volumes;
pub(crate) use expand::grow;
pub use iscsi::log_out;
use prepared::{FILE, Phase, Prepared, is_there, read};
pub(crate) use prepared::{extra_groups, find};
pub(crate) use request::access_mode;
use resolve::{Resolved, Source};
pub(crate) use stats::of_pods as stats;

/// Where the Pod's volume is, if it was prepared.
pub(super) fn path(pod_dir: &Path, volume: &Volume) -> Option<PathBuf> {
    find(pod_dir, &volume.name).map(|prepared| prepared.path)
}

/// Whether a volume is of a kind that is prepared here.
pub(super) fn is_persistent(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || volume.csi.is_some()
        || volume.nfs.is_some()
        || volume.iscsi.is_some()
        || migration::is_migrated(volume)
}

/// Brings every such volume of the Pod to where its containers find it. Those that are there are left alone.
///
/// # Errors
/// Which volume is not there, and why.
pub(crate) async fn prepare(volumes: &Volumes, pod: &Pod) -> Result<(), VolumeError> {
    let all = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let wanted: Vec<&Volume> = all.filter(|volume| is_persistent(volume)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let pod_dir = volumes.config.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
    let mut all = read(&pod_dir);
    for volume in wanted {
        if let Some(known) = all.get(&volume.name)
            && is_there(known)
        {
            continue;
        }
        let resolved = resolve::resolve(volumes, pod, volume).await;
        let resolved = resolved.map_err(VolumeError::process(&volume.name))?;
        let prepared = bring(volumes, pod, &pod_dir, &resolved).await?;
        all.insert(volume.name.clone(), prepared);
        write_note(&pod_dir, FILE, &all)?;
    }
    Ok(())
}

async fn bring(
    volumes: &Volumes,
    pod: &Pod,
    pod_dir: &Path,
    resolved: &Resolved,
) -> Result<Prepared, VolumeError> {
    let failed = Phase::Publish.failed(resolved);
    match &resolved.source {
        Source::Csi(source) => csi_volume::bring(volumes, pod, pod_dir, resolved, source).await,
        Source::Local(source) => local::bring(volumes, pod, pod_dir, resolved, source).await.map_err(failed),
        Source::HostPath(source) => {
            host_path::check(source).map_err(failed)?;
            Ok(Prepared::plain(PathBuf::from(&source.path), resolved))
        }
        Source::Nfs(source) => nfs::bring(pod_dir, resolved, source).await.map_err(failed),
        Source::Iscsi(source) => iscsi::bring(volumes, pod, pod_dir, resolved, source).await,
    }
}

/// The volumes that are attached for Pods of this node, by what is on disk.
pub(crate) fn in_use(root_dir: &Path) -> impl Iterator<Item = String> {
    csi_volume::in_use(root_dir).chain(iscsi::in_use(root_dir))
}

/// Looks after the volumes of a Pod that runs: those that have become larger grow, and drivers that want to be asked again
/// are. Source: `RequiresRemount`, `desired_state_of_world_populator`.
///
/// # Errors
/// In upstream's words, with the volume; to be tried again.
pub(crate) async fn keep_up(volumes: &Volumes, pod: &Pod) -> Result<(), VolumeError> {
    let pod_dir = volumes.config.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
    let all = read(&pod_dir);
    let mut failures = Vec::new();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let Some(known) = all.get(&volume.name).filter(|known| is_there(known)) else { continue };
        if let Some(name) = known.driver.as_deref().filter(|_| is_persistent(volume)) {
            let kept = csi_volume::keep_up(volumes, pod, volume, name, known).await;
            failures.extend(kept.err());
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(VolumeError::Several(failures)) }
}

/// Has the Node say no more of volumes that are not here and that no Pod waits for.
///
/// # Errors
/// The API server does not take it.
pub(super) async fn settle_in_use(volumes: &Volumes) -> Result<(), InUseError> {
    volumes.csi.settle_in_use(volumes, || in_use(&volumes.config.root_dir)).await
}

/// Takes back what drivers have made for the Pod, before its folder is removed.
///
/// # Errors
/// What is left; to be tried again.
pub(crate) async fn tear_down(volumes: &Volumes, pod_dir: &Path) -> Result<(), VolumeError> {
    let sub_paths = pod_dir.join("volume-subpaths");
    tokio::task::spawn_blocking(move || super::tear_down(&sub_paths)).await??;
    csi_volume::tear_down(volumes, pod_dir).await?;
    local::tear_down(volumes, pod_dir).await?;
    iscsi::tear_down(volumes, pod_dir).await?;
    Ok(settle_in_use(volumes).await?)
}
