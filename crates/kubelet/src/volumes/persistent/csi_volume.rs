//! A driver's volume: waited for until it is attached, staged for the node, published for the Pod, and back.
//!
//! What is about to be made is written down before the driver is asked, and forgotten after it has taken it back: a
//! crash leaves a note without a volume, never a volume without a note. Drivers take every call twice.
//! Source: `pkg/volume/csi/csi_mounter.go`, `csi_attacher.go`, `csi_block.go`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use controller::volume::{attachment_name, sha256, unique_name};
use csi::v1::{self, node_service_capability::rpc};
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, Node, Pod, Secret, SecretReference};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::Api;
use v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};

use super::data::{self, Found, VolumeData};
use super::resolve::Resolved;
use super::wishes::{Wishes, se_linux_option};
use super::{Prepared, expand, ownership};
use crate::container_config::identity;
use crate::context::Context;
use crate::csi::Driver;
use crate::volumes::describe;

/// How long one try waits for the attacher.
const ATTACH_MAX: Duration = Duration::from_secs(20);
/// Where a volume is staged, and where it is published for the Pod.
pub(super) struct Places {
    pub(super) staging: PathBuf,
    folder: PathBuf,
    target: PathBuf,
}

/// Where the volume is to be.
pub(super) fn places(
    context: &Context,
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
    context: &Context,
    pod: &Pod,
    pod_dir: &Path,
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
) -> Result<Prepared, String> {
    let name = &resolved.name;
    let set_up = |error: String| format!("MountVolume.SetUp failed for volume \"{name}\" : {error}");
    let driver = context.csi.get(&source.driver).map_err(|error| {
        set_up(format!("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {error}"))
    })?;
    let wishes = Wishes::asked(context, &source.driver).await;
    let is_inline = resolved.volume.is_none();
    let mode = if is_inline { "Ephemeral" } else { "Persistent" };
    wishes.allow(mode, &source.driver).map_err(set_up)?;
    let turn = context.csi.turn(&source.driver, &source.volume_handle);
    let _turn = turn.lock().await;
    let is_attached = wishes.attach && !is_inline;
    // Until it is written down here.
    let _asked = is_attached.then(|| context.csi.ask(&unique_name(source)));
    let attachment = match is_attached {
        true => Some(attached(context, source, name).await?),
        false => None,
    };
    let publish_context = attachment.as_ref().and_then(|a| a.status.as_ref()?.attachment_metadata.clone());
    let places = places(context, pod_dir, resolved, source);
    let is_staged = driver.can(rpc::Type::StageUnstageVolume) && !is_inline;
    let noted = VolumeData {
        spec_vol_id: name.clone(),
        volume_handle: source.volume_handle.clone(),
        driver_name: source.driver.clone(),
        node_name: context.config.node_name.clone(),
        attachment_id: attachment.as_ref().and_then(|a| a.metadata.name.clone()).unwrap_or_default(),
        volume_lifecycle_mode: mode.to_owned(),
        target_path: places.target.clone(),
        staging_path: is_staged.then(|| places.staging.clone()),
    };
    data::write(&places.folder, &noted).map_err(set_up)?;
    let call = Call::new(resolved, source, &driver, pod, &wishes, (&places, publish_context));
    if is_staged {
        let what = if resolved.is_device() { "MapVolume.SetUpDevice" } else { "MountVolume.MountDevice" };
        call.stage(context, &driver)
            .await
            .map_err(|error| format!("{what} failed for volume \"{name}\" : {error}"))?;
    }
    let told = wishes.told(context, pod, is_inline).await.map_err(set_up)?;
    call.publish(context, &driver, resolved.read_only, told).await.map_err(set_up)?;
    let is_group_ours = wishes.takes_group(source.fs_type.as_deref(), is_write_once(resolved));
    let is_group_theirs = ownership::group(pod).is_none() || driver.can(rpc::Type::VolumeMountGroup);
    if is_group_ours && !resolved.is_device() && !resolved.read_only && !is_group_theirs {
        ownership::apply_for(pod, &places.target).await.map_err(set_up)?;
    }
    expand::if_larger(context, pod, resolved, source, &driver, (&places.target, &places.staging))
        .await
        .map_err(|error| format!("MountVolume.Setup failed while expanding volume \"{name}\" : {error}"))?;
    Ok(Prepared {
        path: places.target,
        is_device: resolved.is_device(),
        read_only: resolved.read_only,
        driver: Some(source.driver.clone()),
        handle: source.volume_handle.clone(),
    })
}

/// Asks a driver once more that wants to be asked, with what it is to know now. Source: `requiresRepublish`, KEP-1855.
pub(super) async fn publish_again(
    context: &Context,
    pod: &Pod,
    (resolved, source): (&Resolved, &CSIPersistentVolumeSource),
    (driver, wishes): (&Driver, &Wishes),
) -> Result<(), String> {
    let name = &resolved.name;
    let set_up = |error: String| format!("MountVolume.SetUp failed for volume \"{name}\" : {error}");
    let pod_dir = context.config.pod_dir(&identity(pod).2);
    let is_inline = resolved.volume.is_none();
    let attachment = match wishes.attach && !is_inline {
        true => Some(attachment(context, source).await.map_err(set_up)?),
        false => None,
    };
    let publish_context = attachment.and_then(|attachment| attachment.status?.attachment_metadata);
    let places = places(context, &pod_dir, resolved, source);
    let call = Call::new(resolved, source, driver, pod, wishes, (&places, publish_context));
    let told = wishes.told(context, pod, is_inline).await.map_err(set_up)?;
    call.publish(context, driver, resolved.read_only, told).await.map_err(set_up)
}

fn is_for_one_pod(resolved: &Resolved) -> bool {
    let spec = resolved.volume.as_ref().and_then(|volume| volume.spec.as_ref());
    let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    matches!(modes, [mode] if mode == "ReadWriteOncePod")
}

fn is_write_once(resolved: &Resolved) -> bool {
    let spec = resolved.volume.as_ref().and_then(|volume| volume.spec.as_ref());
    let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
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
        let label = se_linux_option(pod).filter(|_| wishes.se_linux && is_for_one_pod(resolved));
        Self {
            capability: capability(resolved, source, driver, (group, label)),
            publish_context: publish_context.unwrap_or_default().into_iter().collect(),
            volume_context: source.volume_attributes.clone().unwrap_or_default().into_iter().collect(),
            source,
            places,
            is_staged: driver.can(rpc::Type::StageUnstageVolume) && resolved.volume.is_some(),
        }
    }

    async fn stage(&self, context: &Context, driver: &Driver) -> Result<(), String> {
        std::fs::create_dir_all(&self.places.staging)
            .map_err(|e| describe("mkdir", &self.places.staging, &e))?;
        let request = v1::NodeStageVolumeRequest {
            volume_id: self.source.volume_handle.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: self.places.staging.display().to_string(),
            volume_capability: Some(self.capability.clone()),
            secrets: secrets(context, self.source.node_stage_secret_ref.as_ref()).await?,
            volume_context: self.volume_context.clone(),
        };
        driver.client.node_stage_volume(request).await.map(drop).map_err(rpc_error)
    }

    async fn publish(
        &self,
        context: &Context,
        driver: &Driver,
        read_only: bool,
        extra: HashMap<String, String>,
    ) -> Result<(), String> {
        // The driver makes the target itself.
        let parent = self.places.target.parent().unwrap_or(&self.places.folder);
        std::fs::create_dir_all(parent).map_err(|e| describe("mkdir", parent, &e))?;
        let mut volume_context = self.volume_context.clone();
        volume_context.extend(extra);
        let staging = self.is_staged.then(|| self.places.staging.display().to_string());
        let request = v1::NodePublishVolumeRequest {
            volume_id: self.source.volume_handle.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: staging.unwrap_or_default(),
            target_path: self.places.target.display().to_string(),
            volume_capability: Some(self.capability.clone()),
            readonly: read_only,
            secrets: secrets(context, self.source.node_publish_secret_ref.as_ref()).await?,
            volume_context,
        };
        driver.client.node_publish_volume(request).await.map(drop).map_err(rpc_error)
    }
}

/// As gRPC prints a failure.
pub(super) fn rpc_error(status: csi::Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
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
        (Some("ReadWriteOnce"), true) => Mode::SingleNodeMultiWriter,
        (Some("ReadWriteOncePod"), true) => Mode::SingleNodeSingleWriter,
        _ => Mode::SingleNodeWriter,
    }
}

/// The Secret's texts, if one is named.
pub(super) async fn secrets(
    context: &Context,
    secret: Option<&SecretReference>,
) -> Result<HashMap<String, String>, String> {
    let Some((name, namespace)) = secret.and_then(|s| Some((s.name.as_deref()?, s.namespace.as_deref()?)))
    else {
        return Ok(HashMap::new());
    };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let found = api.get(name).await.map_err(|error| {
        format!("fetching NodePublishSecretRef {namespace}/{name} failed: kubernetes.io/csi: {error}")
    })?;
    let data = found.data.unwrap_or_default().into_iter();
    Ok(data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned())).collect())
}

/// The volume's attachment, once the Node says that it is attached.
async fn attached(
    context: &Context,
    source: &CSIPersistentVolumeSource,
    name: &str,
) -> Result<VolumeAttachment, String> {
    let unique = unique_name(source);
    context.csi.set_in_use(context, &unique, true).await?;
    let own = controller::Scope {
        field_selector: Some(format!("metadata.name={}", context.config.node_name)),
        ..controller::Scope::default()
    };
    let node = context.informers.scoped::<Node>(own);
    let mut changes = node.subscribe();
    let waiting = async {
        loop {
            let known = node.get(&context.config.node_name);
            let attached = known.as_ref().and_then(|node| node.status.as_ref()?.volumes_attached.as_ref());
            if attached.is_some_and(|all| all.iter().any(|one| one.name == unique)) {
                return;
            }
            changes.next().await;
        }
    };
    tokio::time::timeout(ATTACH_MAX, waiting).await.map_err(|_| {
        format!(
            "Unable to attach or mount volumes: unmounted volumes=[{name}], unattached volumes=[{name}], \
             failed to process volumes=[]: timed out waiting for the condition"
        )
    })?;
    let found = attachment(context, source).await;
    found.map_err(|error| format!("MountVolume.WaitForAttach failed for volume \"{name}\" : {error}"))
}

/// The volume's attachment to this node, which must be attached.
async fn attachment(
    context: &Context,
    source: &CSIPersistentVolumeSource,
) -> Result<VolumeAttachment, String> {
    let api: Api<VolumeAttachment> = Api::all(context.client.clone());
    let name = attachment_name(source, &context.config.node_name);
    let found = api.get(&name).await.map_err(|error| error.to_string())?;
    match found.status.as_ref().is_some_and(|status| status.attached) {
        true => Ok(found),
        false => Err(format!("volume attachment {name} is not attached")),
    }
}

/// Unpublishes a Pod's volume, and unstages it if it was the last one on the node.
pub(super) async fn take_back(context: &Context, found: &Found) -> Result<(), String> {
    let VolumeData { driver_name, volume_handle, target_path, staging_path, .. } = &found.data;
    let what = &found.data.spec_vol_id;
    let turn = context.csi.turn(driver_name, volume_handle);
    let _turn = turn.lock().await;
    let failed = |call: &str, error: String| format!("{call} failed for volume \"{what}\" : {error}");
    let driver = context.csi.get(driver_name).map_err(|error| failed("UnmountVolume.TearDown", error))?;
    let request = v1::NodeUnpublishVolumeRequest {
        volume_id: volume_handle.clone(),
        target_path: target_path.display().to_string(),
    };
    let unpublished = driver.client.node_unpublish_volume(request).await.map_err(rpc_error);
    unpublished.map_err(|error| failed("UnmountVolume.TearDown", error))?;
    let is_same = |other: &Found| {
        other.folder != found.folder
            && other.data.driver_name == *driver_name
            && other.data.volume_handle == *volume_handle
    };
    let is_last = !data::of_node(&context.config.root_dir).iter().any(is_same);
    if let Some(staging) = staging_path.as_ref().filter(|_| is_last) {
        let request = v1::NodeUnstageVolumeRequest {
            volume_id: volume_handle.clone(),
            staging_target_path: staging.display().to_string(),
        };
        let unstaged = driver.client.node_unstage_volume(request).await.map_err(rpc_error);
        unstaged.map_err(|error| failed("UnmountDevice", error))?;
        forget_staging(staging, target_path)?;
    }
    if is_last && !found.data.attachment_id.is_empty() {
        let unique = format!("kubernetes.io/csi/{driver_name}^{volume_handle}");
        context.csi.set_in_use(context, &unique, false).await?;
    }
    std::fs::remove_dir_all(&found.folder).map_err(|e| describe("remove", &found.folder, &e))
}

/// Removes the folders that were made for staging, which are empty by now.
fn forget_staging(staging: &Path, target: &Path) -> Result<(), String> {
    let is_global = staging.file_name().is_some_and(|name| name == "globalmount");
    let folders = match is_global {
        true => vec![Some(staging), staging.parent()],
        false => vec![Some(staging), target.parent()],
    };
    for folder in folders.into_iter().flatten() {
        match std::fs::remove_dir(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(describe("remove", folder, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The volumes that are attached for Pods of this node, by what is on disk.
pub(crate) fn in_use(root_dir: &Path) -> impl Iterator<Item = String> {
    let attached = data::of_node(root_dir).into_iter().filter(|found| !found.data.attachment_id.is_empty());
    attached.map(|found| format!("kubernetes.io/csi/{}^{}", found.data.driver_name, found.data.volume_handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_are_what_the_driver_knows_of() {
        for (mode, knows, expect) in [
            (Some("ReadWriteOnce"), false, Mode::SingleNodeWriter),
            (Some("ReadWriteOnce"), true, Mode::SingleNodeMultiWriter),
            (Some("ReadWriteOncePod"), true, Mode::SingleNodeSingleWriter),
            (Some("ReadOnlyMany"), true, Mode::MultiNodeReaderOnly),
            (Some("ReadWriteMany"), false, Mode::MultiNodeMultiWriter),
            (None, true, Mode::SingleNodeWriter),
        ] {
            assert_eq!(access_mode(mode, knows), expect, "{mode:?}");
        }
    }
}
