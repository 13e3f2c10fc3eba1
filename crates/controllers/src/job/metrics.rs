//! The metrics of Jobs, in upstream's names. Source: `pkg/controller/job/metrics`.

use controller::counter::{Buckets, CounterRow, Increment, Labels, Measured, SecondsRow};
use controller::pod::Pod;
use controller::{Action, Change, Informers};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};

use super::Decision;
use super::ending::{Outcome, finished};
use super::indexes::Indexes;
use super::pods::{has_finalizer, is_indexed};
use super::work::Kind;
use super::{OWN_NAME, manager};
use crate::pod::is_finished;

static SYNCS: CounterRow = CounterRow { name: "job_controller_job_syncs", help: "The number of job syncs" };
static SYNC_SECONDS: SecondsRow = SecondsRow {
    name: "job_controller_job_sync_duration_seconds",
    help: "The time it took to sync a job",
    buckets: Buckets::Exponential(0.004, 2.0, 15),
};
static FINISHED: CounterRow =
    CounterRow { name: "job_controller_jobs_finished", help: "The number of finished jobs" };
static BY_OTHERS: CounterRow = CounterRow {
    name: "job_controller_jobs_by_external_controller",
    help: "The number of Jobs managed by an external controller",
};
static PODS_FINISHED: CounterRow = CounterRow {
    name: "job_controller_job_pods_finished",
    help: "The number of finished Pods that are fully tracked",
};
static JUDGED: CounterRow = CounterRow {
    name: "job_controller_pod_failures_handled_by_failure_policy",
    help: "The number of failed Pods handled by failure policy, by the action that was applied",
};
static TRACKED: CounterRow = CounterRow {
    name: "job_controller_terminated_pods_tracking_finalizer",
    help: "The number of terminated pods that came to have the finalizer batch.kubernetes.io/job-tracking, or lost it",
};
static INDEXES_FINISHED: CounterRow =
    CounterRow { name: "job_controller_job_finished_indexes", help: "The number of finished indexes" };
static PODS_CREATED: CounterRow = CounterRow {
    name: "job_controller_job_pods_creation",
    help: "The number of Pods created by the Job controller, by the reason for their creation and its outcome",
};

/// What is counted of any plan for a Job.
pub(super) fn measured(spec: &JobSpec, kind: Kind) -> Measured {
    let action = match kind {
        Kind::Nothing => "tracking",
        Kind::Creates(_) => "pods_created",
        Kind::Deletes => "pods_deleted",
    };
    let labels = |result: &str| vec![mode(spec), text("action", action), text("result", result)];
    let (done, failed) = (labels("success"), labels("error"));
    Measured { counter: &SYNCS, seconds: &SYNC_SECONDS, done, failed }
}

/// What is counted when the status has been written.
pub(super) fn of_status(decision: &Decision<'_>) -> Vec<Action> {
    let (spec, old, new) = (decision.state.spec, &decision.state.status, &decision.tracked.status);
    let mut all = vec![
        count(&PODS_FINISHED, [mode(spec), text("result", "succeeded")], grown(old.succeeded, new.succeeded)),
        count(&PODS_FINISHED, [mode(spec), text("result", "failed")], grown(old.failed, new.failed)),
    ];
    if is_indexed(spec) {
        all.extend(of_indexes(spec, old, new));
    }
    let actions = ["Count", "Ignore", "FailIndex", "FailJob"];
    all.extend(actions.into_iter().map(|action| {
        let judged = decision.tracked.judged.iter().filter(|judged| **judged == action).count();
        count(&JUDGED, [text("action", action)], judged as u64)
    }));
    if let Some(ending) = &decision.ending
        && finished(&Job { status: Some(new.clone()), ..Job::default() }).is_some()
    {
        let result = if ending.outcome == Outcome::Success { "succeeded" } else { "failed" };
        let labels = [mode(spec), text("result", result), ("reason", ending.reason.clone())];
        all.push(count(&FINISHED, labels, 1));
    }
    all.into_iter().flatten().collect()
}

fn of_indexes(spec: &JobSpec, old: &JobStatus, new: &JobStatus) -> [Option<Action>; 2] {
    let limit = if spec.backoff_limit_per_index.is_some() { "perIndex" } else { "global" };
    let total = |text: &Option<String>| {
        Some(Indexes::parse(text.as_deref().unwrap_or_default(), spec.completions.unwrap_or(0)).total())
    };
    let of = |status: &str, by: u64| {
        count(&INDEXES_FINISHED, [text("status", status), text("backoffLimit", limit)], by)
    };
    [
        of("succeeded", grown(total(&old.completed_indexes), total(&new.completed_indexes))),
        of("failed", grown(total(&old.failed_indexes), total(&new.failed_indexes))),
    ]
}

/// What is counted when `created` Pods have been made, or one has not.
pub(super) fn of_creates(decision: &Decision<'_>) -> [Option<Action>; 2] {
    let Kind::Creates(made @ 1..) = decision.work.kind else { return [None, None] };
    let state = &decision.state;
    let reason = if state.failed > 0 && state.spec.pod_replacement_policy.as_deref() == Some("Failed") {
        "recreate_failed"
    } else if state.failed > 0 || state.at_work().terminating > 0 {
        "recreate_terminating_or_failed"
    } else {
        "new"
    };
    let of = |status: &str, by: usize| {
        count(&PODS_CREATED, [text("reason", reason), text("status", status)], by as u64)
    };
    [of("succeeded", made), of("failed", 1)]
}

/// A Job that somebody else carries out was made.
pub(super) fn saw_job(informers: &Informers, change: &Change<Job>) {
    let new = change.new.as_deref().filter(|_| change.old.is_none());
    if let Some(manager) = new.and_then(manager).filter(|name| *name != OWN_NAME) {
        let labels = vec![text("controller_name", manager)];
        informers.metrics().count(&Increment { counter: &BY_OTHERS, labels, by: 1 });
    }
}

/// A Pod that ended came to have the finalizer, or lost it.
pub(super) fn saw_pod(informers: &Informers, change: &Change<Pod>) {
    let is_tracked = |pod: Option<&Pod>| pod.is_some_and(|pod| is_finished(pod) && has_finalizer(pod));
    let event = match (is_tracked(change.old.as_deref()), is_tracked(change.new.as_deref())) {
        (false, true) => "add",
        (true, false) => "delete",
        _ => return,
    };
    informers.metrics().count(&Increment { counter: &TRACKED, labels: vec![text("event", event)], by: 1 });
}

fn mode(spec: &JobSpec) -> (&'static str, String) {
    text("completion_mode", if is_indexed(spec) { "Indexed" } else { "NonIndexed" })
}

fn text(label: &'static str, value: &str) -> (&'static str, String) {
    (label, value.to_owned())
}

fn grown(old: Option<i32>, new: Option<i32>) -> u64 {
    u64::try_from(new.unwrap_or(0).saturating_sub(old.unwrap_or(0))).unwrap_or(0)
}

fn count(counter: &'static CounterRow, labels: impl Into<Labels>, by: u64) -> Option<Action> {
    (by > 0).then(|| Action::Count(Increment { counter, labels: labels.into(), by }))
}
