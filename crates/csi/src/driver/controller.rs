//! Makes, grows, changes, lists and removes volumes of this node.

use async_trait::async_trait;
use nix::sys::statvfs::statvfs;

use super::capability::kind_of;
use super::images::FS_TYPE_DEFAULT;
use super::options::{self, Allocation, Backing, Options};
use super::volumes::{Content, Kind, Volume, Volumes, is_id};
use super::{Driver, failed, internal, require};
use crate::server::Controller;
use crate::{Result, Status, v1};
use v1::controller_service_capability::{self, Rpc, rpc};
use v1::volume_capability::AccessType;
use v1::volume_content_source::Type as SourceType;

/// A volume's size if nobody asks for one.
const SIZE_BYTES_DEFAULT: i64 = 1 << 30;
/// Sizes of raw block volumes are multiples of it.
const SECTOR_BYTES: i64 = 512;

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
        let segments = [(self.topology_key(), self.node_id.clone())].into();
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
        wanted
            .requisite
            .iter()
            .any(|topology| topology.segments.get(&self.topology_key()) == Some(&self.node_id))
    }
}

/// The type of the file system that the capabilities ask for.
fn fs_type_of(capabilities: &[v1::VolumeCapability]) -> String {
    let mut asked = capabilities.iter().filter_map(|capability| match &capability.access_type {
        Some(AccessType::Mount(mount)) => Some(mount.fs_type.as_str()),
        _ => None,
    });
    asked.find(|fs_type| !fs_type.is_empty()).unwrap_or(FS_TYPE_DEFAULT).to_owned()
}

/// A folder's space cannot be taken ahead.
fn check(kind: Kind, options: Options) -> Result<()> {
    let is_directory = kind == Kind::Filesystem && options.backing == Backing::Directory;
    if is_directory && options.allocation == Allocation::Thick {
        return Err(Status::invalid_argument(
            "allocation \"thick\" needs a volume of its own size: raw blocks, or parameter \"backing\": \"image\"",
        ));
    }
    Ok(())
}

/// The volume that another is to be a copy of.
fn source_of(request: &v1::CreateVolumeRequest) -> Result<Option<String>> {
    let Some(source) = &request.volume_content_source else { return Ok(None) };
    match &source.r#type {
        Some(SourceType::Volume(volume)) => {
            require(&volume.volume_id, "Source volume ID").map(|()| Some(volume.volume_id.clone()))
        }
        Some(SourceType::Snapshot(_)) => Err(Status::invalid_argument("there are no snapshots of volumes")),
        None => Err(Status::invalid_argument("the volume's content source names nothing")),
    }
}

/// Whether the volume's device or folder is in use on this node.
fn is_used(volumes: &Volumes, id: &str) -> Result<bool> {
    let image = volumes.image(id);
    Ok(!super::node::places(volumes, id)?.is_empty()
        || image.exists() && sys::loop_device::of(&image).map_err(internal)?.is_some())
}

/// Makes the volume, or finds the one that was made before.
fn create(volumes: &Volumes, wanted: Volume, limit: i64, source: Option<String>) -> Result<Volume> {
    let name = wanted.name.clone();
    let _making = volumes.begin(&name)?;
    if let Some(old) = volumes.get(&name)? {
        let fits = old.capacity_bytes >= wanted.capacity_bytes && (limit == 0 || old.capacity_bytes <= limit);
        if old.kind == wanted.kind && old.backing == wanted.backing && fits {
            return Ok(old);
        }
        return Err(Status::already_exists(format!("volume {name} exists with another size or access type")));
    }
    let free_bytes = free_bytes(volumes)?;
    if wanted.capacity_bytes > free_bytes {
        let why =
            format!("{} bytes are asked for and {free_bytes} are left on this node", wanted.capacity_bytes);
        return Err(Status::resource_exhausted(why));
    }
    let Some(source) = source else {
        volumes.create(&name, &wanted, &Content::Nothing).map_err(failed)?;
        return Ok(wanted);
    };
    let original = volumes.find(&source)?;
    if original.kind != wanted.kind || original.backing != wanted.backing {
        return Err(Status::invalid_argument(format!("volume {source} is of another kind than its copy")));
    }
    if original.capacity_bytes > wanted.capacity_bytes {
        return Err(Status::out_of_range(format!("volume {source} is larger than its copy is to be")));
    }
    if original.has_image() && is_used(volumes, &source)? {
        let why = format!("volume {source} is in use: a copy of its blocks would be of several moments");
        return Err(Status::failed_precondition(why));
    }
    let Volume { fs_type, fs_bytes, is_used, .. } = original;
    let wanted = Volume { fs_type, fs_bytes, is_used, ..wanted };
    volumes.create(&name, &wanted, &Content::CopyOf(&source)).map_err(failed)?;
    Ok(wanted)
}

/// How many bytes are left for volumes, which is also how large one can be.
fn free_bytes(volumes: &Volumes) -> Result<i64> {
    let space = statvfs(volumes.folder()).map_err(internal)?;
    let available = space.blocks_available().saturating_mul(space.fragment_size());
    Ok(i64::try_from(available).unwrap_or(i64::MAX))
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
        let kind = kind_of(&request.volume_capabilities)?;
        let options = Options::of(&request.parameters, &request.mutable_parameters)?;
        check(kind, options)?;
        let source = source_of(&request)?;
        let capacity_bytes = size_of(request.capacity_range.as_ref())?;
        if !self.is_wanted_here(request.accessibility_requirements.as_ref()) {
            return Err(Status::resource_exhausted(format!(
                "this driver makes volumes on {} only",
                self.node_id
            )));
        }
        let wanted = Volume {
            name: request.name.clone(),
            capacity_bytes,
            kind,
            is_ephemeral: false,
            backing: options.backing,
            allocation: options.allocation,
            fs_type: fs_type_of(&request.volume_capabilities),
            fs_bytes: capacity_bytes,
            is_used: false,
        };
        let limit = request.capacity_range.map_or(0, |range| range.limit_bytes);
        let made = self.unhurried(move |volumes| create(volumes, wanted, limit, source)).await?;
        let mut volume = self.describe(request.name, &made);
        volume.content_source = request.volume_content_source;
        Ok(v1::CreateVolumeResponse { volume: Some(volume) })
    }

    async fn delete_volume(&self, request: v1::DeleteVolumeRequest) -> Result<v1::DeleteVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        self.blocking(move |volumes| {
            let id = &request.volume_id;
            // One that is being made would be there afterwards.
            let _making = volumes.begin(id)?;
            if volumes.get(id)?.is_none() {
                return Ok(v1::DeleteVolumeResponse {});
            }
            if is_used(volumes, id)? {
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
            Err(status) => status.message().to_owned(),
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
        if request.max_entries < 0 {
            return Err(Status::invalid_argument("the number of entries must not be negative"));
        }
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
            topology.segments.get(&self.topology_key()).is_some_and(|node| *node != self.node_id)
        });
        let is_possible =
            request.volume_capabilities.is_empty() || kind_of(&request.volume_capabilities).is_ok();
        let is_known = Options::of(&request.parameters, &std::collections::HashMap::new()).is_ok();
        if elsewhere || !is_possible || !is_known {
            return Ok(v1::GetCapacityResponse::default());
        }
        let available_capacity = self.unhurried(free_bytes).await?;
        Ok(v1::GetCapacityResponse {
            available_capacity,
            maximum_volume_size: Some(available_capacity),
            minimum_volume_size: Some(SECTOR_BYTES),
        })
    }

    async fn controller_get_volume(
        &self,
        request: v1::ControllerGetVolumeRequest,
    ) -> Result<v1::ControllerGetVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        let id = request.volume_id.clone();
        let found = self.blocking(move |volumes| {
            let volume = volumes.find(&id)?;
            let condition = super::node::condition(volumes, &id, &volume, None);
            Ok((volume, condition))
        });
        let (volume, condition) = found.await?;
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
                volumes.change(id, &volume).map_err(failed)?;
            }
            Ok(v1::ControllerExpandVolumeResponse {
                capacity_bytes: volume.capacity_bytes,
                node_expansion_required: volume.has_image(),
            })
        })
        .await
    }

    async fn controller_modify_volume(
        &self,
        request: v1::ControllerModifyVolumeRequest,
    ) -> Result<v1::ControllerModifyVolumeResponse> {
        require(&request.volume_id, "Volume ID")?;
        let wanted = options::allocation(&request.mutable_parameters)?;
        self.blocking(move |volumes| {
            let id = &request.volume_id;
            let mut volume = volumes.find(id)?;
            volume.allocation = wanted.unwrap_or(volume.allocation);
            check(volume.kind, Options { backing: volume.backing, allocation: volume.allocation })?;
            volumes.change(id, &volume).map_err(failed)?;
            Ok(v1::ControllerModifyVolumeResponse {})
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
            rpc::Type::VolumeCondition,
            rpc::Type::CloneVolume,
            rpc::Type::ModifyVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::SingleNodeMultiWriter,
        ];
        let capability = |kind: rpc::Type| v1::ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: kind.into() })),
        };
        Ok(v1::ControllerGetCapabilitiesResponse { capabilities: kinds.map(capability).into() })
    }
}
