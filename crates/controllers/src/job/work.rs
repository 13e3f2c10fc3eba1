//! The number of Pods that work on a Job: which are made, which are taken away, and what there will be then.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use controller::Action;
use controller::metadata::{created, name, uid};
use controller::pod::Pod;
use jiff::Timestamp;

use super::Snapshot;
use super::backoff;
use super::indexes::{Indexes, completion_index};
use super::pods::{IndexFailures, Maker, is_indexed, release, replaces_failed_only};
use super::state::{AtWork, JobState};
use crate::pod::{is_ready, is_terminating, node_name, phase_rank, ready_since, restarts_max};
use crate::pod_control;

/// Pods made or taken away by one plan. Source: upstream's `MaxPodCreateDeletePerSync` is 500; a plan is cheaper than that.
const PODS_MAX: usize = 2_000;

/// What is done about a Job's Pods.
pub(super) struct Work {
    pub(super) steps: Vec<Vec<Action>>,
    /// What there is when all went well.
    pub(super) after: AtWork,
    /// What tells that it did not.
    pub(super) failure: Option<Action>,
    /// When to look again for Pods that are not to be made yet.
    pub(super) wait: Option<Duration>,
    pub(super) kind: Kind,
}

/// What it comes to. Source: the label `action` of `job_syncs_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nothing,
    Creates(usize),
    Deletes,
}

impl Work {
    pub(super) fn nothing(state: &JobState<'_>) -> Self {
        Self { steps: Vec::new(), after: state.at_work(), failure: None, wait: None, kind: Kind::Nothing }
    }

    fn wait(state: &JobState<'_>, wait: Duration) -> Self {
        Self { wait: Some(wait), kind: Kind::Creates(0), ..Self::nothing(state) }
    }

    fn delete(state: &JobState<'_>, pods: &[Arc<Pod>]) -> Self {
        Self {
            steps: pod_control::delete(state.job, pods),
            after: state.at_work().without(pods),
            failure: Some(pod_control::delete_failed(state.job)),
            wait: None,
            kind: Kind::Deletes,
        }
    }

    /// Takes Pods away that shall not count: without their finalizers first.
    fn take_away(state: &JobState<'_>, pods: &[Arc<Pod>]) -> Self {
        let mut work = Self::delete(state, pods);
        work.steps.insert(0, pods.iter().map(|pod| release(pod)).collect());
        work
    }
}

/// Ends all that work: the Job has come to its end.
pub(super) fn stop(state: &JobState<'_>) -> Work {
    Work::delete(state, &state.active())
}

/// What brings a Job that goes on to the number of Pods it should have.
pub(super) fn go_on(state: &JobState<'_>, snapshot: &Snapshot, now: Timestamp) -> Work {
    let (spec, at_work) = (state.spec, state.at_work());
    if spec.suspend == Some(true) {
        let active = state.active();
        return if active.is_empty() { Work::nothing(state) } else { Work::take_away(state, &active) };
    }
    let wanted = wanted(state, at_work.active);
    let surplus = surplus(state, at_work.active.saturating_sub(wanted));
    if !surplus.is_empty() {
        return Work::take_away(state, &surplus);
    }
    let leaving = if replaces_failed_only(spec) { at_work.terminating } else { 0 };
    let missing = wanted.saturating_sub(at_work.active + leaving).min(PODS_MAX);
    if missing == 0 {
        return Work::nothing(state);
    }
    if spec.backoff_limit_per_index.is_none()
        && let Some(wait) = snapshot.endings.remaining(now)
    {
        return Work::wait(state, wait);
    }
    create(state, snapshot, missing, now)
}

/// How many Pods should work.
fn wanted(state: &JobState<'_>, active: usize) -> usize {
    let size = |number: i32| usize::try_from(number).unwrap_or(0);
    let parallelism = size(state.spec.parallelism.unwrap_or(1));
    match state.spec.completions {
        Some(completions) => size(completions.saturating_sub(state.succeeded)).min(parallelism),
        // One success is enough; those that work may go on.
        None if state.succeeded > 0 => active,
        None => parallelism,
    }
}

/// At least `count` Pods, and all that have no index of their own.
fn surplus(state: &JobState<'_>, count: usize) -> Vec<Arc<Pod>> {
    let mut active = state.active();
    active.sort_by_cached_key(|pod| loss(pod));
    let mut chosen = Vec::new();
    if is_indexed(state.spec) {
        // Of those with the same index, the one that is lost most stays.
        let mut seen = std::collections::HashSet::new();
        let (mut left, mut rest) = (Vec::new(), active);
        rest.reverse();
        for pod in rest {
            let is_first =
                state.has_place(&pod) && completion_index(&pod).is_some_and(|index| seen.insert(index));
            if is_first {
                left.push(pod)
            } else {
                chosen.push(pod)
            };
        }
        left.reverse();
        active = left;
    }
    let more = count.saturating_sub(chosen.len());
    chosen.extend(active.into_iter().take(more));
    chosen.truncate(PODS_MAX);
    chosen
}

/// What orders Pods: those that are lost least come first. Source: upstream's `ActivePods`.
fn loss(pod: &Pod) -> impl Ord + use<> {
    let restarts = restarts_max(pod);
    (
        !node_name(pod).is_empty(),
        phase_rank(pod),
        is_ready(pod),
        Reverse(ready_since(pod)),
        Reverse(restarts),
        Reverse(created(&pod.metadata)),
        uid(&pod.metadata).to_owned(),
    )
}

fn create(state: &JobState<'_>, snapshot: &Snapshot, count: usize, now: Timestamp) -> Work {
    let indexes: Vec<Option<i32>> = if is_indexed(state.spec) {
        let missing = missing_indexes(state, count);
        let (due, wait) = due(state, missing, now);
        match wait {
            Some(wait) if due.is_empty() => return Work::wait(state, wait),
            _ => due.into_iter().map(Some).collect(),
        }
    } else {
        vec![None; count]
    };
    let (mut after, made) = (state.at_work(), indexes.len());
    after.active += made;
    let taken = snapshot.pods.iter().map(|pod| name(&pod.metadata).to_owned()).collect();
    let mut maker = Maker::new(state.job, state.spec, taken, snapshot.revision);
    let pods = indexes.into_iter().map(|index| {
        let replaced = index.and_then(|index| state.last_failures.get(&index));
        maker.make(index, replaced.map(|pod| &**pod))
    });
    Work {
        steps: pod_control::create(state.job, pods),
        after,
        failure: Some(pod_control::create_failed(state.job)),
        wait: None,
        kind: Kind::Creates(made),
    }
}

/// The lowest indexes on which nobody works, and which have not ended.
fn missing_indexes(state: &JobState<'_>, count: usize) -> Vec<i32> {
    let is_leaving = |pod: &Pod| replaces_failed_only(state.spec) && is_terminating(pod);
    let at_work =
        state.pods.iter().filter(|(pod, role)| *role == super::pods::Role::Active || is_leaving(pod));
    let at_work: Indexes = at_work.filter_map(|(pod, _)| completion_index(pod)).collect();
    let mut settled = state.succeeded_indexes.union(&at_work);
    if let Some(failed) = &state.failed_indexes {
        settled = settled.union(failed);
    }
    settled.missing(count, state.completions())
}

/// Those of `indexes` that need not wait, and how long the first of the others has to.
fn due(state: &JobState<'_>, indexes: Vec<i32>, now: Timestamp) -> (Vec<i32>, Option<Duration>) {
    let (mut due, mut first) = (Vec::new(), None::<Duration>);
    for index in indexes {
        let left = state.last_failures.get(&index).and_then(|pod| {
            backoff::remaining(IndexFailures::before(pod).total() + 1, super::pod_end::finished(pod), now)
        });
        match left {
            Some(left) => first = Some(first.map_or(left, |earlier| earlier.min(left))),
            None => due.push(index),
        }
    }
    (due, first)
}
