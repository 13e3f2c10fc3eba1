//! What can be won back of a disk before a Pod must go: containers that nobody will start again, and images that nobody
//! uses.
//!
//! Source: `nodeReclaimFuncs`, `DeleteAllUnusedContainers`, `DeleteUnusedImages` of upstream.

use std::collections::BTreeSet;

use cri::v1;

use super::folders::Devices;
use crate::config::eviction::Signal;
use crate::kubelet::Kubelet;
use crate::pod::labels;

/// Whether containers or images are on the disk that the signal is about.
pub(super) fn helps(signal: Signal, devices: Devices) -> bool {
    match signal {
        Signal::ImageFsAvailable | Signal::ImageFsInodesFree => true,
        Signal::NodeFsAvailable | Signal::NodeFsInodesFree => {
            [devices.images, devices.layers].contains(&devices.root)
        }
        _ => false,
    }
}

/// Removes them all.
pub(super) async fn run(context: &Kubelet) {
    match dead_containers(context).await {
        Ok(dead) => {
            for id in dead {
                remove(context, id).await;
            }
        }
        Err(error) => tracing::warn!(%error, "the runtime did not list its containers"),
    }
    context.image_store.image_requests.all_unused().await;
}

/// Ended containers of Pods that are over.
async fn dead_containers(context: &Kubelet) -> Result<Vec<String>, cri::CriError> {
    let active = context.resources.allocations.pods();
    let active: BTreeSet<&str> = active.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
    let request = v1::ListContainersRequest { filter: None };
    let all = context.runtime.list_containers(request).await?.containers;
    let is_dead = |container: &v1::Container| {
        let uid = container.labels.get(labels::POD_UID).map(String::as_str).unwrap_or_default();
        container.state == i32::from(v1::ContainerState::ContainerExited) && !active.contains(uid)
    };
    Ok(all.into_iter().filter(is_dead).map(|container| container.id).collect())
}

/// With its log. Its Pod's status is written already and stays.
async fn remove(context: &Kubelet, container_id: String) {
    let request = v1::ContainerStatusRequest { container_id: container_id.clone(), verbose: false };
    let status = context.runtime.container_status(request).await.ok().and_then(|answer| answer.status);
    let request = v1::RemoveContainerRequest { container_id };
    if let Err(error) = context.runtime.remove_container(request).await {
        tracing::warn!(%error, "a dead container was not removed");
        return;
    }
    let log = status.map(|status| status.log_path).filter(|path| !path.is_empty());
    if let Some(log) = log
        && let Err(error) = tokio::fs::remove_file(&log).await
    {
        tracing::debug!(%error, log, "the log of a dead container was not removed");
    }
}

#[cfg(test)]
mod tests;
