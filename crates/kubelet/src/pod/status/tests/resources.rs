//! Upstream's cases for what containers have: `TestConvertToAPIContainerStatusesForResources` of its `pkg/kubelet`,
//! `TestToKubeContainerStatusWithResources`, `TestSharesToMilliCPU` and `TestQuotaToMilliCPU` of `pkg/kubelet/kuberuntime`.

use cri::v1;

use super::*;

/// What the runtime tells, in words: shares, quota in thousandths of a CPU, and bytes.
fn told(text: &str) -> Option<v1::LinuxContainerResources> {
    let mut told = v1::LinuxContainerResources { cpu_period: 100_000, ..Default::default() };
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap();
        let value: i64 = value.parse().unwrap();
        match name {
            "request" => told.cpu_shares = (value * 1024 / 1000).max(2),
            "limit" => told.cpu_quota = value * 100,
            "memory" => told.memory_limit_in_bytes = value,
            other => panic!("{other}"),
        }
    }
    (!text.is_empty()).then_some(told)
}

/// What the status tells of a container that is to have `agreed`.
fn shown(agreed: &str, runtime: &str, state: &str, before: &str) -> String {
    let pod = format!(
        "{{metadata: {{name: web, namespace: shop, uid: u1}}, spec: {{containers: [{{name: a, image: img, resources: {agreed}}}]}}, \
         status: {{containerStatuses: [{{name: a, image: img, imageID: i, ready: false, restartCount: 0, {before}}}]}}}}"
    );
    let mut snapshot = snapshot(&pod);
    let state = match state {
        "made" => ContainerState::Created,
        "ended" => ContainerState::Exited(Exit::default()),
        _ => ContainerState::Running { started_at: at(1) },
    };
    snapshot.sandboxes.push(Sandbox { id: "sb".into(), is_ready: true, ..Sandbox::default() });
    snapshot.containers.push(Container { resources: told(runtime), ..container("1", "a", "sb", state) });
    let statuses = pod_status(&snapshot, &node(), at(9)).container_statuses.unwrap();
    serde_json::to_string(&statuses[0].resources).unwrap()
}

const GI: i64 = 1 << 30;

#[test]
fn a_container_has_what_the_kernel_was_told_of() {
    const ONE: &str = "{limits: {cpu: '1', memory: 1Gi}, requests: {cpu: '1', memory: 1Gi}}";
    const TWO: &str = "{limits: {cpu: '2', memory: 2Gi}, requests: {cpu: '2', memory: 2Gi}}";
    const RAN_ONE: &str = "containerID: 'knarr://1', state: {running: {}}, resources: {limits: {cpu: '1', memory: 1Gi}, requests: {cpu: '1', memory: 1Gi}}";
    const OTHER_RAN: &str = "containerID: 'knarr://0', state: {running: {}}, resources: {limits: {cpu: '1', memory: 1Gi}, requests: {cpu: '1', memory: 1Gi}}";
    let one = format!("request=1000 limit=1000 memory={GI}");
    let two = format!("request=2000 limit=2000 memory={}", 2 * GI);
    let of = |cpu: &str, memory: &str| {
        format!(
            r#"{{"limits":{{"cpu":"{cpu}","memory":"{memory}"}},"requests":{{"cpu":"{cpu}","memory":"{memory}"}}}}"#
        )
    };
    for (name, agreed, runtime, state, before, expect) in [
        ("all as agreed", ONE, &*one, "runs", RAN_ONE, of("1", "1Gi")),
        ("nothing is told", TWO, "", "runs", RAN_ONE, of("2", "2Gi")),
        ("a new container", TWO, &*two, "made", "state: {waiting: {}}", of("2", "2Gi")),
        ("one that runs now", TWO, &*two, "runs", "state: {waiting: {}}", of("2", "2Gi")),
        ("one that has ended", TWO, &*one, "ended", RAN_ONE, of("2", "2Gi")),
        ("a resize that was not begun", TWO, &*one, "runs", RAN_ONE, of("1", "1Gi")),
        ("a resize that is done", TWO, &*two, "runs", RAN_ONE, of("2", "2Gi")),
        (
            "half of one",
            TWO,
            &format!("request=2000 limit=2000 memory={GI}"),
            "runs",
            RAN_ONE,
            r#"{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"2","memory":"1Gi"}}"#.to_owned(),
        ),
        (
            "the other half",
            TWO,
            &format!("request=1000 limit=1000 memory={}", 2 * GI),
            "runs",
            RAN_ONE,
            r#"{"limits":{"cpu":"1","memory":"2Gi"},"requests":{"cpu":"1","memory":"1Gi"}}"#.to_owned(),
        ),
        (
            "what is not told is as before",
            TWO,
            "request=2000",
            "runs",
            RAN_ONE,
            r#"{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"2","memory":"1Gi"}}"#.to_owned(),
        ),
        (
            "unless that was another container",
            TWO,
            "request=1000",
            "runs",
            OTHER_RAN,
            r#"{"limits":{"cpu":"2","memory":"2Gi"},"requests":{"cpu":"1","memory":"2Gi"}}"#.to_owned(),
        ),
        (
            "odd amounts",
            TWO,
            "request=1500 limit=333 memory=1000000",
            "runs",
            RAN_ONE,
            r#"{"limits":{"cpu":"333m","memory":"1000000"},"requests":{"cpu":"1500m","memory":"1Gi"}}"#
                .to_owned(),
        ),
    ] {
        assert_eq!(shown(agreed, runtime, state, before), expect, "{name}");
    }
}

#[test]
fn what_is_too_little_for_the_kernel_and_what_it_knows_nothing_of_is_as_agreed() {
    const RAN: &str = "containerID: 'knarr://1', state: {running: {}}, resources: {}";
    for (name, agreed, runtime, expect) in [
        ("nothing at all", "{}", "request=2", "{}"),
        ("memory alone", "{requests: {memory: 100M}}", "request=2", r#"{"requests":{"memory":"100M"}}"#),
        (
            "below the least CPU",
            "{requests: {cpu: 1m, memory: 100M}, limits: {cpu: 5m}}",
            "request=2 limit=10",
            r#"{"limits":{"cpu":"5m"},"requests":{"cpu":"1m","memory":"100M"}}"#,
        ),
        (
            "just above it",
            "{requests: {cpu: 3m}, limits: {cpu: 11m}}",
            "request=3 limit=11",
            r#"{"limits":{"cpu":"11m"},"requests":{"cpu":"3m"}}"#,
        ),
        (
            "devices and disk",
            "{requests: {x.example/d: '1', ephemeral-storage: 2Gi, cpu: '1'}, limits: {x.example/d: '1'}}",
            "request=1000",
            r#"{"limits":{"x.example/d":"1"},"requests":{"cpu":"1","ephemeral-storage":"2Gi","x.example/d":"1"}}"#,
        ),
        (
            "the same in other words",
            "{requests: {cpu: '0.5'}, limits: {memory: 1024Mi}}",
            "request=500 memory=1073741824",
            r#"{"limits":{"memory":"1024Mi"},"requests":{"cpu":"0.5"}}"#,
        ),
    ] {
        assert_eq!(shown(agreed, runtime, "runs", RAN), expect, "{name}");
    }
    // As they were rounded down, shares are rounded up.
    for milli in (2..=5000).step_by(7) {
        let agreed = format!("{{requests: {{cpu: {milli}m}}}}");
        let found = shown(&agreed, &format!("request={milli}"), "runs", RAN);
        assert_eq!(found, format!(r#"{{"requests":{{"cpu":"{milli}m"}}}}"#));
    }
}
