use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, noon, parse, render};

/// The revisions of the two templates below.
const OLD: &str = "web-old";

fn set(spec: &str, status: &str) -> StatefulSet {
    parse(&format!(
        "{{metadata: {{name: web, namespace: default, uid: s1, generation: 4}}, spec: {{selector: {{matchLabels: \
         {{app: web}}}}, serviceName: web, template: {{metadata: {{labels: {{app: web}}}}}}, {spec}}}, \
         status: {{replicas: 0, {status}}}}}"
    ))
}

/// The revision that the fixture's template has.
fn newest(set: &StatefulSet) -> ControllerRevision {
    let template = &set.spec.as_ref().expect("a spec").template;
    let made = history::newest(set, template, &[], 0, |_| None).revision;
    let mut revision = ControllerRevision::clone(&made);
    revision.revision = 2;
    revision
}

/// Pods of the set, one per line of `ordinal | state | metadata`; states: ready, pending, old (ready, old revision),
/// sick (old and not ready), failed, done, going.
fn pods(rows: &[&str], revision: &str) -> Vec<Arc<Pod>> {
    let yaml: Vec<String> = rows
        .iter()
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let mut cell = || cells.next().unwrap_or_default();
            let (ordinal, state, metadata) = (cell(), cell(), cell());
            let revision = if ["old", "sick"].contains(&state) { OLD } else { revision };
            let status = match state {
                "ready" | "old" => "phase: Running, conditions: [{type: Ready, status: 'True', \
                                    lastTransitionTime: '2026-01-01T11:59:55Z'}]",
                "sick" | "going" => "phase: Running",
                "failed" => "phase: Failed",
                "done" => "phase: Succeeded",
                _ => "phase: Pending",
            };
            let metadata = match state {
                "going" => format!("deletionTimestamp: '2026-01-01T11:00:00Z', {metadata}"),
                _ => metadata.to_owned(),
            };
            format!(
                "{{metadata: {{name: web-{ordinal}, namespace: default, uid: pod-{ordinal}, labels: {{app: web, \
                 controller-revision-hash: {revision}, statefulset.kubernetes.io/pod-name: web-{ordinal}, \
                 apps.kubernetes.io/pod-index: '{ordinal}'}}, ownerReferences: [{{apiVersion: apps/v1, kind: \
                 StatefulSet, name: web, uid: s1, controller: true}}], {metadata}}}, spec: {{hostname: \
                 web-{ordinal}, subdomain: web, containers: []}}, status: {{{status}}}}}"
            )
        })
        .collect();
    list(&format!("[{}]", yaml.join(",\n")))
}

/// A set in the middle of its life, with both revisions and a status that knows them.
fn snapshot(spec: &str, rows: &[&str]) -> Snapshot {
    let mut set = set(spec, "");
    let newest = newest(&set);
    let revision = name(&newest.metadata).to_owned();
    let mut old = newest.clone();
    old.metadata.name = Some(OLD.to_owned());
    old.revision = 1;
    old.data = Some(parse("{spec: {template: {$patch: replace, metadata: {labels: {app: web, old: x}}}}}"));
    let has_old = rows.iter().any(|row| row.contains("old") || row.contains("sick"));
    let status = set.status.get_or_insert_default();
    status.current_revision = Some(if has_old { OLD.to_owned() } else { revision.clone() });
    status.update_revision = Some(revision.clone());
    Snapshot {
        set: Arc::new(set),
        pods: pods(rows, &revision),
        revisions: vec![Arc::new(old), Arc::new(newest)],
        claims: Vec::new(),
    }
}

fn check(spec: &str, rows: &[&str], expect: &Expect) {
    // What a status says is another test's business.
    let text = render(&plan(&snapshot(spec, rows), noon()));
    let lines = text.lines().filter(|line| !line.contains("statefulsets/status") && *line != "step");
    expect.assert_eq(&lines.map(str::trim).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_first_pod_waits_for_a_revision_and_the_second_for_the_first() {
    let set = set("replicas: 3", "");
    let empty = Snapshot { set: Arc::new(set), pods: vec![], revisions: vec![], claims: vec![] };
    expect![[r#"
        step
          create controllerrevisions web-7c75489b6c
        step
          update statefulsets/status web {"availableReplicas":0,"collisionCount":0,"currentRevision":"web-7c75489b6c","observedGeneration":4,"replicas":0,"updateRevision":"web-7c75489b6c"}
        step
          create pods web-0
        step
          Normal SuccessfulCreate: create Pod web-0 in StatefulSet web successful
    "#]].assert_eq(&render(&plan(&empty, noon())));
    check("replicas: 3", &["0 | pending"], &expect![[""]]);
    check(
        "replicas: 3",
        &["0 | ready"],
        &expect![[r#"
        create pods web-1
        Normal SuccessfulCreate: create Pod web-1 in StatefulSet web successful"#]],
    );
    check("replicas: 3, minReadySeconds: 10", &["0 | ready"], &expect!["again after 5s"]);
}

#[test]
fn in_parallel_all_are_made_and_removed_at_once() {
    check(
        "replicas: 4, podManagementPolicy: Parallel",
        &["1 | pending"],
        &expect![[r#"
        create pods web-0
        create pods web-2
        create pods web-3
        Normal SuccessfulCreate: create Pod web-0 in StatefulSet web successful
        Normal SuccessfulCreate: create Pod web-2 in StatefulSet web successful
        Normal SuccessfulCreate: create Pod web-3 in StatefulSet web successful"#]],
    );
    check(
        "replicas: 1, podManagementPolicy: Parallel",
        &["0 | pending", "1 | ready", "2 | going", "3 | pending"],
        &expect![[r#"
            delete pods web-3
            delete pods web-1
            Normal SuccessfulDelete: delete Pod web-3 in StatefulSet web successful
            Normal SuccessfulDelete: delete Pod web-1 in StatefulSet web successful"#]],
    );
}

#[test]
fn scaling_down_goes_from_the_last_and_waits_for_what_is_unavailable() {
    check(
        "replicas: 1",
        &["0 | ready", "1 | ready", "2 | ready"],
        &expect![[r#"
        delete pods web-2
        Normal SuccessfulDelete: delete Pod web-2 in StatefulSet web successful"#]],
    );
    check("replicas: 1", &["0 | ready", "1 | ready", "2 | going"], &expect![[""]]);
    check("replicas: 1", &["0 | ready", "1 | pending", "2 | pending"], &expect![[""]]);
    check(
        "replicas: 1",
        &["0 | ready", "1 | ready", "2 | pending"],
        &expect![[r#"
        delete pods web-2
        Normal SuccessfulDelete: delete Pod web-2 in StatefulSet web successful"#]],
    );
}

#[test]
fn ordinals_may_start_elsewhere() {
    check(
        "replicas: 2, ordinals: {start: 5}",
        &["0 | ready", "5 | ready"],
        &expect![[r#"
        create pods web-6
        Normal SuccessfulCreate: create Pod web-6 in StatefulSet web successful"#]],
    );
}

#[test]
fn a_rollout_replaces_from_the_last_down_to_the_partition() {
    check(
        "replicas: 3",
        &["0 | old", "1 | old", "2 | old"],
        &expect![[r#"
        delete pods web-2
        Normal SuccessfulDelete: delete Pod web-2 in StatefulSet web successful"#]],
    );
    check("replicas: 3", &["0 | old", "1 | old", "2 | pending"], &expect![[""]]);
    check(
        "replicas: 3",
        &["0 | old", "1 | old", "2 | ready"],
        &expect![[r#"
        delete pods web-1
        Normal SuccessfulDelete: delete Pod web-1 in StatefulSet web successful"#]],
    );
    let partition = "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}";
    check(&format!("replicas: 3, {partition}"), &["0 | old", "1 | old", "2 | ready"], &expect![[""]]);
    check(
        &format!("replicas: 3, {partition}"),
        &["0 | old", "2 | ready"],
        &expect![[r#"
        create pods web-1
        Normal SuccessfulCreate: create Pod web-1 in StatefulSet web successful"#]],
    );
}

#[test]
fn as_many_are_replaced_as_may_be_unavailable() {
    let two = "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0, maxUnavailable: 50%}}";
    check(
        &format!("replicas: 4, {two}"),
        &["0 | old", "1 | old", "2 | old", "3 | old"],
        &expect![[r#"
        delete pods web-3
        delete pods web-2
        Normal SuccessfulDelete: delete Pod web-3 in StatefulSet web successful
        Normal SuccessfulDelete: delete Pod web-2 in StatefulSet web successful"#]],
    );
    check(
        &format!("replicas: 4, podManagementPolicy: Parallel, {two}"),
        &["0 | sick", "1 | old", "2 | old", "3 | old"],
        &expect![[r#"
            delete pods web-3
            delete pods web-0
            Normal SuccessfulDelete: delete Pod web-3 in StatefulSet web successful
            Normal SuccessfulDelete: delete Pod web-0 in StatefulSet web successful"#]],
    );
    check(
        &format!("replicas: 4, podManagementPolicy: Parallel, {two}"),
        &["0 | sick", "1 | sick", "2 | sick", "3 | old"],
        &expect![[r#"
            delete pods web-2
            delete pods web-1
            delete pods web-0
            Normal SuccessfulDelete: delete Pod web-2 in StatefulSet web successful
            Normal SuccessfulDelete: delete Pod web-1 in StatefulSet web successful
            Normal SuccessfulDelete: delete Pod web-0 in StatefulSet web successful"#]],
    );
}

#[test]
fn on_delete_waits_for_somebody_to_delete() {
    check("replicas: 2, updateStrategy: {type: OnDelete}", &["0 | old", "1 | old"], &expect![[""]]);
}

#[test]
fn pods_that_ended_are_made_again() {
    check(
        "replicas: 2",
        &["0 | failed", "1 | ready"],
        &expect![[r#"
        delete pods web-0
        Warning RecreatingFailedPod: StatefulSet default/web is recreating failed Pod web-0
        Normal SuccessfulDelete: delete Pod web-0 in StatefulSet web successful"#]],
    );
    check(
        "replicas: 1",
        &["0 | done"],
        &expect![[r#"
        delete pods web-0
        Normal RecreatingTerminatedPod: StatefulSet default/web is recreating terminated Pod web-0
        Normal SuccessfulDelete: delete Pod web-0 in StatefulSet web successful"#]],
    );
}

#[test]
fn a_set_that_is_being_deleted_only_tells() {
    let mut seen = snapshot("replicas: 3", &["0 | ready"]);
    let set = Arc::make_mut(&mut seen.set);
    set.metadata.deletion_timestamp = Some(controller::metadata::time(noon()));
    let plan = plan(&seen, noon());
    assert_eq!(plan.actions().count(), 1);
}

#[test]
fn the_status_counts_and_ends_a_rollout() {
    let text = |rows: &[&str], spec: &str| render(&plan(&snapshot(spec, rows), noon()));
    expect![[r#"
        step
          update statefulsets/status web {"availableReplicas":2,"collisionCount":0,"currentReplicas":2,"currentRevision":"web-7c75489b6c","observedGeneration":4,"readyReplicas":2,"replicas":2,"updateRevision":"web-7c75489b6c","updatedReplicas":2}
    "#]].assert_eq(&text(&["0 | ready", "1 | ready"], "replicas: 2"));
    expect![[r#"
        step
          update statefulsets/status web {"availableReplicas":1,"collisionCount":0,"currentReplicas":1,"currentRevision":"web-old","observedGeneration":4,"readyReplicas":1,"replicas":2,"updateRevision":"web-7c75489b6c","updatedReplicas":1}
    "#]].assert_eq(&text(&["0 | old", "1 | pending"], "replicas: 2"));
    expect![[r#"
        step
          update statefulsets/status web {"availableReplicas":0,"collisionCount":0,"currentReplicas":1,"currentRevision":"web-7c75489b6c","observedGeneration":4,"readyReplicas":1,"replicas":1,"updateRevision":"web-7c75489b6c","updatedReplicas":1}
        again after 5s
    "#]].assert_eq(&text(&["0 | ready"], "replicas: 1, minReadySeconds: 10"));
}

const CLAIMS: &str =
    "replicas: 1, volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}}]";

fn with_claim(spec: &str, rows: &[&str], claim: &str) -> String {
    let mut seen = snapshot(spec, rows);
    seen.claims =
        list(&format!("[{{metadata: {{name: data-web-0, namespace: default, uid: c1, {claim}}}}}]"));
    let text = render(&plan(&seen, noon()));
    let lines = text.lines().filter(|line| !line.contains("statefulsets/status"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn claims_come_before_their_pod() {
    check(
        CLAIMS,
        &[],
        &expect![[r#"
        create persistentvolumeclaims data-web-0
        create pods web-0
        Normal SuccessfulCreate: create Claim data-web-0 Pod web-0 in StatefulSet web success
        Normal SuccessfulCreate: create Pod web-0 in StatefulSet web successful"#]],
    );
    let pod = identity::pod(
        &set(CLAIMS, ""),
        set(CLAIMS, "").spec.as_ref().expect("a spec"),
        &parse("{spec: {containers: [], volumes: [{name: data, emptyDir: {}}, {name: tmp, emptyDir: {}}]}}"),
        "r1",
        0,
    );
    expect![[r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","labels":{"apps.kubernetes.io/pod-index":"0","controller-revision-hash":"r1","statefulset.kubernetes.io/pod-name":"web-0"},"name":"web-0","namespace":"default","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"StatefulSet","name":"web","uid":"s1"}]},"spec":{"containers":[],"hostname":"web-0","subdomain":"web","volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data-web-0"}},{"emptyDir":{},"name":"tmp"}]}}"#]].assert_eq(&serde_json::to_string(&pod).expect("JSON"));
}

#[test]
fn a_claim_that_goes_away_is_waited_for() {
    expect![[r#"
        step
        step
          Warning FailedCreate: create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being deleted
    "#]].assert_eq(&with_claim(CLAIMS, &[], "deletionTimestamp: '2026-01-01T11:00:00Z'"));
    let stale = "ownerReferences: [{apiVersion: v1, kind: Pod, name: web-0, uid: gone}]";
    expect![[r#"
        step
    "#]]
    .assert_eq(&with_claim(CLAIMS, &[], stale));
}

#[test]
fn claims_go_with_whom_the_policy_names() {
    let with = |policy: &str, rows: &[&str]| {
        let spec = format!("{CLAIMS}, persistentVolumeClaimRetentionPolicy: {policy}");
        with_claim(&spec, rows, "")
    };
    // The fixture's Pods lack the claim's volume, which is corrected as well.
    expect![[r#"
        step
          update persistentvolumeclaims data-web-0 {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data-web-0","namespace":"default","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"StatefulSet","name":"web","uid":"s1"}],"uid":"c1"}}
          patch pods web-0 {"metadata":{"resourceVersion":null,"uid":"pod-0"},"spec":{"volumes":[{"$retainKeys":["name","persistentVolumeClaim"],"name":"data","persistentVolumeClaim":{"claimName":"data-web-0"}}]}}
    "#]].assert_eq(&with("{whenDeleted: Delete, whenScaled: Retain}", &["0 | ready"]));
    let scaled = CLAIMS.replace("replicas: 1", "replicas: 0");
    let spec = format!("{scaled}, persistentVolumeClaimRetentionPolicy: {{whenScaled: Delete}}");
    expect![[r#"
        step
          update persistentvolumeclaims data-web-0 {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data-web-0","namespace":"default","ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Pod","name":"web-0","uid":"pod-0"}],"uid":"c1"}}
        step
          delete pods web-0
        step
          Normal SuccessfulDelete: delete Pod web-0 in StatefulSet web successful
    "#]].assert_eq(&with_claim(&spec, &["0 | ready"], ""));
}
