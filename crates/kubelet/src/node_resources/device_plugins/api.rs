//! Messages of the device plugin API. Source: `k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto`.

use std::collections::HashMap;

/// The API's version.
pub(crate) const VERSION: &str = "v1beta1";
/// What `PluginInfo.type` of a device plugin is. Source: `registerapi.DevicePlugin`.
pub(crate) const DEVICE_PLUGIN: &str = "DevicePlugin";
/// A device that can be given.
pub(crate) const HEALTHY: &str = "Healthy";

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DevicePluginOptions {
    #[prost(bool, tag = "1")]
    pub(crate) pre_start_required: bool,
    #[prost(bool, tag = "2")]
    pub(crate) get_preferred_allocation_available: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RegisterRequest {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(string, tag = "2")]
    pub(crate) endpoint: String,
    #[prost(string, tag = "3")]
    pub(crate) resource_name: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) options: Option<DevicePluginOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListAndWatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<Device>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Device {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) health: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) topology: Option<TopologyInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TopologyInfo {
    #[prost(message, repeated, tag = "1")]
    pub(crate) nodes: Vec<NumaNode>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NumaNode {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PreStartContainerRequest {
    #[prost(string, repeated, tag = "1")]
    pub(crate) devices_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PreferredAllocationRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_requests: Vec<ContainerPreferredAllocationRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerPreferredAllocationRequest {
    #[prost(string, repeated, tag = "1")]
    pub(crate) available_device_ids: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) must_include_device_ids: Vec<String>,
    #[prost(int32, tag = "3")]
    pub(crate) allocation_size: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PreferredAllocationResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_responses: Vec<ContainerPreferredAllocationResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerPreferredAllocationResponse {
    #[prost(string, repeated, tag = "1")]
    pub(crate) device_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AllocateRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_requests: Vec<ContainerAllocateRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerAllocateRequest {
    #[prost(string, repeated, tag = "1")]
    pub(crate) devices_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AllocateResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_responses: Vec<ContainerAllocateResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerAllocateResponse {
    #[prost(map = "string, string", tag = "1")]
    pub(crate) envs: HashMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) mounts: Vec<Mount>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) devices: Vec<DeviceSpec>,
    #[prost(map = "string, string", tag = "4")]
    pub(crate) annotations: HashMap<String, String>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) cdi_devices: Vec<CdiDevice>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(bool, tag = "3")]
    pub(crate) read_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeviceSpec {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(string, tag = "3")]
    pub(crate) permissions: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CdiDevice {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}
