mod patch;
mod resources;
mod restarts;
mod upstream;

use std::sync::Arc;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::pod::crash_backoff::CrashBackoff;
use crate::pod::failure_reason::FailureReason;
use crate::pod::snapshot::{Container, ContainerState, Exit, ProbeResults, Sandbox, Step};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn node() -> NodeFacts {
    NodeFacts { host_ips: vec!["10.0.0.1".into()], runtime_name: "knarr".into() }
}

const POD: &str = "{metadata: {name: web, namespace: shop, uid: u1, generation: 1}, spec: {containers: [{name: a, image: img}]}}";

fn snapshot(pod: &str) -> PodSnapshot {
    PodSnapshot { pod: Arc::new(serde_saphyr::from_str(pod).unwrap()), ..PodSnapshot::default() }
}

/// The first container of that name in a sandbox.
pub(super) fn container(id: &str, name: &str, sandbox_id: &str, state: ContainerState) -> Container {
    Container {
        id: id.into(),
        name: name.into(),
        sandbox_id: sandbox_id.into(),
        attempt: 0,
        state,
        image: "img".into(),
        image_ref: "sha256:1".into(),
        hash: String::new(),
        user: None,
        resources: None,
        recursive_mounts: Vec::new(),
    }
}

fn with_container(pod: &str, state: ContainerState) -> PodSnapshot {
    let container = Container {
        attempt: 1,
        recursive_mounts: vec!["/below".into()],
        ..container("c1", "a", "sb", state)
    };
    PodSnapshot {
        sandboxes: vec![Sandbox {
            id: "sb".into(),
            is_ready: true,
            ips: vec!["10.42.0.2".into()],
            ..Sandbox::default()
        }],
        volumes: Step::Ready(String::new()),
        containers: vec![container],
        ..snapshot(pod)
    }
}

/// Phase, the container's state, whether it is ready, and the conditions in short.
fn check(snapshot: &PodSnapshot, expect: &Expect) {
    let status = pod_status(snapshot, &node(), at(1_700_000_000));
    let container = &status.container_statuses.as_ref().unwrap()[0];
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .map(|c| {
            format!(
                "{}={}{}",
                c.type_,
                c.status,
                c.reason.as_ref().map(|r| format!(" {r}")).unwrap_or_default()
            )
        })
        .collect();
    let state = serde_json::to_string(&container.state).unwrap();
    let text = format!(
        "{} restarts={} ready={}\n{state}\n{}\n",
        status.phase.unwrap(),
        container.restart_count,
        container.ready,
        conditions.join(", ")
    );
    expect.assert_eq(&text);
}

#[test]
fn a_fresh_pod_is_pending() {
    check(
        &snapshot(POD),
        &expect![[r#"
        Pending restarts=0 ready=false
        {"waiting":{"reason":"ContainerCreating"}}
        PodReadyToStartContainers=False, Initialized=True, Ready=False ContainersNotReady, ContainersReady=False ContainersNotReady, PodScheduled=True
    "#]],
    );
}

#[test]
fn a_running_container_is_ready_when_its_probe_says_so() {
    let running = ContainerState::Running { started_at: at(1_600_000_000) };
    check(
        &with_container(POD, running.clone()),
        &expect![[r#"
        Running restarts=1 ready=true
        {"running":{"startedAt":"2020-09-13T12:26:40Z"}}
        PodReadyToStartContainers=True, Initialized=True, Ready=True, ContainersReady=True, PodScheduled=True
    "#]],
    );
    let probed = "{metadata: {name: web, namespace: shop, uid: u1}, spec: {containers: [{name: a, readinessProbe: {}}]}}";
    let mut snapshot = with_container(probed, running);
    assert!(!pod_status(&snapshot, &node(), at(0)).container_statuses.unwrap()[0].ready);
    let results =
        ProbeResults { container_id: "c1".into(), readiness: Some(true), ..ProbeResults::default() };
    snapshot.probes.insert("a".into(), results);
    assert!(pod_status(&snapshot, &node(), at(0)).container_statuses.unwrap()[0].ready);
}

#[test]
fn a_crashing_container_backs_off() {
    let exit = Exit { code: 1, finished_at: at(1_700_000_000), ..Exit::default() };
    let mut snapshot = with_container(POD, ContainerState::Exited(exit));
    let mut backoff = CrashBackoff::default();
    backoff.restarted(at(1_699_999_990), at(1_699_999_990));
    snapshot.crashes.insert("a".into(), backoff);
    check(
        &snapshot,
        &expect![[r#"
        Running restarts=1 ready=false
        {"waiting":{"message":"back-off 10s restarting failed container=a pod=web_shop(u1)","reason":"CrashLoopBackOff"}}
        PodReadyToStartContainers=True, Initialized=True, Ready=False ContainersNotReady, ContainersReady=False ContainersNotReady, PodScheduled=True
    "#]],
    );
}

#[test]
fn a_pod_that_ran_once_succeeds_or_fails() {
    let once =
        "{metadata: {name: web, uid: u1}, spec: {restartPolicy: Never, containers: [{name: a, image: img}]}}";
    for (code, phase, reason) in [(0, "Succeeded", "Completed"), (3, "Failed", "Error")] {
        let exit = Exit { code, ..Exit::default() };
        let status = pod_status(&with_container(once, ContainerState::Exited(exit)), &node(), at(0));
        let state = status.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
        assert_eq!((status.phase.as_deref(), state.reason.as_deref()), (Some(phase), Some(reason)));
    }
}

#[test]
fn a_missing_image_is_shown_first_as_failed_then_as_waiting() {
    let mut snapshot = snapshot(POD);
    for (age, reason) in [(0, "ErrImagePull"), (5, "ImagePullBackOff")] {
        let failure = Failure {
            reason: FailureReason::ErrImagePull,
            message: "no".into(),
            at: at(100),
            delay: Duration::from_secs(10),
        };
        snapshot.images.insert("img".into(), Step::Failed(failure));
        let status = pod_status(&snapshot, &node(), at(100 + age));
        let waiting = status.container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap();
        assert_eq!(waiting.reason.as_deref(), Some(reason), "{:?}", waiting.message);
    }
}

#[test]
fn transition_times_move_only_with_the_status() {
    let mut snapshot = with_container(POD, ContainerState::Running { started_at: at(0) });
    let first = pod_status(&snapshot, &node(), at(1000));
    let mut pod = (*snapshot.pod).clone();
    pod.status = Some(first.clone());
    snapshot.pod = Arc::new(pod);
    assert_eq!(pod_status(&snapshot, &node(), at(2000)), first);
}

#[test]
fn patches_hold_only_what_changed() {
    let old = json!({"phase": "Pending", "message": "x", "podIPs": [{"ip": "1"}],
        "conditions": [{"type": "Ready", "status": "False", "reason": "r"}, {"type": "PodScheduled", "status": "True"}]});
    let new = json!({"phase": "Running", "podIPs": [{"ip": "2"}],
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]});
    let patch = status_patch("u1", &old, &new).unwrap();
    assert_eq!(
        patch,
        json!({"metadata": {"uid": "u1"}, "status": {"phase": "Running", "message": Value::Null,
            "podIPs": [{"$patch": "replace"}, {"ip": "2"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": Value::Null}]}})
    );
    assert_eq!(status_patch("u1", &new, &new), None);
}

#[test]
fn read_only_mounts_say_how_deep_they_are() {
    let pod = "{spec: {containers: [{name: a, volumeMounts: [{name: v, mountPath: /below, readOnly: true, recursiveReadOnly: IfPossible}, {name: v, mountPath: /flat, readOnly: true}, {name: v, mountPath: /open}]}]}}";
    let snapshot = with_container(pod, ContainerState::Running { started_at: at(0) });
    let status = pod_status(&snapshot, &node(), at(0));
    let mounts = status.container_statuses.unwrap().remove(0).volume_mounts.unwrap();
    let shown: Vec<_> = mounts.iter().map(|mount| mount.recursive_read_only.as_deref()).collect();
    assert_eq!(shown, [Some("Enabled"), Some("Disabled"), None]);
}

/// One step of a Pod's way down: name, spec, what its containers do (name and `running`, an exit code, or `none`), and
/// what its status then says: phase and reason, whether it is said to be disrupted, the states of its containers.
type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);

fn on_its_way_down(pod: &str, containers: &[(&str, &str)], ending: Option<Ending>) -> String {
    let pod = format!(
        "{{metadata: {{name: web, namespace: shop, uid: u1{}, \
         status: {{phase: Running, startTime: '2023-11-14T22:13:20Z'}}}}",
        pod
    );
    let mut found = snapshot(&pod);
    for (name, state) in containers.iter().filter(|(_, state)| *state != "none") {
        let state = match *state {
            "running" => ContainerState::Running { started_at: at(0) },
            code => ContainerState::Exited(Exit { code: code.parse().unwrap(), ..Exit::default() }),
        };
        let mut container = with_container(&pod, state).containers.remove(0);
        (container.id, container.name) = (format!("id-{name}"), (*name).to_owned());
        found.containers.push(container);
    }
    found.ending = ending;
    let status = pod_status(&found, &node(), at(1_700_000_100));
    let states =
        status.init_container_statuses.iter().chain(&status.container_statuses).flatten().map(|status| {
            let state = status.state.clone().unwrap();
            let waiting = state.waiting.and_then(|waiting| waiting.reason);
            let terminated =
                state.terminated.map(|ended| format!("{} {}", ended.reason.unwrap(), ended.exit_code));
            format!("{}: {}", status.name, waiting.or(terminated).unwrap_or_else(|| "Running".into()))
        });
    let states: Vec<_> = states.collect();
    let is_disrupted = status.conditions.iter().flatten().any(|c| c.type_ == "DisruptionTarget");
    format!(
        "{} {}{}| {}",
        status.phase.unwrap(),
        status.reason.map(|reason| reason + " ").unwrap_or_default(),
        if is_disrupted { "disrupted " } else { "" },
        states.join(", ")
    )
}

#[test]
fn nothing_is_over_while_something_of_it_runs() {
    const ONE: &str = "}, spec: {containers: [{name: a}]}";
    const LATE: &str = "}, spec: {activeDeadlineSeconds: 1, containers: [{name: a}]}";
    const HELPED: &str = "}, spec: {restartPolicy: Never, initContainers: [{name: s, restartPolicy: Always}], containers: [{name: a}]}";
    const GONE: &str =
        ", deletionTimestamp: '2023-11-14T22:13:21Z'}, spec: {containers: [{name: a}, {name: b}]}";
    const HELD_UP: &str = ", deletionTimestamp: '2023-11-14T22:13:21Z'}, spec: {initContainers: [{name: i}, {name: j}], containers: [{name: a}]}";
    let evicted = Ending { reason: "Evicted".into(), is_disruption: true, ..Ending::default() };
    let steps: [Row<'_>; 12] = [
        ("evicted", ONE, &[("a", "running")], "Running | a: Running"),
        ("and stopped", ONE, &[("a", "143")], "Failed Evicted disrupted | a: Error 143"),
        ("for too long", LATE, &[("a", "running")], "Running | a: Running"),
        ("and stopped", LATE, &[("a", "143")], "Failed DeadlineExceeded | a: Error 143"),
        (
            "its sidecar still runs",
            HELPED,
            &[("s", "running"), ("a", "0")],
            "Running | s: Running, a: Completed 0",
        ),
        ("and not any more", HELPED, &[("s", "137"), ("a", "0")], "Succeeded | s: Error 137, a: Completed 0"),
        ("in vain", HELPED, &[("s", "0"), ("a", "3")], "Failed | s: Completed 0, a: Error 3"),
        ("deleted", GONE, &[("a", "running"), ("b", "running")], "Running | a: Running, b: Running"),
        (
            "deleted, one has ended",
            GONE,
            &[("a", "0"), ("b", "running")],
            "Running | a: Completed 0, b: Running",
        ),
        (
            "one never came up",
            GONE,
            &[("a", "0"), ("b", "none")],
            "Failed | a: Completed 0, b: ContainerStatusUnknown 137",
        ),
        (
            "nothing came up",
            GONE,
            &[],
            "Failed | a: ContainerStatusUnknown 137, b: ContainerStatusUnknown 137",
        ),
        (
            "an init container had its turn",
            HELD_UP,
            &[("i", "0")],
            "Failed | i: Completed 0, j: PodInitializing, a: PodInitializing",
        ),
    ];
    for (name, pod, containers, expect) in steps {
        let ending = Some(evicted.clone()).filter(|_| pod == ONE);
        assert_eq!(on_its_way_down(pod, containers, ending), expect, "{name}");
    }
}

#[test]
fn a_pod_on_the_hosts_network_is_reached_at_the_node() {
    let own = with_container(POD, ContainerState::Created);
    assert_eq!(own.addresses(&node().host_ips), ["10.42.0.2"]);
    let of_host = with_container("{spec: {hostNetwork: true, containers: []}}", ContainerState::Created);
    assert_eq!(of_host.addresses(&node().host_ips), ["10.0.0.1"]);
    assert_eq!(pod_status(&of_host, &node(), at(0)).pod_ip.as_deref(), Some("10.0.0.1"));
    assert!(snapshot("{spec: {hostNetwork: true, containers: []}}").addresses(&node().host_ips).is_empty());
}

/// Source: `TestNodeAddressUpdatesGenerateAPIPodStatusHostNetworkPodIPs` of upstream's kubelet.
#[test]
fn a_pod_on_the_hosts_network_keeps_its_addresses() {
    const V6: &str = "2001:db8::2";
    type Ips = &'static [&'static str];
    let rows: [(&str, Ips, Ips, Ips); 7] = [
        ("none were told", &[], &["10.0.0.1", V6], &["10.0.0.1", V6]),
        ("another address", &["10.0.0.1"], &["1.1.1.1"], &["10.0.0.1"]),
        ("another first one", &["10.0.0.1", V6], &["1.1.1.1", V6], &["10.0.0.1", V6]),
        ("another second one", &["10.0.0.1", V6], &["10.0.0.1", "2001:db8:1::2"], &["10.0.0.1", V6]),
        ("others", &["10.0.0.1", V6], &["1.1.1.1", "2001:db8:1::2"], &["10.0.0.1", V6]),
        ("a second family", &["10.0.0.1"], &["1.1.1.1", V6], &["10.0.0.1", V6]),
        ("a first family", &[V6], &["10.0.0.1", "2001:db8:1::2"], &[V6]),
    ];
    let texts = |ips: &[&str]| ips.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>();
    for (name, told, of_node, expect) in rows {
        let told: Vec<_> = told.iter().map(|ip| format!("{{ip: '{ip}'}}")).collect();
        let pod = format!(
            "{{spec: {{hostNetwork: true, containers: []}}, status: {{podIPs: [{}]}}}}",
            told.join(", ")
        );
        let of_host = with_container(&pod, ContainerState::Created);
        assert_eq!(of_host.addresses(&texts(of_node)), expect, "{name}");
    }
}

#[test]
fn a_pod_has_one_address_of_each_family_that_of_the_nodes_first() {
    const V6: &str = "2001:db8::1";
    type Ips = &'static [&'static str];
    let rows: [(&str, Ips, Ips, Ips); 6] = [
        ("two of one family", &["10.0.0.1"], &["10.42.0.2", "10.9.0.5"], &["10.42.0.2"]),
        ("another order", &["10.0.0.1"], &["fd00::2", "10.42.0.2"], &["10.42.0.2", "fd00::2"]),
        ("a node of IPv6", &[V6, "10.0.0.1"], &["10.42.0.2", "fd00::2"], &["fd00::2", "10.42.0.2"]),
        ("only the other", &["10.0.0.1"], &["fd00::2", "fd00::3"], &["fd00::2"]),
        ("no node address", &[], &["fd00::2", "10.42.0.2"], &["10.42.0.2", "fd00::2"]),
        ("no addresses", &["10.0.0.1"], &["", "eth0"], &[]),
    ];
    let texts = |ips: &[&str]| ips.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>();
    for (name, of_node, of_pod, expect) in rows {
        let mut snapshot = with_container(POD, ContainerState::Created);
        snapshot.sandboxes[0].ips = texts(of_pod);
        let facts = NodeFacts { host_ips: texts(of_node), ..node() };
        let status = pod_status(&snapshot, &facts, at(0));
        assert_eq!(status.pod_ip.as_deref(), expect.first().copied(), "{name}");
        let ips: Vec<String> = status.pod_ips.into_iter().flatten().map(|ip| ip.ip).collect();
        assert_eq!(ips, expect, "{name}");
    }
}

#[test]
fn the_last_words_of_all_containers_together_have_an_end() {
    for (count, expect) in [(1, 4096), (3, 4096), (4, 3072), (12, 1024)] {
        let names: Vec<_> = (0..count)
            .map(|n| format!("{{name: {}}}", if n == 0 { "a".into() } else { format!("c{n}") }))
            .collect();
        let pod = format!("{{spec: {{restartPolicy: Never, containers: [{}]}}}}", names.join(", "));
        let exit = Exit { code: 1, message: "x".repeat(4096), ..Exit::default() };
        let status = pod_status(&with_container(&pod, ContainerState::Exited(exit)), &node(), at(0));
        let state = status.container_statuses.unwrap().remove(0).state.unwrap();
        assert_eq!(state.terminated.unwrap().message.unwrap().len(), expect, "{count}");
    }
}
