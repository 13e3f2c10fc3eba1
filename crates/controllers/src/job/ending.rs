//! The end of a Job, and the reason: what was written down before, then failures, then successes.
//!
//! The end is written down first as what is aimed at, `FailureTarget` or `SuccessCriteriaMet`, and as `Failed` or
//! `Complete` when no Pod runs any more and all are counted.

use std::time::Duration;

use controller::metadata::time;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition};

use super::failure_policy::{Verdict, judge};
use super::pods::Role;
use super::state::JobState;
use super::success_policy;
use crate::pod::{phase, since_until};

/// Source: the default of `JobSpec.backoffLimit`, batch/v1.
const BACKOFF_LIMIT: i32 = 6;

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    Failure,
}

impl Outcome {
    /// The conditions that aim at it, and that say that it is reached.
    pub(super) fn conditions(self) -> (&'static str, &'static str) {
        match self {
            Self::Success => ("SuccessCriteriaMet", "Complete"),
            Self::Failure => ("FailureTarget", "Failed"),
        }
    }
}

/// The end of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) outcome: Outcome,
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether the status says already what is aimed at.
    pub(super) is_written: bool,
}

impl Ending {
    fn new(outcome: Outcome, reason: &str, message: impl Into<String>) -> Self {
        Self { outcome, reason: reason.to_owned(), message: message.into(), is_written: false }
    }
}

/// Whether the Job is over. Source: `FinishedCondition` of `pkg/controller/job/util`.
pub(crate) fn finished(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    conditions.iter().find(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True")
}

/// The end that a Job has come to before anything is done for it.
pub(super) fn reached(state: &JobState<'_>, now: Timestamp) -> Option<Ending> {
    written(state, Outcome::Success)
        .or_else(|| written(state, Outcome::Failure))
        .or_else(|| by_failure_policy(state))
        .or_else(|| by_limits(state, now))
        .or_else(|| by_failed_indexes(state))
        .or_else(|| by_success_policy(state))
}

/// The end of a Job that has enough successes, and of whose Pods `active` still work.
pub(super) fn completed(state: &JobState<'_>, active: usize) -> Option<Ending> {
    let is_enough = state.spec.completions.map_or(state.succeeded > 0, |wanted| state.succeeded >= wanted);
    (is_enough && active == 0).then(|| {
        Ending::new(Outcome::Success, "CompletionsReached", "Reached expected number of succeeded pods")
    })
}

fn written(state: &JobState<'_>, outcome: Outcome) -> Option<Ending> {
    let known = state.condition(outcome.conditions().0).filter(|condition| condition.status == "True")?;
    let (reason, message) =
        (known.reason.clone().unwrap_or_default(), known.message.clone().unwrap_or_default());
    Some(Ending { outcome, reason, message, is_written: true })
}

fn by_failure_policy(state: &JobState<'_>) -> Option<Ending> {
    let policy = state.spec.pod_failure_policy.as_ref()?;
    let failures = state.of_role(Role::Failed).map(|pod| judge(Some(policy), pod));
    failures.into_iter().find_map(|verdict| match verdict {
        Verdict::FailJob(message) => Some(Ending::new(Outcome::Failure, "PodFailurePolicy", message)),
        _ => None,
    })
}

fn by_limits(state: &JobState<'_>, now: Timestamp) -> Option<Ending> {
    let limit = state.spec.backoff_limit.unwrap_or(BACKOFF_LIMIT);
    if state.failed > limit || restarts_reached(state, limit) {
        let message = "Job has reached the specified backoff limit";
        return Some(Ending::new(Outcome::Failure, "BackoffLimitExceeded", message));
    }
    let is_late = deadline(state, now).is_some_and(|left| left.is_zero());
    is_late.then(|| {
        Ending::new(Outcome::Failure, "DeadlineExceeded", "Job was active longer than specified deadline")
    })
}

/// How much time a Job that is not suspended has left; none if it has no limit. One that is resumed has all of it.
pub(super) fn deadline(state: &JobState<'_>, now: Timestamp) -> Option<Duration> {
    let limit = Duration::from_secs(u64::try_from(state.spec.active_deadline_seconds?).unwrap_or(0));
    if state.spec.suspend == Some(true) {
        return None;
    }
    let is_resumed = state.condition("Suspended").is_some_and(|suspended| suspended.status == "True");
    let started = state.status.start_time.as_ref().filter(|_| !is_resumed);
    Some(limit.saturating_sub(since_until(started.map_or(now, |time| time.0), now)))
}

/// Containers that are started again where they are count, too.
fn restarts_reached(state: &JobState<'_>, limit: i32) -> bool {
    let pod = state.spec.template.spec.as_ref();
    if pod.and_then(|pod| pod.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let at_work = state.pods.iter().filter(|(pod, _)| matches!(phase(pod), "Running" | "Pending"));
    let statuses = at_work.filter_map(|(pod, _)| pod.status.as_ref()).flat_map(|status| {
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
    });
    let restarts = statuses.fold(0_i32, |sum, container| sum.saturating_add(container.restart_count));
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

fn by_failed_indexes(state: &JobState<'_>) -> Option<Ending> {
    let (failed, completions) = (state.failed_indexes.as_ref()?.total(), state.completions());
    if state.spec.max_failed_indexes.is_some_and(|max| failed > max) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Ending::new(Outcome::Failure, "MaxFailedIndexesExceeded", message));
    }
    let is_all = failed > 0 && failed.saturating_add(state.succeeded_indexes.total()) >= completions;
    is_all.then(|| Ending::new(Outcome::Failure, "FailedIndexes", "Job has failed indexes"))
}

fn by_success_policy(state: &JobState<'_>) -> Option<Ending> {
    let policy = state.spec.success_policy.as_ref();
    let message = success_policy::met(policy, state.completions(), &state.succeeded_indexes)?;
    Some(Ending::new(Outcome::Success, "SuccessPolicy", message))
}

/// The condition that a Job has from now on.
pub(super) fn condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> JobCondition {
    JobCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(time(now)),
        last_transition_time: Some(time(now)),
    }
}

/// Sets a condition; one that is not true is not added. Says whether anything changed.
pub(super) fn set_condition(conditions: &mut Vec<JobCondition>, new: JobCondition) -> bool {
    match conditions.iter_mut().find(|known| known.type_ == new.type_) {
        Some(known)
            if known.status == new.status && known.reason == new.reason && known.message == new.message =>
        {
            false
        }
        Some(known) => {
            *known = new;
            true
        }
        None if new.status == "False" => false,
        None => {
            conditions.push(new);
            true
        }
    }
}
