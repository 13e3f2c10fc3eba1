//! The node's container runtime: the built-in one, which also answers on a socket, or another behind a socket.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use base::{Clock, Random, Tasks};
use cli::args::RuntimeArgs;
use controller::FlushedRules;
use controller::trace::Reporter;
use cri::client::{Client, socket_of};
use cri::server::Services;
use cri::{ImageService, RuntimeService};
use machinery::net::Cidrs;
use network_policy::Sandboxes;
use runtime::Runtime;

use super::node_network::NodeNetwork;
use super::pod_network::{self, CniPodNetwork};
use crate::layout::Layout;

/// What a kubelet runs Pods with.
pub(super) struct ContainerRuntime {
    pub(super) runtime: Arc<dyn RuntimeService>,
    pub(super) images: Arc<dyn ImageService>,
}

/// Whom the runtime tells what.
pub(super) struct Told {
    /// Of spans.
    pub(super) reporter: Reporter,
    /// Of sandboxes, if policies are for them.
    pub(super) policed: Option<Sandboxes>,
    /// Of rules of the built-in network that somebody has taken.
    pub(super) flushed: FlushedRules,
}

/// Opens the built-in runtime, or waits for the one at `endpoint`. The built-in runtime's own socket leads to it over
/// gRPC, as a kubelet elsewhere would use it.
///
/// # Errors
/// The runtime cannot work, is not there, or does not speak CRI v1.
pub(super) async fn open(
    args: &RuntimeArgs,
    layout: &Layout,
    node_network: &NodeNetwork,
    told: Told,
    tasks: &Tasks,
) -> Result<ContainerRuntime> {
    const FLAG: &str = "--container-runtime-endpoint";
    let endpoint = args.container_runtime_endpoint.as_deref();
    let mut handlers = runtime::handlers::installed();
    handlers.extend(args.handlers().context("--container-runtime-handler")?);
    let socket = endpoint.map(socket_of).transpose().context(FLAG)?;
    let is_own = socket.is_none_or(|socket| socket == layout.cri_socket());
    let built_in = match is_own {
        true => Some(Arc::new(built_in(layout, node_network, handlers, args, told, tasks).await?)),
        false => None,
    };
    match (endpoint, built_in) {
        (None, Some(runtime)) => Ok(ContainerRuntime { runtime: runtime.clone(), images: runtime }),
        (endpoint, _) => {
            let client = Client::new(endpoint.unwrap_or_default(), tasks.clone(), Clock::system());
            let client = Arc::new(client.context(FLAG)?);
            let version = client.ready(&Random::from_system()).await;
            let version = version.with_context(|| format!("{FLAG} {}", endpoint.unwrap_or_default()))?;
            let (name, version) = (version.runtime_name, version.runtime_version);
            tracing::info!(name, version, "the container runtime is there");
            Ok(ContainerRuntime { runtime: client.clone(), images: client })
        }
    }
}

async fn built_in(
    layout: &Layout,
    node_network: &NodeNetwork,
    handlers: BTreeMap<String, PathBuf>,
    args: &RuntimeArgs,
    told: Told,
    tasks: &Tasks,
) -> Result<Runtime> {
    let id = layout.cluster_id();
    let network = Arc::new(open_network(layout, node_network, args)?);
    network.follow(Random::from_system(), tasks).context("watch the folders of the pod network")?;
    pod_network::keep_rules(&network, told.flushed, tasks);
    let mut config = runtime::Config::new(layout.runtime(), format!("/knarr-{id}"), tasks.clone());
    config.handlers = handlers;
    config.cdi_dirs.push(layout.cdi());
    config.registries.clone_from(&args.private_registry);
    let network = CniPodNetwork::new(network, config.clock.clone(), told.reporter, told.policed);
    config.network = Some(Arc::new(network));
    let runtime = Runtime::open(config).await.context("open the container runtime")?;
    runtime.ensure_builtin_images().await.context("make the built-in image")?;
    let (images, random) = (Arc::clone(runtime.images()), Random::from_system());
    let folder = layout.images_folder();
    runtime::images::folder::follow(images, folder, random, tasks)
        .await
        .context("watch the folder of images")?;
    serve(&runtime, layout, tasks).await?;
    Ok(runtime)
}

/// Whether Pods are attached by the built-in network, unless a configuration is put into the cluster's own folder.
pub(super) fn has_builtin_network(args: &RuntimeArgs, layout: &Layout) -> bool {
    let socket = args.container_runtime_endpoint.as_deref().map(socket_of);
    let is_own = socket.is_none_or(|socket| socket.is_ok_and(|socket| socket == layout.cri_socket()));
    is_own && args.cni_conf_dir.is_none()
}

/// The built-in network, or the one whose configuration is in the folder that the flags or the data directory name.
///
/// Only the former has a folder of its own: what other programs have put into /etc/cni/net.d is nobody's unless asked for.
fn open_network(layout: &Layout, node_network: &NodeNetwork, args: &RuntimeArgs) -> Result<cni::Network> {
    let config = network_config(layout, node_network.pod_cidrs, node_network.cluster_cidrs, args);
    let config = cni::BuiltinConfig { mtu: node_network.pod_mtu, ..config };
    if let Some(folder) = &config.own_bin_dir {
        let program = std::env::current_exe().context("find this program")?;
        cni::plugin::link_plain(folder, &program).context("link the built-in network plugins")?;
    }
    let conf_dir = args.cni_conf_dir.clone().unwrap_or_else(|| layout.cni().join("net.d"));
    Ok(cni::Network::load(&conf_dir, config)?)
}

/// Of Pods on this Node, and of all Pods.
pub(super) fn network_config(
    layout: &Layout,
    pod_cidrs: Cidrs,
    cluster_cidrs: Cidrs,
    args: &RuntimeArgs,
) -> cni::BuiltinConfig {
    let bin_dirs = match args.cni_bin_dir.as_slice() {
        [] => vec![layout.cni().join("bin"), "/opt/cni/bin".into(), "/usr/lib/cni".into()],
        dirs => dirs.to_vec(),
    };
    cni::BuiltinConfig {
        cluster_id: layout.cluster_id(),
        pod_cidrs,
        cluster_cidrs,
        mtu: None,
        state_dir: layout.cni(),
        bin_dirs,
        own_bin_dir: Some(layout.cni().join("builtin")),
        is_fallback: args.cni_conf_dir.is_none(),
    }
}

/// Answers on the socket: a node whose folder has too long a name for one goes without, as nobody has asked for it.
async fn serve(runtime: &Runtime, layout: &Layout, tasks: &Tasks) -> Result<()> {
    let path = layout.cri_socket();
    let listener = match cri::server::bind(&path) {
        Ok(listener) => listener,
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            tracing::warn!(path = %path.display(), %error, "the container runtime has no socket");
            return Ok(());
        }
        Err(error) => return Err(error).with_context(|| format!("listen on {}", path.display())),
    };
    let runtime = Arc::new(runtime.clone());
    let (clock, random) = (Clock::system(), Random::from_system());
    let streaming = kubelet::StreamingServer::start(runtime.clone(), tasks, clock, random);
    let streaming = Arc::new(streaming.await.context("listen for the container runtime's streams")?);
    let services = Services { runtime: runtime.clone(), images: runtime, streaming };
    tasks.spawn("cri server", cri::server::serve(listener, services, tasks.clone()));
    Ok(())
}
