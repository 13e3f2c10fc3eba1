//! Containers: create, start, stop, remove, status.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri::{CriError, CriResult, v1};
use nix::libc::SIGKILL;
use prost::Message;
use tokio::sync::watch;
use v1::NamespaceMode;

use crate::client::ShimError;
use crate::devices::{HostDevice, devices};
use crate::images::Image;
use crate::in_root;
use crate::oci::{self, PidNamespace};
use crate::refusal::Refusal;
use crate::shim::layout::{self, ContainerPlan, Exited, LOST_CODE, LogLimits, Started};
use crate::shim::protocol::{Call, Done};
use crate::state::{Container, ContainerRecord, Inner, Sandbox, Status, blocking, internal};
use crate::users;

/// How long a killed container may take to end: longer means that the kernel does not let it.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// Exit code of a container that could not be started, as containerd's.
const START_ERROR_CODE: i32 = 128;

impl Inner {
    pub(crate) async fn create_container(
        self: &Arc<Self>,
        request: v1::CreateContainerRequest,
    ) -> CriResult<String> {
        let config = request.config.ok_or_else(|| CriError::InvalidArgument("config must be set".into()))?;
        let Some(metadata) = &config.metadata else {
            return Err(CriError::InvalidArgument("config.metadata must be set".into()));
        };
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        if sandbox.shim.is_none() || sandbox.is_disconnected {
            return Err(CriError::FailedPrecondition(format!("pod sandbox {} is not ready", sandbox.id)));
        }
        let name = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
        let image = self
            .images
            .find(&name)
            .ok_or_else(|| CriError::NotFound(format!("image {name:?} is not present")))?;
        let this = Arc::clone(self);
        let id = self.new_id();
        let _reservation = self.reserve_container(&id, &sandbox, metadata)?;
        let container = blocking(move || {
            let dir = layout::container_dir(&this.sandbox_dir(&sandbox.id), &id);
            this.make_container(&sandbox, config, &image, id).inspect_err(|_| discard(&dir))
        })
        .await?;
        let (id, sandbox) = (container.id.clone(), container.sandbox.clone());
        self.tables.lock().containers.insert(id.clone(), container);
        self.emit(&sandbox, &id, v1::ContainerEventType::ContainerCreatedEvent);
        Ok(id)
    }

    fn make_container(
        &self,
        sandbox: &Sandbox,
        mut config: v1::ContainerConfig,
        image: &Image,
        id: String,
    ) -> CriResult<Container> {
        let dir = layout::container_dir(&self.sandbox_dir(&sandbox.id), &id);
        let rootfs = dir.join("rootfs");
        let mapping = sandbox.mapping()?;
        let userns = mapping.map(|_| self.sandbox_dir(&sandbox.id).join(layout::USERNS));
        self.mount_rootfs(&dir, &rootfs, image, mapping.zip(userns.as_deref())).map_err(internal)?;
        let volume_layers = crate::image_volumes::mount(&self.images, &dir, &mut config)?;
        let (asked, edits) = crate::cdi::inject(&self.config.cdi_dirs, &mut config)?;
        let context = oci::security_context(&config);
        let user = resolve_user(&rootfs, &context, image)?;
        let cgroup = format!("{}/{id}", self.cgroup_parent(sandbox).trim_end_matches('/'));
        let (pid_namespace, shared_pid) = self.pid_namespace(sandbox, &context)?;
        let devices = all_devices(&config, context.privileged, &edits, &user)?;
        check_spec(&id, &rootfs, sandbox, &config)?;
        let mut mounted = mounted(&dir, &rootfs, mapping.zip(userns.as_deref()), &config, &edits)?;
        crate::declared_volumes::mount(&dir, &rootfs, mapping, &image.config, &mut mounted)
            .map_err(internal)?;
        self.drop_what_is_not_limited(&mut mounted);
        let output = oci::spec(
            &oci::Input {
                config: &mounted,
                image: &image.config,
                rootfs: &rootfs,
                cgroup: &cgroup,
                cgroup_view: &crate::cgroup_view::of(&self.cgroups, &cgroup),
                hostname: &self.hostname(sandbox),
                sandbox_files: &self.sandbox_files(sandbox),
                pid_namespace,
                userns,
                apparmor: crate::apparmor::profile(&context, Path::new("/"))?,
                is_cgroup_v2: self.cgroups.version() == sys::cgroup::Version::V2,
                all_capabilities: &self.capabilities,
                is_external: !sandbox.record.handler.is_empty(),
                devices: &devices,
                edits: &edits,
            },
            &user,
        )?;
        let cwd = output.spec["process"]["cwd"].as_str().unwrap_or("/");
        let (first_uid, first_gid) = mapping.map_or((0, 0), |it| (it.first_uid, it.first_gid));
        in_root::make_dir(&rootfs, Path::new(cwd), first_uid, first_gid).map_err(internal)?;
        let log_path = make_log_path(sandbox, &config).map_err(internal)?;
        let resources = config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
        let plan = ContainerPlan {
            log_path: log_path.clone(),
            log_limits: log_limits(&config.annotations)?,
            owner: (first_uid + user.uid, first_gid + user.gid),
            tty: config.tty,
            stdin: config.stdin,
            cgroup: cgroup.clone(),
            oom_score_adj: resources.and_then(|resources| i32::try_from(resources.oom_score_adj).ok()),
            security: output.security,
            shared_pid,
        };
        let record = ContainerRecord {
            created_at: self.now(),
            layers: [image.layers.clone(), volume_layers].concat(),
            cgroup,
            log_path: log_path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
            uid: user.uid,
            gid: user.gid,
            groups: user.groups,
            ..record_of(image)
        };
        write_down(&dir, &output.spec, &plan, &asked, &record).map_err(internal)?;
        let status = watch::Sender::new(Status::Created);
        Ok(Container { id, sandbox: sandbox.id.clone(), config: asked, record, status })
    }

    /// Source: containerd's `tolerate_missing_hugetlb_controller`, on by default.
    fn drop_what_is_not_limited(&self, config: &mut v1::ContainerConfig) {
        let resources = config.linux.as_mut().and_then(|linux| linux.resources.as_mut());
        if let Some(resources) = resources.filter(|_| !self.cgroups.has("hugetlb")) {
            resources.hugepage_limits.clear();
        }
    }

    fn mount_rootfs(
        &self,
        dir: &Path,
        rootfs: &Path,
        image: &Image,
        mapping: Option<(sys::userns::Mapping, &Path)>,
    ) -> io::Result<()> {
        std::fs::create_dir(dir)?;
        for name in ["rootfs", "upper", "work"] {
            std::fs::create_dir(dir.join(name))?;
        }
        // The root directory is the upper one's: overlayfs takes its owner and mode from there.
        std::fs::set_permissions(dir.join("upper"), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        if let Some((mapping, userns)) = mapping {
            let layers = self.images.lower_dirs(image);
            return crate::userns::mount_rootfs(dir, self.images.root(), &layers, userns, mapping);
        }
        let upper = (dir.join("upper"), dir.join("work"));
        sys::mount::overlay(&self.images.lower_dirs(image), Some((&upper.0, &upper.1)), rootfs)
            .map_err(io::Error::other)
    }

    fn pid_namespace(
        &self,
        sandbox: &Sandbox,
        context: &v1::LinuxContainerSecurityContext,
    ) -> CriResult<(PidNamespace, bool)> {
        let options = context.namespace_options.clone().unwrap_or_else(|| sandbox.namespaces());
        Ok(match options.pid() {
            NamespaceMode::Node => (PidNamespace::Host, true),
            NamespaceMode::Container => (PidNamespace::Own, false),
            // A Pod-wide namespace exists only if the sandbox was made with one.
            NamespaceMode::Pod if sandbox.namespaces().pid() == NamespaceMode::Pod => {
                (PidNamespace::Path(self.sandbox_dir(&sandbox.id).join(layout::PID_NAMESPACE)), true)
            }
            NamespaceMode::Pod => (PidNamespace::Own, false),
            NamespaceMode::Target => {
                let target = self.container(&options.target_id)?;
                let Status::Running(Started { pid, .. }) = *target.status.borrow() else {
                    return Err(CriError::FailedPrecondition(format!(
                        "container {} is not running",
                        target.id
                    )));
                };
                (PidNamespace::Path(PathBuf::from(format!("/proc/{pid}/ns/pid"))), true)
            }
        })
    }

    fn sandbox_files(&self, sandbox: &Sandbox) -> Vec<(String, PathBuf)> {
        let dir = self.sandbox_dir(&sandbox.id);
        let shm = match sandbox.namespaces().ipc() {
            NamespaceMode::Node => PathBuf::from("/dev/shm"),
            _ => dir.join("shm"),
        };
        let files =
            [("/etc/hosts", "hosts"), ("/etc/hostname", "hostname"), ("/etc/resolv.conf", "resolv.conf")];
        let mut files: Vec<_> =
            files.iter().map(|(path, name)| ((*path).to_owned(), dir.join(name))).collect();
        files.push(("/dev/shm".to_owned(), shm));
        files
    }

    pub(crate) async fn start_container(self: &Arc<Self>, id: &str) -> CriResult<()> {
        let container = self.container(id)?;
        if *container.status.borrow() != Status::Created {
            let state = container.status.borrow().cri().as_str_name();
            return Err(CriError::FailedPrecondition(format!(
                "container {} is in state {state}",
                container.id
            )));
        }
        let shim = self.shim_of(&container)?;
        match shim.ask(Call::Start { container: container.id.clone() }, Vec::new()).await {
            Ok((Done::Started { pid, at, ticks }, _)) => {
                let started = Started { pid, at, ticks };
                self.hold(&shim, &container, &started).await;
                container.status.send_if_modified(|status| {
                    // Its end may have been heard of before this.
                    let is_new = *status == Status::Created;
                    if is_new {
                        *status = Status::Running(started);
                    }
                    is_new
                });
                if !matches!(*container.status.borrow(), Status::Running(..)) {
                    self.tables.lock().held.remove(&container.id);
                }
                self.emit(&container.sandbox, &container.id, v1::ContainerEventType::ContainerStartedEvent);
                Ok(())
            }
            Ok(_) => Err(CriError::Internal("the shim gave an answer to another question".into())),
            Err(error) => {
                let message = error.to_string();
                let exited = Exited { code: START_ERROR_CODE, at: self.now(), oom_killed: false, message };
                let path = self.container_dir(&container).join(layout::EXITED);
                layout::write_json(&path, &exited).map_err(internal)?;
                container.status.send_replace(Status::Exited { started_at: 0, exited });
                Err(error.into())
            }
        }
    }

    /// Asks the container to end and kills it `timeout` seconds later. No error if it does not run.
    pub(crate) async fn stop_container(self: &Arc<Self>, id: &str, timeout: i64) -> CriResult<()> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        let mut status = container.status.subscribe();
        if !matches!(*status.borrow_and_update(), Status::Running(..)) {
            return Ok(());
        }
        let shim = self.shim_of(&container)?;
        let ended = |status: &Status| matches!(status, Status::Exited { .. });
        let kill =
            |signal: i32, everyone: bool| Call::Kill { container: container.id.clone(), signal, everyone };
        if let Some(timeout) = u64::try_from(timeout).ok().filter(|timeout| *timeout > 0) {
            not_running_is_fine(shim.ask(kill(stop_signal(&container), false), Vec::new()).await)?;
            let waiting = tokio::time::timeout(Duration::from_secs(timeout), status.wait_for(ended));
            if waiting.await.is_ok() {
                return Ok(());
            }
        }
        not_running_is_fine(shim.ask(kill(SIGKILL, true), Vec::new()).await)?;
        match tokio::time::timeout(KILL_TIMEOUT, status.wait_for(ended)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(CriError::DeadlineExceeded(format!("container {} does not die", container.id))),
        }
    }

    /// Kills the container if it runs and forgets it. No error if there is no such container.
    pub(crate) async fn remove_container(self: &Arc<Self>, id: &str) -> CriResult<()> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        self.stop_container(&container.id, 0).await?;
        if let Ok(shim) = self.shim_of(&container) {
            not_running_is_fine(
                shim.ask(Call::Delete { container: container.id.clone() }, Vec::new()).await,
            )?;
        }
        let (this, dir) = (Arc::clone(self), self.container_dir(&container));
        let cgroup = container.record.cgroup.clone();
        blocking(move || {
            // What a shim that was killed has half started.
            this.cgroups.kill(&cgroup, KILL_TIMEOUT).map_err(internal)?;
            this.cgroups.remove(&cgroup).map_err(internal)?;
            sys::tree::remove(&dir).map_err(internal)
        })
        .await?;
        self.tables.lock().containers.remove(&container.id);
        if self.images.find(&container.record.image_id).is_none() {
            let this = Arc::clone(self);
            blocking(move || this.images.collect(&this.layers_in_use()).map_err(internal)).await?;
        }
        self.emit(&container.sandbox, &container.id, v1::ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// A shim saw the container end.
    pub(crate) fn container_exited(&self, id: &str, exited: Exited) {
        let Ok(container) = self.container(id) else { return };
        self.tables.lock().held.remove(id);
        container.status.send_if_modified(|status| {
            let started_at = match status {
                Status::Running(started) => started.at,
                Status::Created => exited.at,
                Status::Exited { .. } => return false,
            };
            *status = Status::Exited { started_at, exited: exited.clone() };
            true
        });
        self.emit(&container.sandbox, &container.id, v1::ContainerEventType::ContainerStoppedEvent);
    }

    /// Ends a container that no shim looks after and writes down that it ended.
    pub(crate) async fn kill_orphan(self: &Arc<Self>, container: &Container) {
        let dir = self.container_dir(container);
        let this = Arc::clone(self);
        let cgroup = container.record.cgroup.clone();
        let at = self.now();
        let exited = blocking(move || {
            if let Some(exited) = layout::read_json(&dir.join(layout::EXITED)).map_err(internal)? {
                return Ok(exited);
            }
            this.cgroups.kill(&cgroup, KILL_TIMEOUT).map_err(internal)?;
            let message = "the pod's shim ended before the container".to_owned();
            let exited = Exited { code: LOST_CODE, at, oom_killed: false, message };
            layout::write_json(&dir.join(layout::EXITED), &exited).map_err(internal)?;
            Ok(exited)
        });
        match exited.await {
            Ok(exited) => self.container_exited(&container.id, exited),
            Err(error) => {
                tracing::warn!(container = %container.id, %error, "cannot end an orphaned container")
            }
        }
    }

    pub(crate) fn container_status(&self, container: &Container) -> v1::ContainerStatus {
        let status = container.status.borrow().clone();
        let mut cri = v1::ContainerStatus {
            id: container.id.clone(),
            metadata: container.config.metadata.clone(),
            state: status.cri().into(),
            created_at: container.record.created_at,
            image: container.config.image.clone().map(|mut image| {
                image.image.clone_from(&container.record.image_name);
                image
            }),
            image_ref: container.record.image_ref(),
            image_id: container.record.image_id.clone(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
            mounts: container.config.mounts.clone(),
            log_path: container.record.log_path.clone(),
            resources: Some(v1::ContainerResources {
                linux: container.config.linux.as_ref().and_then(|linux| linux.resources.clone()),
                windows: None,
            }),
            user: Some(v1::ContainerUser {
                linux: Some(v1::LinuxContainerUser {
                    uid: i64::from(container.record.uid),
                    gid: i64::from(container.record.gid),
                    supplemental_groups: container.record.groups.iter().map(|gid| i64::from(*gid)).collect(),
                }),
            }),
            stop_signal: crate::stop_signal::reported(stop_signal(container)).into(),
            ..Default::default()
        };
        match status {
            Status::Created => {}
            Status::Running(started) => cri.started_at = started.at,
            Status::Exited { started_at, exited } => {
                cri.started_at = started_at;
                cri.finished_at = exited.at;
                cri.exit_code = exited.code;
                cri.reason = reason(started_at, &exited).to_owned();
                cri.message = exited.message;
            }
        }
        cri
    }
}

fn reason(started_at: i64, exited: &Exited) -> &'static str {
    match exited.code {
        _ if exited.oom_killed => "OOMKilled",
        0 => "Completed",
        START_ERROR_CODE if started_at == 0 => "StartError",
        LOST_CODE if !exited.message.is_empty() => "Unknown",
        _ => "Error",
    }
}

/// What ended meanwhile need not be killed.
fn not_running_is_fine(answer: crate::client::Answer) -> CriResult<()> {
    match answer {
        Ok(_) | Err(ShimError::NotFound(_) | ShimError::Gone) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn stop_signal(container: &Container) -> i32 {
    crate::stop_signal::number(container.config.stop_signal(), &container.record.stop_signal)
}

fn resolve_user(
    rootfs: &Path,
    context: &v1::LinuxContainerSecurityContext,
    image: &Image,
) -> Result<users::User, Refusal> {
    let is_named = context.run_as_user.is_some() || !context.run_as_username.is_empty();
    if let Some(gid) = context.run_as_group.as_ref().filter(|_| !is_named) {
        let why = format!("user group {:?} is specified without user", gid.value.to_string());
        return Err(Refusal::Invalid(why));
    }
    let who = match &context.run_as_user {
        Some(uid) => users::Who::Uid(uid.value),
        None if !context.run_as_username.is_empty() => users::Who::Text(&context.run_as_username),
        None => users::Who::Text(&image.config.user),
    };
    let wanted = users::Wanted {
        who,
        group: context.run_as_group.as_ref().map(|gid| gid.value),
        supplemental: &context.supplemental_groups,
        merge_image_groups: context.supplemental_groups_policy() == v1::SupplementalGroupsPolicy::Merge,
    };
    users::resolve(rootfs, &wanted)
}

fn log_path(sandbox: &Sandbox, config: &v1::ContainerConfig) -> Option<PathBuf> {
    let (dir, file) = (&sandbox.config.log_directory, &config.log_path);
    (!dir.is_empty() && !file.is_empty()).then(|| Path::new(dir).join(file))
}

/// What the annotations of [`cri::annotations`] say; without them the log is never rotated.
fn log_limits(annotations: &HashMap<String, String>) -> Result<Option<LogLimits>, Refusal> {
    let number = |name: &str| match annotations.get(name) {
        Some(text) => {
            let invalid = |_| Refusal::Invalid(format!("{name} must be a number"));
            text.parse::<u64>().map(Some).map_err(invalid)
        }
        None => Ok(None),
    };
    let files_max = number(cri::annotations::LOG_FILES_MAX)?;
    Ok(number(cri::annotations::LOG_FILE_BYTES_MAX)?.filter(|bytes| *bytes > 0).map(|file_bytes_max| {
        let files_max = files_max.and_then(|files| usize::try_from(files).ok()).unwrap_or(2);
        LogLimits { file_bytes_max, files_max }
    }))
}

/// The devices that are asked for, or all for a privileged container, and those that are named.
fn all_devices(
    config: &v1::ContainerConfig,
    is_privileged: bool,
    edits: &crate::cdi::Edits,
    user: &users::User,
) -> CriResult<Vec<HostDevice>> {
    let mut devices = devices(config, is_privileged)?;
    let named = edits.devices((user.uid, user.gid))?;
    devices.retain(|device| named.iter().all(|other| other.path != device.path));
    devices.extend(named);
    Ok(devices)
}

fn write_down(
    dir: &Path,
    spec: &serde_json::Value,
    plan: &ContainerPlan,
    asked: &v1::ContainerConfig,
    record: &ContainerRecord,
) -> io::Result<()> {
    layout::write_json(&dir.join(layout::SPEC), spec)?;
    layout::write_json(&dir.join(layout::CONTAINER_PLAN), plan)?;
    layout::write_whole(&dir.join("config.pb"), &asked.encode_to_vec())?;
    layout::write_json(&dir.join("container.json"), record)
}

/// The configuration with the sources of mounts as the users of the Pod see them, and their places as the kernel finds them.
fn mounted(
    dir: &Path,
    rootfs: &Path,
    users: Option<(sys::userns::Mapping, &Path)>,
    config: &v1::ContainerConfig,
    edits: &crate::cdi::Edits,
) -> CriResult<v1::ContainerConfig> {
    let mut mounted = config.clone();
    let has_options = |path: &str| edits.mount_options.contains_key(path);
    in_root::settle_parents(rootfs, &mut mounted, has_options).map_err(internal)?;
    if let Some((mapping, userns)) = users {
        crate::userns::mount_sources(dir, userns, mapping, &mut mounted).map_err(internal)?;
    }
    Ok(mounted)
}

/// It is no more privileged than its sandbox; what is mounted is there, crosses as it is to, and lands in the container.
/// Source: `buildLinuxSpec` of containerd.
fn check_spec(id: &str, rootfs: &Path, sandbox: &Sandbox, config: &v1::ContainerConfig) -> CriResult<()> {
    let refused = |why: &str| {
        CriError::Internal(format!("failed to generate container {id:?} spec: failed to generate {why}"))
    };
    let of_sandbox = sandbox.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    if oci::security_context(config).privileged && !of_sandbox.is_some_and(|context| context.privileged) {
        return Err(refused("spec opts: no privileged container allowed in sandbox"));
    }
    make_sources(config).map_err(internal)?;
    crate::propagation::check(config)
        .map_err(|refusal| refused(&format!("spec: {}", base::error_chain(&refusal))))?;
    Ok(in_root::check_mounts(rootfs, config)?)
}

/// Makes the folders that are mounted and are not there, as containerd does.
fn make_sources(config: &v1::ContainerConfig) -> Result<(), Refusal> {
    let missing = config.mounts.iter().map(|mount| Path::new(&mount.host_path));
    let mut missing = missing.filter(|path| path.is_absolute() && path.symlink_metadata().is_err());
    missing.try_for_each(|path| {
        std::fs::create_dir_all(path)
            .map_err(Refusal::step(format!("failed to mkdir {:?}", path.display().to_string())))
    })
}

/// Where the container's log goes; its folder is made.
fn make_log_path(sandbox: &Sandbox, config: &v1::ContainerConfig) -> io::Result<Option<PathBuf>> {
    let log_path = log_path(sandbox, config);
    if let Some(parent) = log_path.as_deref().and_then(Path::parent) {
        std::fs::create_dir_all(parent)?;
    }
    Ok(log_path)
}

/// What of an image is written down with a container of it.
fn record_of(image: &Image) -> ContainerRecord {
    ContainerRecord {
        image_id: image.id.clone(),
        image_name: image.tag_or_id(),
        image_digest: image.names.iter().find(|name| name.contains('@')).cloned(),
        stop_signal: image.config.stop_signal.clone(),
        ..ContainerRecord::default()
    }
}

/// Takes back a container that could not be made.
fn discard(dir: &Path) {
    if let Err(error) = sys::tree::remove(dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "cannot take back a container that could not be made");
    }
}
