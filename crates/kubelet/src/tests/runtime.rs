//! A container runtime that only pretends.

use async_trait::async_trait;
use cri::{CriError, CriResult, ImageService, RuntimeService, Streams, v1};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

#[derive(Default)]
struct State {
    sandboxes: Vec<v1::PodSandboxStatus>,
    containers: Vec<(v1::ContainerStatus, String)>,
    calls: Vec<String>,
    created: Option<v1::ContainerConfig>,
    next: u32,
    /// So many of the next sandboxes get no address.
    without_ip: u32,
}

pub(super) struct Runtime {
    state: Mutex<State>,
    /// `None` while it is away.
    events: Mutex<Option<broadcast::Sender<v1::ContainerEventResponse>>>,
    lists: watch::Sender<u32>,
    made: watch::Sender<usize>,
    /// Counts up whenever its status may be another.
    states: watch::Sender<u32>,
    /// Containers stop when they are asked to.
    obeys: watch::Sender<bool>,
}

impl Default for Runtime {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            events: Mutex::new(Some(broadcast::channel(64).0)),
            lists: watch::channel(0).0,
            made: watch::channel(0).0,
            states: watch::channel(0).0,
            obeys: watch::channel(true).0,
        }
    }
}

fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap()
}

fn matches(
    labels: &std::collections::HashMap<String, String>,
    selector: &std::collections::HashMap<String, String>,
) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Runtime {
    fn call(&self, text: String) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.calls.push(text);
        self.made.send_replace(state.calls.len());
        state
    }

    /// The configuration of the newest container.
    pub(super) fn created(&self) -> v1::ContainerConfig {
        self.state.lock().created.clone().unwrap()
    }

    /// Waits until a call was made.
    pub(super) async fn until_called(&self, what: &str, times: usize) {
        let mut made = self.made.subscribe();
        let count = || self.calls().iter().filter(|call| call.starts_with(what)).count();
        made.wait_for(|_| count() >= times).await.unwrap();
    }

    /// The next sandboxes get no address.
    pub(super) fn leave_without_ip(&self, sandboxes: u32) {
        self.state.lock().without_ip = sandboxes;
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.sandboxes.is_empty() && state.containers.is_empty()
    }

    /// Waits until the sandboxes were listed `times` times.
    pub(super) async fn until_listed(&self, times: u32) {
        self.lists.subscribe().wait_for(|n| *n >= times).await.unwrap();
    }

    /// Ends the stream of events: nobody hears of what happens from now on.
    pub(super) fn fall_silent(&self) {
        *self.events.lock() = None;
    }

    /// Gives events again, of what happens from now on.
    pub(super) fn speak_again(&self) {
        *self.events.lock() = Some(broadcast::channel(64).0);
        self.states.send_modify(|n| *n += 1);
    }

    /// Whether containers stop when they are asked to.
    pub(super) fn set_obeys(&self, obeys: bool) {
        self.obeys.send_replace(obeys);
    }

    /// Ends the newest running container of that name.
    pub(super) fn exit(&self, name: &str, code: i32) {
        let id = {
            let state = self.state.lock();
            let running = i32::from(v1::ContainerState::ContainerRunning);
            let mut all = state.containers.iter().rev();
            all.find(|(c, _)| c.metadata.as_ref().unwrap().name == name && c.state == running)
                .unwrap()
                .0
                .id
                .clone()
        };
        self.end(&id, code);
    }

    fn end(&self, id: &str, code: i32) {
        let event = {
            let mut state = self.state.lock();
            let Some((status, sandbox)) = state.containers.iter_mut().find(|(c, _)| c.id == id) else {
                return;
            };
            if status.state == i32::from(v1::ContainerState::ContainerExited) {
                return;
            }
            status.state = v1::ContainerState::ContainerExited.into();
            status.exit_code = code;
            status.finished_at = now();
            let (status, sandbox) = (status.clone(), sandbox.clone());
            v1::ContainerEventResponse {
                container_id: id.to_owned(),
                container_event_type: v1::ContainerEventType::ContainerStoppedEvent.into(),
                pod_sandbox_status: state.sandboxes.iter().find(|s| s.id == sandbox).cloned(),
                containers_statuses: vec![status],
                ..Default::default()
            }
        };
        if let Some(events) = &*self.events.lock() {
            drop(events.send(event));
        }
    }

    fn id(state: &mut State, prefix: &str) -> String {
        state.next += 1;
        format!("{prefix}{}", state.next)
    }
}

#[async_trait]
impl RuntimeService for Runtime {
    fn status_changes(&self) -> BoxStream<'static, ()> {
        let changes = futures::stream::unfold(self.states.subscribe(), |mut states| async move {
            states.changed().await.ok()?;
            Some(((), states))
        });
        changes.boxed()
    }

    async fn version(&self, _: v1::VersionRequest) -> CriResult<v1::VersionResponse> {
        Ok(v1::VersionResponse { runtime_name: "fake".into(), ..Default::default() })
    }

    async fn run_pod_sandbox(
        &self,
        request: v1::RunPodSandboxRequest,
    ) -> CriResult<v1::RunPodSandboxResponse> {
        let config = request.config.unwrap();
        let mut state = self.call("run sandbox".into());
        let id = Self::id(&mut state, "sb");
        let has_ip = state.without_ip == 0;
        state.without_ip = state.without_ip.saturating_sub(1);
        let ip = if has_ip { "10.42.0.9" } else { "" }.to_owned();
        state.sandboxes.push(v1::PodSandboxStatus {
            id: id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            network: Some(v1::PodSandboxNetworkStatus { ip, ..Default::default() }),
            ..Default::default()
        });
        Ok(v1::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    async fn stop_pod_sandbox(
        &self,
        request: v1::StopPodSandboxRequest,
    ) -> CriResult<v1::StopPodSandboxResponse> {
        let mut state = self.call(format!("stop sandbox {}", request.pod_sandbox_id));
        for sandbox in state.sandboxes.iter_mut().filter(|s| s.id == request.pod_sandbox_id) {
            sandbox.state = v1::PodSandboxState::SandboxNotready.into();
        }
        Ok(v1::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> CriResult<v1::RemovePodSandboxResponse> {
        let mut state = self.call(format!("remove sandbox {}", request.pod_sandbox_id));
        state.sandboxes.retain(|s| s.id != request.pod_sandbox_id);
        Ok(v1::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> CriResult<v1::PodSandboxStatusResponse> {
        let state = self.state.lock();
        let found = state.sandboxes.iter().find(|s| s.id == request.pod_sandbox_id).cloned();
        let status = found.ok_or_else(|| CriError::NotFound("no such sandbox".into()))?;
        Ok(v1::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
    }

    async fn list_pod_sandbox(
        &self,
        request: v1::ListPodSandboxRequest,
    ) -> CriResult<v1::ListPodSandboxResponse> {
        if request.filter.is_none() {
            self.lists.send_modify(|n| *n += 1);
        }
        let selector = request.filter.unwrap_or_default().label_selector;
        let state = self.state.lock();
        let items =
            state.sandboxes.iter().filter(|s| matches(&s.labels, &selector)).map(|s| v1::PodSandbox {
                id: s.id.clone(),
                metadata: s.metadata.clone(),
                state: s.state,
                labels: s.labels.clone(),
                ..Default::default()
            });
        Ok(v1::ListPodSandboxResponse { items: items.collect() })
    }

    async fn create_container(
        &self,
        request: v1::CreateContainerRequest,
    ) -> CriResult<v1::CreateContainerResponse> {
        let config = request.config.unwrap();
        let metadata = config.metadata.clone().unwrap();
        let mut state = self.call(format!("create {} {}", metadata.name, metadata.attempt));
        state.created = Some(config.clone());
        let id = Self::id(&mut state, "c");
        let status = v1::ContainerStatus {
            id: id.clone(),
            metadata: config.metadata,
            image: config.image,
            image_ref: "sha256:img".into(),
            labels: config.labels,
            annotations: config.annotations,
            created_at: now(),
            ..Default::default()
        };
        state.containers.push((status, request.pod_sandbox_id));
        Ok(v1::CreateContainerResponse { container_id: id })
    }

    async fn start_container(
        &self,
        request: v1::StartContainerRequest,
    ) -> CriResult<v1::StartContainerResponse> {
        let mut state = self.call(format!("start {}", request.container_id));
        for (status, _) in state.containers.iter_mut().filter(|(c, _)| c.id == request.container_id) {
            status.state = v1::ContainerState::ContainerRunning.into();
            status.started_at = now();
        }
        Ok(v1::StartContainerResponse {})
    }

    async fn stop_container(
        &self,
        request: v1::StopContainerRequest,
    ) -> CriResult<v1::StopContainerResponse> {
        drop(self.call(format!("stop {} {}", request.container_id, request.timeout)));
        self.obeys.subscribe().wait_for(|obeys| *obeys).await.unwrap();
        self.end(&request.container_id, 143);
        Ok(v1::StopContainerResponse {})
    }

    async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> CriResult<v1::UpdateContainerResourcesResponse> {
        let linux = request.linux.unwrap_or_default();
        let mut state = self.call(format!("resize {} {}", request.container_id, linux.cpu_shares));
        for (status, _) in state.containers.iter_mut().filter(|(c, _)| c.id == request.container_id) {
            status.resources = Some(v1::ContainerResources { linux: Some(linux.clone()), windows: None });
        }
        Ok(v1::UpdateContainerResourcesResponse {})
    }

    async fn remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> CriResult<v1::RemoveContainerResponse> {
        let mut state = self.call(format!("remove {}", request.container_id));
        state.containers.retain(|(c, _)| c.id != request.container_id);
        Ok(v1::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: v1::ListContainersRequest,
    ) -> CriResult<v1::ListContainersResponse> {
        let selector = request.filter.unwrap_or_default().label_selector;
        let state = self.state.lock();
        let found = state.containers.iter().filter(|(c, _)| matches(&c.labels, &selector));
        let containers = found.map(|(c, sandbox)| v1::Container {
            id: c.id.clone(),
            pod_sandbox_id: sandbox.clone(),
            metadata: c.metadata.clone(),
            state: c.state,
            labels: c.labels.clone(),
            ..Default::default()
        });
        Ok(v1::ListContainersResponse { containers: containers.collect() })
    }

    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> CriResult<v1::ContainerStatusResponse> {
        let state = self.state.lock();
        let found = state.containers.iter().find(|(c, _)| c.id == request.container_id).cloned();
        let (status, _) = found.ok_or_else(|| CriError::NotFound("no such container".into()))?;
        Ok(v1::ContainerStatusResponse { status: Some(status), ..Default::default() })
    }

    async fn reopen_container_log(
        &self,
        _: v1::ReopenContainerLogRequest,
    ) -> CriResult<v1::ReopenContainerLogResponse> {
        Err(CriError::Unimplemented("logs".into()))
    }

    async fn exec_sync(&self, _: v1::ExecSyncRequest) -> CriResult<v1::ExecSyncResponse> {
        Err(CriError::Unimplemented("exec".into()))
    }

    async fn exec(&self, _: v1::ExecRequest) -> CriResult<Streams> {
        Err(CriError::Unimplemented("exec".into()))
    }

    async fn attach(&self, _: v1::AttachRequest) -> CriResult<Streams> {
        Err(CriError::Unimplemented("attach".into()))
    }

    async fn port_forward(&self, _: v1::PortForwardRequest) -> CriResult<Streams> {
        Err(CriError::Unimplemented("port-forward".into()))
    }

    async fn container_stats(&self, _: v1::ContainerStatsRequest) -> CriResult<v1::ContainerStatsResponse> {
        Err(CriError::Unimplemented("stats".into()))
    }

    async fn update_runtime_config(
        &self,
        _: v1::UpdateRuntimeConfigRequest,
    ) -> CriResult<v1::UpdateRuntimeConfigResponse> {
        Ok(v1::UpdateRuntimeConfigResponse {})
    }

    async fn status(&self, _: v1::StatusRequest) -> CriResult<v1::StatusResponse> {
        Ok(v1::StatusResponse::default())
    }

    async fn get_container_events(
        &self,
        _: v1::GetEventsRequest,
    ) -> CriResult<BoxStream<'static, CriResult<v1::ContainerEventResponse>>> {
        let events = self.events.lock();
        let away = || CriError::Internal("the runtime is away".into());
        let receiver = events.as_ref().ok_or_else(away)?.subscribe();
        let stream = futures::stream::unfold(receiver, |mut receiver| async move {
            let event = receiver.recv().await.ok()?;
            Some((Ok(event), receiver))
        });
        Ok(stream.boxed())
    }
}

#[async_trait]
impl ImageService for Runtime {
    async fn list_images(&self, _: v1::ListImagesRequest) -> CriResult<v1::ListImagesResponse> {
        Ok(v1::ListImagesResponse::default())
    }

    async fn image_status(&self, _: v1::ImageStatusRequest) -> CriResult<v1::ImageStatusResponse> {
        let image = v1::Image { id: "sha256:img".into(), ..Default::default() };
        Ok(v1::ImageStatusResponse { image: Some(image), ..Default::default() })
    }

    async fn pull_image(&self, _: v1::PullImageRequest) -> CriResult<v1::PullImageResponse> {
        Err(CriError::Unimplemented("pull".into()))
    }

    async fn remove_image(&self, _: v1::RemoveImageRequest) -> CriResult<v1::RemoveImageResponse> {
        Ok(v1::RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: v1::ImageFsInfoRequest) -> CriResult<v1::ImageFsInfoResponse> {
        let is_away = self.events.lock().is_none();
        drop(self.call(format!("image fs info {}", if is_away { "in vain" } else { "answered" })));
        if is_away {
            return Err(CriError::Internal("the runtime is away".into()));
        }
        let id = v1::FilesystemIdentifier { mountpoint: "/".into() };
        let usage = v1::FilesystemUsage { fs_id: Some(id), ..Default::default() };
        Ok(v1::ImageFsInfoResponse { image_filesystems: vec![usage], ..Default::default() })
    }
}
