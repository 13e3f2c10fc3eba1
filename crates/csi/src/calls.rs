//! Every call: its name on the wire, its method, its messages. A row per call; client and server are made of them.

macro_rules! identity_calls {
    ($then:ident) => {
        $then! {
            Identity "csi.v1.Identity" v1
            "GetPluginInfo" get_plugin_info GetPluginInfoRequest GetPluginInfoResponse;
            "GetPluginCapabilities" get_plugin_capabilities GetPluginCapabilitiesRequest
                GetPluginCapabilitiesResponse;
            "Probe" probe ProbeRequest ProbeResponse;
        }
    };
}

macro_rules! controller_calls {
    ($then:ident) => {
        $then! {
            Controller "csi.v1.Controller" v1
            "CreateVolume" create_volume CreateVolumeRequest CreateVolumeResponse;
            "DeleteVolume" delete_volume DeleteVolumeRequest DeleteVolumeResponse;
            "ControllerPublishVolume" controller_publish_volume ControllerPublishVolumeRequest
                ControllerPublishVolumeResponse;
            "ControllerUnpublishVolume" controller_unpublish_volume ControllerUnpublishVolumeRequest
                ControllerUnpublishVolumeResponse;
            "ValidateVolumeCapabilities" validate_volume_capabilities ValidateVolumeCapabilitiesRequest
                ValidateVolumeCapabilitiesResponse;
            "ListVolumes" list_volumes ListVolumesRequest ListVolumesResponse;
            "GetCapacity" get_capacity GetCapacityRequest GetCapacityResponse;
            "ControllerGetCapabilities" controller_get_capabilities ControllerGetCapabilitiesRequest
                ControllerGetCapabilitiesResponse;
            "CreateSnapshot" create_snapshot CreateSnapshotRequest CreateSnapshotResponse;
            "DeleteSnapshot" delete_snapshot DeleteSnapshotRequest DeleteSnapshotResponse;
            "ListSnapshots" list_snapshots ListSnapshotsRequest ListSnapshotsResponse;
            "ControllerExpandVolume" controller_expand_volume ControllerExpandVolumeRequest
                ControllerExpandVolumeResponse;
            "ControllerGetVolume" controller_get_volume ControllerGetVolumeRequest ControllerGetVolumeResponse;
            "ControllerModifyVolume" controller_modify_volume ControllerModifyVolumeRequest
                ControllerModifyVolumeResponse;
        }
    };
}

macro_rules! node_calls {
    ($then:ident) => {
        $then! {
            Node "csi.v1.Node" v1
            "NodeStageVolume" node_stage_volume NodeStageVolumeRequest NodeStageVolumeResponse;
            "NodeUnstageVolume" node_unstage_volume NodeUnstageVolumeRequest NodeUnstageVolumeResponse;
            "NodePublishVolume" node_publish_volume NodePublishVolumeRequest NodePublishVolumeResponse;
            "NodeUnpublishVolume" node_unpublish_volume NodeUnpublishVolumeRequest NodeUnpublishVolumeResponse;
            "NodeGetVolumeStats" node_get_volume_stats NodeGetVolumeStatsRequest NodeGetVolumeStatsResponse;
            "NodeExpandVolume" node_expand_volume NodeExpandVolumeRequest NodeExpandVolumeResponse;
            "NodeGetCapabilities" node_get_capabilities NodeGetCapabilitiesRequest NodeGetCapabilitiesResponse;
            "NodeGetInfo" node_get_info NodeGetInfoRequest NodeGetInfoResponse;
        }
    };
}

macro_rules! registration_calls {
    ($then:ident) => {
        $then! {
            Registration "pluginregistration.Registration" registration
            "GetInfo" get_info InfoRequest PluginInfo;
            "NotifyRegistrationStatus" notify_registration_status RegistrationStatus RegistrationStatusResponse;
        }
    };
}

pub(crate) use {controller_calls, identity_calls, node_calls, registration_calls};
