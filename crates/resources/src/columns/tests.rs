use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

const NOW: &str = "2026-01-01T00:10:00Z";

fn check(columns: &[Column], object: &str, expect: Expect) {
    let object: Value = serde_saphyr::from_str(object).unwrap();
    let now = NOW.parse().unwrap();
    let cells: Vec<_> = columns
        .iter()
        .map(|c| match c.cell(&object, now) {
            Value::String(text) => text,
            other => other.to_string(),
        })
        .collect();
    expect.assert_eq(&cells.join(" | "));
}

#[test]
fn a_running_pod_shows_ready_containers_and_restarts() {
    check(
        POD,
        r#"
metadata: {name: web, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {nodeName: n1, containers: [{name: a}, {name: b}]}
status:
  phase: Running
  podIP: 10.42.0.2
  containerStatuses:
  - {name: a, ready: true, restartCount: 1, state: {running: {}}, lastState: {terminated: {finishedAt: "2026-01-01T00:09:55Z"}}}
  - {name: b, ready: false, restartCount: 0, state: {running: {}}}
"#,
        expect!["web | 1/2 | Running | 1 (5s ago) | 10m | 10.42.0.2 | n1 | <none> | <none>"],
    );
}

fn status_of(pod: Value) -> String {
    POD[2].cell(&pod, NOW.parse().unwrap()).as_str().unwrap().to_owned()
}

#[test]
fn the_status_of_a_pod_says_what_holds_it() {
    let waiting = |reason: &str| json!([{"state": {"waiting": {"reason": reason}}}]);
    let cases = [
        ("pending", json!({"status": {"phase": "Pending"}}), "Pending"),
        (
            "crash loop",
            json!({"status": {"phase": "Running", "containerStatuses": waiting("CrashLoopBackOff")}}),
            "CrashLoopBackOff",
        ),
        (
            "first of two init containers",
            json!({"spec": {"initContainers": [{"name": "a"}, {"name": "b"}]},
                "status": {"phase": "Pending", "initContainerStatuses": [{"name": "a", "state": {"running": {}}}]}}),
            "Init:0/2",
        ),
        (
            "init failed",
            json!({"spec": {"initContainers": [{"name": "a"}]}, "status": {"phase": "Pending",
                "initContainerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}]}}),
            "Init:Error",
        ),
        (
            "completed",
            json!({"status": {"phase": "Succeeded",
                "containerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}}),
            "Completed",
        ),
        (
            "killed by a signal",
            json!({"status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}}),
            "Signal:9",
        ),
        (
            "terminating",
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}}),
            "Terminating",
        ),
        ("evicted", json!({"status": {"phase": "Failed", "reason": "Evicted"}}), "Evicted"),
    ];
    for (name, pod, status) in cases {
        assert_eq!(status_of(pod), status, "{name}");
    }
}

#[test]
fn a_deployment_shows_how_many_are_ready() {
    check(
        DEPLOYMENT,
        r#"
metadata: {name: web, creationTimestamp: "2026-01-01T00:09:00Z"}
spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {spec: {containers: [{name: c, image: i}]}}}
status: {readyReplicas: 2, updatedReplicas: 3, availableReplicas: 2}
"#,
        expect!["web | 2/3 | 3 | 2 | 60s | c | i | app=web"],
    );
}

#[test]
fn a_service_shows_where_it_can_be_reached() {
    check(
        SERVICE,
        "{metadata: {name: s}, spec: {type: NodePort, clusterIP: 10.43.0.7, ports: [{port: 80, nodePort: 30080, protocol: TCP}], selector: {app: web}}}",
        expect!["s | NodePort | 10.43.0.7 | <none> | 80:30080/TCP | <unknown> | app=web"],
    );
}

#[test]
fn a_cordoned_node_says_so() {
    check(
        NODE,
        "{metadata: {name: n1, labels: {node-role.kubernetes.io/control-plane: ''}}, spec: {unschedulable: true}, status: {conditions: [{type: Ready, status: 'True'}], nodeInfo: {kubeletVersion: v1.35.0}}}",
        expect![
            "n1 | Ready,SchedulingDisabled | control-plane | <unknown> | v1.35.0 | <none> | <none> | <unknown> | <unknown> | <unknown>"
        ],
    );
}

#[test]
fn an_event_shows_when_it_was_last_seen() {
    check(
        EVENT,
        "{metadata: {name: e}, type: Normal, reason: Scheduled, message: 'ok ', involvedObject: {kind: Pod, name: web}, eventTime: '2026-01-01T00:09:30.000000Z', reportingComponent: default-scheduler}",
        expect!["30s | Normal | Scheduled | pod/web |  | default-scheduler | ok | 30s | 1 | e"],
    );
}

#[test]
fn more_than_three_endpoints_are_counted() {
    check(
        ENDPOINTS,
        "{metadata: {name: e}, subsets: [{ports: [{port: 80}], addresses: [{ip: a}, {ip: b}, {ip: c}, {ip: d}]}]}",
        expect!["e | a:80,b:80,c:80 + 1 more... | <unknown>"],
    );
}

#[test]
fn every_column_says_what_it_tells() {
    // Upstream looks for these among the fields of the metadata, where they are not.
    const SILENT: [(&str, &str); 3] = [
        ("LeaseCandidate", "BinaryVersion"),
        ("LeaseCandidate", "EmulationVersion"),
        ("RuntimeClass", "Handler"),
    ];
    let metrics = ["NodeMetrics", "PodMetrics"];
    let kinds = crate::table().iter().map(|row| (&*row.kind, &*row.columns));
    let mut silent = std::collections::BTreeSet::new();
    for (kind, columns) in kinds.chain([("Scale", SCALE)]).filter(|(kind, _)| !metrics.contains(kind)) {
        let without = columns.iter().filter(|column| column.description().is_empty());
        silent.extend(without.map(|column| (kind, &*column.name)));
    }
    assert_eq!(silent.into_iter().collect::<Vec<_>>(), SILENT);
    let said: Vec<&str> = POD.iter().map(Column::description).take(2).collect();
    assert!(
        said[0].starts_with("Name must be unique within a namespace. Is required when creating"),
        "{said:?}"
    );
    assert_eq!(said[1], "The aggregate readiness state of this pod for accepting traffic.");
}

#[test]
fn a_rule_for_devices_shows_its_taint() {
    let metadata = "metadata: {name: broken, creationTimestamp: '2026-01-01T00:00:00Z'}";
    check(
        DEVICE_TAINT_RULE,
        &format!(
            "{{{metadata}, spec: {{taint: {{key: k, value: v, effect: NoExecute, timeAdded: '2026-01-01T00:09:00Z'}}}}}}"
        ),
        expect!["broken | k | v | NoExecute | 60s | 10m"],
    );
    check(
        DEVICE_TAINT_RULE,
        &format!("{{{metadata}, spec: {{taint: {{key: k, effect: None}}}}}}"),
        expect!["broken | k |  | None |  | 10m"],
    );
}
