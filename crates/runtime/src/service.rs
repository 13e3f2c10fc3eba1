//! The runtime as CRI: each call handed to the module that does it, lists and events made here.

use std::collections::HashMap;

use async_trait::async_trait;
use cri::{CriError, CriResult, RuntimeService, Streams, v1};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::broadcast::error::RecvError;

use crate::filters::has_labels;
use crate::sandboxes::sandbox_state;
use crate::shim::protocol::Call;
use crate::state::{Container, Inner, Runtime};

impl Inner {
    /// Tells listeners that something happened to a container, or to a sandbox if both ids are its.
    pub(crate) fn emit(&self, sandbox: &str, container: &str, kind: v1::ContainerEventType) {
        let event = self.event(sandbox, container, kind);
        self.publish(event);
    }

    pub(crate) fn event(
        &self,
        sandbox: &str,
        container: &str,
        kind: v1::ContainerEventType,
    ) -> v1::ContainerEventResponse {
        let pod_sandbox_status = self.sandbox(sandbox).ok().map(|sandbox| self.pod_sandbox_status(&sandbox));
        let containers = self.containers_of(sandbox);
        v1::ContainerEventResponse {
            container_id: container.to_owned(),
            container_event_type: kind.into(),
            created_at: self.now(),
            pod_sandbox_status,
            containers_statuses: containers
                .iter()
                .map(|container| self.container_status(container))
                .collect(),
        }
    }

    pub(crate) fn publish(&self, event: v1::ContainerEventResponse) {
        // No listener is no error: who comes later lists first.
        drop(self.events.send(event));
    }
}

#[async_trait]
impl RuntimeService for Runtime {
    fn status_changes(&self) -> BoxStream<'static, ()> {
        match &self.0.config.network {
            Some(network) => network.readiness_changes(),
            None => Box::pin(futures::stream::pending()),
        }
    }

    async fn version(&self, _: v1::VersionRequest) -> CriResult<v1::VersionResponse> {
        Ok(v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: cri::annotations::RUNTIME_NAME.into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: "v1".into(),
        })
    }

    async fn run_pod_sandbox(
        &self,
        request: v1::RunPodSandboxRequest,
    ) -> CriResult<v1::RunPodSandboxResponse> {
        let pod_sandbox_id = self.0.run_pod_sandbox(request).await?;
        Ok(v1::RunPodSandboxResponse { pod_sandbox_id })
    }

    async fn stop_pod_sandbox(
        &self,
        request: v1::StopPodSandboxRequest,
    ) -> CriResult<v1::StopPodSandboxResponse> {
        self.0.stop_pod_sandbox(&request.pod_sandbox_id).await?;
        Ok(v1::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> CriResult<v1::RemovePodSandboxResponse> {
        self.0.remove_pod_sandbox(&request.pod_sandbox_id).await?;
        Ok(v1::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> CriResult<v1::PodSandboxStatusResponse> {
        let sandbox = self.0.sandbox(&request.pod_sandbox_id)?;
        let containers = self.0.containers_of(&sandbox.id);
        Ok(v1::PodSandboxStatusResponse {
            status: Some(self.0.pod_sandbox_status(&sandbox)),
            info: if request.verbose { self.0.sandbox_info(&sandbox) } else { HashMap::new() },
            containers_statuses: containers
                .iter()
                .map(|container| self.0.container_status(container))
                .collect(),
            timestamp: self.0.now(),
        })
    }

    async fn list_pod_sandbox(
        &self,
        request: v1::ListPodSandboxRequest,
    ) -> CriResult<v1::ListPodSandboxResponse> {
        let filter = request.filter.unwrap_or_default();
        let tables = self.0.tables.lock();
        let items = tables.sandboxes.values().map(|sandbox| v1::PodSandbox {
            id: sandbox.id.clone(),
            metadata: sandbox.config.metadata.clone(),
            state: sandbox_state(sandbox).into(),
            created_at: sandbox.record.created_at,
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: sandbox.record.handler.clone(),
        });
        let items = items.filter(|item| {
            item.id.starts_with(&filter.id)
                && filter.state.as_ref().is_none_or(|state| state.state == item.state)
                && has_labels(&item.labels, &filter.label_selector)
        });
        Ok(v1::ListPodSandboxResponse { items: items.collect() })
    }

    async fn create_container(
        &self,
        request: v1::CreateContainerRequest,
    ) -> CriResult<v1::CreateContainerResponse> {
        let container_id = self.0.create_container(request).await?;
        Ok(v1::CreateContainerResponse { container_id })
    }

    async fn start_container(
        &self,
        request: v1::StartContainerRequest,
    ) -> CriResult<v1::StartContainerResponse> {
        self.0.start_container(&request.container_id).await?;
        Ok(v1::StartContainerResponse {})
    }

    async fn stop_container(
        &self,
        request: v1::StopContainerRequest,
    ) -> CriResult<v1::StopContainerResponse> {
        self.0.stop_container(&request.container_id, request.timeout).await?;
        Ok(v1::StopContainerResponse {})
    }

    async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> CriResult<v1::UpdateContainerResourcesResponse> {
        self.0.update_container(&request.container_id, request.linux.unwrap_or_default()).await?;
        Ok(v1::UpdateContainerResourcesResponse {})
    }

    async fn remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> CriResult<v1::RemoveContainerResponse> {
        self.0.remove_container(&request.container_id).await?;
        Ok(v1::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: v1::ListContainersRequest,
    ) -> CriResult<v1::ListContainersResponse> {
        let filter = request.filter.unwrap_or_default();
        let tables = self.0.tables.lock();
        let containers = tables.containers.values().map(listed).filter(|item| {
            item.id.starts_with(&filter.id)
                && item.pod_sandbox_id.starts_with(&filter.pod_sandbox_id)
                && filter.state.as_ref().is_none_or(|state| state.state == item.state)
                && has_labels(&item.labels, &filter.label_selector)
        });
        Ok(v1::ListContainersResponse { containers: containers.collect() })
    }

    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> CriResult<v1::ContainerStatusResponse> {
        let container = self.0.container(&request.container_id)?;
        let status = Some(self.0.container_status(&container));
        let info = if request.verbose { self.0.container_info(&container) } else { HashMap::new() };
        Ok(v1::ContainerStatusResponse { status, info })
    }

    async fn reopen_container_log(
        &self,
        request: v1::ReopenContainerLogRequest,
    ) -> CriResult<v1::ReopenContainerLogResponse> {
        let container = self.0.container(&request.container_id)?;
        let shim = self.0.shim_of(&container)?;
        shim.ask(Call::ReopenLog { container: container.id }, Vec::new()).await?;
        Ok(v1::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: v1::ExecSyncRequest) -> CriResult<v1::ExecSyncResponse> {
        self.0.exec_sync(request).await
    }

    async fn exec(&self, request: v1::ExecRequest) -> CriResult<Streams> {
        self.0.exec(request).await
    }

    async fn attach(&self, request: v1::AttachRequest) -> CriResult<Streams> {
        self.0.attach(request).await
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> CriResult<Streams> {
        self.0.port_forward(request).await
    }

    async fn container_stats(
        &self,
        request: v1::ContainerStatsRequest,
    ) -> CriResult<v1::ContainerStatsResponse> {
        let stats = self.0.container_stats(&request.container_id).await?;
        Ok(v1::ContainerStatsResponse { stats: Some(stats) })
    }

    async fn list_container_stats(
        &self,
        request: v1::ListContainerStatsRequest,
    ) -> CriResult<v1::ListContainerStatsResponse> {
        let stats = self.0.list_container_stats(request.filter.unwrap_or_default()).await?;
        Ok(v1::ListContainerStatsResponse { stats })
    }

    async fn pod_sandbox_stats(
        &self,
        request: v1::PodSandboxStatsRequest,
    ) -> CriResult<v1::PodSandboxStatsResponse> {
        let stats = self.0.pod_sandbox_stats(&request.pod_sandbox_id).await?;
        Ok(v1::PodSandboxStatsResponse { stats: Some(stats) })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: v1::ListPodSandboxStatsRequest,
    ) -> CriResult<v1::ListPodSandboxStatsResponse> {
        let stats = self.0.list_pod_sandbox_stats(request.filter.unwrap_or_default()).await?;
        Ok(v1::ListPodSandboxStatsResponse { stats })
    }

    async fn list_metric_descriptors(
        &self,
        _: v1::ListMetricDescriptorsRequest,
    ) -> CriResult<v1::ListMetricDescriptorsResponse> {
        Ok(v1::ListMetricDescriptorsResponse { descriptors: crate::stats::descriptors() })
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: v1::ListPodSandboxMetricsRequest,
    ) -> CriResult<v1::ListPodSandboxMetricsResponse> {
        Ok(v1::ListPodSandboxMetricsResponse { pod_metrics: self.0.pod_sandbox_metrics().await? })
    }

    async fn checkpoint_container(
        &self,
        request: v1::CheckpointContainerRequest,
    ) -> CriResult<v1::CheckpointContainerResponse> {
        let container = self.0.container(&request.container_id)?;
        Err(CriError::Unimplemented(format!(
            "container {} cannot be checkpointed: the runtime knarr has no checkpoints",
            container.id
        )))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> CriResult<v1::UpdatePodSandboxResourcesResponse> {
        self.0.update_sandbox(request).await?;
        Ok(v1::UpdatePodSandboxResourcesResponse {})
    }

    async fn runtime_config(&self, _: v1::RuntimeConfigRequest) -> CriResult<v1::RuntimeConfigResponse> {
        let cgroup_driver = v1::CgroupDriver::Cgroupfs.into();
        Ok(v1::RuntimeConfigResponse { linux: Some(v1::LinuxRuntimeConfiguration { cgroup_driver }) })
    }

    async fn update_runtime_config(
        &self,
        _: v1::UpdateRuntimeConfigRequest,
    ) -> CriResult<v1::UpdateRuntimeConfigResponse> {
        Ok(v1::UpdateRuntimeConfigResponse {})
    }

    async fn status(&self, request: v1::StatusRequest) -> CriResult<v1::StatusResponse> {
        let problem = match &self.0.config.network {
            Some(network) => network.not_ready().await,
            None => None,
        };
        let network = v1::RuntimeCondition {
            r#type: "NetworkReady".into(),
            status: problem.is_none(),
            reason: if problem.is_none() { String::new() } else { "NetworkPluginNotReady".into() },
            message: problem.unwrap_or_default(),
        };
        let runtime =
            v1::RuntimeCondition { r#type: "RuntimeReady".into(), status: true, ..Default::default() };
        Ok(v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions: vec![runtime, network] }),
            info: if request.verbose { self.0.runtime_info() } else { HashMap::new() },
            runtime_handlers: self.0.handlers.describe().await,
            features: Some(v1::RuntimeFeatures { supplemental_groups_policy: true }),
        })
    }

    async fn get_container_events(
        &self,
        _: v1::GetEventsRequest,
    ) -> CriResult<BoxStream<'static, CriResult<v1::ContainerEventResponse>>> {
        let events = self.0.events.subscribe();
        let stream = futures::stream::unfold(Some(events), |events| async move {
            let mut events = events?;
            match events.recv().await {
                Ok(event) => Some((Ok(event), Some(events))),
                // Whoever is this far behind lists again and listens anew.
                Err(RecvError::Lagged(missed)) => {
                    Some((Err(CriError::Internal(format!("{missed} events were missed"))), None))
                }
                Err(RecvError::Closed) => None,
            }
        });
        Ok(stream.boxed())
    }
}

fn listed(container: &Container) -> v1::Container {
    v1::Container {
        id: container.id.clone(),
        pod_sandbox_id: container.sandbox.clone(),
        metadata: container.config.metadata.clone(),
        image: container.config.image.clone(),
        image_ref: container.record.image_ref(),
        state: container.status.borrow().cri().into(),
        created_at: container.record.created_at,
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        image_id: container.record.image_id.clone(),
    }
}
