//! What the node part leaves on the host while it is down, and how it is taken back.

use std::time::Duration;

use anyhow::{Context, Result};
use base::{Clock, Tasks};
use cli::args::{Part, ServerArgs};
use cri::client::{Client, socket_of};
use cri::{RuntimeService, v1};

use super::Settings;
use crate::async_runtime::AsyncRuntime;
use crate::layout::Layout;

/// How long another container runtime may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Ends every Pod in another container runtime, if the Node had one: all that it has by CRI, as a kubelet takes them all
/// for its own. Returns how many there were.
///
/// # Errors
/// The runtime does not answer, or a Pod cannot be removed; the others are.
pub(crate) fn remove_foreign_pods(layout: &Layout) -> Result<usize> {
    let settings = Settings::load(layout).ok();
    let endpoint = settings.and_then(|settings| settings.args.container_runtime.container_runtime_endpoint);
    let Some(endpoint) = endpoint else { return Ok(0) };
    if socket_of(&endpoint)? == layout.cri_socket() {
        return Ok(0);
    }
    let runtime = AsyncRuntime::on_this_thread()?;
    runtime.block_on(async {
        let tasks = Tasks::new();
        let client = Client::new(&endpoint, tasks.clone(), Clock::system())?;
        let removed = remove_all(&client).await.with_context(|| format!("remove the Pods of {endpoint}"));
        tasks.stop_and_wait().await;
        removed
    })
}

async fn remove_all(runtime: &Client) -> Result<usize> {
    let list = runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None });
    let sandboxes = tokio::time::timeout(ANSWER_MAX, list).await.context("it does not answer")??.items;
    let (mut removed, mut outcome) = (0, Ok(()));
    for sandbox in sandboxes {
        match remove_sandbox(runtime, &sandbox.id).await {
            Ok(()) => removed += 1,
            Err(error) if outcome.is_ok() => {
                outcome = Err(error).with_context(|| format!("sandbox {}", sandbox.id))
            }
            Err(_) => {}
        }
    }
    outcome.map(|()| removed)
}

/// What is gone meanwhile is no error of either call.
async fn remove_sandbox(runtime: &Client, id: &str) -> Result<()> {
    runtime.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() }).await?;
    runtime.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() }).await?;
    Ok(())
}

/// Ends every Pod and removes containers, sandboxes, images and cgroups.
pub(crate) fn remove_pods(layout: &Layout) -> Result<()> {
    let cgroups = sys::cgroup::Cgroups::detect()?;
    Ok(runtime::clean_up(&layout.runtime(), &cgroup_root(layout), &cgroups)?)
}

fn cgroup_root(layout: &Layout) -> String {
    format!("/knarr-{}", layout.cluster_id())
}

/// Takes back what parts of the Node have left on the host that do not run here any more: whoever does their work from
/// now on must not meet Pods, links and rules that nobody looks after. Returns what there was.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn take_back_of_parts(args: &ServerArgs, layout: &Layout) -> Result<Vec<String>> {
    let mut found = Vec::new();
    if !args.runs(Part::Kubelet) {
        found.extend(end_pods(layout).context("end the Pods of the kubelet that is turned off")?);
        if let Err(error) = detach_pods(layout) {
            tracing::warn!(error = format!("{error:#}"), "what network plugins have of Pods is left");
        }
        super::pod_routes::remove(layout)?;
        found.extend(cni::cleanup(&layout.cluster_id(), &layout.cni())?);
    }
    if !args.runs(Part::NetworkPolicy) {
        found.extend(network_policy::cleanup(&layout.cluster_id())?);
    }
    if !args.runs(Part::Proxy) {
        found.extend(proxy::cleanup(&layout.cluster_id())?);
    }
    Ok(found)
}

/// Ends the built-in runtime's Pods and unmounts their volumes. Images stay.
fn end_pods(layout: &Layout) -> Result<Option<String>> {
    let sandboxes = std::fs::read_dir(layout.runtime().join("sandboxes"));
    let count = sandboxes.map_or(0, |entries| entries.flatten().count());
    if count == 0 {
        return Ok(None);
    }
    let cgroups = sys::cgroup::Cgroups::detect()?;
    runtime::remove_sandboxes(&layout.runtime(), &cgroup_root(layout), &cgroups)?;
    release_volumes(layout)?;
    for folder in ["pods", "plugins"] {
        sys::mount::detach_inside(&layout.kubelet().join(folder))?;
    }
    sys::loop_device::detach_below(layout.root())?;
    Ok(Some(format!("{count} Pods")))
}

/// Unmounts the volumes of Pods that are gone, and logs out of the targets whose disks they had.
///
/// # Errors
/// The host's tool refuses for one of them; the others are done.
pub(crate) fn release_volumes(layout: &Layout) -> Result<()> {
    let root = layout.kubelet();
    for folder in ["pods", "plugins/kubernetes.io/iscsi"] {
        sys::mount::detach_inside(&root.join(folder))?;
    }
    let runtime = AsyncRuntime::on_this_thread()?;
    Ok(runtime.block_on(kubelet::log_out(&root))?)
}

/// Removes the kubelet's folder, mounts and loop devices. Mounts that somebody else has made in the cluster's folder,
/// or of it, stay.
pub(crate) fn remove_mounts(layout: &Layout) -> Result<()> {
    super::kubelet_root::remove(layout)?;
    let kubelet = layout.root().join("kubelet");
    for folder in [kubelet.join("pods"), kubelet.join("plugins"), layout.runtime().join("sandboxes")] {
        sys::mount::detach_inside(&folder)?;
    }
    sys::loop_device::detach_below(layout.root())?;
    Ok(())
}

/// Detaches the Pods that a network of somebody else's has attached: its plugins know what they have made. The Pods are
/// gone.
///
/// # Errors
/// A plugin failed; the others are done.
pub(crate) fn detach_pods(layout: &Layout) -> Result<usize> {
    let Ok(settings) = Settings::load(layout) else { return Ok(0) };
    let cluster = settings.args.cluster_cidr;
    let args = &settings.args.container_runtime;
    let config = super::container_runtime::network_config(layout, cluster, cluster, args);
    Ok(cni::detach_foreign(&config)?)
}

/// Removes links, addresses and nft tables.
pub(crate) fn remove_network(layout: &Layout) -> Result<()> {
    super::pod_routes::remove(layout)?;
    proxy::cleanup(&layout.cluster_id())?;
    network_policy::cleanup(&layout.cluster_id())?;
    cni::cleanup(&layout.cluster_id(), &layout.cni())?;
    Ok(())
}
