//! Resizing a Pod that runs: what the API asks for, what the node has agreed to, what the kernel has. Pure.
//!
//! The snapshot's Pod always has the resources that the node has agreed to ([`split`]), so that everything else need
//! not know of resizes; what is asked for beyond that waits in [`Resize::wanted`].
//! Source: KEP-1287, `pkg/kubelet/allocation/allocation_manager.go` of upstream.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as ContainerSpec, Pod, PodSpec, ResourceRequirements};
use serde::Serialize;

use crate::pod::quantity;
use crate::pod::requests::pod_request;
use crate::pod::roles::{Role, init_role};

/// The condition of a Pod whose resize waits for the node. Source: core/v1 `PodConditionType`.
pub const PENDING: &str = "PodResizePending";
/// The condition of a Pod whose resize is being carried out.
pub const IN_PROGRESS: &str = "PodResizeInProgress";

/// The resources of a Pod's containers, by name.
pub type Resources = BTreeMap<String, ResourceRequirements>;

/// How far a Pod's resize is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resize {
    /// What the API asks for and the node has not agreed to.
    pub wanted: Resources,
    /// Why not.
    pub refused: Option<Refused>,
    /// The node has agreed, and not everything is carried out.
    pub is_started: bool,
    /// Why the last try to carry it out failed.
    pub error: Option<String>,
    /// It waits for room, and would get it for this if it got it now. Source: `TriggerReason`.
    pub deferred_until: Option<&'static str>,
}

/// Why the node does not agree to a resize.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Whether it may be agreed to later.
    pub reason: RefusalReason,
    /// For people.
    pub message: String,
    /// For metrics; empty for `Deferred`. Source: `kubelet_pod_infeasible_resizes_total` in KEP-1287.
    pub detail: &'static str,
}

/// What becomes of a resize that the node does not agree to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// It is asked about again when there is room.
    Deferred,
    /// It is never asked about again.
    Infeasible,
}

impl RefusalReason {
    /// Upstream's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// CPU in thousandths and memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
}

/// A resize that an earlier kubelet had agreed to and not carried out, by what it last wrote.
pub fn under_way(pod: &Pod) -> Resize {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut found = conditions.into_iter().filter(|c| c.type_ == IN_PROGRESS && c.status == "True");
    let Some(condition) = found.next() else { return Resize::default() };
    Resize { is_started: true, error: condition.message.clone(), ..Resize::default() }
}

/// Since when a resize waits for the node, by what was last written.
pub fn waiting_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let pending = conditions.iter().find(|c| c.type_ == PENDING && c.status == "True")?;
    pending.last_transition_time.as_ref().map(|time| time.0)
}

/// Main containers, and init containers that keep running.
pub(crate) fn resizable(spec: &PodSpec) -> impl Iterator<Item = &ContainerSpec> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| init_role(c) == Role::Sidecar);
    sidecars.chain(&spec.containers)
}

/// The resources of all containers that can be resized.
pub fn resources(pod: &Pod) -> Resources {
    let spec = pod.spec.iter();
    let all = spec.flat_map(resizable);
    all.map(|c| (c.name.clone(), c.resources.clone().unwrap_or_default())).collect()
}

/// What the node had agreed to before the kubelet was started again, by what it last wrote.
pub fn recorded(pod: &Pod) -> Resources {
    let mut all = resources(pod);
    let status = pod.status.iter();
    let statuses = status.flat_map(|s| {
        s.container_statuses.iter().flatten().chain(s.init_container_statuses.iter().flatten())
    });
    for status in statuses {
        let Some(resources) = all.get_mut(&status.name) else { continue };
        if let Some(actual) = &status.resources {
            resources.limits.clone_from(&actual.limits);
        }
        if let Some(requests) = &status.allocated_resources {
            resources.requests = Some(requests.clone());
        }
    }
    all
}

/// The Pod with the resources of `allocated`, and what it asks for beyond them.
pub fn split(pod: &Pod, allocated: &Resources) -> (Option<Pod>, Resources) {
    let wanted: Resources = resources(pod)
        .into_iter()
        .filter(|(name, asked)| allocated.get(name).is_some_and(|agreed| !is_same(agreed, asked)))
        .collect();
    if wanted.is_empty() {
        return (None, wanted);
    }
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        put(spec, allocated);
    }
    (Some(pod), wanted)
}

/// Gives the containers of a spec these resources.
pub fn put(spec: &mut PodSpec, resources: &Resources) {
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(resources) = resources.get(&container.name) {
            container.resources = Some(resources.clone());
        }
    }
}

fn is_same(a: &ResourceRequirements, b: &ResourceRequirements) -> bool {
    let compute = |resources: &ResourceRequirements| {
        let of = |list: &Option<BTreeMap<String, _>>, name: &str| {
            list.as_ref().and_then(|amounts| amounts.get(name)).map(quantity::milli)
        };
        ["cpu", "memory"].map(|name| (of(&resources.requests, name), of(&resources.limits, name)))
    };
    compute(a) == compute(b)
}

/// What is changed of a container, from what was asked for to what is: resource, requirement, operation.
///
/// Source: `recordContainerResizeOperations` of upstream's kubelet.
pub fn operations(before: &Resources, after: &Resources) -> Vec<[&'static str; 3]> {
    let mut all = Vec::new();
    for (name, after) in after {
        let Some(before) = before.get(name) else { continue };
        for resource in ["memory", "cpu"] {
            let of = |list: &Option<BTreeMap<String, _>>| {
                list.as_ref().and_then(|amounts| amounts.get(resource)).map_or(0, quantity::milli)
            };
            for (requirement, before, after) in [
                ("requests", of(&before.requests), of(&after.requests)),
                ("limits", of(&before.limits), of(&after.limits)),
            ] {
                let operation = match (before, after) {
                    (before, after) if before == after => continue,
                    (0, _) => "add",
                    (_, 0) => "remove",
                    (before, after) if after < before => "decrease",
                    _ => "increase",
                };
                all.push([resource, requirement, operation]);
            }
        }
    }
    all
}

/// What a Pod asks of its node.
pub fn requests(spec: &PodSpec) -> Amount {
    Amount {
        cpu: pod_request(spec, "cpu", quantity::milli),
        memory: pod_request(spec, "memory", quantity::whole),
    }
}

/// Whether a Pod can have `asked`, when all others have `used` of what the node has.
///
/// # Errors
/// Why not.
pub fn decide(asked: Amount, used: Amount, capacity: Amount) -> Result<(), Refused> {
    let whole = if asked.memory > capacity.memory {
        Some(("memory", asked.memory, capacity.memory))
    } else if asked.cpu > capacity.cpu {
        Some(("cpu", asked.cpu, capacity.cpu))
    } else {
        None
    };
    if let Some((name, asked, capacity)) = whole {
        let message =
            format!("Node didn't have enough capacity: {name}, requested: {asked}, capacity: {capacity}");
        return Err(Refused {
            reason: RefusalReason::Infeasible,
            message,
            detail: "insufficient_node_allocatable",
        });
    }
    let now = if asked.cpu.saturating_add(used.cpu) > capacity.cpu {
        Some(("cpu", asked.cpu, used.cpu, capacity.cpu))
    } else if asked.memory.saturating_add(used.memory) > capacity.memory {
        Some(("memory", asked.memory, used.memory, capacity.memory))
    } else {
        None
    };
    let Some((name, asked, used, capacity)) = now else { return Ok(()) };
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {capacity}"
    );
    Err(Refused { reason: RefusalReason::Deferred, message, detail: "" })
}

/// What an event says of a resize, with what all containers have or are to have. An empty `error` is none.
///
/// Source: `PodResize*Msg` of upstream's `pkg/kubelet/events`.
pub fn event_text(pod: &Pod, what: &str, error: &str) -> String {
    let spec = pod.spec.as_ref();
    let of = |containers: &[ContainerSpec]| -> Vec<ToldContainer> {
        let told = |c: &ContainerSpec| ToldContainer {
            name: c.name.clone(),
            resources: c.resources.clone().unwrap_or_default(),
        };
        containers.iter().map(told).collect()
    };
    let told = Told {
        init_containers: of(spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()),
        containers: of(spec.map(|spec| spec.containers.as_slice()).unwrap_or_default()),
        generation: pod.metadata.generation.unwrap_or_default(),
        error,
    };
    match serde_json::to_string(&told) {
        Ok(told) => format!("Pod resize {what}: {told}"),
        Err(error) => format!("Pod resize {what}: {error}"),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<ToldContainer>,
    containers: Vec<ToldContainer>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct ToldContainer {
    name: String,
    resources: ResourceRequirements,
}

#[cfg(test)]
mod tests;
