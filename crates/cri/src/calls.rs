//! Every call that has one request and one response: its name on the wire, its method in the trait, its messages, and
//! how long a client waits for it. A row per call; client and server are made of the same rows.
//!
//! Streaming calls are not here: exec, attach and port-forward answer with a URL on the wire and with streams in the
//! trait, and events come one after the other.

use std::time::Duration;

/// How long calls may take. Source: the kubelet's `runtimeRequestTimeout`.
const USUAL: Duration = Duration::from_secs(120);

/// How long a client waits for an answer; `None` is for ever. Source: `pkg/kubelet`'s use of `runtimeRequestTimeout`.
pub(crate) type Limit = Option<Duration>;

pub(crate) fn usual<Q>(_: &Q) -> Limit {
    Some(USUAL)
}

/// Connecting a network may take its time.
pub(crate) fn twice<Q>(_: &Q) -> Limit {
    Some(USUAL * 2)
}

/// An image takes as long as it takes.
pub(crate) fn endless<Q>(_: &Q) -> Limit {
    None
}

/// The grace period comes on top.
pub(crate) fn grace(request: &crate::v1::StopContainerRequest) -> Limit {
    Some(USUAL + seconds(request.timeout))
}

/// The command's own limit comes on top; without one it runs as long as it likes.
pub(crate) fn command(request: &crate::v1::ExecSyncRequest) -> Limit {
    (request.timeout > 0).then(|| USUAL + seconds(request.timeout))
}

fn seconds(timeout: i64) -> Duration {
    Duration::from_secs(u64::try_from(timeout).unwrap_or_default())
}

macro_rules! runtime_calls {
    ($then:ident) => {
        $then! {
            "Version" version VersionRequest VersionResponse usual;
            "RunPodSandbox" run_pod_sandbox RunPodSandboxRequest RunPodSandboxResponse twice;
            "StopPodSandbox" stop_pod_sandbox StopPodSandboxRequest StopPodSandboxResponse usual;
            "RemovePodSandbox" remove_pod_sandbox RemovePodSandboxRequest RemovePodSandboxResponse usual;
            "PodSandboxStatus" pod_sandbox_status PodSandboxStatusRequest PodSandboxStatusResponse usual;
            "ListPodSandbox" list_pod_sandbox ListPodSandboxRequest ListPodSandboxResponse usual;
            "CreateContainer" create_container CreateContainerRequest CreateContainerResponse usual;
            "StartContainer" start_container StartContainerRequest StartContainerResponse usual;
            "StopContainer" stop_container StopContainerRequest StopContainerResponse grace;
            "RemoveContainer" remove_container RemoveContainerRequest RemoveContainerResponse usual;
            "ListContainers" list_containers ListContainersRequest ListContainersResponse usual;
            "ContainerStatus" container_status ContainerStatusRequest ContainerStatusResponse usual;
            "UpdateContainerResources" update_container_resources UpdateContainerResourcesRequest
                UpdateContainerResourcesResponse usual;
            "ReopenContainerLog" reopen_container_log ReopenContainerLogRequest ReopenContainerLogResponse usual;
            "ExecSync" exec_sync ExecSyncRequest ExecSyncResponse command;
            "ContainerStats" container_stats ContainerStatsRequest ContainerStatsResponse usual;
            "ListContainerStats" list_container_stats ListContainerStatsRequest ListContainerStatsResponse usual;
            "PodSandboxStats" pod_sandbox_stats PodSandboxStatsRequest PodSandboxStatsResponse usual;
            "ListPodSandboxStats" list_pod_sandbox_stats ListPodSandboxStatsRequest
                ListPodSandboxStatsResponse usual;
            "UpdateRuntimeConfig" update_runtime_config UpdateRuntimeConfigRequest
                UpdateRuntimeConfigResponse usual;
            "Status" status StatusRequest StatusResponse usual;
            "CheckpointContainer" checkpoint_container CheckpointContainerRequest
                CheckpointContainerResponse endless;
            "ListMetricDescriptors" list_metric_descriptors ListMetricDescriptorsRequest
                ListMetricDescriptorsResponse usual;
            "ListPodSandboxMetrics" list_pod_sandbox_metrics ListPodSandboxMetricsRequest
                ListPodSandboxMetricsResponse usual;
            "RuntimeConfig" runtime_config RuntimeConfigRequest RuntimeConfigResponse usual;
            "UpdatePodSandboxResources" update_pod_sandbox_resources UpdatePodSandboxResourcesRequest
                UpdatePodSandboxResourcesResponse usual;
        }
    };
}

macro_rules! image_calls {
    ($then:ident) => {
        $then! {
            "ListImages" list_images ListImagesRequest ListImagesResponse usual;
            "ImageStatus" image_status ImageStatusRequest ImageStatusResponse usual;
            "PullImage" pull_image PullImageRequest PullImageResponse endless;
            "RemoveImage" remove_image RemoveImageRequest RemoveImageResponse usual;
            "ImageFsInfo" image_fs_info ImageFsInfoRequest ImageFsInfoResponse usual;
        }
    };
}

pub(crate) use {image_calls, runtime_calls};
