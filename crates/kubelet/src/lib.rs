//! The kubelet: makes what the API says about this node's Pods true, and says back what is.
//!
//! An ordinary client of the API, and of a container runtime through CRI. It knows no particular runtime and
//! keeps no state of its own on disk: after a restart everything is read back from the runtime and the API.
//!
//! The core is pure: [`next_actions`] decides, [`status`] describes; `worker` is the one task per Pod that
//! carries decisions out. Nothing polls: object changes, runtime events, probe results and due times wake a
//! worker.

pub mod config;
pub mod container_config;
pub mod cpu;
pub mod crash_backoff;
pub mod env;
pub mod eviction;
pub mod files;
pub mod image_gc;
pub mod labels;
pub mod next_actions;
pub mod qos;
pub mod resize;
pub mod snapshot;
pub mod status;

mod admission;
mod allocations;
mod cgroups;
mod cleanup;
mod context;
mod csi;
mod device_plugins;
mod folder_watch;
mod handlers;
mod inbox;
mod metrics;
mod mirror;
mod node;
mod node_state;
mod objects;
mod plugins;
mod pods;
mod probes;
mod pull;
mod quantity;
mod runtime_class;
mod server;
mod static_pods;
mod stats;
mod userns;
mod volumes;
mod worker;

use std::sync::Arc;

use base::{Clock, Random, Tasks};
use controller::record::Recorder;
use controller::trace::Reporter;
use controller::{Informers, Scope};
use cri::{CriError, ImageService, RuntimeService, v1};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub use config::{Config, ConfigurationError, ServerConfig, Sources};
use context::Context;
pub use server::cri_streams::StreamingServer;

/// Why a kubelet could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The container runtime does not answer.
    #[error("ask the container runtime for its version")]
    Runtime(#[source] CriError),
    /// A directory could not be made.
    #[error("make the directory {path}")]
    Directory {
        /// Which.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The server's address cannot be had.
    #[error("listen on {address}")]
    Listen {
        /// Which.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// What a kubelet is made of beside its configuration.
pub struct Parts {
    /// A client that is `system:node:<name>`.
    pub client: kube::Client,
    /// Informers over that client.
    pub informers: Informers,
    /// The container runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// Its images.
    pub images: Arc<dyn ImageService>,
    /// Everything the kubelet spawns stops with this group.
    pub tasks: Tasks,
    /// Wall-clock time.
    pub clock: Clock,
    /// Jitter.
    pub random: Random,
    /// Where spans go.
    pub reporter: Reporter,
}

/// Runs a kubelet until its tasks are told to stop.
///
/// # Errors
/// The runtime does not answer, or a directory cannot be made.
pub async fn run(mut config: Config, parts: Parts) -> Result<(), Error> {
    let (pods, plugins) = (config.root_dir.join("pods"), config.root_dir.join("plugins_registry"));
    for path in [pods, plugins, config.pod_logs_dir.clone()] {
        std::fs::create_dir_all(&path)
            .map_err(|source| Error::Directory { path: path.display().to_string(), source })?;
    }
    let listener = match &mut config.server {
        Some(server) => Some(listen(server).await?),
        None => None,
    };
    let request = v1::VersionRequest { version: "v1".into() };
    let version = parts.runtime.version(request).await.map_err(Error::Runtime)?;
    let machine = Arc::new(node::read_machine(&config, &version));
    let allocatable = node::allocatable(&config, &machine);
    let of = |name: &str| allocatable.get(name).copied().unwrap_or_default();
    let (milli_cpus, memory) = (of("cpu"), of("memory"));
    if config.enforces_allocatable {
        let (config, machine) = (config.clone(), machine.clone());
        let limited = tokio::task::spawn_blocking(move || cgroups::limit_all(&config, &machine)).await;
        if let Err(error) = limited {
            tracing::warn!(%error, "the limits of all pods together were not set");
        }
    }
    let context = Arc::new(Context {
        services: parts.informers.informer::<Service>(),
        recorder: Recorder::start(&parts.informers, "kubelet"),
        facts: status::NodeFacts { host_ips: config.node_ips.clone(), runtime_name: version.runtime_name },
        node: parts.informers.scoped::<Node>(Scope {
            field_selector: Some(format!("metadata.name={}", config.node_name)),
            ..Scope::default()
        }),
        node_state: node_state::NodeState::default(),
        initial_node: node::initial(&config, &machine),
        cpus: exclusive_cpus(&config).await,
        devices: device_plugins::DevicePlugins::open(&config.root_dir).map_err(|source| {
            Error::Directory { path: config.root_dir.join("device-plugins").display().to_string(), source }
        })?,
        allocatable: (milli_cpus, memory),
        room: allocatable,
        looks: stats::Looks::default(),
        metrics: metrics::KubeletMetrics::new(&config.node_name),
        allocations: allocations::Allocations::new((milli_cpus, memory)),
        memory_capacity: i64::try_from(machine.memory).unwrap_or(i64::MAX),
        csi: csi::Drivers::with_in_use(volumes::persistent::in_use(&config.root_dir)),
        limit: Arc::new(Semaphore::new(context::CRI_CALLS_MAX)),
        pulls: pull::Pulls::new(&config.root_dir, config.max_parallel_image_pulls),
        config,
        client: parts.client,
        informers: parts.informers,
        runtime: parts.runtime,
        images: parts.images,
        tasks: parts.tasks,
        clock: parts.clock,
        random: parts.random,
        reporter: parts.reporter,
    });
    image_gc::collector::recover(&context).await;
    start(&context, &machine, listener);
    context.tasks.stopping().await;
    Ok(())
}

/// Begins everything that runs as long as the kubelet does.
fn start(context: &Arc<Context>, machine: &Arc<node::Machine>, listener: Option<TcpListener>) {
    context.tasks.spawn("plugins", plugins::run(context.clone()));
    context.tasks.spawn("node status", node::run(context.clone(), machine.clone()));
    let pods = pods::informer(context);
    let statics = static_pods::start(context);
    let inboxes = pods::Inboxes::default();
    context
        .tasks
        .spawn("mirror pods", mirror::run(context.clone(), pods.clone(), statics.clone(), inboxes.clone()));
    if let (Some(server), Some(listener)) = (context.config.server.clone(), listener) {
        let handler = server::Server::new(context.clone(), pods.clone(), statics.clone(), machine);
        let handler = Arc::new(handler);
        context.tasks.spawn("kubelet server", server::serve(handler, listener, server));
    }
    context.tasks.spawn("image garbage collection", image_gc::collector::run(context.clone(), pods.clone()));
    context.tasks.spawn("device plugins", device_plugins::run(context.clone()));
    context.tasks.spawn("eviction", eviction::run(context.clone(), machine.clone(), inboxes.clone()));
    context.tasks.spawn("pods", pods::run(context.clone(), pods, statics, inboxes));
}

/// Who has which CPUs alone, if that is wanted.
async fn exclusive_cpus(config: &Config) -> Option<cpu::CpuManager> {
    let reserved = config.exclusive_cpus.clone()?;
    let folder = config.root_dir.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let all = online.parse().unwrap_or_else(|_| cpu::CpuSet::first(1));
        cpu::CpuManager::open(&folder, all, reserved)
    });
    opened.await.ok()
}

/// Listens, and notes the port in the configuration, so that the Node tells it.
async fn listen(server: &mut ServerConfig) -> Result<TcpListener, Error> {
    let address = server.listen;
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        server.listen = listener.local_addr()?;
        Ok(listener)
    };
    bound.await.map_err(|source| Error::Listen { address, source })
}

#[cfg(test)]
mod tests;
