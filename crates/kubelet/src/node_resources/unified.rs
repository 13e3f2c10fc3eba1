//! What containers are told by files of cgroup v2 that CRI has no fields for: whether one of their processes dies alone for
//! lack of memory, and how much of them may be swapped. Pure but for [`Unified::of_host`].
//!
//! Source: `generateLinuxContainerResources`, `swapConfigurationHelper` of upstream's `pkg/kubelet/kuberuntime`; KEP-2400.

use std::collections::BTreeMap;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use sys::cgroup::{Cgroups, Version};

use crate::config::{Config, SwapBehavior};
use crate::machine::Machine;
use crate::pod::identity::is_critical;
use crate::pod::qos::{QosClass, class_of};
use crate::pod::quantity;
use crate::pod::resize::resizable;

/// Whether the kernel kills all processes of a container together.
const OOM_GROUP: &str = "memory.oom.group";
/// Bytes that may be swapped.
const SWAP_MAX: &str = "memory.swap.max";

/// What is the same for all containers of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unified {
    kills_together: bool,
    /// `None` where the kernel does not limit swap.
    swap: Option<Swap>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Swap {
    behavior: SwapBehavior,
    /// Bytes of the node.
    memory: i64,
    /// Bytes of the node.
    swap: i64,
}

/// v1 cannot end all processes of a container together; in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error("singleProcessOOMKill must not be explicitly set to false when using cgroup v1")]
pub(crate) struct NeedsCgroupV2;

impl Unified {
    /// Of v1 there is nothing. Blocking.
    ///
    /// # Errors
    /// In upstream's words: v1 cannot do what is wanted.
    pub(crate) fn of_host(config: &Config, machine: &Machine) -> Result<Self, NeedsCgroupV2> {
        let cgroups = Cgroups::detect().ok();
        let is_v2 = cgroups.as_ref().is_some_and(|cgroups| cgroups.version() == Version::V2);
        if !is_v2 && config.single_process_oom_kill == Some(false) {
            return Err(NeedsCgroupV2);
        }
        let has_swap = |cgroups: Cgroups| {
            // The root has none: whatever is below it does.
            let root = cgroups.dir_of("memory", "/")?;
            let mut folders = std::fs::read_dir(root).ok()?.flatten().map(|entry| entry.path());
            Some(folders.any(|folder| folder.join(SWAP_MAX).exists()))
        };
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let swap = Swap {
            behavior: config.swap_behavior,
            memory: number(machine.memory),
            swap: number(machine.swap),
        };
        let has_swap = cgroups.filter(|_| is_v2).and_then(has_swap).unwrap_or(false);
        Ok(Self {
            kills_together: is_v2 && !config.single_process_oom_kill.unwrap_or(false),
            swap: has_swap.then_some(swap),
        })
    }

    /// Adds what this container is told.
    pub(crate) fn add(&self, pod: &Pod, container: &Container, resources: &mut v1::LinuxContainerResources) {
        if self.kills_together {
            resources.unified.insert(OOM_GROUP.to_owned(), "1".to_owned());
        }
        if let Some(swap) = &self.swap {
            resources.unified.insert(SWAP_MAX.to_owned(), swap.of(pod, container).to_string());
        }
    }
}

impl Unified {
    /// Whether a resize changes how much of a container may be swapped, without a restart, at which it is counted anew.
    ///
    /// Source: `disallowResizeForSwappableContainers` of upstream's `pkg/kubelet/allocation`.
    pub(crate) fn is_swap_resized(&self, before: &Pod, after: &Pod) -> bool {
        fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
            pod.spec.iter().flat_map(resizable)
        }
        let Some(swap) = &self.swap else { return false };
        let restarts = |container: &Container| {
            let mut policies = container.resize_policy.iter().flatten();
            policies
                .any(|policy| policy.resource_name == "memory" && policy.restart_policy == "RestartContainer")
        };
        containers(before).filter(|own| !restarts(own)).any(|own| {
            let new = containers(after).find(|new| new.name == own.name);
            new.is_some_and(|new| {
                memory_of(own).0 != memory_of(new).0
                    && (swap.is_given(before, own) || swap.is_given(after, new))
            })
        })
    }
}

/// A container's memory: what it asks for, and what it may have.
fn memory_of(container: &Container) -> (Option<i64>, Option<i64>) {
    let resources = container.resources.as_ref();
    let memory = |list: Option<&BTreeMap<String, Quantity>>| list?.get("memory").map(quantity::whole);
    (
        memory(resources.and_then(|resources| resources.requests.as_ref())),
        memory(resources.and_then(|resources| resources.limits.as_ref())),
    )
}

impl Swap {
    /// Only those of Burstable Pods that may have more than they ask for.
    fn is_given(&self, pod: &Pod, container: &Container) -> bool {
        let class = pod.spec.as_ref().map_or(QosClass::BestEffort, class_of);
        let (request, limit) = memory_of(container);
        self.behavior == SwapBehavior::Limited
            && class == QosClass::Burstable
            && !is_critical(pod)
            && request != limit
    }

    /// As much of the swap as the container asks for of the memory.
    fn of(&self, pod: &Pod, container: &Container) -> i64 {
        if !self.is_given(pod, container) {
            return 0;
        }
        let request = memory_of(container).0.unwrap_or(0);
        let share = i128::from(request) * i128::from(self.swap) / i128::from(self.memory.max(1));
        i64::try_from(share).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    fn check(behavior: SwapBehavior, spec: &str, expect: i64) {
        let swap = Swap { behavior, memory: 80 * GIB, swap: 4 * GIB };
        let unified = Unified { kills_together: true, swap: Some(swap) };
        let pod: Pod = serde_saphyr::from_str(&format!("{{spec: {spec}}}")).unwrap();
        let mut resources = v1::LinuxContainerResources::default();
        unified.add(&pod, &pod.spec.as_ref().unwrap().containers[0], &mut resources);
        assert_eq!(resources.unified[SWAP_MAX], expect.to_string(), "{behavior:?} {spec}");
        assert_eq!(resources.unified[OOM_GROUP], "1");
    }

    #[test]
    fn only_burstable_containers_that_may_have_more_than_they_ask_for_swap_and_only_if_that_is_wanted() {
        use SwapBehavior::{Limited, None};
        let of = |resources: &str| format!("{{containers: [{{name: a, resources: {resources}}}]}}");
        let burstable = of("{requests: {memory: 1Gi}}");
        check(Limited, &burstable, 53_687_091);
        check(None, &burstable, 0);
        check(Limited, &of("{requests: {memory: 1Gi}, limits: {memory: 2Gi}}"), 53_687_091);
        check(Limited, &of("{requests: {memory: 1Gi, cpu: '1'}, limits: {memory: 1Gi, cpu: '2'}}"), 0);
        check(Limited, &of("{requests: {cpu: '1'}}"), 0);
        check(Limited, &of("{}"), 0);
        let guaranteed = "{cpu: '1', memory: 1Gi}";
        check(Limited, &of(&format!("{{requests: {guaranteed}, limits: {guaranteed}}}")), 0);
        check(Limited, &burstable.replacen('{', "{priority: 2000000000, ", 1), 0);
    }

    #[test]
    fn swap_is_not_resized_while_a_container_runs() {
        use SwapBehavior::{Limited, None};
        let pod = |resources: &str, policy: &str| -> Pod {
            let policies = format!("resizePolicy: [{{resourceName: memory, restartPolicy: {policy}}}]");
            let text = format!("{{spec: {{containers: [{{name: a, resources: {resources}, {policies}}}]}}}}");
            serde_saphyr::from_str(&text).unwrap()
        };
        let (one, two) = ("{requests: {memory: 1Gi}}", "{requests: {memory: 2Gi}}");
        let limited = "{requests: {memory: 1Gi}, limits: {memory: 2Gi}}";
        let guaranteed = |memory: &str| {
            format!("{{requests: {{cpu: 1, memory: {memory}}}, limits: {{cpu: 1, memory: {memory}}}}}")
        };
        for (before, after, policy, behavior, expect) in [
            (one, two, "NotRequired", Limited, true),
            (one, two, "RestartContainer", Limited, false),
            (one, two, "NotRequired", None, false),
            (one, limited, "NotRequired", Limited, false),
            (one, "{requests: {memory: 1Gi, cpu: '1'}}", "NotRequired", Limited, false),
            (&guaranteed("1Gi"), &guaranteed("2Gi"), "NotRequired", Limited, false),
        ] {
            let swap = Swap { behavior, memory: 80 * GIB, swap: 4 * GIB };
            let unified = Unified { kills_together: true, swap: Some(swap) };
            let (before, after) = (pod(before, policy), pod(after, policy));
            assert_eq!(unified.is_swap_resized(&before, &after), expect, "{before:?} {after:?}");
            assert!(!Unified::default().is_swap_resized(&before, &after));
        }
    }

    #[test]
    fn a_kernel_that_cannot_is_told_nothing() {
        let pod: Pod = serde_saphyr::from_str("{spec: {containers: [{name: a}]}}").unwrap();
        let mut resources = v1::LinuxContainerResources::default();
        Unified::default().add(&pod, &pod.spec.as_ref().unwrap().containers[0], &mut resources);
        assert!(resources.unified.is_empty());
    }
}
