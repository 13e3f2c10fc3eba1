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
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::pod::resize::tests::pod;
    use crate::pod::snapshot::ContainerState;

    #[test]
    fn cpu_changes_in_place_and_memory_by_its_policy() {
        let old = pod("100m", "1Gi");
        let old_spec = old.spec.unwrap();
        let container = Container {
            id: "1".into(),
            name: "a".into(),
            sandbox_id: String::new(),
            attempt: 0,
            state: ContainerState::Running { started_at: jiff::Timestamp::UNIX_EPOCH },
            image: String::new(),
            image_ref: String::new(),
            hash: String::new(),
            user: None,
            resources: Some(qos::container_resources(&old_spec, &old_spec.containers[0], 1)),
            recursive_mounts: Vec::new(),
        };
        let check = |new: Pod, expect: Option<bool>| {
            let spec = new.spec.unwrap();
            let found = difference(&spec, &spec.containers[0], &container);
            assert_eq!(found.map(|difference| difference.needs_restart), expect);
        };
        check(pod("100m", "1Gi"), None);
        check(pod("200m", "1Gi"), Some(false));
        check(pod("100m", "2Gi"), Some(true));
    }
}
