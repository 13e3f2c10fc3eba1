//! Counting Pods that have ended, each exactly once, whatever is killed meanwhile.
//!
//! A Pod goes through three steps, each of which follows from what the one before has left: its uid is written into
//! `status.uncountedTerminatedPods`; its finalizer is taken away; its uid is taken out of the list and counted, once the
//! Pod is seen without the finalizer. The first and the third are one write of the status. An index that has succeeded
//! needs no uid: it is in the status or it is not.

use std::collections::HashSet;
use std::sync::Arc;

use controller::Action;
use controller::metadata::{is_deleting, uid};
use controller::pod::Pod;
use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};

use super::ending::{Ending, Outcome};
use super::failure_policy::judge;
use super::indexes::{Indexes, completion_index};
use super::pods::{Role, has_finalizer, is_indexed, release};
use super::state::{JobState, number};

/// Pods that are counted by one plan: the uids of more would not fit into a status. Source: `MaxUncountedPods`.
const UNCOUNTED_MAX: usize = 500;

/// What is counted.
pub(super) struct Tracked {
    /// The status with it.
    pub(super) status: JobStatus,
    /// What takes finalizers away once the status is written.
    pub(super) releases: Vec<Action>,
    /// How often each action of the failure policy was applied.
    pub(super) judged: Vec<&'static str>,
}

impl Tracked {
    /// Whether all that can be counted is.
    pub(super) fn is_settled(&self) -> bool {
        self.releases.is_empty()
            && self.status.uncounted_terminated_pods.as_ref().is_none_or(|uncounted| count(uncounted) == 0)
    }
}

/// Counts what has ended.
pub(super) fn track(state: &JobState<'_>, ending: Option<&Ending>) -> Tracked {
    let mut status = state.status.clone();
    count_released(state, &mut status);
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let known = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect::<HashSet<String>>();
    let (known_succeeded, known_failed) = (known(&uncounted.succeeded), known(&uncounted.failed));
    let (mut releases, mut judged, mut indexes) = (Vec::new(), Vec::new(), Vec::new());
    for (pod, role) in state.pods.iter().filter(|(pod, _)| has_finalizer(pod)) {
        if !is_over(state, ending, pod, *role) {
            continue;
        }
        let id = uid(&pod.metadata);
        releases.push(release(pod));
        if *role == Role::Succeeded && !known_failed.contains(id) {
            match completion_index(pod).filter(|_| is_indexed(state.spec)) {
                Some(index) if state.has_place(pod) => indexes.push(index),
                Some(_) => {}
                None if is_indexed(state.spec) || known_succeeded.contains(id) => {}
                None => uncounted.succeeded.get_or_insert_default().push(id.to_owned()),
            }
        } else if counts_as_failed(ending, *role) && !known_failed.contains(id) && state.has_place(pod) {
            let verdict = judge(state.spec.pod_failure_policy.as_ref(), pod);
            judged.extend(verdict.action());
            if verdict.counts() {
                uncounted.failed.get_or_insert_default().push(id.to_owned());
            }
        }
        if indexes.len() + count(uncounted) >= UNCOUNTED_MAX {
            break;
        }
    }
    if is_indexed(state.spec) {
        write_indexes(state, indexes, &mut status);
    }
    Tracked { status, releases, judged }
}

fn count(uncounted: &UncountedTerminatedPods) -> usize {
    let len = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
    len(&uncounted.succeeded) + len(&uncounted.failed)
}

/// Counts those whose finalizers are gone.
fn count_released(state: &JobState<'_>, status: &mut JobStatus) {
    let held = state.pods.iter().filter(|(pod, _)| has_finalizer(pod)).map(|(pod, _)| uid(&pod.metadata));
    let held: HashSet<&str> = held.collect();
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let take = |list: &mut Option<Vec<String>>, counter: &mut Option<i32>| {
        let Some(uids) = list else { return };
        let before = uids.len();
        uids.retain(|uid| held.contains(uid.as_str()));
        let released = number(before - uids.len());
        if released > 0 {
            *counter = Some(counter.unwrap_or(0).saturating_add(released));
        }
        if uids.is_empty() {
            *list = None;
        }
    };
    take(&mut uncounted.succeeded, &mut status.succeeded);
    take(&mut uncounted.failed, &mut status.failed);
}

/// Whether a Pod is of no more use: it has ended, or its Job has.
fn is_over(state: &JobState<'_>, ending: Option<&Ending>, pod: &Arc<Pod>, role: Role) -> bool {
    if ending.is_some() || is_deleting(&state.job.metadata) || role == Role::Succeeded {
        return true;
    }
    let is_held = || {
        let held = completion_index(pod).and_then(|index| state.last_failures.get(&index));
        held.is_some_and(|held| held.metadata.uid == pod.metadata.uid)
    };
    role == Role::Failed && !is_held()
}

/// When a Job has failed, all that have not succeeded have failed with it.
fn counts_as_failed(ending: Option<&Ending>, role: Role) -> bool {
    role == Role::Failed || ending.is_some_and(|ending| ending.outcome == Outcome::Failure)
}

fn write_indexes(state: &JobState<'_>, new: Vec<i32>, status: &mut JobStatus) {
    let succeeded = state.succeeded_before.union(&new.into_iter().collect::<Indexes>());
    status.succeeded = Some(succeeded.total()).filter(|count| *count > 0);
    status.completed_indexes = Some(succeeded.to_string()).filter(|text| !text.is_empty());
    status.failed_indexes = state.failed_indexes.as_ref().map(Indexes::to_string);
}
