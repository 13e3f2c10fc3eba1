//! The CronJob controller: creates a Job whenever a schedule is due, and removes old ones.
//!
//! A Job is named after its CronJob and the minute at which it was due, so that none is made twice, whatever is killed.
//! A run either puts in order what is there, or starts what is due. Schedules without a time zone are read in UTC.
//! Source: `pkg/controller/cronjob`.

mod due;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{annotation, controller_reference, is_deleting, name, namespace, uid};
use controller::plan::FAILURE;
use controller::resource_ref::ResourceRef;
use controller::{Action, Controller, EventType, Informers, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::{Metadata, Resource};

use crate::job::finished;
use due::{Due, Turn, due};

/// When the Job was due: RFC 3339, in the CronJob's time zone. Source: `batch/v1`, `CronJobScheduledTimestampAnnotation`.
pub(crate) const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// How long after a schedule's time it is looked at, for clocks that differ. Source: `nextScheduleDelta`.
const DELAY: Duration = Duration::from_millis(100);

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "cronjob-controller",
    queue: "cronjob",
    sources: |_| vec![Source::itself::<CronJob>(), Source::owned_by::<Job, CronJob>()],
    reconcile: |informers, key, now| {
        gather(informers, key, now).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

/// The input of a decision about one CronJob.
pub struct Snapshot {
    /// The CronJob.
    pub cron_job: Arc<CronJob>,
    /// The Jobs that it controls.
    pub jobs: Vec<Arc<Job>>,
    /// The schedule's state: when it is to start a Job.
    pub due: Due,
    /// The Job that has the name of the one that is due, whoever controls it.
    pub namesake: Option<Arc<Job>>,
}

fn gather(informers: &Informers, key: &str, now: Timestamp) -> Option<Snapshot> {
    let cron_job = informers.informer::<CronJob>().get(key)?;
    let informer = informers.informer::<Job>();
    let jobs = informer.owned_by(uid(&cron_job.metadata));
    let due = due(&cron_job, now);
    let namesake = due.turn().and_then(|turn| {
        informer.get(&format!("{}/{}", namespace(&cron_job.metadata), job_name(&cron_job, turn.at)))
    });
    Some(Snapshot { cron_job, jobs, due, namesake })
}

/// Decides what to do about one CronJob.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let cron_job = &*snapshot.cron_job;
    let Some(spec) = &cron_job.spec else { return Plan::nothing() };
    let mut plan = Plan::nothing();
    clean_up(&mut plan, snapshot, spec);
    let status = observe(&mut plan, snapshot);
    if is_deleting(&cron_job.metadata) {
        return plan;
    }
    let is_in_order = plan.actions().all(|action| matches!(action, Action::Event(_)));
    let is_suspended = spec.suspend == Some(true);
    // Of a time zone that nobody knows even a suspended one tells.
    if !is_suspended || matches!(snapshot.due, Due::UnknownZone(_)) {
        tell(&mut plan, snapshot, spec);
    }
    if !is_suspended {
        if let Some(next) = snapshot.due.next() {
            plan.requeue(Duration::try_from(next.duration_since(now)).unwrap_or_default() + DELAY);
        }
        if let (true, Some(turn)) = (is_in_order, snapshot.due.turn()) {
            start(&mut plan, snapshot, spec, &status, turn);
        }
    }
    plan
}

/// Removes finished Jobs beyond those that are kept, the oldest first.
fn clean_up(plan: &mut Plan, snapshot: &Snapshot, spec: &CronJobSpec) {
    let mut surplus = Vec::new();
    for (outcome, limit) in
        [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)]
    {
        let Some(limit) = limit else { continue };
        let mut finished: Vec<&Arc<Job>> =
            snapshot.jobs.iter().filter(|job| outcome_of(job) == Some(outcome)).collect();
        finished.sort_by_key(|job| {
            let started = job.status.as_ref().and_then(|status| status.start_time.as_ref());
            (started.is_none(), started.map(|time| time.0), name(&job.metadata))
        });
        let excess = finished.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        surplus.extend(finished.into_iter().take(excess).filter(|job| !is_deleting(&job.metadata)));
    }
    delete(plan, &snapshot.cron_job, surplus.into_iter().map(|job| &job.metadata));
}

/// Writes down which Jobs run and when one ran last; what the status says then.
fn observe(plan: &mut Plan, snapshot: &Snapshot) -> CronJobStatus {
    let cron_job = &*snapshot.cron_job;
    let old = cron_job.status.clone().unwrap_or_default();
    let mut status = old.clone();
    let mut active = status.active.take().unwrap_or_default();
    let mut told = |event_type, reason, message: String| {
        plan.push(Action::event(cron_job, event_type, reason, message));
    };
    for job in &snapshot.jobs {
        let own = uid(&job.metadata);
        let known = active.iter().position(|one| one.uid.as_deref() == Some(own));
        let scheduled = scheduled_at(cron_job, job);
        if let Some(at) = scheduled
            && status.last_schedule_time.as_ref().is_none_or(|last| last.0 < at)
        {
            status.last_schedule_time = Some(Time(at));
        }
        match (outcome_of(job), known) {
            (Some(outcome), known) => {
                if let Some(index) = known {
                    active.remove(index);
                    let message = format!("Saw completed job: {}, condition: {outcome}", name(&job.metadata));
                    told(EventType::Normal, "SawCompletedJob", message);
                }
                let ended = job.status.as_ref().and_then(|status| status.completion_time.clone());
                if outcome == "Complete" && ended > status.last_successful_time {
                    status.last_successful_time = ended;
                }
            }
            (None, Some(_)) => {}
            (None, None) if is_deleting(&job.metadata) => {}
            (None, None) if scheduled.is_some() => active.push(reference_to(job)),
            (None, None) => {
                let message = format!(
                    "Saw a job that the controller did not create or forgot: {}",
                    name(&job.metadata)
                );
                told(EventType::Warning, "UnexpectedJob", message);
            }
        }
    }
    let is_there = |one: &ObjectReference| {
        snapshot.jobs.iter().any(|job| job.metadata.uid.is_some() && job.metadata.uid == one.uid)
    };
    let (active, missing): (Vec<_>, Vec<_>) = active.into_iter().partition(is_there);
    for one in missing {
        let (namespace, name) = (namespace(&cron_job.metadata), one.name.unwrap_or_default());
        let resource = ResourceRef::of::<Job>();
        plan.push(Action::require_absent(resource, namespace, &name, one.uid.as_deref().unwrap_or_default()));
        let message = format!("Active job went missing: {name}");
        plan.push(Action::event(cron_job, EventType::Normal, "MissingJob", message));
    }
    status.active = (!active.is_empty()).then_some(active);
    if status != old {
        plan.push(write(cron_job, &status));
    }
    status
}

/// Says why nothing can be started, or how much was missed.
fn tell(plan: &mut Plan, snapshot: &Snapshot, spec: &CronJobSpec) {
    let mut warn = |reason, message: String| {
        plan.push(Action::event(&*snapshot.cron_job, EventType::Warning, reason, message));
    };
    let schedule = &spec.schedule;
    if schedule.contains("TZ") && !matches!(snapshot.due, Due::UnknownZone(_)) {
        let message = format!(
            "CRON_TZ or TZ used in schedule {schedule:?} is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        );
        warn("UnsupportedSchedule", message);
    }
    match &snapshot.due {
        Due::UnknownZone(zone) => {
            warn("UnknownTimeZone", format!("invalid timeZone: {zone:?}: unknown time zone {zone}"));
        }
        Due::Unparseable(error) => {
            warn("UnparseableSchedule", format!("unparseable schedule: {schedule:?} : {error}"));
        }
        Due::Never => {
            let error = "time difference between two schedules is less than 1 second";
            warn("InvalidSchedule", format!("invalid schedule: {schedule} : {error}"));
        }
        Due::Now { turn, .. } if turn.follows_many => {
            let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check \
                           clock skew";
            warn("TooManyMissedTimes", message.to_owned());
        }
        Due::Now { .. } | Due::Later { .. } => {}
    }
}

/// Starts the Job that is due, unless it was started already or others are in its way.
fn start(plan: &mut Plan, snapshot: &Snapshot, spec: &CronJobSpec, status: &CronJobStatus, turn: &Turn) {
    let cron_job = &*snapshot.cron_job;
    if turn.is_too_late {
        let at = turn.at.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {at}");
        plan.push(Action::event(cron_job, EventType::Warning, "MissSchedule", message));
        return;
    }
    let was_started = status.last_schedule_time.as_ref().is_some_and(|last| last.0 == turn.at);
    if snapshot.namesake.is_some() || was_started {
        return;
    }
    let active = status.active.as_deref().unwrap_or_default();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.push(Action::event(cron_job, EventType::Normal, "JobAlreadyActive", message));
            return;
        }
        Some("Replace") if !active.is_empty() => {
            // What is written here wakes the CronJob again: then there is nothing in the way.
            let is_active =
                |job: &&Arc<Job>| active.iter().any(|one| one.uid.is_some() && one.uid == job.metadata.uid);
            delete(plan, cron_job, snapshot.jobs.iter().filter(is_active).map(|job| &job.metadata));
            plan.push(write(cron_job, &CronJobStatus { active: None, ..status.clone() }));
            return;
        }
        _ => {}
    }
    let job = job(cron_job, spec, turn);
    plan.on_failure_in = Some(plan.steps.len()..plan.steps.len() + 1);
    plan.push(Action::create(&job));
    let message = format!("Created job {}", name(&job.metadata));
    plan.push(Action::event(cron_job, EventType::Normal, "SuccessfulCreate", message));
    // The Job itself wakes this key, and is written down as active then, with its uid.
    plan.push(write(cron_job, &CronJobStatus { last_schedule_time: Some(Time(turn.at)), ..status.clone() }));
    let message = format!("Error creating job: {}", FAILURE);
    plan.on_failure = vec![Action::event(cron_job, EventType::Warning, "FailedCreate", message)];
}

fn delete<'a>(plan: &mut Plan, cron_job: &CronJob, jobs: impl Iterator<Item = &'a ObjectMeta>) {
    let (mut deletes, mut told) = (Vec::new(), Vec::new());
    for job in jobs {
        let (namespace, name, uid) = (namespace(job), name(job), uid(job));
        deletes.push(Action::delete::<Job>(namespace, name, Some(uid), Propagation::Background, None));
        let message = format!("Deleted job {name}");
        told.push(Action::event(cron_job, EventType::Normal, "SuccessfulDelete", message));
    }
    if !deletes.is_empty() {
        let message = format!("Deleted job: {FAILURE}");
        plan.on_failure.push(Action::event(cron_job, EventType::Warning, "FailedDelete", message));
        plan.on_failure_in = Some(plan.steps.len()..plan.steps.len() + 1);
    }
    plan.push_step(deletes);
    plan.push_step(told);
}

fn write(cron_job: &CronJob, status: &CronJobStatus) -> Action {
    Action::update_status(&CronJob { status: Some(status.clone()), ..cron_job.clone() })
}

fn job(cron_job: &CronJob, spec: &CronJobSpec, turn: &Turn) -> Job {
    let template = spec.job_template.metadata.clone().unwrap_or_default();
    let mut annotations = template.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), turn.written.clone());
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(cron_job, turn.at)),
            namespace: cron_job.metadata.namespace.clone(),
            labels: template.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(cron_job)]),
            ..ObjectMeta::default()
        },
        spec: spec.job_template.spec.clone(),
        status: None,
    }
}

/// The CronJob's name and the minute, counted from the epoch.
fn job_name(cron_job: &CronJob, at: Timestamp) -> String {
    format!("{}-{}", name(&cron_job.metadata), at.as_second().div_euclid(60))
}

/// When the Job was due, if this controller made it.
fn scheduled_at(cron_job: &CronJob, job: &Job) -> Option<Timestamp> {
    let at: Timestamp = annotation(&job.metadata, SCHEDULED)?.parse().ok()?;
    (job_name(cron_job, at) == name(&job.metadata)).then_some(at)
}

/// `Complete` or `Failed`, once the Job has come to its end.
fn outcome_of(job: &Job) -> Option<&str> {
    finished(job).map(|condition| condition.type_.as_str())
}

fn reference_to(job: &Job) -> ObjectReference {
    let meta = job.metadata();
    ObjectReference {
        api_version: Some(Job::API_VERSION.to_owned()),
        kind: Some(Job::KIND.to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}
