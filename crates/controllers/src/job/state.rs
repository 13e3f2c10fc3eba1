//! The state of a Job: its Pods by what they are to it, and the counts that follow with those that are not written yet.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use controller::metadata::uid;
use controller::pod::Pod;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};

use super::failure_policy::{Verdict, judge};
use super::indexes::{Indexes, completion_index};
use super::pods::{IndexFailures, Role, has_finalizer, is_indexed, last_failures, role};
use crate::pod::{is_ready, is_terminating};

pub(super) struct JobState<'a> {
    pub(super) job: &'a Job,
    pub(super) spec: &'a JobSpec,
    pub(super) status: JobStatus,
    /// All that belong to the Job.
    pub(super) pods: Vec<(Arc<Pod>, Role)>,
    /// Pods that succeeded, or indexes.
    pub(super) succeeded: i32,
    /// Pods that failed and count.
    pub(super) failed: i32,
    /// As the status has them.
    pub(super) succeeded_before: Indexes,
    pub(super) succeeded_indexes: Indexes,
    /// If the Job counts failures by index.
    pub(super) failed_indexes: Option<Indexes>,
    /// The Pods whose finalizers stay until they have successors, by index.
    pub(super) last_failures: BTreeMap<i32, Arc<Pod>>,
}

impl<'a> JobState<'a> {
    pub(super) fn of(job: &'a Job, spec: &'a JobSpec, pods: Vec<Arc<Pod>>) -> Self {
        let mut pods: Vec<(Arc<Pod>, Role)> = pods
            .into_iter()
            .map(|pod| {
                let role = role(spec, &pod);
                (pod, role)
            })
            .collect();
        if is_indexed(spec) {
            // Of more than are counted at once, the lowest indexes come first.
            pods.sort_by_cached_key(|(pod, _)| completion_index(pod));
        }
        let mut state = Self {
            job,
            spec,
            status: job.status.clone().unwrap_or_default(),
            pods,
            succeeded: 0,
            failed: 0,
            succeeded_before: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            last_failures: BTreeMap::new(),
        };
        state.count();
        if is_indexed(spec) {
            state.count_indexes();
        }
        state
    }

    fn count(&mut self) {
        let uncounted = self.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (succeeded, failed) =
            (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
        let is_new = |pod: &Pod, known: &HashSet<&str>| {
            has_finalizer(pod) && !known.contains(uid(&pod.metadata)) && self.has_place(pod)
        };
        let known: HashSet<&str> = succeeded.iter().map(String::as_str).collect();
        let new_successes = self.of_role(Role::Succeeded).filter(|pod| is_new(pod, &known)).count();
        let known: HashSet<&str> = failed.iter().map(String::as_str).collect();
        let policy = self.spec.pod_failure_policy.as_ref();
        let new_failures = self.of_role(Role::Failed).filter(|pod| is_new(pod, &known));
        let new_failures = new_failures.filter(|pod| judge(policy, pod).counts()).count();
        let sum = |counted: Option<i32>, more: usize| counted.unwrap_or(0).saturating_add(number(more));
        self.succeeded = sum(self.status.succeeded, new_successes + succeeded.len());
        self.failed = sum(self.status.failed, new_failures + failed.len());
    }

    fn count_indexes(&mut self) {
        let completions = self.completions();
        let known = self.status.completed_indexes.as_deref().unwrap_or_default();
        let before = Indexes::parse(known, completions);
        let new = self.of_role(Role::Succeeded).filter(|pod| self.is_untold(pod));
        self.succeeded_indexes = before.union(&new.filter_map(|pod| completion_index(pod)).collect());
        self.succeeded_before = before;
        self.succeeded = self.succeeded_indexes.total();
        let Some(limit) = self.spec.backoff_limit_per_index else { return };
        let has_failed = |pod: &&Arc<Pod>| match judge(self.spec.pod_failure_policy.as_ref(), pod) {
            Verdict::FailIndex => true,
            verdict => verdict.counts() && IndexFailures::before(pod).counted >= limit,
        };
        let lost = self.of_role(Role::Failed).filter(|pod| self.is_untold(pod)).filter(has_failed);
        let lost: Indexes = lost.filter_map(|pod| completion_index(pod)).collect();
        let known = self.status.failed_indexes.as_deref().unwrap_or_default();
        let lost = Indexes::parse(known, completions).union(&lost);
        let active: Indexes = self.of_role(Role::Active).filter_map(|pod| completion_index(pod)).collect();
        let settled = self.succeeded_indexes.union(&lost).union(&active);
        let is_settled = |index: i32| index >= completions || settled.contains(index);
        self.last_failures = last_failures(self.of_role(Role::Failed), is_settled);
        self.failed_indexes = Some(lost);
    }

    /// How many indexes there are.
    pub(super) fn completions(&self) -> i32 {
        self.spec.completions.unwrap_or(0)
    }

    pub(super) fn of_role(&self, role: Role) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(move |(_, its)| *its == role).map(|(pod, _)| pod)
    }

    pub(super) fn active(&self) -> Vec<Arc<Pod>> {
        self.of_role(Role::Active).cloned().collect()
    }

    /// How many Pods are active, ready, and on their way out.
    pub(super) fn at_work(&self) -> AtWork {
        AtWork {
            active: self.of_role(Role::Active).count(),
            ready: self.of_role(Role::Active).filter(|pod| is_ready(pod)).count(),
            terminating: self.pods.iter().filter(|(pod, _)| is_terminating(pod)).count(),
        }
    }

    pub(super) fn condition(&self, type_: &str) -> Option<&JobCondition> {
        self.status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
    }

    /// Whether the status may not know of a Pod of an index.
    fn is_untold(&self, pod: &Pod) -> bool {
        has_finalizer(pod) && self.has_place(pod)
    }

    /// Whether what a Pod does counts: in an indexed Job it has one of the indexes.
    pub(super) fn has_place(&self, pod: &Pod) -> bool {
        !is_indexed(self.spec) || completion_index(pod).is_some_and(|index| index < self.completions())
    }
}

/// Pods that have not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtWork {
    pub(super) active: usize,
    pub(super) ready: usize,
    pub(super) terminating: usize,
}

impl AtWork {
    /// The same once `removed` are on their way out.
    pub(super) fn without(self, removed: &[Arc<Pod>]) -> Self {
        let ready = removed.iter().filter(|pod| is_ready(pod)).count();
        Self {
            active: self.active.saturating_sub(removed.len()),
            ready: self.ready.saturating_sub(ready),
            terminating: self.terminating + removed.len(),
        }
    }

    /// Writes it down.
    pub(super) fn put_into(self, mut status: JobStatus) -> JobStatus {
        // Zero is left out, as upstream does.
        status.active = Some(number(self.active)).filter(|count| *count > 0);
        status.ready = Some(number(self.ready));
        status.terminating = Some(number(self.terminating));
        status
    }
}

pub(super) fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
