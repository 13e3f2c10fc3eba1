//! CRI v1: the seam between kubelet and container runtime.
//!
//! The message types are upstream's, generated ([`v1`]). [`RuntimeService`] and [`ImageService`] are the calls;
//! the built-in runtime implements them in-process, [`client`] and [`server`] put them on a unix socket.
//!
//! The types come from `api.proto` as the package `k8s-cri` 0.11 of the Rust registry ships it: `protox` compiles it (no
//! `protoc` needed), `prost-build` writes the messages with comments disabled and no services, and the result is
//! committed as `generated/v1.rs`. What is newer than that package is added by hand: of v1.33
//! `Mount.image_sub_path`, stop signals (KEP-4960) and the messages of `UpdatePodSandboxResources` (KEP-1287), of v1.34
//! pressure in stats (KEP-4205).
//!
//! Streaming calls (exec, attach, port-forward) hand out byte streams in-process instead of a URL.

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

pub mod annotations;
pub mod client;
pub mod link_counters;
pub mod logs;
pub mod server;

mod calls;
mod status;

#[cfg(test)]
mod tests;

/// Generated from `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto` by `cargo xtask codegen`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[path = "generated/v1.rs"]
pub mod v1;

/// A CRI call's failure, with gRPC's code names.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CriError {
    /// The sandbox, container or image does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The request cannot be carried out as given.
    #[error("{0}")]
    InvalidArgument(String),
    /// The object is in the wrong state for this.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The call took longer than its timeout.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// The runtime does not have this call.
    #[error("{0}")]
    Unimplemented(String),
    /// Anything else.
    #[error("{0}")]
    Internal(String),
}

impl CriError {
    /// `true` if an image could not be mounted as a volume: over CRI that is a prefix of the message and nothing else.
    pub fn is_image_volume(&self) -> bool {
        self.to_string().contains(IMAGE_VOLUME_FAILED)
    }
}

/// The result of a CRI call.
pub type CriResult<T> = Result<T, CriError>;

/// The prefix of a streaming server's reason why a command could not be run. Source: `ServeExec` of upstream's kubelet.
pub const EXEC_FAILED: &str = "Internal error occurred: error executing command in container: ";

/// The prefix of a runtime's message that an image could not be mounted as a volume. Source:
/// `ErrImageVolumeMountFailed` of upstream's `cri-api`.
pub const IMAGE_VOLUME_FAILED: &str = "ImageVolumeMountFailed";

/// The far end of an exec, attach or port-forward.
pub struct Streams {
    /// The client's input. `None` if stdin was not asked for.
    pub stdin: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
    /// The container's output; with a TTY, everything.
    pub stdout: Option<Box<dyn tokio::io::AsyncRead + Send + Unpin>>,
    /// `None` with a TTY.
    pub stderr: Option<Box<dyn tokio::io::AsyncRead + Send + Unpin>>,
    /// Takes terminal sizes (columns, rows) while a TTY lives.
    pub resize: Option<tokio::sync::mpsc::Sender<(u16, u16)>>,
    /// The exit code when the process ends, or why there is none. Never resolves for port-forward.
    pub exit: BoxFuture<'static, Result<i32, NoExitCode>>,
}

/// The reason why there is no exit code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoExitCode {
    /// The connection to the runtime is gone.
    #[error("the connection to the container runtime broke")]
    Disconnected,
    /// The process has ended, and nobody says how.
    #[error("the command's end was not reported")]
    Unreported,
    /// The runtime says for people why there was no process, or no port.
    #[error("{0}")]
    Told(String),
}

/// Source: `service RuntimeService`. The calls with a body here are those that runtimes may lack.
#[async_trait]
#[allow(missing_docs)]
pub trait RuntimeService: Send + Sync + 'static {
    /// Comes whenever `status` may say something else. CRI has no such call: who knows of changes tells of them, others
    /// come now and then.
    fn status_changes(&self) -> BoxStream<'static, ()> {
        Box::pin(futures::stream::pending())
    }
    async fn version(&self, request: v1::VersionRequest) -> CriResult<v1::VersionResponse>;
    async fn run_pod_sandbox(
        &self,
        request: v1::RunPodSandboxRequest,
    ) -> CriResult<v1::RunPodSandboxResponse>;
    async fn stop_pod_sandbox(
        &self,
        request: v1::StopPodSandboxRequest,
    ) -> CriResult<v1::StopPodSandboxResponse>;
    async fn remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> CriResult<v1::RemovePodSandboxResponse>;
    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> CriResult<v1::PodSandboxStatusResponse>;
    async fn list_pod_sandbox(
        &self,
        request: v1::ListPodSandboxRequest,
    ) -> CriResult<v1::ListPodSandboxResponse>;
    async fn create_container(
        &self,
        request: v1::CreateContainerRequest,
    ) -> CriResult<v1::CreateContainerResponse>;
    async fn start_container(
        &self,
        request: v1::StartContainerRequest,
    ) -> CriResult<v1::StartContainerResponse>;
    async fn stop_container(&self, request: v1::StopContainerRequest)
    -> CriResult<v1::StopContainerResponse>;
    async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> CriResult<v1::UpdateContainerResourcesResponse>;
    async fn remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> CriResult<v1::RemoveContainerResponse>;
    async fn list_containers(
        &self,
        request: v1::ListContainersRequest,
    ) -> CriResult<v1::ListContainersResponse>;
    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> CriResult<v1::ContainerStatusResponse>;
    async fn reopen_container_log(
        &self,
        request: v1::ReopenContainerLogRequest,
    ) -> CriResult<v1::ReopenContainerLogResponse>;
    async fn exec_sync(&self, request: v1::ExecSyncRequest) -> CriResult<v1::ExecSyncResponse>;
    async fn exec(&self, request: v1::ExecRequest) -> CriResult<Streams>;
    async fn attach(&self, request: v1::AttachRequest) -> CriResult<Streams>;
    /// Connects to one port on the sandbox's own loopback address: `stdin` is what is sent, `stdout` what comes.
    async fn port_forward(&self, request: v1::PortForwardRequest) -> CriResult<Streams>;
    async fn container_stats(
        &self,
        request: v1::ContainerStatsRequest,
    ) -> CriResult<v1::ContainerStatsResponse>;
    async fn list_container_stats(
        &self,
        _: v1::ListContainerStatsRequest,
    ) -> CriResult<v1::ListContainerStatsResponse> {
        Err(CriError::missing("ListContainerStats"))
    }
    async fn pod_sandbox_stats(
        &self,
        _: v1::PodSandboxStatsRequest,
    ) -> CriResult<v1::PodSandboxStatsResponse> {
        Err(CriError::missing("PodSandboxStats"))
    }
    async fn list_pod_sandbox_stats(
        &self,
        _: v1::ListPodSandboxStatsRequest,
    ) -> CriResult<v1::ListPodSandboxStatsResponse> {
        Err(CriError::missing("ListPodSandboxStats"))
    }
    async fn list_metric_descriptors(
        &self,
        _: v1::ListMetricDescriptorsRequest,
    ) -> CriResult<v1::ListMetricDescriptorsResponse> {
        Err(CriError::missing("ListMetricDescriptors"))
    }
    async fn list_pod_sandbox_metrics(
        &self,
        _: v1::ListPodSandboxMetricsRequest,
    ) -> CriResult<v1::ListPodSandboxMetricsResponse> {
        Err(CriError::missing("ListPodSandboxMetrics"))
    }
    async fn checkpoint_container(
        &self,
        _: v1::CheckpointContainerRequest,
    ) -> CriResult<v1::CheckpointContainerResponse> {
        Err(CriError::missing("CheckpointContainer"))
    }
    async fn runtime_config(&self, _: v1::RuntimeConfigRequest) -> CriResult<v1::RuntimeConfigResponse> {
        Err(CriError::missing("RuntimeConfig"))
    }
    /// Tells of what the Pod's own cgroup has been given.
    async fn update_pod_sandbox_resources(
        &self,
        _: v1::UpdatePodSandboxResourcesRequest,
    ) -> CriResult<v1::UpdatePodSandboxResourcesResponse> {
        Err(CriError::missing("UpdatePodSandboxResources"))
    }
    async fn update_runtime_config(
        &self,
        request: v1::UpdateRuntimeConfigRequest,
    ) -> CriResult<v1::UpdateRuntimeConfigResponse>;
    async fn status(&self, request: v1::StatusRequest) -> CriResult<v1::StatusResponse>;
    /// Container and sandbox starts, stops and deletions as they happen: what wakes the kubelet.
    async fn get_container_events(
        &self,
        request: v1::GetEventsRequest,
    ) -> CriResult<BoxStream<'static, CriResult<v1::ContainerEventResponse>>>;
}

/// Source: `service ImageService`.
#[async_trait]
#[allow(missing_docs)]
pub trait ImageService: Send + Sync + 'static {
    async fn list_images(&self, request: v1::ListImagesRequest) -> CriResult<v1::ListImagesResponse>;
    async fn image_status(&self, request: v1::ImageStatusRequest) -> CriResult<v1::ImageStatusResponse>;
    async fn pull_image(&self, request: v1::PullImageRequest) -> CriResult<v1::PullImageResponse>;
    async fn remove_image(&self, request: v1::RemoveImageRequest) -> CriResult<v1::RemoveImageResponse>;
    async fn image_fs_info(&self, request: v1::ImageFsInfoRequest) -> CriResult<v1::ImageFsInfoResponse>;
}
