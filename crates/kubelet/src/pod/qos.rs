//! Quality of service: the class of a Pod, its cgroup parent, and what requests and limits mean for cgroups.
//!
//! Sources: `pkg/apis/core/v1/helper/qos`, `pkg/kubelet/cm` and `pkg/kubelet/qos` of upstream for the numbers.

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::pod::requests::amounts;
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

pub(crate) fn cpu_shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

fn cpu_quota(milli: i64) -> i64 {
    if milli == 0 { 0 } else { (milli.saturating_mul(QUOTA_PERIOD_US) / 1000).max(QUOTA_MIN_US) }
}

/// How early the kernel kills: Guaranteed last, BestEffort first, Burstable by its share of the memory.
///
/// A sidecar dies no earlier than the containers that it is there for. Source: KEP-753.
fn oom_score_adj(spec: &PodSpec, container: &Container, memory_capacity: i64) -> i64 {
    let own = own_oom_score_adj(spec, container, memory_capacity);
    let is_main = spec.containers.iter().any(|main| main.name == container.name);
    if is_main || container.restart_policy.as_deref() != Some("Always") {
        return own;
    }
    let mains = spec.containers.iter().map(|main| own_oom_score_adj(spec, main, memory_capacity));
    mains.min().map_or(own, |least| own.min(least))
}

fn own_oom_score_adj(spec: &PodSpec, container: &Container, memory_capacity: i64) -> i64 {
    if matches!(spec.priority_class_name.as_deref(), Some("system-node-critical")) {
        return -997;
    }
    match class_of(spec) {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let of = |resources: Option<&ResourceRequirements>| {
                amounts(resources).0.and_then(|r| r.get("memory")).map(quantity::whole)
            };
            let request = |container: &Container| of(container.resources.as_ref()).unwrap_or(0);
            // What the Pod asks for beyond its containers is theirs in equal parts. Source: KEP-2837.
            let rest = of(spec.resources.as_ref()).map_or(0, |own| {
                let count = i64::try_from(spec.containers.len()).unwrap_or(1).max(1);
                own.saturating_sub(spec.containers.iter().map(request).sum()).max(0) / count
            });
            let share = request(container).saturating_add(rest);
            let adjust = 1000 - 1000_i64.saturating_mul(share) / memory_capacity.max(1);
            adjust.clamp(3, 999)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(resources: &str) -> PodSpec {
        serde_saphyr::from_str(&format!("{{containers: [{{name: a, resources: {resources}}}]}}")).unwrap()
    }

    #[test]
    fn classes_follow_requests_and_limits() {
        for (resources, class) in [
            ("{}", QosClass::BestEffort),
            ("{requests: {cpu: 100m}}", QosClass::Burstable),
            ("{limits: {cpu: '1', memory: 1Gi}}", QosClass::Guaranteed),
            ("{requests: {cpu: 500m}, limits: {cpu: '1', memory: 1Gi}}", QosClass::Burstable),
        ] {
            assert_eq!(class_of(&spec(resources)), class, "{resources}");
        }
    }

    /// Source: `TestComputePodQOS` of upstream's `pkg/apis/core/v1/helper/qos`.
    #[test]
    fn classes_of_several_containers_are_upstreams() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        const ALL: &str = "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 100m, memory: 100Mi}";
        const ZERO: &str = "requests: {cpu: '0', memory: '0'}, limits: {cpu: 100m, memory: 100Mi}";
        for (name, pod, mains, init, expect) in [
            ("all alike", "", &[ALL, ALL][..], &[][..], Guaranteed),
            (
                "the same in other words",
                "",
                &["requests: {cpu: '1', memory: 1Gi}, limits: {cpu: 1000m, memory: 1024Mi}"],
                &[],
                Guaranteed,
            ),
            ("an init container, too", "", &[ALL], &[ALL], Guaranteed),
            ("an init container has none", "", &[ALL], &[""], Burstable),
            ("only an init container has some", "", &[""], &["requests: {cpu: 10m}"], Burstable),
            ("one has none", "", &[ALL, ""], &[], Burstable),
            ("no memory", "", &["requests: {cpu: 100m}, limits: {cpu: 100m}"], &[], Burstable),
            (
                "each has the other half",
                "",
                &["limits: {cpu: 100m}", "limits: {memory: 100Mi}"],
                &[],
                Burstable,
            ),
            (
                "less than may be had",
                "",
                &["requests: {cpu: 10m, memory: 100Mi}, limits: {cpu: 100m, memory: 100Mi}"],
                &[],
                Burstable,
            ),
            ("requests of nothing", "", &[ZERO], &[], Burstable),
            ("nothing of nothing", "", &["requests: {cpu: '0'}, limits: {memory: '0'}"], &[], BestEffort),
            (
                "of other things",
                "",
                &["requests: {hugepages-2Mi: 2Mi, memory: 0}, limits: {hugepages-2Mi: 2Mi}"],
                &[],
                BestEffort,
            ),
            ("nothing", "", &["", ""], &[""], BestEffort),
            ("the Pod's own", ALL, &["", "requests: {cpu: 1m}"], &[], Guaranteed),
            ("the Pod's own are fewer", "requests: {cpu: 100m}", &[ALL], &[], Burstable),
            ("the Pod's own limit", "limits: {cpu: 100m}", &[ALL], &[], Burstable),
        ] {
            let list = |all: &[&str]| {
                let all: Vec<_> =
                    all.iter().map(|one| format!("{{name: c, resources: {{{one}}}}}")).collect();
                all.join(", ")
            };
            let (mains, init) = (list(mains), list(init));
            let text = format!("{{resources: {{{pod}}}, containers: [{mains}], initContainers: [{init}]}}");
            assert_eq!(class_of(&serde_saphyr::from_str(&text).unwrap()), expect, "{name}");
        }
    }

    /// Source: `TestMilliCPUToQuota` and `TestResourceConfigForPod` of upstream's `pkg/kubelet/cm`.
    #[test]
    fn thousandths_of_a_cpu_are_shares_and_quotas() {
        for (milli, shares, quota) in [
            (0, 2, 0),
            (1, 2, 1000),
            (5, 5, 1000),
            (9, 9, 1000),
            (10, 10, 1000),
            (11, 11, 1100),
            (200, 204, 20_000),
            (500, 512, 50_000),
            (1000, 1024, 100_000),
            (1500, 1536, 150_000),
            (256_000, 262_144, 25_600_000),
            (1_000_000, 262_144, 100_000_000),
        ] {
            assert_eq!((cpu_shares(milli), cpu_quota(milli)), (shares, quota), "{milli}");
        }
        const HALF: &str = "requests: {cpu: 100m, memory: 100Mi}";
        const BOTH: &str = "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}";
        const ALL: &str = "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 100m, memory: 100Mi}";
        for (name, pod, containers, expect) in [
            ("nothing", "", &[""][..], (2, 0, 0)),
            ("requests", "", &[HALF], (102, 0, 0)),
            ("limits", "", &[BOTH], (102, 20_000, 200 << 20)),
            ("one is not limited", "", &[BOTH, HALF], (204, 0, 0)),
            ("as much as is asked for", "", &[ALL], (102, 10_000, 100 << 20)),
            ("the Pod's requests", HALF, &[""], (102, 0, 0)),
            ("beside those of a container", HALF, &["requests: {cpu: 10m, memory: 50Mi}"], (102, 0, 0)),
            ("the Pod's limits", BOTH, &[""], (102, 20_000, 200 << 20)),
            (
                "beside those of a container",
                BOTH,
                &["limits: {cpu: 50m, memory: 100Mi}"],
                (102, 20_000, 200 << 20),
            ),
            (
                "the Pod's requests, the container's limits",
                "requests: {cpu: 200m, memory: 300Mi}",
                &[ALL],
                (204, 10_000, 100 << 20),
            ),
        ] {
            let containers: Vec<_> =
                containers.iter().map(|one| format!("{{name: c, resources: {{{one}}}}}")).collect();
            let text = format!("{{resources: {{{pod}}}, containers: [{}]}}", containers.join(", "));
            let found = pod_resources(&serde_saphyr::from_str(&text).unwrap());
            assert_eq!((found.cpu_shares, found.cpu_quota, found.memory_limit_in_bytes), expect, "{name}");
        }
    }

    #[test]
    fn a_sidecar_dies_no_earlier_than_its_containers() {
        let spec: PodSpec = serde_saphyr::from_str(
            "{initContainers: [{name: s, restartPolicy: Always}], containers: [{name: a, resources: {requests: {memory: 1Gi}}}]}",
        )
        .unwrap();
        let sidecar = &spec.init_containers.as_ref().unwrap()[0];
        assert_eq!(container_resources(&spec, sidecar, 1 << 31).oom_score_adj, 500);
        assert_eq!(own_oom_score_adj(&spec, sidecar, 1 << 31), 999);
    }

    #[test]
    fn a_pods_cgroup_has_room_for_whatever_runs_at_once() {
        let amounts = |cpu: &str, memory: &str| {
            format!(
                "{{requests: {{cpu: {cpu}, memory: {memory}}}, limits: {{cpu: {cpu}, memory: {memory}}}}}"
            )
        };
        let text = format!(
            "{{initContainers: [{{name: s, restartPolicy: Always, resources: {}}}, {{name: i, resources: {}}}], containers: [{{name: a, resources: {}}}], overhead: {{cpu: 10m, memory: 1Mi}}}}",
            amounts("100m", "10Mi"),
            amounts("1", "100Mi"),
            amounts("500m", "200Mi"),
        );
        let mut spec: PodSpec = serde_saphyr::from_str(&text).unwrap();
        let resources = pod_resources(&spec);
        assert_eq!(resources.cpu_shares, cpu_shares(1110), "the init container with the sidecar before it");
        assert_eq!((resources.cpu_quota, resources.memory_limit_in_bytes), (111_000, 211 << 20));
        spec.containers[0].resources = None;
        let resources = pod_resources(&spec);
        assert_eq!((resources.cpu_quota, resources.memory_limit_in_bytes), (0, 0), "one is not limited");
        let text = "{containers: [{name: a}], overhead: {cpu: 250m}}";
        let best_effort: PodSpec = serde_saphyr::from_str(text).unwrap();
        assert_eq!(pod_resources(&best_effort).cpu_shares, SHARES_MIN);
    }

    #[test]
    fn a_pods_own_resources_come_before_its_containers() {
        let text = "{containers: [{name: a, resources: {requests: {memory: 100Mi}}}, {name: b}], resources: {requests: {cpu: '1', memory: 512Mi}, limits: {cpu: '1', memory: 512Mi}}}";
        let mut spec: PodSpec = serde_saphyr::from_str(text).unwrap();
        assert_eq!(class_of(&spec), QosClass::Guaranteed);
        let resources = pod_resources(&spec);
        assert_eq!((resources.cpu_quota, resources.memory_limit_in_bytes), (100_000, 512 << 20));
        assert_eq!(pod_request(&spec, "cpu", quantity::milli), 1000);
        let of_container = container_resources(&spec, &spec.containers[1], 1 << 30);
        assert_eq!((of_container.cpu_quota, of_container.memory_limit_in_bytes), (100_000, 512 << 20));
        assert_eq!(of_container.cpu_shares, 1024, "what it may have is what it asks for");
        spec.resources.as_mut().unwrap().limits = None;
        assert_eq!(class_of(&spec), QosClass::Burstable);
        let capacity = 1 << 30;
        let adjust =
            |index: usize| container_resources(&spec, &spec.containers[index], capacity).oom_score_adj;
        assert_eq!((adjust(0), adjust(1)), (702, 799));
    }

    #[test]
    fn cgroup_numbers_are_upstreams() {
        let spec = spec("{requests: {cpu: 250m, memory: 512Mi}, limits: {cpu: 500m, memory: 1Gi}}");
        let resources = container_resources(&spec, &spec.containers[0], 1 << 31);
        assert_eq!(resources.cpu_shares, 256);
        assert_eq!(resources.cpu_quota, 50_000);
        assert_eq!(resources.memory_limit_in_bytes, 1 << 30);
        assert_eq!(resources.oom_score_adj, 750);
    }
}
