//! Moments, in the years 1 to 9999.

use std::cmp::Ordering;
use std::fmt;

use jiff::civil::{Date, DateTime, Time, date};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// Seconds of the first and the last moment.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
const NANOS: i128 = 1_000_000_000;

/// A moment. A type of its own because the last day of the year 9999, which people write for "never", is beyond what
/// others hold.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    seconds: i64,
    nanos: u32,
    /// Seconds east of Greenwich that it was written with, and is shown with. No two moments differ by it.
    offset: i32,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos().cmp(&other.nanos())
    }
}

impl Moment {
    /// A moment by seconds since 1970 and nanoseconds in the second.
    #[must_use]
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (SECONDS.contains(&seconds) && nanos < 1_000_000_000).then_some(Self { seconds, nanos, offset: 0 })
    }

    /// A moment by RFC 3339.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (civil, offset) = match text.strip_suffix('Z') {
            Some(civil) => (civil, 0),
            None => {
                let (civil, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
                let (hours, minutes) = offset.get(1..)?.split_once(':')?;
                let is_plain = offset.get(1..)?.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
                let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
                let is_within = is_plain && hours < 24 && minutes < 60;
                let seconds = (hours * 60 + minutes) * 60;
                match offset.as_bytes().first().filter(|_| is_within)? {
                    b'+' => (civil, seconds),
                    b'-' => (civil, -seconds),
                    _ => return None,
                }
            }
        };
        let (day, time) = civil.split_once('T')?;
        let (day, time) = (parsed_day(day)?, parsed_time(time)?);
        let since = day.to_datetime(time).duration_since(epoch());
        let moment = Self::of_nanos(since.as_nanos() - i128::from(offset) * NANOS)?;
        Some(Self { offset: i32::try_from(offset).ok()?, ..moment })
    }

    /// The first moment of a day.
    #[must_use]
    pub fn of_day(text: &str) -> Option<Self> {
        let since = parsed_day(text)?.to_datetime(Time::midnight()).duration_since(epoch());
        Self::of_nanos(since.as_nanos())
    }

    fn of_nanos(nanos: i128) -> Option<Self> {
        let seconds = i64::try_from(nanos.div_euclid(NANOS)).ok()?;
        Self::new(seconds, u32::try_from(nanos.rem_euclid(NANOS)).ok()?)
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Whether it is the beginning of the year 1, which Go takes for no moment at all.
    pub(crate) fn is_zero(self) -> bool {
        self.seconds == *SECONDS.start() && self.nanos == 0
    }

    pub(crate) fn nanos(self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    /// The moment so many nanoseconds later.
    pub(crate) fn later(self, nanos: i64) -> Option<Self> {
        Some(Self { offset: self.offset, ..Self::of_nanos(self.nanos() + i128::from(nanos))? })
    }

    /// What calendar and clock say in a time zone.
    pub(crate) fn civil(self, zone: &TimeZone) -> DateTime {
        let known = Timestamp::new(self.seconds, 0).unwrap_or(Timestamp::MAX);
        let offset = zone.to_offset(known);
        self.at(offset).unwrap_or_else(|| self.at(Offset::UTC).unwrap_or(epoch()))
    }

    fn at(self, offset: Offset) -> Option<DateTime> {
        let nanos = self.nanos() + i128::from(offset.seconds()) * NANOS;
        let seconds = i64::try_from(nanos.div_euclid(NANOS)).ok()?;
        let rest = i32::try_from(nanos.rem_euclid(NANOS)).ok()?;
        epoch().checked_add(SignedDuration::new(seconds, rest)).ok()
    }
}

fn epoch() -> DateTime {
    date(1970, 1, 1).to_datetime(Time::midnight())
}

/// `2006-01-02`.
fn parsed_day(text: &str) -> Option<Date> {
    let is_day = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    text.parse().ok().filter(|_| is_day)
}

/// `15:04:05` with any fraction.
fn parsed_time(text: &str) -> Option<Time> {
    let (clock, fraction) =
        text.split_once('.').map_or((text, None), |(clock, fraction)| (clock, Some(fraction)));
    let is_clock = clock.len() == 8 && clock.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    let parts: Option<Vec<i8>> = clock.split(':').map(|part| part.parse().ok()).collect();
    let [hour, minute, second] = parts.filter(|_| is_clock)?.try_into().ok()?;
    let nanos = match fraction {
        None => 0,
        Some(digits) if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            return None;
        }
        Some(digits) => format!("{digits:0<9}").get(..9)?.parse().ok()?,
    };
    Time::new(hour, minute, second, nanos).ok()
}

impl fmt::Display for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = Offset::from_seconds(self.offset).unwrap_or(Offset::UTC);
        let civil = self.at(offset).ok_or(fmt::Error)?;
        if self.offset == 0 {
            return write!(formatter, "{civil}Z");
        }
        let (sign, minutes) = (if self.offset < 0 { '-' } else { '+' }, self.offset.unsigned_abs() / 60);
        write!(formatter, "{civil}{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}
