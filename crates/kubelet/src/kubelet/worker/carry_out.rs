//! Turns actions into jobs. A job gets copies of what it needs and reports an [`Outcome`].

use std::sync::Arc;

use controller::request::{self, ApiRequest};
use controller::{EventType, Patch, Propagation};
use cri::{CriError, v1};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::Worker;
use super::outcome::Outcome;
use super::start::StartInput;
use crate::images::pull::Want;
use crate::inbox::sandbox_from_cri;
use crate::kubelet::Kubelet;
use crate::kubelet::handlers;
use crate::kubelet::step_error::StepError;
use crate::metrics::Count;
use crate::pod::container_config::{dns_complaints, sandbox_config};
use crate::pod::identity::identity;
use crate::pod::job::JobKey;
use crate::pod::labels;
use crate::pod::lifecycle::is_over;
use crate::pod::next_actions::PodAction;
use crate::pod::roles::find_container;
use crate::pod::snapshot::{PodSnapshot, Sandbox};
use crate::volumes::error::VolumeError;
use crate::volumes::objects::{PodObjects, Token, renewed_token};
use crate::volumes::{self, TokenKey, VolumeInput, token_keys};

impl Worker {
    /// Starts the job that carries `action` out.
    pub(super) fn launch(&mut self, action: PodAction) {
        let (key, context, pod, cause) = (action.key(), self.context.clone(), self.pod(), self.cause);
        match action {
            PodAction::PrepareVolumes => {
                self.is_volume_update_due = false;
                let job = self.volumes_job();
                let job = async move {
                    let start = context.clock.now();
                    let result = job.await;
                    match &result {
                        Ok(_) => context.span(cause, "volumes mounted", &pod, start, ""),
                        Err(error) => {
                            let reason = error.reason().as_str();
                            context.event(&pod, None, EventType::Warning, reason, error.to_string());
                        }
                    }
                    Outcome::Volumes(result)
                };
                self.spawn(key, job);
            }
            PodAction::PrepareClaims => self.spawn(key, prepare_claims(context, pod)),
            PodAction::UnprepareClaims => self.spawn(key, async move {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                Outcome::ClaimsTakenBack(context.resources.dra.unprepare(uid).await)
            }),
            PodAction::RunSandbox { attempt } => {
                let (_, old) = ids(&self.snapshot);
                self.spawn(key, run_sandbox(context, pod, attempt, old, cause));
            }
            PodAction::PullImage { image, policy } => {
                self.launch_pull(key, image, policy);
            }
            PodAction::Start { name, attempt, after } => self.launch_start(key, name, attempt, after),
            PodAction::Kill { id, name, grace, message, after } => {
                let turn = Some(handlers::Turn { after, running: self.running.subscribe() });
                let kill = handlers::Kill { id, name, grace, message, ips: self.ips(), turn };
                self.launch_kill(key, kill);
            }
            PodAction::TellBackOff { name, id } => self.tell_back_off(name, id),
            PodAction::Resize { id, resources, .. } => self.launch_resize(key, id, resources),
            PodAction::RemoveContainer { id } => self.spawn(key, async move {
                let request = v1::RemoveContainerRequest { container_id: id.clone() };
                finished(context.runtime.remove_container(request).await, Outcome::ContainerRemoved(id))
            }),
            PodAction::StopSandbox { id } => self.spawn(key, async move {
                let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.clone() };
                finished(context.runtime.stop_pod_sandbox(request).await, Outcome::SandboxStopped(id))
            }),
            PodAction::RemoveSandbox { id } => self.spawn(key, async move {
                let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.clone() };
                finished(context.runtime.remove_pod_sandbox(request).await, Outcome::SandboxRemoved(id))
            }),
            PodAction::Release => self.spawn(key, async move {
                match crate::kubelet::cleanup::release(&context, &pod).await {
                    Ok(()) => Outcome::Released,
                    Err(error) => Outcome::Failed(error),
                }
            }),
            PodAction::Cleanup => {
                let (containers, sandboxes) = ids(&self.snapshot);
                self.spawn(key, async move {
                    match crate::kubelet::cleanup::clean(&context, &pod, &containers, &sandboxes).await {
                        Ok(()) => Outcome::Cleaned,
                        Err(error) => Outcome::Failed(error),
                    }
                });
            }
            PodAction::Delete => self.spawn(key, delete(context, pod)),
            PodAction::WakeAt(_) => {}
        }
    }

    fn launch_pull(&mut self, key: JobKey, image: String, policy: String) {
        let (images, objects) = (self.context.image_store.clone(), self.objects.clone());
        let (pod, cause) = (self.pod(), self.cause);
        self.spawn(key, async move {
            let want = Want::new(images, pod, objects, image.clone(), policy);
            let had = want.ensure_exists(cause).await;
            let pulled = had.as_ref().ok().and_then(|had| had.pulled);
            Outcome::Image(image, had.map(|had| had.reference), pulled)
        });
    }

    fn launch_kill(&mut self, key: JobKey, kill: handlers::Kill) {
        let (context, pod, id) = (self.context.clone(), self.pod(), kill.id.clone());
        self.spawn(key, async move {
            match handlers::kill_container(&context, &pod, kill).await {
                Ok(status) => Outcome::Killed(status.map(|status| (status, String::new()))),
                Err(CriError::NotFound(_)) => Outcome::ContainerRemoved(id),
                Err(error) => Outcome::Failed(error.into()),
            }
        });
    }

    /// Once for each end.
    fn tell_back_off(&mut self, name: String, id: String) {
        if self.backed_off.get(&name) == Some(&id) {
            return;
        }
        let pod = self.pod();
        let (pod_name, namespace, uid) = identity(&pod);
        let text =
            format!("Back-off restarting failed container {name} in pod {pod_name}_{namespace}({uid})");
        self.context.event(&pod, Some(&name), EventType::Warning, "BackOff", text);
        self.backed_off.insert(name, id);
    }

    fn launch_start(&mut self, key: JobKey, name: String, attempt: u32, ended: Option<Timestamp>) {
        let Some(sandbox) = self.snapshot.ready_sandbox().cloned() else { return };
        let Some(spec) = find_container(self.snapshot.spec(), &name) else { return };
        let ephemeral = self.snapshot.spec().ephemeral_containers.iter().flatten();
        let target =
            ephemeral.into_iter().find(|c| c.name == name).and_then(|c| c.target_container_name.clone());
        let target_id = target.and_then(|target| Some(self.snapshot.current(&target)?.id.clone()));
        let image = spec.image.clone().unwrap_or_default();
        let image_ref = match self.snapshot.images.get(&image) {
            Some(crate::pod::snapshot::Step::Ready(reference)) => reference.clone(),
            _ => String::new(),
        };
        let input = StartInput {
            context: self.context.clone(),
            pod: self.pod(),
            objects: self.objects.clone(),
            attempt,
            sandbox,
            target_id,
            image_ref,
            made: self.snapshot.unstarted(&spec).map(|container| container.id.clone()),
            spec,
            cause: self.cause,
        };
        self.spawn(key, async move { Outcome::Started(name, ended, super::start::start(input).await) });
    }

    /// Asks the runtime for everything it has of the Pod.
    pub(super) fn launch_refresh(&mut self) {
        let (mut known, sandboxes) = ids(&self.snapshot);
        known.extend(sandboxes);
        let (context, uid) = (self.context.clone(), self.snapshot.uid().to_owned());
        self.spawn(JobKey::Refresh, async move {
            match runtime_state(&context, &uid).await {
                Ok((sandboxes, containers)) => Outcome::Runtime { known, sandboxes, containers },
                Err(error) => Outcome::Failed(error.into()),
            }
        });
    }

    /// Writes the Pod's status.
    pub(super) fn launch_status(&mut self, patch: Value) {
        let (context, pod) = (self.context.clone(), self.pod());
        self.spawn(JobKey::Status, async move {
            let (name, namespace, _) = identity(&pod);
            let request = ApiRequest::patch_status::<Pod>(&namespace, &name, Patch::Strategic(patch));
            match request::send(&context.client, &request).await {
                Ok(pod) => Outcome::StatusWritten(Box::new(pod)),
                Err(kube::Error::Api(status)) if status.code == 404 => Outcome::Gone,
                Err(error) => Outcome::StatusFailed(Box::new(error)),
            }
        });
    }

    /// Brings files up to date when their sources have changed, or a token or certificate is about to expire.
    pub(super) fn update_volumes(&mut self, now: Timestamp, wake_at: &mut Vec<Timestamp>) {
        // What stands in the way wakes the worker when it is over.
        let is_possible = self.snapshot.volumes.is_ready() && !is_over(&self.snapshot, now);
        if !is_possible || self.snapshot.busy.contains(&JobKey::VolumeUpdate) {
            return;
        }
        let tokens = self.tokens.values().map(|token| token.refresh_at);
        let refresh_at = tokens.chain(self.objects.certificates_due()).min();
        if !self.is_volume_update_due && refresh_at.is_none_or(|at| at > now) {
            wake_at.extend(refresh_at);
            return;
        }
        self.is_volume_update_due = false;
        let job = self.volumes_job();
        self.spawn(JobKey::VolumeUpdate, async move { Outcome::VolumesUpdated(job.await) });
    }

    fn volumes_job(
        &self,
    ) -> impl Future<Output = Result<Vec<(TokenKey, Token)>, VolumeError>> + Send + 'static {
        let (context, pod, objects) = (self.context.clone(), self.pod(), self.objects.clone());
        let (ips, tokens) = (self.ips(), self.tokens.clone());
        async move { prepare_volumes(context, pod, objects, ips, tokens).await }
    }

    fn ips(&self) -> Vec<String> {
        self.snapshot.addresses(&self.context.facts.host_ips)
    }
}

fn ids(snapshot: &PodSnapshot) -> (Vec<String>, Vec<String>) {
    let containers = snapshot.containers.iter().map(|c| c.id.clone()).collect();
    (containers, snapshot.sandboxes.iter().map(|s| s.id.clone()).collect())
}

/// What is gone already counts as done.
fn finished<T>(result: Result<T, CriError>, done: Outcome) -> Outcome {
    match result {
        Ok(_) | Err(CriError::NotFound(_)) => done,
        Err(error) => Outcome::Failed(error.into()),
    }
}

async fn prepare_volumes(
    context: Arc<Kubelet>,
    pod: Arc<Pod>,
    objects: PodObjects,
    ips: Vec<String>,
    mut tokens: std::collections::BTreeMap<TokenKey, Token>,
) -> Result<Vec<(TokenKey, Token)>, VolumeError> {
    let mut fetched = Vec::new();
    for key in token_keys(&pod) {
        let renewed = renewed_token(&context, &pod, &key, tokens.get(&key)).await;
        let renewed = renewed.map_err(VolumeError::step("MountVolume.SetUp", &token_volume(&pod)))?;
        if let Some(token) = renewed {
            tokens.insert(key.clone(), token.clone());
            fetched.push((key, token));
        }
    }
    objects.synced(&context, &pod).await?;
    volumes::persistent::prepare(&context.volumes, &pod).await?;
    let input = VolumeInput {
        pod_dir: context.config.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default()),
        sources: objects.sources(&context, &pod, ips),
        tokens: tokens.into_iter().map(|(key, token)| (key, token.text)).collect(),
        certificates: objects.certificates(&context, &pod).await,
    };
    tokio::task::spawn_blocking(move || volumes::prepare(&input)).await??;
    Ok(fetched)
}

async fn prepare_claims(context: Arc<Kubelet>, pod: Arc<Pod>) -> Outcome {
    let result = context.resources.dra.prepare(&context, &pod).await;
    if let Err(error) = &result {
        let message = format!("Failed to prepare dynamic resources: {error}");
        context.event(&pod, None, EventType::Warning, "FailedPrepareDynamicResources", message);
    }
    Outcome::Claims(result)
}

fn token_volume(pod: &Pod) -> String {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    volumes.into_iter().find(|v| v.projected.is_some()).map(|v| v.name.clone()).unwrap_or_default()
}

async fn run_sandbox(
    context: Arc<Kubelet>,
    pod: Arc<Pod>,
    attempt: u32,
    old: Vec<String>,
    cause: u64,
) -> Outcome {
    let start = context.clock.now();
    if attempt > 0 {
        let message = "Pod sandbox changed, it will be killed and re-created.".to_owned();
        context.event(&pod, None, EventType::Normal, "SandboxChanged", message);
    }
    let result = try_run_sandbox(&context, &pod, attempt, old).await;
    match result {
        Ok(sandbox) => {
            context.span(cause, "sandbox started", &pod, start, &sandbox.ips.join(","));
            Outcome::Sandbox(Ok(sandbox))
        }
        Err(error) => {
            let message = format!("Failed to create pod sandbox: {error}");
            context.event(&pod, None, EventType::Warning, "FailedCreatePodSandBox", message);
            Outcome::Sandbox(Err(error))
        }
    }
}

/// The `old` sandboxes are stopped first, so that they keep no address; most are stopped already.
async fn try_run_sandbox(
    context: &Kubelet,
    pod: &Pod,
    attempt: u32,
    old: Vec<String>,
) -> Result<Sandbox, StepError> {
    for pod_sandbox_id in old {
        let stopped = context.runtime.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id }).await;
        stopped?;
    }
    let resolv_conf = tokio::fs::read_to_string(&context.config.resolv_conf).await.unwrap_or_default();
    let mut config = sandbox_config(&context.config, pod, attempt, &resolv_conf);
    for complaint in dns_complaints(&context.config, pod, &resolv_conf) {
        context.event(pod, None, EventType::Warning, complaint.reason, complaint.message);
    }
    let runtime_handler = crate::kubelet::runtime_class::handler(context, pod).await?;
    let users = crate::kubelet::userns::of_pod(&context.config, pod)?;
    if users.is_some() {
        context.features.ask(&*context.runtime).await?.check_user_namespaces(&runtime_handler)?;
    }
    crate::kubelet::userns::apply_to_sandbox(users.as_ref(), &mut config);
    if let Some(spec) = &pod.spec {
        let (name, namespace, _) = identity(pod);
        crate::pod::files::kernel_name(&name, &namespace, spec, &context.config.cluster_domain)?;
    }
    crate::node_resources::cgroups::limit_pod(
        &context.resources,
        pod,
        crate::node_resources::cgroups::Which::ALL,
    )
    .await?;
    let log_directory = config.log_directory.clone();
    tokio::fs::create_dir_all(&log_directory)
        .await
        .map_err(|source| StepError::LogDirectory { path: log_directory, source })?;
    let handler = runtime_handler.clone();
    let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler };
    let _permit = context.limit.acquire().await?;
    let start = std::time::Instant::now();
    let answer = context.operation("run_podsandbox", context.runtime.run_pod_sandbox(request)).await;
    context.metrics.pod_started(&handler, start.elapsed(), answer.as_ref().map(drop).map_err(drop));
    if users.is_some() {
        context.metrics.count(Count::StartedUserPods, &[]);
        if answer.is_err() {
            context.metrics.count(Count::StartedUserPodsErrors, &[]);
        }
    }
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: answer?.pod_sandbox_id, verbose: false };
    let status = context.runtime.pod_sandbox_status(request).await?;
    Ok(sandbox_from_cri(&status.status.unwrap_or_default()))
}

type RuntimeState = (Vec<Sandbox>, Vec<(v1::ContainerStatus, String)>);

/// All sandboxes and containers of the Pod with that uid, oldest first.
pub(crate) async fn runtime_state(context: &Kubelet, uid: &str) -> Result<RuntimeState, CriError> {
    let selector = std::collections::HashMap::from([(labels::POD_UID.to_owned(), uid.to_owned())]);
    let filter = v1::PodSandboxFilter { label_selector: selector.clone(), ..v1::PodSandboxFilter::default() };
    let request = v1::ListPodSandboxRequest { filter: Some(filter) };
    let mut sandboxes = Vec::new();
    for item in context.runtime.list_pod_sandbox(request).await?.items {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: item.id, verbose: false };
        let status = match context.runtime.pod_sandbox_status(request).await {
            Err(CriError::NotFound(_)) => continue,
            other => other?.status.unwrap_or_default(),
        };
        sandboxes.push(sandbox_from_cri(&status));
    }
    sandboxes.sort_by_key(|s| s.attempt);
    let filter = v1::ContainerFilter { label_selector: selector, ..v1::ContainerFilter::default() };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let mut containers = Vec::new();
    for item in context.runtime.list_containers(request).await?.containers {
        let request = v1::ContainerStatusRequest { container_id: item.id, verbose: false };
        let status = match context.runtime.container_status(request).await {
            Err(CriError::NotFound(_)) => continue,
            other => other?.status.unwrap_or_default(),
        };
        containers.push((status, item.pod_sandbox_id));
    }
    containers.sort_by_key(|(status, _)| status.metadata.as_ref().map_or(0, |m| m.attempt));
    Ok((sandboxes, containers))
}

async fn delete(context: Arc<Kubelet>, pod: Arc<Pod>) -> Outcome {
    let (name, namespace, uid) = identity(&pod);
    let request = ApiRequest::delete::<Pod>(&namespace, &name, Some(&uid), Propagation::Background, Some(0));
    match request::send::<serde_json::Value>(&context.client, &request).await {
        Ok(_) => Outcome::Deleted,
        // Gone, or another object has its name by now.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Outcome::Gone,
        Err(error) => Outcome::Failed(Box::new(error).into()),
    }
}

#[cfg(test)]
mod tests;
