//! The kubelet: makes what the API says about this node's Pods true, and says back what is.
//!
//! An ordinary client of the API, and of a container runtime through CRI. It knows no particular runtime. After a restart
//! it reads back what is from the runtime and the API, and from files below its folder what these do not tell: what Pods
//! were given (processors, memory, devices, claims), and which volumes are mounted where.
//!
//! The core is pure: [`pod::next_actions`] decides, [`pod::status`] describes; `kubelet::worker` is the one task per Pod that
//! carries decisions out. Object changes, runtime events, probe results and due times wake a worker; what is looked at
//! again and again stands in ARCHITECTURE.md, "Invariants".

pub mod config;
pub mod eviction;
pub mod pod;

mod checkpoint;
mod connections;
mod context;
mod images;
mod inbox;
mod kubelet;
mod log_rotation;
mod machine;
mod metrics;
mod node;
mod node_resources;
mod plugins;
mod server;
mod stats;
mod volumes;

use std::path::Path;
use std::sync::Arc;

use base::{Clock, Random, Tasks};
use controller::trace::Reporter;
use controller::{Informers, Scope};
use cri::{CriError, ImageService, RuntimeService, v1};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub use checkpoint::Unusable;
pub use config::{Config, ConfigurationError, ServerConfig, Sources};
pub use connections::Tracked;
use context::Context;
use inbox::Inboxes;
use kubelet::{Kubelet, mirror, pods, static_pods};
use machine::Machine;
use machine::layout::Layout;
use metrics::KubeletMetrics;
pub use node::{NETWORK_NOT_READY, taints};
use node_resources::allocations::Allocations;
use node_resources::cgroups::CgroupError;
use node_resources::cpu::CpuManager;
use node_resources::device_plugins::DevicePlugins;
use node_resources::memory::MemoryManager;
use node_resources::unified::Unified;
use node_resources::{NodeResources, cgroups, device_plugins, dra, memory, pod_resources};
use pod::status::NodeFacts;
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
    let machine = Arc::new(machine::read_machine(&config, &version));
    let (limited, unified) = enforce(&config, &machine).await?;
    let (layout, cpus, memory) = aligned(&config, &machine).await?;
    check_numa_nodes(&config, layout.nodes().len())?;
    let resources = Given { layout, cpus, memory, unified };
    let context = Arc::new(context(config, parts, &machine, version.runtime_name, started_at));
    let kubelet = Arc::new(kubelet(context, &machine, resources).await?);
    images::image_gc::collector::recover(&kubelet.image_store).await;
    start(&kubelet, &machine, listeners);
    if kubelet.config.cgroups_per_qos {
        let resources = &kubelet.resources;
        kubelet.tasks.spawn("limits of all pods", cgroups::enforce(resources.clone(), machine, limited));
        kubelet.tasks.spawn("weight of burstable pods", cgroups::weigh_burstable(resources.clone()));
    }
    kubelet.tasks.stopping().await;
    Ok(())
}

fn context(
    config: Config,
    parts: Parts,
    machine: &Machine,
    runtime_name: String,
    started_at: Timestamp,
) -> Context {
    Context {
        services: parts.informers.informer::<Service>(),
        recorder: parts.informers.recorder_on("kubelet", &config.node_name),
        facts: NodeFacts { host_ips: config.node_ips.clone(), runtime_name },
        node: parts.informers.scoped::<Node>(Scope {
            field_selector: Some(format!("metadata.name={}", config.node_name)),
            ..Scope::default()
        }),
        node_state: context::node_state::NodeState::default(),
        initial_node: node::initial(&config, machine),
        allocatable: node::allocatable(&config, machine),
        metrics: Arc::new(KubeletMetrics::new(&config.node_name)),
        limit: Arc::new(Semaphore::new(context::CRI_CALLS_MAX)),
        features: context::runtime_features::RuntimeFeatures::default(),
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
    }
}

/// What was taken up of what an earlier kubelet had given away.
struct Given {
    layout: Arc<Layout>,
    cpus: Option<CpuManager>,
    memory: Option<MemoryManager>,
    unified: Unified,
}

async fn kubelet(context: Arc<Context>, machine: &Machine, given: Given) -> Result<Kubelet, Error> {
    let Given { layout, cpus, memory, unified } = given;
    let (root_dir, metrics) = (&context.config.root_dir, context.metrics.clone());
    let allocatable = |name: &str| context.allocatable.get(name).copied().unwrap_or_default();
    let resources = NodeResources {
        cpus,
        memory,
        dra: open_dra(&context.config, &metrics).await,
        devices: DevicePlugins::open(root_dir, layout.nodes(), metrics)
            .map_err(directory_error(&root_dir.join("device-plugins")))?,
        allocations: Allocations::new((allocatable("cpu"), allocatable("memory"))),
        memory_capacity: i64::try_from(machine.memory).unwrap_or(i64::MAX),
        unified,
        layout,
        page_sizes: machine.huge_pages.iter().map(|(size, _)| *size).collect(),
        context: context.clone(),
    };
    let volumes = volumes::Volumes {
        csi: volumes::csi::Drivers::with_in_use(volumes::persistent::in_use(root_dir)),
        objects: volumes::objects::Registers::default(),
        certificates: volumes::certificates::All::default(),
        context: context.clone(),
    };
    let image_store = images::Images {
        image_requests: images::image_gc::collector::Requests::default(),
        pulls: images::pull::Pulls::new(root_dir, &context.config.image_pulls),
        context: context.clone(),
    };
    Ok(Kubelet {
        context,
        resources: Arc::new(resources),
        volumes: Arc::new(volumes),
        image_store: Arc::new(image_store),
        looks: stats::Looks::default(),
    })
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
    let most = config.alignment.nodes_max.unwrap_or(config::alignment::NODES_MAX);
    match config.alignment.policy {
        config::alignment::Policy::None => Ok(()),
        _ if count > most => Err(Error::NumaNodes { count, most }),
        _ => Ok(()),
    }
}

/// Begins everything that runs as long as the kubelet does.
fn start(kubelet: &Arc<Kubelet>, machine: &Arc<Machine>, listeners: Vec<TcpListener>) {
    let (tasks, context, resources) = (&kubelet.tasks, &kubelet.context, &kubelet.resources);
    dra::start(resources);
    tasks.spawn("plugins", plugins::run(kubelet.clone()));
    tasks.spawn("node status", node::run(resources.clone(), machine.clone()));
    let pods = pods::informer(context);
    tasks.spawn("volume upkeep", volumes::upkeep::run(kubelet.volumes.clone(), pods.clone()));
    let statics = static_pods::start(context);
    let inboxes = Inboxes::default();
    let mirrors = mirror::run(context.clone(), pods.clone(), statics.clone(), inboxes.clone());
    tasks.spawn("mirror pods", mirrors);
    if let Some(server) = context.config.server.clone() {
        let parts = (machine.clone(), inboxes.clone());
        let handler = server::Server::new(kubelet.clone(), pods.clone(), statics.clone(), parts);
        server::start(&Arc::new(handler), listeners, &server);
    }
    let collector = images::image_gc::collector::run(kubelet.image_store.clone(), pods.clone());
    tasks.spawn("image garbage collection", collector);
    tasks.spawn("log rotation", log_rotation::run(context.clone()));
    tasks.spawn("device plugins", device_plugins::run(resources.clone()));
    tasks.spawn("pod resources", pod_resources::run(resources.clone()));
    tasks.spawn("eviction", eviction::run(kubelet.clone(), machine.clone(), inboxes.clone()));
    tasks.spawn("node shutdown", node::shutdown::run(resources.clone(), inboxes.clone()));
    tasks.spawn("pods", pods::run(kubelet.clone(), pods, statics, inboxes));
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
    machine: &Arc<Machine>,
) -> Result<(Result<(), CgroupError>, Unified), Error> {
    let (own, host) = (config.clone(), machine.clone());
    let done = tokio::task::spawn_blocking(move || {
        let limited = if own.cgroups_per_qos { cgroups::limit_all(&own, &host) } else { Ok(()) };
        Unified::of_host(&own, &host).map(|unified| (limited, unified))
    });
    let reserved = |why: &dyn std::fmt::Display| Error::Reserved(why.to_string());
    let done = done.await.map_err(|error| reserved(&error))?.map_err(|error| reserved(&error))?;
    if config.enforced.kube.is_some() || config.enforced.system.is_some() {
        let config = config.clone();
        let limited = tokio::task::spawn_blocking(move || cgroups::limit_reserved(&config)).await;
        limited.map_err(|error| reserved(&error))?.map_err(|error| reserved(&error))?;
    }
    if let Some(kept) = &config.reserved_memory {
        memory::check_reserved(kept, node::kept_memory(config, machine)).map_err(|error| reserved(&error))?;
    }
    Ok(done)
}

type Aligned = (Arc<Layout>, Option<CpuManager>, Option<MemoryManager>);

/// The machine's NUMA nodes, and who has which CPUs and memory alone, if that is wanted.
async fn aligned(config: &Config, machine: &Machine) -> Result<Aligned, checkpoint::Unusable> {
    let (folder, policy) = (config.root_dir.clone(), config.exclusive_cpus.clone());
    let (reserved, total) = (config.reserved_memory.clone(), machine.memory);
    let opened = tokio::task::spawn_blocking(move || {
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        let layout = Arc::new(Layout::read(std::path::Path::new("/sys"), total));
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
