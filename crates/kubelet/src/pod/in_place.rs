//! What of running containers is not as their spec has it, and whether it can change while they run. Pure.

use cri::v1;
use k8s_openapi::api::core::v1::{Container as ContainerSpec, PodSpec};

use super::qos;
use super::resize::resizable;
use super::snapshot::{Container, PodSnapshot};

/// What of a running container's cgroup is not as its spec has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// What the kernel is to have.
    pub resources: v1::LinuxContainerResources,
    /// The container must be restarted for it. Source: `Container.resizePolicy`.
    pub needs_restart: bool,
}

/// Compares the container with its spec; `None` if nothing has to be done, or the runtime does not say what it has.
pub fn difference(pod: &PodSpec, spec: &ContainerSpec, container: &Container) -> Option<Difference> {
    let actual = container.resources.as_ref()?;
    let wanted = qos::container_resources(pod, spec, 1);
    // Who has CPUs alone, or all if nobody is to have one, has no quota, whatever its limit.
    let has_no_quota = actual.cpu_quota == qos::UNLIMITED_QUOTA;
    let cpu =
        wanted.cpu_shares != actual.cpu_shares || (wanted.cpu_quota != actual.cpu_quota && !has_no_quota);
    let memory = wanted.memory_limit_in_bytes != actual.memory_limit_in_bytes;
    if !container.is_running() || !(cpu || memory) {
        return None;
    }
    let restarts = |name: &str| {
        let policies = spec.resize_policy.iter().flatten();
        policies.into_iter().any(|p| p.resource_name == name && p.restart_policy == "RestartContainer")
    };
    let needs_restart = (cpu && restarts("cpu")) || (memory && restarts("memory"));
    let cpu_quota = if has_no_quota { qos::UNLIMITED_QUOTA } else { wanted.cpu_quota };
    let resources = v1::LinuxContainerResources { oom_score_adj: actual.oom_score_adj, cpu_quota, ..wanted };
    Some(Difference { resources, needs_restart })
}

/// Every running container whose cgroup is not as its spec has it.
pub fn differences(snapshot: &PodSnapshot) -> Vec<(&ContainerSpec, &Container, Difference)> {
    let spec = snapshot.spec();
    resizable(spec)
        .filter_map(|one| {
            let container = snapshot.current(&one.name)?;
            Some((one, container, difference(spec, one, container)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::snapshot::ContainerState;

    /// Source: `TestComputePodActionsForPodResize` of upstream's `pkg/kubelet/kuberuntime`. There a container is restarted for
    /// another request of memory, too, if its policy is to be restarted for memory: the kernel knows nothing of requests.
    #[test]
    fn what_changes_in_place_is_as_the_policies_say() {
        const CPU: &str = "{resourceName: cpu, restartPolicy: RestartContainer}";
        const MEMORY: &str = "{resourceName: memory, restartPolicy: RestartContainer}";
        const NEITHER: &str = "{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: NotRequired}";
        let limits = |cpu: &str, memory: &str| format!("limits: {{cpu: {cpu}, memory: {memory}}}");
        let (small, large) = (limits("100m", "100Mi"), limits("200m", "200Mi"));
        let (more_cpu, more_memory) = (limits("200m", "100Mi"), limits("100m", "200Mi"));
        let asks = |cpu: &str| format!("requests: {{cpu: {cpu}, memory: 100Mi}}, {large}");
        for (name, policies, before, now, expect) in [
            ("nothing", NEITHER, &*small, &*small, "-"),
            ("nothing of nothing", "", "", "", "-"),
            ("both", NEITHER, &small, &large, "in place"),
            ("both, and nobody says", "", &small, &large, "in place"),
            ("less", NEITHER, &large, &small, "in place"),
            ("CPU", NEITHER, &small, &more_cpu, "in place"),
            ("memory", NEITHER, &small, &more_memory, "in place"),
            ("both, of which CPU restarts", CPU, &small, &large, "restart"),
            ("both, of which memory restarts", MEMORY, &small, &large, "restart"),
            ("memory, and CPU would restart", CPU, &small, &more_memory, "in place"),
            ("CPU, and memory would restart", MEMORY, &small, &more_cpu, "in place"),
            ("a request of CPU", NEITHER, &asks("100m"), &asks("150m"), "in place"),
            ("a request of CPU that restarts", CPU, &asks("100m"), &asks("150m"), "restart"),
            ("requests that weigh the same", CPU, &asks("1m"), &asks("2m"), "-"),
            ("limits are added", NEITHER, "requests: {cpu: 100m}", &small, "in place"),
            ("limits are taken", NEITHER, &small, "requests: {cpu: 100m}", "in place"),
        ] {
            let pod = |resources: &str| -> PodSpec {
                let text = format!(
                    "{{containers: [{{name: a, resizePolicy: [{policies}], resources: {{{resources}}}}}]}}"
                );
                serde_saphyr::from_str(&text).unwrap()
            };
            let (before, now) = (pod(before), pod(now));
            let mut container = Container::from_cri(&v1::ContainerStatus::default(), "sandbox");
            container.state = ContainerState::Running { started_at: jiff::Timestamp::UNIX_EPOCH };
            container.resources = Some(qos::container_resources(&before, &before.containers[0], 1));
            let found = difference(&now, &now.containers[0], &container);
            let shown = |found: Option<Difference>| match found.map(|difference| difference.needs_restart) {
                None => "-",
                Some(true) => "restart",
                Some(false) => "in place",
            };
            assert_eq!(shown(found), expect, "{name}");
            container.state = ContainerState::Exited(Default::default());
            assert_eq!(difference(&now, &now.containers[0], &container), None, "{name}: it does not run");
        }
    }
}
