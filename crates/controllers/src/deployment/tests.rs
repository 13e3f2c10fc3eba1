use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, noon, parse, render};

/// `sets` is a list of `{name, template, replicas, ...}` shorthand; see [`replica_set`].
fn check(deployment: &str, sets: &[&str], expect: &Expect) {
    expect.assert_eq(&render(&plan(&snapshot(deployment, sets), noon())));
}

fn snapshot(spec_and_status: &str, sets: &[&str]) -> Snapshot {
    let deployment = format!(
        "{{metadata: {{name: web, namespace: default, uid: d1, generation: 2}}, {}}}",
        spec_and_status.replace(
            "SPEC",
            "selector: {matchLabels: {app: web}}, progressDeadlineSeconds: 600, revisionHistoryLimit: 1"
        )
    );
    let sets = sets.join("\n");
    Snapshot {
        deployment: Arc::new(parse(&deployment)),
        replica_sets: if sets.is_empty() { Vec::new() } else { list(&sets) },
        namesake: None,
        pods: Vec::new(),
    }
}

/// A ReplicaSet of the Deployment that runs `image`, made in the `minute`th minute.
fn replica_set(name: &str, image: &str, minute: u8, spec: i32, status: &str, annotations: &str) -> String {
    format!(
        "- metadata: {{name: {name}, namespace: default, uid: {name}-uid, generation: 1,
    creationTimestamp: '2026-01-01T11:{minute:02}:00Z', labels: {{app: web, pod-template-hash: {name}}},
    ownerReferences: [{{apiVersion: apps/v1, kind: Deployment, name: web, uid: d1, controller: true}}],
    annotations: {{{annotations}}}}}
  spec:
    replicas: {spec}
    selector: {{matchLabels: {{app: web, pod-template-hash: {name}}}}}
    template:
      metadata: {{labels: {{app: web, pod-template-hash: {name}}}}}
      spec: {{containers: [{{name: a, image: {image}}}]}}
  status: {{observedGeneration: 1, {status}}}"
    )
}

fn numbered(revision: u8, desired: u8, most: u8) -> String {
    format!(
        "deployment.kubernetes.io/revision: '{revision}', deployment.kubernetes.io/desired-replicas: '{desired}', \
         deployment.kubernetes.io/max-replicas: '{most}'"
    )
}

fn template(image: &str) -> String {
    format!(
        "template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: a, image: {image}}}]}}}}"
    )
}

/// The plan without the Deployment's own status, which other tests look at.
fn check_sets(spec: &str, image: &str, sets: &[String], expect: &Expect) {
    let deployment = format!("spec: {{SPEC, {spec}, {}}}", template(image));
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let text = render(&plan(&snapshot(&deployment, &sets), noon()));
    let kept: Vec<&str> = text.lines().filter(|line| !line.contains("deployments")).collect();
    expect.assert_eq(&(kept.join("\n") + "\n"));
}

#[test]
fn a_new_deployment_gets_a_replica_set_of_full_size() {
    let deployment = format!("spec: {{SPEC, replicas: 3, {}}}", template("v1"));
    check(
        &deployment,
        &[],
        &expect![[r#"
            step
              create replicasets web-7b7d9b7cf7
            step
              update deployments/status web annotations {"deployment.kubernetes.io/revision":"1"} {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Created new replica set \"web-7b7d9b7cf7\"","reason":"NewReplicaSetCreated","status":"True","type":"Progressing"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":2,"terminatingReplicas":0,"unavailableReplicas":3}
              Normal ScalingReplicaSet: Scaled up replica set web-7b7d9b7cf7 from 0 to 3
            again after 601s
        "#]],
    );
}

#[test]
fn the_replica_set_carries_hash_revision_and_owner() {
    let deployment = format!("spec: {{SPEC, replicas: 3, {}}}", template("v1"));
    let plan = plan(&snapshot(&deployment, &[]), noon());
    let Some(Action::Request(request)) = plan.actions().next() else { panic!("no request") };
    expect![[r#"
        {
          "apiVersion": "apps/v1",
          "kind": "ReplicaSet",
          "metadata": {
            "annotations": {
              "deployment.kubernetes.io/desired-replicas": "3",
              "deployment.kubernetes.io/max-replicas": "4",
              "deployment.kubernetes.io/revision": "1"
            },
            "labels": {
              "app": "web",
              "pod-template-hash": "7b7d9b7cf7"
            },
            "name": "web-7b7d9b7cf7",
            "namespace": "default",
            "ownerReferences": [
              {
                "apiVersion": "apps/v1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "Deployment",
                "name": "web",
                "uid": "d1"
              }
            ]
          },
          "spec": {
            "replicas": 3,
            "selector": {
              "matchLabels": {
                "app": "web",
                "pod-template-hash": "7b7d9b7cf7"
              }
            },
            "template": {
              "metadata": {
                "labels": {
                  "app": "web",
                  "pod-template-hash": "7b7d9b7cf7"
                }
              },
              "spec": {
                "containers": [
                  {
                    "image": "v1",
                    "name": "a"
                  }
                ]
              }
            }
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&request.body).unwrap());
}

#[test]
fn a_new_template_surges_first() {
    let old = replica_set(
        "one",
        "v1",
        1,
        3,
        "replicas: 3, readyReplicas: 3, availableReplicas: 3",
        &numbered(1, 3, 4),
    );
    check_sets(
        "replicas: 3",
        "v2",
        &[old],
        &expect![[r#"
        step
          create replicasets web-8645c4d6f8
        step
          Normal ScalingReplicaSet: Scaled up replica set web-8645c4d6f8 from 0 to 1
        again after 601s
    "#]],
    );
}

#[test]
fn old_pods_go_when_new_ones_are_available() {
    let old = replica_set(
        "one",
        "v1",
        1,
        3,
        "replicas: 3, readyReplicas: 3, availableReplicas: 3",
        &numbered(1, 3, 4),
    );
    let new = replica_set(
        "two",
        "v2",
        2,
        1,
        "replicas: 1, readyReplicas: 1, availableReplicas: 1",
        &numbered(2, 3, 4),
    );
    check_sets(
        "replicas: 3",
        "v2",
        &[old, new],
        &expect![[r#"
        step
          patch replicasets one {"metadata":{"uid":"one-uid"},"spec":{"replicas":2}}
        step
          Normal ScalingReplicaSet: Scaled down replica set one from 3 to 2
        again after 601s
    "#]],
    );
}

#[test]
fn nothing_goes_while_the_new_pod_is_not_available() {
    let old = replica_set(
        "one",
        "v1",
        1,
        3,
        "replicas: 3, readyReplicas: 3, availableReplicas: 3",
        &numbered(1, 3, 4),
    );
    let new = replica_set("two", "v2", 2, 1, "replicas: 1", &numbered(2, 3, 4));
    check_sets(
        "replicas: 3",
        "v2",
        &[old, new],
        &expect![[r#"
        step
        again after 601s
    "#]],
    );
}

#[test]
fn broken_old_pods_go_first() {
    let old = replica_set(
        "one",
        "v1",
        1,
        8,
        "replicas: 8, readyReplicas: 5, availableReplicas: 5",
        &numbered(1, 10, 13),
    );
    let older = replica_set(
        "nil",
        "v0",
        0,
        3,
        "replicas: 3, readyReplicas: 3, availableReplicas: 3",
        &numbered(1, 10, 13),
    );
    let new = replica_set(
        "two",
        "v2",
        2,
        2,
        "replicas: 2, readyReplicas: 2, availableReplicas: 2",
        &numbered(2, 10, 13),
    );
    check_sets(
        "replicas: 10",
        "v2",
        &[old, older, new],
        &expect![[r#"
        step
          patch replicasets nil {"metadata":{"uid":"nil-uid"},"spec":{"replicas":1}}
          patch replicasets one {"metadata":{"uid":"one-uid"},"spec":{"replicas":5}}
        step
          Normal ScalingReplicaSet: Scaled down replica set one from 8 to 5
          Normal ScalingReplicaSet: Scaled down replica set nil from 3 to 1
        again after 601s
    "#]],
    );
}

#[test]
fn undo_wakes_the_old_replica_set_under_a_new_number() {
    let old = replica_set("one", "v1", 1, 0, "replicas: 0", &numbered(1, 3, 4));
    let new = replica_set(
        "two",
        "v2",
        2,
        3,
        "replicas: 3, readyReplicas: 3, availableReplicas: 3",
        &numbered(2, 3, 4),
    );
    check_sets(
        "replicas: 3",
        "v1",
        &[old, new],
        &expect![[r#"
        step
          patch replicasets one {"metadata":{"annotations":{"deployment.kubernetes.io/revision":"3","deployment.kubernetes.io/revision-history":"1"},"uid":"one-uid"},"spec":{"replicas":1}}
        step
          Normal ScalingReplicaSet: Scaled up replica set one from 0 to 1
        again after 601s
    "#]],
    );
}

#[test]
fn a_scale_in_the_middle_of_a_rollout_is_shared_in_proportion() {
    let old = replica_set(
        "one",
        "v1",
        1,
        8,
        "replicas: 8, readyReplicas: 8, availableReplicas: 8",
        &numbered(1, 10, 13),
    );
    let new = replica_set("two", "v2", 2, 5, "replicas: 5", &numbered(2, 10, 13));
    check_sets(
        "replicas: 20",
        "v2",
        &[old.clone(), new.clone()],
        &expect![[r#"
        step
          patch replicasets one {"metadata":{"annotations":{"deployment.kubernetes.io/desired-replicas":"20","deployment.kubernetes.io/max-replicas":"25"},"uid":"one-uid"},"spec":{"replicas":15}}
          patch replicasets two {"metadata":{"annotations":{"deployment.kubernetes.io/desired-replicas":"20","deployment.kubernetes.io/max-replicas":"25"},"uid":"two-uid"},"spec":{"replicas":10}}
        step
          Normal ScalingReplicaSet: Scaled up replica set one from 8 to 15
          Normal ScalingReplicaSet: Scaled up replica set two from 5 to 10
    "#]],
    );
    check_sets(
        "replicas: 5",
        "v2",
        &[old, new],
        &expect![[r#"
        step
          patch replicasets one {"metadata":{"annotations":{"deployment.kubernetes.io/desired-replicas":"5","deployment.kubernetes.io/max-replicas":"7"},"uid":"one-uid"},"spec":{"replicas":4}}
          patch replicasets two {"metadata":{"annotations":{"deployment.kubernetes.io/desired-replicas":"5","deployment.kubernetes.io/max-replicas":"7"},"uid":"two-uid"},"spec":{"replicas":3}}
        step
          Normal ScalingReplicaSet: Scaled down replica set one from 8 to 4
          Normal ScalingReplicaSet: Scaled down replica set two from 5 to 3
    "#]],
    );
}

#[test]
fn recreate_waits_for_the_old_pods() {
    let spec = "replicas: 3, strategy: {type: Recreate}";
    let running = replica_set("one", "v1", 1, 3, "replicas: 3", &numbered(1, 3, 3));
    check_sets(
        spec,
        "v2",
        &[running],
        &expect![[r#"
        step
          patch replicasets one {"metadata":{"uid":"one-uid"},"spec":{"replicas":0}}
        step
          Normal ScalingReplicaSet: Scaled down replica set one from 3 to 0
    "#]],
    );
    let stopping = replica_set("one", "v1", 1, 0, "replicas: 1", &numbered(1, 3, 3));
    check_sets(
        spec,
        "v2",
        &[stopping],
        &expect![[r#"
        step
    "#]],
    );
    let stopped = replica_set("one", "v1", 1, 0, "replicas: 0", &numbered(1, 3, 3));
    check_sets(
        spec,
        "v2",
        &[stopped],
        &expect![[r#"
        step
          create replicasets web-8645c4d6f8
        step
          Normal ScalingReplicaSet: Scaled up replica set web-8645c4d6f8 from 0 to 3
        again after 601s
    "#]],
    );
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let old = replica_set("one", "v1", 1, 3, "replicas: 3", &numbered(1, 3, 4));
    check_sets(
        "replicas: 5, paused: true",
        "v2",
        &[old],
        &expect![[r#"
        step
          patch replicasets one {"metadata":{"annotations":{"deployment.kubernetes.io/desired-replicas":"5","deployment.kubernetes.io/max-replicas":"7"},"uid":"one-uid"},"spec":{"replicas":5}}
        step
          Normal ScalingReplicaSet: Scaled up replica set one from 3 to 5
    "#]],
    );
}

#[test]
fn history_beyond_its_limit_goes_when_the_rollout_is_complete() {
    let sets = [
        replica_set("one", "v1", 1, 0, "replicas: 0", &numbered(1, 1, 2)),
        replica_set("two", "v2", 2, 0, "replicas: 0", &numbered(2, 1, 2)),
        replica_set(
            "three",
            "v3",
            3,
            1,
            "replicas: 1, readyReplicas: 1, availableReplicas: 1",
            &numbered(3, 1, 2),
        ),
    ];
    let done = "status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, availableReplicas: 1}";
    let deployment = format!("spec: {{SPEC, replicas: 1, {}}}, {done}", template("v3"));
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    check(
        &deployment,
        &sets,
        &expect![[r#"
            step
              delete replicasets one
            step
              update deployments/status web annotations {"deployment.kubernetes.io/revision":"3"} {"availableReplicas":1,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"ReplicaSet \"three\" has successfully progressed.","reason":"NewReplicaSetAvailable","status":"True","type":"Progressing"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"}],"observedGeneration":2,"readyReplicas":1,"replicas":1,"terminatingReplicas":0,"updatedReplicas":1}
        "#]],
    );
}

#[test]
fn a_rollout_without_progress_times_out() {
    let new = replica_set("one", "v1", 1, 1, "replicas: 1", &numbered(1, 1, 2));
    let progress = "{type: Progressing, status: 'True', reason: ReplicaSetUpdated, lastUpdateTime: '2026-01-01T11:49:00Z'}";
    let status = format!(
        "status: {{observedGeneration: 2, replicas: 1, updatedReplicas: 1, conditions: [{progress}]}}"
    );
    let deployment = format!("spec: {{SPEC, replicas: 1, {}}}, {status}", template("v1"));
    check(
        &deployment,
        &[&new],
        &expect![[r#"
            step
              update deployments/status web annotations {"deployment.kubernetes.io/revision":"1"} {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"ReplicaSet \"one\" has timed out progressing.","reason":"ProgressDeadlineExceeded","status":"False","type":"Progressing"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":2,"replicas":1,"terminatingReplicas":0,"unavailableReplicas":1,"updatedReplicas":1}
        "#]],
    );
}

#[test]
fn a_name_that_is_taken_is_counted_as_a_collision() {
    let deployment = format!("spec: {{SPEC, replicas: 1, {}}}", template("v1"));
    let mut snapshot = snapshot(&deployment, &[]);
    snapshot.namesake = Some(Arc::new(parse("{metadata: {name: web-x}, spec: {selector: {}}}")));
    expect![[r#"
        step
          update deployments/status web {"collisionCount":1,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":2,"terminatingReplicas":0}
    "#]].assert_eq(&render(&plan(&snapshot, noon())));
}

#[test]
fn an_empty_selector_is_refused() {
    check(
        "spec: {selector: {}, template: {}}",
        &[],
        &expect![[r#"
            step
              Warning SelectingAll: This deployment is selecting all pods. A non-empty selector is required.
            step
              update deployments/status web {"observedGeneration":2}
        "#]],
    );
}

#[test]
fn replica_sets_are_adopted_and_released_by_their_labels() {
    let own = replica_set(
        "one",
        "v1",
        1,
        1,
        "replicas: 1, readyReplicas: 1, availableReplicas: 1",
        &numbered(1, 1, 2),
    );
    let strayed = own
        .replace("labels: {app: web, pod-template-hash: one}, ", "labels: {app: other}, ")
        .replace("one", "two");
    let strayed = strayed.replace("labels: {app: web, pod-template-hash: two},\n", "labels: {app: other},\n");
    let orphan = own.replace("uid: d1, controller: true", "uid: d1");
    check_sets(
        "replicas: 1",
        "v1",
        &[orphan, strayed],
        &expect![[r#"
        step
          patch replicasets one {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"Deployment","name":"web","uid":"d1"}],"uid":"one-uid"}}
          patch replicasets two {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"d1"}],"uid":"two-uid"}}
        step
    "#]],
    );
}

/// The Progressing and ReplicaFailure conditions that are written, as `type status reason: message`.
fn check_conditions(spec: &str, known: &str, set_status: &str, expect: &Expect) {
    let set = replica_set("one", "v1", 1, 1, set_status, &numbered(1, 1, 2));
    let status =
        format!("status: {{observedGeneration: 2, replicas: 1, updatedReplicas: 1, conditions: [{known}]}}");
    let deployment = format!("spec: {{SPEC, replicas: 1, {spec} {}}}, {status}", template("v1"));
    let plan = plan(&snapshot(&deployment, &[&set]), noon());
    let written = plan.actions().find_map(|action| match action {
        Action::Request(request) if request.subresource == "status" => {
            Some(request.body["status"]["conditions"].clone())
        }
        _ => None,
    });
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = written.unwrap_or_default();
    let lines =
        conditions.as_array().into_iter().flatten().filter(|condition| condition["type"] != "Available").map(
            |condition| {
                let (type_, status) = (text(&condition["type"]), text(&condition["status"]));
                format!("{type_} {status} {}: {}\n", text(&condition["reason"]), text(&condition["message"]))
            },
        );
    expect.assert_eq(&lines.collect::<String>());
}

#[test]
fn pausing_and_resuming_are_said() {
    let going = "{type: Progressing, status: 'True', reason: ReplicaSetUpdated, lastUpdateTime: '2026-01-01T11:59:00Z'}";
    check_conditions(
        "paused: true,",
        going,
        "replicas: 1",
        &expect![[r#"
        Progressing Unknown DeploymentPaused: Deployment is paused
    "#]],
    );
    let paused = going.replace("ReplicaSetUpdated", "DeploymentPaused");
    check_conditions(
        "",
        &paused,
        "replicas: 1",
        &expect![[r#"
        Progressing Unknown DeploymentResumed: Deployment is resumed
    "#]],
    );
}

#[test]
fn what_keeps_a_replica_set_from_making_pods_is_passed_on() {
    let failing = "replicas: 1, conditions: [{type: ReplicaFailure, status: 'True', reason: FailedCreate, message: no quota}]";
    let known = "{type: Progressing, status: 'True', reason: ReplicaSetUpdated, lastUpdateTime: '2026-01-01T11:59:00Z'}";
    check_conditions(
        "",
        known,
        failing,
        &expect![[r#"
        Progressing True ReplicaSetUpdated: 
        ReplicaFailure True FailedCreate: no quota
    "#]],
    );
}
