//! A driver's volume: waited for until it is attached, staged for the node, published for the Pod, and back.
//!
//! What is about to be made is written down before the driver is asked, and forgotten after it has taken it back: a
//! crash leaves a note without a volume, never a volume without a note. Drivers take every call twice.
//! Source: `pkg/volume/csi/csi_mounter.go`, `csi_attacher.go`, `csi_block.go`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use controller::volume::{sha256, unique_name};
use csi::Code;
use csi::v1::{self, node_service_capability::rpc};
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, Pod, Volume};

use super::attach::{attached, attachment};
use super::data::{self, Found, VolumeData};
use super::prepared::{Phase, Prepared};
use super::request::{Purpose, capability, secrets};
use super::resolve::Resolved;
use super::resolve::Source;
use super::wishes::{Told, Wishes, se_linux_option};
use super::{expand, ownership, resolve};
use crate::pod::identity::identity;
use crate::volumes::Volumes;
use crate::volumes::csi::{Driver, NotRegistered};
use crate::volumes::error::{Specific, VolumeError, at};

/// What upstream calls a volume's way to its Pod, and back.
const SET_UP: &str = "MountVolume.SetUp";
const TEAR_DOWN: &str = "UnmountVolume.TearDown";

/// A driver's volume cannot be brought to a Pod; in upstream's words.
#[derive(Debug, thiserror::Error)]
enum CsiVolumeError {
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {0}")]
    NoDriver(#[from] NotRegistered),
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    OtherPod,
}

impl Specific for CsiVolumeError {}

/// Where a volume is staged, and where it is published for the Pod.
pub(super) struct Places {
    pub(super) staging: PathBuf,
    folder: PathBuf,
    target: PathBuf,
}

/// Where the volume is to be.
fn places(
    volumes: &Volumes,
    pod_dir: &Path,
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
) -> Places {
    let plugin = volumes.config.root_dir.join("plugins/kubernetes.io/csi");
    let folder = data::folder(pod_dir, &resolved.name, resolved.is_device());
    if resolved.is_device() {
        let devices = plugin.join("volumeDevices");
        let uid = pod_dir.file_name().unwrap_or_default();
        let target = devices.join("publish").join(&resolved.name).join(uid);
        return Places { staging: devices.join("staging").join(&resolved.name), folder, target };
    }
    let staged = plugin.join(&source.driver).join(sha256(&[&source.volume_handle]));
    Places { staging: staged.join("globalmount"), target: folder.join("mount"), folder }
}

/// Brings the volume to where the Pod's containers find it.
pub(super) async fn bring(
    volumes: &Volumes,
    pod: &Pod,
    pod_dir: &Path,
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
) -> Result<Prepared, VolumeError> {
    let name = &resolved.name;
    let first = if resolved.is_device() { Phase::Stage } else { Phase::Publish };
    let driver = volumes.csi.get(&source.driver).map_err(CsiVolumeError::NoDriver);
    let driver = driver.map_err(first.failed(resolved))?;
    let wishes = Wishes::asked(volumes, &source.driver).await;
    let is_inline = resolved.volume.is_none();
    let mode = if is_inline { "Ephemeral" } else { "Persistent" };
    wishes.allow(mode, &source.driver).map_err(first.failed(resolved))?;
    let turn = volumes.csi.turn(&source.driver, &source.volume_handle);
    let _turn = turn.lock().await;
    let places = places(volumes, pod_dir, resolved, source);
    let id = (source.driver.as_str(), source.volume_handle.as_str());
    let elsewhere = data::elsewhere(&volumes.config.root_dir, &places.folder, id);
    if is_for_one_pod(resolved) && elsewhere.iter().any(VolumeData::is_published) {
        return Err(first.failed(resolved)(CsiVolumeError::OtherPod));
    }
    let is_attached = wishes.attach && !is_inline;
    // Until it is written down here.
    let _asked = is_attached.then(|| volumes.csi.ask(&unique_name(source)));
    let attachment = match is_attached {
        true => Some(attached(volumes, resolved, source, &driver, &wishes).await?),
        false => None,
    };
    let publish_context = attachment.as_ref().and_then(|a| a.status.as_ref()?.attachment_metadata.clone());
    let is_staged_elsewhere = elsewhere.iter().any(|other| other.staging_path.is_some());
    let known = data::read(&places.folder).unwrap_or_default();
    let mut note = Note {
        folder: &places.folder,
        data: VolumeData {
            spec_vol_id: name.clone(),
            volume_handle: source.volume_handle.clone(),
            driver_name: source.driver.clone(),
            node_name: volumes.config.node_name.clone(),
            attachment_id: attachment.as_ref().and_then(|a| a.metadata.name.clone()).unwrap_or_default(),
            volume_lifecycle_mode: mode.to_owned(),
            staging_path: known.staging_path.or(is_staged_elsewhere.then(|| places.staging.clone())),
            target_path: known.target_path,
        },
    };
    note.write().map_err(first.failed(resolved))?;
    let mounter = Mounter { volumes, pod, resolved, source, driver: &driver, wishes: &wishes };
    let call = mounter.call(&places, publish_context);
    if call.is_staged {
        let staged = call.stage(volumes, &driver, &mut note, is_staged_elsewhere).await;
        staged.map_err(Phase::Stage.failed(resolved))?;
    }
    let told = wishes.told(volumes, pod, is_inline).await.map_err(first.failed(resolved))?;
    let published = call.publish(volumes, &driver, resolved.read_only, told, Some(&mut note)).await;
    published.map_err(Phase::Publish.failed(resolved))?;
    let is_group_ours = wishes.takes_group(source.fs_type.as_deref(), is_write_once(resolved));
    let is_group_theirs = ownership::group(pod).is_none() || driver.can(rpc::Type::VolumeMountGroup);
    if is_group_ours && !resolved.is_device() && !resolved.read_only && !is_group_theirs {
        ownership::apply_for(pod, &places.target).await.map_err(first.failed(resolved))?;
    }
    expand::if_larger(volumes, pod, resolved, source, &driver, (&places.target, &places.staging))
        .await
        .map_err(|error| VolumeError::Expand { volume: name.clone(), source: Box::new(error) })?;
    Ok(Prepared {
        path: places.target,
        is_device: resolved.is_device(),
        read_only: resolved.read_only,
        driver: Some(source.driver.clone()),
        handle: source.volume_handle.clone(),
        group: resolved.group(),
    })
}

/// What is written down of a volume.
struct Note<'a> {
    folder: &'a Path,
    data: VolumeData,
}

impl Note<'_> {
    fn write(&self) -> Result<(), VolumeError> {
        data::write(self.folder, &self.data)
    }
}

/// Whether a driver that says so has done nothing, and is at work no more. Source: `isFinalError`, `pkg/volume/csi`.
fn is_final(status: &csi::Status) -> bool {
    !matches!(
        status.code(),
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted
    )
}

/// Looks after a volume that is there: it may grow, and its driver may want to be asked again.
pub(super) async fn keep_up(
    volumes: &Volumes,
    pod: &Pod,
    volume: &Volume,
    name: &str,
    known: &Prepared,
) -> Result<(), VolumeError> {
    // One that is away for a moment is asked next time.
    let Ok(driver) = volumes.csi.get(name) else { return Ok(()) };
    let wishes = Wishes::asked(volumes, name).await;
    let may_grow = volume.csi.is_none() && expand::is_possible(&driver);
    if !may_grow && !wishes.republish {
        return Ok(());
    }
    let resolved = resolve::resolve(volumes, pod, volume).await?;
    let Source::Csi(source) = &resolved.source else { return Ok(()) };
    let turn = volumes.csi.turn(name, &source.volume_handle);
    let _turn = turn.lock().await;
    if wishes.republish {
        let resolved = &resolved;
        let mounter = Mounter { volumes, pod, resolved, source, driver: &driver, wishes: &wishes };
        mounter.publish_again().await?;
    }
    let places = places(
        volumes,
        &volumes.config.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default()),
        &resolved,
        source,
    );
    expand::if_larger(volumes, pod, &resolved, source, &driver, (&known.path, &places.staging)).await
}

/// A volume that a driver publishes for a Pod. Source: `csiMountMgr` of upstream.
struct Mounter<'a> {
    volumes: &'a Volumes,
    pod: &'a Pod,
    resolved: &'a Resolved,
    source: &'a CSIPersistentVolumeSource,
    driver: &'a Driver,
    wishes: &'a Wishes,
}

impl<'a> Mounter<'a> {
    /// Asks a driver once more that wants to be asked, with what it is to know now. Source: `requiresRepublish`, KEP-1855.
    async fn publish_again(&self) -> Result<(), VolumeError> {
        let Self { volumes, pod, resolved, source, driver, wishes } = *self;
        let name = &resolved.name;
        let pod_dir = volumes.config.pod_dir(&identity(pod).2);
        let is_inline = resolved.volume.is_none();
        let attachment = match wishes.attach && !is_inline {
            true => Some(attachment(volumes, source).await.map_err(VolumeError::step(SET_UP, name))?),
            false => None,
        };
        let publish_context = attachment.and_then(|attachment| attachment.status?.attachment_metadata);
        let places = places(volumes, &pod_dir, resolved, source);
        let call = self.call(&places, publish_context);
        let told = wishes.told(volumes, pod, is_inline).await.map_err(VolumeError::step(SET_UP, name))?;
        let published = call.publish(volumes, driver, resolved.read_only, told, None).await;
        published.map_err(VolumeError::step(SET_UP, name))
    }

    /// What is asked of the driver, with what attaching the volume has come to.
    fn call(&self, places: &'a Places, publish_context: Option<BTreeMap<String, String>>) -> Call<'a> {
        let Self { pod, resolved, source, driver, wishes, .. } = *self;
        let group = ownership::group(pod).filter(|_| driver.can(rpc::Type::VolumeMountGroup));
        let has_label = wishes.se_linux && is_for_one_pod(resolved);
        let label = has_label.then(|| se_linux_option(pod, &resolved.own_name)).flatten();
        Call {
            capability: capability(resolved, source, driver, group, label),
            publish_context: publish_context.unwrap_or_default().into_iter().collect(),
            volume_context: source.volume_attributes.clone().unwrap_or_default().into_iter().collect(),
            source,
            places,
            is_device: resolved.is_device(),
            is_staged: driver.can(rpc::Type::StageUnstageVolume) && resolved.volume.is_some(),
        }
    }
}

fn is_for_one_pod(resolved: &Resolved) -> bool {
    let spec = resolved.volume.as_ref().and_then(|volume| volume.spec.as_ref());
    let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    matches!(modes, [mode] if mode == "ReadWriteOncePod")
}

/// What a Pod has inline is for one node. Source: `supportsFSGroup`.
fn is_write_once(resolved: &Resolved) -> bool {
    let Some(volume) = &resolved.volume else { return true };
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.iter().any(|mode| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod")
}

/// What is asked of the driver about one volume.
struct Call<'a> {
    capability: v1::VolumeCapability,
    publish_context: HashMap<String, String>,
    volume_context: HashMap<String, String>,
    source: &'a CSIPersistentVolumeSource,
    places: &'a Places,
    is_device: bool,
    is_staged: bool,
}

impl Call<'_> {
    /// Stages the volume, unless this kubelet has. The note says from before that it may be staged, and afterwards no more
    /// if it is sure that it is not.
    async fn stage(
        &self,
        volumes: &Volumes,
        driver: &Driver,
        note: &mut Note<'_>,
        is_staged_elsewhere: bool,
    ) -> Result<(), VolumeError> {
        let staging = &self.places.staging;
        if volumes.csi.staged.lock().contains(staging) {
            note.data.staging_path = Some(staging.clone());
            return note.write();
        }
        let secrets = secrets(
            volumes,
            Purpose::Stage { is_device: self.is_device },
            self.source.node_stage_secret_ref.as_ref(),
        )
        .await?;
        std::fs::create_dir_all(staging).map_err(at("mkdir", staging))?;
        note.data.staging_path = Some(staging.clone());
        note.write()?;
        let request = v1::NodeStageVolumeRequest {
            volume_id: self.source.volume_handle.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: staging.display().to_string(),
            volume_capability: Some(self.capability.clone()),
            secrets,
            volume_context: self.volume_context.clone(),
        };
        let Err(status) = driver.client.node_stage_volume(request).await else {
            volumes.csi.staged.lock().insert(staging.clone());
            return Ok(());
        };
        if is_final(&status) && !is_staged_elsewhere {
            note.data.staging_path = None;
            note.write()?;
            forget_staging(staging, &note.data.target_path)?;
        }
        Err(status.into())
    }

    /// Publishes the volume, with what the driver is to be `told`. A note says from before that it may be published, and
    /// afterwards no more if it is sure that it is not.
    async fn publish(
        &self,
        volumes: &Volumes,
        driver: &Driver,
        read_only: bool,
        told: Told,
        mut note: Option<&mut Note<'_>>,
    ) -> Result<(), VolumeError> {
        let mut secrets = secrets(
            volumes,
            Purpose::Publish { is_device: self.is_device },
            self.source.node_publish_secret_ref.as_ref(),
        )
        .await?;
        secrets.extend(told.secrets);
        let mut volume_context = self.volume_context.clone();
        volume_context.extend(told.context);
        let target = &self.places.target;
        if let Some(note) = note.as_deref_mut() {
            note.data.target_path.clone_from(target);
            note.write()?;
        }
        // The driver makes the target itself.
        let parent = target.parent().unwrap_or(&self.places.folder);
        std::fs::create_dir_all(parent).map_err(at("mkdir", parent))?;
        let staging = self.is_staged.then(|| self.places.staging.display().to_string());
        let request = v1::NodePublishVolumeRequest {
            volume_id: self.source.volume_handle.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: staging.unwrap_or_default(),
            target_path: target.display().to_string(),
            volume_capability: Some(self.capability.clone()),
            readonly: read_only,
            secrets,
            volume_context,
        };
        let Err(status) = driver.client.node_publish_volume(request).await else { return Ok(()) };
        if let Some(note) = note.filter(|_| is_final(&status)) {
            note.data.target_path = PathBuf::new();
            note.write()?;
        }
        Err(status.into())
    }
}

/// Takes back what drivers have made for a Pod.
///
/// # Errors
/// What is left; to be tried again.
pub(super) async fn tear_down(volumes: &Volumes, pod_dir: &Path) -> Result<(), VolumeError> {
    for found in data::of_pod(pod_dir) {
        take_back(volumes, &found).await?;
    }
    Ok(())
}

/// Unpublishes a Pod's volume, and unstages it if it was the last one on the node.
async fn take_back(volumes: &Volumes, found: &Found) -> Result<(), VolumeError> {
    let VolumeData { driver_name, volume_handle, target_path, staging_path, .. } = &found.data;
    let what = &found.data.spec_vol_id;
    let turn = volumes.csi.turn(driver_name, volume_handle);
    let _turn = turn.lock().await;
    let driver = || volumes.csi.get(driver_name).map_err(VolumeError::step(TEAR_DOWN, what));
    if found.data.is_published() {
        let request = v1::NodeUnpublishVolumeRequest {
            volume_id: volume_handle.clone(),
            target_path: target_path.display().to_string(),
        };
        let unpublished = driver()?.client.node_unpublish_volume(request).await;
        unpublished.map_err(VolumeError::step(TEAR_DOWN, what))?;
    }
    let id = (driver_name.as_str(), volume_handle.as_str());
    let is_last = data::elsewhere(&volumes.config.root_dir, &found.folder, id).is_empty();
    if let Some(staging) = staging_path.as_ref().filter(|_| is_last) {
        let request = v1::NodeUnstageVolumeRequest {
            volume_id: volume_handle.clone(),
            staging_target_path: staging.display().to_string(),
        };
        let unstaged = driver()?.client.node_unstage_volume(request).await;
        volumes.csi.staged.lock().remove(staging);
        unstaged.map_err(VolumeError::step("UnmountDevice", what))?;
        forget_staging(staging, target_path)?;
    }
    if is_last && !found.data.attachment_id.is_empty() {
        let unique = format!("kubernetes.io/csi/{driver_name}^{volume_handle}");
        volumes.csi.set_in_use(volumes, &unique, false).await?;
    }
    std::fs::remove_dir_all(&found.folder).map_err(at("remove", &found.folder))
}

/// Removes the folders that were made for staging, which are empty by now.
fn forget_staging(staging: &Path, target: &Path) -> Result<(), VolumeError> {
    let is_global = staging.file_name().is_some_and(|name| name == "globalmount");
    let folders = match is_global {
        true => vec![Some(staging), staging.parent()],
        false => vec![Some(staging), target.parent()],
    };
    for folder in folders.into_iter().flatten() {
        match std::fs::remove_dir(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(at("remove", folder)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The drivers' volumes that are attached for Pods of this node, by what is on disk.
pub(super) fn in_use(root_dir: &Path) -> impl Iterator<Item = String> {
    let attached = data::of_node(root_dir).into_iter().filter(|found| !found.data.attachment_id.is_empty());
    attached.map(|found| format!("kubernetes.io/csi/{}^{}", found.data.driver_name, found.data.volume_handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Pod's volume, behind which this one stands.
    fn resolved(volume: &str) -> Resolved {
        Resolved {
            name: "pv".to_owned(),
            own_name: "data".to_owned(),
            source: Source::HostPath(Default::default()),
            volume: serde_saphyr::from_str(volume).unwrap(),
            claim: None,
            read_only: false,
        }
    }

    #[test]
    fn the_group_is_for_volumes_of_one_node_and_for_those_that_pods_have_inline() {
        for (volume, expect) in [
            ("null", true),
            ("{spec: {accessModes: [ReadWriteOncePod]}}", true),
            ("{spec: {accessModes: [ReadOnlyMany, ReadWriteOnce]}}", true),
            ("{spec: {accessModes: [ReadWriteMany]}}", false),
            ("{spec: {}}", false),
        ] {
            assert_eq!(is_write_once(&resolved(volume)), expect, "{volume}");
        }
    }

    /// Source: `isFinalError` and `TestNodeStage*` of upstream's `pkg/volume/csi`.
    #[test]
    fn a_driver_that_may_still_be_at_work_is_not_done() {
        for (code, expect) in [
            (Code::Ok, true),
            (Code::Cancelled, false),
            (Code::Unknown, true),
            (Code::InvalidArgument, true),
            (Code::DeadlineExceeded, false),
            (Code::NotFound, true),
            (Code::AlreadyExists, true),
            (Code::PermissionDenied, true),
            (Code::ResourceExhausted, false),
            (Code::FailedPrecondition, true),
            (Code::Aborted, false),
            (Code::OutOfRange, true),
            (Code::Unimplemented, true),
            (Code::Internal, true),
            (Code::Unavailable, false),
            (Code::DataLoss, true),
            (Code::Unauthenticated, true),
        ] {
            assert_eq!(is_final(&csi::Status::new(code, "")), expect, "{code:?}");
        }
    }

    #[test]
    fn a_volume_is_for_one_pod_if_that_is_all_that_it_is_for() {
        for (volume, expect) in [
            ("null", false),
            ("{spec: {}}", false),
            ("{spec: {accessModes: []}}", false),
            ("{spec: {accessModes: [ReadWriteOncePod]}}", true),
            ("{spec: {accessModes: [ReadWriteOncePod, ReadWriteOnce]}}", false),
            ("{spec: {accessModes: [ReadWriteOnce]}}", false),
        ] {
            assert_eq!(is_for_one_pod(&resolved(volume)), expect, "{volume}");
        }
    }
}
