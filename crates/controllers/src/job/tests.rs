mod simulation;

use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{self, noon, parse, render};

/// A Pod of the Job per line of `name | metadata | spec | status`; `!` before the name: without the finalizer.
fn pods(rows: &[&str]) -> Vec<Arc<Pod>> {
    let pod = |row: &&str| {
        let mut cells = row.split('|').map(str::trim);
        let mut cell = || cells.next().unwrap_or_default();
        let (name, metadata, spec, status) = (cell(), cell(), cell(), cell());
        let finalizers = if name.starts_with('!') { "" } else { pods::TRACKING };
        let name = name.trim_start_matches('!');
        let mut pod: Pod = parse(&format!(
            "{{metadata: {{name: {name}, namespace: default, uid: {name}, creationTimestamp: '2026-01-01T11:00:00Z', labels: \
             {{job: j}}, finalizers: [{finalizers}], ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: j, uid: j1, \
             controller: true}}]}}, spec: {{containers: [], {spec}}}, status: {{{status}}}}}"
        ));
        let extra: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta =
            parse(&format!("{{{metadata}}}"));
        pod.metadata.annotations = extra.annotations;
        pod.metadata.deletion_timestamp = extra.deletion_timestamp;
        if let Some(labels) = extra.labels {
            pod.metadata.labels = Some(labels);
        }
        if extra.owner_references.is_some() {
            pod.metadata.owner_references = None;
        }
        Arc::new(pod)
    };
    rows.iter().map(pod).collect()
}

fn job(spec: &str, status: &str) -> Job {
    let mut job: Job = parse(&format!(
        "{{metadata: {{name: j, namespace: default, uid: j1}}, spec: {{selector: {{matchLabels: {{job: j}}}}, template: {{}}, \
         {spec}}}, status: {{{status}}}}}"
    ));
    let spec = job.spec.get_or_insert_default();
    spec.template = parse(
        "{metadata: {labels: {job: j}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}",
    );
    job
}

fn planned(job: Job, pods: Vec<Arc<Pod>>) -> Plan {
    let mut endings = Endings::default();
    let spec = job.spec.clone().unwrap();
    endings.learn(pods.iter().map(|pod| (&**pod, pods::role(&spec, pod))));
    plan(&Snapshot { job: Arc::new(job), pods, endings, revision: 9 }, noon())
}

fn check(spec: &str, status: &str, rows: &[&str], expect: &Expect) {
    expect.assert_eq(&render(&planned(job(spec, status), pods(rows))));
}

const STARTED: &str =
    "startTime: '2026-01-01T11:00:00Z', uncountedTerminatedPods: {}, ready: 0, terminating: 0";
const RUNS: &str = "|| nodeName: node1 | phase: Running";
const READY: &str = "|| nodeName: node1 | phase: Running, conditions: [{type: Ready, status: 'True', lastTransitionTime: '2026-01-01T11:30:00Z'}]";
const LONG_AGO: &str = "containerStatuses: [{name: c, image: i, imageID: '', ready: false, restartCount: 0, state: {terminated: \
                        {exitCode: 3, finishedAt: '2026-01-01T11:10:00Z'}}}]";
const GOING: &str = "| deletionTimestamp: '2026-01-01T11:30:00Z' ||";

fn row(name: &str, rest: &str) -> String {
    format!("{name} {rest}")
}

fn failed(name: &str) -> String {
    format!("{name} ||| phase: Failed, {LONG_AGO}")
}

fn succeeded(name: &str) -> String {
    format!("{name} ||| phase: Succeeded")
}

fn checks(spec: &str, status: &str, rows: &[String], expect: &Expect) {
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    check(spec, status, &rows, expect);
}

#[test]
fn a_job_begins_with_as_many_pods_as_may_work_at_once() {
    check(
        "parallelism: 2, completions: 5",
        "",
        &[],
        &expect![[r#"
        step
          create pods j-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-x7xdm
          create pods j-cdgb2
        step
          Normal SuccessfulCreate: Created pod: j-cdgb2
        step
          update jobs/status j {"active":2,"ready":0,"startTime":"2026-01-01T12:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
    check(
        "parallelism: 2",
        "",
        &[],
        &expect![[r#"
        step
          create pods j-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-x7xdm
          create pods j-cdgb2
        step
          Normal SuccessfulCreate: Created pod: j-cdgb2
        step
          update jobs/status j {"active":2,"ready":0,"startTime":"2026-01-01T12:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
    check(
        "parallelism: 5, completions: 1",
        "",
        &[],
        &expect![[r#"
        step
          create pods j-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-x7xdm
        step
          update jobs/status j {"active":1,"ready":0,"startTime":"2026-01-01T12:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
    check(
        "parallelism: 0, completions: 1",
        "",
        &[],
        &expect![[r#"
        step
          update jobs/status j {"ready":0,"startTime":"2026-01-01T12:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
}

#[test]
fn pods_that_ended_are_counted_and_replaced() {
    let spec = "parallelism: 2, completions: 5";
    let status = format!("{STARTED}, active: 2");
    checks(
        spec,
        &status,
        &[row("a", RUNS), succeeded("b")],
        &expect![[r#"
        step
          update jobs/status j {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"succeeded":["b"]}}
        step
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
        step
          create pods j-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-x7xdm
    "#]],
    );
    checks(
        spec,
        &status,
        &[row("a", RUNS), failed("b")],
        &expect![[r#"
        step
          update jobs/status j {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":["b"]}}
        step
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
        step
          create pods j-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-x7xdm
    "#]],
    );
    // Seen without its finalizer, it is counted; with it, it is not yet.
    let status = "startTime: '2026-01-01T11:00:00Z', active: 2, ready: 0, terminating: 0, uncountedTerminatedPods: \
                  {succeeded: [b, c], failed: [d, gone]}";
    let rows = [row("a", RUNS), row("e", RUNS), succeeded("!b"), succeeded("c"), failed("!d")];
    checks(
        spec,
        status,
        &rows,
        &expect![[r#"
        step
          update jobs/status j {"active":2,"failed":2,"ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{"succeeded":["c"]}}
        step
          patch pods c {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"c"}}
    "#]],
    );
}

#[test]
fn after_a_failure_a_job_waits() {
    let now = "containerStatuses: [{name: c, image: i, imageID: '', ready: false, restartCount: 0, state: {terminated: \
               {exitCode: 3, finishedAt: '2026-01-01T11:59:56Z'}}}]";
    let rows = [format!("a ||| phase: Failed, {now}"), format!("!b ||| phase: Failed, {LONG_AGO}")];
    checks(
        "parallelism: 1, completions: 1",
        &format!("{STARTED}, active: 1, failed: 1"),
        &rows,
        &expect![[r#"
        step
          update jobs/status j {"failed":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":["a"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
        again after 16s
    "#]],
    );
}

#[test]
fn a_job_completes_in_two_steps() {
    let spec = "parallelism: 2, completions: 2";
    checks(
        spec,
        &format!("{STARTED}, active: 2"),
        &[succeeded("a"), succeeded("b")],
        &expect![[r#"
        step
          update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Reached expected number of succeeded pods","reason":"CompletionsReached","status":"True","type":"SuccessCriteriaMet"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"succeeded":["a","b"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
    "#]],
    );
    let met =
        "conditions: [{type: SuccessCriteriaMet, status: 'True', reason: CompletionsReached, message: m}]";
    let status = format!(
        "startTime: '2026-01-01T11:00:00Z', ready: 0, terminating: 0, uncountedTerminatedPods: {{succeeded: [a, b]}}, {met}"
    );
    checks(
        spec,
        &status,
        &[succeeded("!a"), succeeded("b")],
        &expect![[r#"
        step
          update jobs/status j {"conditions":[{"message":"m","reason":"CompletionsReached","status":"True","type":"SuccessCriteriaMet"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{"succeeded":["b"]}}
        step
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
    "#]],
    );
    checks(
        spec,
        &status,
        &[succeeded("!a"), succeeded("!b")],
        &expect![[r#"
        step
          update jobs/status j {"completionTime":"2026-01-01T12:00:00Z","conditions":[{"message":"m","reason":"CompletionsReached","status":"True","type":"SuccessCriteriaMet"},{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"m","reason":"CompletionsReached","status":"True","type":"Complete"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":2,"terminating":0,"uncountedTerminatedPods":{}}
        step
          Normal Completed: Job completed
    "#]],
    );
    // More than were wanted.
    let status = format!("{STARTED}, succeeded: 3, {met}");
    checks(
        spec,
        &status,
        &[],
        &expect![[r#"
        step
          update jobs/status j {"completionTime":"2026-01-01T12:00:00Z","conditions":[{"message":"m","reason":"CompletionsReached","status":"True","type":"SuccessCriteriaMet"},{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"m","reason":"CompletionsReached","status":"True","type":"Complete"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":3,"terminating":0,"uncountedTerminatedPods":{}}
        step
          Warning TooManySucceededPods: Too many succeeded pods running after completion count reached
          Normal Completed: Job completed
    "#]],
    );
}

#[test]
fn a_work_queue_completes_when_one_has_succeeded_and_nobody_works() {
    let spec = "parallelism: 2";
    checks(
        spec,
        &format!("{STARTED}, active: 2"),
        &[row("a", RUNS), succeeded("b")],
        &expect![[r#"
        step
          update jobs/status j {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"succeeded":["b"]}}
        step
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
    "#]],
    );
    checks(
        spec,
        &format!("{STARTED}, active: 1, succeeded: 1"),
        &[failed("a"), succeeded("!b")],
        &expect![[r#"
        step
          update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Reached expected number of succeeded pods","reason":"CompletionsReached","status":"True","type":"SuccessCriteriaMet"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{"failed":["a"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
    "#]],
    );
}

#[test]
fn too_many_pods_are_taken_away_without_being_counted() {
    let rows = [row("a", READY), row("b", RUNS), "c ||| phase: Pending".to_owned()];
    checks(
        "parallelism: 2, completions: 5",
        &format!("{STARTED}, active: 3"),
        &rows,
        &expect![[r#"
        step
          patch pods c {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"c"}}
        step
          delete pods c
        step
          Normal SuccessfulDelete: Deleted pod: c
        step
          update jobs/status j {"active":2,"ready":1,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{}}
    "#]],
    );
    // One whose removal was broken off is tracked again, and chosen anew.
    let rows = [row("!a", READY), row("b", READY)];
    checks(
        "parallelism: 2, completions: 5",
        &format!("{STARTED}, active: 2"),
        &rows,
        &expect![[r#"
        step
          patch pods a {"metadata":{"finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
        step
          update jobs/status j {"active":2,"ready":2,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
}

#[test]
fn a_suspended_job_has_no_pods_and_says_so() {
    let spec = "parallelism: 2, completions: 5, suspend: true";
    check(
        spec,
        "",
        &[],
        &expect![[r#"
        step
          update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job suspended","reason":"JobSuspended","status":"True","type":"Suspended"}],"ready":0,"terminating":0,"uncountedTerminatedPods":{}}
        step
          Normal Suspended: Job suspended
    "#]],
    );
    checks(
        spec,
        &format!("{STARTED}, active: 2"),
        &[row("a", READY), row("b", RUNS)],
        &expect![[r#"
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
        step
          delete pods a
          delete pods b
        step
          Normal SuccessfulDelete: Deleted pod: a
          Normal SuccessfulDelete: Deleted pod: b
        step
          update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job suspended","reason":"JobSuspended","status":"True","type":"Suspended"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":2,"uncountedTerminatedPods":{}}
        step
          Normal Suspended: Job suspended
    "#]],
    );
    let suspended =
        "conditions: [{type: Suspended, status: 'True', reason: JobSuspended, message: Job suspended}]";
    check(spec, &format!("{STARTED}, {suspended}"), &[], &expect![[""]]);
    let spec = "parallelism: 1, completions: 5, activeDeadlineSeconds: 60";
    // The deadline begins anew.
    check(
        spec,
        &format!("{STARTED}, {suspended}"),
        &[],
        &expect![[r#"
        step
          create pods j-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-x7xdm
        step
          update jobs/status j {"active":1,"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job resumed","reason":"JobResumed","status":"False","type":"Suspended"}],"ready":0,"startTime":"2026-01-01T12:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
        step
          Normal Resumed: Job resumed
        again after 60s
    "#]],
    );
    check(
        "completions: 0, suspend: true",
        "",
        &[],
        &expect![[r#"
        step
          update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Reached expected number of succeeded pods","reason":"CompletionsReached","status":"True","type":"SuccessCriteriaMet"}],"ready":0,"terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
}

#[test]
fn a_job_fails_in_two_steps_and_ends_its_pods() {
    let spec = "parallelism: 3, completions: 5, backoffLimit: 1";
    let rows = [failed("a"), failed("b"), row("c", RUNS)];
    checks(
        spec,
        &format!("{STARTED}, active: 3"),
        &rows,
        &expect![[r#"
        step
          delete pods c
        step
          Normal SuccessfulDelete: Deleted pod: c
        step
          update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has reached the specified backoff limit","reason":"BackoffLimitExceeded","status":"True","type":"FailureTarget"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{"failed":["a","b","c"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
          patch pods c {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"c"}}
    "#]],
    );
    let target =
        "conditions: [{type: FailureTarget, status: 'True', reason: BackoffLimitExceeded, message: m}]";
    let status = format!(
        "startTime: '2026-01-01T11:00:00Z', ready: 0, terminating: 1, uncountedTerminatedPods: {{failed: [a, b, c]}}, {target}"
    );
    let rows = [failed("!a"), failed("!b"), row("!c", GOING)];
    checks(
        spec,
        &status,
        &rows,
        &expect![[r#"
        step
          update jobs/status j {"conditions":[{"message":"m","reason":"BackoffLimitExceeded","status":"True","type":"FailureTarget"}],"failed":3,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{}}
    "#]],
    );
    let status = format!("{STARTED}, failed: 3, {target}");
    checks(
        spec,
        &status,
        &[failed("!a"), failed("!b")],
        &expect![[r#"
        step
          update jobs/status j {"conditions":[{"message":"m","reason":"BackoffLimitExceeded","status":"True","type":"FailureTarget"},{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"m","reason":"BackoffLimitExceeded","status":"True","type":"Failed"}],"failed":3,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
        step
          Warning BackoffLimitExceeded: m
    "#]],
    );
}

#[test]
fn restarts_in_place_count_towards_the_limit() {
    let restarted = |count: i32| {
        let status = format!(
            "phase: Running, containerStatuses: [{{name: c, image: i, imageID: '', ready: true, restartCount: {count}}}]"
        );
        let mut job =
            job("parallelism: 1, completions: 1, backoffLimit: 3", &format!("{STARTED}, active: 1"));
        let spec = job.spec.as_mut().unwrap();
        spec.template.spec.as_mut().unwrap().restart_policy = Some("OnFailure".into());
        render(&planned(job, pods(&[&format!("a |||{status}")])))
    };
    assert_eq!(restarted(2), "");
    expect![[r#"
        step
          delete pods a
        step
          Normal SuccessfulDelete: Deleted pod: a
        step
          update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has reached the specified backoff limit","reason":"BackoffLimitExceeded","status":"True","type":"FailureTarget"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{"failed":["a"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
    "#]].assert_eq(&restarted(3));
}

#[test]
fn a_job_has_until_its_deadline() {
    let spec = "parallelism: 1, completions: 1, activeDeadlineSeconds: 3605";
    checks(
        spec,
        &format!("{STARTED}, active: 1"),
        &[row("a", RUNS)],
        &expect![[r#"
        again after 5s
    "#]],
    );
    let spec = "parallelism: 1, completions: 1, activeDeadlineSeconds: 3600";
    checks(
        spec,
        &format!("{STARTED}, active: 1"),
        &[row("a", RUNS)],
        &expect![[r#"
        step
          delete pods a
        step
          Normal SuccessfulDelete: Deleted pod: a
        step
          update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job was active longer than specified deadline","reason":"DeadlineExceeded","status":"True","type":"FailureTarget"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{"failed":["a"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
    "#]],
    );
    let spec = "parallelism: 1, completions: 1, activeDeadlineSeconds: 9223372036854775807";
    checks(
        spec,
        &format!("{STARTED}, active: 1"),
        &[row("a", RUNS)],
        &expect![[r#"
        again after 9223372036854772207s
    "#]],
    );
}

#[test]
fn a_failure_policy_ignores_counts_or_ends() {
    let policy = |rule: &str| {
        format!(
            "parallelism: 1, completions: 1, backoffLimit: 0, podReplacementPolicy: Failed, podFailurePolicy: {{rules: [{rule}]}}"
        )
    };
    let status = format!("{STARTED}, active: 1");
    let ignore = policy("{action: Ignore, onExitCodes: {operator: In, values: [3]}}");
    checks(
        &ignore,
        &status,
        &[failed("a")],
        &expect![[r#"
        step
          update jobs/status j {"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
        step
          create pods j-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-x7xdm
    "#]],
    );
    let fail = policy("{action: FailJob, onExitCodes: {operator: In, values: [3]}}");
    checks(
        &fail,
        &status,
        &[failed("a")],
        &expect![[r#"
        step
          update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Container c for pod default/a failed with exit code 3 matching FailJob rule at index 0","reason":"PodFailurePolicy","status":"True","type":"FailureTarget"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":["a"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
    "#]],
    );
    // A Pod on its way out has not failed yet.
    checks(
        &fail,
        &status,
        &[row("a", GOING)],
        &expect![[r#"
        step
          update jobs/status j {"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{}}
    "#]],
    );
}

#[test]
fn pods_on_their_way_out_are_replaced_at_once_or_when_they_have_ended() {
    let status = format!("{STARTED}, active: 1");
    checks(
        "parallelism: 1, completions: 1",
        &status,
        &[row("a", GOING)],
        &expect![[r#"
        step
          update jobs/status j {"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{"failed":["a"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
        step
          create pods j-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-x7xdm
    "#]],
    );
    checks(
        "parallelism: 1, completions: 1, podReplacementPolicy: Failed",
        &status,
        &[row("a", GOING)],
        &expect![[r#"
        step
          update jobs/status j {"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{}}
    "#]],
    );
}

fn indexed(name: &str, index: &str, rest: &str) -> String {
    format!("{name} | annotations: {{batch.kubernetes.io/job-completion-index: '{index}'}} {rest}")
}

#[test]
fn indexes_are_worked_on_in_order_and_once() {
    let spec = "completionMode: Indexed, parallelism: 3, completions: 5";
    check(
        spec,
        "",
        &[],
        &expect![[r#"
        step
          create pods j-0-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-0-x7xdm
          create pods j-1-cdgb2
          create pods j-2-lxg9f
        step
          Normal SuccessfulCreate: Created pod: j-1-cdgb2
          Normal SuccessfulCreate: Created pod: j-2-lxg9f
        step
          update jobs/status j {"active":3,"ready":0,"startTime":"2026-01-01T12:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
    let rows = [
        indexed("a", "0", "|| phase: Succeeded"),
        indexed("b", "1", &format!("|| phase: Failed, {LONG_AGO}")),
        indexed("c", "2", "|| phase: Running"),
    ];
    checks(
        spec,
        &format!("{STARTED}, active: 3"),
        &rows,
        &expect![[r#"
        step
          update jobs/status j {"active":1,"completedIndexes":"0","ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{"failed":["b"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
        step
          create pods j-1-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-1-x7xdm
          create pods j-3-cdgb2
        step
          Normal SuccessfulCreate: Created pod: j-3-cdgb2
    "#]],
    );
}

#[test]
fn pods_without_an_index_of_their_own_are_taken_away() {
    let spec = "completionMode: Indexed, parallelism: 3, completions: 5";
    // Twice the same index, one beyond the last, one without any.
    let rows = [
        indexed("a", "0", "| nodeName: node1 | phase: Running"),
        indexed("b", "0", "|| phase: Pending"),
        indexed("c", "9", "|| phase: Running"),
        row("d", RUNS),
    ];
    checks(
        spec,
        &format!("{STARTED}, active: 4"),
        &rows,
        &expect![[r#"
        step
          patch pods d {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"d"}}
          patch pods c {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"c"}}
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
        step
          delete pods d
          delete pods c
          delete pods b
        step
          Normal SuccessfulDelete: Deleted pod: d
          Normal SuccessfulDelete: Deleted pod: c
          Normal SuccessfulDelete: Deleted pod: b
        step
          update jobs/status j {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":3,"uncountedTerminatedPods":{}}
    "#]],
    );
    // It was made smaller.
    let spec = "completionMode: Indexed, parallelism: 2, completions: 2";
    checks(
        spec,
        &format!("{STARTED}, succeeded: 3, completedIndexes: '0,1,4'"),
        &[],
        &expect![[r#"
        step
          update jobs/status j {"completedIndexes":"0,1","conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Reached expected number of succeeded pods","reason":"CompletionsReached","status":"True","type":"SuccessCriteriaMet"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":2,"terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
}

#[test]
fn a_pod_of_an_index_knows_it() {
    let made =
        planned(job("completionMode: Indexed, completions: 3, backoffLimitPerIndex: 2", ""), Vec::new());
    let Some(Action::Request(request)) = made.actions().next() else { panic!("no request") };
    expect![[r#"{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"batch.kubernetes.io/job-completion-index":"0","batch.kubernetes.io/job-index-failure-count":"0"},"finalizers":["batch.kubernetes.io/job-tracking"],"generateName":"j-0-","labels":{"batch.kubernetes.io/job-completion-index":"0","job":"j"},"name":"j-0-x7xdm","namespace":"default","ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"Job","name":"j","uid":"j1"}]},"spec":{"containers":[{"env":[{"name":"JOB_COMPLETION_INDEX","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['batch.kubernetes.io/job-completion-index']"}}}],"image":"i","name":"c"}],"hostname":"j-0","restartPolicy":"Never"}}"#]].assert_eq(&request.body.to_string());
}

const PER_INDEX: &str = "completionMode: Indexed, parallelism: 3, completions: 3, backoffLimit: 2147483647, \
                         backoffLimitPerIndex: 1, maxFailedIndexes: 1";

/// A Pod that failed at this time, after `count` others of its index.
fn counted(name: &str, index: &str, count: u32, when: &str) -> String {
    format!(
        "{name} | annotations: {{batch.kubernetes.io/job-completion-index: '{index}', \
         batch.kubernetes.io/job-index-failure-count: '{count}'}} || phase: Failed, {}",
        LONG_AGO.replace("11:10:00", when)
    )
}

fn working(name: &str, index: &str) -> String {
    indexed(name, index, "|| phase: Running")
}

#[test]
fn a_failure_of_an_index_stays_until_it_is_told_by_a_successor() {
    let spec = PER_INDEX;
    let status = format!("{STARTED}, active: 3");
    // The first failure stays until there is a successor that tells of it.
    let rows = [counted("a", "0", 0, "11:10:00"), working("b", "1"), working("c", "2")];
    checks(
        spec,
        &status,
        &rows,
        &expect![[r#"
        step
          create pods j-0-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-0-x7xdm
        step
          update jobs/status j {"active":3,"failedIndexes":"","ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
    let rows = [counted("a", "0", 0, "11:59:58"), working("b", "1"), working("c", "2")];
    checks(
        spec,
        &status,
        &rows,
        &expect![[r#"
        step
          update jobs/status j {"active":2,"failedIndexes":"","ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
        again after 8s
    "#]],
    );
    let rows = [counted("a", "0", 0, "11:10:00"), working("d", "0"), working("b", "1"), working("c", "2")];
    checks(
        spec,
        &status,
        &rows,
        &expect![[r#"
        step
          update jobs/status j {"active":3,"failedIndexes":"","ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":["a"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
    "#]],
    );
}

#[test]
fn an_index_fails_alone_and_too_many_fail_the_job() {
    let spec = PER_INDEX;
    let status = format!("{STARTED}, active: 3");
    // The second one was the last.
    let rows = [counted("a", "0", 1, "11:10:00"), working("b", "1"), working("c", "2")];
    checks(
        spec,
        &status,
        &rows,
        &expect![[r#"
        step
          update jobs/status j {"active":2,"failedIndexes":"0","ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":["a"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
    "#]],
    );
    let rows = [counted("a", "0", 1, "11:10:00"), counted("b", "1", 1, "11:10:00"), working("c", "2")];
    checks(
        spec,
        &status,
        &rows,
        &expect![[r#"
        step
          delete pods c
        step
          Normal SuccessfulDelete: Deleted pod: c
        step
          update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has exceeded the specified maximal number of failed indexes","reason":"MaxFailedIndexesExceeded","status":"True","type":"FailureTarget"}],"failedIndexes":"0,1","ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{"failed":["a","b","c"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
          patch pods c {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"c"}}
    "#]],
    );
    let rows = [counted("a", "0", 1, "11:10:00")];
    checks(
        spec,
        &format!("{STARTED}, active: 1, completedIndexes: '1,2', succeeded: 2"),
        &rows,
        &expect![[r#"
        step
          update jobs/status j {"completedIndexes":"1,2","conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has failed indexes","reason":"FailedIndexes","status":"True","type":"FailureTarget"}],"failedIndexes":"0","ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":2,"terminating":0,"uncountedTerminatedPods":{"failed":["a"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
    "#]],
    );
}

#[test]
fn a_success_policy_ends_a_job_early() {
    let spec = "completionMode: Indexed, parallelism: 3, completions: 3, successPolicy: {rules: [{succeededIndexes: '0'}]}";
    let rows = [indexed("a", "0", "|| phase: Succeeded"), indexed("b", "1", "|| phase: Running")];
    checks(
        spec,
        &format!("{STARTED}, active: 2"),
        &rows,
        &expect![[r#"
        step
          delete pods b
        step
          Normal SuccessfulDelete: Deleted pod: b
        step
          update jobs/status j {"completedIndexes":"0","conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Matched rules at index 0","reason":"SuccessPolicy","status":"True","type":"SuccessCriteriaMet"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":1,"uncountedTerminatedPods":{}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
    "#]],
    );
}

#[test]
fn orphans_are_adopted_and_strangers_let_go() {
    let spec = "parallelism: 2, completions: 5";
    let rows = ["!a | ownerReferences: [] || phase: Running", "b | labels: {job: other} || phase: Running"];
    check(
        spec,
        &format!("{STARTED}, active: 2"),
        &rows,
        &expect![[r#"
        step
          patch pods a {"metadata":{"finalizers":["batch.kubernetes.io/job-tracking"],"ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"Job","name":"j","uid":"j1"}],"uid":"a"}}
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"ownerReferences":[{"$patch":"delete","uid":"j1"}],"uid":"b"}}
        step
          create pods j-x7xdm
        step
          Normal SuccessfulCreate: Created pod: j-x7xdm
    "#]],
    );
}

#[test]
fn a_job_that_is_deleted_counts_what_ended_and_makes_nothing() {
    let mut deleted = job("parallelism: 2, completions: 5", &format!("{STARTED}, active: 2"));
    deleted.metadata.deletion_timestamp = Some(time(noon()));
    let rows = [succeeded("a"), row("b", RUNS)];
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    expect![[r#"
        step
          update jobs/status j {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"succeeded":["a"]}}
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
          patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
    "#]].assert_eq(&render(&planned(deleted, pods(&rows))));
}

#[test]
fn what_cannot_be_made_is_told() {
    let refused = planned(job("parallelism: 1, completions: 1", ""), Vec::new());
    let told: Vec<Action> = refused.clone().about_failure(0, &fixture::refused("no quota"));
    expect![[r#"
        step
          update jobs/status j {"ready":0,"startTime":"2026-01-01T12:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
          Warning FailedCreate: Error creating: no quota
    "#]].assert_eq(&render(&Plan { steps: vec![told], ..Plan::nothing() }));
    // What was not about Pods is not.
    assert_eq!(refused.about_failure(3, &fixture::refused("no quota")), []);
}

#[test]
fn a_completion_mode_of_the_future_is_left_alone() {
    check(
        "completionMode: Other, completions: 1",
        "",
        &[],
        &expect![[r#"
        step
          Warning UnknownCompletionMode: Skipped Job sync because completion mode is unknown
    "#]],
    );
}

#[test]
fn many_pods_are_counted_by_and_by() {
    let rows: Vec<String> = (0..700).map(|n| succeeded(&format!("p{n}"))).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let plan =
        planned(job("parallelism: 700, completions: 700", &format!("{STARTED}, active: 700")), pods(&rows));
    let patches = plan
        .actions()
        .filter(|action| matches!(action, Action::Request(one) if one.resource.plural == "pods"));
    assert_eq!(patches.count(), 500);
}

#[test]
fn of_many_indexes_the_lowest_are_counted_first() {
    let rows: Vec<String> =
        (0..700).map(|n| indexed(&format!("p{n}"), &n.to_string(), "|| phase: Succeeded")).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let spec = "completionMode: Indexed, parallelism: 700, completions: 700";
    let plan = planned(job(spec, &format!("{STARTED}, active: 700")), pods(&rows));
    let Some(Action::Request(status)) = plan.actions().next() else { panic!("a status") };
    assert_eq!(status.body["status"]["completedIndexes"], "0-499");
}

/// Source: "pod flips from failed to succeeded", "indexed job prev successful pods outside current completions index range
/// with no new succeeded pods", "FailureTarget=False condition added manually is ignored".
#[test]
fn what_was_written_down_counts_and_what_somebody_made_up_does_not() {
    let uncounted = "startTime: '2026-01-01T11:00:00Z', active: 1, ready: 0, terminating: 0, \
                     uncountedTerminatedPods: {failed: [a]}";
    checks(
        "parallelism: 1, completions: 2",
        uncounted,
        &[succeeded("a"), row("b", RUNS)],
        &expect![[r#"
        step
          patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a"}}
    "#]],
    );
    check(
        "completionMode: Indexed, parallelism: 2, completions: 2",
        &format!("{STARTED}, active: 1, completedIndexes: '0,2-4', succeeded: 4"),
        &[&indexed("b", "1", "|| phase: Running")],
        &expect![[r#"
            step
              update jobs/status j {"active":1,"completedIndexes":"0","ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{}}
        "#]],
    );
    let made_up =
        "conditions: [{type: FailureTarget, status: 'False'}, {type: SuccessCriteriaMet, status: 'False'}]";
    checks(
        "parallelism: 1, completions: 2",
        &format!("{STARTED}, active: 1, {made_up}"),
        &[row("b", RUNS)],
        &expect![[r#""#]],
    );
    checks(
        "parallelism: 1, completions: 2, backoffLimit: 0",
        &format!("{STARTED}, active: 1, {made_up}"),
        &[failed("b")],
        &expect![[r#"
            step
              update jobs/status j {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has reached the specified backoff limit","reason":"BackoffLimitExceeded","status":"True","type":"FailureTarget"},{"status":"False","type":"SuccessCriteriaMet"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":["b"]}}
            step
              patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b"}}
        "#]],
    );
}
