use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, noon, parse, render};

const PEER: bool = true;
const ALONE: bool = false;

fn check(spec: &str, ready: &str, renewed: &str, has_ready_peer: bool, expect: &Expect) {
    let conditions = if ready.is_empty() {
        String::new()
    } else {
        ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
            .map(|type_| {
                let status = if type_ == "Ready" || ready == "Unknown" { ready } else { "False" };
                format!("{{type: {type_}, status: '{status}', lastHeartbeatTime: '2026-01-01T11:00:00Z'}}")
            })
            .join(", ")
    };
    let node = format!(
        "{{metadata: {{name: one, uid: n1, resourceVersion: '5', creationTimestamp: '2026-01-01T10:00:00Z'}}, \
         spec: {{{spec}}}, status: {{conditions: [{conditions}]}}}}"
    );
    let lease = format!("{{spec: {{renewTime: '2026-01-01T{renewed}.000000Z'}}}}");
    let pods = "[{metadata: {name: a, namespace: default, uid: p1}, spec: {containers: [], nodeName: one}, \
                status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}]";
    let snapshot = Snapshot {
        node: Arc::new(parse(&node)),
        lease: Some(Arc::new(parse(&lease))),
        listening_since: "2026-01-01T09:00:00Z".parse().unwrap(),
        has_ready_peer,
        pods: list(pods),
        options: Arc::new(Options {
            node_monitor_grace_period: "40s".parse().unwrap(),
            ..Options::default()
        }),
    };
    expect.assert_eq(&render(&plan(&snapshot, noon())));
}

#[test]
fn a_node_that_renews_its_lease_is_left_alone() {
    check(
        "",
        "True",
        "11:59:50",
        PEER,
        &expect![[r#"
        again after 30s
    "#]],
    );
}

#[test]
fn a_silent_node_is_unknown_and_its_pods_are_not_ready() {
    check(
        "",
        "True",
        "11:59:20",
        PEER,
        &expect![[r#"
        step
          patch nodes/status one {"status":{"conditions":[{"lastHeartbeatTime":"2026-01-01T11:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"Ready"},{"lastHeartbeatTime":"2026-01-01T11:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"MemoryPressure"},{"lastHeartbeatTime":"2026-01-01T11:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"DiskPressure"},{"lastHeartbeatTime":"2026-01-01T11:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"PIDPressure"}]}}
        step
          patch pods/status a {"metadata":{"uid":"p1"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","status":"False","type":"Ready"}]}}
        step
          Warning NodeNotReady: Node is not ready
    "#]],
    );
}

#[test]
fn an_unknown_node_is_tainted() {
    let marked = "taints: [{key: mine, effect: NoSchedule}]";
    check(
        marked,
        "Unknown",
        "11:00:00",
        PEER,
        &expect![[r#"
            step
              patch pods/status a {"metadata":{"uid":"p1"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","status":"False","type":"Ready"}]}}
            step
              Warning NodeNotReady: Node is not ready
            step
              patch nodes one {"metadata":{"resourceVersion":"5","uid":"n1"},"spec":{"taints":[{"effect":"NoSchedule","key":"mine"},{"effect":"NoSchedule","key":"node.kubernetes.io/unreachable","timeAdded":"2026-01-01T12:00:00Z"},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","timeAdded":"2026-01-01T12:00:00Z"}]}}
        "#]],
    );
    check(
        marked,
        "Unknown",
        "11:00:00",
        ALONE,
        &expect![[r#"
            step
              patch pods/status a {"metadata":{"uid":"p1"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","status":"False","type":"Ready"}]}}
            step
              Warning NodeNotReady: Node is not ready
            step
              patch nodes one {"metadata":{"resourceVersion":"5","uid":"n1"},"spec":{"taints":[{"effect":"NoSchedule","key":"mine"},{"effect":"NoSchedule","key":"node.kubernetes.io/unreachable","timeAdded":"2026-01-01T12:00:00Z"}]}}
        "#]],
    );
}

#[test]
fn a_ready_node_loses_its_taints() {
    let spec =
        "taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}, {key: mine, effect: NoExecute}]";
    check(
        spec,
        "True",
        "11:59:55",
        ALONE,
        &expect![[r#"
        step
          patch nodes one {"metadata":{"resourceVersion":"5","uid":"n1"},"spec":{"taints":[{"effect":"NoExecute","key":"mine"}]}}
        again after 35s
    "#]],
    );
}

#[test]
fn a_cordoned_node_is_tainted() {
    check(
        "unschedulable: true",
        "True",
        "11:59:55",
        ALONE,
        &expect![[r#"
        step
          patch nodes one {"metadata":{"resourceVersion":"5","uid":"n1"},"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/unschedulable","timeAdded":"2026-01-01T12:00:00Z"}]}}
        again after 35s
    "#]],
    );
}

#[test]
fn who_has_never_said_anything_has_its_own_time() {
    let options = Options::default();
    let node = |conditions: &str| {
        parse::<Node>(&format!("{{metadata: {{name: one}}, status: {{conditions: [{conditions}]}}}}"))
    };
    assert_eq!(grace(&node(""), &options), Duration::from_secs(60));
    assert_eq!(grace(&node("{type: Ready, status: Unknown}"), &options), Duration::from_secs(50));
}
