//! Quality of service: the class of a Pod, its cgroup parent, and what requests and limits mean for cgroups.
//!
//! Sources: `pkg/apis/core/v1/helper/qos`, `pkg/kubelet/cm` and `pkg/kubelet/qos` of upstream for the numbers.

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::pod::requests::amounts;
use crate::pod::requests::at_once;
use crate::pod::requests::overhead;
use crate::pod::requests::pod_limit;
use crate::pod::requests::pod_request;
use crate::pod::{huge_pages, quantity};

/// CPU shares of a container that asks for nothing.
const SHARES_MIN: i64 = 2;
/// The kernel's upper bound.
const SHARES_MAX: i64 = 262_144;
/// Length of a CPU quota period in microseconds.
const QUOTA_PERIOD_US: i64 = 100_000;
/// The quota of who has CPUs alone.
pub(crate) const UNLIMITED_QUOTA: i64 = -1;
/// The kernel's smallest quota.
const QUOTA_MIN_US: i64 = 1_000;

/// Source: `PodStatus.qosClass`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QosClass {
    /// Every container has limits equal to its requests, for CPU and memory.
    Guaranteed,
    /// Something is requested or limited.
    Burstable,
    /// Nothing is.
    BestEffort,
}

impl QosClass {
    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// The class that the resources of a Pod make, or else those of its containers (init containers too).
///
/// Source: `ComputePodQOS`; for the Pod's own resources KEP-2837.
pub fn class_of(spec: &PodSpec) -> QosClass {
    let mut anything = false;
    let mut guaranteed = true;
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let own = spec.resources.as_ref().filter(|own| own.requests.is_some() || own.limits.is_some());
    let all: Vec<_> = match own {
        Some(own) => vec![Some(own)],
        None => containers.map(|container| container.resources.as_ref()).collect(),
    };
    for resources in all {
        let (requests, limits) = amounts(resources);
        for name in ["cpu", "memory"] {
            let request = requests.and_then(|r| r.get(name)).map(quantity::milli);
            let limit = limits.and_then(|l| l.get(name)).map_or(0, quantity::milli);
            anything |= request.is_some_and(|request| request > 0) || limit > 0;
            // One that is not said is the limit; one of nothing is said.
            guaranteed &= limit > 0 && request.is_none_or(|request| request == limit);
        }
    }
    match (anything, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// The cgroup under which the runtime puts a Pod's containers, laid out as upstream's cgroupfs driver does.
pub fn cgroup_parent(root: &str, pod: &Pod) -> String {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let class = pod.spec.as_ref().map_or(QosClass::BestEffort, class_of);
    let root = root.trim_end_matches('/');
    match class {
        QosClass::Guaranteed => format!("{root}/kubepods/pod{uid}"),
        QosClass::Burstable => format!("{root}/kubepods/burstable/pod{uid}"),
        QosClass::BestEffort => format!("{root}/kubepods/besteffort/pod{uid}"),
    }
}

/// What the kernel gets for one container. `memory_capacity` is the node's, in bytes.
///
/// What the container has no limit for, its Pod's limit holds. Source: `getCPULimit` of `pkg/kubelet/kuberuntime`.
pub fn container_resources(
    spec: &PodSpec,
    container: &Container,
    memory_capacity: i64,
) -> v1::LinuxContainerResources {
    let (requests, limits) = amounts(container.resources.as_ref());
    let limit = |name: &str, read: fn(&Quantity) -> i64| {
        let own = limits.and_then(|l| l.get(name)).map(read).filter(|limit| *limit != 0);
        own.or_else(|| amounts(spec.resources.as_ref()).1?.get(name).map(read)).unwrap_or(0)
    };
    let cpu_limit = limit("cpu", quantity::milli);
    let cpu_request = requests.and_then(|r| r.get("cpu")).map_or(cpu_limit, quantity::milli);
    v1::LinuxContainerResources {
        cpu_period: QUOTA_PERIOD_US,
        cpu_quota: cpu_quota(cpu_limit),
        cpu_shares: cpu_shares(cpu_request),
        memory_limit_in_bytes: limit("memory", quantity::whole),
        oom_score_adj: oom_score_adj(spec, container, memory_capacity),
        hugepage_limits: huge_pages::of_container(container),
        ..v1::LinuxContainerResources::default()
    }
}

/// What the kernel gets for the whole Pod: limits only where the Pod or every container has one.
///
/// Source: `ResourceConfigForPod` of upstream's `pkg/kubelet/cm`.
pub fn pod_resources(spec: &PodSpec) -> v1::LinuxContainerResources {
    // Who asks for nothing has nothing of its own to weigh, whatever its sandbox takes.
    let request = match class_of(spec) {
        QosClass::BestEffort => 0,
        QosClass::Burstable | QosClass::Guaranteed => pod_request(spec, "cpu", quantity::milli),
    };
    v1::LinuxContainerResources {
        cpu_period: QUOTA_PERIOD_US,
        cpu_quota: cpu_quota(pod_limit(spec, "cpu", quantity::milli).unwrap_or(0)),
        cpu_shares: cpu_shares(request),
        memory_limit_in_bytes: pod_limit(spec, "memory", quantity::whole).unwrap_or(0),
        hugepage_limits: huge_pages::of_pod(spec),
        ..v1::LinuxContainerResources::default()
    }
}

/// What a runtime is told of which the sandbox is a machine: what its containers may have, though others of them have no
/// limit, and nothing of what it takes itself.
///
/// Source: `calculateSandboxResources` of upstream's `pkg/kubelet/kuberuntime`.
pub fn sandbox_resources(spec: &PodSpec) -> v1::LinuxContainerResources {
    let limit = |name: &str, read: fn(&Quantity) -> i64| {
        let of = |resources: Option<&ResourceRequirements>| amounts(resources).1?.get(name).map(read);
        let of_containers = || at_once(spec, |one| of(one.resources.as_ref()).unwrap_or(0));
        of(spec.resources.as_ref()).unwrap_or_else(of_containers)
    };
    let asks = |resources: Option<&ResourceRequirements>| {
        amounts(resources).0.is_some_and(|requests| requests.contains_key("cpu"))
    };
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let has_request = asks(spec.resources.as_ref()) || containers.any(|one| asks(one.resources.as_ref()));
    let cpu = limit("cpu", quantity::milli);
    let own = PodSpec { overhead: None, ..spec.clone() };
    let request = if has_request { pod_request(&own, "cpu", quantity::milli) } else { cpu };
    linux_resources(request, cpu, limit("memory", quantity::whole))
}

/// What the sandbox takes itself. Source: `convertOverheadToLinuxResources` of upstream.
pub fn sandbox_overhead(spec: &PodSpec) -> v1::LinuxContainerResources {
    if spec.overhead.is_none() {
        return v1::LinuxContainerResources::default();
    }
    let cpu = overhead(spec, "cpu", quantity::milli);
    linux_resources(cpu, cpu, overhead(spec, "memory", quantity::whole))
}

fn linux_resources(cpu_request: i64, cpu_limit: i64, memory_limit: i64) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: QUOTA_PERIOD_US,
        cpu_quota: cpu_quota(cpu_limit),
        cpu_shares: cpu_shares(cpu_request),
        memory_limit_in_bytes: memory_limit,
        ..v1::LinuxContainerResources::default()
    }
}

pub(crate) fn cpu_shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

fn cpu_quota(milli: i64) -> i64 {
    if milli == 0 { 0 } else { (milli.saturating_mul(QUOTA_PERIOD_US) / 1000).max(QUOTA_MIN_US) }
}

/// How early the kernel kills: Guaranteed last, BestEffort first, Burstable by its share of the memory.
///
/// A sidecar dies no earlier than the one that asks for least of those that it is there for. Source: KEP-753,
/// `GetContainerOOMScoreAdjust` of upstream's `pkg/kubelet/qos`.
fn oom_score_adj(spec: &PodSpec, container: &Container, memory_capacity: i64) -> i64 {
    let own = own_oom_score_adj(spec, container, memory_capacity);
    let is_main = spec.containers.iter().any(|main| main.name == container.name);
    if is_main || container.restart_policy.as_deref() != Some("Always") {
        return own;
    }
    let mains = spec.containers.iter().map(|main| own_oom_score_adj(spec, main, memory_capacity));
    mains.max().map_or(own, |first| own.min(first))
}

fn own_oom_score_adj(spec: &PodSpec, container: &Container, memory_capacity: i64) -> i64 {
    if matches!(spec.priority_class_name.as_deref(), Some("system-node-critical")) {
        return -997;
    }
    match class_of(spec) {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let share = memory_share(spec, container);
            let adjust = 1000 - 1000_i64.saturating_mul(share) / memory_capacity.max(1);
            adjust.clamp(3, 999)
        }
    }
}

/// The memory that a container asks for. What its Pod asks for beyond all of them is theirs in equal parts, whatever they
/// are. Source: KEP-2837.
fn memory_share(spec: &PodSpec, container: &Container) -> i64 {
    let of = |resources: Option<&ResourceRequirements>| {
        amounts(resources).0.and_then(|r| r.get("memory")).map(quantity::whole)
    };
    let request = |container: &Container| of(container.resources.as_ref()).unwrap_or(0);
    let rest = of(spec.resources.as_ref()).map_or(0, |own| {
        let count = spec.containers.len() + spec.init_containers.iter().flatten().count();
        own.saturating_sub(at_once(spec, request)).max(0) / i64::try_from(count).unwrap_or(1).max(1)
    });
    request(container).saturating_add(rest)
}

#[cfg(test)]
mod tests;
