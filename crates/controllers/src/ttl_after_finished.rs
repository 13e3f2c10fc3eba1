//! The TTL-after-finished controller: deletes Jobs that have been over for as long as they ask for.
//!
//! A Job is deleted in the version that was looked at: whoever gives it more time at the last moment keeps it.

use std::sync::Arc;
use std::time::Duration;

use controller::counter::{Buckets, SecondsRow};
use controller::metadata::is_deleting;
use controller::{Action, Change, Controller, Informers, Plan, Propagation, Source};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use crate::job::finished;

/// Source: `pkg/controller/ttlafterfinished/metrics`.
static DELETION_SECONDS: SecondsRow = SecondsRow {
    name: "ttl_after_finished_controller_job_deletion_duration_seconds",
    help: "The time it took to delete the job since it became eligible for deletion",
    buckets: Buckets::Exponential(0.1, 2.0, 14),
};

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "ttl-after-finished-controller",
    queue: "ttl_jobs_to_delete",
    sources: |_| vec![Source::of::<Job>(itself)],
    reconcile: |informers, key, now| match informers.informer::<Job>().get(key) {
        Some(job) => plan(&job, now),
        None => Plan::nothing(),
    },
};

/// A Job wakes itself when it is to go; when it has gone, the time that it took is noted.
fn itself(change: &Change<Job>, informers: &Informers) -> Vec<String> {
    if let (Some(old), None) = (&change.old, &change.new)
        && let Some(expired) = expiry(old)
    {
        let took = Duration::try_from(informers.clock().now().duration_since(expired)).unwrap_or_default();
        informers.metrics().observe(&DELETION_SECONDS, &Vec::new(), took);
    }
    let is_due = |job: &Arc<Job>| !is_deleting(&job.metadata) && expiry(job).is_some();
    change.new.iter().filter(|job| is_due(job)).map(|_| change.key.to_string()).collect()
}

/// Decides whether one Job goes.
pub fn plan(job: &Job, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(expiry) = expiry(job).filter(|_| !is_deleting(&job.metadata)) else { return plan };
    match Duration::try_from(expiry.duration_since(now)) {
        Ok(left) if !left.is_zero() => plan.requeue(left),
        _ => plan.push(Action::delete_version(job, Propagation::Foreground)),
    }
    plan
}

/// When a Job that is over may go, if it ever may.
fn expiry(job: &Job) -> Option<Timestamp> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let over = finished(job)?.last_transition_time.as_ref()?.0;
    over.checked_add(SignedDuration::from_secs(seconds.into())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};
    use expect_test::{Expect, expect};

    fn check(job: &str, expect: &Expect) {
        let job = format!("{{metadata: {{name: j, namespace: ns, uid: u, resourceVersion: '7'}}, {job}}}");
        expect.assert_eq(&render(&plan(&parse(&job), noon())));
    }

    fn ended(type_: &str, time: &str) -> String {
        format!(
            "status: {{conditions: [{{type: {type_}, status: 'True', lastTransitionTime: '2026-01-01T{time}Z'}}]}}"
        )
    }

    #[test]
    fn a_job_goes_when_its_time_is_over_and_not_before() {
        let spec = "spec: {template: {}, ttlSecondsAfterFinished: 60}";
        check(
            &format!("{spec}, {}", ended("Complete", "11:59:00")),
            &expect![[r#"
            step
              delete jobs j
        "#]],
        );
        check(
            &format!("{spec}, {}", ended("Failed", "11:59:30")),
            &expect![[r#"
            again after 30s
        "#]],
        );
        check(&format!("{spec}, {}", ended("Suspended", "11:00:00")), &expect![""]);
        check(&format!("spec: {{template: {{}}}}, {}", ended("Complete", "11:00:00")), &expect![""]);
        let zero = "spec: {template: {}, ttlSecondsAfterFinished: 0}";
        check(
            &format!("{zero}, {}", ended("Complete", "12:00:00")),
            &expect![[r#"
            step
              delete jobs j
        "#]],
        );
        // It ended in the future: a clock is wrong somewhere, and the Job waits.
        check(
            &format!("{zero}, {}", ended("Complete", "12:00:20")),
            &expect![[r#"
            again after 20s
        "#]],
        );
        check(&format!("{spec}, status: {{conditions: [{{type: Complete, status: 'True'}}]}}"), &expect![""]);
    }

    #[test]
    fn a_job_that_was_changed_meanwhile_stays() {
        let job = format!(
            "{{metadata: {{name: j, namespace: ns, uid: u, resourceVersion: '7'}}, spec: {{template: {{}}, \
             ttlSecondsAfterFinished: 0}}, {}}}",
            ended("Complete", "11:00:00")
        );
        let plan = plan(&parse(&job), noon());
        let Some(Action::Request(request)) = plan.actions().next() else { panic!("a deletion") };
        let expected = serde_json::json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground",
            "preconditions": {"uid": "u", "resourceVersion": "7"}});
        assert_eq!(request.body, expected);
    }
}
