//! What the node runs, for people and for scrapers.

use cri::v1;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::Server;
use crate::labels;

/// `/pods`: a PodList.
pub(super) fn pods(server: &Server) -> Value {
    let items: Vec<_> = server
        .pods
        .list()
        .iter()
        .filter_map(|pod| {
            let mut item = serde_json::to_value(pod.as_ref()).ok()?;
            let object = item.as_object_mut()?;
            object.remove("apiVersion");
            object.remove("kind");
            Some(item)
        })
        .collect();
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}

/// `/metrics`, in upstream's names.
pub(super) fn metrics(server: &Server) -> String {
    let pods = server.pods.list();
    let is_running = |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
    let running = pods.iter().filter(|pod| is_running(pod)).count();
    let statuses =
        pods.iter().filter_map(|p| p.status.as_ref()).flat_map(|s| s.container_statuses.iter().flatten());
    let count = |pick: fn(&k8s_openapi::api::core::v1::ContainerState) -> bool| {
        statuses.clone().filter(|s| s.state.as_ref().is_some_and(pick)).count()
    };
    let (up, down) = (count(|s| s.running.is_some()), count(|s| s.terminated.is_some()));
    format!(
        "# HELP kubelet_node_name The node's name. The count is always 1.\n# TYPE kubelet_node_name gauge\n\
         kubelet_node_name{{node=\"{}\"}} 1\n\
         # HELP kubelet_running_pods Number of pods that have a running pod sandbox\n# TYPE kubelet_running_pods gauge\n\
         kubelet_running_pods {running}\n\
         # HELP kubelet_running_containers Number of containers currently running\n# TYPE kubelet_running_containers gauge\n\
         kubelet_running_containers{{container_state=\"exited\"}} {down}\n\
         kubelet_running_containers{{container_state=\"running\"}} {up}\n",
        server.context.config.node_name
    )
}

/// `/stats/summary`: CPU and memory of the containers that run.
pub(super) async fn stats(server: &Server) -> Value {
    let filter = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() }),
        ..v1::ContainerFilter::default()
    };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let containers = match server.context.runtime.list_containers(request).await {
        Ok(answer) => answer.containers,
        Err(error) => {
            tracing::debug!(%error, "the runtime did not list its containers");
            Vec::new()
        }
    };
    let mut pods = std::collections::BTreeMap::<String, Value>::new();
    for container in containers {
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        let request = v1::ContainerStatsRequest { container_id: container.id.clone() };
        let Ok(answer) = server.context.runtime.container_stats(request).await else { continue };
        let stats = answer.stats.unwrap_or_default();
        let (cpu, memory) = (stats.cpu.unwrap_or_default(), stats.memory.unwrap_or_default());
        let value = |v: Option<v1::UInt64Value>| v.map_or(0, |v| v.value);
        let pod = pods.entry(label(labels::POD_UID)).or_insert_with(|| {
            json!({"podRef": {"name": label(labels::POD_NAME), "namespace": label(labels::POD_NAMESPACE), "uid": label(labels::POD_UID)},
                   "containers": []})
        });
        if let Some(list) = pod["containers"].as_array_mut() {
            list.push(json!({"name": label(labels::CONTAINER_NAME),
                "cpu": {"usageCoreNanoSeconds": value(cpu.usage_core_nano_seconds), "usageNanoCores": value(cpu.usage_nano_cores)},
                "memory": {"workingSetBytes": value(memory.working_set_bytes), "usageBytes": value(memory.usage_bytes), "rssBytes": value(memory.rss_bytes)}}));
        }
    }
    json!({"node": {"nodeName": server.context.config.node_name}, "pods": pods.into_values().collect::<Vec<_>>()})
}
