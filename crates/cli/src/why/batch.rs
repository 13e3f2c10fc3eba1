//! Why a Job does not go on, and why a CronJob starts none.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use machinery::cron::{ParseError, Schedule, time_zone};
use serde_json::Value;

use super::job::is_true;
use super::{Found, Reason, Snapshot, list, number, pod, reference, text, workload};

/// A Job.
pub(super) fn job(snapshot: &Snapshot, job: &Value) -> Found {
    if is_true(job, "Complete") {
        return (true, "is complete".into(), Vec::new());
    }
    let mut reasons = workload::own(snapshot, job);
    let pods = workload::pods_below(snapshot, job, &mut reasons);
    let is_over = is_true(job, "Failed");
    if !is_over && reasons.is_empty() {
        reasons.extend(waiting(job, &pods));
    }
    for pod in pods {
        reasons.extend(pod::explain(snapshot, pod).2);
    }
    let succeeded = number(job, "/status/succeeded").unwrap_or(0);
    let progress = match number(job, "/spec/completions") {
        Some(wanted) => format!("{succeeded} of {wanted} completions"),
        None => format!("{succeeded} successes"),
    };
    let summary = match (is_over, reasons.is_empty()) {
        (true, _) => format!("has failed with {progress}"),
        (_, true) => format!("is at work: it has {progress}"),
        _ => format!("has {progress}"),
    };
    (reasons.is_empty() && !is_over, summary, reasons)
}

/// Why a Job that nothing is wrong with has no Pods at work.
fn waiting(job: &Value, pods: &[&Value]) -> Option<Reason> {
    let object = reference(job);
    if job.pointer("/status/startTime").is_none() && pods.is_empty() {
        let what = "its controller has not looked at it yet";
        return Some(Reason::new(&object, what).fix("see that the controllers run: `knarr status`"));
    }
    let ends = pods.iter().filter(|pod| matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")).count();
    let failed = number(job, "/status/failed").unwrap_or(0);
    if ends < pods.len() || failed == 0 {
        return None;
    }
    let limit = number(job, "/spec/backoffLimit").unwrap_or(6);
    let what = format!(
        "{failed} of its Pods failed (backoffLimit {limit}): the next is made 10 s after the first failure, and after \
         twice as long each time, 10 min at most"
    );
    Some(Reason::new(&object, what))
}

/// A CronJob.
pub(super) fn cron_job(snapshot: &Snapshot, cron_job: &Value) -> Found {
    let object = reference(cron_job);
    let mut reasons = workload::own(snapshot, cron_job);
    let is_suspended = cron_job.pointer("/spec/suspend") == Some(&Value::Bool(true));
    let next = next_turn(cron_job, snapshot.now);
    if let Err(why) = &next {
        reasons.push(Reason::new(&object, why.to_string()));
    }
    let active: Vec<&str> =
        list(cron_job, "/status/active").iter().map(|active| text(active, "/name")).collect();
    if text(cron_job, "/spec/concurrencyPolicy") == "Forbid" && !active.is_empty() {
        let what = format!("concurrencyPolicy is Forbid, and job/{} is at work", active.join(", job/"));
        reasons.push(Reason::new(&object, what));
    }
    let is_held = !reasons.is_empty();
    for pod in workload::pods_below(snapshot, cron_job, &mut reasons) {
        reasons.extend(pod::explain(snapshot, pod).2);
    }
    let at_work = match active.len() {
        0 => String::new(),
        1 => "has a Job at work, and ".to_owned(),
        many => format!("has {many} Jobs at work, and "),
    };
    let summary = match next {
        _ if is_suspended => format!("{at_work}is suspended"),
        Ok(next) if !is_held => format!("{at_work}starts the next Job at {next}"),
        Ok(next) => format!("{at_work}is due next at {next}"),
        Err(_) => format!("{at_work}starts no Jobs"),
    };
    (reasons.is_empty(), summary, reasons)
}

/// The reason why a CronJob is never due.
#[derive(thiserror::Error, Debug)]
enum NeverDue {
    #[error("nobody knows the time zone {0}")]
    TimeZone(String),
    #[error("its schedule {0:?} is none: {1}")]
    Schedule(String, #[source] ParseError),
    #[error("its schedule {0:?} is not due within five years")]
    TooFar(String),
}

/// When a CronJob is due next.
fn next_turn(cron_job: &Value, now: Timestamp) -> Result<Timestamp, NeverDue> {
    let (schedule, zone) = (text(cron_job, "/spec/schedule"), text(cron_job, "/spec/timeZone"));
    let zone = match zone {
        "" => TimeZone::UTC,
        name => time_zone(name).ok_or_else(|| NeverDue::TimeZone(name.to_owned()))?,
    };
    let parsed = Schedule::parse(schedule).map_err(|why| NeverDue::Schedule(schedule.to_owned(), why))?;
    parsed.next(now, &zone).ok_or_else(|| NeverDue::TooFar(schedule.to_owned()))
}
