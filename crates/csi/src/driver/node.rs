//! Brings volumes to where the kubelet wants them, and takes them away again.
//!
//! A folder is bound to the staging path and from there to each Pod's; a raw block volume gets its loop device when it
//! is staged, and the device is bound to each Pod's path.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use async_trait::async_trait;
use nix::sys::statvfs::statvfs;
use sys::mount::{self, BindOptions};

use super::controller::kind_of;
use super::volumes::{Kind, Volume, Volumes, is_id};
use super::{Driver, TOPOLOGY_KEY, internal, require};
use crate::server::Node;
use crate::{Result, Status, v1};
use v1::node_service_capability::{self, Rpc, rpc};

/// Says in a volume's context that it is to be made for the Pod. Source: KEP-596.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// Whether the folder `data` is bound to some other place.
pub(super) fn is_mounted_anywhere(data: &Path) -> bool {
    let Ok(all) = mount::mounts() else { return true };
    // The root of a bind mount is a path in its own file system: its end has the volume's id in it.
    let end: std::path::PathBuf =
        data.components().rev().take(3).collect::<Vec<_>>().into_iter().rev().collect();
    all.iter().any(|entry| entry.root.ends_with(&end))
}

fn capability_kind(capability: Option<&v1::VolumeCapability>) -> Result<Kind> {
    let capability =
        capability.ok_or_else(|| Status::invalid_argument("Volume capability missing in request"))?;
    kind_of(std::slice::from_ref(capability)).map_err(Status::invalid_argument)
}

fn stage(volumes: &Volumes, request: &v1::NodeStageVolumeRequest, kind: Kind) -> Result<()> {
    let volume = volumes.find(&request.volume_id)?;
    if volume.kind != kind {
        return Err(Status::invalid_argument("the volume has another access type"));
    }
    let target = Path::new(&request.staging_target_path);
    match kind {
        Kind::Filesystem => bind_folder(&volumes.data(&request.volume_id), target, false),
        Kind::Block => {
            sys::loop_device::attach(&volumes.image(&request.volume_id)).map(drop).map_err(internal)
        }
    }
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
        let volume = Volume { name: id.to_owned(), capacity_bytes: 0, kind, is_ephemeral };
        volumes.create(id, &volume).map_err(internal)?;
    }
    let volume = volumes.find(id)?;
    if volume.kind != kind {
        return Err(Status::invalid_argument("the volume has another access type"));
    }
    match kind {
        Kind::Filesystem if is_ephemeral => bind_folder(&volumes.data(id), target, request.readonly),
        Kind::Filesystem => {
            require(&request.staging_target_path, "Staging target path")?;
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

/// What a file system has, as two rows: bytes and files.
fn usage(path: &Path) -> Result<Vec<v1::VolumeUsage>> {
    let space = statvfs(path).map_err(internal)?;
    let amount = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let bytes = |blocks: u64| amount(blocks.saturating_mul(space.fragment_size()));
    Ok(vec![
        v1::VolumeUsage {
            available: bytes(space.blocks_available()),
            total: bytes(space.blocks()),
            used: bytes(space.blocks().saturating_sub(space.blocks_free())),
            unit: v1::volume_usage::Unit::Bytes.into(),
        },
        v1::VolumeUsage {
            available: amount(space.files_available()),
            total: amount(space.files()),
            used: amount(space.files().saturating_sub(space.files_free())),
            unit: v1::volume_usage::Unit::Inodes.into(),
        },
    ])
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
                Some(Volume { kind: Kind::Block, .. }) => {
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
        self.blocking(move |volumes| {
            let volume = volumes.find(&request.volume_id)?;
            let path = Path::new(&request.volume_path);
            if !path.exists() {
                return Err(Status::not_found(format!("there is no volume at {}", path.display())));
            }
            let usage = match volume.kind {
                Kind::Filesystem => usage(path)?,
                Kind::Block => vec![v1::VolumeUsage {
                    total: volume.capacity_bytes,
                    unit: v1::volume_usage::Unit::Bytes.into(),
                    ..v1::VolumeUsage::default()
                }],
            };
            Ok(v1::NodeGetVolumeStatsResponse { usage, ..v1::NodeGetVolumeStatsResponse::default() })
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
            let volume = volumes.find(&request.volume_id)?;
            if volume.kind == Kind::Block {
                sys::loop_device::grow(&volumes.image(&request.volume_id)).map_err(internal)?;
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
            rpc::Type::ExpandVolume,
            rpc::Type::SingleNodeMultiWriter,
        ];
        let capability = |kind: rpc::Type| v1::NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: kind.into() })),
        };
        Ok(v1::NodeGetCapabilitiesResponse { capabilities: kinds.map(capability).into() })
    }

    async fn node_get_info(&self, _: v1::NodeGetInfoRequest) -> Result<v1::NodeGetInfoResponse> {
        let segments = [(TOPOLOGY_KEY.to_owned(), self.node_id.clone())].into();
        Ok(v1::NodeGetInfoResponse {
            node_id: self.node_id.clone(),
            max_volumes_per_node: self.volumes_max,
            accessible_topology: Some(v1::Topology { segments }),
        })
    }
}
