//! Creates and starts one container, and runs its `postStart` hook.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use controller::EventType;
use cri::{CriError, v1};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::config::Config;
use crate::kubelet::Kubelet;
use crate::kubelet::handlers::HookError;
use crate::kubelet::step_error::StepError;
use crate::kubelet::{handlers, userns};
use crate::pod::container_config::security::needs_image_user;
use crate::pod::container_config::{ContainerInput, ImageUser, container_config, sandbox_config};
use crate::pod::env::environment;
use crate::pod::env::file::{FILE_BYTES_MAX, NotRead, TooLarge};
use crate::pod::failure_reason::FailureReason;
use crate::pod::files;
use crate::pod::identity::identity;
use crate::pod::needed_images::image_mounts;
use crate::pod::qos::UNLIMITED_QUOTA;
use crate::pod::snapshot::{Sandbox, in_order};
use crate::volumes;
use crate::volumes::mounts::{self, MountInput};
use crate::volumes::objects::PodObjects;

/// What a start needs to know.
pub(super) struct StartInput {
    pub(super) context: Arc<Kubelet>,
    pub(super) pod: Arc<Pod>,
    pub(super) objects: PodObjects,
    pub(super) spec: Container,
    pub(super) attempt: u32,
    pub(super) sandbox: Sandbox,
    /// The container whose processes it shall see.
    pub(super) target_id: Option<String>,
    pub(super) image_ref: String,
    /// One that was made for this and never started.
    pub(super) made: Option<String>,
    pub(super) cause: u64,
}

impl StartInput {
    fn event(&self, event_type: EventType, reason: &str, message: String) {
        self.context.event(&self.pod, Some(&self.spec.name), event_type, reason, message);
    }

    /// Tells of the error.
    fn failed(&self, error: StartError) -> StartError {
        self.event(EventType::Warning, "Failed", format!("Error: {error}"));
        error
    }
}

/// Why a container does not run; its text is for the status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// What it is made of is not there, or it must not run like that.
    #[error(transparent)]
    Config(StepError),
    /// The runtime has not made it.
    #[error(transparent)]
    Create(CriError),
    /// The runtime has not started it, or has forgotten it.
    #[error(transparent)]
    Run(CriError),
    /// It was started, and its hook failed.
    #[error(transparent)]
    PostStart(HookError),
}

impl StartError {
    /// The reason in the container's status.
    pub(super) fn reason(&self) -> FailureReason {
        match self {
            Self::Config(_) => FailureReason::CreateContainerConfigError,
            Self::Create(_) => FailureReason::CreateContainerError,
            Self::Run(_) => FailureReason::RunContainerError,
            Self::PostStart(_) => FailureReason::PostStartHookError,
        }
    }
}

/// The runtime's report of the started container and its sandbox.
pub(super) async fn start(input: StartInput) -> Result<(v1::ContainerStatus, String), StartError> {
    let start = input.context.clock.now();
    let (context, runtime, kind) = (&input.context, input.context.runtime.clone(), kind_of(&input));
    let request = match input.made {
        Some(_) => None,
        None => Some(create_request(&input).await?),
    };
    let permit = context.limit.acquire().await;
    let id = match (&input.made, request) {
        (None, Some(request)) => create(&input, request, kind).await?,
        (made, _) => made.clone().unwrap_or_default(),
    };
    let request = v1::StartContainerRequest { container_id: id.clone() };
    let started = context.operation("start_container", runtime.start_container(request)).await;
    let started = started.map(drop).map_err(StartError::Run);
    context
        .metrics
        .container_started(kind, started.as_ref().map(drop).map_err(|error| error.reason().as_str()));
    drop(permit);
    started.map_err(|error| input.failed(error))?;
    input.event(EventType::Normal, "Started", format!("Started container {}", input.spec.name));
    input.context.span(input.cause, "container started", &input.pod, start, &input.spec.name);
    post_start(&input, &id).await?;
    let request = v1::ContainerStatusRequest { container_id: id, verbose: false };
    let status = runtime.container_status(request).await.map_err(StartError::Run)?;
    Ok((status.status.unwrap_or_default(), input.sandbox.id))
}

async fn create_request(input: &StartInput) -> Result<v1::CreateContainerRequest, StartError> {
    let refused = |error: StepError| input.failed(StartError::Config(error));
    let mut config = config(input).await.map_err(refused)?;
    let resolv_conf = tokio::fs::read_to_string(&input.context.config.resolv_conf).await.unwrap_or_default();
    let mut sandbox = sandbox_config(&input.context.config, &input.pod, input.sandbox.attempt, &resolv_conf);
    let users = userns::of_pod(&input.context.config, &input.pod).map_err(|error| refused(error.into()))?;
    userns::apply_to_sandbox(users.as_ref(), &mut sandbox);
    userns::apply_to_container(users.as_ref(), &mut config);
    Ok(v1::CreateContainerRequest {
        pod_sandbox_id: input.sandbox.id.clone(),
        config: Some(config),
        sandbox_config: Some(sandbox),
    })
}

/// Gives the new container's id.
async fn create(
    input: &StartInput,
    request: v1::CreateContainerRequest,
    kind: &'static str,
) -> Result<String, StartError> {
    let context = &input.context;
    let created = context.operation("create_container", context.runtime.create_container(request)).await;
    let mounted = created.as_ref().map(|_| ());
    context.metrics.image_volumes(image_mounts(&input.pod, &input.spec), mounted);
    let created = created.map_err(StartError::Create).map_err(|error| {
        context.metrics.container_started(kind, Err(error.reason().as_str()));
        tracing::debug!(%error, "a container was not created");
        input.failed(error)
    });
    let id = created?.container_id;
    input.event(EventType::Normal, "Created", format!("Created container: {}", input.spec.name));
    Ok(id)
}

/// Upstream's word for the container's role.
fn kind_of(input: &StartInput) -> &'static str {
    let spec = input.pod.spec.as_ref();
    let name = &input.spec.name;
    let is_init = spec.is_some_and(|s| s.init_containers.iter().flatten().any(|c| c.name == *name));
    let is_ephemeral = spec.is_some_and(|s| s.ephemeral_containers.iter().flatten().any(|c| c.name == *name));
    match (is_init, is_ephemeral) {
        (true, _) => "init_container",
        (_, true) => "ephemeral_container",
        _ => "container",
    }
}

async fn post_start(input: &StartInput, id: &str) -> Result<(), StartError> {
    let hook = input.spec.lifecycle.as_ref().and_then(|l| l.post_start.as_ref());
    let Some(hook) = hook else { return Ok(()) };
    let ips = match input.pod.spec.as_ref().and_then(|spec| spec.host_network) {
        Some(true) => input.context.facts.host_ips.clone(),
        _ => pod_ips(input),
    };
    let target = handlers::Target { container_id: id, spec: &input.spec, ips: &ips };
    let Err(error) = handlers::run_hook(&input.context, &input.pod, &target, hook).await else {
        return Ok(());
    };
    input.event(EventType::Warning, "FailedPostStartHook", "PostStartHook failed".to_owned());
    let grace = input.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds).unwrap_or(30);
    let (id, name, message) = (id.to_owned(), input.spec.name.clone(), "FailedPostStartHook".to_owned());
    let kill = handlers::Kill { id, name, grace, message, ips, turn: None };
    if let Err(error) = handlers::kill_container(&input.context, &input.pod, kill).await {
        tracing::debug!(%error, pod = input.pod.metadata.uid, "a container whose hook failed was not stopped");
    }
    Err(StartError::PostStart(error))
}

/// As the Pod's status has them, if it is not on the host's network.
fn pod_ips(input: &StartInput) -> Vec<String> {
    in_order(&input.sandbox.ips, &input.context.facts.host_ips)
}

async fn config(input: &StartInput) -> Result<v1::ContainerConfig, StepError> {
    let context = &input.context;
    input.objects.synced(context, &input.pod).await?;
    let ips = match pod_ips(input) {
        ips if ips.is_empty() => context.facts.host_ips.clone(),
        ips => ips,
    };
    let mut sources = input.objects.sources(context, &input.pod, ips);
    if input
        .spec
        .env
        .iter()
        .flatten()
        .any(|env| env.value_from.as_ref().is_some_and(|v| v.file_key_ref.is_some()))
    {
        let (pod_dir, pod, spec) =
            (context.config.pod_dir(&identity(&input.pod).2), input.pod.clone(), input.spec.clone());
        let read = tokio::task::spawn_blocking(move || env_files(&pod_dir, &pod, &spec));
        sources.files = read.await?;
    }
    let env = environment(&input.spec, &sources)?;
    let can_be_recursive = can_be_recursive(input).await?;
    let mounts = {
        let (context, pod, spec) = (context.clone(), input.pod.clone(), input.spec.clone());
        let (env, ips, attempt) = (env.clone(), pod_ips(input), input.attempt);
        let made = tokio::task::spawn_blocking(move || {
            let hosts = hosts(&context.config, &pod, &ips);
            make_log_dir(&context.config, &pod, &spec)?;
            let pod_dir = context.config.pod_dir(&identity(&pod).2);
            let input = MountInput {
                pod: &pod,
                pod_dir: &pod_dir,
                env: &env,
                hosts: &hosts,
                attempt,
                can_be_recursive,
            };
            Ok::<_, StepError>(mounts::make(&input, &spec)?)
        });
        made.await??
    };
    let empty = PodSpec::default();
    let pod_spec = input.pod.spec.as_ref().unwrap_or(&empty);
    let image_user = match needs_image_user(pod_spec, &input.spec) {
        true => image_user(context, input.spec.image.clone().unwrap_or_default()).await,
        false => None,
    };
    let pod_dir = context.config.pod_dir(&identity(&input.pod).2);
    let container_input = ContainerInput {
        attempt: input.attempt,
        extra_groups: volumes::persistent::extra_groups(&pod_dir, &input.pod),
        env,
        mounts,
        image_ref: input.image_ref.clone(),
        target_id: input.target_id.clone(),
        memory_capacity: context.resources.memory_capacity,
        image_user,
    };
    let mut config = container_config(&context.config, &input.pod, &input.spec, container_input)?;
    config.devices = mounts::devices(&pod_dir, &input.spec)?;
    let uid = input.pod.metadata.uid.as_deref().unwrap_or_default();
    if let Some(resources) = config.linux.as_mut().and_then(|linux| linux.resources.as_mut()) {
        limit_by_node(input, resources);
    }
    context.resources.devices.prepare(uid, &input.spec.name, &mut config).await?;
    config.cdi_devices.extend(context.resources.dra.devices(&input.pod, &input.spec)?);
    Ok(config)
}

/// What the node's managers and settings say of a container's resources.
fn limit_by_node(input: &StartInput, resources: &mut v1::LinuxContainerResources) {
    let context = &input.context;
    let uid = input.pod.metadata.uid.as_deref().unwrap_or_default();
    if let Some(cpus) = &context.resources.cpus {
        resources.cpuset_cpus = cpus.cpus(uid, &input.spec.name);
        // Its CPUs are limit enough. Source: `DisableCPUQuotaWithExclusiveCPUs`, on in v1.35.
        if !cpus.exclusive(uid, &input.spec.name).is_empty() {
            resources.cpu_quota = UNLIMITED_QUOTA;
        }
    }
    if let Some(memory) = &context.resources.memory {
        resources.cpuset_mems = memory.nodes(uid, &input.spec.name);
    }
    crate::pod::huge_pages::deny_others(&mut resources.hugepage_limits, &context.resources.page_sizes);
    context.resources.unified.add(&input.pod, &input.spec, resources);
    if !context.config.cpu_cfs_quota && resources.cpu_quota != 0 {
        resources.cpu_quota = UNLIMITED_QUOTA;
    }
}

/// Whether mounts can be read-only with all that is below them; asked only if one is to be.
async fn can_be_recursive(input: &StartInput) -> Result<bool, StepError> {
    if input.spec.volume_mounts.iter().flatten().all(|mount| mount.recursive_read_only.is_none()) {
        return Ok(false);
    }
    let handler = crate::kubelet::runtime_class::handler(&input.context, &input.pod).await?;
    Ok(input.context.features.ask(&*input.context.runtime).await?.has_recursive_read_only(&handler))
}

/// The env files that a container's environment names, by volume and path. Blocking.
fn env_files(
    pod_dir: &Path,
    pod: &Pod,
    spec: &Container,
) -> BTreeMap<(String, String), Result<String, Arc<NotRead>>> {
    let references =
        spec.env.iter().flatten().filter_map(|env| env.value_from.as_ref()?.file_key_ref.as_ref());
    let mut files = BTreeMap::new();
    for reference in references {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mut volumes = volumes.filter(|volume| volume.name == reference.volume_name);
        let Some(root) = volumes.next().and_then(|volume| volumes::volume_path(pod_dir, volume)) else {
            continue;
        };
        let read = env_file(&root, Path::new(&reference.path));
        let read = read.map_err(|source| Arc::new(NotRead { path: reference.path.clone(), source }));
        files.insert((reference.volume_name.clone(), reference.path.clone()), read);
    }
    files
}

/// Containers write there: no link may lead out of the volume.
fn env_file(root: &Path, path: &Path) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut text = String::new();
    let file = sys::descriptors::open_in_root(root, path)?;
    let length = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if length as u64 > FILE_BYTES_MAX { Err(TooLarge.into()) } else { Ok(text) }
}

async fn image_user(context: &Kubelet, image: String) -> Option<ImageUser> {
    let image = v1::ImageSpec { image, ..v1::ImageSpec::default() };
    let request = v1::ImageStatusRequest { image: Some(image), verbose: false };
    let image = context.images.image_status(request).await.ok()?.image?;
    match image.uid {
        Some(uid) => Some(ImageUser::Uid(uid.value)),
        None if image.username.is_empty() => Some(ImageUser::Uid(0)),
        None => Some(ImageUser::Name(image.username)),
    }
}

/// The text of the container's `/etc/hosts`. Blocking.
fn hosts(config: &Config, pod: &Pod, ips: &[String]) -> String {
    let empty = PodSpec::default();
    let pod_spec = pod.spec.as_ref().unwrap_or(&empty);
    let aliases = pod_spec.host_aliases.as_deref().unwrap_or_default();
    if pod_spec.host_network == Some(true) {
        return files::host_network_hosts(
            &std::fs::read_to_string("/etc/hosts").unwrap_or_default(),
            aliases,
        );
    }
    let (name, namespace, _) = identity(pod);
    let (hostname, full) = files::names(&name, &namespace, pod_spec, &config.cluster_domain);
    files::hosts(ips, &hostname, full.as_deref(), aliases)
}

/// Makes the directory of the container's logs. Blocking.
fn make_log_dir(config: &Config, pod: &Pod, spec: &Container) -> Result<(), StepError> {
    let (name, namespace, uid) = identity(pod);
    let log_dir = config.log_dir(&namespace, &name, &uid).join(&spec.name);
    let path = || log_dir.display().to_string();
    std::fs::create_dir_all(&log_dir).map_err(|source| StepError::LogDirectory { path: path(), source })
}

#[cfg(test)]
mod tests;
