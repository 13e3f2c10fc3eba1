//! The times at which a CronJob starts a Job: what its schedule, its deadline and what it started last say.

use controller::metadata::created;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::CronJob;
use machinery::cron::{Schedule, time_zone};

/// More than these are many. Source: upstream's `manyMissed`.
const MISSED_FEW: i64 = 100;

/// The state of a schedule at a moment.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// The latest time that has come since the last start.
    Now {
        /// What is to be started.
        turn: Turn,
        /// When to look again.
        next: Option<Timestamp>,
    },
    /// No time has come since the last start.
    Later {
        /// When to look again.
        next: Option<Timestamp>,
    },
    /// The schedule has no times.
    Never,
    /// Nobody knows the time zone.
    UnknownZone(String),
    /// The schedule is none: why.
    Unparseable(String),
}

/// A time at which a Job is to be started.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// The time.
    pub at: Timestamp,
    /// The same as RFC 3339, in the CronJob's time zone.
    pub written: String,
    /// `true` if `startingDeadlineSeconds` have passed since.
    pub is_too_late: bool,
    /// `true` if more than 100 times have passed in which nothing was started.
    pub follows_many: bool,
}

impl Due {
    /// The Job to be started now.
    pub fn turn(&self) -> Option<&Turn> {
        match self {
            Self::Now { turn, .. } => Some(turn),
            _ => None,
        }
    }

    /// The time to look again.
    pub fn next(&self) -> Option<Timestamp> {
        match self {
            Self::Now { next, .. } | Self::Later { next } => *next,
            Self::Never | Self::UnknownZone(_) | Self::Unparseable(_) => None,
        }
    }
}

/// What the CronJob's schedule says at `now`.
pub(super) fn due(cron_job: &CronJob, now: Timestamp) -> Due {
    let Some(spec) = &cron_job.spec else { return Due::Later { next: None } };
    let zone = match spec.time_zone.as_deref() {
        None => TimeZone::UTC,
        Some(name) => match time_zone(name) {
            Some(zone) => zone,
            None => return Due::UnknownZone(name.to_owned()),
        },
    };
    let schedule = match Schedule::parse(&spec.schedule) {
        Ok(schedule) => schedule,
        Err(error) => return Due::Unparseable(error.to_string()),
    };
    let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    let last = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    let since = last.map_or_else(|| created(&cron_job.metadata), |time| time.0);
    // Nothing is started that was due before.
    let earliest =
        deadline.and_then(|span| now.checked_sub(span).ok()).map_or(since, |start| start.max(since));
    let times = Times { schedule: &schedule, zone: &zone };
    let next = times.after_latest(since, now);
    match times.latest(earliest, now) {
        Latest::Unclear => Due::Never,
        Latest::None => Due::Later { next },
        Latest::At { at, missed } => {
            let is_too_late = deadline.is_some_and(|span| at.checked_add(span).is_ok_and(|end| end < now));
            let written = at.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
            let written = written.strip_suffix("+00:00").map_or(written.clone(), |utc| format!("{utc}Z"));
            Due::Now { turn: Turn { at, written, is_too_late, follows_many: missed > MISSED_FEW }, next }
        }
    }
}

struct Times<'a> {
    schedule: &'a Schedule,
    zone: &'a TimeZone,
}

enum Latest {
    At {
        at: Timestamp,
        missed: i64,
    },
    None,
    /// The times cannot be told apart.
    Unclear,
}

impl Times<'_> {
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, self.zone)
    }

    /// The first time that has not come yet: `@every` counts from the last one and not from now.
    fn after_latest(&self, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let from = match self.latest(since, now) {
            Latest::At { at, .. } => at,
            Latest::None => since,
            Latest::Unclear => now,
        };
        self.next(from).filter(|next| *next > now).or_else(|| self.next(now))
    }

    /// The latest time after `since` and not after `now`. Of years that were missed only the end is gone through.
    fn latest(&self, since: Timestamp, now: Timestamp) -> Latest {
        let Some(first) = self.next(since) else { return Latest::Unclear };
        if now < first {
            return Latest::None;
        }
        let Some(second) = self.next(first) else { return Latest::Unclear };
        if now < second {
            return Latest::At { at: first, missed: 0 };
        }
        let between = second.duration_since(first).as_secs();
        if between < 1 {
            return Latest::Unclear;
        }
        let missed = now.duration_since(first).as_secs() / between + 1;
        // Where times are not evenly spread, one span more makes sure that the latest is found.
        let skipped = SignedDuration::from_secs((missed - 2).saturating_mul(between));
        let from = first.checked_add(skipped).unwrap_or(first);
        let mut at = None;
        let mut time = self.next(from);
        while let Some(passed) = time.filter(|time| *time <= now) {
            at = Some(passed);
            time = self.next(passed);
        }
        at.map_or(Latest::None, |at| Latest::At { at, missed })
    }
}
