//! Makes, grows, lists and removes volumes of this node.

use async_trait::async_trait;
use nix::sys::statvfs::statvfs;

use super::volumes::{Kind, Volume, is_id};
use super::{Driver, TOPOLOGY_KEY, internal, require};
use crate::server::Controller;
use crate::{Result, Status, v1};
use v1::controller_service_capability::{self, Rpc, rpc};
use v1::volume_capability::{AccessType, access_mode::Mode};

/// A volume's size if nobody asks for one.
const SIZE_BYTES_DEFAULT: i64 = 1 << 30;
/// Sizes of raw block volumes are multiples of it.
const SECTOR_BYTES: i64 = 512;

/// The way of use that the capabilities ask for.
///
/// A volume is on one node, and what is on one node cannot be used from several.
pub(super) fn kind_of(capabilities: &[v1::VolumeCapability]) -> std::result::Result<Kind, String> {
    let mut kinds = Vec::new();
    for capability in capabilities {
        kinds.push(match &capability.access_type {
            Some(AccessType::Mount(mount)) if !matches!(mount.fs_type.as_str(), "" | "ext4" | "xfs") => {
                return Err(format!("file system type {:?} is not supported", mount.fs_type));
            }
            Some(AccessType::Mount(_)) => Kind::Filesystem,
            Some(AccessType::Block(_)) => Kind::Block,
            None => return Err("cannot have neither mount nor block access type".to_owned()),
        });
        let mode =
            capability.access_mode.as_ref().map_or(Mode::Unknown, v1::volume_capability::AccessMode::mode);
        match mode {
            Mode::SingleNodeWriter
            | Mode::SingleNodeReaderOnly
            | Mode::SingleNodeSingleWriter
            | Mode::SingleNodeMultiWriter => {}
            other => return Err(format!("access mode {} is not supported", other.as_str_name())),
        }
    }
    match kinds.as_slice() {
        [] => Err("volume capabilities missing in request".to_owned()),
        [first, rest @ ..] if rest.iter().all(|kind| kind == first) => Ok(*first),
        _ => Err("cannot have both mount and block access type".to_owned()),
    }
}

/// The size that a range asks for.
fn size_of(range: Option<&v1::CapacityRange>) -> Result<i64> {
    let Some(range) = range else { return Ok(SIZE_BYTES_DEFAULT) };
    let (required, limit) = (range.required_bytes, range.limit_bytes);
    if required < 0 || limit < 0 {
        return Err(Status::invalid_argument("a capacity must not be negative"));
    }
    let wanted = if required == 0 && limit == 0 { SIZE_BYTES_DEFAULT } else { required };
    let wanted = wanted.max(1).saturating_add(SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES;
    if limit != 0 && wanted > limit {
        return Err(Status::out_of_range(format!(
            "no size is at least {required} and at most {limit} bytes"
        )));
    }
    Ok(wanted)
}

impl Driver {
    fn describe(&self, id: String, volume: &Volume) -> v1::Volume {
        let segments = [(TOPOLOGY_KEY.to_owned(), self.node_id.clone())].into();
        v1::Volume {
            capacity_bytes: volume.capacity_bytes,
            volume_id: id,
            accessible_topology: vec![v1::Topology { segments }],
            ..v1::Volume::default()
        }
    }

    /// Whether a volume here can be reached from where it has to be.
    fn is_wanted_here(&self, wanted: Option<&v1::TopologyRequirement>) -> bool {
        let Some(wanted) = wanted.filter(|wanted| !wanted.requisite.is_empty()) else { return true };
        wanted.requisite.iter().any(|topology| topology.segments.get(TOPOLOGY_KEY) == Some(&self.node_id))
    }
}

#[async_trait]
impl Controller for Driver {
    async fn create_volume(&self, request: v1::CreateVolumeRequest) -> Result<v1::CreateVolumeResponse> {
        require(&request.name, "Name")?;
        if !is_id(&request.name) {
            return Err(Status::invalid_argument(
                "a name must be letters, digits, '-', '_' and '.', at most 128",
            ));
        }
        let kind = kind_of(&request.volume_capabilities).map_err(Status::invalid_argument)?;
        if let Some(unknown) = request.parameters.keys().find(|key| !key.starts_with("csi.storage.k8s.io/")) {
            return Err(Status::invalid_argument(format!("unknown parameter {unknown:?}")));
        }
        if request.volume_content_source.is_some() {
            return Err(Status::invalid_argument(
                "volumes are made empty: there are no snapshots and no clones",
            ));
        }
        let capacity_bytes = size_of(request.capacity_range.as_ref())?;
        if !self.is_wanted_here(request.accessibility_requirements.as_ref()) {
            return Err(Status::resource_exhausted(format!(
                "this driver makes volumes on {} only",
                self.node_id
            )));
        }
        let id = request.name.clone();
        let volume = self.blocking(move |volumes| {
            let wanted = Volume { name: request.name.clone(), capacity_bytes, kind, is_ephemeral: false };
            let Some(old) = volumes.get(&request.name)? else {
                volumes.create(&request.name, &wanted).map_err(internal)?;
                return Ok(wanted);
            };
            let limit = request.capacity_range.map_or(0, |range| range.limit_bytes);
            let fits =
                old.capacity_bytes >= wanted.capacity_bytes && (limit == 0 || old.capacity_bytes <= limit);
            match old.kind == kind && fits {
                true => Ok(old),
                false => {
                    let name = &request.name;
                    Err(Status::already_exists(format!(
                        "volume {name} exists with another size or access type"
                    )))
                }
            }
        });
        Ok(v1::CreateVolumeResponse { volume: Some(self.describe(id, &volume.await?)) })
    }

    async fn delete_volume(&self, request: v1::DeleteVolumeRequest) -> Result<v1::DeleteVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        self.blocking(move |volumes| {
            let id = &request.volume_id;
            if volumes.get(id)?.is_none() {
                return Ok(v1::DeleteVolumeResponse {});
            }
            let is_used = super::node::is_mounted_anywhere(&volumes.data(id))
                || volumes.image(id).exists()
                    && sys::loop_device::of(&volumes.image(id)).map_err(internal)?.is_some();
            if is_used {
                return Err(Status::failed_precondition(format!("volume {id} is in use on this node")));
            }
            volumes.delete(id).map_err(internal)?;
            Ok(v1::DeleteVolumeResponse {})
        })
        .await
    }

    async fn validate_volume_capabilities(
        &self,
        request: v1::ValidateVolumeCapabilitiesRequest,
    ) -> Result<v1::ValidateVolumeCapabilitiesResponse> {
        require(&request.volume_id, "Volume ID")?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume capabilities missing in request"));
        }
        let id = request.volume_id.clone();
        let volume = self.blocking(move |volumes| volumes.find(&id)).await?;
        let message = match kind_of(&request.volume_capabilities) {
            Ok(kind) if kind == volume.kind => String::new(),
            Ok(_) => "the volume has another access type".to_owned(),
            Err(why) => why,
        };
        let confirmed = v1::validate_volume_capabilities_response::Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
        };
        let confirmed = message.is_empty().then_some(confirmed);
        Ok(v1::ValidateVolumeCapabilitiesResponse { confirmed, message })
    }

    async fn list_volumes(&self, request: v1::ListVolumesRequest) -> Result<v1::ListVolumesResponse> {
        let start = match request.starting_token.as_str() {
            "" => 0,
            token => token.parse().map_err(|_| Status::aborted("the starting token is not one of ours"))?,
        };
        let most = usize::try_from(request.max_entries).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
        let all = self.blocking(super::volumes::Volumes::list).await?;
        let end = usize::saturating_add(start, most).min(all.len());
        let next_token = if end < all.len() { end.to_string() } else { String::new() };
        let entry = |(id, volume): (String, Volume)| v1::list_volumes_response::Entry {
            volume: Some(self.describe(id, &volume)),
            ..Default::default()
        };
        let entries = all.into_iter().skip(start).take(most).map(entry).collect();
        Ok(v1::ListVolumesResponse { entries, next_token })
    }

    async fn get_capacity(&self, request: v1::GetCapacityRequest) -> Result<v1::GetCapacityResponse> {
        let elsewhere = request.accessible_topology.as_ref().is_some_and(|topology| {
            topology.segments.get(TOPOLOGY_KEY).is_some_and(|node| *node != self.node_id)
        });
        let is_possible =
            request.volume_capabilities.is_empty() || kind_of(&request.volume_capabilities).is_ok();
        if elsewhere || !is_possible {
            return Ok(v1::GetCapacityResponse::default());
        }
        let space = self.blocking(|volumes| statvfs(volumes.folder()).map_err(internal)).await?;
        let available = space.blocks_available().saturating_mul(space.fragment_size());
        let available_capacity = i64::try_from(available).unwrap_or(i64::MAX);
        Ok(v1::GetCapacityResponse { available_capacity, ..v1::GetCapacityResponse::default() })
    }

    async fn controller_get_volume(
        &self,
        request: v1::ControllerGetVolumeRequest,
    ) -> Result<v1::ControllerGetVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        let id = request.volume_id.clone();
        let volume = self.blocking(move |volumes| volumes.find(&id)).await?;
        let condition = v1::VolumeCondition { abnormal: false, message: "the volume is there".to_owned() };
        Ok(v1::ControllerGetVolumeResponse {
            volume: Some(self.describe(request.volume_id, &volume)),
            status: Some(v1::controller_get_volume_response::VolumeStatus {
                volume_condition: Some(condition),
                ..Default::default()
            }),
        })
    }

    async fn controller_expand_volume(
        &self,
        request: v1::ControllerExpandVolumeRequest,
    ) -> Result<v1::ControllerExpandVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        if request.capacity_range.is_none() {
            return Err(Status::invalid_argument("Capacity range not provided"));
        }
        let wanted = size_of(request.capacity_range.as_ref())?;
        self.blocking(move |volumes| {
            let id = &request.volume_id;
            let mut volume = volumes.find(id)?;
            if wanted > volume.capacity_bytes {
                volume.capacity_bytes = wanted;
                volumes.grow(id, &volume).map_err(internal)?;
            }
            Ok(v1::ControllerExpandVolumeResponse {
                capacity_bytes: volume.capacity_bytes,
                node_expansion_required: volume.kind == Kind::Block,
            })
        })
        .await
    }

    async fn controller_get_capabilities(
        &self,
        _: v1::ControllerGetCapabilitiesRequest,
    ) -> Result<v1::ControllerGetCapabilitiesResponse> {
        let kinds = [
            rpc::Type::CreateDeleteVolume,
            rpc::Type::ListVolumes,
            rpc::Type::GetCapacity,
            rpc::Type::GetVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::SingleNodeMultiWriter,
        ];
        let capability = |kind: rpc::Type| v1::ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: kind.into() })),
        };
        Ok(v1::ControllerGetCapabilitiesResponse { capabilities: kinds.map(capability).into() })
    }
}
