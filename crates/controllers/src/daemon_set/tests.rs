use expect_test::{Expect, expect};

use super::*;
use serde_json::json;

use crate::fixture::{list, noon, parse, render};

fn set(spec: &str) -> DaemonSet {
    parse(&format!(
        "{{metadata: {{name: agent, namespace: kube-system, uid: d1, generation: 2}}, spec: {{selector: \
         {{matchLabels: {{app: agent}}}}, template: {{metadata: {{labels: {{app: agent}}}}, spec: {{containers: \
         []}}}}, {spec}}}}}"
    ))
}

/// Nodes, one per row of `name | what follows the name in the object`.
fn nodes(rows: &[&str]) -> Vec<Arc<Node>> {
    let yaml: Vec<String> = rows
        .iter()
        .map(|row| {
            let (name, spec) = row.split_once('|').unwrap_or((row, ""));
            format!("{{metadata: {{name: {}, labels: {{disk: ssd}}}}, spec: {{{spec}}}}}", name.trim())
        })
        .collect();
    list(&format!("[{}]", yaml.join(",\n")))
}

/// Pods, one per row of `node | state`; states: new (ready), old (ready), sick (old), fresh (new, not ready), failed,
/// done, going (new, deleted), waiting (new, on no Node yet).
fn pods(rows: &[&str], hash: &str) -> Vec<Arc<Pod>> {
    let yaml: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(number, row)| {
            let (node, state) = row.split_once('|').map(|(a, b)| (a.trim(), b.trim())).expect("two cells");
            let hash = if ["old", "sick"].contains(&state) { "before" } else { hash };
            let status = match state {
                "new" | "old" => "phase: Running, conditions: [{type: Ready, status: 'True', \
                                  lastTransitionTime: '2026-01-01T11:59:55Z'}]",
                "failed" => "phase: Failed",
                "done" => "phase: Succeeded",
                _ => "phase: Running",
            };
            let deleted = if state == "going" { "deletionTimestamp: '2026-01-01T11:00:00Z'," } else { "" };
            let spec = match state {
                "waiting" => format!(
                    "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: \
                     [{{matchFields: [{{key: metadata.name, operator: In, values: [{node}]}}]}}]}}}}}}"
                ),
                _ => format!("nodeName: {node}"),
            };
            format!(
                "{{metadata: {{name: agent-{number}, namespace: kube-system, uid: p{number}, {deleted} \
                 creationTimestamp: '2026-01-01T11:00:{number:02}Z', labels: {{app: agent, \
                 controller-revision-hash: {hash}}}, ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: \
                 agent, uid: d1, controller: true}}]}}, spec: {{containers: [], {spec}}}, status: {{{status}}}}}"
            )
        })
        .collect();
    list(&format!("[{}]", yaml.join(",\n")))
}

fn snapshot(spec: &str, node_rows: &[&str], pod_rows: &[&str]) -> Snapshot {
    let set = set(spec);
    let template = &set.spec.as_ref().expect("a spec").template;
    let newest = history::newest(&set, template, &[], 0, |_| None).revision;
    let pods = pods(pod_rows, history::hash_of(&newest));
    Snapshot { set: Arc::new(set), nodes: nodes(node_rows), pods, revisions: vec![newest], revision: 7 }
}

fn check(spec: &str, node_rows: &[&str], pod_rows: &[&str], expect: &Expect) {
    let plan = plan(&snapshot(spec, node_rows, pod_rows), noon());
    let mut lines: Vec<String> = Vec::new();
    for action in plan.actions() {
        match action {
            controller::Action::Request(request) if request.subresource == "status" => {}
            controller::Action::Request(request) => {
                let node = request.body.pointer(
                    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0",
                );
                match node.and_then(serde_json::Value::as_str) {
                    Some(node) => lines.push(format!("create on {node}")),
                    None => lines.push(format!("{:?} {}", request.verb, request.name)),
                }
            }
            controller::Action::Event(event) if !event.reason.starts_with("Successful") => {
                lines.push(format!("{}: {}", event.reason, event.message));
            }
            _ => {}
        }
    }
    if let Some(delay) = plan.requeue_after {
        lines.push(format!("again after {delay:?}"));
    }
    expect.assert_eq(&lines.join("\n"));
}

const SURGE: &str = "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}";

#[test]
fn every_node_that_is_wanted_gets_a_pod() {
    check(
        "",
        &[
            "a",
            "b | taints: [{key: k, effect: NoSchedule}]",
            "c | taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]",
            "d | taints: [{key: node.kubernetes.io/network-unavailable, effect: NoSchedule}]",
            "e",
        ],
        &["e | waiting"],
        &expect![[r#"
            create on a
            create on c"#]],
    );
}

#[test]
fn a_pod_leaves_where_it_is_not_wanted_but_bears_what_only_keeps_new_ones_away() {
    check(
        "",
        &["a | taints: [{key: k, effect: NoSchedule}]", "b | taints: [{key: k, effect: NoExecute}]"],
        &["a | new", "b | new", "gone | waiting", "lost | new"],
        &expect![[r#"
            Delete agent-1
            Delete agent-2"#]],
    );
}

#[test]
fn one_pod_stays_on_a_node() {
    check("", &["a"], &["a | new", "a | fresh", "a | going"], &expect!["Delete agent-1"]);
}

#[test]
fn pods_that_ended_make_room() {
    check(
        "",
        &["a", "b", "c"],
        &["a | failed", "b | done", "c | going"],
        &expect![[r#"
        Delete agent-0
        Delete agent-1
        FailedDaemonPod: Found failed daemon pod kube-system/agent-0 on node a, will try to kill it
        SucceededDaemonPod: Found succeeded daemon pod kube-system/agent-1 on node b, will try to delete it"#]],
    );
    let mut seen = snapshot("", &["a"], &["a | failed"]);
    let pod = Arc::make_mut(&mut seen.pods[0]);
    pod.metadata.creation_timestamp = Some(controller::metadata::time(noon()));
    expect![[r#"
        step
          update daemonsets/status agent {"currentNumberScheduled":1,"desiredNumberScheduled":1,"numberMisscheduled":0,"numberReady":0,"numberUnavailable":1,"observedGeneration":2,"updatedNumberScheduled":1}
        again after 1s
    "#]].assert_eq(&render(&plan(&seen, noon())));
}

#[test]
fn old_pods_are_deleted_as_long_as_enough_are_available() {
    let nodes = ["a", "b", "c", "d"];
    check("", &nodes, &["a | old", "b | old", "c | old", "d | old"], &expect!["Delete agent-0"]);
    check("", &nodes, &["a | fresh", "b | old", "c | old", "d | old"], &expect![[""]]);
    check(
        "",
        &nodes,
        &["a | sick", "b | sick", "c | old", "d | old"],
        &expect![[r#"
        Delete agent-0
        Delete agent-1
        Delete agent-2"#]],
    );
    let half = "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 50%}}";
    check(
        half,
        &nodes,
        &["a | new", "b | old", "c | old", "d | old"],
        &expect![[r#"
        Delete agent-1
        Delete agent-2"#]],
    );
    check(
        "updateStrategy: {type: OnDelete}",
        &nodes,
        &["a | old", "b | old", "c | old", "d | old"],
        &expect![[""]],
    );
}

#[test]
fn a_surge_makes_the_successor_first() {
    check(SURGE, &["a", "b"], &["a | old", "b | old"], &expect!["create on a"]);
    check(SURGE, &["a", "b"], &["a | old", "a | fresh", "b | old"], &expect![[""]]);
    check(SURGE, &["a", "b"], &["a | old", "a | new", "b | old"], &expect!["Delete agent-0"]);
    check(SURGE, &["a", "b"], &["a | sick", "a | fresh", "b | sick"], &expect!["Delete agent-0"]);
}

#[test]
fn the_status_counts_nodes() {
    let text =
        |nodes: &[&str], pods: &[&str]| render(&plan(&snapshot("minReadySeconds: 10", nodes, pods), noon()));
    expect![[r#"
        step
          update daemonsets/status agent {"currentNumberScheduled":2,"desiredNumberScheduled":2,"numberMisscheduled":1,"numberReady":1,"numberUnavailable":2,"observedGeneration":2,"updatedNumberScheduled":2}
        again after 5s
    "#]].assert_eq(&text(
        &["a", "b", "c | taints: [{key: k, effect: NoSchedule}]"],
        &["a | new", "b | fresh", "c | new"],
    ));
}

#[test]
fn a_pod_is_made_for_its_node() {
    let mut set = set("");
    let annotations = [("deprecated.daemonset.template.generation".to_owned(), "3".to_owned())];
    set.metadata.annotations = Some(annotations.into());
    let template = parse("{metadata: {labels: {app: agent}}, spec: {containers: [], hostNetwork: true}}");
    let pod = pod::pod(&set, &template, "h1", "one", "agent-x".into());
    assert_eq!(pod::target(&parse(&json!(pod).to_string())), Some("one"));
    expect![[r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"agent-","labels":{"app":"agent","controller-revision-hash":"h1","pod-template-generation":"3"},"name":"agent-x","namespace":"kube-system","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"DaemonSet","name":"agent","uid":"d1"}]},"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["one"]}]}]}}},"containers":[],"hostNetwork":true,"tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists"},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists"},{"effect":"NoSchedule","key":"node.kubernetes.io/disk-pressure","operator":"Exists"},{"effect":"NoSchedule","key":"node.kubernetes.io/memory-pressure","operator":"Exists"},{"effect":"NoSchedule","key":"node.kubernetes.io/pid-pressure","operator":"Exists"},{"effect":"NoSchedule","key":"node.kubernetes.io/unschedulable","operator":"Exists"},{"effect":"NoSchedule","key":"node.kubernetes.io/network-unavailable","operator":"Exists"}]}}"#]].assert_eq(&serde_json::to_string(&pod).expect("JSON"));
}
