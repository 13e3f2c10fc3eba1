//! What a Job says of itself.

use serde_json::Value;

use super::{Reason, Snapshot, condition, list, number, reference, text};

/// Who carries Jobs out unless they say otherwise. Source: `JobControllerName`, batch/v1.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

/// What to do about a Job that has failed, by the reason of its condition. Source: `JobReason*`, batch/v1.
const ADVICE: &[(&str, &str)] = &[
    (
        "BackoffLimitExceeded",
        "read `kubectl logs job/NAME`; a Job that has failed is made anew, not started again",
    ),
    ("DeadlineExceeded", "raise activeDeadlineSeconds, and make the Job anew"),
    ("PodFailurePolicy", "read `kubectl logs job/NAME`, or change the rules of its podFailurePolicy"),
    (
        "MaxFailedIndexesExceeded",
        "read the logs of the Pods of the indexes in status.failedIndexes, or raise maxFailedIndexes",
    ),
    ("FailedIndexes", "read the logs of the Pods of the indexes in status.failedIndexes"),
];

/// What a Job's own fields and conditions say against it.
pub(super) fn troubles(job: &Value) -> Vec<Reason> {
    let object = reference(job);
    let mut reasons = Vec::new();
    let ends = [("Failed", ""), ("FailureTarget", "is about to fail, once its Pods have ended: ")];
    let end = ends
        .iter()
        .find_map(|(kind, before)| Some((condition(job, kind).filter(|_| is_true(job, kind))?, before)));
    if let Some((end, before)) = end {
        let why = text(end, "/reason");
        let told = Reason::new(&object, format!("{before}{why}: {}", text(end, "/message")));
        let advice = ADVICE.iter().find(|(reason, _)| *reason == why);
        reasons.push(match advice {
            Some((_, fix)) => told.fix(fix.replace("NAME", text(job, "/metadata/name"))),
            None => told,
        });
    }
    let manager = text(job, "/spec/managedBy");
    if !manager.is_empty() && manager != JOB_CONTROLLER {
        let what = format!("spec.managedBy leaves it to {manager}");
        reasons.push(Reason::new(&object, what).fix("see that this controller is installed and runs"));
    }
    if number(job, "/spec/parallelism") == Some(0) {
        let patch = format!(
            "`kubectl patch job {} -p '{{\"spec\":{{\"parallelism\":1}}}}'`",
            text(job, "/metadata/name")
        );
        reasons.push(Reason::new(&object, "has a parallelism of 0: no Pods are made").fix(patch));
    }
    reasons
}

/// Whether what owns a Job still has to do with how it ends: of a CronJob's Jobs that are over only the last one tells.
pub(super) fn is_of_today(snapshot: &Snapshot, owner: &Value, job: &Value) -> bool {
    if text(owner, "/kind") != "CronJob" || !(is_true(job, "Complete") || is_true(job, "Failed")) {
        return true;
    }
    let made = |job: &Value| text(job, "/metadata/creationTimestamp").to_owned();
    let is_sibling = |other: &&Value| {
        let owners = list(other, "/metadata/ownerReferences").iter();
        text(other, "/kind") == "Job"
            && owners.into_iter().any(|one| text(one, "/uid") == text(owner, "/metadata/uid"))
    };
    let newest = snapshot.others.iter().filter(is_sibling).max_by_key(|job| made(job));
    newest.is_some_and(|newest| text(newest, "/metadata/uid") == text(job, "/metadata/uid"))
}

pub(super) fn is_true(job: &Value, kind: &str) -> bool {
    condition(job, kind).is_some_and(|found| text(found, "/status") == "True")
}
