//! What became of the Pods of Jobs, and what Jobs say about it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Rule, number, text};

/// The finalizer that holds a Pod until it is counted. Source: `batch/v1`, `JobTrackingFinalizer`.
pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "/metadata/annotations/batch.kubernetes.io~1job-completion-index";
/// Pods whose container exits with this are not counted by Jobs that have a failure policy.
const IGNORED: i64 = 43;

/// All Pods of all Jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs(BTreeMap<String, Pods>);

/// The Pods of a Job.
#[derive(Debug, Default)]
struct Pods {
    made: BTreeSet<String>,
    /// Those that ended while they were held, by uid.
    ended: BTreeMap<String, Ended>,
}

#[derive(Debug)]
struct Ended {
    has_succeeded: bool,
    is_ignored: bool,
    index: Option<u64>,
}

impl Jobs {
    /// Takes note of a Pod of a Job. Source of what has ended: `isPodFailed` and `isPodSucceeded` of `pkg/controller/job`.
    pub(super) fn pod(&mut self, job: &str, pod: &Value) {
        let of = self.0.entry(job.to_owned()).or_default();
        let (uid, phase) = (text(pod, "/metadata/uid"), text(pod, "/status/phase"));
        of.made.insert(uid.to_owned());
        let is_deleting = pod.pointer("/metadata/deletionTimestamp").is_some();
        if is_tracked(pod) && (super::is_over(pod) || is_deleting) {
            let ended = || Ended {
                has_succeeded: phase == "Succeeded",
                is_ignored: exit_code(pod) == Some(IGNORED),
                index: index(pod),
            };
            of.ended.entry(uid.to_owned()).or_insert_with(ended);
        }
    }

    /// What is wrong with what a Job says now.
    pub(super) fn job(&self, before: Option<&Value>, job: &Value) -> Vec<(Rule, String)> {
        let mut wrong = Vec::new();
        let uid = text(job, "/metadata/uid");
        let before = before.filter(|before| text(before, "/metadata/uid") == uid);
        let (none, status) = (Pods::default(), |pointer: &str| number(job, &format!("/status/{pointer}")));
        let pods = self.0.get(uid).unwrap_or(&none);
        for counter in ["succeeded", "failed"] {
            let was = before.map_or(0, |before| number(before, &format!("/status/{counter}")));
            if status(counter) < was {
                wrong.push(format!("{counter} fell from {was} to {}", status(counter)));
            }
        }
        let uncounted = |outcome: &str| {
            let all =
                job.pointer(&format!("/status/uncountedTerminatedPods/{outcome}")).and_then(Value::as_array);
            all.map_or(0, |all| i64::try_from(all.len()).unwrap_or(i64::MAX))
        };
        let waiting = uncounted("succeeded") + uncounted("failed");
        let (counted, made) = (status("succeeded") + status("failed") + waiting, signed(pods.made.len()));
        if counted > made {
            wrong.push(format!("{counted} Pods are counted of {made}"));
        }
        let is_new = before.and_then(outcome).is_none();
        if let Some(outcome) = outcome(job).filter(|_| is_new) {
            if waiting > 0 {
                wrong.push(format!("{waiting} Pods are not counted yet"));
            }
            wrong.extend(pods.differences(job, outcome));
        }
        let name = text(job, "/metadata/name");
        wrong.into_iter().map(|what| (Rule::PodsAreCountedOnce, format!("Job {name}: {what}"))).collect()
    }
}

impl Pods {
    /// Between what became of them and the counts of a Job that is over.
    fn differences(&self, job: &Value, outcome: &str) -> Vec<String> {
        let (succeeded, failed) = (number(job, "/status/succeeded"), number(job, "/status/failed"));
        let well = self.ended.values().filter(|ended| ended.has_succeeded);
        let ignores = job.pointer("/spec/podFailurePolicy").is_some();
        let has_failed = |ended: &&Ended| !(ended.has_succeeded || ignores && ended.is_ignored);
        let badly = self.ended.values().filter(has_failed).count();
        let mut found = Vec::new();
        let right = if text(job, "/spec/completionMode") == "Indexed" {
            let indexes: BTreeSet<u64> = well.filter_map(|ended| ended.index).collect();
            let listed = listed(text(job, "/status/completedIndexes"));
            if listed != indexes {
                found.push(format!("indexes {listed:?} are said to be complete, and are {indexes:?}"));
            }
            indexes.len()
        } else {
            well.count()
        };
        if succeeded != signed(right) {
            found.push(format!("{succeeded} Pods succeeded, and were {right}"));
        }
        // What still worked when a Job failed has failed with it.
        let most = if outcome == "Failed" { self.made.len() } else { badly };
        if !(signed(badly)..=signed(most)).contains(&failed) {
            found.push(format!("{failed} Pods failed, and were {badly} to {most}"));
        }
        found
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The numbers of a text such as `0-2,4`.
fn listed(text: &str) -> BTreeSet<u64> {
    let ranges = text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// How a Job has ended, if it has.
pub(super) fn outcome(job: &Value) -> Option<&str> {
    let conditions = job.pointer("/status/conditions")?.as_array()?;
    let of = |condition: &&Value| condition["status"] == "True";
    let mut types = conditions.iter().filter(of).map(|condition| text(condition, "/type"));
    types.find(|kind| matches!(*kind, "Complete" | "Failed"))
}

/// Whether a Pod is held until it is counted.
pub(super) fn is_tracked(pod: &Value) -> bool {
    let finalizers = pod.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
}

/// A Pod's index in its Job.
pub(super) fn index(pod: &Value) -> Option<u64> {
    text(pod, INDEX).parse().ok()
}

fn exit_code(pod: &Value) -> Option<i64> {
    pod.pointer("/status/containerStatuses/0/state/terminated/exitCode")?.as_i64()
}
