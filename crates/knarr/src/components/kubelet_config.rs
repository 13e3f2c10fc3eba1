//! What operators say about the kubelet: a KubeletConfiguration, drop-ins beside the Node's files, flags.

use anyhow::{Context, Result};
use cli::args::ServerArgs;
use cli::cloud_provider::CloudProvider;
use cli::kubelet::ConfigurationArgs;
use k8s_openapi::api::core::v1::NodeSpec;

use crate::layout::Layout;

/// Processes and threads that a Pod may have, unless the kubelet's configuration says otherwise: more than servers with a
/// thread per core or client need, and so few that one Pod does not take all the numbers that a small machine has
/// (32,768). Upstream's default is no limit, which CIS 4.2.13 forbids; OpenShift's is this one.
const POD_PIDS_LIMIT: i64 = 4096;

/// The kubelet of a Node that a supervisor runs: drop-ins in `agent/etc/kubelet.conf.d`, static Pods in
/// `agent/pod-manifests`, both as k3s has them, and `--kubelet-arg`.
///
/// # Errors
/// What they say cannot be.
pub(crate) fn of_node(
    mut config: kubelet::Config,
    layout: &Layout,
    arguments: &[String],
) -> Result<kubelet::Config> {
    let arguments = ConfigurationArgs::from_pairs(arguments)?;
    config.node_labels.extend(arguments.node_labels.clone());
    if let (Some(port), Some(server)) = (arguments.port, &mut config.server) {
        server.port = port;
    }
    let drop_ins = layout.agent().join("etc/kubelet.conf.d");
    let folder = arguments.config_dir.clone().or_else(|| drop_ins.is_dir().then_some(drop_ins));
    config.pod_pids_limit = POD_PIDS_LIMIT;
    config.eviction = kubelet::config::eviction::Policy::of_shared_disk();
    config.static_pod_path = Some(layout.agent().join("pod-manifests"));
    read(config, &ConfigurationArgs { config_dir: folder, ..arguments })
}

/// What the object of a Node is made with that is there before its kubelet runs: nobody but who makes it may say so.
///
/// # Errors
/// What the kubelet's files and flags say cannot be.
pub(super) fn spec_of_newcomer(layout: &Layout, args: &ServerArgs) -> Result<Option<NodeSpec>> {
    let arguments = args.registration.kubelet_args(&args.kubelet_arg);
    let taints = kubelet::taints(&of_node(kubelet::Config::default(), layout, &arguments)?);
    Ok((!taints.is_empty()).then(|| NodeSpec { taints: Some(taints), ..NodeSpec::default() }))
}

/// Decides which folder is the kubelet's, before anything is started that looks for it there.
///
/// # Errors
/// It cannot be the one that was asked for.
pub(super) fn settle_root(layout: &Layout, arguments: &[String]) -> Result<()> {
    let arguments = ConfigurationArgs::from_pairs(arguments)?;
    super::kubelet_root::settle(layout, arguments.root_dir.as_deref())
}

/// A kubelet alone.
///
/// # Errors
/// What its files and flags say cannot be.
pub(super) fn read(mut config: kubelet::Config, arguments: &ConfigurationArgs) -> Result<kubelet::Config> {
    let sources = kubelet::Sources {
        file: arguments.config.clone(),
        folder: arguments.config_dir.clone(),
        flags: arguments.fields.clone(),
    };
    let said = sources.read()?;
    config.apply(&said).context("the kubelet's configuration")?;
    config.has_cloud = arguments.cloud_provider == CloudProvider::External;
    Ok(config)
}
