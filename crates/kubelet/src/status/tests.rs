use std::sync::Arc;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::crash_backoff::CrashBackoff;
use crate::snapshot::{Container, ContainerState, Exit, ProbeResults, Sandbox, Step};

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

fn with_container(pod: &str, state: ContainerState) -> PodSnapshot {
    let container = Container {
        id: "c1".into(),
        name: "a".into(),
        sandbox_id: "sb".into(),
        attempt: 1,
        state,
        image: "img".into(),
        image_ref: "sha256:1".into(),
        hash: String::new(),
        user: None,
        resources: None,
        recursive_mounts: vec!["/below".into()],
    };
    PodSnapshot {
        sandboxes: vec![Sandbox {
            id: "sb".into(),
            is_ready: true,
            ips: vec!["10.42.0.2".into()],
            attempt: 0,
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
            reason: "ErrImagePull".into(),
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
