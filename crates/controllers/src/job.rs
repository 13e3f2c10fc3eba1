//! The Job controller: runs Pods until enough of them have succeeded, or too many have failed.
//!
//! A plan counts what has ended (`job/tracking.rs`), decides whether the Job has (`job/ending.rs`), and makes or takes away
//! Pods (`job/work.rs`). The status is written once a plan: before finalizers are taken away, or after Pods were made.
//! No Pod is counted twice or never: each step follows from what the API server has of the one before.

mod backoff;
mod ending;
mod failure_policy;
mod indexes;
mod metrics;
mod orphans;
mod pod_end;
mod pods;
mod state;
mod success_policy;
#[cfg(test)]
mod tests;
mod tracking;
mod work;

use std::sync::Arc;

use controller::metadata::{controller_of, is_deleting, key, namespace, time, uid};
use controller::pod::Pod;
use controller::{Action, Change, Controller, EventType, Informers, Plan, Source, selector};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use machinery::features::Feature;

use backoff::{Endings, Memory};
use ending::{Ending, Outcome, condition, set_condition};
use state::{AtWork, JobState};
use tracking::Tracked;
use work::Work;

pub(crate) use ending::finished;
pub use orphans::CONTROLLER as ORPHANS;

/// Who carries Jobs out unless they say otherwise. Source: `JobControllerName`, batch/v1.
const OWN_NAME: &str = "kubernetes.io/job-controller";

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "job-controller",
    queue: "job",
    sources: |_| vec![Source::of::<Job>(itself), Source::of::<Pod>(jobs_of_pod)],
    reconcile: |informers, key, now| {
        gather(informers, key).map_or_else(Plan::nothing, |snapshot| plan(&snapshot, now))
    },
};

/// The input of a decision about one Job.
pub struct Snapshot {
    /// The Job.
    pub job: Arc<Job>,
    /// The Pods that it controls, and those of its namespace that nobody controls.
    pub pods: Vec<Arc<Pod>>,
    /// The endings of its Pods, those that are gone included.
    pub endings: Endings,
    /// The newest revision of any Pod seen: new names follow from it.
    pub revision: u64,
}

fn gather(informers: &Informers, key: &str) -> Option<Snapshot> {
    let memory = Memory::of(informers);
    let job = informers.informer::<Job>().get(key);
    let Some(job) = job.filter(|job| finished(job).is_none() && !is_managed_elsewhere(job)) else {
        memory.forget(key);
        return None;
    };
    let informer = informers.informer::<Pod>();
    let revision = informer.revision();
    let mut pods = informer.owned_by(uid(&job.metadata));
    let spec = job.spec.as_ref()?;
    let roles = pods.iter().map(|pod| (&**pod, pods::role(spec, pod)));
    let endings = memory.learn(key, uid(&job.metadata), roles);
    pods.extend(informer.orphans(namespace(&job.metadata)));
    Some(Snapshot { job, pods, endings, revision })
}

/// Whether somebody else carries the Job out.
fn is_managed_elsewhere(job: &Job) -> bool {
    manager(job).is_some_and(|name| name != OWN_NAME)
}

fn manager(job: &Job) -> Option<&str> {
    job.spec.as_ref()?.managed_by.as_deref()
}

/// Decides what to do about one Job that has not finished.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let job = &*snapshot.job;
    let Some(spec) = &job.spec else { return Plan::nothing() };
    if !matches!(spec.completion_mode.as_deref(), None | Some("NonIndexed" | "Indexed")) {
        let message = "Skipped Job sync because completion mode is unknown";
        let mut plan = Plan::nothing();
        plan.push(Action::event(job, EventType::Warning, "UnknownCompletionMode", message));
        return plan;
    }
    let own = pods::own(job, spec, snapshot.pods.clone());
    let state = JobState::of(job, spec, own.pods);
    let mut ending = ending::reached(&state, now);
    let mut work = match &ending {
        Some(_) => work::stop(&state),
        None if is_deleting(&job.metadata) => Work::nothing(&state),
        None => work::go_on(&state, snapshot, now),
    };
    if ending.is_none() {
        ending = ending::completed(&state, work.after.active);
        if ending.is_some() {
            work = work::stop(&state);
        }
    }
    let mut plan = Plan::nothing();
    plan.push_step(own.actions);
    let is_going_on = ending.is_none() && !is_deleting(&job.metadata);
    let tracked = tracking::track(&state, ending.as_ref());
    let deadline = ending::deadline(&state, now).filter(|_| is_going_on);
    deadline.into_iter().chain(work.wait).for_each(|delay| plan.requeue(delay));
    let decision = Decision { state, ending, work, tracked, is_going_on };
    decision.carry_out(&mut plan, now);
    plan
}

/// What a plan is made of.
struct Decision<'a> {
    state: JobState<'a>,
    ending: Option<Ending>,
    work: Work,
    tracked: Tracked,
    is_going_on: bool,
}

impl Decision<'_> {
    fn carry_out(mut self, plan: &mut Plan, now: Timestamp) {
        let is_tracking = !self.tracked.releases.is_empty() || self.has_news();
        let mut told = self.start_or_suspend(now);
        told.extend(self.end(now));
        told.extend(metrics::of_status(&self));
        let [made, not_made] = metrics::of_creates(&self);
        plan.measured = Some(metrics::measured(self.state.spec, self.work.kind));
        let (job, first) = (self.state.job, plan.steps.len());
        let (before, after) = (self.state.at_work(), self.work.after);
        let status = |at_work: AtWork| write(job, at_work.put_into(self.tracked.status.clone()));
        let (releases, mut steps) = (self.tracked.releases, self.work.steps);
        steps.extend(made.map(|made| vec![made]));
        if self.ending.is_none() && is_tracking {
            // What has ended is counted even if nothing can be made; what is made is written by the next plan.
            plan.push_step(status(before).into_iter().collect());
            plan.push_step(releases);
            plan.push_step(told);
            plan.on_failure_in = Some(plan.steps.len()..plan.steps.len() + steps.len());
            plan.steps.extend(steps);
        } else {
            plan.on_failure_in = Some(first..first + steps.len());
            plan.steps.extend(steps);
            plan.push_step(status(after).into_iter().collect());
            plan.push_step(releases);
            plan.push_step(told);
            if self.ending.is_none() {
                plan.on_failure.extend(status(before));
            }
        }
        plan.on_failure.extend(self.work.failure.into_iter().chain(not_made));
    }

    /// Whether anything has been counted.
    fn has_news(&self) -> bool {
        let (old, new) = (&self.state.status, &self.tracked.status);
        let uncounted = old.uncounted_terminated_pods.clone().unwrap_or_default();
        new.uncounted_terminated_pods.as_ref() != Some(&uncounted)
            || (new.succeeded, new.failed) != (old.succeeded, old.failed)
            || new.completed_indexes != old.completed_indexes
            || new.failed_indexes.as_deref().unwrap_or_default()
                != old.failed_indexes.as_deref().unwrap_or_default()
    }

    /// Writes when the Job began, and whether it is suspended; answers what is told of that.
    fn start_or_suspend(&mut self, now: Timestamp) -> Vec<Action> {
        let status = &mut self.tracked.status;
        let is_suspended = self.state.spec.suspend == Some(true);
        if status.start_time.is_none() && !is_suspended {
            status.start_time = Some(time(now));
        }
        if !self.is_going_on {
            return Vec::new();
        }
        let (value, reason, event, message) = if is_suspended {
            ("True", "JobSuspended", "Suspended", "Job suspended")
        } else {
            ("False", "JobResumed", "Resumed", "Job resumed")
        };
        let conditions = status.conditions.get_or_insert_default();
        if !set_condition(conditions, condition("Suspended", value, reason, message, now)) {
            if conditions.is_empty() {
                status.conditions = None;
            }
            return Vec::new();
        }
        if !is_suspended {
            // The time that it was suspended does not count towards its deadline.
            status.start_time = Some(time(now));
        } else if Feature::MutableSchedulingDirectivesForSuspendedJobs.is_on() {
            status.start_time = None;
        }
        vec![Action::event(self.state.job, EventType::Normal, event, message)]
    }

    /// Writes what is aimed at, and that it is reached once nobody works and all are counted; answers what is told then.
    fn end(&mut self, now: Timestamp) -> Vec<Action> {
        let Some(ending) = &self.ending else { return Vec::new() };
        let is_settled = ending.is_written
            && self.tracked.is_settled()
            && (self.work.after.active, self.work.after.terminating) == (0, 0);
        let status = &mut self.tracked.status;
        let (target, done) = ending.outcome.conditions();
        let type_ = if is_settled { done } else { target };
        if ending.is_written && !is_settled {
            return Vec::new();
        }
        let conditions = status.conditions.get_or_insert_default();
        set_condition(conditions, condition(type_, "True", &ending.reason, &ending.message, now));
        if !is_settled {
            return Vec::new();
        }
        if ending.outcome == Outcome::Success {
            // A clock may have been set back since the Job began.
            status.completion_time = status.start_time.clone().max(Some(time(now)));
        }
        farewell(self.state.job, self.state.spec, ending, status)
    }
}

/// What is told of the end.
fn farewell(job: &Job, spec: &JobSpec, ending: &Ending, status: &JobStatus) -> Vec<Action> {
    if ending.outcome == Outcome::Failure {
        return vec![Action::event(job, EventType::Warning, &ending.reason, &ending.message)];
    }
    let mut told = Vec::new();
    if spec.completions.is_some_and(|wanted| status.succeeded.unwrap_or(0) > wanted) {
        let message = "Too many succeeded pods running after completion count reached";
        told.push(Action::event(job, EventType::Warning, "TooManySucceededPods", message));
    }
    told.push(Action::event(job, EventType::Normal, "Completed", "Job completed"));
    told
}

/// The update that makes `status` the status of `job`, or nothing when it is so already.
fn write(job: &Job, status: JobStatus) -> Option<Action> {
    let new = Job { status: Some(status), ..job.clone() };
    (new.status != job.status).then(|| Action::update_status(&new))
}

/// A Job wakes itself, until it is over.
fn itself(change: &Change<Job>, informers: &Informers) -> Vec<String> {
    metrics::saw_job(informers, change);
    vec![change.key.to_string()]
}

/// A Pod wakes the Job that controls it; one without a controller wakes all that may adopt it.
fn jobs_of_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    metrics::saw_pod(informers, change);
    let owner = |pod: &Arc<Pod>| controller::engine::owner_key::<Job>(&pod.metadata);
    let mut keys: Vec<String> = [&change.old, &change.new].into_iter().flatten().filter_map(owner).collect();
    if let Some(pod) = &change.new
        && may_be_adopted(pod, change.old.as_deref())
    {
        let labels = pod.metadata.labels.as_ref();
        let selects = |job: &Arc<Job>| {
            let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            selector
                .is_some_and(|selector| !selector::is_empty(selector) && selector::selects(selector, labels))
        };
        let all = informers.informer::<Job>().in_namespace(namespace(&pod.metadata));
        keys.extend(all.iter().filter(|job| selects(job)).map(|job| key(&job.metadata)));
    }
    keys.dedup();
    keys
}

/// Whether nobody controls a Pod, and that or its labels are new.
fn may_be_adopted(pod: &Pod, old: Option<&Pod>) -> bool {
    let is_new =
        |old: &Pod| old.metadata.labels != pod.metadata.labels || controller_of(&old.metadata).is_some();
    controller_of(&pod.metadata).is_none() && old.is_none_or(is_new)
}
