use controller::Action;
use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, noon, parse, render};

fn check(spec: &str, pods: &str, expect: &Expect) {
    check_object(&format!("spec: {{{spec}}}"), pods, expect);
}

fn check_object(spec_and_status: &str, pods: &str, expect: &Expect) {
    let set =
        format!("{{metadata: {{name: web, namespace: default, uid: r1, generation: 4}}, {spec_and_status}}}");
    let set = set.replace(
        "spec: {",
        "spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}}, ",
    );
    let pods: Vec<Arc<Pod>> = list(pods);
    let snapshot = Snapshot {
        replica_set: Arc::new(parse::<ReplicaSet>(&set)),
        related: pods.clone(),
        pods,
        revision: 9,
    };
    expect.assert_eq(&render(&plan(&snapshot, noon())));
}

/// Pods of the ReplicaSet, one per line of `name | metadata | spec | status`.
fn pods(rows: &[&str]) -> String {
    let mut yaml = String::from("[");
    for row in rows {
        let mut cells = row.split('|').map(str::trim);
        let mut cell = || cells.next().unwrap_or_default();
        let (name, metadata, spec, status) = (cell(), cell(), cell(), cell());
        let comma = if metadata.is_empty() { "" } else { "," };
        yaml.push_str(&format!(
            "{{metadata: {{name: {name}, namespace: default, uid: {name}-uid, labels: {{app: web}}, \
             ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: r1, controller: true}}] \
             {comma} {metadata}}}, spec: {{containers: [], {spec}}}, status: {{{status}}}}},\n"
        ));
    }
    yaml + "]"
}

const READY: &str =
    "phase: Running, conditions: [{type: Ready, status: 'True', lastTransitionTime: '2026-01-01T11:59:55Z'}]";

#[test]
fn missing_pods_are_created_in_growing_steps() {
    check(
        "replicas: 4",
        "[]",
        &expect![[r#"
        step
          create pods web-h64rp
        step
          Normal SuccessfulCreate: Created pod: web-h64rp
          create pods web-wpj8b
          create pods web-bmss8
        step
          Normal SuccessfulCreate: Created pod: web-wpj8b
          Normal SuccessfulCreate: Created pod: web-bmss8
          create pods web-nftmm
        step
          Normal SuccessfulCreate: Created pod: web-nftmm
    "#]],
    );
}

#[test]
fn a_pod_is_made_from_the_template() {
    let set = "{metadata: {name: web, namespace: default, uid: r1}, spec: {replicas: 1, selector: {matchLabels: {app: web}}, \
               template: {metadata: {labels: {app: web}, annotations: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}";
    let snapshot = Snapshot {
        replica_set: Arc::new(parse::<ReplicaSet>(set)),
        pods: Vec::new(),
        related: Vec::new(),
        revision: 1,
    };
    let plan = plan(&snapshot, noon());
    let Some(Action::Request(request)) = plan.actions().next() else { panic!("no request") };
    expect![[r#"{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"a":"b"},"generateName":"web-","labels":{"app":"web"},"name":"web-tgt7h","namespace":"default","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web","uid":"r1"}]},"spec":{"containers":[{"image":"i","name":"c"}]}}"#]].assert_eq(&request.body.to_string());
}

#[test]
fn finished_and_terminating_pods_are_replaced() {
    check(
        "replicas: 2",
        &pods(&[
            "a |||phase: Failed",
            "b |deletionTimestamp: '2026-01-01T11:00:00Z'||phase: Running",
            &format!("c |||{READY}"),
        ]),
        &expect![[r#"
            step
              create pods web-h64rp
            step
              Normal SuccessfulCreate: Created pod: web-h64rp
        "#]],
    );
}

#[test]
fn the_status_counts_the_pods() {
    check(
        "replicas: 3, minReadySeconds: 10",
        &pods(&[
            &format!("a |||{READY}"),
            "b |||phase: Running, conditions: [{type: Ready, status: 'True', lastTransitionTime: '2026-01-01T11:00:00Z'}]",
            "c |||phase: Pending",
            "d |deletionTimestamp: '2026-01-01T11:00:00Z'||phase: Running",
        ]),
        &expect![[r#"
            step
              update replicasets/status web {"availableReplicas":1,"fullyLabeledReplicas":3,"observedGeneration":4,"readyReplicas":2,"replicas":3,"terminatingReplicas":1}
            again after 5s
        "#]],
    );
}

#[test]
fn a_status_that_is_right_is_not_written_again() {
    check_object(
        "spec: {replicas: 1}, status: {replicas: 1, fullyLabeledReplicas: 1, readyReplicas: 1, availableReplicas: 1, \
         terminatingReplicas: 0, observedGeneration: 4}",
        &pods(&[&format!("a |||{READY}")]),
        &expect![[""]],
    );
}

#[test]
fn a_status_that_falls_to_zero_is_written_as_such() {
    check_object(
        "spec: {replicas: 0}, status: {replicas: 1, fullyLabeledReplicas: 1, readyReplicas: 1, availableReplicas: 1, \
         terminatingReplicas: 0, observedGeneration: 3}",
        "[]",
        &expect![[r#"
            step
              update replicasets/status web {"observedGeneration":4,"replicas":0,"terminatingReplicas":0}
        "#]],
    );
}

#[test]
fn a_refusal_is_told_once() {
    let told = |status: &str| {
        let set = format!(
            "{{metadata: {{name: web, namespace: default, uid: r1, generation: 1}}, \
             spec: {{replicas: 1, selector: {{matchLabels: {{app: web}}}}}}, status: {{{status}}}}}"
        );
        let snapshot = Snapshot {
            replica_set: Arc::new(parse::<ReplicaSet>(&set)),
            pods: Vec::new(),
            related: Vec::new(),
            revision: 1,
        };
        let mut failed = plan(&snapshot, noon());
        failed.steps = vec![failed.on_failure.iter().map(|a| a.clone().about_failure("no quota")).collect()];
        render(&failed)
    };
    expect![[r#"
        step
          update replicasets/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"no quota","reason":"FailedCreate","status":"True","type":"ReplicaFailure"}],"observedGeneration":1,"replicas":0,"terminatingReplicas":0}
          Warning FailedCreate: Error creating: no quota
    "#]].assert_eq(&told("replicas: 0, observedGeneration: 1, terminatingReplicas: 0"));
    let known =
        "conditions: [{type: ReplicaFailure, status: 'True', reason: FailedCreate, message: no quota}]";
    expect![[r#"
        step
          Warning FailedCreate: Error creating: no quota
    "#]]
    .assert_eq(&told(&format!("replicas: 0, observedGeneration: 1, terminatingReplicas: 0, {known}")));
}

/// Which of `rows` goes when all but one stay.
fn check_first(rows: &[&str], expect: &str) {
    let set = format!(
        "{{metadata: {{name: web, namespace: default, uid: r1}}, spec: {{replicas: {}, selector: {{matchLabels: {{app: web}}}}}}}}",
        rows.len() - 1
    );
    let pods: Vec<Arc<Pod>> = list(&pods(rows));
    let snapshot = Snapshot {
        replica_set: Arc::new(parse::<ReplicaSet>(&set)),
        related: pods.clone(),
        pods,
        revision: 1,
    };
    let text = render(&plan(&snapshot, noon()));
    assert!(text.contains(&format!("delete pods {expect}\n")), "{text}");
}

#[test]
fn what_is_lost_least_goes_first() {
    check_first(&["a ||nodeName: one|phase: Pending", "b |||phase: Running"], "b");
    check_first(&["a ||nodeName: one|phase: Running", "b ||nodeName: one|phase: Pending"], "b");
    let (a, b) = (format!("a ||nodeName: one|{READY}"), "b ||nodeName: one|phase: Running");
    check_first(&[&a, b], "b");
    let cheap =
        format!("c |annotations: {{controller.kubernetes.io/pod-deletion-cost: '-5'}}|nodeName: one|{READY}");
    check_first(&[&a, &cheap], "c");
    let (alone, twin, other) = (
        format!("xa ||nodeName: two|{READY}"),
        format!("ya ||nodeName: one|{READY}"),
        format!("za ||nodeName: one|{READY}"),
    );
    check_first(&[&alone, &twin, &other], "ya");
    let long = READY.replace("11:59:55", "09:00:00");
    check_first(&[&format!("a ||nodeName: one|{long}"), &format!("b ||nodeName: one|{READY}")], "b");
    let restarted = format!(
        "b ||nodeName: one|{READY}, containerStatuses: [{{name: c, restartCount: 3, image: '', imageID: '', ready: true}}]"
    );
    check_first(&[&a, &restarted], "b");
    let (old, new) = (
        format!("a |creationTimestamp: '2026-01-01T08:00:00Z'|nodeName: one|{READY}"),
        format!("b |creationTimestamp: '2026-01-01T11:50:00Z'|nodeName: one|{READY}"),
    );
    check_first(&[&old, &new], "b");
}

#[test]
fn pods_are_adopted_and_released_by_their_labels() {
    let orphan = pods(&["a |||phase: Running"]).replace("uid: r1, controller: true", "uid: r1");
    check(
        "replicas: 1",
        &orphan,
        &expect![[r#"
            step
              patch pods a {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web","uid":"r1"}],"uid":"a-uid"}}
            step
              update replicasets/status web {"fullyLabeledReplicas":1,"observedGeneration":4,"replicas":1,"terminatingReplicas":0}
        "#]],
    );
    let strayed = pods(&["a |||phase: Running"]).replace("labels: {app: web}", "labels: {app: other}");
    check(
        "replicas: 0",
        &strayed,
        &expect![[r#"
            step
              patch pods a {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"r1"}],"uid":"a-uid"}}
            step
              update replicasets/status web {"observedGeneration":4,"replicas":0,"terminatingReplicas":0}
        "#]],
    );
}
