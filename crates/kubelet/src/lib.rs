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
pub mod crash_backoff;
pub mod env;
pub mod files;
pub mod image_gc;
pub mod labels;
pub mod next_actions;
pub mod qos;
pub mod resize;
pub mod snapshot;
pub mod status;

mod allocations;
mod cleanup;
mod context;
mod csi;
mod handlers;
mod inbox;
mod node;
mod objects;
mod plugins;
mod pods;
mod probes;
mod pull;
mod quantity;
mod runtime_class;
mod server;
mod userns;
mod volumes;
mod worker;

use std::sync::Arc;

use base::{Clock, Random, Tasks};
use controller::Informers;
use controller::record::Recorder;
use controller::trace::Reporter;
use cri::{CriError, ImageService, RuntimeService, v1};
use k8s_openapi::api::core::v1::Service;
use tokio::sync::Semaphore;

pub use config::{Config, ServerConfig};
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
    let context = Arc::new(Context {
        services: parts.informers.informer::<Service>(),
        recorder: Recorder::start(&parts.informers, "kubelet"),
        facts: status::NodeFacts { host_ips: config.node_ips.clone(), runtime_name: version.runtime_name },
        allocatable: node::allocatable(&machine),
        allocations: allocations::Allocations::new(node::allocatable(&machine)),
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
    context.tasks.spawn("plugins", plugins::run(context.clone()));
    image_gc::collector::recover(&context).await;
    context.tasks.spawn("node status", node::run(context.clone(), machine));
    let pods = pods::informer(&context);
    if let (Some(server), Some(listener)) = (context.config.server.clone(), listener) {
        let handler = Arc::new(server::Server { context: context.clone(), pods: pods.clone() });
        context.tasks.spawn("kubelet server", server::serve(handler, listener, server));
    }
    context.tasks.spawn("image garbage collection", image_gc::collector::run(context.clone(), pods.clone()));
    context.tasks.spawn("pods", pods::run(context.clone(), pods));
    context.tasks.stopping().await;
    Ok(())
}

/// Listens, and notes the port in the configuration, so that the Node tells it.
async fn listen(server: &mut ServerConfig) -> Result<tokio::net::TcpListener, Error> {
    let address = server.listen;
    let bound = async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        server.listen = listener.local_addr()?;
        Ok(listener)
    };
    bound.await.map_err(|source| Error::Listen { address, source })
}

#[cfg(test)]
mod tests;
