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
        ("each has the other half", "", &["limits: {cpu: 100m}", "limits: {memory: 100Mi}"], &[], Burstable),
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
            let all: Vec<_> = all.iter().map(|one| format!("{{name: c, resources: {{{one}}}}}")).collect();
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

/// Source: `TestApplySandboxResources` and `TestCalculateLinuxResources` of upstream's `pkg/kubelet/kuberuntime`.
#[test]
fn a_sandbox_is_told_what_its_containers_may_have_and_what_it_takes_itself() {
    const BOTH: &str = "requests: {cpu: '2', memory: 128Mi}, limits: {cpu: '4', memory: 256Mi}";
    const MEMORY: &str = "requests: {memory: 128Mi}, limits: {memory: 256Mi}";
    const TAKES: &str = "{cpu: '1', memory: 128Mi}";
    // Shares, quota and bytes.
    for (name, pod, containers, takes, resources, itself) in [
        ("all", "", &[BOTH][..], TAKES, (2048, 400_000, 256), (1024, 100_000, 128)),
        ("memory alone", "", &[MEMORY], "", (2, 0, 256), (0, 0, 0)),
        ("one has no limit", "", &[BOTH, ""], "", (2048, 400_000, 256), (0, 0, 0)),
        ("a limit is a request", "", &["limits: {cpu: '2'}"], "", (2048, 200_000, 0), (0, 0, 0)),
        (
            "but for one of nothing",
            "",
            &["requests: {cpu: '0'}, limits: {cpu: '2'}"],
            "",
            (2, 200_000, 0),
            (0, 0, 0),
        ),
        ("the Pod's own", BOTH, &["", ""], TAKES, (2048, 400_000, 256), (1024, 100_000, 128)),
        ("it takes memory alone", "", &[""], "{memory: 128Mi}", (2, 0, 0), (2, 0, 128)),
    ] {
        let containers: Vec<_> =
            containers.iter().map(|one| format!("{{name: c, resources: {{{one}}}}}")).collect();
        let takes = if takes.is_empty() { String::new() } else { format!(", overhead: {takes}") };
        let text = format!("{{resources: {{{pod}}}, containers: [{}]{takes}}}", containers.join(", "));
        let spec = serde_saphyr::from_str(&text).unwrap();
        let shown = |found: &v1::LinuxContainerResources| {
            (found.cpu_shares, found.cpu_quota, found.memory_limit_in_bytes >> 20)
        };
        assert_eq!(shown(&sandbox_resources(&spec)), resources, "{name}");
        assert_eq!(shown(&sandbox_overhead(&spec)), itself, "{name}");
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

/// Source: `TestGetContainerOOMScoreAdjust` of upstream's `pkg/kubelet/qos`.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn who_is_killed_first_is_as_upstream_says() {
    const G: i64 = 1_000_000_000;
    const ALL: &str = "requests: {cpu: 5m, memory: 2G}, limits: {cpu: 5m, memory: 2G}";
    const MORE: &str = "requests: {cpu: 5m, memory: 2G}, limits: {cpu: 5m, memory: 2000001k}";
    let asks = |memory: &str| format!("requests: {{memory: {memory}}}");
    for (name, capacity, pod, init, mains, expect) in [
        ("a limit of CPU", 4 * G, "", vec![], vec!["limits: {cpu: '10'}".to_owned()], "999"),
        (
            "a limit of memory",
            8 * G,
            "",
            vec![],
            vec!["requests: {cpu: '0'}, limits: {memory: 10G}".into()],
            "999",
        ),
        ("of no memory", 7 * G, "", vec![], vec!["limits: {memory: '0'}".into()], "1000"),
        ("nothing", 4 * G, "", vec![], vec![String::new()], "1000"),
        (
            "as much as may be had",
            G / 8,
            "",
            vec![],
            vec!["requests: {memory: 10G, cpu: 5m}, limits: {memory: 10G, cpu: 5m}".into()],
            "-997",
        ),
        ("half of all", 8 * G, "", vec![], vec![asks("4G")], "500"),
        ("all but a byte", 8 * G, "", vec![], vec![asks("7999999999")], "3"),
        ("all there is, and more", 8 * G, "", vec![], vec![asks("9G")], "3"),
        ("next to nothing", 8 * G, "", vec![], vec![asks("1")], "999"),
        ("an init container", 8 * G, "", vec![asks("1G")], vec![asks("1G")], "875 875"),
        (
            "a sidecar like it",
            8 * G,
            "",
            vec![format!("restart {}", asks("1G"))],
            vec![asks("1G")],
            "875 875",
        ),
        (
            "a smaller sidecar",
            8 * G,
            "",
            vec![format!("restart {}", asks("400M"))],
            vec![asks("1G")],
            "875 875",
        ),
        ("a larger sidecar", 8 * G, "", vec![format!("restart {}", asks("4G"))], vec![asks("1G")], "500 875"),
        (
            "of two the one that asks for less",
            8 * G,
            "",
            vec!["restart ".into()],
            vec![asks("4G"), asks("1G")],
            "875 500 875",
        ),
        ("an init container is no sidecar", 8 * G, "", vec![String::new()], vec![asks("1G")], "999 875"),
        ("the Pod's own", 4 * G, ALL, vec![], vec![String::new(), String::new()], "-997 -997"),
        ("in equal parts", 4 * G, MORE, vec![], vec![String::new(), String::new()], "750 750"),
        ("all is asked for", 4 * G, MORE, vec![], vec![asks("1G"), asks("1G")], "750 750"),
        ("the rest in equal parts", 4 * G, MORE, vec![], vec![asks("1G"), String::new()], "625 875"),
        ("also a sidecar's", 4 * G, MORE, vec!["restart ".into()], vec![String::new()], "750 750"),
        (
            "beside what it asks for",
            4 * G,
            MORE,
            vec![format!("restart {}", asks("200M"))],
            vec![asks("1G"), asks("500M")],
            "850 725 850",
        ),
        ("an init container takes its turn", 4 * G, MORE, vec![asks("1G")], vec![asks("1G")], "625 625"),
    ] {
        let container = |(at, text): (usize, &String)| match text.strip_prefix("restart ") {
            Some(text) => format!("{{name: c{at}, restartPolicy: Always, resources: {{{text}}}}}"),
            None => format!("{{name: c{at}, resources: {{{text}}}}}"),
        };
        let all: Vec<_> = init.iter().chain(&mains).enumerate().map(container).collect();
        let (init, mains) = all.split_at(init.len());
        let text = format!(
            "{{resources: {{{pod}}}, initContainers: [{}], containers: [{}]}}",
            init.join(", "),
            mains.join(", ")
        );
        let spec: PodSpec = serde_saphyr::from_str(&text).unwrap();
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        let found: Vec<_> = all.map(|one| oom_score_adj(&spec, one, capacity).to_string()).collect();
        assert_eq!(found.join(" "), expect, "{name}");
    }
    let of_class = |class: &str| {
        let text = format!("{{priorityClassName: {class}, containers: [{{name: c}}]}}");
        let spec: PodSpec = serde_saphyr::from_str(&text).unwrap();
        oom_score_adj(&spec, &spec.containers[0], 4 * G)
    };
    assert_eq!(of_class("system-node-critical"), -997);
    assert_eq!(of_class("system-cluster-critical"), 1000);
}

#[test]
fn a_pods_cgroup_has_room_for_whatever_runs_at_once() {
    let amounts = |cpu: &str, memory: &str| {
        format!("{{requests: {{cpu: {cpu}, memory: {memory}}}, limits: {{cpu: {cpu}, memory: {memory}}}}}")
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
    let adjust = |index: usize| container_resources(&spec, &spec.containers[index], capacity).oom_score_adj;
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
