//! Source of the cases: `pkg/controller/cronjob`, tests of `syncCronJob` and `mostRecentScheduleTime`.

use expect_test::{Expect, expect};

use serde_json::json;

use super::*;
use crate::fixture::world::{FaultyExecutor, Life, Trouble, World};
use crate::fixture::{list, parse, refused, render};

const MADE: &str = "2026-01-01T09:30:00Z";

/// A CronJob that is due at each full hour, unless it is said.
fn cron_job(spec: &str, status: &str) -> Arc<CronJob> {
    let schedule = if spec.contains("schedule:") { "" } else { "schedule: '0 * * * *', " };
    Arc::new(parse(&format!(
        "{{metadata: {{name: tidy, namespace: default, uid: c1, creationTimestamp: '{MADE}'}}, \
         spec: {{{schedule}jobTemplate: {{metadata: {{labels: {{app: tidy}}}}, \
         spec: {{template: {{}}}}}}, {spec}}}, status: {{{status}}}}}"
    )))
}

fn job(name: &str, uid: &str, more: &str, status: &str) -> String {
    format!(
        "{{metadata: {{name: {name}, namespace: default, uid: {uid}, ownerReferences: [{{apiVersion: batch/v1, \
         kind: CronJob, name: tidy, uid: c1, controller: true}}], {more}}}, status: {{{status}}}}}"
    )
}

fn run(cron_job: &Arc<CronJob>, jobs: Vec<Arc<Job>>, now: &str) -> Plan {
    let now: Timestamp = now.parse().unwrap();
    let due = due(cron_job, now);
    let namesake = due
        .turn()
        .and_then(|turn| jobs.iter().find(|job| name(&job.metadata) == job_name(cron_job, turn.at)).cloned());
    plan(&Snapshot { cron_job: cron_job.clone(), jobs, due, namesake }, now)
}

fn check(spec: &str, status: &str, jobs: &str, now: &str, expect: &Expect) {
    expect.assert_eq(&render(&run(&cron_job(spec, status), list(jobs), now)));
}

/// Made at 10:00, which is minute 29454360.
fn ours(status: &str) -> String {
    let made = "annotations: {batch.kubernetes.io/cronjob-scheduled-timestamp: '2026-01-01T10:00:00Z'}";
    job("tidy-29454360", "j1", made, status)
}

const DONE: &str = "startTime: '2026-01-01T10:00:00Z', completionTime: '2026-01-01T10:05:00Z', conditions: \
    [{type: Complete, status: 'True'}]";
const KNOWN: &str = "active: [{name: tidy-29454360, uid: j1}], lastScheduleTime: '2026-01-01T10:00:00Z'";

#[test]
fn a_job_is_made_when_its_time_has_come() {
    check(
        "",
        "",
        "[]",
        "2026-01-01T09:59:00Z",
        &expect![[r#"
        again after 60.1s
    "#]],
    );
    check(
        "",
        "",
        "[]",
        "2026-01-01T10:00:30Z",
        &expect![[r#"
        step
          create jobs tidy-29454360
        step
          Normal SuccessfulCreate: Created job tidy-29454360
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-01T10:00:00Z"}
        again after 3570.1s
    "#]],
    );
    check("suspend: true", "", "[]", "2026-01-01T10:00:30Z", &expect![[r#""#]]);
    check(
        "startingDeadlineSeconds: 10",
        "",
        "[]",
        "2026-01-01T10:00:05Z",
        &expect![[r#"
        step
          create jobs tidy-29454360
        step
          Normal SuccessfulCreate: Created job tidy-29454360
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-01T10:00:00Z"}
        again after 3595.1s
    "#]],
    );
    check(
        "startingDeadlineSeconds: 10",
        "",
        "[]",
        "2026-01-01T10:00:30Z",
        &expect![[r#"
        again after 3570.1s
    "#]],
    );
    // An hour later than UTC: at ten there it is nine here.
    check(
        "schedule: '0 10 * * *', timeZone: Europe/Paris",
        "",
        "[]",
        "2026-01-02T09:00:30Z",
        &expect![[r#"
        step
          create jobs tidy-29455740
        step
          Normal SuccessfulCreate: Created job tidy-29455740
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-02T09:00:00Z"}
        again after 86370.1s
    "#]],
    );
}

#[test]
fn a_job_that_was_made_is_written_down_and_not_made_again() {
    let ran = "lastScheduleTime: '2026-01-01T10:00:00Z'";
    check(
        "",
        ran,
        &format!("[{}]", ours("")),
        "2026-01-01T10:00:31Z",
        &expect![[r#"
        step
          update cronjobs/status tidy {"active":[{"apiVersion":"batch/v1","kind":"Job","name":"tidy-29454360","namespace":"default","uid":"j1"}],"lastScheduleTime":"2026-01-01T10:00:00Z"}
        again after 3569.1s
    "#]],
    );
    // The controller was killed before it could write when the Job was due.
    check(
        "",
        "",
        &format!("[{}]", ours("")),
        "2026-01-01T10:00:31Z",
        &expect![[r#"
        step
          update cronjobs/status tidy {"active":[{"apiVersion":"batch/v1","kind":"Job","name":"tidy-29454360","namespace":"default","uid":"j1"}],"lastScheduleTime":"2026-01-01T10:00:00Z"}
        again after 3569.1s
    "#]],
    );
    check(
        "",
        KNOWN,
        &format!("[{}]", ours("")),
        "2026-01-01T10:00:32Z",
        &expect![[r#"
        again after 3568.1s
    "#]],
    );
    check(
        "",
        KNOWN,
        &format!("[{}]", ours(DONE)),
        "2026-01-01T10:05:00Z",
        &expect![[r#"
        step
          Normal SawCompletedJob: Saw completed job: tidy-29454360, condition: Complete
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-01T10:00:00Z","lastSuccessfulTime":"2026-01-01T10:05:00Z"}
        again after 3300.1s
    "#]],
    );
}

#[test]
fn a_job_that_is_gone_is_not_made_again() {
    let ran = "lastScheduleTime: '2026-01-01T10:00:00Z'";
    check(
        "",
        ran,
        "[]",
        "2026-01-01T10:05:00Z",
        &expect![[r#"
        again after 3300.1s
    "#]],
    );
    check(
        "",
        KNOWN,
        "[]",
        "2026-01-01T10:05:00Z",
        &expect![[r#"
        step
          require no jobs tidy-29454360
        step
          Normal MissingJob: Active job went missing: tidy-29454360
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-01T10:00:00Z"}
        again after 3300.1s
    "#]],
    );
    // Somebody else's has its name.
    let foreign = "[{metadata: {name: tidy-29454360, namespace: default, uid: x}}]";
    let cron_job = cron_job("", "");
    let now = "2026-01-01T10:00:30Z".parse().unwrap();
    let namesake = list::<Job>(foreign).pop();
    let seen = Snapshot { due: due(&cron_job, now), cron_job, jobs: Vec::new(), namesake };
    expect![[r#"
        again after 3570.1s
    "#]]
    .assert_eq(&render(&plan(&seen, now)));
}

#[test]
fn what_still_runs_is_left_waited_for_or_replaced() {
    let running = format!("[{}]", ours(""));
    check(
        "",
        KNOWN,
        &running,
        "2026-01-01T11:00:01Z",
        &expect![[r#"
        step
          create jobs tidy-29454420
        step
          Normal SuccessfulCreate: Created job tidy-29454420
        step
          update cronjobs/status tidy {"active":[{"name":"tidy-29454360","uid":"j1"}],"lastScheduleTime":"2026-01-01T11:00:00Z"}
        again after 3599.1s
    "#]],
    );
    check(
        "concurrencyPolicy: Forbid",
        KNOWN,
        &running,
        "2026-01-01T11:00:01Z",
        &expect![[r#"
        step
          Normal JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is Forbid
        again after 3599.1s
    "#]],
    );
    check(
        "concurrencyPolicy: Replace",
        KNOWN,
        &running,
        "2026-01-01T11:00:01Z",
        &expect![[r#"
        step
          delete jobs tidy-29454360
        step
          Normal SuccessfulDelete: Deleted job tidy-29454360
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-01T10:00:00Z"}
        again after 3599.1s
    "#]],
    );
}

#[test]
fn a_job_on_its_way_out_is_in_nobodys_way() {
    let going = "deletionTimestamp: '2026-01-01T11:00:01Z'";
    let going = format!("[{}]", job("tidy-29454360", "j1", going, ""));
    let ran = "lastScheduleTime: '2026-01-01T10:00:00Z'";
    check(
        "concurrencyPolicy: Replace",
        ran,
        &going,
        "2026-01-01T11:00:02Z",
        &expect![[r#"
        step
          create jobs tidy-29454420
        step
          Normal SuccessfulCreate: Created job tidy-29454420
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-01T11:00:00Z"}
        again after 3598.1s
    "#]],
    );
}

#[test]
fn a_job_that_nobody_made_here_is_told_of() {
    check(
        "",
        "",
        &format!("[{}]", job("other", "j2", "", "")),
        "2026-01-01T09:59:00Z",
        &expect![[r#"
        step
          Warning UnexpectedJob: Saw a job that the controller did not create or forgot: other
        again after 60.1s
    "#]],
    );
}

#[test]
fn old_jobs_go() {
    let ended = |index: usize, kind: &str| {
        let status = format!(
            "startTime: '2026-01-01T0{index}:00:00Z', completionTime: '2026-01-01T0{index}:30:00Z', \
             conditions: [{{type: {kind}, status: 'True'}}]"
        );
        job(&format!("run-{index}"), &format!("j{index}"), "", &status)
    };
    let jobs: Vec<String> =
        (1..=6).rev().map(|index| ended(index, if index > 4 { "Failed" } else { "Complete" })).collect();
    let limits = "successfulJobsHistoryLimit: 3, failedJobsHistoryLimit: 1";
    let status = "lastSuccessfulTime: '2026-01-01T04:30:00Z'";
    check(
        limits,
        status,
        &format!("[{}]", jobs.join(", ")),
        "2026-01-01T09:59:00Z",
        &expect![[r#"
        step
          delete jobs run-1
          delete jobs run-5
        step
          Normal SuccessfulDelete: Deleted job run-1
          Normal SuccessfulDelete: Deleted job run-5
        again after 60.1s
    "#]],
    );
}

#[test]
fn a_job_that_cannot_be_deleted_is_told_of() {
    let ended = "conditions: [{type: Complete, status: 'True'}]";
    let jobs = list(&format!("[{}]", job("run-1", "j1", "", ended)));
    let plan = run(&cron_job("successfulJobsHistoryLimit: 0", ""), jobs, "2026-01-01T09:59:00Z");
    let told = plan.about_failure(0, &refused("the server is on fire"));
    let [Action::Event(event)] = &told[..] else { panic!("an event") };
    assert_eq!((&*event.reason, &*event.message), ("FailedDelete", "Deleted job: the server is on fire"));
}

#[test]
fn what_cannot_be_started_is_said() {
    for (spec, expect) in [
        (
            "schedule: '61 * * * *'",
            expect![[r#"
            step
              Warning UnparseableSchedule: unparseable schedule: "61 * * * *" : end of range (61) above maximum (59): 61
        "#]],
        ),
        (
            "timeZone: Moon/Crater",
            expect![[r#"
            step
              Warning UnknownTimeZone: invalid timeZone: "Moon/Crater": unknown time zone Moon/Crater
        "#]],
        ),
        (
            "timeZone: Moon/Crater, suspend: true",
            expect![[r#"
            step
              Warning UnknownTimeZone: invalid timeZone: "Moon/Crater": unknown time zone Moon/Crater
        "#]],
        ),
        (
            "schedule: '0 0 31 2 *'",
            expect![[r#"
            step
              Warning InvalidSchedule: invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second
        "#]],
        ),
        ("schedule: 'TZ=UTC 0 * * * *', suspend: true", expect![[r#""#]]),
        (
            "schedule: 'TZ=Asia/Tokyo 0 9 * * *'",
            expect![[r#"
            step
              Warning UnsupportedSchedule: CRON_TZ or TZ used in schedule "TZ=Asia/Tokyo 0 9 * * *" is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details
            again after 50460.1s
        "#]],
        ),
    ] {
        check(spec, "", "[]", "2026-01-01T09:59:00Z", &expect);
    }
}

#[test]
fn of_what_was_missed_the_last_is_started() {
    let ran = "lastScheduleTime: '2026-01-01T10:00:00Z'";
    check(
        "",
        ran,
        "[]",
        "2026-01-01T15:10:00Z",
        &expect![[r#"
        step
          create jobs tidy-29454660
        step
          Normal SuccessfulCreate: Created job tidy-29454660
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-01T15:00:00Z"}
        again after 3000.1s
    "#]],
    );
    check(
        "schedule: '* * * * *'",
        ran,
        "[]",
        "2026-01-01T11:40:30Z",
        &expect![[r#"
        step
          create jobs tidy-29454460
        step
          Normal SuccessfulCreate: Created job tidy-29454460
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-01T11:40:00Z"}
        again after 30.1s
    "#]],
    );
    check(
        "schedule: '* * * * *'",
        ran,
        "[]",
        "2046-01-01T10:00:00Z",
        &expect![[r#"
        step
          Warning TooManyMissedTimes: too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew
        step
          create jobs tidy-39973560
        step
          Normal SuccessfulCreate: Created job tidy-39973560
        step
          update cronjobs/status tidy {"lastScheduleTime":"2046-01-01T10:00:00Z"}
        again after 60.1s
    "#]],
    );
}

#[test]
fn of_uneven_times_the_last_is_found() {
    let ran = "lastScheduleTime: '2026-01-01T10:00:00Z'";
    check(
        "schedule: '@every 1h30m'",
        ran,
        "[]",
        "2026-01-01T14:40:00Z",
        &expect![[r#"
        step
          create jobs tidy-29454630
        step
          Normal SuccessfulCreate: Created job tidy-29454630
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-01T14:30:00Z"}
        again after 4800.1s
    "#]],
    );
    check(
        "schedule: '30 6-16/4 * * 1-5'",
        ran,
        "[]",
        "2026-01-05T11:00:00Z",
        &expect![[r#"
        step
          create jobs tidy-29460150
        step
          Normal SuccessfulCreate: Created job tidy-29460150
        step
          update cronjobs/status tidy {"lastScheduleTime":"2026-01-05T10:30:00Z"}
        again after 12600.1s
    "#]],
    );
}

/// Whatever is killed, or not answered, at whichever request: in the end the Job of eleven o'clock was made once, and is
/// written down.
#[test]
fn each_time_has_one_job_whoever_is_killed() {
    for policy in ["Allow", "Forbid", "Replace"] {
        let requests = survive(policy, FaultyExecutor::default());
        for trouble in (0..=requests).flat_map(|at| [Trouble::KilledAfter(at), Trouble::AnswerLost(at)]) {
            survive(policy, FaultyExecutor::with(trouble));
        }
    }
}

/// Runs until nothing is left to do, beginning anew after a death; how many requests that took.
fn survive(policy: &str, mut executor: FaultyExecutor) -> usize {
    let mut world = World::default();
    let now = "2026-01-01T11:00:01Z";
    world.put("cronjobs", json!(*cron_job(&format!("concurrencyPolicy: {policy}"), KNOWN)));
    world.put("jobs", json!(*list::<Job>(&format!("[{}]", ours(""))).remove(0)));
    let mut requests = 0;
    for _ in 0..20 {
        let (cron_job, jobs) = (world.get("cronjobs", "tidy").unwrap(), world.all::<Job>("jobs"));
        let plan = run(&cron_job, jobs, now);
        let is_done = plan.actions().all(|action| matches!(action, Action::Event(_)));
        if is_done {
            let names: Vec<String> =
                world.all::<Job>("jobs").iter().map(|job| name(&job.metadata).to_owned()).collect();
            let status = cron_job.status.clone().unwrap();
            let active: Vec<String> =
                status.active.unwrap_or_default().into_iter().filter_map(|one| one.name).collect();
            let (first, second) = ("tidy-29454360", "tidy-29454420");
            let expect = match policy {
                "Allow" => vec![first, second],
                "Forbid" => vec![first],
                _ => vec![second],
            };
            let expect = expect.into_iter().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!((&names, &active), (&expect, &expect), "{policy}");
            return requests;
        }
        if executor.carry_out(&mut world, plan) == Life::Dead {
            executor = FaultyExecutor::default();
        }
        requests = requests.max(executor.requests());
    }
    panic!("it never comes to rest");
}
