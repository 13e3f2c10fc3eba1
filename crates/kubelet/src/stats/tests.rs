//! What is looked at: what is up, and how much of a CPU it uses.

use super::*;

#[test]
fn a_rate_is_what_was_used_between_two_looks() {
    let look = |at: i64, node: u64, pod: u64| Look {
        at: at * 1_000_000_000,
        node: Usage { cpu_ns: node, ..Usage::default() },
        pods: vec![PodStats {
            cgroup: "/p".into(),
            usage: Usage { cpu_ns: pod, ..Usage::default() },
            ..PodStats::default()
        }],
        ..Look::default()
    };
    let found = rates(&look(10, 5_000, 100), &look(12, 4_000_005_000, 50));
    assert_eq!(found.get(NODE), Some(&2_000_000_000), "two CPUs");
    assert_eq!(found.get("/p"), None, "it was started again in between");
}

fn sandbox(id: &str, name: &str, is_ready: bool) -> v1::PodSandbox {
    let metadata = v1::PodSandboxMetadata {
        name: name.into(),
        namespace: "ns".into(),
        uid: format!("u-{name}"),
        attempt: 0,
    };
    let state =
        if is_ready { v1::PodSandboxState::SandboxReady } else { v1::PodSandboxState::SandboxNotready };
    v1::PodSandbox {
        id: id.into(),
        metadata: Some(metadata),
        state: state.into(),
        created_at: 7,
        ..v1::PodSandbox::default()
    }
}

fn container(id: &str, sandbox: &str, name: &str, state: v1::ContainerState) -> v1::Container {
    v1::Container {
        id: id.into(),
        pod_sandbox_id: sandbox.into(),
        labels: [(labels::CONTAINER_NAME.to_owned(), name.to_owned())].into(),
        image: Some(v1::ImageSpec { image: "sha256:1".into(), ..v1::ImageSpec::default() }),
        state: state.into(),
        created_at: 8,
        ..v1::Container::default()
    }
}

/// Source: `TestCRIListPodStats` of upstream's `pkg/kubelet/stats`, as to which are listed.
#[test]
fn what_is_up_is_listed_and_nothing_that_has_ended() {
    use v1::ContainerState::{
        ContainerCreated as Created, ContainerExited as Exited, ContainerRunning as Running,
    };
    for (name, sandboxes, containers, expect) in [
        ("nothing", vec![], vec![], ""),
        ("a sandbox without containers", vec![sandbox("s1", "web", true)], vec![], "s1=ns/web/u-web:"),
        (
            "a sandbox that is down",
            vec![sandbox("s1", "web", false)],
            vec![container("c1", "s1", "a", Running)],
            "",
        ),
        (
            "two containers in order of their names",
            vec![sandbox("s1", "web", true)],
            vec![container("c1", "s1", "b", Running), container("c2", "s1", "a", Running)],
            "s1=ns/web/u-web:a@c2,b@c1",
        ),
        (
            "one that was started again",
            vec![sandbox("s1", "web", true)],
            vec![container("c1", "s1", "a", Exited), container("c2", "s1", "a", Running)],
            "s1=ns/web/u-web:a@c2",
        ),
        (
            "one that was made and one that has ended",
            vec![sandbox("s1", "web", true)],
            vec![container("c1", "s1", "a", Created), container("c2", "s1", "b", Exited)],
            "s1=ns/web/u-web:",
        ),
        (
            "a sandbox in another's place",
            vec![sandbox("s1", "web", false), sandbox("s2", "web", true)],
            vec![container("c1", "s1", "a", Exited), container("c2", "s2", "a", Running)],
            "s2=ns/web/u-web:a@c2",
        ),
        (
            "two Pods",
            vec![sandbox("s1", "web", true), sandbox("s2", "db", true)],
            vec![container("c1", "s2", "a", Running), container("c2", "s1", "a", Running)],
            "s1=ns/web/u-web:a@c2 s2=ns/db/u-db:a@c1",
        ),
        (
            "a container of nobody",
            vec![sandbox("s1", "web", true)],
            vec![container("c1", "s9", "a", Running)],
            "s1=ns/web/u-web:",
        ),
    ] {
        let pods = pods_of(sandboxes, containers);
        let shown = pods.iter().map(|(id, pod)| {
            assert_eq!(pod.created_at, 7);
            let own: Vec<String> =
                pod.containers.iter().map(|own| format!("{}@{}", own.name, own.id)).collect();
            format!("{id}={}/{}/{}:{}", pod.namespace, pod.name, pod.uid, own.join(","))
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expect, "{name}");
    }
}

#[test]
fn a_containers_image_is_what_the_user_has_named() {
    let mut container = container("c1", "s1", "a", v1::ContainerState::ContainerRunning);
    let image = |container: &v1::Container| {
        let pods = pods_of(vec![sandbox("s1", "web", true)], vec![container.clone()]);
        pods["s1"].containers[0].image.clone()
    };
    assert_eq!(image(&container), "sha256:1");
    container.image =
        Some(v1::ImageSpec { user_specified_image: "app:1".into(), ..container.image.unwrap() });
    assert_eq!(image(&container), "app:1");
    container.image = None;
    assert_eq!(image(&container), "");
    container.labels.clear();
    assert_eq!(pods_of(vec![sandbox("s1", "web", true)], vec![container])["s1"].containers[0].name, "");
}

/// Source: `TestGetContainerUsageNanoCores` of upstream's `pkg/kubelet/stats`.
#[test]
fn rates_are_of_what_was_there_before() {
    let look = |at: i64, counters: &[(&str, u64)]| Look {
        at,
        pods: vec![PodStats {
            cgroup: "/pod".into(),
            containers: counters
                .iter()
                .map(|(name, cpu_ns)| ContainerStats {
                    cgroup: (*name).into(),
                    usage: Usage { cpu_ns: *cpu_ns, ..Usage::default() },
                    ..ContainerStats::default()
                })
                .collect(),
            ..PodStats::default()
        }],
        ..Look::default()
    };
    let second = 1_000_000_000;
    for (name, before, now, expect) in [
        (
            "half a CPU",
            look(0, &[("/a", 100)]),
            look(2 * second, &[("/a", 100 + 1_000_000_000)]),
            Some(500_000_000),
        ),
        ("nothing", look(0, &[("/a", 100)]), look(second, &[("/a", 100)]), Some(0)),
        ("it was not there", look(0, &[]), look(second, &[("/a", 100)]), None),
        ("its counter began anew", look(0, &[("/a", 100)]), look(second, &[("/a", 99)]), None),
        ("no time has passed", look(5, &[("/a", 0)]), look(5, &[("/a", 3)]), Some(3_000_000_000)),
        ("the clock went back", look(5, &[("/a", 0)]), look(1, &[("/a", 3)]), Some(3_000_000_000)),
        ("more than can be", look(0, &[("/a", 0)]), look(1, &[("/a", u64::MAX)]), None),
    ] {
        assert_eq!(rates(&before, &now).get("/a").copied(), expect, "{name}");
    }
}
