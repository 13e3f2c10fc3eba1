//! Pods of which only the runtime knows.

use super::*;

/// Source: `ToAPIPod` of upstream's `pkg/kubelet/container`, `runtime_test.go`.
#[test]
fn a_pod_that_only_the_runtime_knows_has_its_names_and_containers() {
    let container = |name: &str, id: &str| {
        let status = v1::ContainerStatus {
            id: id.into(),
            metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
            ..v1::ContainerStatus::default()
        };
        snapshot::Container::from_cri(&status, "s")
    };
    let metadata =
        v1::PodSandboxMetadata { name: "web".into(), namespace: "shop".into(), uid: "u".into(), attempt: 3 };
    for (given, expect) in [
        (vec![], &[][..]),
        (vec![container("a", "1")], &["a"]),
        (vec![container("b", "1"), container("a", "2"), container("b", "3")], &["a", "b"]),
    ] {
        let pod = stand_in(&metadata, &given);
        assert_eq!(crate::pod::identity::identity(&pod), ("web".into(), "shop".into(), "u".into()));
        let spec = pod.spec.unwrap();
        let names: Vec<&str> = spec.containers.iter().map(|container| container.name.as_str()).collect();
        assert_eq!(names, expect, "each once");
        assert!(pod.status.is_none() && spec.volumes.is_none() && spec.restart_policy.is_none());
    }
}
