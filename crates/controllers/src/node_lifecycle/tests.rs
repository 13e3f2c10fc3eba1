use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, noon, parse, render};

const PEER: EvictionRate = EvictionRate::OneIn(Duration::from_secs(10));
const ALONE: EvictionRate = EvictionRate::Stopped;

fn check(spec: &str, ready: &str, renewed: &str, eviction_rate: EvictionRate, expect: &Expect) {
    let snapshot = snapshot(spec, ready, renewed, eviction_rate);
    expect.assert_eq(&render(&plan(&snapshot, noon(), |_| None)));
}

fn snapshot(spec: &str, ready: &str, renewed: &str, eviction_rate: EvictionRate) -> Snapshot {
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
    let renewed: Timestamp = format!("2026-01-01T{renewed}Z").parse().unwrap();
    let pods = "[{metadata: {name: a, namespace: default, uid: p1}, spec: {containers: [], nodeName: one}, \
                status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}]";
    Snapshot {
        node: Arc::new(parse(&node)),
        silence: noon().duration_since(renewed).try_into().unwrap(),
        eviction_rate,
        pods: list(pods),
        options: Arc::default(),
    }
}

#[test]
fn a_node_that_renews_its_lease_is_left_alone() {
    check(
        "",
        "True",
        "11:59:50",
        PEER,
        &expect![[r#"
        again after 40s
    "#]],
    );
}

#[test]
fn a_silent_node_is_unknown_and_its_pods_are_not_ready() {
    check(
        "",
        "True",
        "11:59:10",
        PEER,
        &expect![[r#"
            step
              patch nodes/status one {"status":{"conditions":[{"lastHeartbeatTime":"2026-01-01T11:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"Ready"},{"lastHeartbeatTime":"2026-01-01T11:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"MemoryPressure"},{"lastHeartbeatTime":"2026-01-01T11:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"DiskPressure"},{"lastHeartbeatTime":"2026-01-01T11:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"PIDPressure"}]}}
            step
              Normal NodeNotReady: Node one status is now: NodeNotReady
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
        again after 45s
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
        again after 45s
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

#[test]
fn pods_are_driven_off_when_it_is_the_nodes_turn() {
    let check =
        |taints: &str, eviction_rate: EvictionRate, wait: Option<u64>, expect: (&[&str], Option<u64>)| {
            let snapshot = snapshot(&format!("taints: [{taints}]"), "Unknown", "11:00:00", eviction_rate);
            let plan = plan(&snapshot, noon(), |_| wait.map(Duration::from_secs));
            let written = plan.actions().find_map(|action| match action {
                Action::Request(request) if request.resource.plural == "nodes" => {
                    Some(request.body["spec"]["taints"].clone())
                }
                _ => None,
            });
            let text = |taint: &Value| format!("{}:{}", taint["key"], taint["effect"]).replace('"', "");
            let found: Vec<String> =
                written.iter().flat_map(|all| all.as_array().unwrap()).map(text).collect();
            let found: Vec<&str> =
                found.iter().map(|text| text.trim_start_matches("node.kubernetes.io/")).collect();
            let again = plan.requeue_after.map(|delay| delay.as_secs());
            assert_eq!((found.as_slice(), again), expect, "{taints} {eviction_rate:?} {wait:?}");
        };
    let (gone, both) =
        ("unreachable:NoSchedule", ["unreachable:NoSchedule", "unreachable:NoExecute"].as_slice());
    check("", PEER, None, (both, None));
    check("", PEER, Some(7), (&[gone], Some(7)));
    check("", EvictionRate::Paused, None, (&[gone], None));
    check("", ALONE, None, (&[gone], None));
    // It has begun: another taint takes the place of the one that is there.
    let begun = "{key: node.kubernetes.io/not-ready, effect: NoExecute}";
    check(begun, PEER, Some(7), (both, None));
    check(begun, EvictionRate::Paused, Some(7), (both, None));
    check(begun, ALONE, Some(7), (&[gone], None));
    let done = "{key: node.kubernetes.io/unreachable, effect: NoSchedule}, {key: node.kubernetes.io/unreachable, effect: NoExecute}";
    check(done, PEER, Some(7), (&[], None));
}
