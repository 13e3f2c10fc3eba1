//! The kubelet: makes what the API says about this node's Pods true, and says back what is.
//!
//! An ordinary client of the API, and of a container runtime through CRI. It knows no particular runtime. After a restart
//! it reads back what is from the runtime and the API, and from files below its folder what these do not tell: what Pods
//! were given (processors, memory, devices, claims), and which volumes are mounted where.
//!
//! The core is pure: [`pod::next_actions`] decides, [`pod::status`] describes; `worker` is the one task per Pod that
//! carries decisions out. Object changes, runtime events, probe results and due times wake a worker; what is looked at
//! again and again stands in ARCHITECTURE.md, "Invariants".

pub mod config;
pub mod cpu;
pub mod eviction;
pub mod image_gc;
pub mod memory;
pub mod pod;
pub mod topology;

mod allocations;
mod certificates;
mod cgroups;
mod checkpoint;
mod cleanup;
mod connections;
mod context;
mod csi;
mod device_plugins;
mod dra;
mod endings;
mod handlers;
mod inbox;
mod log_rotation;
mod metrics;
mod mirror;
mod node;
mod node_shutdown;
mod node_state;
mod objects;
mod pem;
mod plugins;
mod pod_resources;
mod pods;
mod probes;
mod pull;
mod runtime_class;
mod runtime_features;
mod server;
mod static_pods;
mod stats;
mod strays;
mod unified;
mod userns;
mod volumes;
mod worker;

use std::path::Path;
use std::sync::Arc;

use base::{Clock, Random, Tasks};
use controller::record::Recorder;
use controller::trace::Reporter;
use controller::{Informers, Scope};
use cri::{CriError, ImageService, RuntimeService, v1};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub use checkpoint::Unusable;
pub use config::{Config, ConfigurationError, ServerConfig, Sources};
pub use connections::Tracked;
use context::Context;
use cpu::CpuManager;
use memory::MemoryManager;
use metrics::KubeletMetrics;
pub use node::{NETWORK_NOT_READY, taints};
pub use server::cri_streams::StreamingServer;
pub use volumes::persistent::log_out;

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
    /// What is reserved cannot be kept so, in upstream's words.
    #[error("{0}")]
    Reserved(String),
    /// Who has which CPUs or memory alone is not known.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Unusable),
    /// The machine is too large for a topology policy.
    #[error("unsupported on machines with more than {most} NUMA Nodes, this one has {count}")]
    NumaNodes {
        /// How many it may have.
        most: usize,
        /// How many it has.
        count: usize,
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
    let started_at = parts.clock.now();
    make_folders(&config)?;
    let listeners = match &mut config.server {
        Some(server) => listen(server).await?,
        None => Vec::new(),
    };
    let request = v1::VersionRequest { version: "v1".into() };
    let version = parts.runtime.version(request).await.map_err(Error::Runtime)?;
    let machine = Arc::new(node::read_machine(&config, &version));
    let allocatable = node::allocatable(&config, &machine);
    let of = |name: &str| allocatable.get(name).copied().unwrap_or_default();
    let available = (of("cpu"), of("memory"));
    let (limited, unified) = enforce(&config, &machine).await?;
    let (layout, cpus, memory) = aligned(&config, &machine).await?;
    check_numa_nodes(&config, layout.nodes().len())?;
    let metrics = Arc::new(KubeletMetrics::new(&config.node_name));
    let context = Arc::new(Context {
        services: parts.informers.informer::<Service>(),
        recorder: Recorder::start_on(&parts.informers, "kubelet", &config.node_name),
        facts: pod::status::NodeFacts {
            host_ips: config.node_ips.clone(),
            runtime_name: version.runtime_name,
        },
        node: parts.informers.scoped::<Node>(Scope {
            field_selector: Some(format!("metadata.name={}", config.node_name)),
            ..Scope::default()
        }),
        node_state: node_state::NodeState::default(),
        initial_node: node::initial(&config, &machine),
        cpus,
        memory,
        numa_nodes: layout.nodes(),
        numa_distances: layout.distances.clone(),
        dra: open_dra(&config, &metrics).await,
        devices: device_plugins::DevicePlugins::open(&config.root_dir, layout.nodes(), metrics.clone())
            .map_err(directory_error(&config.root_dir.join("device-plugins")))?,
        room: allocatable,
        looks: stats::Looks::default(),
        certificates: certificates::All::default(),
        metrics,
        allocations: allocations::Allocations::new(available),
        memory_capacity: i64::try_from(machine.memory).unwrap_or(i64::MAX),
        unified,
        page_sizes: machine.huge_pages.iter().map(|(size, _)| *size).collect(),
        csi: csi::Drivers::with_in_use(volumes::persistent::in_use(&config.root_dir)),
        limit: Arc::new(Semaphore::new(context::CRI_CALLS_MAX)),
        image_requests: image_gc::collector::Requests::default(),
        objects: objects::Registers::default(),
        features: runtime_features::RuntimeFeatures::default(),
        pulls: pull::Pulls::new(&config.root_dir, &config.image_pulls),
        config,
        client: parts.client,
        informers: parts.informers,
        runtime: parts.runtime,
        images: parts.images,
        tasks: parts.tasks,
        clock: parts.clock,
        started_at,
        random: parts.random,
        reporter: parts.reporter,
    });
    image_gc::collector::recover(&context).await;
    start(&context, &machine, listeners);
    if context.config.cgroups_per_qos {
        context.tasks.spawn("limits of all pods", cgroups::enforce(context.clone(), machine, limited));
        context.tasks.spawn("weight of burstable pods", cgroups::weigh_burstable(context.clone()));
    }
    context.tasks.stopping().await;
    Ok(())
}

fn make_folders(config: &Config) -> Result<(), Error> {
    let (pods, plugins) = (config.root_dir.join("pods"), config.root_dir.join("plugins_registry"));
    [pods, plugins, config.pod_logs_dir.clone()]
        .into_iter()
        .try_for_each(|path| std::fs::create_dir_all(&path).map_err(directory_error(&path)))
}

fn directory_error(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.display().to_string();
    |source| Error::Directory { path, source }
}

fn check_numa_nodes(config: &Config, count: usize) -> Result<(), Error> {
    let most = config.alignment.nodes_max.unwrap_or(topology::NODES_MAX);
    match config.alignment.policy {
        topology::Policy::None => Ok(()),
        _ if count > most => Err(Error::NumaNodes { count, most }),
        _ => Ok(()),
    }
}

/// Begins everything that runs as long as the kubelet does.
fn start(context: &Arc<Context>, machine: &Arc<node::Machine>, listeners: Vec<TcpListener>) {
    dra::start(context);
    context.tasks.spawn("plugins", plugins::run(context.clone()));
    context.tasks.spawn("node status", node::run(context.clone(), machine.clone()));
    let pods = pods::informer(context);
    context.tasks.spawn("volume upkeep", csi::upkeep::run(context.clone(), pods.clone()));
    let statics = static_pods::start(context);
    let inboxes = pods::Inboxes::default();
    context
        .tasks
        .spawn("mirror pods", mirror::run(context.clone(), pods.clone(), statics.clone(), inboxes.clone()));
    if let Some(server) = context.config.server.clone() {
        let parts = (machine.clone(), inboxes.clone());
        let handler = server::Server::new(context.clone(), pods.clone(), statics.clone(), parts);
        server::start(&Arc::new(handler), listeners, &server);
    }
    context.tasks.spawn("image garbage collection", image_gc::collector::run(context.clone(), pods.clone()));
    context.tasks.spawn("log rotation", log_rotation::run(context.clone()));
    context.tasks.spawn("device plugins", device_plugins::run(context.clone()));
    context.tasks.spawn("pod resources", pod_resources::run(context.clone()));
    context.tasks.spawn("eviction", eviction::run(context.clone(), machine.clone(), inboxes.clone()));
    context.tasks.spawn("node shutdown", node_shutdown::run(context.clone(), inboxes.clone()));
    context.tasks.spawn("pods", pods::run(context.clone(), pods, statics, inboxes));
}

/// What drivers had prepared for Pods when the last kubelet ended.
async fn open_dra(config: &Config, metrics: &Arc<KubeletMetrics>) -> dra::Dra {
    let (folder, own) = (config.root_dir.clone(), metrics.clone());
    let opened = tokio::task::spawn_blocking(move || dra::Dra::open(&folder, own)).await;
    opened.unwrap_or_else(|_| dra::Dra::open(&config.root_dir, metrics.clone()))
}

/// Holds cgroups below what they may have, and refuses what cannot be kept. Gives how it went with those of all Pods, and
/// what containers are told.
async fn enforce(
    config: &Config,
    machine: &Arc<node::Machine>,
) -> Result<(Result<(), String>, unified::Unified), Error> {
    let (own, host) = (config.clone(), machine.clone());
    let done = tokio::task::spawn_blocking(move || {
        let limited = if own.cgroups_per_qos { cgroups::limit_all(&own, &host) } else { Ok(()) };
        unified::Unified::of_host(&own, &host).map(|unified| (limited, unified))
    });
    let done = done.await.unwrap_or_else(|error| Err(error.to_string())).map_err(Error::Reserved)?;
    if config.enforced.kube.is_some() || config.enforced.system.is_some() {
        let config = config.clone();
        let limited = tokio::task::spawn_blocking(move || cgroups::limit_reserved(&config)).await;
        limited.unwrap_or_else(|error| Err(error.to_string())).map_err(Error::Reserved)?;
    }
    if let Some(reserved) = &config.reserved_memory {
        memory::check_reserved(reserved, node::kept_memory(config, machine)).map_err(Error::Reserved)?;
    }
    Ok(done)
}

type Aligned = (Arc<topology::machine::Layout>, Option<CpuManager>, Option<MemoryManager>);

/// The machine's NUMA nodes, and who has which CPUs and memory alone, if that is wanted.
async fn aligned(config: &Config, machine: &node::Machine) -> Result<Aligned, checkpoint::Unusable> {
    let (folder, policy) = (config.root_dir.clone(), config.exclusive_cpus.clone());
    let (reserved, total) = (config.reserved_memory.clone(), machine.memory);
    let opened = tokio::task::spawn_blocking(move || {
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        let layout = Arc::new(topology::machine::Layout::read(std::path::Path::new("/sys"), total));
        let cpus = match policy {
            Some(policy) => Some(CpuManager::open(&folder, layout.clone(), policy)?),
            None => CpuManager::check_none(&folder).map(|()| None)?,
        };
        let memory = match reserved {
            Some(reserved) => Some(MemoryManager::open(&folder, layout.clone(), reserved)?),
            None => MemoryManager::check_none(&folder).map(|()| None)?,
        };
        Ok((layout, cpus, memory))
    });
    opened.await.unwrap_or_else(|_| Ok(Aligned::default()))
}

/// Listens at all addresses, and notes the port in the configuration, so that the Node tells it.
async fn listen(server: &mut ServerConfig) -> Result<Vec<TcpListener>, Error> {
    let mut listeners = Vec::with_capacity(server.ips.len());
    for ip in &server.ips {
        let address = std::net::SocketAddr::new(*ip, server.port);
        let bound = async {
            let listener = TcpListener::bind(address).await?;
            server.port = listener.local_addr()?.port();
            Ok(listener)
        };
        listeners.push(bound.await.map_err(|source| Error::Listen { address, source })?);
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests;
