//! A driver's volume: waited for until it is attached, staged for the node, published for the Pod, and back.
//!
//! What is about to be made is written down before the driver is asked, and forgotten after it has taken it back: a
//! crash leaves a note without a volume, never a volume without a note. Drivers take every call twice.
//! Source: `pkg/volume/csi/csi_mounter.go`, `csi_attacher.go`, `csi_block.go`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use controller::volume::{attachment_name, sha256, unique_name};
use csi::v1::{self, node_service_capability::rpc};
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, Node, Pod, Secret, SecretReference};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::api::Api;
use serde_json::json;
use v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};

use super::data::{self, Found, VolumeData};
use super::resolve::Resolved;
use super::{Prepared, ownership};
use crate::container_config::identity;
use crate::context::Context;
use crate::csi::Driver;
use crate::objects::request_token;
use crate::volumes::describe;

/// How long one try waits for the attacher.
const ATTACH_MAX: Duration = Duration::from_secs(20);
/// Lifetime of a driver's token if it does not say. Source: `storage/v1.TokenRequest.expirationSeconds`.
const TOKEN_SECONDS: i64 = 3600;

/// What a driver's object says, with upstream's defaults.
struct Wishes {
    attach: bool,
    pod_info: bool,
    group_policy: String,
    tokens: Vec<(String, i64)>,
    modes: Vec<String>,
}

impl Wishes {
    fn of(driver: Option<&CSIDriver>) -> Self {
        let spec = driver.map(|driver| driver.spec.clone()).unwrap_or_default();
        let tokens = spec.token_requests.into_iter().flatten();
        Self {
            attach: spec.attach_required != Some(false),
            pod_info: spec.pod_info_on_mount == Some(true),
            group_policy: spec.fs_group_policy.unwrap_or_else(|| "ReadWriteOnceWithFSType".to_owned()),
            tokens: tokens.map(|t| (t.audience, t.expiration_seconds.unwrap_or(TOKEN_SECONDS))).collect(),
            modes: spec.volume_lifecycle_modes.unwrap_or_else(|| vec!["Persistent".to_owned()]),
        }
    }

    /// Whether the driver has volumes that live as long as `mode` says.
    fn allow(&self, mode: &str, driver: &str) -> Result<(), String> {
        if self.modes.iter().any(|one| one == mode) {
            return Ok(());
        }
        Err(format!(
            "kubernetes.io/csi: mounter.SetUpAt failed to check volume lifecycle mode: volume mode \"{mode}\" not \
             supported by driver {driver} (only supports {:?})",
            self.modes
        ))
    }
}

/// Where a volume is staged, and where it is published for the Pod.
struct Places {
    staging: PathBuf,
    folder: PathBuf,
    target: PathBuf,
}

fn places(
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
    let wishes = wishes(context, &source.driver).await;
    let is_inline = resolved.volume.is_none();
    let mode = if is_inline { "Ephemeral" } else { "Persistent" };
    wishes.allow(mode, &source.driver).map_err(set_up)?;
    let turn = context.csi.turn(&source.driver, &source.volume_handle);
    let _turn = turn.lock().await;
    let attachment = match wishes.attach && !is_inline {
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
    let group = ownership::group(pod).filter(|_| driver.can(rpc::Type::VolumeMountGroup));
    let call = Call {
        capability: capability(resolved, source, &driver, group),
        publish_context: publish_context.unwrap_or_default().into_iter().collect(),
        volume_context: source.volume_attributes.clone().unwrap_or_default().into_iter().collect(),
        source,
        places: &places,
        is_staged,
    };
    if is_staged {
        let what = if resolved.is_device() { "MapVolume.SetUpDevice" } else { "MountVolume.MountDevice" };
        call.stage(context, &driver)
            .await
            .map_err(|error| format!("{what} failed for volume \"{name}\" : {error}"))?;
    }
    let mut extra = HashMap::new();
    if wishes.pod_info {
        extra.extend(pod_info(pod, is_inline));
    }
    extra.extend(tokens(context, pod, &wishes.tokens).await.map_err(set_up)?);
    call.publish(context, &driver, resolved.read_only, extra).await.map_err(set_up)?;
    let is_group_ours = match wishes.group_policy.as_str() {
        "File" => true,
        "None" => false,
        _ => source.fs_type.as_deref().is_some_and(|fs| !fs.is_empty()) && is_write_once(resolved),
    };
    if is_group_ours && !resolved.is_device() && !resolved.read_only && group.is_none() {
        ownership::apply_for(pod, &places.target).await.map_err(set_up)?;
    }
    Ok(Prepared { path: places.target, is_device: resolved.is_device(), read_only: resolved.read_only })
}

async fn wishes(context: &Context, driver: &str) -> Wishes {
    let drivers = context.informers.informer::<CSIDriver>();
    drivers.synced().await;
    Wishes::of(drivers.get(driver).as_deref())
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

impl Call<'_> {
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
fn rpc_error(status: csi::Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}

fn capability(
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
    driver: &Driver,
    group: Option<u32>,
) -> v1::VolumeCapability {
    let spec = resolved.volume.as_ref().and_then(|volume| volume.spec.as_ref());
    let mode = spec.and_then(|spec| spec.access_modes.as_ref()?.first()).map(String::as_str);
    let access_type = match resolved.is_device() {
        true => AccessType::Block(BlockVolume {}),
        false => AccessType::Mount(MountVolume {
            fs_type: source.fs_type.clone().unwrap_or_default(),
            mount_flags: resolved.mount_options(),
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
async fn secrets(
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

/// Source: `CSIDriverSpec.podInfoOnMount`.
fn pod_info(pod: &Pod, is_inline: bool) -> [(String, String); 5] {
    let (name, namespace, uid) = identity(pod);
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
    [
        ("csi.storage.k8s.io/pod.name", name),
        ("csi.storage.k8s.io/pod.namespace", namespace),
        ("csi.storage.k8s.io/pod.uid", uid),
        ("csi.storage.k8s.io/serviceAccount.name", account),
        ("csi.storage.k8s.io/ephemeral", is_inline.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

/// Source: `CSIDriverSpec.tokenRequests`.
async fn tokens(
    context: &Context,
    pod: &Pod,
    wanted: &[(String, i64)],
) -> Result<Option<(String, String)>, String> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let mut all = serde_json::Map::new();
    for key in wanted {
        let token = request_token(context, pod, key).await?;
        let expires = token.expires_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        all.insert(key.0.clone(), json!({"token": token.text, "expirationTimestamp": expires}));
    }
    let text = serde_json::Value::Object(all).to_string();
    Ok(Some(("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), text)))
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
    let api: Api<VolumeAttachment> = Api::all(context.client.clone());
    let attachment = attachment_name(source, &context.config.node_name);
    let wait = |error: &dyn std::fmt::Display| {
        format!("MountVolume.WaitForAttach failed for volume \"{name}\" : {error}")
    };
    let found = api.get(&attachment).await.map_err(|error| wait(&error))?;
    match found.status.as_ref().is_some_and(|status| status.attached) {
        true => Ok(found),
        false => Err(wait(&format!("volume attachment {attachment} is not attached"))),
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

/// Tells a driver that a volume, which its controller's side has made larger, is to be so wherever it is published.
///
/// # Errors
/// What the driver said.
pub(crate) async fn grow(context: &Context, name: &str, handle: &str, bytes: i64) -> Result<(), csi::Status> {
    let driver = context.csi.get(name).map_err(csi::Status::unavailable)?;
    let turn = context.csi.turn(name, handle);
    let _turn = turn.lock().await;
    let mine = |found: &Found| found.data.driver_name == name && found.data.volume_handle == handle;
    for found in data::of_node(&context.config.root_dir).into_iter().filter(mine) {
        let staging = found.data.staging_path.map(|path| path.display().to_string());
        let request = v1::NodeExpandVolumeRequest {
            volume_id: handle.to_owned(),
            volume_path: found.data.target_path.display().to_string(),
            capacity_range: Some(v1::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            staging_target_path: staging.unwrap_or_default(),
            ..v1::NodeExpandVolumeRequest::default()
        };
        driver.client.node_expand_volume(request).await?;
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

    #[test]
    fn a_driver_without_an_object_is_asked_to_attach() {
        let wishes = Wishes::of(None);
        assert!(wishes.attach && !wishes.pod_info && wishes.modes == ["Persistent"]);
        assert_eq!(wishes.group_policy, "ReadWriteOnceWithFSType");
    }
}
