//! Brings volumes to where the kubelet wants them, and takes them away again.
//!
//! A folder is bound to the staging path and from there to each Pod's; a file gets its loop device when it is staged,
//! and the file system on the device is mounted, or for raw blocks the device bound to each Pod's path.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use nix::sys::statvfs::statvfs;
use sys::mount::{self, BindOptions, MountEntry};

use super::capability::kind_of;
use super::images;
use super::options::{Allocation, Backing};
use super::volumes::{Content, Kind, Volume, Volumes, is_id};
use super::{Driver, failed, internal, require};
use crate::server::Node;
use crate::{Result, Status, v1};
use v1::node_service_capability::{self, Rpc, rpc};
use v1::volume_capability::{AccessType, access_mode::Mode};

/// Says in a volume's context that it is to be made for the Pod. Source: KEP-596.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// Where the volume is on this node besides its own folder: a folder's bind mounts, a device's file systems and nodes.
pub(super) fn places(volumes: &Volumes, id: &str) -> Result<Vec<PathBuf>> {
    let device = match volumes.image(id) {
        image if image.exists() => sys::loop_device::of(&image).map_err(internal)?,
        _ => None,
    };
    // The root of a bind mount is a path in its own file system: its end has the volume's id in it.
    let data = volumes.data(id);
    let end: PathBuf = data.components().rev().take(3).collect::<Vec<_>>().into_iter().rev().collect();
    let is_here = |entry: &MountEntry| match &device {
        Some(device) => {
            // A device's node is bound from the root of the file system that `/dev` is.
            let node = Path::new("/").join(device.file_name().unwrap_or_default());
            Path::new(&entry.source) == device
                || matches!(entry.fs_type.as_str(), "devtmpfs" | "tmpfs") && entry.root == node
        }
        None => entry.root.ends_with(&end),
    };
    let all = mount::mounts().map_err(internal)?.into_iter();
    Ok(all.filter(is_here).map(|entry| entry.target).collect())
}

fn capability_kind(capability: Option<&v1::VolumeCapability>) -> Result<Kind> {
    let capability =
        capability.ok_or_else(|| Status::invalid_argument("Volume capability missing in request"))?;
    kind_of(std::slice::from_ref(capability))
}

fn stage(volumes: &Volumes, request: &v1::NodeStageVolumeRequest, kind: Kind) -> Result<()> {
    let volume = volumes.find(&request.volume_id)?;
    if volume.kind != kind {
        return Err(Status::invalid_argument("the volume has another access type"));
    }
    let target = Path::new(&request.staging_target_path);
    if !volume.has_image() {
        return bind_folder(&volumes.data(&request.volume_id), target, false);
    }
    let image = volumes.image(&request.volume_id);
    let device = sys::loop_device::attach(&image).map_err(internal)?;
    // One that was there has the size that the file had then.
    sys::loop_device::grow(&image).map_err(internal)?;
    match kind {
        Kind::Filesystem => mount_image(volumes, volume, &device, request),
        Kind::Block => Ok(()),
    }
}

/// Mounts the file system in an image, and has it take all of the image: that may have grown since.
fn mount_image(
    volumes: &Volumes,
    mut volume: Volume,
    device: &Path,
    request: &v1::NodeStageVolumeRequest,
) -> Result<()> {
    let target = Path::new(&request.staging_target_path);
    fs::create_dir_all(target).map_err(internal)?;
    let has_grown = volume.fs_bytes < volume.capacity_bytes;
    if !mount::is_mounted(target).map_err(internal)? {
        let options = match request.volume_capability.as_ref().and_then(|asked| asked.access_type.as_ref()) {
            Some(AccessType::Mount(mount)) => mount.mount_flags.as_slice(),
            _ => &[],
        };
        // If another mount namespace holds the file system for longer, it grows another time.
        let grown = if has_grown { images::grow_unmounted(device, &volume.fs_type) } else { Ok(()) };
        if let Err(error) = &grown {
            tracing::warn!(%error, volume = request.volume_id, "a file system did not grow before it was mounted");
        }
        images::mount(device, &volume.fs_type, options, target).map_err(internal)?;
        if has_grown && volume.fs_type == "xfs" {
            images::grow(device, &volume.fs_type, target).map_err(internal)?;
        }
        if grown.is_ok() {
            volume.fs_bytes = volume.capacity_bytes;
        }
    }
    if !volume.is_used {
        fs::set_permissions(target, fs::Permissions::from_mode(0o777)).map_err(internal)?;
        volume.is_used = true;
    }
    volumes.note(&request.volume_id, &volume).map_err(internal)
}

fn bind_folder(source: &Path, target: &Path, read_only: bool) -> Result<()> {
    fs::create_dir_all(target).map_err(internal)?;
    if mount::is_mounted(target).map_err(internal)? {
        return Ok(());
    }
    mount::bind(source, target, BindOptions { read_only, ..BindOptions::default() }).map_err(internal)
}

fn publish(volumes: &Volumes, request: &v1::NodePublishVolumeRequest, kind: Kind) -> Result<()> {
    let (id, target) = (request.volume_id.as_str(), Path::new(&request.target_path));
    let is_ephemeral = request.volume_context.get(EPHEMERAL).is_some_and(|value| value == "true");
    if is_ephemeral && volumes.get(id)?.is_none() {
        if !is_id(id) || kind != Kind::Filesystem {
            return Err(Status::invalid_argument("an ephemeral volume must be a file system"));
        }
        let volume = Volume {
            name: id.to_owned(),
            capacity_bytes: 0,
            kind,
            is_ephemeral,
            backing: Backing::Directory,
            allocation: Allocation::Thin,
            fs_type: String::new(),
            fs_bytes: 0,
            is_used: false,
        };
        volumes.create(id, &volume, &Content::Nothing).map_err(failed)?;
    }
    let volume = volumes.find(id)?;
    if volume.kind != kind {
        return Err(Status::invalid_argument("the volume has another access type"));
    }
    refuse_second_writer(volumes, request)?;
    refuse_otherwise(request)?;
    match kind {
        Kind::Filesystem if is_ephemeral => bind_folder(&volumes.data(id), target, request.readonly),
        Kind::Filesystem => {
            if request.staging_target_path.is_empty() {
                return Err(Status::failed_precondition("Staging target path missing in request"));
            }
            let staged = Path::new(&request.staging_target_path);
            if !mount::is_mounted(staged).map_err(internal)? {
                return Err(Status::failed_precondition(format!("volume {id} is not staged")));
            }
            bind_folder(staged, target, request.readonly)
        }
        Kind::Block => {
            let device = sys::loop_device::of(&volumes.image(id)).map_err(internal)?;
            let device =
                device.ok_or_else(|| Status::failed_precondition(format!("volume {id} is not staged")))?;
            bind_device(&device, target)
        }
    }
}

/// A volume for a single writer is in one place only. Source: `SINGLE_NODE_SINGLE_WRITER`, CSI's `NodePublishVolume`.
fn refuse_second_writer(volumes: &Volumes, request: &v1::NodePublishVolumeRequest) -> Result<()> {
    let mode = request.volume_capability.as_ref().and_then(|asked| asked.access_mode.as_ref());
    if mode.is_none_or(|mode| mode.mode() != Mode::SingleNodeSingleWriter) {
        return Ok(());
    }
    let own = [&request.target_path, &request.staging_target_path].map(|path| real(Path::new(path)));
    match places(volumes, &request.volume_id)?.into_iter().find(|place| !own.contains(place)) {
        Some(place) => Err(Status::failed_precondition(format!(
            "volume {} is for a single writer and is published at {} already",
            request.volume_id,
            place.display()
        ))),
        None => Ok(()),
    }
}

/// What is published already is so as it is asked for. Source: CSI's `NodePublishVolume`, "published but is incompatible".
fn refuse_otherwise(request: &v1::NodePublishVolumeRequest) -> Result<()> {
    let target = real(Path::new(&request.target_path));
    let there = mount::mounts().map_err(internal)?.into_iter().rfind(|entry| entry.target == target);
    let is_read_only = |entry: &MountEntry| entry.options.split(',').any(|option| option == "ro");
    match there.is_some_and(|entry| is_read_only(&entry) != request.readonly) {
        false => Ok(()),
        true => {
            let why = format!("volume {} is published with another readonly flag", request.volume_id);
            Err(Status::already_exists(why))
        }
    }
}

/// The path as the kernel's list of mounts has it.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn bind_device(device: &Path, target: &Path) -> Result<()> {
    if mount::is_mounted(target).map_err(internal)? {
        return Ok(());
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(internal)?;
    }
    fs::OpenOptions::new().create(true).truncate(false).write(true).open(target).map_err(internal)?;
    mount::bind(device, target, BindOptions::default()).map_err(internal)
}

/// Has the volume's device take the image's new size, and the file system the device's.
fn grow(volumes: &Volumes, volume: &mut Volume, request: &v1::NodeExpandVolumeRequest) -> Result<()> {
    let image = volumes.image(&request.volume_id);
    sys::loop_device::grow(&image).map_err(internal)?;
    let device = sys::loop_device::of(&image).map_err(internal)?;
    let has_grown = volume.kind == Kind::Filesystem && volume.fs_bytes < volume.capacity_bytes;
    let Some(device) = device.filter(|_| has_grown) else { return Ok(()) };
    images::grow(&device, &volume.fs_type, Path::new(&request.volume_path)).map_err(|error| {
        Status::failed_precondition(format!("the file system will grow when it is next mounted: {error}"))
    })?;
    volume.fs_bytes = volume.capacity_bytes;
    volumes.note(&request.volume_id, volume).map_err(internal)
}

/// Unmounts all that is at `target`, and removes it.
fn clear(target: &Path) -> Result<()> {
    while mount::is_mounted(target).map_err(internal)? {
        mount::unmount(target).map_err(internal)?;
    }
    let removed = match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() => fs::remove_dir(target),
        Ok(_) => fs::remove_file(target),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(internal(error)),
        _ => Ok(()),
    }
}

/// What is used of a volume, as two rows: bytes and files. A folder has what its disk has, and uses what is in it.
fn usage(path: &Path, volume: &Volume) -> Result<Vec<v1::VolumeUsage>> {
    let space = statvfs(path).map_err(internal)?;
    let (used_bytes, used_files) = match volume.has_image() {
        true => (
            space.blocks().saturating_sub(space.blocks_free()).saturating_mul(space.fragment_size()),
            space.files().saturating_sub(space.files_free()),
        ),
        false => {
            let used = sys::tree::size(path);
            (used.bytes, used.inodes)
        }
    };
    let amount = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let bytes = |blocks: u64| amount(blocks.saturating_mul(space.fragment_size()));
    Ok(vec![
        v1::VolumeUsage {
            available: bytes(space.blocks_available()),
            total: bytes(space.blocks()),
            used: amount(used_bytes),
            unit: v1::volume_usage::Unit::Bytes.into(),
        },
        v1::VolumeUsage {
            available: amount(space.files_available()),
            total: amount(space.files()),
            used: amount(used_files),
            unit: v1::volume_usage::Unit::Inodes.into(),
        },
    ])
}

/// Whether the volume is well, as far as can be seen; `path` is where it is mounted. Source: `VolumeCondition`.
pub(super) fn condition(
    volumes: &Volumes,
    id: &str,
    volume: &Volume,
    path: Option<&Path>,
) -> v1::VolumeCondition {
    let files = if volume.has_image() { volumes.image(id) } else { volumes.data(id) };
    let is_short = || {
        let length = fs::metadata(&files).map_or(0, |meta| meta.len());
        volume.has_image() && i64::try_from(length).unwrap_or(i64::MAX) < volume.capacity_bytes
    };
    let stopped = || {
        let mounted = path.and_then(|path| mount::mounts().ok()?.into_iter().rfind(|one| one.target == path));
        mounted.is_some_and(|one| {
            volume.kind == Kind::Filesystem && one.super_options.split(',').any(|option| option == "ro")
        })
    };
    let wrong = if !files.exists() {
        Some("the volume's files are gone")
    } else if is_short() {
        Some("the volume's image is smaller than the volume")
    } else if stopped() {
        Some("the volume's file system has become read-only")
    } else {
        None
    };
    v1::VolumeCondition {
        abnormal: wrong.is_some(),
        message: wrong.unwrap_or("the volume is well").to_owned(),
    }
}

#[async_trait]
impl Node for Driver {
    async fn node_stage_volume(
        &self,
        request: v1::NodeStageVolumeRequest,
    ) -> Result<v1::NodeStageVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        require(&request.staging_target_path, "Staging target path")?;
        let kind = capability_kind(request.volume_capability.as_ref())?;
        self.blocking(move |volumes| stage(volumes, &request, kind)).await?;
        Ok(v1::NodeStageVolumeResponse {})
    }

    async fn node_unstage_volume(
        &self,
        request: v1::NodeUnstageVolumeRequest,
    ) -> Result<v1::NodeUnstageVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        require(&request.staging_target_path, "Staging target path")?;
        self.blocking(move |volumes| {
            let target = Path::new(&request.staging_target_path);
            // The folder itself is the kubelet's.
            while mount::is_mounted(target).map_err(internal)? {
                mount::unmount(target).map_err(internal)?;
            }
            match volumes.get(&request.volume_id)? {
                Some(volume) if volume.has_image() => {
                    sys::loop_device::detach(&volumes.image(&request.volume_id)).map_err(internal)
                }
                _ => Ok(()),
            }
        })
        .await?;
        Ok(v1::NodeUnstageVolumeResponse {})
    }

    async fn node_publish_volume(
        &self,
        request: v1::NodePublishVolumeRequest,
    ) -> Result<v1::NodePublishVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        require(&request.target_path, "Target path")?;
        let kind = capability_kind(request.volume_capability.as_ref())?;
        self.blocking(move |volumes| publish(volumes, &request, kind)).await?;
        Ok(v1::NodePublishVolumeResponse {})
    }

    async fn node_unpublish_volume(
        &self,
        request: v1::NodeUnpublishVolumeRequest,
    ) -> Result<v1::NodeUnpublishVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        require(&request.target_path, "Target path")?;
        self.blocking(move |volumes| {
            clear(Path::new(&request.target_path))?;
            match volumes.get(&request.volume_id)? {
                Some(volume) if volume.is_ephemeral => volumes.delete(&request.volume_id).map_err(internal),
                _ => Ok(()),
            }
        })
        .await?;
        Ok(v1::NodeUnpublishVolumeResponse {})
    }

    async fn node_get_volume_stats(
        &self,
        request: v1::NodeGetVolumeStatsRequest,
    ) -> Result<v1::NodeGetVolumeStatsResponse> {
        require(&request.volume_id, "Volume ID")?;
        require(&request.volume_path, "Volume path")?;
        self.unhurried(move |volumes| {
            let volume = volumes.find(&request.volume_id)?;
            let path = Path::new(&request.volume_path);
            if !path.exists() {
                return Err(Status::not_found(format!("there is no volume at {}", path.display())));
            }
            let usage = match volume.kind {
                Kind::Filesystem => usage(path, &volume)?,
                Kind::Block => vec![v1::VolumeUsage {
                    total: volume.capacity_bytes,
                    unit: v1::volume_usage::Unit::Bytes.into(),
                    ..v1::VolumeUsage::default()
                }],
            };
            let volume_condition = Some(condition(volumes, &request.volume_id, &volume, Some(path)));
            Ok(v1::NodeGetVolumeStatsResponse { usage, volume_condition })
        })
        .await
    }

    async fn node_expand_volume(
        &self,
        request: v1::NodeExpandVolumeRequest,
    ) -> Result<v1::NodeExpandVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        require(&request.volume_path, "Volume path")?;
        self.blocking(move |volumes| {
            let mut volume = volumes.find(&request.volume_id)?;
            if volume.has_image() {
                grow(volumes, &mut volume, &request)?;
            }
            Ok(v1::NodeExpandVolumeResponse { capacity_bytes: volume.capacity_bytes })
        })
        .await
    }

    async fn node_get_capabilities(
        &self,
        _: v1::NodeGetCapabilitiesRequest,
    ) -> Result<v1::NodeGetCapabilitiesResponse> {
        let kinds = [
            rpc::Type::StageUnstageVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::VolumeCondition,
            rpc::Type::ExpandVolume,
            rpc::Type::SingleNodeMultiWriter,
        ];
        let capability = |kind: rpc::Type| v1::NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: kind.into() })),
        };
        Ok(v1::NodeGetCapabilitiesResponse { capabilities: kinds.map(capability).into() })
    }

    async fn node_get_info(&self, _: v1::NodeGetInfoRequest) -> Result<v1::NodeGetInfoResponse> {
        let segments = [(self.topology_key(), self.node_id.clone())].into();
        Ok(v1::NodeGetInfoResponse {
            node_id: self.node_id.clone(),
            max_volumes_per_node: self.volumes_max,
            accessible_topology: Some(v1::Topology { segments }),
        })
    }
}
