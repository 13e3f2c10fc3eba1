//! A driver's volume: waited for until it is attached, staged for the node, published for the Pod, and back.
//!
//! What is about to be made is written down before the driver is asked, and forgotten after it has taken it back: a
//! crash leaves a note without a volume, never a volume without a note. Drivers take every call twice.
//! Source: `pkg/volume/csi/csi_mounter.go`, `csi_attacher.go`, `csi_block.go`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use controller::volume::{attachment_name, sha256, unique_name};
use csi::Code;
use csi::v1::{self, node_service_capability::rpc};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, Node, Pod, Secret, SecretReference};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::Api;
use v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};

use super::data::{self, Found, VolumeData};
use super::resolve::Resolved;
use super::wishes::{Told, Wishes, se_linux_option};
use super::{Phase, Prepared, expand, ownership};
use crate::pod::identity::identity;
use crate::volumes::Volumes;
use crate::volumes::csi::{Driver, NotRegistered, registration};
use crate::volumes::error::{Specific, VolumeError, at};

/// How long one try waits for the attacher.
const ATTACH_MAX: Duration = Duration::from_secs(20);
/// How long a volume may wait for room on its node. Source: `podAttachAndMountTimeout`.
const ROOM_MAX: SignedDuration = SignedDuration::from_secs(123);
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
    #[error("volume attachment {0} is not attached")]
    NotAttached(String),
    #[error("fetching NodePublishSecretRef {namespace}/{name} failed: kubernetes.io/csi: {source}")]
    NoSecret { namespace: String, name: String, source: Box<kube::Error> },
}

impl Specific for CsiVolumeError {}

/// Where a volume is staged, and where it is published for the Pod.
pub(super) struct Places {
    pub(super) staging: PathBuf,
    folder: PathBuf,
    target: PathBuf,
}

/// Where the volume is to be.
pub(super) fn places(
    context: &Volumes,
    pod_dir: &Path,
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
) -> Places {
    let plugin = context.config.root_dir.join("plugins/kubernetes.io/csi");
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
    context: &Volumes,
    pod: &Pod,
    pod_dir: &Path,
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
) -> Result<Prepared, VolumeError> {
    let name = &resolved.name;
    let first = if resolved.is_device() { Phase::Stage } else { Phase::Publish };
    let driver = context.csi.get(&source.driver).map_err(CsiVolumeError::NoDriver);
    let driver = driver.map_err(first.failed(resolved))?;
    let wishes = Wishes::asked(context, &source.driver).await;
    let is_inline = resolved.volume.is_none();
    let mode = if is_inline { "Ephemeral" } else { "Persistent" };
    wishes.allow(mode, &source.driver).map_err(first.failed(resolved))?;
    let turn = context.csi.turn(&source.driver, &source.volume_handle);
    let _turn = turn.lock().await;
    let places = places(context, pod_dir, resolved, source);
    let id = (source.driver.as_str(), source.volume_handle.as_str());
    let elsewhere = data::elsewhere(&context.config.root_dir, &places.folder, id);
    if is_for_one_pod(resolved) && elsewhere.iter().any(VolumeData::is_published) {
        return Err(first.failed(resolved)(CsiVolumeError::OtherPod));
    }
    let is_attached = wishes.attach && !is_inline;
    // Until it is written down here.
    let _asked = is_attached.then(|| context.csi.ask(&unique_name(source)));
    let attachment = match is_attached {
        true => Some(attached(context, (resolved, source), (&driver, &wishes)).await?),
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
            node_name: context.config.node_name.clone(),
            attachment_id: attachment.as_ref().and_then(|a| a.metadata.name.clone()).unwrap_or_default(),
            volume_lifecycle_mode: mode.to_owned(),
            staging_path: known.staging_path.or(is_staged_elsewhere.then(|| places.staging.clone())),
            target_path: known.target_path,
        },
    };
    note.write().map_err(first.failed(resolved))?;
    let call = Call::new(resolved, source, &driver, pod, &wishes, (&places, publish_context));
    if call.is_staged {
        let staged = call.stage(context, &driver, &mut note, is_staged_elsewhere).await;
        staged.map_err(Phase::Stage.failed(resolved))?;
    }
    let told = wishes.told(context, pod, is_inline).await.map_err(first.failed(resolved))?;
    let published = call.publish(context, &driver, resolved.read_only, told, Some(&mut note)).await;
    published.map_err(Phase::Publish.failed(resolved))?;
    let is_group_ours = wishes.takes_group(source.fs_type.as_deref(), is_write_once(resolved));
    let is_group_theirs = ownership::group(pod).is_none() || driver.can(rpc::Type::VolumeMountGroup);
    if is_group_ours && !resolved.is_device() && !resolved.read_only && !is_group_theirs {
        ownership::apply_for(pod, &places.target).await.map_err(first.failed(resolved))?;
    }
    expand::if_larger(context, pod, resolved, source, &driver, (&places.target, &places.staging))
        .await
        .map_err(|error| VolumeError::Expand { volume: name.clone(), source: Box::new(error) })?;
    Ok(Prepared {
        path: places.target,
        is_device: resolved.is_device(),
        read_only: resolved.read_only,
        driver: Some(source.driver.clone()),
        handle: source.volume_handle.clone(),
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

/// Asks a driver once more that wants to be asked, with what it is to know now. Source: `requiresRepublish`, KEP-1855.
pub(super) async fn publish_again(
    context: &Volumes,
    pod: &Pod,
    (resolved, source): (&Resolved, &CSIPersistentVolumeSource),
    (driver, wishes): (&Driver, &Wishes),
) -> Result<(), VolumeError> {
    let name = &resolved.name;
    let pod_dir = context.config.pod_dir(&identity(pod).2);
    let is_inline = resolved.volume.is_none();
    let attachment = match wishes.attach && !is_inline {
        true => Some(attachment(context, source).await.map_err(VolumeError::step(SET_UP, name))?),
        false => None,
    };
    let publish_context = attachment.and_then(|attachment| attachment.status?.attachment_metadata);
    let places = places(context, &pod_dir, resolved, source);
    let call = Call::new(resolved, source, driver, pod, wishes, (&places, publish_context));
    let told = wishes.told(context, pod, is_inline).await.map_err(VolumeError::step(SET_UP, name))?;
    let published = call.publish(context, driver, resolved.read_only, told, None).await;
    published.map_err(VolumeError::step(SET_UP, name))
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
    is_staged: bool,
}

impl<'a> Call<'a> {
    fn new(
        resolved: &Resolved,
        source: &'a CSIPersistentVolumeSource,
        driver: &Driver,
        pod: &Pod,
        wishes: &Wishes,
        (places, publish_context): (&'a Places, Option<BTreeMap<String, String>>),
    ) -> Self {
        let group = ownership::group(pod).filter(|_| driver.can(rpc::Type::VolumeMountGroup));
        let has_label = wishes.se_linux && is_for_one_pod(resolved);
        let label = has_label.then(|| se_linux_option(pod, &resolved.own_name)).flatten();
        Self {
            capability: capability(resolved, source, driver, (group, label)),
            publish_context: publish_context.unwrap_or_default().into_iter().collect(),
            volume_context: source.volume_attributes.clone().unwrap_or_default().into_iter().collect(),
            source,
            places,
            is_staged: driver.can(rpc::Type::StageUnstageVolume) && resolved.volume.is_some(),
        }
    }

    /// Stages the volume, unless this kubelet has. The note says from before that it may be staged, and afterwards no more
    /// if it is sure that it is not.
    async fn stage(
        &self,
        context: &Volumes,
        driver: &Driver,
        note: &mut Note<'_>,
        is_staged_elsewhere: bool,
    ) -> Result<(), VolumeError> {
        let staging = &self.places.staging;
        if context.csi.staged.lock().contains(staging) {
            note.data.staging_path = Some(staging.clone());
            return note.write();
        }
        let secrets = secrets(context, self.source.node_stage_secret_ref.as_ref()).await?;
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
            context.csi.staged.lock().insert(staging.clone());
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
        context: &Volumes,
        driver: &Driver,
        read_only: bool,
        told: Told,
        mut note: Option<&mut Note<'_>>,
    ) -> Result<(), VolumeError> {
        let mut secrets = secrets(context, self.source.node_publish_secret_ref.as_ref()).await?;
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

/// How the volume is to be used, for the driver.
pub(super) fn capability(
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
    driver: &Driver,
    (group, label): (Option<u32>, Option<String>),
) -> v1::VolumeCapability {
    let spec = resolved.volume.as_ref().and_then(|volume| volume.spec.as_ref());
    let mode = spec.and_then(|spec| spec.access_modes.as_ref()?.first()).map(String::as_str);
    let access_type = match resolved.is_device() {
        true => AccessType::Block(BlockVolume {}),
        false => AccessType::Mount(MountVolume {
            fs_type: source.fs_type.clone().unwrap_or_default(),
            mount_flags: resolved.mount_options().into_iter().chain(label).collect(),
            volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
        }),
    };
    let mode = access_mode(mode, driver.can(rpc::Type::SingleNodeMultiWriter));
    v1::VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

/// Source: `asCSIAccessModeV1`, `asSingleNodeMultiWriterCapableCSIAccessModeV1`.
pub(crate) fn access_mode(mode: Option<&str>, knows_single_writers: bool) -> Mode {
    match (mode, knows_single_writers) {
        (Some("ReadOnlyMany"), _) => Mode::MultiNodeReaderOnly,
        (Some("ReadWriteMany"), _) => Mode::MultiNodeMultiWriter,
        // Whoever says nothing has it for one node.
        (None | Some("ReadWriteOnce"), true) => Mode::SingleNodeMultiWriter,
        (Some("ReadWriteOncePod"), true) => Mode::SingleNodeSingleWriter,
        _ => Mode::SingleNodeWriter,
    }
}

/// The Secret's texts, if one is named.
pub(super) async fn secrets(
    context: &Volumes,
    secret: Option<&SecretReference>,
) -> Result<HashMap<String, String>, VolumeError> {
    let Some((name, namespace)) = secret.and_then(|s| Some((s.name.as_deref()?, s.namespace.as_deref()?)))
    else {
        return Ok(HashMap::new());
    };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let found = api.get(name).await.map_err(|source| CsiVolumeError::NoSecret {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    })?;
    let data = found.data.unwrap_or_default().into_iter();
    Ok(data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned())).collect())
}

/// The volume's attachment, once the Node says that it is attached.
async fn attached(
    context: &Volumes,
    (resolved, source): (&Resolved, &CSIPersistentVolumeSource),
    (driver, wishes): (&Driver, &Wishes),
) -> Result<VolumeAttachment, VolumeError> {
    let if_not =
        async { if wishes.counts_again { refuse_if_full(context, source, driver).await } else { Ok(()) } };
    until_attached(context, &resolved.name, &unique_name(source), if_not).await?;
    attachment(context, source).await.map_err(Phase::Attach.failed(resolved))
}

/// Has the Node say that it uses a volume, and waits until it says that it is attached; what is to be looked at before
/// that is `if_not`.
pub(super) async fn until_attached(
    context: &Volumes,
    name: &str,
    unique: &str,
    if_not: impl Future<Output = Result<(), VolumeError>>,
) -> Result<(), VolumeError> {
    context.csi.set_in_use(context, unique, true).await?;
    let own = controller::Scope {
        field_selector: Some(format!("metadata.name={}", context.config.node_name)),
        ..controller::Scope::default()
    };
    let node = context.informers.scoped::<Node>(own);
    let mut changes = node.subscribe();
    let is_attached = || {
        let known = node.get(&context.config.node_name);
        let attached = known.as_ref().and_then(|node| node.status.as_ref()?.volumes_attached.as_ref());
        attached.is_some_and(|all| all.iter().any(|one| one.name == unique))
    };
    if !is_attached() {
        if_not.await?;
    }
    let waiting = async {
        while !is_attached() {
            changes.next().await;
        }
    };
    let waited = tokio::time::timeout(ATTACH_MAX, waiting).await;
    waited.map_err(|_late| VolumeError::NotAttached(name.to_owned()))
}

/// Has a Pod fail whose volume the node has had no room for since long: its owner makes another one, which goes where there
/// is room, for the node says by then how much it has. Source: `VerifyExhaustedResource`, KEP-4876.
async fn refuse_if_full(
    context: &Volumes,
    source: &CSIPersistentVolumeSource,
    driver: &Driver,
) -> Result<(), VolumeError> {
    let api: Api<VolumeAttachment> = Api::all(context.client.clone());
    let name = attachment_name(source, &context.config.node_name);
    let found = api.get_opt(&name).await?;
    if !found.is_some_and(|found| is_exhausted(&found, context.clock.now())) {
        return Ok(());
    }
    let told = async {
        let info = driver.client.node_get_info(v1::NodeGetInfoRequest {}).await?;
        registration::update_count(context, &source.driver, info.max_volumes_per_node).await?;
        Ok::<_, VolumeError>(())
    };
    if let Err(error) = told.await {
        tracing::info!(%error, driver = source.driver, "the node did not say how many volumes it may have");
    }
    Err(VolumeError::AttachmentLimit)
}

/// Whether a volume has been wanted for long, and the node has no room for it.
fn is_exhausted(attachment: &VolumeAttachment, now: Timestamp) -> bool {
    let error = attachment.status.as_ref().and_then(|status| status.attach_error.as_ref());
    let since = attachment.metadata.creation_timestamp.as_ref();
    error.and_then(|error| error.error_code) == Some(Code::ResourceExhausted as i32)
        && since.is_some_and(|since| now.duration_since(since.0) >= ROOM_MAX)
}

/// The volume's attachment to this node, which must be attached.
async fn attachment(
    context: &Volumes,
    source: &CSIPersistentVolumeSource,
) -> Result<VolumeAttachment, VolumeError> {
    let api: Api<VolumeAttachment> = Api::all(context.client.clone());
    let name = attachment_name(source, &context.config.node_name);
    let found = api.get(&name).await?;
    match found.status.as_ref().is_some_and(|status| status.attached) {
        true => Ok(found),
        false => Err(CsiVolumeError::NotAttached(name).into()),
    }
}

/// Unpublishes a Pod's volume, and unstages it if it was the last one on the node.
pub(super) async fn take_back(context: &Volumes, found: &Found) -> Result<(), VolumeError> {
    let VolumeData { driver_name, volume_handle, target_path, staging_path, .. } = &found.data;
    let what = &found.data.spec_vol_id;
    let turn = context.csi.turn(driver_name, volume_handle);
    let _turn = turn.lock().await;
    let driver = || context.csi.get(driver_name).map_err(VolumeError::step(TEAR_DOWN, what));
    if found.data.is_published() {
        let request = v1::NodeUnpublishVolumeRequest {
            volume_id: volume_handle.clone(),
            target_path: target_path.display().to_string(),
        };
        let unpublished = driver()?.client.node_unpublish_volume(request).await;
        unpublished.map_err(VolumeError::step(TEAR_DOWN, what))?;
    }
    let id = (driver_name.as_str(), volume_handle.as_str());
    let is_last = data::elsewhere(&context.config.root_dir, &found.folder, id).is_empty();
    if let Some(staging) = staging_path.as_ref().filter(|_| is_last) {
        let request = v1::NodeUnstageVolumeRequest {
            volume_id: volume_handle.clone(),
            staging_target_path: staging.display().to_string(),
        };
        let unstaged = driver()?.client.node_unstage_volume(request).await;
        context.csi.staged.lock().remove(staging);
        unstaged.map_err(VolumeError::step("UnmountDevice", what))?;
        forget_staging(staging, target_path)?;
    }
    if is_last && !found.data.attachment_id.is_empty() {
        let unique = format!("kubernetes.io/csi/{driver_name}^{volume_handle}");
        context.csi.set_in_use(context, &unique, false).await?;
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
    use super::super::resolve::Source;
    use super::*;

    #[test]
    fn a_node_is_full_when_a_volume_has_waited_for_room() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        for (created, error, expect) in [
            ("2026-01-01T00:07:57Z", "{errorCode: 8}", true),
            ("2026-01-01T00:07:58Z", "{errorCode: 8}", false),
            ("2026-01-01T00:00:00Z", "{errorCode: 14}", false),
            ("2026-01-01T00:00:00Z", "{message: full}", false),
            ("2026-01-01T00:00:00Z", "null", false),
        ] {
            let text = format!(
                "{{metadata: {{creationTimestamp: '{created}'}}, status: {{attached: false, attachError: {error}}}}}"
            );
            let attachment = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(is_exhausted(&attachment, now), expect, "{created} {error}");
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
            let resolved = Resolved {
                name: "pv".to_owned(),
                own_name: "data".to_owned(),
                source: Source::HostPath(Default::default()),
                volume: serde_saphyr::from_str(volume).unwrap(),
                claim: None,
                read_only: false,
            };
            assert_eq!(is_write_once(&resolved), expect, "{volume}");
        }
    }

    #[test]
    fn access_modes_are_what_the_driver_knows_of() {
        for (mode, knows, expect) in [
            (Some("ReadWriteOnce"), false, Mode::SingleNodeWriter),
            (Some("ReadWriteOnce"), true, Mode::SingleNodeMultiWriter),
            (Some("ReadWriteOncePod"), true, Mode::SingleNodeSingleWriter),
            (Some("ReadOnlyMany"), true, Mode::MultiNodeReaderOnly),
            (Some("ReadWriteMany"), false, Mode::MultiNodeMultiWriter),
            (None, true, Mode::SingleNodeMultiWriter),
            (None, false, Mode::SingleNodeWriter),
        ] {
            assert_eq!(access_mode(mode, knows), expect, "{mode:?}");
        }
    }
}
