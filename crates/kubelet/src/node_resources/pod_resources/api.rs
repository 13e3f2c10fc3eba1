//! Messages of the Pod resources API. Source: `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`.

pub(crate) use crate::node_resources::device_plugins::api::{NumaNode, TopologyInfo};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AllocatableResourcesRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AllocatableResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<ContainerDevices>,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) memory: Vec<ContainerMemory>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListPodResourcesRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListPodResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pod_resources: Vec<PodResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodResources {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) containers: Vec<ContainerResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerResources {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) devices: Vec<ContainerDevices>,
    #[prost(int64, repeated, tag = "3")]
    pub(crate) cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) memory: Vec<ContainerMemory>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) dynamic_resources: Vec<DynamicResource>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DynamicResource {
    #[prost(string, tag = "2")]
    pub(crate) claim_name: String,
    #[prost(string, tag = "3")]
    pub(crate) claim_namespace: String,
    #[prost(message, repeated, tag = "4")]
    pub(crate) claim_resources: Vec<ClaimResource>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClaimResource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) cdi_devices: Vec<CdiDevice>,
    #[prost(string, tag = "2")]
    pub(crate) driver_name: String,
    #[prost(string, tag = "3")]
    pub(crate) pool_name: String,
    #[prost(string, tag = "4")]
    pub(crate) device_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CdiDevice {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerMemory {
    #[prost(string, tag = "1")]
    pub(crate) memory_type: String,
    #[prost(uint64, tag = "2")]
    pub(crate) size: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) topology: Option<TopologyInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerDevices {
    #[prost(string, tag = "1")]
    pub(crate) resource_name: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) device_ids: Vec<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) topology: Option<TopologyInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetPodResourcesRequest {
    #[prost(string, tag = "1")]
    pub(crate) pod_name: String,
    #[prost(string, tag = "2")]
    pub(crate) pod_namespace: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetPodResourcesResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) pod_resources: Option<PodResources>,
}
