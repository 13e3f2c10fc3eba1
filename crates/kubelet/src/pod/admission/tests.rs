use super::*;

const NODE: &str =
    "{metadata: {name: n1, labels: {disk: ssd}}, spec: {taints: [{key: gone, effect: NoExecute}]}}";

fn check(pod: &str, pressure: &[&'static str], expect: Option<(&str, &str)>) {
    let pod: Pod = serde_saphyr::from_str(pod).unwrap();
    let node: Node = serde_saphyr::from_str(NODE).unwrap();
    let map = |pairs: &[(&str, i64)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
    let room = Room {
        allocatable: map(&[("cpu", 2000), ("memory", 1 << 30), ("pods", 2)]),
        used: map(&[("cpu", 1500), ("memory", 1 << 29), ("pods", 1)]),
        ports: vec![("TCP".into(), "0.0.0.0".into(), 80)],
    };
    let unsafe_sysctls = ["net.core.*".to_owned()];
    let question =
        Question { pod: &pod, node: &node, room: &room, pressure, unsafe_sysctls: &unsafe_sysctls };
    let expect = expect.map(|(reason, message)| Rejection { reason: reason.into(), message: message.into() });
    let refused = welcome(&question).err().or_else(|| match fits(&question) {
        Ok(()) => None,
        Err(misfit) => Some(misfit.into_rejection()),
    });
    assert_eq!(refused, expect, "{pod:?}");
}

fn spec(text: &str) -> String {
    format!("{{spec: {{tolerations: [{{operator: Exists}}], containers: [{{name: a}}], {text}}}}}")
}

#[test]
fn a_pod_that_fits_is_taken() {
    check(&spec("nodeSelector: {disk: ssd}"), &[], None);
    check(
        &spec("securityContext: {sysctls: [{name: net.core.somaxconn}, {name: net.ipv4.tcp_wmem}]}"),
        &[],
        None,
    );
}

#[test]
fn what_does_not_fit_is_refused_in_upstreams_words() {
    let asks = |resources: &str| {
        format!(
            "{{spec: {{tolerations: [{{operator: Exists}}], containers: [{{name: a, resources: {{requests: {resources}}}}}]}}}}"
        )
    };
    check(
        &asks("{cpu: '1'}"),
        &[],
        Some((
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000",
        )),
    );
    check(
        &asks("{memory: 1Gi}"),
        &[],
        Some((
            "OutOfmemory",
            "Node didn't have enough resource: memory, requested: 1073741824, used: 536870912, capacity: 1073741824",
        )),
    );
    let affinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    check(&spec("nodeSelector: {disk: hdd}"), &[], Some(("NodeAffinity", affinity)));
    check(
        &spec(
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [other]}]}]}}}",
        ),
        &[],
        Some(("NodeAffinity", affinity)),
    );
    check(
        "{spec: {containers: [{name: a}]}}",
        &[],
        Some((
            "TaintToleration",
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
        )),
    );
    check(
        "{spec: {tolerations: [{operator: Exists}], containers: [{name: a, ports: [{containerPort: 1, hostPort: 80, hostIP: 127.0.0.1}]}]}}",
        &[],
        Some((
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        )),
    );
    check(
        &spec("securityContext: {sysctls: [{name: kernel/msgmax}]}"),
        &[],
        Some(("SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted")),
    );
    check(
        &spec("hostNetwork: true, securityContext: {sysctls: [{name: net.core.somaxconn}]}"),
        &[],
        Some((
            "SysctlForbidden",
            "forbidden sysctl: \"net.core.somaxconn\" not allowed with host Net enabled",
        )),
    );
    check(
        &spec("os: {name: windows}"),
        &[],
        Some(("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")),
    );
}

/// Source: `TestAllowlist` of upstream's `pkg/kubelet/sysctl`.
#[test]
fn sysctls_are_taken_that_are_the_pods_own() {
    let unsafe_sysctls =
        ["kernel/msg*", "kernel.sem", "net.b.*", "fs.mqueue.*", "foo", "kernel.shm*", "vm.*"]
            .map(str::to_owned);
    let with = |name: &str, host: &str| -> Pod {
        let text =
            format!("{{spec: {{{host}containers: [], securityContext: {{sysctls: [{{name: {name}}}]}}}}}}");
        serde_saphyr::from_str(&text).unwrap()
    };
    for (name, host, expect) in [
        ("kernel.shm_rmid_forced", "", ""),
        ("kernel/shm_rmid_forced", "", ""),
        ("net.ipv4.ip_local_port_range", "", ""),
        ("kernel.msgmax", "", ""),
        ("kernel/sem", "", ""),
        ("net/b/c.1/d", "", ""),
        ("fs.mqueue.msg_max", "", ""),
        ("kernel.shm_rmid_forced", "hostIPC: true, ", "not allowed with host IPC enabled"),
        ("net.ipv4.ip_local_port_range", "hostNetwork: true, ", "not allowed with host Net enabled"),
        ("kernel.msgmax", "hostIPC: true, ", "not allowed with host IPC enabled"),
        ("kernel.shm_next_id", "hostIPC: true, ", "not allowed with host IPC enabled"),
        ("fs.mqueue.msg_max", "hostIPC: true, ", "not allowed with host IPC enabled"),
        ("net.b.c", "hostNetwork: true, ", "not allowed with host Net enabled"),
        ("net.b.c", "hostIPC: true, ", ""),
        ("net.a.b.c", "", "not allowlisted"),
        ("net.ipv4.ip_local_port_range.a.b.c", "", "not allowlisted"),
        ("foo", "", "not allowlisted"),
        ("vm.swappiness", "", "not allowlisted"),
    ] {
        let (pod, node, room) = (with(name, host), Node::default(), Room::default());
        let question =
            Question { pod: &pod, node: &node, room: &room, pressure: &[], unsafe_sysctls: &unsafe_sysctls };
        let found = welcome(&question).map_err(|rejection| rejection.message).err().unwrap_or_default();
        assert!(found.ends_with(expect) && found.is_empty() == expect.is_empty(), "{name} {host}: {found}");
    }
}

#[test]
fn a_strict_groups_policy_needs_a_runtime_that_knows_it() {
    check(&spec("securityContext: {supplementalGroupsPolicy: Merge}"), &[], None);
    check(
        &spec("securityContext: {supplementalGroupsPolicy: Strict}"),
        &[],
        Some((
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        )),
    );
}

#[test]
fn a_toleration_without_a_key_is_for_every_key() {
    let taint = Taint { key: "gone".into(), effect: "NoExecute".into(), ..Taint::default() };
    for (toleration, expect) in [
        ("{operator: Exists}", true),
        ("{operator: Equal}", true),
        ("{operator: Equal, value: other}", false),
        ("{key: gone}", true),
        ("{key: gone, effect: NoSchedule}", false),
    ] {
        let spec: PodSpec =
            serde_saphyr::from_str(&format!("{{containers: [], tolerations: [{toleration}]}}")).unwrap();
        assert_eq!(tolerates(&spec, &taint), expect, "{toleration}");
    }
}

#[test]
fn under_pressure_only_some_are_taken() {
    let refused =
        |conditions: &str| ("Evicted".to_owned(), format!("The node had condition: [{conditions}]. "));
    let burstable = "{spec: {tolerations: [{key: gone, operator: Exists}], containers: [{name: a, resources: {requests: {cpu: 1m}}}]}}";
    let best_effort = "{spec: {tolerations: [{key: gone, operator: Exists}], containers: [{name: a}]}}";
    let (reason, message) = refused("MemoryPressure");
    check(best_effort, &["MemoryPressure"], Some((&reason, &message)));
    check(burstable, &["MemoryPressure"], None);
    check(&spec("priority: 0"), &["MemoryPressure"], None);
    let (reason, message) = refused("DiskPressure MemoryPressure");
    check(burstable, &["DiskPressure", "MemoryPressure"], Some((&reason, &message)));
    check(&spec("priority: 2000000000"), &["DiskPressure"], None);
}

/// Source: `TestGeneralPredicates`, `TestRemoveMissingExtendedResources` and `TestRejectPodAdmissionBasedOnOS*` of upstream's
/// `pkg/kubelet/lifecycle`.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_node_takes_what_upstreams_takes() {
    const STATIC: &str = "annotations: {kubernetes.io/config.source: file}";
    const TAKEN: &str = "";
    let asks = |resources: &str| format!("containers: [{{name: a, resources: {{requests: {resources}}}}}]");
    let port = |port: &str| format!("containers: [{{name: a, ports: [{{containerPort: 1, {port}}}]}}]");
    let needs =
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
        {matchExpressions: [{key: foo, operator: Exists}]}]}}}";
    for (name, metadata, spec, node, expect) in [
        ("nothing", "", "tty: 1", "", TAKEN),
        ("as much as there is", "", &*asks("{cpu: 5m, memory: 1}"), "", TAKEN),
        (
            "too much of both",
            "",
            &*asks("{cpu: 8m, memory: 10}"),
            "",
            "OutOfcpu: cpu, requested: 8, used: 5, capacity: 10",
        ),
        (
            "too much memory",
            "",
            &*asks("{cpu: 1m, memory: 10}"),
            "",
            "OutOfmemory: memory, requested: 10, used: 19, capacity: 20",
        ),
        (
            "more disk than there is",
            "",
            &*asks("{ephemeral-storage: 9}"),
            "",
            "OutOfephemeral-storage: ephemeral-storage, requested: 9, used: 0, capacity: 8",
        ),
        ("devices that are left", "", &*asks("{x.example/d: 1}"), "", TAKEN),
        (
            "more of them",
            "",
            &*asks("{x.example/d: 2}"),
            "",
            "OutOfx.example/d: x.example/d, requested: 2, used: 1, capacity: 2",
        ),
        ("devices that nobody knows", "", &*asks("{y.example/d: 2}"), "", TAKEN),
        ("none of them", "", &*asks("{x.example/d: 0}"), "", TAKEN),
        (
            "pages that the node has not",
            "",
            &*asks("{hugepages-2Mi: 2Mi}"),
            "",
            "OutOfhugepages-2Mi: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
        ),
        ("a port", "", &*port("hostPort: 80"), "", TAKEN),
        ("one that is taken", "", &*port("hostPort: 123"), "", "NodePorts"),
        ("of one address", "", &*port("hostPort: 123, hostIP: 127.0.0.1"), "", "NodePorts"),
        ("by another protocol", "", &*port("hostPort: 123, protocol: UDP"), "", TAKEN),
        ("another address has it", "", &*port("hostPort: 456, hostIP: 127.0.0.1"), "", TAKEN),
        ("the same has", "", &*port("hostPort: 456, hostIP: 10.0.0.1"), "", "NodePorts"),
        ("of all addresses", "", &*port("hostPort: 456"), "", "NodePorts"),
        (
            "taints that it bears",
            "",
            "tolerations: [{key: foo}, {key: bar}]",
            "spec: {taints: [{key: foo, effect: NoSchedule}, {key: bar, effect: NoExecute}]}",
            TAKEN,
        ),
        (
            "one that only the scheduler heeds",
            "",
            "tty: 1",
            "spec: {taints: [{key: foo, effect: NoSchedule}]}",
            TAKEN,
        ),
        (
            "one that drives it out",
            "",
            "tty: 1",
            "spec: {taints: [{key: bar, effect: NoExecute}]}",
            "TaintToleration",
        ),
        (
            "one that would rather not",
            "",
            "tty: 1",
            "spec: {taints: [{key: baz, effect: PreferNoSchedule}]}",
            TAKEN,
        ),
        ("a static Pod", STATIC, "tty: 1", "spec: {taints: [{key: bar, effect: NoExecute}]}", TAKEN),
        ("the wrong node", "", needs, "", "NodeAffinity"),
        ("also for a static Pod", STATIC, needs, "", "NodeAffinity"),
        ("the right one", "", needs, "metadata: {labels: {foo: bar}}", TAKEN),
        (
            "room before place",
            "",
            &*format!("{needs}, {}", asks("{cpu: 8m}")),
            "",
            "OutOfcpu: cpu, requested: 8, used: 5, capacity: 10",
        ),
        ("labelled for this system", "labels: {kubernetes.io/os: linux}", "tty: 1", "", TAKEN),
        (
            "labelled for another",
            "labels: {kubernetes.io/os: windows}",
            "tty: 1",
            "",
            "PodOSSelectorNodeLabelDoesNotMatch",
        ),
        (
            "also a dummy",
            "labels: {kubernetes.io/os: dummyOS}",
            "tty: 1",
            "metadata: {labels: {kubernetes.io/os: dummyOS}}",
            "PodOSSelectorNodeLabelDoesNotMatch",
        ),
        (
            "a node of another",
            "",
            "nodeSelector: {kubernetes.io/os: windows}",
            "metadata: {labels: {kubernetes.io/os: linux}}",
            "NodeAffinity",
        ),
        ("for this system", "", "os: {name: linux}", "", TAKEN),
        ("for another", "", "os: {name: windows}", "", "PodOSNotSupported"),
        ("any groups", "", "securityContext: {supplementalGroupsPolicy: Merge}", "", TAKEN),
        (
            "its own groups only",
            "",
            "securityContext: {supplementalGroupsPolicy: Strict}",
            "",
            "SupplementalGroupsPolicyNotSupported",
        ),
        (
            "which the node knows",
            "",
            "securityContext: {supplementalGroupsPolicy: Strict}",
            "status: {features: {supplementalGroupsPolicy: true}}",
            TAKEN,
        ),
        (
            "or says that it does not",
            "",
            "securityContext: {supplementalGroupsPolicy: Strict}",
            "status: {features: {supplementalGroupsPolicy: false}}",
            "SupplementalGroupsPolicyNotSupported",
        ),
    ] {
        let containers = if spec.contains("containers:") { "" } else { "containers: [{name: a}], " };
        let pod: Pod =
            serde_saphyr::from_str(&format!("{{metadata: {{{metadata}}}, spec: {{{containers}{spec}}}}}"))
                .unwrap();
        let node: Node = serde_saphyr::from_str(&format!("{{{node}}}")).unwrap();
        let map = |pairs: &[(&str, i64)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
        let taken = |address: &str, port| ("TCP".to_owned(), address.to_owned(), port);
        let room = Room {
            allocatable: map(&[
                ("cpu", 10),
                ("memory", 20),
                ("pods", 32),
                ("ephemeral-storage", 8),
                ("x.example/d", 2),
            ]),
            used: map(&[("cpu", 5), ("memory", 19), ("pods", 1), ("x.example/d", 1)]),
            ports: vec![taken("0.0.0.0", 123), taken("10.0.0.1", 456)],
        };
        let question = Question { pod: &pod, node: &node, room: &room, pressure: &[], unsafe_sysctls: &[] };
        let refused = welcome(&question).err().or_else(|| match fits(&question) {
            Ok(()) => None,
            Err(misfit) => Some(misfit.into_rejection()),
        });
        let shown = |Rejection { reason, message }| match message
            .strip_prefix("Node didn't have enough resource: ")
        {
            Some(what) => format!("{reason}: {what}"),
            None => reason,
        };
        assert_eq!(refused.map(shown).unwrap_or_default(), expect, "{name}");
    }
}
