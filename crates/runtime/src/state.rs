//! The state of the runtime: sandboxes, containers, images, and where they are.
//!
//! Memory mirrors the data directory; [`crate::recovery`] reads it back. One lock, never held across a wait.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use cri::{CriError, v1};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sys::netns::NetNsFolder;
use sys::process::PidFd;
use tokio::sync::{broadcast, watch};

use crate::client::ShimClient;
use crate::config::Config;
use crate::handlers::Handlers;
use crate::images::pull::{Puller, PullerConfig};
use crate::images::{ImageError, ImageStore};
use crate::shim::layout::{Exited, Started};
use crate::zygote::Zygote;

/// Events that a slow listener may be behind.
const EVENTS_MAX: usize = 4096;

/// The reason why a runtime cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be used.
    #[error("cannot use the runtime's directory {}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The image store cannot be used.
    #[error("cannot open the image store")]
    Images(#[from] ImageError),
    /// The settings of registries are wrong.
    #[error("cannot use the settings of registries")]
    Registries(#[from] registry::Error),
    /// The host lacks something.
    #[error("cannot run containers on this host")]
    Host(#[from] sys::Error),
}

/// The built-in container runtime. Cloning shares it.
#[derive(Clone)]
pub struct Runtime(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) images: Arc<ImageStore>,
    pub(crate) puller: Puller,
    pub(crate) handlers: Handlers,
    pub(crate) cgroups: sys::cgroup::Cgroups,
    pub(crate) capabilities: Vec<String>,
    pub(crate) tables: Mutex<Tables>,
    pub(crate) events: broadcast::Sender<v1::ContainerEventResponse>,
    pub(crate) weak: Weak<Inner>,
    pub(crate) boot_id: String,
    pub(crate) zygote: Zygote,
    pub(crate) netns_names: NetNsFolder,
}

/// What has a name, and the name.
pub(crate) type Name = (&'static str, String);

#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    pub(crate) containers: BTreeMap<String, Container>,
    /// By id of a container that runs.
    pub(crate) held: BTreeMap<String, Held>,
    /// Sandboxes whose shim is being replaced.
    pub(crate) recovering: BTreeSet<String>,
    /// By name, the id of what is not in the tables above yet.
    pub(crate) being_made: BTreeMap<Name, String>,
}

/// What the runtime holds of a container that runs.
pub(crate) struct Held {
    pub(crate) process: Option<PidFd>,
    pub(crate) input: Option<OwnedFd>,
}

/// What is written down of a sandbox beside its configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) created_at: i64,
    pub(crate) ips: Vec<String>,
    pub(crate) netns: Option<PathBuf>,
    /// The name that its network namespace is shown to others under; `None` also of one that an earlier knarr made.
    #[serde(default)]
    pub(crate) netns_name: Option<String>,
    pub(crate) handler: String,
    pub(crate) is_stopped: bool,
    /// False while it is being made: a crash then leaves something to take back.
    pub(crate) is_made: bool,
    /// Of the boot that it was made in: no process or namespace of it is left after another.
    #[serde(default)]
    pub(crate) boot_id: String,
}

#[derive(Clone)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) config: v1::PodSandboxConfig,
    pub(crate) record: SandboxRecord,
    /// `None` once it is stopped or lost.
    pub(crate) shim: Option<ShimClient>,
    /// It was found to be no longer connected as it was left.
    pub(crate) is_disconnected: bool,
}

impl Sandbox {
    pub(crate) fn metadata(&self) -> v1::PodSandboxMetadata {
        self.config.metadata.clone().unwrap_or_default()
    }

    pub(crate) fn namespaces(&self) -> v1::NamespaceOption {
        let context = self.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        context.and_then(|context| context.namespace_options.clone()).unwrap_or_default()
    }
}

/// What is written down of a container beside its configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) created_at: i64,
    pub(crate) image_id: String,
    pub(crate) image_name: String,
    /// `repository@digest`, of an image that came from a registry.
    #[serde(default)]
    pub(crate) image_digest: Option<String>,
    /// Of the image, and of images that are its volumes.
    pub(crate) layers: Vec<String>,
    pub(crate) stop_signal: String,
    pub(crate) cgroup: String,
    pub(crate) log_path: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

impl ContainerRecord {
    /// The image's digest in its registry, else its id: as containerd has it.
    pub(crate) fn image_ref(&self) -> String {
        self.image_digest.clone().unwrap_or_else(|| self.image_id.clone())
    }
}

#[derive(Clone)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    pub(crate) config: v1::ContainerConfig,
    pub(crate) record: ContainerRecord,
    pub(crate) status: watch::Sender<Status>,
}

/// Where a container is in its life.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Status {
    /// Made, never started.
    Created,
    /// Its first process runs.
    Running(Started),
    /// It ended, or could not be started (`started_at` 0).
    Exited { started_at: i64, exited: Exited },
}

impl Status {
    pub(crate) fn cri(&self) -> v1::ContainerState {
        match self {
            Self::Created => v1::ContainerState::ContainerCreated,
            Self::Running(..) => v1::ContainerState::ContainerRunning,
            Self::Exited { .. } => v1::ContainerState::ContainerExited,
        }
    }
}

impl Inner {
    pub(crate) fn new(
        config: Config,
        images: Arc<ImageStore>,
        cgroups: sys::cgroup::Cgroups,
        capabilities: Vec<String>,
    ) -> Arc<Self> {
        let puller = PullerConfig {
            registries: config.registries.clone(),
            tasks: config.tasks.clone(),
            clock: config.clock.clone(),
            random: config.random.clone(),
        };
        let netns_names = NetNsFolder::of_host(netns_prefix(&config.cgroup_root));
        Arc::new_cyclic(|weak| Self {
            handlers: Handlers::new(config.handlers.clone()),
            config,
            puller: Puller::new(Arc::clone(&images), puller),
            images,
            cgroups,
            capabilities,
            tables: Mutex::default(),
            events: broadcast::Sender::new(EVENTS_MAX),
            weak: weak.clone(),
            zygote: Zygote::default(),
            netns_names,
            boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        })
    }

    pub(crate) fn sandbox_dir(&self, id: &str) -> PathBuf {
        sandboxes_dir(&self.config.data_dir).join(id)
    }

    pub(crate) fn container_dir(&self, container: &Container) -> PathBuf {
        crate::shim::layout::container_dir(&self.sandbox_dir(&container.sandbox), &container.id)
    }

    /// 64 hexadecimal digits, as other runtimes have them.
    pub(crate) fn new_id(&self) -> String {
        let uuids = [self.config.random.uuid(), self.config.random.uuid()];
        uuids.concat().replace('-', "")
    }

    pub(crate) fn now(&self) -> i64 {
        i64::try_from(self.config.clock.now().as_nanosecond()).unwrap_or(i64::MAX)
    }

    /// The sandbox by its id or an unambiguous beginning of it.
    pub(crate) fn sandbox(&self, id: &str) -> Result<Sandbox, CriError> {
        let tables = self.tables.lock();
        let found = by_prefix(&tables.sandboxes, id).cloned();
        found.ok_or_else(|| CriError::NotFound(format!("pod sandbox {id} is not found")))
    }

    /// The container by its id or an unambiguous beginning of it.
    pub(crate) fn container(&self, id: &str) -> Result<Container, CriError> {
        let tables = self.tables.lock();
        let found = by_prefix(&tables.containers, id).cloned();
        found.ok_or_else(|| CriError::NotFound(format!("container {id} is not found")))
    }

    /// The shim of a container's sandbox.
    pub(crate) fn shim_of(&self, container: &Container) -> Result<ShimClient, CriError> {
        let tables = self.tables.lock();
        let shim = tables.sandboxes.get(&container.sandbox).and_then(|sandbox| sandbox.shim.clone());
        shim.ok_or_else(|| {
            CriError::FailedPrecondition(format!("pod sandbox {} is not ready", container.sandbox))
        })
    }

    /// Where others find a sandbox's network namespace.
    pub(crate) fn shown_netns(&self, sandbox: &Sandbox) -> PathBuf {
        let name = sandbox.record.netns_name.as_ref();
        name.map_or_else(
            || self.sandbox_dir(&sandbox.id).join("netns"),
            |name| self.netns_names.path_of(name),
        )
    }

    /// Layers that containers are made of.
    pub(crate) fn layers_in_use(&self) -> BTreeSet<String> {
        let tables = self.tables.lock();
        tables.containers.values().flat_map(|container| container.record.layers.iter().cloned()).collect()
    }

    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Container> {
        let tables = self.tables.lock();
        tables.containers.values().filter(|container| container.sandbox == sandbox).cloned().collect()
    }
}

fn by_prefix<'a, T>(table: &'a BTreeMap<String, T>, id: &str) -> Option<&'a T> {
    if let Some(found) = table.get(id) {
        return Some(found);
    }
    let mut matching =
        table.range(id.to_owned()..).take_while(|(known, _)| !id.is_empty() && known.starts_with(id));
    let found = matching.next()?.1;
    matching.next().is_none().then_some(found)
}

/// What names of network namespaces begin with that belong to a runtime: `cni-`, as those of other runtimes.
pub(crate) fn netns_prefix(cgroup_root: &str) -> String {
    format!("cni-{}-", cgroup_root.trim_matches('/').replace('/', "-"))
}

pub(crate) fn sandboxes_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("sandboxes")
}

pub(crate) fn internal(error: impl std::error::Error) -> CriError {
    CriError::Internal(base::error_chain(&error))
}

/// Runs what blocks on a thread for it.
pub(crate) async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T, CriError> + Send + 'static,
) -> Result<T, CriError> {
    tokio::task::spawn_blocking(f).await.unwrap_or_else(|error| Err(internal(error)))
}
