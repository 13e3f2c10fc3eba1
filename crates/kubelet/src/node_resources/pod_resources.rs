//! Which devices, CPUs and memory containers have alone, for monitoring on the node: `pod-resources/kubelet.sock`.
//!
//! Reads what the allocators know; changes nothing. Source: `k8s.io/kubelet/pkg/apis/podresources/v1`,
//! `pkg/kubelet/apis/podresources`.

pub(crate) mod api;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use grpc::{Answer, Asked, Router};
use k8s_openapi::api::core::v1::{Container, Pod};
use tonic::Status;

use crate::metrics::Count;
use crate::node_resources::NodeResources;
use crate::node_resources::device_plugins::Placed;
use crate::node_resources::memory::Block;
use crate::pod::roles::{Role, init_role};
use api::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, ContainerMemory,
    ContainerResources, GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest,
    ListPodResourcesResponse, NumaNode, PodResources, TopologyInfo,
};

/// Answers until the group of tasks stops.
pub(crate) async fn run(resources: Arc<NodeResources>) {
    let folder = resources.config.root_dir.join("pod-resources");
    let path = folder.join("kubelet.sock");
    let bound = std::fs::create_dir_all(&folder).and_then(|()| grpc::bind(&path));
    match bound {
        Ok(listener) => {
            let tasks = resources.tasks.clone();
            grpc::serve(listener, "pod resources", Arc::new(Lister(resources)), tasks).await;
        }
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "nobody can ask which resources pods have");
        }
    }
}

/// Of the API, as metrics have it.
const VERSION: &str = "v1";

struct Lister(Arc<NodeResources>);

impl Router for Lister {
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer> {
        let resources = self.0.clone();
        match path {
            "/v1.PodResourcesLister/List" => grpc::unary(request, move |_: ListPodResourcesRequest| {
                async move {
                    asked(&resources, Count::PodResourcesList);
                    Ok::<_, Status>(list(&resources))
                }
                .boxed()
            }),
            "/v1.PodResourcesLister/GetAllocatableResources" => {
                grpc::unary(request, move |_: AllocatableResourcesRequest| {
                    async move {
                        asked(&resources, Count::PodResourcesAllocatable);
                        Ok::<_, Status>(allocatable(&resources))
                    }
                    .boxed()
                })
            }
            "/v1.PodResourcesLister/Get" => grpc::unary(request, move |name: GetPodResourcesRequest| {
                async move {
                    asked(&resources, Count::PodResourcesGet);
                    let found = get(&resources, &name);
                    if found.is_err() {
                        resources.metrics.count(Count::PodResourcesGetErrors, &[VERSION]);
                    }
                    found
                }
                .boxed()
            }),
            other => grpc::unknown(other),
        }
    }
}

fn asked(resources: &NodeResources, call: Count) {
    resources.metrics.count(Count::PodResources, &[VERSION]);
    resources.metrics.count(call, &[VERSION]);
}

fn list(resources: &NodeResources) -> ListPodResourcesResponse {
    let pods = resources.allocations.pods();
    ListPodResourcesResponse { pod_resources: pods.iter().map(|pod| of_pod(resources, pod)).collect() }
}

fn get(resources: &NodeResources, asked: &GetPodResourcesRequest) -> Result<GetPodResourcesResponse, Status> {
    let GetPodResourcesRequest { pod_name, pod_namespace } = asked;
    let is_asked_for = |pod: &&Arc<Pod>| {
        let metadata = &pod.metadata;
        metadata.name.as_ref() == Some(pod_name) && metadata.namespace.as_ref() == Some(pod_namespace)
    };
    let pods = resources.allocations.pods();
    let found = pods.iter().find(is_asked_for);
    let missing = || Status::unknown(format!("pod {pod_name} in namespace {pod_namespace} not found"));
    let pod = found.ok_or_else(missing)?;
    Ok(GetPodResourcesResponse { pod_resources: Some(of_pod(resources, pod)) })
}

fn allocatable(resources: &NodeResources) -> AllocatableResourcesResponse {
    let cpus =
        resources.cpus.as_ref().map(crate::node_resources::cpu::CpuManager::allocatable).unwrap_or_default();
    let memory = resources
        .memory
        .as_ref()
        .map(crate::node_resources::memory::MemoryManager::allocatable)
        .unwrap_or_default();
    AllocatableResourcesResponse {
        devices: devices(resources.devices.allocatable()),
        cpu_ids: cpus.iter().filter_map(|cpu| i64::try_from(cpu).ok()).collect(),
        memory: memory.into_iter().map(of_block).collect(),
    }
}

/// Init containers that have ended have nothing: only those that keep running are told of.
fn of_pod(resources: &NodeResources, pod: &Pod) -> PodResources {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let uid = text(&pod.metadata.uid);
    let spec = pod.spec.as_ref();
    let sidecars = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars = sidecars.filter(|container| init_role(container) == Role::Sidecar);
    let containers = sidecars.chain(spec.into_iter().flat_map(|spec| &spec.containers));
    PodResources {
        name: text(&pod.metadata.name),
        namespace: text(&pod.metadata.namespace),
        containers: containers.map(|container| of_container(resources, pod, &uid, container)).collect(),
    }
}

fn of_container(
    resources: &NodeResources,
    pod: &Pod,
    uid: &str,
    container: &Container,
) -> ContainerResources {
    let name = &container.name;
    let cpus = resources.cpus.as_ref().map(|cpus| cpus.exclusive(uid, name)).unwrap_or_default();
    let memory = resources.memory.as_ref().map(|memory| memory.blocks(uid, name)).unwrap_or_default();
    ContainerResources {
        name: name.clone(),
        devices: devices(resources.devices.of_container(uid, name)),
        cpu_ids: cpus.iter().filter_map(|cpu| i64::try_from(cpu).ok()).collect(),
        memory: memory.into_iter().map(of_block).collect(),
        dynamic_resources: resources.dra.resources(pod, container),
    }
}

/// An entry for each device and each node that it is near.
fn devices(all: Vec<Placed>) -> Vec<ContainerDevices> {
    let of = |device: Placed| {
        let Placed { resource, id, nodes } = device;
        let one = move |topology| ContainerDevices {
            resource_name: resource.clone(),
            device_ids: vec![id.clone()],
            topology,
        };
        if nodes.is_empty() {
            return vec![one(None)];
        }
        let near = |id: i64| Some(TopologyInfo { nodes: vec![NumaNode { id }] });
        nodes.into_iter().map(|node| one(near(node))).collect()
    };
    all.into_iter().flat_map(of).collect()
}

fn of_block(block: Block) -> ContainerMemory {
    let nodes = block.numa_affinity.iter().filter_map(|node| i64::try_from(*node).ok());
    ContainerMemory {
        memory_type: block.resource,
        size: u64::try_from(block.size).unwrap_or_default(),
        topology: Some(TopologyInfo { nodes: nodes.map(|id| NumaNode { id }).collect() }),
    }
}

#[cfg(test)]
mod tests;
