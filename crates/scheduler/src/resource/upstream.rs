//! The cases of upstream's `component-helpers/resource/helpers_test.go`.

use super::*;
use crate::transform::parse;

/// Container or init container: `AMOUNTS`, or `AMOUNTS always` for one that goes on.
fn containers(all: &[&str]) -> String {
    let one = |(index, text): (usize, &&str)| {
        let (amounts, policy) = match text.strip_suffix(" always") {
            Some(amounts) => (amounts, ", restartPolicy: Always"),
            None => (*text, ""),
        };
        format!("{{name: c{index}, resources: {{requests: {{{amounts}}}}}{policy}}}")
    };
    all.iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
}

/// Init containers, containers, what else the Pod says, and what it asks for in all: millicores, bytes, others.
type PodRow =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static str, (i64, i64, &'static str));

const PODS: &[PodRow] = &[
    ("nothing", &[], &[""], "", (0, 0, "")),
    ("a larger init container", &["cpu: 9"], &["cpu: 1"], "", (9_000, 0, "")),
    ("larger containers", &["cpu: 9"], &["cpu: 1", "cpu: 8", "cpu: 2"], "", (11_000, 0, "")),
    ("each resource for itself", &["cpu: 9, memory: 1"], &["cpu: 1, memory: 8"], "", (9_000, 8, "")),
    (
        "with overhead",
        &[],
        &["cpu: 3", "cpu: 3, memory: 5"],
        "overhead: {cpu: 500m, memory: 7}",
        (6_500, 12, ""),
    ),
    (
        "overhead and a massive init container",
        &["cpu: 8, memory: 12"],
        &["cpu: 1, memory: 5", "cpu: 2, memory: 6"],
        "overhead: {cpu: 5, memory: 5}",
        (13_000, 17, ""),
    ),
    ("one that goes on", &["cpu: 1 always"], &["cpu: 1"], "", (2_000, 0, "")),
    (
        "several that go on",
        &["cpu: 1, memory: 5 always", "cpu: 1, memory: 2 always", "cpu: 2, memory: 2 always"],
        &["cpu: 1"],
        "",
        (5_000, 9, ""),
    ),
    (
        "init containers with those that go on before them",
        &["cpu: 5", "cpu: 1 always", "cpu: 2 always", "cpu: 1", "cpu: 3 always"],
        &["cpu: 1"],
        "",
        (7_000, 0, ""),
    ),
    (
        "an init container that comes last and needs more than all others",
        &["cpu: 1 always", "cpu: 2 always", "cpu: 100"],
        &["cpu: 5"],
        "",
        (103_000, 0, ""),
    ),
    (
        "the whole says memory",
        &[],
        &["cpu: 1, memory: 100"],
        "resources: {requests: {memory: 7}}",
        (1_000, 7, ""),
    ),
    (
        "the whole says it for init containers, too",
        &["cpu: 100 always", "cpu: 200"],
        &["cpu: 1"],
        "resources: {requests: {cpu: 2}}",
        (2_000, 0, ""),
    ),
    (
        "what nobody says as a whole adds up",
        &[],
        &["ephemeral-storage: 4", "ephemeral-storage: 3"],
        "resources: {requests: {ephemeral-storage: 99}}",
        (0, 0, "ephemeral-storage=7"),
    ),
    (
        "large pages of the whole",
        &[],
        &["hugepages-2Mi: 4Mi"],
        "resources: {requests: {cpu: 1, hugepages-2Mi: 10Mi, hugepages-1Gi: 2Gi}}",
        (1_000, 0, "hugepages-1Gi=2147483648 hugepages-2Mi=10485760"),
    ),
    (
        "large pages of containers beside those of the whole",
        &[],
        &["hugepages-2Mi: 4Mi", "hugepages-2Mi: 2Mi"],
        "resources: {requests: {hugepages-1Gi: 1Gi}}",
        (0, 0, "hugepages-1Gi=1073741824 hugepages-2Mi=6291456"),
    ),
    (
        "devices",
        &["example.com/gpu: 3"],
        &["example.com/gpu: 1", "example.com/gpu: 1, example.com/nic: 5"],
        "",
        (0, 0, "example.com/gpu=3 example.com/nic=5"),
    ),
    (
        "thousandths of a core and parts of a byte",
        &[],
        &["cpu: 1m, memory: 1500m", "cpu: 500u"],
        "",
        (2, 2, ""),
    ),
    (
        "as much as can be written",
        &[],
        &["cpu: 9E, memory: 9E", "cpu: 9E, memory: 9E"],
        "",
        (i64::MAX, i64::MAX, ""),
    ),
];

#[test]
fn what_a_pod_asks_for_is_upstreams() {
    for &(name, init, of_pod, more, (milli_cpu, memory, others)) in PODS {
        let more = if more.is_empty() { String::new() } else { format!(", {more}") };
        let pod: Pod = parse(&format!(
            "{{spec: {{initContainers: [{}], containers: [{}]{more}}}}}",
            containers(init),
            containers(of_pod)
        ));
        let found = pod_requests(&pod);
        let mut scalar: Vec<_> =
            found.scalar.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        if found.ephemeral_storage != 0 {
            scalar.push(format!("ephemeral-storage={}", found.ephemeral_storage));
        }
        assert_eq!(
            (found.milli_cpu, found.memory, scalar.join(" ").as_str()),
            (milli_cpu, memory, others),
            "{name}"
        );
    }
}
