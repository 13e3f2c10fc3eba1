//! Volumes that outlive the node's files, or that a driver makes: of claims, of CSI drivers inline, of NFS and iSCSI.
//!
//! They are prepared before the rest, each asks the API what it is, and what they came to is written beside them
//! (`persistent.json`), so that containers that are started later find them without asking again. Taking back goes by
//! what is on disk alone.

mod csi_volume;
mod data;
mod expand;
mod format;
mod iscsi;
mod ownership;
mod plain;
mod resolve;
mod stats;
mod wishes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use controller::volume::migration;
use k8s_openapi::api::core::v1::{Pod, Volume};
use serde::{Deserialize, Serialize};

use super::error::VolumeError;
use super::folder::write_note;
use crate::pod::failure_reason::FailureReason;
use crate::volumes::Volumes;
pub(crate) use csi_volume::access_mode;
pub(crate) use expand::grow;
pub use iscsi::log_out;
use resolve::{Resolved, Source};
pub(crate) use stats::of_pods as stats;
use wishes::Wishes;

/// The file with what a Pod's volumes came to.
const FILE: &str = "persistent.json";

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
    fn plain(path: PathBuf, resolved: &Resolved) -> Self {
        let is_device = resolved.is_device();
        Self { path, is_device, read_only: resolved.read_only, driver: None, handle: String::new() }
    }
}

type All = BTreeMap<String, Prepared>;

/// Whether a volume is of a kind that is prepared here.
pub(crate) fn is_persistent(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || volume.csi.is_some()
        || volume.nfs.is_some()
        || volume.iscsi.is_some()
        || migration::is_migrated(volume)
}

/// What the Pod's volume came to, if it was prepared.
pub(crate) fn find(pod_dir: &Path, name: &str) -> Option<Prepared> {
    read(pod_dir).remove(name)
}

fn read(pod_dir: &Path) -> All {
    let text = std::fs::read(pod_dir.join(FILE)).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Brings every such volume of the Pod to where its containers find it. Those that are there are left alone.
///
/// # Errors
/// Which volume is not there, and why.
pub(crate) async fn prepare(context: &Volumes, pod: &Pod) -> Result<(), VolumeError> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let wanted: Vec<&Volume> = volumes.filter(|volume| is_persistent(volume)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let pod_dir = context.config.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
    let mut all = read(&pod_dir);
    for volume in wanted {
        if let Some(known) = all.get(&volume.name)
            && is_there(known)
        {
            continue;
        }
        let resolved = resolve::resolve(context, pod, volume).await;
        let resolved = resolved.map_err(VolumeError::process(&volume.name))?;
        let prepared = bring(context, pod, &pod_dir, &resolved).await?;
        all.insert(volume.name.clone(), prepared);
        write_note(&pod_dir, FILE, &all)?;
    }
    Ok(())
}

/// How far a volume has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Attach,
    /// For the node.
    Stage,
    /// For the Pod.
    Publish,
}

impl Phase {
    /// Source: `GenerateMountVolumeFunc`, `GenerateMapVolumeFunc` of upstream's operation executor.
    fn failed<E: Into<VolumeError>>(self, resolved: &Resolved) -> impl Fn(E) -> VolumeError {
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

/// A reboot takes mounts and devices away and leaves the file that says they were there.
fn is_there(known: &Prepared) -> bool {
    let is_own =
        known.path.components().any(|part| part.as_os_str() == "volumes" || part.as_os_str() == "plugins");
    if is_own {
        return sys::mount::is_mounted(&known.path).unwrap_or(false);
    }
    !known.is_device || known.path.exists()
}

async fn bring(
    context: &Volumes,
    pod: &Pod,
    pod_dir: &Path,
    resolved: &Resolved,
) -> Result<Prepared, VolumeError> {
    let named = Phase::Publish.failed(resolved);
    match &resolved.source {
        Source::Csi(source) => csi_volume::bring(context, pod, pod_dir, resolved, source).await,
        Source::Local(source) => {
            let turn = context.csi.turn(plain::LOCAL, &resolved.name);
            let _turn = turn.lock().await;
            let root_dir = &context.config.root_dir;
            plain::local(pod, (root_dir, pod_dir), resolved, source).await.map_err(named)
        }
        Source::HostPath(source) => plain::host_path(resolved, source).map_err(named),
        Source::Nfs(source) => plain::nfs(pod_dir, resolved, source).await.map_err(named),
        Source::Iscsi(source) => iscsi::bring(context, pod, pod_dir, resolved, source).await,
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
pub(crate) async fn keep_up(context: &Volumes, pod: &Pod) -> Result<(), VolumeError> {
    let pod_dir = context.config.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
    let all = read(&pod_dir);
    let mut failures = Vec::new();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let Some(known) = all.get(&volume.name).filter(|known| is_there(known)) else { continue };
        if let Some(name) = known.driver.as_deref().filter(|_| is_persistent(volume)) {
            let kept = keep_up_one(context, pod, volume, (name, known)).await;
            failures.extend(kept.err());
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(VolumeError::Several(failures)) }
}

async fn keep_up_one(
    context: &Volumes,
    pod: &Pod,
    volume: &Volume,
    (name, known): (&str, &Prepared),
) -> Result<(), VolumeError> {
    // One that is away for a moment is asked next time.
    let Ok(driver) = context.csi.get(name) else { return Ok(()) };
    let wishes = Wishes::asked(context, name).await;
    let may_grow = volume.csi.is_none() && expand::is_possible(&driver);
    if !may_grow && !wishes.republish {
        return Ok(());
    }
    let resolved = resolve::resolve(context, pod, volume).await?;
    let Source::Csi(source) = &resolved.source else { return Ok(()) };
    let turn = context.csi.turn(name, &source.volume_handle);
    let _turn = turn.lock().await;
    if wishes.republish {
        csi_volume::publish_again(context, pod, (&resolved, source), (&driver, &wishes)).await?;
    }
    let places = csi_volume::places(
        context,
        &context.config.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default()),
        &resolved,
        source,
    );
    expand::if_larger(context, pod, &resolved, source, &driver, (&known.path, &places.staging)).await
}

/// Takes back what drivers have made for the Pod, before its folder is removed.
///
/// # Errors
/// What is left; to be tried again.
pub(crate) async fn tear_down(context: &Volumes, pod_dir: &Path) -> Result<(), VolumeError> {
    let sub_paths = pod_dir.join("volume-subpaths");
    tokio::task::spawn_blocking(move || super::tear_down(&sub_paths)).await??;
    for found in data::of_pod(pod_dir) {
        csi_volume::take_back(context, &found).await?;
    }
    for name in plain::locals(pod_dir) {
        let turn = context.csi.turn(plain::LOCAL, &name);
        let _turn = turn.lock().await;
        plain::release_local(&context.config.root_dir, pod_dir, &name)?;
    }
    iscsi::tear_down(context, pod_dir).await?;
    Ok(context.csi.settle_in_use(context).await?)
}
